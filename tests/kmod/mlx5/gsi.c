// SPDX-License-Identifier: GPL-2.0
/* The kernel's queue pair 1, which sends management datagrams to the device that has the destination GID. */
#include <linux/ip.h>
#include <net/checksum.h>
#include <net/ipv6.h>

#include "card.h"

static void card_kernel_complete(struct card_cq *cq, const struct ib_wc *wc)
{
	if (cq->used == cq->entries)
		return;
	cq->ring[(cq->first + cq->used++) % cq->entries] = *wc;
	if (cq->armed) {
		cq->armed = false;
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
	}
}

int card_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc)
{
	struct card_cq *cq = container_of(ibcq, struct card_cq, ib);
	unsigned long flags;
	int i;

	spin_lock_irqsave(&card_kernel_lock, flags);
	for (i = 0; i < count && cq->used; i++, cq->used--) {
		wc[i] = cq->ring[cq->first];
		cq->first = (cq->first + 1) % cq->entries;
	}
	spin_unlock_irqrestore(&card_kernel_lock, flags);
	return i;
}

int card_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags how)
{
	struct card_cq *cq = container_of(ibcq, struct card_cq, ib);
	unsigned long flags;
	int missed;

	spin_lock_irqsave(&card_kernel_lock, flags);
	cq->armed = true;
	missed = (how & IB_CQ_REPORT_MISSED_EVENTS) && cq->used;
	spin_unlock_irqrestore(&card_kernel_lock, flags);
	return missed;
}

static struct card_qp *card_gsi_of(const union ib_gid *gid)
{
	int i, j;

	for (i = 0; i < CARD_DEVICES; i++) {
		if (!card_devices[i])
			continue;
		for (j = 0; j < CARD_GIDS; j++) {
			if (!memcmp(&card_devices[i]->gids[j], gid, sizeof(*gid)))
				return card_devices[i]->gsi;
		}
	}
	return NULL;
}

/* Writes the network header that receives show: a header of IPv6, or one of IPv4 in the last 20 bytes. */
void card_grh(union rdma_network_hdr *hdr, const union ib_gid *sgid, const union ib_gid *dgid, u8 hop_limit,
	     u32 class_and_flow, u32 length)
{
	memset(hdr, 0, sizeof(*hdr));
	if (ipv6_addr_v4mapped((struct in6_addr *)sgid)) {
		hdr->roce4grh.version = 4;
		hdr->roce4grh.ihl = 5;
		hdr->roce4grh.tos = class_and_flow >> 20;
		hdr->roce4grh.ttl = hop_limit;
		hdr->roce4grh.protocol = IPPROTO_UDP;
		hdr->roce4grh.tot_len = cpu_to_be16(20 + 8 + length);
		memcpy(&hdr->roce4grh.saddr, sgid->raw + 12, 4);
		memcpy(&hdr->roce4grh.daddr, dgid->raw + 12, 4);
		hdr->roce4grh.check = ip_fast_csum(&hdr->roce4grh, 5);
		return;
	}
	hdr->ibgrh.version_tclass_flow = cpu_to_be32(6 << 28 | class_and_flow);
	hdr->ibgrh.paylen = cpu_to_be16(length);
	hdr->ibgrh.next_hdr = IPPROTO_UDP;
	hdr->ibgrh.hop_limit = hop_limit;
	hdr->ibgrh.sgid = *sgid;
	hdr->ibgrh.dgid = *dgid;
}

static void card_gsi_deliver(struct card_qp *from, const struct ib_ud_wr *wr)
{
	const struct rdma_ah_attr *ah = &container_of(wr->ah, struct card_ah, ib)->attr;
	struct card_qp *to = card_gsi_of(&ah->grh.dgid);
	struct ib_wc wc = {
		.opcode = IB_WC_RECV, .src_qp = 1, .port_num = 1,
		.wc_flags = IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE,
	};
	struct card_recv recv;
	u32 length = 0;
	void *at;
	int i;

	if (!to || !to->recv_used || wr->remote_qpn != 1)
		return;
	recv = to->recvs[to->recv_first];
	to->recv_first = (to->recv_first + 1) % to->recv_size;
	to->recv_used--;
	at = (void *)(uintptr_t)recv.sge.addr;
	for (i = 0; i < wr->wr.num_sge; i++) {
		const struct ib_sge *sge = &wr->wr.sg_list[i];

		if (sizeof(struct ib_grh) + length + sge->length > recv.sge.length)
			break;
		memcpy(at + sizeof(struct ib_grh) + length, (void *)(uintptr_t)sge->addr, sge->length);
		length += sge->length;
	}
	card_grh(at, &ah->grh.sgid_attr->gid, &ah->grh.dgid, ah->grh.hop_limit,
		 ah->grh.traffic_class << 20 | ah->grh.flow_label, length);
	wc.wr_cqe = recv.cqe;
	wc.qp = &to->ib;
	wc.byte_len = sizeof(struct ib_grh) + length;
	wc.sl = ah->sl;
	wc.network_hdr_type = rdma_gid_attr_network_type(ah->grh.sgid_attr);
	atomic_inc(&card_stat[CARD_MADS]);
	card_kernel_complete(container_of(to->ib.recv_cq, struct card_cq, ib), &wc);
}

int card_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct card_qp *qp = container_of(ibqp, struct card_qp, ib);
	unsigned long flags;

	if (qp->user || ibqp->qp_type != IB_QPT_GSI) {
		*bad = wr;
		return -EOPNOTSUPP;
	}
	spin_lock_irqsave(&card_kernel_lock, flags);
	for (; wr; wr = wr->next) {
		struct ib_wc wc = { .wr_cqe = wr->wr_cqe, .opcode = IB_WC_SEND, .qp = ibqp };

		if (qp->attr.qp_state == IB_QPS_RTS)
			card_gsi_deliver(qp, ud_wr(wr));
		else
			wc.status = IB_WC_WR_FLUSH_ERR;
		card_kernel_complete(container_of(ibqp->send_cq, struct card_cq, ib), &wc);
	}
	spin_unlock_irqrestore(&card_kernel_lock, flags);
	return 0;
}

int card_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct card_qp *qp = container_of(ibqp, struct card_qp, ib);
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&card_kernel_lock, flags);
	for (; wr; wr = wr->next) {
		struct card_recv *recv;

		if (qp->user || qp->recv_used == qp->recv_size || wr->num_sge != 1) {
			*bad = wr;
			err = -ENOMEM;
			break;
		}
		if (qp->attr.qp_state == IB_QPS_ERR) {
			struct ib_wc wc = { .wr_cqe = wr->wr_cqe, .status = IB_WC_WR_FLUSH_ERR, .qp = ibqp };

			card_kernel_complete(container_of(ibqp->recv_cq, struct card_cq, ib), &wc);
			continue;
		}
		recv = &qp->recvs[(qp->recv_first + qp->recv_used++) % qp->recv_size];
		recv->cqe = wr->wr_cqe;
		recv->sge = wr->sg_list[0];
	}
	spin_unlock_irqrestore(&card_kernel_lock, flags);
	return err;
}

int card_gsi_create(struct card_qp *qp, struct ib_qp_init_attr *init)
{
	struct card_device *device = container_of(qp->ib.device, struct card_device, ib);

	if (init->qp_type != IB_QPT_GSI || device->gsi)
		return -EOPNOTSUPP;
	qp->recv_size = init->cap.max_recv_wr;
	qp->recvs = kvcalloc(qp->recv_size, sizeof(*qp->recvs), GFP_KERNEL);
	if (!qp->recvs)
		return -ENOMEM;
	qp->qpn = 1;
	device->gsi = qp;
	return 0;
}

void card_gsi_destroy(struct card_qp *qp)
{
	struct card_device *device = container_of(qp->ib.device, struct card_device, ib);
	unsigned long flags;

	spin_lock_irqsave(&card_kernel_lock, flags);
	device->gsi = NULL;
	spin_unlock_irqrestore(&card_kernel_lock, flags);
	kvfree(qp->recvs);
}
