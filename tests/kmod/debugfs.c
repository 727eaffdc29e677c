// SPDX-License-Identifier: GPL-2.0
/* The files in debugfs, by which tests read counts, raise events and deliver messages. */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "kt.h"

static const char *const kt_kind_names[KT_KINDS] = {
	"context", "pd", "mr", "mw", "ah", "cq", "srq", "qp", "xrcd"
};

static struct dentry *kt_directory;

void kt_event_of_cq(struct kt_cq *cq, enum ib_event_type type)
{
	struct ib_event event = { .device = kt, .element.cq = &cq->ib, .event = type };

	if (cq->ib.event_handler)
		cq->ib.event_handler(&event, cq->ib.cq_context);
}

void kt_event_of_qp(struct kt_qp *qp, enum ib_event_type type)
{
	struct ib_event event = { .device = kt, .element.qp = &qp->ib, .event = type };

	if (qp->ib.event_handler)
		qp->ib.event_handler(&event, qp->ib.qp_context);
}

void kt_event_of_srq(struct kt_srq *srq, enum ib_event_type type)
{
	struct ib_event event = { .device = kt, .element.srq = &srq->ib, .event = type };

	if (srq->ib.event_handler)
		srq->ib.event_handler(&event, srq->ib.srq_context);
}

static int kt_counts_show(struct seq_file *file, void *unused)
{
	int kind;

	for (kind = 0; kind < KT_KINDS; kind++)
		seq_printf(file, "%s %d\n", kt_kind_names[kind], atomic_read(&kt_live[kind]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(kt_counts);

static int kt_raise(enum ib_event_type type, u32 number)
{
	struct ib_event event = { .device = kt, .element.port_num = number, .event = type };
	struct kt_qp *qp = kt_qp_of(number);
	struct kt_srq *srq = kt_srq_of(number);

	switch (type) {
	case IB_EVENT_CQ_ERR:
		if (!qp || !qp->ib.send_cq)
			return -EINVAL;
		kt_event_of_cq(container_of(qp->ib.send_cq, struct kt_cq, ib), type);
		return 0;
	case IB_EVENT_QP_FATAL:
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
	case IB_EVENT_COMM_EST:
	case IB_EVENT_SQ_DRAINED:
	case IB_EVENT_PATH_MIG:
	case IB_EVENT_PATH_MIG_ERR:
	case IB_EVENT_QP_LAST_WQE_REACHED:
		if (!qp)
			return -EINVAL;
		kt_event_of_qp(qp, type);
		return 0;
	case IB_EVENT_SRQ_ERR:
	case IB_EVENT_SRQ_LIMIT_REACHED:
		if (qp && qp->ib.srq)
			srq = container_of(qp->ib.srq, struct kt_srq, ib);
		if (!srq)
			return -EINVAL;
		kt_event_of_srq(srq, type);
		return 0;
	case IB_EVENT_WQ_FATAL:
		return -EINVAL;
	default:
		ib_dispatch_event(&event);
		return 0;
	}
}

static int kt_deliver(u32 qpn, u32 srqn, u32 length)
{
	struct kt_wr message = { .opcode = IB_WR_SEND, .length = length };
	struct kt_srq *srq = kt_srq_of(srqn);
	struct kt_qp *qp = kt_qp_of(qpn);

	if (!qp || qp->ib.qp_type != IB_QPT_XRC_TGT || qp->attr.qp_state < IB_QPS_RTR ||
	    qp->attr.qp_state == IB_QPS_ERR)
		return -ENOTCONN;
	if (!srq || srq->ib.srq_type != IB_SRQT_XRC || srq->ib.ext.xrc.xrcd != qp->ib.xrcd)
		return -EINVAL;
	if (!srq->receives.used)
		return -EAGAIN;
	kt_receive(qp, &srq->receives, srq->ib.ext.cq, &message, 0);
	kt_limit(srq);
	return 0;
}

static ssize_t kt_numbers_from(const char __user *buffer, size_t count, u32 *numbers, int wanted)
{
	char text[48] = {};
	int found;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buffer, count))
		return -EFAULT;
	found = sscanf(text, "%u %u %u", &numbers[0], &numbers[1], &numbers[2]);
	return found == wanted ? 0 : -EINVAL;
}

static ssize_t kt_event_write(struct file *file, const char __user *buffer, size_t count,
			      loff_t *position)
{
	u32 numbers[3];
	ssize_t err = kt_numbers_from(buffer, count, numbers, 2);

	if (err)
		return err;
	spin_lock(&kt_lock);
	err = kt_raise(numbers[0], numbers[1]);
	spin_unlock(&kt_lock);
	return err ?: count;
}

static const struct file_operations kt_event_fops = {
	.owner = THIS_MODULE,
	.write = kt_event_write,
};

static ssize_t kt_deliver_write(struct file *file, const char __user *buffer, size_t count,
				loff_t *position)
{
	u32 numbers[3];
	ssize_t err = kt_numbers_from(buffer, count, numbers, 3);

	if (err)
		return err;
	spin_lock(&kt_lock);
	err = kt_deliver(numbers[0], numbers[1], numbers[2]);
	spin_unlock(&kt_lock);
	return err ?: count;
}

static const struct file_operations kt_deliver_fops = {
	.owner = THIS_MODULE,
	.write = kt_deliver_write,
};

void kt_debugfs_add(void)
{
	kt_directory = debugfs_create_dir("rdmacm_test", NULL);
	debugfs_create_file("counts", 0400, kt_directory, NULL, &kt_counts_fops);
	debugfs_create_file("event", 0200, kt_directory, NULL, &kt_event_fops);
	debugfs_create_file("deliver", 0200, kt_directory, NULL, &kt_deliver_fops);
}

void kt_debugfs_remove(void)
{
	debugfs_remove(kt_directory);
}
