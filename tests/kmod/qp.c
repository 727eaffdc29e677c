// SPDX-License-Identifier: GPL-2.0
/* Queue pairs. */
#include "kt.h"

static int kt_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct kt_qp *qp = container_of(ibqp, struct kt_qp, ib);
	struct ib_qp_cap *cap = &init->cap;
	int err;

	/* The device has no multicast groups, so no message loops back. */
	if (init->create_flags & ~IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK)
		return -EOPNOTSUPP;
	switch (init->qp_type) {
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_UD:
		break;
	case IB_QPT_XRC_INI:
		cap->max_recv_wr = 0;
		break;
	case IB_QPT_XRC_TGT:
		memset(cap, 0, sizeof(*cap));
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (init->srq)
		cap->max_recv_wr = 0;
	if (cap->max_send_wr > KT_MAX_WR || cap->max_recv_wr > KT_MAX_WR ||
	    cap->max_send_sge > KT_MAX_SGE || cap->max_recv_sge > KT_MAX_SGE)
		return -EINVAL;
	cap->max_send_wr = kt_rounded(cap->max_send_wr);
	cap->max_recv_wr = kt_rounded(cap->max_recv_wr);
	cap->max_inline_data = 0;
	err = kt_queue_init(&qp->sends, cap->max_send_wr);
	if (!err)
		err = kt_queue_init(&qp->receives, cap->max_recv_wr);
	qp->init = *init;
	qp->attr.qp_state = IB_QPS_RESET;
	if (!err)
		err = kt_number(&qp->id, KT_QP);
	if (err) {
		kvfree(qp->sends.slots);
		kvfree(qp->receives.slots);
		return err;
	}
	ibqp->qp_num = qp->id.number;
	return kt_born(KT_QP);
}

static int kt_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct kt_qp *qp = container_of(ibqp, struct kt_qp, ib);

	if (READ_ONCE(kt_kept) == KT_QP)
		return -EBUSY;
	spin_lock(&kt_lock);
	xa_erase(&kt_numbers, qp->id.number);
	kt_forget(qp);
	kt_progress_all();
	spin_unlock(&kt_lock);
	kvfree(qp->sends.slots);
	kvfree(qp->receives.slots);
	return kt_died(KT_QP);
}

static void kt_keep(struct ib_qp_attr *kept, const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_AV)
		kept->ah_attr = attr->ah_attr;
	if (mask & IB_QP_PATH_MTU)
		kept->path_mtu = attr->path_mtu;
	if (mask & IB_QP_QKEY)
		kept->qkey = attr->qkey;
	if (mask & IB_QP_RQ_PSN)
		kept->rq_psn = attr->rq_psn;
	if (mask & IB_QP_SQ_PSN)
		kept->sq_psn = attr->sq_psn;
	if (mask & IB_QP_DEST_QPN)
		kept->dest_qp_num = attr->dest_qp_num;
	if (mask & IB_QP_ACCESS_FLAGS)
		kept->qp_access_flags = attr->qp_access_flags;
	if (mask & IB_QP_PKEY_INDEX)
		kept->pkey_index = attr->pkey_index;
	if (mask & IB_QP_PORT)
		kept->port_num = attr->port_num;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		kept->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		kept->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		kept->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_TIMEOUT)
		kept->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		kept->retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		kept->rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_PATH_MIG_STATE)
		kept->path_mig_state = attr->path_mig_state;
	if (mask & IB_QP_ALT_PATH) {
		kept->alt_ah_attr = attr->alt_ah_attr;
		kept->alt_pkey_index = attr->alt_pkey_index;
		kept->alt_port_num = attr->alt_port_num;
		kept->alt_timeout = attr->alt_timeout;
	}
}

static int kt_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
			struct ib_udata *udata)
{
	struct kt_qp *qp = container_of(ibqp, struct kt_qp, ib);
	enum ib_qp_state old, new;
	int err = 0;

	if (mask & ~(IB_QP_ATTR_STANDARD_BITS | IB_QP_RATE_LIMIT))
		return -EOPNOTSUPP;
	if (mask & IB_QP_RATE_LIMIT && attr->rate_limit > KT_MAX_RATE)
		return -EINVAL;
	/* The driver checks the rate limit itself, because the core permits one only for raw packets. */
	mask &= IB_QP_ATTR_STANDARD_BITS;
	spin_lock(&kt_lock);
	old = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : qp->attr.qp_state;
	new = mask & IB_QP_STATE ? attr->qp_state : old;
	if (old != qp->attr.qp_state || !ib_modify_qp_is_ok(old, new, ibqp->qp_type, mask) ||
	    (mask & IB_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > KT_MAX_DEPTH) ||
	    (mask & IB_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > KT_MAX_DEPTH)) {
		err = -EINVAL;
		goto unlock;
	}
	kt_keep(&qp->attr, attr, mask);
	if (new == IB_QPS_ERR) {
		kt_break(qp);
	} else if (new == IB_QPS_RESET) {
		qp->sends.used = 0;
		qp->receives.used = 0;
		kt_forget(qp);
		memset(&qp->attr, 0, sizeof(qp->attr));
	}
	qp->attr.qp_state = new;
	kt_progress_all();
unlock:
	spin_unlock(&kt_lock);
	return err;
}

static int kt_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		       struct ib_qp_init_attr *init)
{
	struct kt_qp *qp = container_of(ibqp, struct kt_qp, ib);

	spin_lock(&kt_lock);
	*attr = qp->attr;
	attr->cur_qp_state = attr->qp_state;
	*init = qp->init;
	spin_unlock(&kt_lock);
	attr->cap = init->cap;
	return 0;
}

static int kt_read_send(struct kt_qp *qp, const struct ib_send_wr *from, struct kt_wr *wr)
{
	*wr = (struct kt_wr) {
		.wr_id = from->wr_id,
		.opcode = from->opcode,
		.send_flags = from->send_flags,
	};
	if (qp->init.sq_sig_type == IB_SIGNAL_ALL_WR)
		wr->send_flags |= IB_SEND_SIGNALED;
	if (qp->attr.qp_state < IB_QPS_RTS || wr->send_flags & IB_SEND_INLINE)
		return -EINVAL;
	switch (from->opcode) {
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		wr->imm_data = from->ex.imm_data;
		break;
	case IB_WR_SEND_WITH_INV:
		wr->invalidate_rkey = from->ex.invalidate_rkey;
		break;
	case IB_WR_SEND:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_READ:
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		break;
	default:
		return -EINVAL;
	}
	/* The request would have to name the shared receive queue of the peer. */
	if (qp->ib.qp_type == IB_QPT_XRC_INI && kt_consumes(from->opcode))
		return -EINVAL;
	if (qp->ib.qp_type == IB_QPT_UD)
		wr->remote_qpn = ud_wr(from)->remote_qpn;
	wr->is_foreign = from->num_sge > 0 && from->sg_list[0].lkey == KT_FOREIGN_LKEY;
	return kt_length(from->sg_list, from->num_sge, qp->init.cap.max_send_sge, &wr->length);
}

static int kt_post_send(struct ib_qp *ibqp, const struct ib_send_wr *list,
			const struct ib_send_wr **bad)
{
	struct kt_qp *qp = container_of(ibqp, struct kt_qp, ib);
	struct kt_wr wr;
	int err = 0;

	spin_lock(&kt_lock);
	for (; list; list = list->next) {
		err = kt_read_send(qp, list, &wr);
		if (!err)
			err = kt_room(&qp->sends);
		if (err) {
			*bad = list;
			break;
		}
		kt_push(&qp->sends, &wr);
		if (qp->attr.qp_state >= IB_QPS_SQE)
			kt_flush_sends(qp);
		else
			kt_progress(qp);
	}
	spin_unlock(&kt_lock);
	return err;
}

static int kt_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *list,
			const struct ib_recv_wr **bad)
{
	struct kt_qp *qp = container_of(ibqp, struct kt_qp, ib);
	int err = -EINVAL;

	*bad = list;
	spin_lock(&kt_lock);
	if (qp->attr.qp_state != IB_QPS_RESET && !ibqp->srq && ibqp->recv_cq) {
		err = kt_post_receives(&qp->receives, qp->init.cap.max_recv_sge, list, bad);
		if (qp->attr.qp_state == IB_QPS_ERR)
			kt_flush(qp);
		kt_progress_all();
	}
	spin_unlock(&kt_lock);
	return err;
}

const struct ib_device_ops kt_qp_ops = {
	.create_qp = kt_create_qp,
	.modify_qp = kt_modify_qp,
	.query_qp = kt_query_qp,
	.destroy_qp = kt_destroy_qp,
	.post_send = kt_post_send,
	.post_recv = kt_post_recv,

	INIT_RDMA_OBJ_SIZE(ib_qp, kt_qp, ib),
};
