// SPDX-License-Identifier: GPL-2.0
/*
 * Alterations of the driver data in answers to commands, which a test requests. Each one happens once, to the next answer
 * to a command.
 *
 * A write to debugfs mlx5_card/answer requests one of them:
 *
 *   cut COMMAND LENGTH        The answer has only this number of bytes.
 *   set COMMAND OFFSET WORD   The answer has this word of 32 bits at the offset.
 *
 * COMMAND is a name as in the journal, such as alloc_ucontext. The file reads `pending` until the alteration happens.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "card.h"

static DEFINE_MUTEX(answer_lock);
static struct {
	bool is_pending, is_cut;
	char command[24];
	u32 offset, word;
} answer;

/*
 * Returns the altered copy of an answer of *SIZE bytes to COMMAND, which the caller frees, or NULL if the answer stays as
 * it is.
 */
void *card_alter(const char *command, const void *from, size_t *size)
{
	void *altered = NULL;

	mutex_lock(&answer_lock);
	if (!answer.is_pending || strcmp(answer.command, command))
		goto out;
	altered = kmemdup(from, *size, GFP_KERNEL);
	if (!altered)
		goto out;
	if (answer.is_cut)
		*size = min_t(size_t, *size, answer.offset);
	else if (answer.offset + sizeof(u32) <= *size)
		memcpy(altered + answer.offset, &answer.word, sizeof(u32));
	answer.is_pending = false;
out:
	mutex_unlock(&answer_lock);
	return altered;
}

static int card_answer_show(struct seq_file *file, void *unused)
{
	mutex_lock(&answer_lock);
	if (answer.is_pending)
		seq_puts(file, "pending\n");
	mutex_unlock(&answer_lock);
	return 0;
}

static int card_answer_open(struct inode *inode, struct file *file)
{
	return single_open(file, card_answer_show, NULL);
}

static ssize_t card_answer_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	char text[64] = {}, kind[4], command[sizeof(answer.command)];
	u32 offset, word = 0;
	int words;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	words = sscanf(text, "%3s %23s %u %u", kind, command, &offset, &word);
	if (words != (strcmp(kind, "cut") ? 4 : 3) || offset > PAGE_SIZE)
		return -EINVAL;
	mutex_lock(&answer_lock);
	answer.is_pending = true;
	answer.is_cut = words == 3;
	strscpy(answer.command, command, sizeof(answer.command));
	answer.offset = offset;
	answer.word = word;
	mutex_unlock(&answer_lock);
	return count;
}

static const struct file_operations card_answer_fops = {
	.owner = THIS_MODULE,
	.open = card_answer_open,
	.read = seq_read,
	.write = card_answer_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void card_answer_init(struct dentry *directory)
{
	debugfs_create_file("answer", 0600, directory, NULL, &card_answer_fops);
}
