// SPDX-License-Identifier: GPL-2.0
/* Queue pairs. */
#include "card.h"

static int card_create_user_qp(struct card_qp *qp, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct card_context *context = rdma_udata_to_drv_context(udata, struct card_context, ib);
	struct mlx5_ib_create_qp_resp resp = {};
	struct mlx5_ib_create_qp cmd = {};
	bool is_initiator = init->qp_type == IB_QPT_XRC_INI;
	bool has_rq = !init->srq && !is_initiator && init->cap.max_recv_wr;
	int err, number;

	if (init->qp_type != IB_QPT_RC && init->qp_type != IB_QPT_UC && init->qp_type != IB_QPT_UD &&
	    !is_initiator)
		return -EOPNOTSUPP;
	if (udata->inlen < offsetof(struct mlx5_ib_create_qp, ece_options))
		return -EINVAL;
	err = card_take(udata, "create_qp", &cmd, sizeof(cmd));
	if (err)
		return err;
	if (cmd.flags & ~(MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
			  MLX5_QP_FLAG_UAR_PAGE_INDEX) ||
	    !!(cmd.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) != context->dynamic)
		return -EINVAL;
	if (!card_is_user_index(context, cmd.uidx) || (cmd.ece_options && !card_has_ece(context)))
		return -EINVAL;
	resp.ece_options = cmd.ece_options ? CARD_ECE : 0;
	qp->context = context;
	qp->uidx = cmd.uidx;
	if (cmd.sq_wqe_count && (!is_power_of_2(cmd.sq_wqe_count) || cmd.sq_wqe_count > 1 << CARD_LOG_QP_SZ))
		return -EINVAL;
	if (has_rq && (!is_power_of_2(cmd.rq_wqe_count) || cmd.rq_wqe_count > 1 << CARD_LOG_QP_SZ ||
		       cmd.rq_wqe_shift < 4 || cmd.rq_wqe_shift > 9))
		return -EINVAL;
	if (!card_is_aligned(cmd.buf_addr, cmd.db_addr))
		return -EINVAL;
	qp->sq_count = cmd.sq_wqe_count;
	qp->rq_count = has_rq ? cmd.rq_wqe_count : 0;
	qp->rq_shift = has_rq ? cmd.rq_wqe_shift : 0;
	qp->sq_offset = qp->rq_count << qp->rq_shift;
	if (qp->sq_offset + (qp->sq_count << 6)) {
		err = card_map(qp->ib.device, &qp->buf, cmd.buf_addr, qp->sq_offset + (qp->sq_count << 6), 0);
		if (err)
			return err;
	}
	err = card_map(qp->ib.device, &qp->db_map, cmd.db_addr, 8, 0);
	if (err)
		return err;
	qp->db = qp->db_map.va;
	if (context->dynamic) {
		qp->registers = card_uar_registers(context, cmd.bfreg_index);
		if (!qp->registers)
			return -EINVAL;
		qp->bf_count = context->register_size ? 2 : 1;
		resp.bfreg_index = 1U << 31;
	} else {
		number = card_take_bfreg(context);
		qp->bfreg = number;
		qp->registers = context->registers[number / 2];
		kref_get(&qp->registers->refs);
		/* If registers have one word, both numbers use the first register. */
		qp->bf_first = context->register_size ? number % 2 : 0;
		qp->bf_count = 1;
		resp.bfreg_index = number / 2 * 4 + number % 2;
	}
	return card_give(udata, "create_qp", &resp, sizeof(resp), 0);
}

/* Releases the register of a queue pair. The caller holds card_lock. */
static void card_give_bfreg(struct card_qp *qp)
{
	if (qp->bfreg >= 0)
		qp->context->uses[qp->bfreg]--;
}

static void card_free_qp(struct card_qp *qp)
{
	card_registers_put(qp->registers);
	card_unmap(&qp->buf);
	card_unmap(&qp->db_map);
}

int card_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct card_qp *qp = container_of(ibqp, struct card_qp, ib);
	int err;

	if (init->create_flags)
		return -EOPNOTSUPP;
	INIT_LIST_HEAD(&qp->entry);
	qp->bfreg = -1;
	qp->init = *init;
	qp->attr.qp_state = IB_QPS_RESET;
	if (!udata && init->qp_type != IB_QPT_XRC_TGT) {
		err = card_gsi_create(qp, init);
		ibqp->qp_num = qp->qpn;
		return err;
	}
	mutex_lock(&card_lock);
	err = card_number(&card_qps, &qp->qpn, qp, 2, 0xfffffe, &card_next_qp);
	if (err >= 0) {
		/* A target has no queues, and the kernel does not pass the driver data of its request to a driver. */
		qp->user = true;
		err = udata ? card_create_user_qp(qp, init, udata) : 0;
		if (err) {
			xa_erase(&card_qps, qp->qpn);
			card_give_bfreg(qp);
			card_free_qp(qp);
		} else {
			if (qp->db)
				list_add_tail(&qp->entry, &card_qp_list);
			card_journal_created_qp(qp);
		}
	}
	mutex_unlock(&card_lock);
	ibqp->qp_num = qp->qpn;
	return min(err, 0);
}

int card_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct card_member *member = kzalloc(sizeof(*member), GFP_KERNEL);

	if (!member)
		return -ENOMEM;
	member->qp = container_of(ibqp, struct card_qp, ib);
	member->gid = *gid;
	mutex_lock(&card_lock);
	list_add_tail(&member->entry, &card_members);
	mutex_unlock(&card_lock);
	card_journal(NULL, 0, "attach_mcast qpn=%u gid=%16phN lid=%u", member->qp->qpn, gid->raw, lid);
	return 0;
}

int card_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct card_member *member, *found = NULL;

	mutex_lock(&card_lock);
	list_for_each_entry(member, &card_members, entry) {
		if (&member->qp->ib == ibqp && !memcmp(&member->gid, gid, sizeof(*gid)))
			found = member;
	}
	if (found)
		list_del(&found->entry);
	mutex_unlock(&card_lock);
	if (found)
		card_journal(NULL, 0, "detach_mcast qpn=%u gid=%16phN lid=%u", found->qp->qpn, gid->raw, lid);
	kfree(found);
	return found ? 0 : -EINVAL;
}

int card_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct card_qp *qp = container_of(ibqp, struct card_qp, ib);
	struct card_member *member, *next;

	if (!qp->user) {
		card_gsi_destroy(qp);
		return 0;
	}
	mutex_lock(&card_lock);
	list_for_each_entry_safe(member, next, &card_members, entry) {
		if (member->qp == qp) {
			list_del(&member->entry);
			kfree(member);
		}
	}
	card_end_doorbells(qp);
	card_journal(NULL, 0, "destroy_qp qpn=%u", qp->qpn);
	card_forget_faults(qp);
	list_del(&qp->entry);
	xa_erase(&card_qps, qp->qpn);
	card_give_bfreg(qp);
	mutex_unlock(&card_lock);
	card_free_qp(qp);
	return 0;
}

static void card_keep(struct ib_qp_attr *kept, const struct ib_qp_attr *attr, int mask)
{
#define CARD_KEEP(bit, field) do { if (mask & (bit)) kept->field = attr->field; } while (0)
	CARD_KEEP(IB_QP_AV, ah_attr);
	CARD_KEEP(IB_QP_PATH_MTU, path_mtu);
	CARD_KEEP(IB_QP_QKEY, qkey);
	CARD_KEEP(IB_QP_RQ_PSN, rq_psn);
	CARD_KEEP(IB_QP_SQ_PSN, sq_psn);
	CARD_KEEP(IB_QP_DEST_QPN, dest_qp_num);
	CARD_KEEP(IB_QP_ACCESS_FLAGS, qp_access_flags);
	CARD_KEEP(IB_QP_PKEY_INDEX, pkey_index);
	CARD_KEEP(IB_QP_PORT, port_num);
	CARD_KEEP(IB_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	CARD_KEEP(IB_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	CARD_KEEP(IB_QP_MIN_RNR_TIMER, min_rnr_timer);
	CARD_KEEP(IB_QP_TIMEOUT, timeout);
	CARD_KEEP(IB_QP_RETRY_CNT, retry_cnt);
	CARD_KEEP(IB_QP_RNR_RETRY, rnr_retry);
#undef CARD_KEEP
}

/* Answers the ECE options of the peer's device with those that this device supports too. */
static int card_agree_on_ece(struct ib_udata *udata)
{
	struct mlx5_ib_modify_qp_resp resp = {};
	struct mlx5_ib_modify_qp cmd = {};
	struct card_context *context;
	int err;

	if (!udata || !udata->inlen)
		return 0;
	/* An XRC target has no context of its own. */
	context = rdma_udata_to_drv_context(udata, struct card_context, ib);
	err = card_take(udata, "modify_qp_data", &cmd, sizeof(cmd));
	if (err)
		return err;
	if (cmd.comp_mask || (cmd.ece_options && !card_has_ece(context)))
		return -EOPNOTSUPP;
	resp.response_length = min(udata->outlen, sizeof(resp));
	resp.ece_options = cmd.ece_options & CARD_ECE;
	return card_give(udata, "modify_qp_data", &resp, resp.response_length, 0);
}

int card_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct card_qp *qp = container_of(ibqp, struct card_qp, ib);
	enum ib_qp_state old, new;
	int err = 0;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (udata)
		card_journal_modify(qp, attr, mask, udata->inlen);
	err = card_agree_on_ece(udata);
	if (err)
		return err;
	mutex_lock(&card_lock);
	old = qp->attr.qp_state;
	new = mask & IB_QP_STATE ? attr->qp_state : old;
	/* The hardware refuses a transition if the queue pair is not in the state that the request names. */
	if ((mask & IB_QP_CUR_STATE && attr->cur_qp_state != old) ||
	    !ib_modify_qp_is_ok(old, new, ibqp->qp_type, mask)) {
		err = -EINVAL;
		goto unlock;
	}
	if ((mask & IB_QP_PATH_MTU && (attr->path_mtu < IB_MTU_256 || attr->path_mtu > IB_MTU_4096)) ||
	    (mask & IB_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > CARD_MAX_RD_ATOMIC) ||
	    (mask & IB_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > CARD_MAX_RD_ATOMIC)) {
		err = -EINVAL;
		goto unlock;
	}
	card_keep(&qp->attr, attr, mask);
	if (new == IB_QPS_RESET) {
		card_end_doorbells(qp);
		memset(&qp->attr, 0, sizeof(qp->attr));
		qp->sq_ci = qp->rq_ci = qp->rung = 0;
		qp->stalled = qp->unrung = 0;
		qp->established = qp->has_overrun = false;
		card_forget_faults(qp);
	}
	if (new == IB_QPS_ERR)
		card_qp_to_error(qp);
	qp->attr.qp_state = new;
	if (old == IB_QPS_RTS && new == IB_QPS_SQD && mask & IB_QP_EN_SQD_ASYNC_NOTIFY &&
	    attr->en_sqd_async_notify)
		card_qp_event(qp, IB_EVENT_SQ_DRAINED);
unlock:
	mutex_unlock(&card_lock);
	return err;
}

int card_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init)
{
	struct card_qp *qp = container_of(ibqp, struct card_qp, ib);

	*attr = qp->attr;
	/* The device stores the logarithms of these values. */
	attr->max_rd_atomic = roundup_pow_of_two(max_t(u8, attr->max_rd_atomic, 1));
	attr->max_dest_rd_atomic = roundup_pow_of_two(max_t(u8, attr->max_dest_rd_atomic, 1));
	attr->cur_qp_state = attr->qp_state;
	*init = qp->init;
	attr->cap = init->cap;
	return 0;
}

