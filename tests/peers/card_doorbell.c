/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stores doorbells, most of which are wrong: `card_doorbell DEVICE GID GID_INDEX SWEEPS PART`.
 *
 * A queue pair of rdma-core is connected to itself, and the program writes the entries of its send queue. SWEEPS is the file by
 * which the program decides when the emulated card reads its memory. The program prints the number of completions.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

#define BLOCK		64
#define ARM		0x20
#define NOP		0

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct mlx5dv_qp queue;
static struct mlx5dv_cq completions;
static int sweeps;

static void create(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct mlx5dv_obj objects = {};

	pd = ibv_alloc_pd(context);
	CHECK(pd);
	channel = ibv_create_comp_channel(context);
	CHECK(channel);
	cq = ibv_create_cq(context, 16, NULL, channel, 0);
	CHECK(cq);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	objects.qp.in = qp;
	objects.qp.out = &queue;
	objects.cq.in = cq;
	objects.cq.out = &completions;
	CHECK(!mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ));
}

static void connect_to_itself(const union ibv_gid *gid, int gid_index)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void to_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Lets the card read the memory of the program, and execute entries. */
static void sweep(void)
{
	CHECK(write(sweeps, "4", 1) == 1);
}

/* Writes a signaled entry that does nothing. Returns its first 8 bytes in memory order. */
static uint64_t entry(uint16_t index)
{
	struct mlx5_wqe_ctrl_seg *at = queue.sq.buf + index % queue.sq.wqe_cnt * BLOCK;

	memset(at, 0, sizeof(*at));
	at->opmod_idx_opcode = htobe32(index << 8 | NOP);
	at->qpn_ds = htobe32(qp->qp_num << 8 | sizeof(*at) / 16);
	at->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	return *(uint64_t *)at;
}

/* Stores the number of posted entries in the doorbell record. */
static void record(uint16_t count)
{
	((volatile __be32 *)queue.dbrec)[1] = htobe32(count);
}

static void ring(uint64_t word)
{
	*(volatile uint64_t *)queue.bf.reg = word;
}

/* Returns 1 if the completion channel has an event, and 0 otherwise. */
static int has_event(void)
{
	struct pollfd waits = { .fd = channel->fd, .events = POLLIN };

	return poll(&waits, 1, 0);
}

static void take_event(void)
{
	struct ibv_cq *of;
	void *unused;

	CHECK(!ibv_get_cq_event(channel, &of, &unused) && of == cq);
	ibv_ack_cq_events(of, 1);
}

/* Returns two numbers in the byte order of the device. */
static uint64_t big_endian(uint32_t high, uint32_t low)
{
	return htobe64((uint64_t)high << 32 | low);
}

static void run(const char *part)
{
	uint64_t first = entry(0), second = entry(1);

	if (!strcmp(part, "right")) {
		record(2);
		ring(second);
	} else if (!strcmp(part, "silent")) {
		record(1);
	} else if (!strcmp(part, "first_of_two")) {
		record(2);
		ring(first);
	} else if (!strcmp(part, "silent_flush")) {
		to_error();
		record(1);
	} else if (!strcmp(part, "early")) {
		ring(first);
	} else if (!strcmp(part, "repeated")) {
		/* The card handles each store once. */
		record(1);
		ring(first);
		sweep();
		record(2);
	} else if (!strcmp(part, "other_queue_pair")) {
		ring(big_endian(0, (qp->qp_num + 1) << 8 | 1));
	} else if (!strcmp(part, "half")) {
		record(2);
		*(volatile uint32_t *)queue.bf.reg = second;
	} else if (!strcmp(part, "other_entry")) {
		record(1);
		ring(first ^ big_endian(0, 3));
	} else if (!strcmp(part, "too_many")) {
		record(queue.sq.wqe_cnt + 1);
		ring(first);
	} else if (!strcmp(part, "too_many_receives")) {
		struct mlx5_wqe_ctrl_seg *send = queue.sq.buf;

		((volatile __be32 *)queue.dbrec)[0] = htobe32(queue.rq.wqe_cnt + 1);
		send->opmod_idx_opcode = htobe32(MLX5_OPCODE_SEND);
		record(1);
		ring(*(uint64_t *)send);
	} else if (!strcmp(part, "other_completion_queue")) {
		*(volatile uint64_t *)(completions.cq_uar + ARM) = big_endian(0, completions.cqn + 1);
	} else if (!strcmp(part, "unarmed")) {
		/* The record alone does not arm the queue: the first arm word has the number 0 and the index 0. */
		((volatile __be32 *)completions.dbrec)[1] = 0;
		record(1);
		ring(first);
		sweep();
		CHECK(!has_event());
		*(volatile uint64_t *)(completions.cq_uar + ARM) = big_endian(0, completions.cqn);
		sweep();
		CHECK(has_event() == 1);
		take_event();
	} else {
		CHECK(!"part");
	}
	sweep();
}

int main(int count, char **arguments)
{
	struct ibv_wc wc[16];
	union ibv_gid gid;
	int polled;

	CHECK(count == 6 && inet_pton(AF_INET6, arguments[2], &gid) == 1);
	context = open_device(arguments[1]);
	create();
	connect_to_itself(&gid, atoi(arguments[3]));
	sweeps = open(arguments[4], O_WRONLY);
	CHECK(sweeps >= 0);
	run(arguments[5]);
	polled = ibv_poll_cq(cq, 16, wc);
	CHECK(polled >= 0);
	printf("%d\n", polled);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
