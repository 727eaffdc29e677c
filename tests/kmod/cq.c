// SPDX-License-Identifier: GPL-2.0
/* Completion queues. */
#include "kt.h"

void kt_complete(struct ib_cq *ibcq, const struct ib_wc *wc, bool solicited)
{
	struct kt_cq *cq = container_of(ibcq, struct kt_cq, ib);
	enum ib_cq_notify_flags why = IB_CQ_NEXT_COMP;

	if (cq->used == cq->ib.cqe) {
		kt_event_of_cq(cq, IB_EVENT_CQ_ERR);
		return;
	}
	cq->slots[(cq->first + cq->used++) % cq->ib.cqe] = *wc;
	if (solicited || wc->status != IB_WC_SUCCESS)
		why |= IB_CQ_SOLICITED;
	if (cq->armed & why) {
		cq->armed = 0;
		if (cq->ib.comp_handler)
			cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
	}
}

static int kt_create_entries(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr)
{
	struct kt_cq *cq = container_of(ibcq, struct kt_cq, ib);

	if (attr->flags)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > KT_MAX_CQE)
		return -EINVAL;
	cq->ib.cqe = kt_rounded(attr->cqe);
	cq->slots = kvcalloc(cq->ib.cqe, sizeof(*cq->slots), GFP_KERNEL);
	if (!cq->slots)
		return -ENOMEM;
	spin_lock(&kt_lock);
	list_add(&cq->entry, &kt_cqs);
	spin_unlock(&kt_lock);
	return kt_born(KT_CQ);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
static int kt_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			struct uverbs_attr_bundle *attrs)
#else
static int kt_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			struct ib_udata *udata)
#endif
{
	return kt_create_entries(cq, attr);
}

static int kt_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct kt_cq *cq = container_of(ibcq, struct kt_cq, ib);

	spin_lock(&kt_lock);
	list_del(&cq->entry);
	spin_unlock(&kt_lock);
	kvfree(cq->slots);
	return kt_died(KT_CQ);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
static int kt_resize_cq(struct ib_cq *ibcq, unsigned int cqe, struct ib_udata *udata)
#else
static int kt_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
#endif
{
	struct kt_cq *cq = container_of(ibcq, struct kt_cq, ib);
	struct ib_wc *old, *slots;
	u32 i, size;

	if (cqe < 1 || cqe > KT_MAX_CQE)
		return -EINVAL;
	size = kt_rounded(cqe);
	slots = kvcalloc(size, sizeof(*slots), GFP_KERNEL);
	if (!slots)
		return -ENOMEM;
	spin_lock(&kt_lock);
	if (cq->used > size) {
		spin_unlock(&kt_lock);
		kvfree(slots);
		return -EINVAL;
	}
	for (i = 0; i < cq->used; i++)
		slots[i] = cq->slots[(cq->first + i) % cq->ib.cqe];
	old = cq->slots;
	cq->slots = slots;
	cq->first = 0;
	cq->ib.cqe = size;
	spin_unlock(&kt_lock);
	kvfree(old);
	return 0;
}

static int kt_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc)
{
	struct kt_cq *cq = container_of(ibcq, struct kt_cq, ib);
	int i;

	spin_lock(&kt_lock);
	for (i = 0; i < count && cq->used; i++) {
		wc[i] = cq->slots[cq->first];
		cq->first = (cq->first + 1) % cq->ib.cqe;
		cq->used--;
	}
	spin_unlock(&kt_lock);
	return i;
}

static int kt_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct kt_cq *cq = container_of(ibcq, struct kt_cq, ib);
	int missed;

	spin_lock(&kt_lock);
	cq->armed = flags & IB_CQ_SOLICITED_MASK;
	missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->used;
	spin_unlock(&kt_lock);
	return missed;
}

/* Removes the completions of a queue pair that is reset or destroyed, because they refer to it. */
void kt_forget(struct kt_qp *qp)
{
	struct kt_cq *cq;
	u32 i, kept;

	list_for_each_entry(cq, &kt_cqs, entry) {
		for (i = 0, kept = 0; i < cq->used; i++) {
			struct ib_wc wc = cq->slots[(cq->first + i) % cq->ib.cqe];

			if (wc.qp != &qp->ib)
				cq->slots[(cq->first + kept++) % cq->ib.cqe] = wc;
		}
		cq->used = kept;
	}
}

const struct ib_device_ops kt_cq_ops = {
	.create_cq = kt_create_cq,
	.destroy_cq = kt_destroy_cq,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	.create_user_cq = kt_create_cq,
	.resize_user_cq = kt_resize_cq,
#else
	.resize_cq = kt_resize_cq,
#endif
	.poll_cq = kt_poll_cq,
	.req_notify_cq = kt_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_cq, kt_cq, ib),
};
