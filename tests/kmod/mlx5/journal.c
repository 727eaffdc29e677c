// SPDX-License-Identifier: GPL-2.0
/*
 * The journal: a line of text, `KIND KEY=VALUE ...`, for each action of a program that the device observes.
 *
 * Debugfs mlx5_card/journal has the lines. A write to the file clears and enables the journal; it is disabled at first.
 * Its last line is the number of lines that did not fit.
 *
 * Debugfs mlx5_card/sweeps has the number of sweeps of the engine. While the file is open for writing, the engine pauses. A
 * write of a number makes it sweep that many times, and returns after the last sweep. So a program decides when the device
 * reads its memory, and two programs with the same actions produce the same journal.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "card.h"

#define CARD_JOURNAL_SIZE	(4 << 20)

static DEFINE_MUTEX(card_journal_lock);
static char *card_journal_text;			/* NULL until the journal is enabled */
static size_t card_journal_length;
static u32 card_journal_dropped;

static u32 card_holders, card_steps, card_sweeps;	/* protected by card_lock */
static DECLARE_WAIT_QUEUE_HEAD(card_swept);

/* Appends a line. Its last field is BYTES, unless they are NULL. */
void card_journal(const void *bytes, size_t length, const char *format, ...)
{
	char *at;
	size_t room, used, i;
	va_list args;

	mutex_lock(&card_journal_lock);
	if (!card_journal_text)
		goto unlock;
	at = card_journal_text + card_journal_length;
	room = CARD_JOURNAL_SIZE - card_journal_length;
	va_start(args, format);
	used = vsnprintf(at, room, format, args);
	va_end(args);
	if (used + sizeof(" bytes=") + 2 * length + sizeof("\n") > room) {
		card_journal_dropped++;
		goto unlock;
	}
	if (bytes) {
		used += sprintf(at + used, " bytes=");
		for (i = 0; i < length; i++)
			used += sprintf(at + used, "%02x", ((const u8 *)bytes)[i]);
	}
	at[used++] = '\n';
	card_journal_length += used;
unlock:
	mutex_unlock(&card_journal_lock);
}

void card_journal_created_qp(const struct card_qp *qp)
{
	const struct ib_qp_init_attr *init = &qp->init;
	const struct ib_pd *pd = qp->ib.pd;

	card_journal(NULL, 0,
		    "qp qpn=%u type=%u pdn=%u send_cqn=%u recv_cqn=%u srqn=%u sends=%u receives=%u send_sge=%u recv_sge=%u "
		    "inline=%u signal=%u register=%d", qp->qpn, init->qp_type,
		    pd ? container_of(pd, struct card_pd, ib)->pdn : 0,
		    init->send_cq ? container_of(init->send_cq, struct card_cq, ib)->cqn : 0,
		    init->recv_cq ? container_of(init->recv_cq, struct card_cq, ib)->cqn : 0,
		    init->srq ? container_of(init->srq, struct card_srq, ib)->srqn : 0, init->cap.max_send_wr,
		    init->cap.max_recv_wr, init->cap.max_send_sge, init->cap.max_recv_sge,
		    init->cap.max_inline_data, init->sq_sig_type, qp->bfreg);
}

/* Records changes of the words of a doorbell record. */
void card_journal_qp(struct card_qp *qp)
{
	u32 receives = be32_to_cpu(READ_ONCE(qp->db[0])), sends = be32_to_cpu(READ_ONCE(qp->db[1]));

	if (receives == qp->seen_receives && sends == qp->seen_sends)
		return;
	qp->seen_receives = receives;
	qp->seen_sends = sends;
	card_journal(NULL, 0, "qp_record qpn=%u receives=%u sends=%u", qp->qpn, receives, sends);
}

void card_journal_cq(struct card_cq *cq)
{
	u32 index = be32_to_cpu(READ_ONCE(cq->db[0])), arm = be32_to_cpu(cq->arm);

	if (index != cq->seen_index) {
		cq->seen_index = index;
		card_journal(NULL, 0, "cq_index cqn=%u index=%u", cq->cqn, index);
	}
	if (cq->arm == CARD_NEVER_ARMED || (cq->seen_arm_set && arm == cq->seen_arm))
		return;
	cq->seen_arm = arm;
	cq->seen_arm_set = true;
	card_journal(&cq->registers->arm_store, 8, "cq_arm cqn=%u word=%u", cq->cqn, arm);
}

/*
 * Records a doorbell for the entry at INDEX with the bytes of the register. If a program controls the sweeps, the register is
 * cleared, so that the next line has the bytes of one doorbell only.
 */
void card_journal_ring(struct card_qp *qp, u16 index, u32 buffer, void *at)
{
	u32 size = max_t(u32, qp->registers->size / 2, sizeof(u64)), length = size;

	if (!READ_ONCE(card_journal_text))
		return;
	while (length && !*(u64 *)(at + length - 8))
		length -= 8;
	card_journal(at, length, "ring qpn=%u index=%u register=%d buffer=%u", qp->qpn, index, qp->bfreg, buffer);
	if (card_holders)
		memset(at, 0, size);
}

void card_journal_modify(const struct card_qp *qp, const struct ib_qp_attr *attr, int mask, size_t inlen)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(&attr->ah_attr);
	const u8 *dmac = mask & IB_QP_AV ? rdma_ah_retrieve_dmac((struct rdma_ah_attr *)&attr->ah_attr) : NULL;
	static const u8 no_dmac[ETH_ALEN];

#define CARD_SHOWN(bit, value) (mask & (bit) ? (value) : 0)
	card_journal(mask & IB_QP_AV ? grh->dgid.raw : NULL, sizeof(grh->dgid),
		    "modify_qp qpn=%u mask=%#x inlen=%zu state=%u port=%u pkey=%u access=%#x qkey=%#x mtu=%u dest=%u "
		    "rq_psn=%u sq_psn=%u rd=%u dest_rd=%u rnr_timer=%u timeout=%u retry=%u rnr_retry=%u sgid=%u "
		    "flow=%u hop=%u tclass=%u sl=%u rate=%u path_bits=%u dmac=%pM cur_state=%u drained=%u migration=%u "
		    "alt_port=%u alt_pkey=%u alt_timeout=%u", qp->qpn, mask, inlen,
		    CARD_SHOWN(IB_QP_STATE, attr->qp_state), CARD_SHOWN(IB_QP_PORT, attr->port_num),
		    CARD_SHOWN(IB_QP_PKEY_INDEX, attr->pkey_index),
		    CARD_SHOWN(IB_QP_ACCESS_FLAGS, attr->qp_access_flags), CARD_SHOWN(IB_QP_QKEY, attr->qkey),
		    CARD_SHOWN(IB_QP_PATH_MTU, attr->path_mtu), CARD_SHOWN(IB_QP_DEST_QPN, attr->dest_qp_num),
		    CARD_SHOWN(IB_QP_RQ_PSN, attr->rq_psn), CARD_SHOWN(IB_QP_SQ_PSN, attr->sq_psn),
		    CARD_SHOWN(IB_QP_MAX_QP_RD_ATOMIC, attr->max_rd_atomic),
		    CARD_SHOWN(IB_QP_MAX_DEST_RD_ATOMIC, attr->max_dest_rd_atomic),
		    CARD_SHOWN(IB_QP_MIN_RNR_TIMER, attr->min_rnr_timer), CARD_SHOWN(IB_QP_TIMEOUT, attr->timeout),
		    CARD_SHOWN(IB_QP_RETRY_CNT, attr->retry_cnt), CARD_SHOWN(IB_QP_RNR_RETRY, attr->rnr_retry),
		    CARD_SHOWN(IB_QP_AV, grh->sgid_index), CARD_SHOWN(IB_QP_AV, grh->flow_label),
		    CARD_SHOWN(IB_QP_AV, grh->hop_limit), CARD_SHOWN(IB_QP_AV, grh->traffic_class),
		    CARD_SHOWN(IB_QP_AV, attr->ah_attr.sl), CARD_SHOWN(IB_QP_AV, attr->ah_attr.static_rate),
		    CARD_SHOWN(IB_QP_AV, rdma_ah_get_path_bits(&attr->ah_attr)), dmac ?: no_dmac,
		    CARD_SHOWN(IB_QP_CUR_STATE, attr->cur_qp_state),
		    CARD_SHOWN(IB_QP_EN_SQD_ASYNC_NOTIFY, attr->en_sqd_async_notify),
		    CARD_SHOWN(IB_QP_PATH_MIG_STATE, attr->path_mig_state),
		    CARD_SHOWN(IB_QP_ALT_PATH, attr->alt_port_num), CARD_SHOWN(IB_QP_ALT_PATH, attr->alt_pkey_index),
		    CARD_SHOWN(IB_QP_ALT_PATH, attr->alt_timeout));
#undef CARD_SHOWN
}

static int card_journal_show(struct seq_file *file, void *unused)
{
	mutex_lock(&card_journal_lock);
	if (card_journal_text)
		seq_write(file, card_journal_text, card_journal_length);
	seq_printf(file, "dropped count=%u\n", card_journal_dropped);
	mutex_unlock(&card_journal_lock);
	return 0;
}

static int card_journal_open(struct inode *inode, struct file *file)
{
	size_t size;

	mutex_lock(&card_journal_lock);
	size = card_journal_length + 64;
	mutex_unlock(&card_journal_lock);
	return single_open_size(file, card_journal_show, NULL, size);
}

static ssize_t card_journal_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	int err = 0;

	mutex_lock(&card_journal_lock);
	if (!card_journal_text)
		WRITE_ONCE(card_journal_text, vmalloc(CARD_JOURNAL_SIZE));
	if (!card_journal_text)
		err = -ENOMEM;
	card_journal_length = 0;
	card_journal_dropped = 0;
	mutex_unlock(&card_journal_lock);
	return err ? err : count;
}

static const struct file_operations card_journal_fops = {
	.owner = THIS_MODULE,
	.open = card_journal_open,
	.read = seq_read,
	.write = card_journal_write,
	.llseek = seq_lseek,
	.release = single_release,
};

/* Returns true if the engine may sweep now. The caller holds card_lock. */
bool card_may_sweep(void)
{
	return !card_holders || card_steps;
}

/* Counts a sweep that has ended. The caller holds card_lock. */
void card_end_sweep(void)
{
	card_sweeps++;
	if (card_steps && !--card_steps)
		wake_up_all(&card_swept);
}

static int card_sweeps_open(struct inode *inode, struct file *file)
{
	if (file->f_mode & FMODE_WRITE) {
		mutex_lock(&card_lock);
		card_holders++;
		mutex_unlock(&card_lock);
	}
	return nonseekable_open(inode, file);
}

static int card_sweeps_release(struct inode *inode, struct file *file)
{
	if (file->f_mode & FMODE_WRITE) {
		mutex_lock(&card_lock);
		if (!--card_holders) {
			card_steps = 0;
			wake_up_all(&card_swept);
		}
		mutex_unlock(&card_lock);
	}
	return 0;
}

static ssize_t card_sweeps_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	char text[16];
	int length = scnprintf(text, sizeof(text), "%u\n", READ_ONCE(card_sweeps));

	return simple_read_from_buffer(to, count, at, text, length);
}

static ssize_t card_sweeps_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	u32 sweeps;
	int err = kstrtou32_from_user(from, count, 10, &sweeps);

	if (err)
		return err;
	mutex_lock(&card_lock);
	card_steps += sweeps;
	mutex_unlock(&card_lock);
	err = wait_event_killable(card_swept, !READ_ONCE(card_steps));
	return err ? err : count;
}

static const struct file_operations card_sweeps_fops = {
	.owner = THIS_MODULE,
	.open = card_sweeps_open,
	.read = card_sweeps_read,
	.write = card_sweeps_write,
	.release = card_sweeps_release,
};

void card_journal_init(struct dentry *directory)
{
	debugfs_create_file("journal", 0600, directory, NULL, &card_journal_fops);
	debugfs_create_file("sweeps", 0600, directory, NULL, &card_sweeps_fops);
}

void card_journal_exit(void)
{
	vfree(card_journal_text);
}
