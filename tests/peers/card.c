/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Uses features of a device that this project's library does not have: `card DEVICE GID GID_INDEX clock|dmabuf`.
 *
 * A queue pair is connected to itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/dma-heap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

#define SIZE		4096
#define ROUNDS		20
#define SECOND		1000000000ULL
#define TIMEOUT	(60 * SECOND)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char *memory;
static union ibv_gid gid;
static int gid_index;

static uint64_t now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * SECOND + time.tv_nsec;
}

static void create(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 }
	};

	pd = ibv_alloc_pd(context);
	CHECK(pd);
	cq = ibv_create_cq_ex(context, &attr);
	CHECK(cq);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	memory = aligned_alloc(SIZE, SIZE);
	CHECK(memory);
	mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
}

static void connect_to_itself(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE
	};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Writes the memory to the region, and starts to read the completion. */
static void write_to(uint64_t address, uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = length ? 1 : 0, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { address, rkey },
	}, *bad;
	struct ibv_poll_cq_attr attr = {};
	uint64_t deadline = now(CLOCK_MONOTONIC) + TIMEOUT;
	int result;

	CHECK(!ibv_post_send(qp, &wr, &bad));
	do {
		result = ibv_start_poll(cq, &attr);
		CHECK(!result || (result == ENOENT && now(CLOCK_MONOTONIC) < deadline));
	} while (result);
	CHECK(cq->status == IBV_WC_SUCCESS);
}

static uint64_t read_clock(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	CHECK(!ibv_query_rt_values_ex(context, &values));
	return values.raw_clock.tv_sec * SECOND + values.raw_clock.tv_nsec;
}

/* Checks that completions have the time of the clock that the page shows, from which the time of day is computed. */
static void check_clock(void)
{
	struct ibv_device_attr_ex device;
	uint64_t last = 0, deadline = now(CLOCK_MONOTONIC) + TIMEOUT;
	int round;

	CHECK(!ibv_query_device_ex(context, NULL, &device));
	CHECK(device.completion_timestamp_mask == UINT64_MAX && device.hca_core_clock == 1000000);
	for (round = 0; round < ROUNDS; round++) {
		uint64_t before = read_clock(), day_before = now(CLOCK_REALTIME), time, day;

		write_to(0, 0, 0);
		time = ibv_wc_read_completion_ts(cq);
		day = ibv_wc_read_completion_wallclock_ns(cq);
		ibv_end_poll(cq);
		CHECK(time > last && time >= before);
		CHECK(day > day_before - SECOND && day < now(CLOCK_REALTIME) + SECOND);
		while (read_clock() < time)
			CHECK(now(CLOCK_MONOTONIC) < deadline);
		last = time;
	}
}

/* Checks a region at an offset in a dma-buf, at an address that the program chooses. */
static void check_dmabuf(void)
{
	struct dma_heap_allocation_data allocation = { .len = 3 * SIZE, .fd_flags = O_RDWR | O_CLOEXEC };
	const uint64_t address = 0x123456000;
	int heap = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
	struct ibv_mr *region;
	char *shared;
	int i;

	CHECK(heap >= 0);
	CHECK(!ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &allocation));
	shared = mmap(NULL, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, allocation.fd, 0);
	CHECK(shared != MAP_FAILED);
	CHECK(!ibv_reg_dmabuf_mr(pd, SIZE, 3 * SIZE, address, allocation.fd, IBV_ACCESS_LOCAL_WRITE));
	region = ibv_reg_dmabuf_mr(pd, SIZE, SIZE, address, allocation.fd,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(region);
	/* The region holds the buffer. */
	close(allocation.fd);
	close(heap);
	for (i = 0; i < SIZE; i++)
		memory[i] = i % 251 + 1;
	write_to(address, region->rkey, SIZE);
	ibv_end_poll(cq);
	CHECK(!memcmp(shared + SIZE, memory, SIZE));
	CHECK(!shared[SIZE - 1] && !shared[2 * SIZE]);
	CHECK(!ibv_dereg_mr(region));
}

int main(int count, char **arguments)
{
	CHECK(count == 5);
	CHECK(inet_pton(AF_INET6, arguments[2], &gid) == 1);
	gid_index = atoi(arguments[3]);
	context = open_device(arguments[1]);
	create();
	connect_to_itself();
	if (!strcmp(arguments[4], "clock"))
		check_clock();
	else if (!strcmp(arguments[4], "dmabuf"))
		check_dmabuf();
	else
		CHECK(!"the last argument should be clock or dmabuf");
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	return ibv_close_device(context);
}
