// SPDX-License-Identifier: GPL-2.0
/* The thread that emulates the device. */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <net/ip.h>

#include "engine.h"

/* A receive that was taken from a ring. */
struct card_taken {
	struct card_list list;
	u16 index;
};

/* A request is done, waits for a receive of its peer, or has a peer that does not answer. */
enum card_outcome { CARD_DONE, CARD_WAITS, CARD_UNANSWERED };

/* Completions */

static void card_raise(struct card_cq *cq)
{
	u32 arm = be32_to_cpu(cq->arm), ci = arm & 0xffffff;
	bool solicited = arm & MLX5_CQ_DB_REQ_NOT_SOL;

	/* Each serial number of an arm word raises one event. */
	if (cq->arm == CARD_NEVER_ARMED ||
	    (cq->fired != U32_MAX && arm >> 28 == cq->fired >> 28))
		return;
	if (solicited ? !cq->has_solicited || (s32)((cq->solicited_pi - ci) << 8) < 0 :
			!((cq->pi - ci) & 0xffffff))
		return;
	cq->fired = arm;
	atomic_inc(&card_stat[CARD_EVENTS]);
	if (cq->ib.comp_handler)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

void card_complete(struct card_cq *cq, const struct mlx5_cqe64 *from, u8 opcode, bool solicited)
{
	u32 ci = be32_to_cpu(READ_ONCE(cq->db[0])) & 0xffffff;
	u32 slot = cq->pi & (cq->entries - 1);
	struct mlx5_cqe64 *to = cq->buf.va + slot * cq->cqe_size + cq->cqe_size - 64;

	if (card_is_late(cq, from, opcode, solicited))
		return;
	/* A queue that has overrun takes no more completions, even if the program makes room. */
	if (cq->overrun || ((cq->pi - ci) & 0xffffff) >= cq->entries) {
		struct ib_event event = {
			.device = cq->ib.device, .element.cq = &cq->ib, .event = IB_EVENT_CQ_ERR
		};

		if (!cq->overrun && cq->ib.event_handler)
			cq->ib.event_handler(&event, cq->ib.cq_context);
		cq->overrun = true;
		return;
	}
	memcpy(to, from, offsetof(struct mlx5_cqe64, op_own));
	if (card_trace > 1) {
		struct mlx5_cqe64 shown = *from;

		shown.op_own = opcode << 4 | solicited << 1 | !!(cq->pi & cq->entries);
		pr_info("rdmacm_mlx5: cqe of cq %u at %u\n", cq->cqn, cq->pi);
		print_hex_dump(KERN_INFO, "rdmacm_mlx5:   ", DUMP_PREFIX_OFFSET, 16, 4, &shown, 64, false);
	}
	smp_store_release(&to->op_own, opcode << 4 | solicited << 1 | !!(cq->pi & cq->entries));
	if (solicited) {
		cq->has_solicited = true;
		cq->solicited_pi = cq->pi;
	}
	cq->pi++;
	atomic_inc(&card_stat[CARD_CQES]);
	card_raise(cq);
}

/* Returns the shared receive queue of a queue pair. For an XRC target, it is the queue that the request names. */
static struct card_srq *card_srq_of(const struct card_qp *qp)
{
	return qp->ib.srq ? container_of(qp->ib.srq, struct card_srq, ib) : qp->named;
}

/* Returns the completion queue of receives. */
static struct ib_cq *card_recv_cq(const struct card_qp *qp)
{
	return qp->named ? qp->named->ib.ext.cq : qp->ib.recv_cq;
}

/* Returns the protection domain of the memory that peers access. */
struct ib_pd *card_pd_of(const struct card_qp *qp)
{
	return qp->named ? qp->named->ib.pd : qp->ib.pd;
}

/* Returns the number by which a completion names its queue: the user index, or in version 0 a shared receive queue. */
static __be32 card_user_of(const struct card_qp *qp, bool receives)
{
	const struct card_srq *srq = receives ? card_srq_of(qp) : NULL;
	/* A target outlives the context that created it, if another process has opened it. */
	const struct card_context *context = qp->named ? srq->context : qp->context;

	u32 number = qp->named ? srq->uidx : qp->uidx;

	if (!context->cqe_version)
		number = srq ? srq->srqn : 0;
	return cpu_to_be32(CARD_UNDEFINED << 24 | number);
}

static void card_fail_with(struct card_qp *qp, struct ib_cq *cq, u8 opcode, struct card_failure failure, u16 index,
			   u8 wqe_opcode)
{
	struct mlx5_cqe64 cqe;
	struct mlx5_err_cqe *err = (struct mlx5_err_cqe *)&cqe;

	if (!cq)
		return;
	memset(&cqe, CARD_UNDEFINED, sizeof(cqe));
	err->srqn = card_user_of(qp, opcode == MLX5_CQE_RESP_ERR);
	err->syndrome = failure.syndrome;
	err->vendor_err_synd = failure.vendor;
	err->s_wqe_opcode_qpn = cpu_to_be32(wqe_opcode << 24 | qp->qpn);
	err->wqe_counter = cpu_to_be16(index);
	card_complete(container_of(cq, struct card_cq, ib), &cqe, opcode, true);
}

static void card_fail(struct card_qp *qp, struct ib_cq *cq, u8 opcode, u8 syndrome, u16 index, u8 wqe_opcode)
{
	card_fail_with(qp, cq, opcode, (struct card_failure){ .syndrome = syndrome }, index, wqe_opcode);
}

/* States and events of queue pairs */

void card_qp_event(struct card_qp *qp, enum ib_event_type type)
{
	struct ib_event event = { .device = qp->ib.device, .element.qp = &qp->ib, .event = type };

	if (qp->ib.event_handler)
		qp->ib.event_handler(&event, qp->ib.qp_context);
}

void card_qp_to_error(struct card_qp *qp)
{
	if (qp->attr.qp_state == IB_QPS_ERR)
		return;
	qp->attr.qp_state = IB_QPS_ERR;
	if (qp->ib.srq)
		card_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

/* Raises the event of the first packet, if it arrives before the program moves the queue pair to RTS. */
static void card_established(struct card_qp *qp)
{
	if (qp->established || qp->attr.qp_state != IB_QPS_RTR)
		return;
	qp->established = true;
	card_qp_event(qp, IB_EVENT_COMM_EST);
}

/* Send queue entries */

void *card_block(struct card_qp *qp, u16 index)
{
	return qp->buf.va + qp->sq_offset + ((index & (qp->sq_count - 1)) << 6);
}

static bool card_fetch(struct card_qp *qp, struct card_wqe *wqe)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = card_block(qp, qp->sq_ci);
	u32 word = be32_to_cpu(ctrl->opmod_idx_opcode), i;

	wqe->index = qp->sq_ci;
	wqe->opcode = word;
	wqe->ds = (be32_to_cpu(ctrl->qpn_ds) & 0x3f) * 16;
	wqe->flags = ctrl->fm_ce_se;
	wqe->imm = ctrl->imm;
	wqe->at = sizeof(*ctrl);
	for (i = 0; i < wqe->ds; i += 64)
		memcpy(wqe->bytes + i, card_block(qp, qp->sq_ci + i / 64), min(wqe->ds - i, 64u));
	/* An entry that waits for a receive is fetched in each sweep, but reported once. */
	if (!qp->stalled)
		card_journal(wqe->bytes, wqe->ds, "send qpn=%u index=%u", qp->qpn, qp->sq_ci);
	if (card_trace > 1 && !qp->stalled) {
		pr_info("rdmacm_mlx5: wqe of qp %#x at %u\n", qp->qpn, qp->sq_ci);
		print_hex_dump(KERN_INFO, "rdmacm_mlx5:   ", DUMP_PREFIX_OFFSET, 16, 4, wqe->bytes, wqe->ds, false);
	}
	/* The hardware does not check all of these fields. */
	if ((word >> 8 & 0xffff) != qp->sq_ci || word >> 24 || be32_to_cpu(ctrl->qpn_ds) >> 8 != qp->qpn ||
	    wqe->ds < sizeof(*ctrl)) {
		card_bad("entry %u of queue pair %u begins with %08x %08x", qp->sq_ci, qp->qpn, word,
			 be32_to_cpu(ctrl->qpn_ds));
		return false;
	}
	return true;
}

const void *card_segment(struct card_wqe *wqe, u32 size)
{
	const void *segment = wqe->bytes + wqe->at;

	if (wqe->at + size > wqe->ds)
		return NULL;
	wqe->at += size;
	return segment;
}

/* Returns the length of a scatter/gather entry, in which 0 means 2 GiB as on hardware. */
static u32 card_length(u32 count)
{
	return count ? count : 1U << 31;
}

/* Gathers the payload, which is the rest of the entry: pointers or inline data. Returns a syndrome or 0. */
static u8 card_gather(struct card_qp *qp, struct card_wqe *wqe, struct card_list *list, int access)
{
	const struct mlx5_wqe_data_seg *data;
	u32 count;

	while (wqe->at < wqe->ds) {
		count = be32_to_cpu(*(__be32 *)(wqe->bytes + wqe->at));
		if (count & MLX5_INLINE_SEG) {
			count &= ~MLX5_INLINE_SEG;
			/* The device cannot store fetched data in the entry. */
			if (access || wqe->at + 4 + count > wqe->ds ||
			    !card_add_span(list, wqe->bytes + wqe->at + 4, count))
				return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
			wqe->at += ALIGN(4 + count, 16);
			continue;
		}
		data = card_segment(wqe, sizeof(*data));
		if (!data)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		count = card_length(count);
		if (!card_add_span(list, card_memory(qp->ib.pd, NULL, be32_to_cpu(data->lkey),
						   be64_to_cpu(data->addr), count, access), count))
			return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	}
	return 0;
}

/* Receives */

static u8 card_scatter(struct ib_pd *pd, const struct mlx5_wqe_data_seg *data, u32 max, struct card_list *list)
{
	u32 i;

	for (i = 0; i < max; i++) {
		u32 count = be32_to_cpu(data[i].byte_count), key = be32_to_cpu(data[i].lkey);

		/* This key, which no region has, ends the list. */
		if (!count && key == 0x100)
			break;
		count = card_length(count);
		if (!card_add_span(list, card_memory(pd, NULL, key, be64_to_cpu(data[i].addr), count,
						   IB_ACCESS_LOCAL_WRITE), count))
			return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	}
	return 0;
}

static void card_srq_limit(struct card_srq *srq)
{
	u16 left = (be32_to_cpu(READ_ONCE(srq->db[0])) & 0xffff) - srq->ci;
	struct ib_event event = {
		.device = srq->ib.device, .element.srq = &srq->ib, .event = IB_EVENT_SRQ_LIMIT_REACHED
	};

	if (srq->limit && left < srq->limit) {
		srq->limit = 0;
		if (srq->ib.event_handler)
			srq->ib.event_handler(&event, srq->ib.srq_context);
	}
}

/* Returns the number of posted entries in a ring of SIZE entries. A larger number is a fault of the program. */
static u16 card_filled(const __be32 *posted, u16 taken, u32 size, bool *has_overrun)
{
	u16 count = be32_to_cpu(smp_load_acquire(posted)) - taken;

	if (count > size) {
		card_bad("%u receives are posted in a ring for %u", count, size);
		*has_overrun = true;
	}
	return count;
}

static bool card_srq_has_receive(struct card_srq *srq)
{
	struct ib_event event = { .device = srq->ib.device, .element.srq = &srq->ib, .event = IB_EVENT_SRQ_ERR };
	u16 count;

	if (srq->has_overrun)
		return false;
	count = card_filled(&srq->db[0], srq->ci, srq->max, &srq->has_overrun);
	if (srq->has_overrun && srq->ib.event_handler)
		srq->ib.event_handler(&event, srq->ib.srq_context);
	return count && !srq->has_overrun;
}

static bool card_has_receive(struct card_qp *qp)
{
	struct card_srq *srq = card_srq_of(qp);
	u16 count;

	if (srq)
		return card_srq_has_receive(srq);
	if (!qp->rq_count || qp->has_overrun)
		return false;
	count = card_filled(&qp->db[0], qp->rq_ci, qp->rq_count, &qp->has_overrun);
	if (qp->has_overrun) {
		card_qp_event(qp, IB_EVENT_QP_FATAL);
		card_qp_to_error(qp);
	}
	return count && !qp->has_overrun;
}

/* Takes a receive. Returns -EAGAIN if none is posted, a syndrome if its entries are wrong, or 0. */
static int card_take_receive(struct card_qp *qp, struct card_taken *taken)
{
	struct card_srq *srq = card_srq_of(qp);

	taken->list.count = taken->list.length = 0;
	if (!card_has_receive(qp))
		return -EAGAIN;
	if (srq) {
		const struct mlx5_wqe_srq_next_seg *next = srq->buf.va + (srq->head << srq->shift);
		int err;

		taken->index = srq->head;
		card_journal(next, 1 << srq->shift, "srq_receive srqn=%u qpn=%u index=%u posted=%u", srq->srqn,
			    qp->qpn, srq->head, be32_to_cpu(READ_ONCE(srq->db[0])));
		srq->head = be16_to_cpu(next->next_wqe_index) & (srq->max - 1);
		srq->ci++;
		err = card_scatter(srq->ib.pd, (void *)(next + 1), srq->max_sge, &taken->list);
		card_srq_limit(srq);
		return err;
	}
	taken->index = qp->rq_ci;
	card_journal(qp->buf.va + ((qp->rq_ci & (qp->rq_count - 1)) << qp->rq_shift), 1 << qp->rq_shift,
		    "receive qpn=%u index=%u", qp->qpn, qp->rq_ci);
	return card_scatter(qp->ib.pd, qp->buf.va + ((qp->rq_ci++ & (qp->rq_count - 1)) << qp->rq_shift),
			   1 << (qp->rq_shift - 4), &taken->list);
}

/* Completes a receive. HEADER is the type of the network header of a datagram, or 0. */
static void card_received(struct card_qp *qp, const struct card_taken *taken, const struct card_wqe *wqe,
			 u8 opcode, u32 length, u32 source, u32 header)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, CARD_UNDEFINED, sizeof(cqe));
	cqe.ml_path = 0;
	cqe.slid = 0;
	cqe.flags_rqpn = cpu_to_be32((CARD_UNDEFINED << 24 & 3U << 30) | (header ? 1 << 28 : 0) | header << 24 | source);
	cqe.srqn = card_user_of(qp, true);
	if (opcode != MLX5_CQE_RESP_SEND)
		cqe.immediate = wqe->imm;
	else if (header)
		cqe.pkey = 0;
	cqe.byte_cnt = cpu_to_be32(length);
	card_stamp(&cqe);
	cqe.sop_drop_qpn = cpu_to_be32(CARD_UNDEFINED << 24 | qp->qpn);
	cqe.wqe_counter = cpu_to_be16(taken->index);
	card_complete(container_of(card_recv_cq(qp), struct card_cq, ib), &cqe, opcode,
		     wqe->flags & MLX5_WQE_CTRL_SOLICITED);
}

/* Execution */

static u8 card_cqe_opcode(u8 opcode)
{
	switch (opcode) {
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return MLX5_CQE_RESP_WR_IMM;
	case MLX5_OPCODE_SEND_IMM:
		return MLX5_CQE_RESP_SEND_IMM;
	case MLX5_OPCODE_SEND_INVAL:
		return MLX5_CQE_RESP_SEND_INV;
	default:
		return MLX5_CQE_RESP_SEND;
	}
}

/* Delivers a message to a receive. Returns DONE with the syndrome for the sender, or WAITS. */
static enum card_outcome card_deliver(struct card_qp *to, struct card_wqe *wqe, const struct card_list *from,
				    u32 length, u32 source, u8 *syndrome)
{
	struct card_taken taken;
	int err = card_take_receive(to, &taken);

	if (err == -EAGAIN)
		return CARD_WAITS;
	if (!err && from && taken.list.length < from->length)
		err = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	if (err) {
		card_fail(to, card_recv_cq(to), MLX5_CQE_RESP_ERR, err, taken.index, 0);
		card_qp_event(to, IB_EVENT_QP_REQ_ERR);
		card_qp_to_error(to);
		*syndrome = err == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR ?
				MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR : MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
		return CARD_DONE;
	}
	if (wqe->opcode == MLX5_OPCODE_SEND_INVAL && !card_invalidate(to, be32_to_cpu(wqe->imm))) {
		card_fail(to, card_recv_cq(to), MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, taken.index, 0);
		card_qp_event(to, IB_EVENT_QP_ACCESS_ERR);
		card_qp_to_error(to);
		*syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
		return CARD_DONE;
	}
	if (from)
		card_move(&taken.list, 0, from);
	card_received(to, &taken, wqe, card_cqe_opcode(wqe->opcode), length, source, 0);
	return CARD_DONE;
}

/*
 * Returns true if the address of a datagram is as a driver writes it for RoCE v2. The hardware does not check the fields, and
 * sends packets with their values.
 */
static bool card_is_address(struct card_qp *qp, const struct mlx5_av *av)
{
	struct card_device *device = container_of(qp->ib.device, struct card_device, ib);
	const union ib_gid *dgid = (const union ib_gid *)av->rgid;
	u32 route = be32_to_cpu(av->grh_gid_fl);
	u8 mac[ETH_ALEN] = {};

	if (!(be32_to_cpu(av->dqp_dct) & MLX5_EXTENDED_UD_AV) || av->key.qkey.reserved ||
	    memchr_inv(av->reserved0, 0, sizeof(av->reserved0)) || av->stat_rate_sl & 1 || av->fl_mlid) {
		card_bad("address of queue pair %u has an unknown form", qp->qpn);
		return false;
	}
	if (be16_to_cpu(av->udp_sport) < 0xc000) {
		card_bad("address of queue pair %u has the source port %u", qp->qpn, be16_to_cpu(av->udp_sport));
		return false;
	}
	/* The table may have lost this GID since the program read it. */
	if (route >> 28 || rdma_is_zero_gid(&device->gids[route >> 20 & (CARD_GIDS - 1)]))
		return false;
	if (!rdma_is_multicast_addr((struct in6_addr *)dgid))
		return true;
	if (ipv6_addr_v4mapped((const struct in6_addr *)dgid))
		ip_eth_mc_map(*(const __be32 *)(dgid->raw + 12), mac);
	else
		rdma_get_mcast_mac((struct in6_addr *)dgid, mac);
	if (memcmp(mac, av->rmac, ETH_ALEN))
		card_bad("address of queue pair %u has the MAC %pM for the group %pI6", qp->qpn, av->rmac, dgid);
	return !memcmp(mac, av->rmac, ETH_ALEN);
}

/* Returns true if the packets of a datagram reach the device of the queue pair TO. */
static bool card_reaches(struct card_qp *qp, const struct mlx5_av *av, struct card_qp *to)
{
	struct card_device *device = container_of(to->ib.device, struct card_device, ib);
	u32 i;

	for (i = 0; i < CARD_GIDS && memcmp(&device->gids[i], av->rgid, sizeof(av->rgid)); i++)
		;
	if (i == CARD_GIDS)
		return false;
	if (!ether_addr_equal_unaligned(av->rmac, device->ndev->dev_addr)) {
		card_bad("address of queue pair %u has the MAC %pM for %pI6", qp->qpn, av->rmac, av->rgid);
		return false;
	}
	return true;
}

/* Delivers a datagram. It is lost if the receiver has another Q_Key or no posted receive. */
static void card_receive_datagram(struct card_qp *qp, struct card_qp *to, const struct mlx5_wqe_datagram_seg *segment,
				  struct card_wqe *wqe, const struct card_list *from)
{
	union rdma_network_hdr grh;
	struct card_list head = { .spans = { { &grh, 40 } }, .count = 1, .length = 40 };
	struct card_device *device = container_of(qp->ib.device, struct card_device, ib);
	u32 sgid_index = be32_to_cpu(segment->av.grh_gid_fl) >> 20 & (CARD_GIDS - 1);
	struct card_taken taken;
	int err;

	if (to->ib.qp_type != IB_QPT_UD || to->attr.qp_state < IB_QPS_RTR || to->attr.qp_state > IB_QPS_SQE ||
	    be32_to_cpu(segment->av.key.qkey.qkey) != to->attr.qkey)
		return;
	card_established(to);
	err = card_take_receive(to, &taken);
	if (err == -EAGAIN)
		return;
	if (!err && taken.list.length < from->length + 40)
		err = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	if (err) {
		card_fail(to, card_recv_cq(to), MLX5_CQE_RESP_ERR, err, taken.index, 0);
		card_qp_to_error(to);
		return;
	}
	card_grh(&grh, &device->gids[sgid_index], (const union ib_gid *)segment->av.rgid, segment->av.hop_limit,
		 segment->av.tclass << 20 | (be32_to_cpu(segment->av.grh_gid_fl) & 0xfffff), from->length);
	card_move(&taken.list, 0, &head);
	card_move(&taken.list, 40, from);
	card_received(to, &taken, wqe, card_cqe_opcode(wqe->opcode), from->length + 40, qp->qpn,
		     ipv6_addr_v4mapped((const struct in6_addr *)segment->av.rgid) ?
			     MLX5_CQE_ROCE_L3_HEADER_TYPE_IPV4 : MLX5_CQE_ROCE_L3_HEADER_TYPE_IPV6);
}

static void card_datagram(struct card_qp *qp, struct card_wqe *wqe, u8 *syndrome)
{
	const struct mlx5_wqe_datagram_seg *segment = card_segment(wqe, sizeof(*segment));
	struct card_list from = {};
	struct card_member *member;
	struct card_qp *to;
	u32 number;

	*syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (wqe->opcode != MLX5_OPCODE_SEND && wqe->opcode != MLX5_OPCODE_SEND_IMM)
		return card_bad("opcode %#x of queue pair %u for datagrams", wqe->opcode, qp->qpn);
	if (!segment)
		return;
	*syndrome = card_gather(qp, wqe, &from, 0);
	/* A datagram that does not fit into a packet is lost. */
	if (*syndrome || from.length > ib_mtu_enum_to_int(CARD_MTU))
		return;
	if (!card_is_address(qp, &segment->av))
		return;
	number = be32_to_cpu(segment->av.dqp_dct) & 0xffffff;
	if (number != 0xffffff) {
		to = xa_load(&card_qps, number);
		if (to && card_reaches(qp, &segment->av, to))
			card_receive_datagram(qp, to, segment, wqe, &from);
		return;
	}
	list_for_each_entry(member, &card_members, entry) {
		/* The sender receives it too, because no queue pair is created with multicast loopback blocked. */
		if (!memcmp(&member->gid, segment->av.rgid, sizeof(member->gid)))
			card_receive_datagram(qp, member->qp, segment, wqe, &from);
	}
}

/* Stores the shared receive queue that a request names. Returns false if it is not in the XRC domain of the target. */
static bool card_name(struct card_qp *target, u32 srqn)
{
	struct card_srq *srq = xa_load(&card_srqs, srqn);

	if (!target->init.xrcd || !srq || srq->ib.srq_type != IB_SRQT_XRC || srq->ib.ext.xrc.xrcd != target->init.xrcd)
		return false;
	target->named = srq;
	return true;
}

/* Returns true if TO has the type that answers requests of QP. */
static bool card_is_peer(const struct card_qp *qp, const struct card_qp *to)
{
	return to->ib.qp_type == (qp->ib.qp_type == IB_QPT_XRC_INI ? IB_QPT_XRC_TGT : qp->ib.qp_type);
}

/* Returns the access rights of the peer. A queue pair without responder resources permits writes only. */
static int card_rights(const struct card_qp *qp)
{
	return qp->attr.qp_access_flags & (qp->attr.max_dest_rd_atomic ? ~0 : IB_ACCESS_REMOTE_WRITE);
}

static enum card_outcome card_connected(struct card_qp *qp, struct card_wqe *wqe, u8 *syndrome, u32 *length)
{
	struct card_qp *to = xa_load(&card_qps, qp->attr.dest_qp_num);
	const struct mlx5_wqe_xrc_seg *xrc = NULL;
	const struct mlx5_wqe_atomic_seg *atomic = NULL;
	const struct mlx5_wqe_raddr_seg *remote = NULL;
	struct card_list list = {};
	int access = 0;
	void *memory;
	u64 old;

	*syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	switch (wqe->opcode) {
	case MLX5_OPCODE_NOP:
		*syndrome = 0;
		return CARD_DONE;
	case MLX5_OPCODE_UMR:
		*syndrome = card_change_key(qp, wqe);
		return CARD_DONE;
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		access = IB_ACCESS_REMOTE_ATOMIC;
		break;
	case MLX5_OPCODE_RDMA_READ:
		access = IB_ACCESS_REMOTE_READ;
		break;
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		access = IB_ACCESS_REMOTE_WRITE;
		break;
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND_INVAL:
		break;
	default:
		card_bad("opcode %#x of queue pair %u", wqe->opcode, qp->qpn);
		return CARD_DONE;
	}
	if (qp->ib.qp_type == IB_QPT_UC && access & (IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)) {
		card_bad("opcode %#x of unreliable queue pair %u", wqe->opcode, qp->qpn);
		return CARD_DONE;
	}
	if (qp->ib.qp_type == IB_QPT_XRC_INI) {
		xrc = card_segment(wqe, sizeof(*xrc));
		if (!xrc)
			return CARD_DONE;
	}
	if (access) {
		remote = card_segment(wqe, sizeof(*remote));
		if (!remote)
			return CARD_DONE;
	}
	if (access == IB_ACCESS_REMOTE_ATOMIC) {
		atomic = card_segment(wqe, sizeof(*atomic));
		if (!atomic)
			return CARD_DONE;
	}
	*syndrome = card_gather(qp, wqe, &list,
			       access & (IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_REMOTE_READ) ?
				       IB_ACCESS_LOCAL_WRITE : 0);
	if (*syndrome)
		return CARD_DONE;
	*length = list.length;
	if (!to || !card_is_peer(qp, to) || to->attr.qp_state < IB_QPS_RTR || to->attr.qp_state > IB_QPS_SQE ||
	    to->attr.dest_qp_num != qp->qpn) {
		*syndrome = 0;
		return qp->ib.qp_type == IB_QPT_UC ? CARD_DONE : CARD_UNANSWERED;
	}
	card_established(to);
	if (xrc && !card_name(to, be32_to_cpu(xrc->xrc_srqn))) {
		*syndrome = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
		card_qp_event(to, IB_EVENT_QP_REQ_ERR);
		card_qp_to_error(to);
		return CARD_DONE;
	}
	if (atomic && be64_to_cpu(remote->raddr) & 7) {
		*syndrome = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
		card_qp_event(to, IB_EVENT_QP_REQ_ERR);
		card_qp_to_error(to);
		return CARD_DONE;
	}
	if (!access)
		return card_deliver(to, wqe, &list, list.length, 0, syndrome);
	memory = list.length ? card_memory(card_pd_of(to), to, be32_to_cpu(remote->rkey), be64_to_cpu(remote->raddr),
					  list.length, access) : wqe;
	if (!memory || !(card_rights(to) & access) || (atomic && list.length != 8)) {
		*syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
		card_qp_event(to, IB_EVENT_QP_ACCESS_ERR);
		card_qp_to_error(to);
		return CARD_DONE;
	}
	/* Without a posted receive, no data is written. */
	if (wqe->opcode == MLX5_OPCODE_RDMA_WRITE_IMM && !card_has_receive(to))
		return CARD_WAITS;
	if (atomic) {
		old = get_unaligned((u64 *)memory);
		if (wqe->opcode == MLX5_OPCODE_ATOMIC_FA)
			put_unaligned(old + be64_to_cpu(atomic->swap_add), (u64 *)memory);
		else if (old == be64_to_cpu(atomic->compare))
			put_unaligned(be64_to_cpu(atomic->swap_add), (u64 *)memory);
		card_move(&list, 0, &(struct card_list){ .spans = { { &old, 8 } }, .count = 1 });
	} else if (list.length) {
		struct card_list there = { .spans = { { memory, list.length } }, .count = 1 };

		if (wqe->opcode == MLX5_OPCODE_RDMA_READ)
			card_move(&list, 0, &there);
		else
			card_move(&there, 0, &list);
	}
	if (wqe->opcode == MLX5_OPCODE_RDMA_WRITE_IMM)
		return card_deliver(to, wqe, NULL, list.length, 0, syndrome);
	return CARD_DONE;
}

/* Returns the syndrome when the peer has posted no receive for the time of all retries, or 0xff before that. */
static u8 card_wait_limit(struct card_qp *qp)
{
	if (!qp->stalled)
		qp->stalled = jiffies | 1;
	/* A retry count of 7 has no limit. Any other count allows 10 ms for each try. */
	if (qp->ib.qp_type == IB_QPT_UC)
		return 0;
	if (qp->attr.rnr_retry == 7 ||
	    time_before(jiffies, qp->stalled + msecs_to_jiffies(10 * (qp->attr.rnr_retry + 1))))
		return 0xff;
	return MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR;
}

/* Returns the syndrome when the time of all retries is over, or 0xff before that. A timeout of zero never ends. */
static u8 card_answer_limit(struct card_qp *qp)
{
	u64 ns = (4096ULL << qp->attr.timeout) * (qp->attr.retry_cnt + 1);

	if (!qp->stalled)
		qp->stalled = jiffies | 1;
	if (!qp->attr.timeout || time_before(jiffies, qp->stalled + max(nsecs_to_jiffies(ns), 2UL)))
		return 0xff;
	return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
}

/* Executes the next entry. Returns false if it has to wait. */
static bool card_send_one(struct card_qp *qp)
{
	enum card_outcome outcome = CARD_DONE;
	struct mlx5_cqe64 cqe;
	struct card_failure failure = {};
	static struct card_wqe wqe;
	u32 length = 0;

	if (!card_fetch(qp, &wqe))
		failure.syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	else if (qp->failure.syndrome)
		swap(failure, qp->failure);
	else if (qp->ib.qp_type == IB_QPT_UD)
		card_datagram(qp, &wqe, &failure.syndrome);
	else
		outcome = card_connected(qp, &wqe, &failure.syndrome, &length);
	if (outcome != CARD_DONE) {
		failure.syndrome = outcome == CARD_WAITS ? card_wait_limit(qp) : card_answer_limit(qp);
		if (failure.syndrome == 0xff)
			return false;
	}
	qp->stalled = 0;
	atomic_inc(&card_stat[CARD_WQES]);
	qp->sq_ci += max(1u, DIV_ROUND_UP(wqe.ds, 64));
	if (failure.syndrome) {
		card_fail_with(qp, qp->ib.send_cq, MLX5_CQE_REQ_ERR, failure, wqe.index, wqe.opcode);
		card_qp_to_error(qp);
	} else if (wqe.flags & MLX5_WQE_CTRL_CQ_UPDATE) {
		memset(&cqe, CARD_UNDEFINED, sizeof(cqe));
		cqe.srqn = card_user_of(qp, false);
		if (wqe.opcode == MLX5_OPCODE_RDMA_READ || wqe.opcode == MLX5_OPCODE_ATOMIC_CS ||
		    wqe.opcode == MLX5_OPCODE_ATOMIC_FA)
			cqe.byte_cnt = cpu_to_be32(length);
		card_stamp(&cqe);
		cqe.sop_drop_qpn = cpu_to_be32(wqe.opcode << 24 | qp->qpn);
		cqe.wqe_counter = cpu_to_be16(wqe.index);
		card_complete(container_of(qp->ib.send_cq, struct card_cq, ib), &cqe, MLX5_CQE_REQ, false);
	}
	return true;
}

static bool card_flush(struct card_qp *qp)
{
	bool done = false;
	struct card_taken taken;

	while (qp->sq_ci != qp->rung) {
		const struct mlx5_wqe_ctrl_seg *ctrl = card_block(qp, qp->sq_ci);
		u32 blocks = DIV_ROUND_UP((be32_to_cpu(ctrl->qpn_ds) & 0x3f) * 16, 64);

		card_fail(qp, qp->ib.send_cq, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, qp->sq_ci,
			 be32_to_cpu(ctrl->opmod_idx_opcode));
		qp->sq_ci += clamp_t(u32, blocks, 1, (u16)(qp->rung - qp->sq_ci));
		done = true;
	}
	while (!qp->ib.srq && card_take_receive(qp, &taken) != -EAGAIN) {
		card_fail(qp, qp->ib.recv_cq, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, taken.index, 0);
		done = true;
	}
	return done;
}

static bool card_advance(struct card_qp *qp)
{
	bool done = false;

	/* Until the queue pair leaves RESET, the record may have the values from before the reset. */
	if (qp->sq_count && qp->attr.qp_state != IB_QPS_RESET)
		card_see_doorbells(qp);
	if (qp->attr.qp_state == IB_QPS_ERR)
		return card_flush(qp);
	while (qp->sq_ci != qp->rung && qp->attr.qp_state == IB_QPS_RTS && card_send_one(qp))
		done = true;
	return done;
}

int card_engine(void *unused)
{
	unsigned int idle = 0;

	while (!kthread_should_stop()) {
		bool done = false;
		struct card_qp *qp;
		struct card_cq *cq;

		mutex_lock(&card_lock);
		card_clock_tick();
		if (!card_may_sweep()) {
			mutex_unlock(&card_lock);
			usleep_range(50, 100);
			continue;
		}
		card_see_arm_stores();
		list_for_each_entry(qp, &card_qp_list, entry) {
			card_journal_qp(qp);
			done |= card_advance(qp);
		}
		list_for_each_entry(cq, &card_cq_list, entry) {
			if (!cq->user)
				continue;
			card_see_arm(cq);
			card_journal_cq(cq);
			card_raise(cq);
		}
		card_end_sweep();
		mutex_unlock(&card_lock);
		idle = done ? 0 : idle + 1;
		if (idle > 50)
			usleep_range(100, 200);
		else
			cond_resched();
	}
	return 0;
}
