// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of the device that a test requests. Each one happens once, to one queue pair of a program.
 *
 * A write to debugfs mlx5_card/fault requests one of them:
 *
 *   late QPN                   The next completion of the queue pair waits for its release. Later completions of its
 *                              completion queue wait too, because they are written in order.
 *   release QPN                The late completion, and all that wait for it, are written.
 *   error QPN SYNDROME VENDOR  The next send is not executed. It completes with this syndrome and vendor error.
 *   lost QPN                   The next store to a doorbell register is lost: the device starts no send before it sees
 *                              another one.
 *   unended QPN                The next resize of the queue pair's receive completion queue does not write the entry that
 *                              ends the old ring.
 *
 * The file has a line for each fault, `late QPN pending`. A fault is pending until it happens. Then a late completion is
 * `active` until its release, and a lost doorbell until the next doorbell.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "card.h"

/* A completion that waits for a release. */
struct card_late {
	struct list_head entry;
	struct mlx5_cqe64 cqe;
	u8 opcode;
	bool solicited;
};

/* Keeps a completion if it has to wait for a release. Returns true in this case. */
bool card_is_late(struct card_cq *cq, const struct mlx5_cqe64 *cqe, u8 opcode, bool solicited)
{
	struct card_qp *qp = xa_load(&card_qps, be32_to_cpu(cqe->sop_drop_qpn) & 0xffffff);
	struct card_late *late;

	if (!cq->late_qpn) {
		if (!qp || !qp->late)
			return false;
		qp->late = false;
		cq->late_qpn = qp->qpn;
	}
	/* The caller cannot report an error, so the allocation must not fail. */
	late = kmalloc(sizeof(*late), GFP_KERNEL | __GFP_NOFAIL);
	late->cqe = *cqe;
	late->opcode = opcode;
	late->solicited = solicited;
	list_add_tail(&late->entry, &cq->late);
	return true;
}

static void card_release_late(const struct card_qp *qp, struct ib_cq *ibcq)
{
	struct card_cq *cq = container_of(ibcq, struct card_cq, ib);
	struct card_late *late, *next;
	LIST_HEAD(released);

	if (!ibcq || cq->late_qpn != qp->qpn)
		return;
	cq->late_qpn = 0;
	list_splice_init(&cq->late, &released);
	list_for_each_entry_safe(late, next, &released, entry) {
		card_complete(cq, &late->cqe, late->opcode, late->solicited);
		kfree(late);
	}
}

static void card_release(const struct card_qp *qp)
{
	card_release_late(qp, qp->ib.send_cq);
	card_release_late(qp, qp->ib.recv_cq);
}

/*
 * Ends all faults of a queue pair before it is reset or destroyed. Late completions are written now, because a device
 * writes none afterwards.
 */
void card_forget_faults(struct card_qp *qp)
{
	qp->late = false;
	qp->lost = CARD_DOORBELL_SEEN;
	qp->failure = (struct card_failure){};
	if (qp->ib.recv_cq && container_of(qp->ib.recv_cq, struct card_cq, ib)->unended_qpn == qp->qpn)
		container_of(qp->ib.recv_cq, struct card_cq, ib)->unended_qpn = 0;
	card_release(qp);
}

/* Returns true if the doorbell that was just seen is lost. */
bool card_loses_doorbell(struct card_qp *qp)
{
	bool is_lost = qp->lost == CARD_DOORBELL_TO_LOSE;

	qp->lost = is_lost ? CARD_DOORBELL_LOST : CARD_DOORBELL_SEEN;
	return is_lost;
}

static int card_fault_show(struct seq_file *file, void *unused)
{
	struct card_qp *qp;
	struct card_cq *cq;

	mutex_lock(&card_lock);
	list_for_each_entry(qp, &card_qp_list, entry) {
		if (qp->late)
			seq_printf(file, "late %u pending\n", qp->qpn);
		if (qp->failure.syndrome)
			seq_printf(file, "error %u pending\n", qp->qpn);
		if (qp->lost)
			seq_printf(file, "lost %u %s\n", qp->qpn, qp->lost == CARD_DOORBELL_LOST ? "active" : "pending");
	}
	list_for_each_entry(cq, &card_cq_list, entry) {
		if (cq->late_qpn)
			seq_printf(file, "late %u active\n", cq->late_qpn);
		if (cq->unended_qpn)
			seq_printf(file, "unended %u pending\n", cq->unended_qpn);
	}
	mutex_unlock(&card_lock);
	return 0;
}

static int card_fault_open(struct inode *inode, struct file *file)
{
	return single_open(file, card_fault_show, NULL);
}

static int card_ask(const char *text)
{
	struct card_failure failure;
	struct card_qp *qp;
	char kind[8];
	u32 qpn;
	int words = sscanf(text, "%7s %u %hhi %hhi", kind, &qpn, &failure.syndrome, &failure.vendor);

	qp = words >= 2 ? xa_load(&card_qps, qpn) : NULL;
	/* An XRC target has no queues. */
	if (!qp || !qp->db)
		return -ENOENT;
	if (!strcmp(kind, "late") && words == 2)
		qp->late = true;
	else if (!strcmp(kind, "release") && words == 2)
		card_release(qp);
	else if (!strcmp(kind, "lost") && words == 2)
		qp->lost = CARD_DOORBELL_TO_LOSE;
	else if (!strcmp(kind, "unended") && words == 2 && qp->ib.recv_cq)
		container_of(qp->ib.recv_cq, struct card_cq, ib)->unended_qpn = qpn;
	else if (!strcmp(kind, "error") && words == 4 && failure.syndrome)
		qp->failure = failure;
	else
		return -EINVAL;
	return 0;
}

static ssize_t card_fault_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	char text[64] = {};
	int err;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	mutex_lock(&card_lock);
	err = card_ask(text);
	mutex_unlock(&card_lock);
	return err ? err : count;
}

static const struct file_operations card_fault_fops = {
	.owner = THIS_MODULE,
	.open = card_fault_open,
	.read = seq_read,
	.write = card_fault_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void card_fault_init(struct dentry *directory)
{
	debugfs_create_file("fault", 0600, directory, NULL, &card_fault_fops);
}
