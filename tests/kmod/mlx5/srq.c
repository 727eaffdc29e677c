// SPDX-License-Identifier: GPL-2.0
/* Shared receive queues. */
#include "card.h"

int card_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct card_srq *srq = container_of(ibsrq, struct card_srq, ib);
	struct card_context *context = rdma_udata_to_drv_context(udata, struct card_context, ib);
	struct mlx5_ib_create_srq_resp resp = {};
	struct mlx5_ib_create_srq cmd = {};
	bool is_xrc = init->srq_type == IB_SRQT_XRC;
	u32 size;
	int err;

	if (!udata || (init->srq_type != IB_SRQT_BASIC && !is_xrc))
		return -EOPNOTSUPP;
	if (init->attr.max_wr >= 1 << CARD_LOG_QP_SZ || init->attr.max_sge > CARD_RQ_DESC / 16)
		return -EINVAL;
	err = card_take(udata, "create_srq", &cmd, sizeof(cmd));
	if (err)
		return err;
	if (cmd.reserved0 || cmd.reserved1 || cmd.flags || !card_is_aligned(cmd.buf_addr, cmd.db_addr) ||
	    (is_xrc && !card_is_user_index(context, cmd.uidx)))
		return -EINVAL;
	srq->context = context;
	srq->uidx = cmd.uidx;
	size = max_t(u32, 32, roundup_pow_of_two(16 + init->attr.max_sge * 16));
	srq->max = roundup_pow_of_two(init->attr.max_wr + 1);
	srq->shift = ilog2(size);
	srq->max_sge = size / 16 - 1;
	srq->limit = init->attr.srq_limit;
	err = card_map(ibsrq->device, &srq->buf, cmd.buf_addr, (size_t)srq->max << srq->shift, 0);
	if (!err)
		err = card_map(ibsrq->device, &srq->db_map, cmd.db_addr, 4, 0);
	if (!err) {
		srq->db = srq->db_map.va;
		/* The thread must not find an incomplete queue. */
		mutex_lock(&card_lock);
		err = card_number(&card_srqs, &srq->srqn, srq, 1, 0xffffff, &card_next_srq);
		mutex_unlock(&card_lock);
		err = min(err, 0);
	}
	if (!err) {
		resp.srqn = srq->srqn;
		if (is_xrc)
			ibsrq->ext.xrc.srq_num = srq->srqn;
		card_journal(NULL, 0, "srq srqn=%u pdn=%u receives=%u sge=%u limit=%u cqn=%u", srq->srqn,
			    container_of(ibsrq->pd, struct card_pd, ib)->pdn, init->attr.max_wr,
			    init->attr.max_sge, init->attr.srq_limit,
			    is_xrc ? container_of(init->ext.cq, struct card_cq, ib)->cqn : 0);
		init->attr.max_wr = srq->max - 1;
		err = card_give(udata, "create_srq", &resp, sizeof(resp), sizeof(resp.srqn));
	}
	if (err) {
		mutex_lock(&card_lock);
		if (srq->srqn)
			xa_erase(&card_srqs, srq->srqn);
		mutex_unlock(&card_lock);
		card_unmap(&srq->buf);
		card_unmap(&srq->db_map);
	}
	return err;
}

int card_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
			  struct ib_udata *udata)
{
	struct card_srq *srq = container_of(ibsrq, struct card_srq, ib);

	if (mask & IB_SRQ_MAX_WR)
		return -EINVAL;
	if (mask & IB_SRQ_LIMIT) {
		if (attr->srq_limit >= srq->max)
			return -EINVAL;
		mutex_lock(&card_lock);
		srq->limit = attr->srq_limit;
		mutex_unlock(&card_lock);
	}
	card_journal(NULL, 0, "modify_srq srqn=%u mask=%#x limit=%u", srq->srqn, mask, attr->srq_limit);
	return 0;
}

int card_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct card_srq *srq = container_of(ibsrq, struct card_srq, ib);

	attr->max_wr = srq->max - 1;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = srq->limit;
	return 0;
}

int card_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct card_srq *srq = container_of(ibsrq, struct card_srq, ib);
	unsigned long number;
	struct card_qp *qp;

	card_journal(NULL, 0, "destroy_srq srqn=%u", srq->srqn);
	mutex_lock(&card_lock);
	xa_erase(&card_srqs, srq->srqn);
	/* XRC targets are not in card_qp_list, and may still refer to this queue. */
	xa_for_each(&card_qps, number, qp) {
		if (qp->named == srq)
			qp->named = NULL;
	}
	mutex_unlock(&card_lock);
	card_unmap(&srq->buf);
	card_unmap(&srq->db_map);
	return 0;
}

