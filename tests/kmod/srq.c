// SPDX-License-Identifier: GPL-2.0
/* Shared receive queues. */
#include "kt.h"

static int kt_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct kt_srq *srq = container_of(ibsrq, struct kt_srq, ib);
	struct ib_srq_attr *attr = &init->attr;
	int err;

	if (init->srq_type != IB_SRQT_BASIC && init->srq_type != IB_SRQT_XRC)
		return -EOPNOTSUPP;
	if (!attr->max_wr || attr->max_wr > KT_MAX_WR || attr->max_sge > KT_MAX_SGE)
		return -EINVAL;
	attr->max_wr = kt_rounded(attr->max_wr);
	if (attr->srq_limit > attr->max_wr)
		return -EINVAL;
	srq->max_sge = attr->max_sge;
	srq->limit = attr->srq_limit;
	err = kt_queue_init(&srq->receives, attr->max_wr);
	if (!err)
		err = kt_number(&srq->id, KT_SRQ);
	if (err) {
		kvfree(srq->receives.slots);
		return err;
	}
	if (init->srq_type == IB_SRQT_XRC)
		ibsrq->ext.xrc.srq_num = srq->id.number;
	return kt_born(KT_SRQ);
}

static int kt_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct kt_srq *srq = container_of(ibsrq, struct kt_srq, ib);

	if (READ_ONCE(kt_kept) == KT_SRQ)
		return -EBUSY;
	spin_lock(&kt_lock);
	xa_erase(&kt_numbers, srq->id.number);
	spin_unlock(&kt_lock);
	kvfree(srq->receives.slots);
	return kt_died(KT_SRQ);
}

static int kt_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
			 enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct kt_srq *srq = container_of(ibsrq, struct kt_srq, ib);
	struct kt_queue old, new = {};
	int err = 0;

	if (mask & IB_SRQ_MAX_WR) {
		if (!attr->max_wr || attr->max_wr > KT_MAX_WR)
			return -EINVAL;
		err = kt_queue_init(&new, kt_rounded(attr->max_wr));
		if (err)
			return err;
	}
	spin_lock(&kt_lock);
	old = srq->receives;
	if ((new.size && new.size < old.used) ||
	    (mask & IB_SRQ_LIMIT && attr->srq_limit > (new.size ?: old.size))) {
		spin_unlock(&kt_lock);
		kvfree(new.slots);
		return -EINVAL;
	}
	if (new.size) {
		while (srq->receives.used) {
			struct kt_wr wr = kt_pop(&srq->receives);

			kt_push(&new, &wr);
		}
		srq->receives = new;
		new.slots = old.slots;
	}
	if (mask & IB_SRQ_LIMIT) {
		srq->limit = attr->srq_limit;
		kt_limit(srq);
	}
	spin_unlock(&kt_lock);
	kvfree(new.slots);
	return 0;
}

static int kt_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct kt_srq *srq = container_of(ibsrq, struct kt_srq, ib);

	spin_lock(&kt_lock);
	attr->max_wr = srq->receives.size;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = srq->limit;
	spin_unlock(&kt_lock);
	return 0;
}

static int kt_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *list,
			    const struct ib_recv_wr **bad)
{
	struct kt_srq *srq = container_of(ibsrq, struct kt_srq, ib);
	int err;

	spin_lock(&kt_lock);
	err = kt_post_receives(&srq->receives, srq->max_sge, list, bad);
	kt_progress_all();
	spin_unlock(&kt_lock);
	return err;
}

const struct ib_device_ops kt_srq_ops = {
	.create_srq = kt_create_srq,
	.modify_srq = kt_modify_srq,
	.query_srq = kt_query_srq,
	.destroy_srq = kt_destroy_srq,
	.post_srq_recv = kt_post_srq_recv,

	INIT_RDMA_OBJ_SIZE(ib_srq, kt_srq, ib),
};
