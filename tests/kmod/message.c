// SPDX-License-Identifier: GPL-2.0
/* Queues of work requests, and the delivery of messages between them. */
#include "kt.h"

#define KT_GRH	40

int kt_queue_init(struct kt_queue *queue, u32 size)
{
	queue->size = size;
	if (!size)
		return 0;
	queue->slots = kvcalloc(size, sizeof(*queue->slots), GFP_KERNEL);
	return queue->slots ? 0 : -ENOMEM;
}

void kt_push(struct kt_queue *queue, const struct kt_wr *wr)
{
	queue->slots[(queue->first + queue->used++) % queue->size] = *wr;
}

struct kt_wr kt_pop(struct kt_queue *queue)
{
	struct kt_wr wr = queue->slots[queue->first];

	queue->first = (queue->first + 1) % queue->size;
	queue->used--;
	return wr;
}

int kt_length(const struct ib_sge *list, int count, int most, u32 *length)
{
	int i;

	if (count < 0 || count > most)
		return -EINVAL;
	for (*length = 0, i = 0; i < count; i++)
		*length += list[i].length;
	return 0;
}

bool kt_consumes(enum ib_wr_opcode opcode)
{
	return opcode == IB_WR_SEND || opcode == IB_WR_SEND_WITH_IMM ||
	       opcode == IB_WR_SEND_WITH_INV || opcode == IB_WR_RDMA_WRITE_WITH_IMM;
}

static enum ib_wc_opcode kt_completed(enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:
		return IB_WC_RDMA_READ;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		return IB_WC_COMP_SWAP;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return IB_WC_FETCH_ADD;
	default:
		return IB_WC_SEND;
	}
}

static void kt_flush_queue(struct kt_qp *qp, struct kt_queue *queue, struct ib_cq *cq,
			   enum ib_wc_opcode opcode)
{
	while (queue->used) {
		struct kt_wr wr = kt_pop(queue);
		struct ib_wc wc = {
			.wr_id = wr.wr_id,
			.status = IB_WC_WR_FLUSH_ERR,
			.opcode = opcode,
			.qp = &qp->ib,
		};

		kt_complete(cq, &wc, false);
	}
}

void kt_flush_sends(struct kt_qp *qp)
{
	kt_flush_queue(qp, &qp->sends, qp->ib.send_cq, IB_WC_SEND);
}

void kt_flush(struct kt_qp *qp)
{
	kt_flush_sends(qp);
	kt_flush_queue(qp, &qp->receives, qp->ib.recv_cq, IB_WC_RECV);
}

void kt_break(struct kt_qp *qp)
{
	if (qp->attr.qp_state == IB_QPS_ERR)
		return;
	qp->attr.qp_state = IB_QPS_ERR;
	kt_flush(qp);
	if (qp->ib.srq)
		kt_event_of_qp(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

/* Handles a failed send. An unreliable queue pair continues to receive, and a program may move it to RTS again. */
static void kt_break_send(struct kt_qp *qp)
{
	if (qp->ib.qp_type != IB_QPT_UC && qp->ib.qp_type != IB_QPT_UD) {
		kt_break(qp);
		return;
	}
	qp->attr.qp_state = IB_QPS_SQE;
	kt_flush_sends(qp);
}

/* Delivers a message to the next receive of `queue`. Returns the status of the send. */
enum ib_wc_status kt_receive(struct kt_qp *qp, struct kt_queue *queue, struct ib_cq *cq,
				    const struct kt_wr *message, u32 src_qp)
{
	struct kt_wr receive = kt_pop(queue);
	struct ib_wc wc = {
		.wr_id = receive.wr_id,
		.opcode = IB_WC_RECV,
		.byte_len = message->length,
		.qp = &qp->ib,
		.src_qp = src_qp,
	};

	if (message->opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		wc.opcode = IB_WC_RECV_RDMA_WITH_IMM;
	if (message->opcode == IB_WR_RDMA_WRITE_WITH_IMM ||
	    message->opcode == IB_WR_SEND_WITH_IMM) {
		wc.wc_flags |= IB_WC_WITH_IMM;
		wc.ex.imm_data = message->imm_data;
	}
	if (message->opcode == IB_WR_SEND_WITH_INV) {
		wc.wc_flags |= IB_WC_WITH_INVALIDATE;
		wc.ex.invalidate_rkey = message->invalidate_rkey;
	}
	if (qp->ib.qp_type == IB_QPT_UD) {
		wc.wc_flags |= IB_WC_GRH;
		wc.byte_len += KT_GRH;
		wc.slid = KT_SLID;
		wc.sl = KT_SL;
		wc.dlid_path_bits = KT_PATH_BITS;
		wc.pkey_index = KT_PKEY_INDEX;
		wc.port_num = 1;
	}
	if (wc.opcode == IB_WC_RECV && wc.byte_len > receive.length) {
		wc.status = IB_WC_LOC_LEN_ERR;
		wc.vendor_err = KT_VENDOR_ERR;
		kt_complete(cq, &wc, true);
		kt_break(qp);
		return IB_WC_REM_INV_REQ_ERR;
	}
	kt_complete(cq, &wc, message->send_flags & IB_SEND_SOLICITED);
	return IB_WC_SUCCESS;
}

void kt_limit(struct kt_srq *srq)
{
	if (srq->receives.used < srq->limit) {
		srq->limit = 0;
		kt_event_of_srq(srq, IB_EVENT_SRQ_LIMIT_REACHED);
	}
}

/* Sends one message. Returns false if it has to wait for a receive. */
static bool kt_send(struct kt_qp *qp, const struct kt_wr *wr, enum ib_wc_status *status)
{
	bool reliable = qp->ib.qp_type == IB_QPT_RC || qp->ib.qp_type == IB_QPT_XRC_INI;
	bool datagram = qp->ib.qp_type == IB_QPT_UD;
	struct kt_qp *peer = kt_qp_of(datagram ? wr->remote_qpn : qp->attr.dest_qp_num);
	bool there = peer && peer->attr.qp_state >= IB_QPS_RTR && peer->attr.qp_state != IB_QPS_ERR;
	struct kt_queue *receives;
	struct kt_srq *srq;

	if (wr->is_foreign) {
		*status = IB_WC_LOC_PROT_ERR;
		return true;
	}
	*status = there || !reliable ? IB_WC_SUCCESS : IB_WC_RETRY_EXC_ERR;
	if (!there || !kt_consumes(wr->opcode))
		return true;
	srq = peer->ib.srq ? container_of(peer->ib.srq, struct kt_srq, ib) : NULL;
	receives = srq ? &srq->receives : &peer->receives;
	if (!receives->used)
		return !reliable;
	*status = kt_receive(peer, receives, peer->ib.recv_cq, wr, qp->ib.qp_num);
	if (!reliable)
		*status = IB_WC_SUCCESS;
	if (srq)
		kt_limit(srq);
	return true;
}

void kt_progress(struct kt_qp *qp)
{
	while (qp->sends.used && qp->attr.qp_state == IB_QPS_RTS) {
		struct kt_wr wr = qp->sends.slots[qp->sends.first];
		struct ib_wc wc = {
			.wr_id = wr.wr_id,
			.opcode = kt_completed(wr.opcode),
			.byte_len = wr.length,
			.qp = &qp->ib,
		};

		if (!kt_send(qp, &wr, &wc.status))
			return;
		/* A message to the queue pair itself may have moved it to the error state. */
		if (!qp->sends.used)
			return;
		kt_pop(&qp->sends);
		if (wc.status != IB_WC_SUCCESS || wr.send_flags & IB_SEND_SIGNALED)
			kt_complete(qp->ib.send_cq, &wc, false);
		if (wc.status != IB_WC_SUCCESS)
			kt_break_send(qp);
	}
}

/* Executes waiting sends, after a receive was posted, or a queue pair changed its state or was destroyed. */
void kt_progress_all(void)
{
	struct kt_numbered *id;
	unsigned long number;

	xa_for_each(&kt_numbers, number, id) {
		if (id->kind == KT_QP)
			kt_progress(container_of(id, struct kt_qp, id));
	}
}

/* Returns 0 if a queue has room for another request, or a negative errno. */
int kt_room(const struct kt_queue *queue)
{
	if (kt_refusal)
		return -kt_refusal;
	return queue->used == queue->size ? -ENOMEM : 0;
}

int kt_post_receives(struct kt_queue *queue, u32 max_sge, const struct ib_recv_wr *list,
			    const struct ib_recv_wr **bad)
{
	int err = 0;

	for (; list; list = list->next) {
		struct kt_wr wr = { .wr_id = list->wr_id };

		err = kt_length(list->sg_list, list->num_sge, max_sge, &wr.length);
		if (!err)
			err = kt_room(queue);
		if (err) {
			*bad = list;
			break;
		}
		kt_push(queue, &wr);
	}
	return err;
}
