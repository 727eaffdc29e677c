/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs a script of verbs on a device: `scenario DEVICE GID GID_INDEX SWEEPS SCRIPT`.
 *
 * scenario.rs runs the same scripts with this project's library, and documents their language. SWEEPS is a file of the
 * emulated card: see tests/kmod/mlx5/journal.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY	64
#define QKEY	0x1357
#define PSN	0x100

/* Contexts of the device, each with the first of its protection domains and regions. */
static struct {
	struct ibv_context *context;
	int pd, mr;
} contexts[MANY];
static int context_count, current;

static struct ibv_pd *pds[MANY];
static struct ibv_mr *mrs[MANY];
static struct ibv_comp_channel *channels[MANY];
static struct ibv_cq *cqs[MANY];
static struct ibv_srq *srqs[MANY];
static struct ibv_qp *qps[MANY];
static struct ibv_ah *ahs[MANY];
static struct ibv_mw *windows[MANY];
static struct ibv_xrcd *domain;
/* The region of the buffers, and the bytes of each buffer. */
static struct ibv_mr *buffers;
static size_t buffer_length;
static int pd_count, mr_count, channel_count, cq_count, srq_count, qp_count, ah_count, window_count;

/* The GID of an IPv4 multicast group on RoCE, and the LID that every group has on Ethernet. */
static const union ibv_gid group = {
	.raw = { 0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3 }
};
#define GROUP_LID	0xc000

static union ibv_gid gid;
static int gid_index, line_number, sweeps;
static const char *line;

static struct ibv_send_wr sends[MANY];
static struct ibv_recv_wr receives[MANY];
static struct ibv_sge send_sges[MANY][MANY], receive_sges[MANY][MANY];
static int send_count, receive_count;
static uint64_t next_id;

static struct ibv_context *context(void)
{
	return contexts[current].context;
}

static struct ibv_pd *first_pd(void)
{
	return pds[contexts[current].pd];
}

static struct ibv_mr *region(void)
{
	return mrs[contexts[current].mr];
}

static void fail(const char *what)
{
	fprintf(stderr, "line %d: %s: %s: %s\n", line_number, line, what, strerror(errno));
	exit(1);
}

static void check(int error)
{
	if (error) {
		errno = error > 0 ? error : errno;
		fail("failed");
	}
}

static void *some(void *object)
{
	if (!object)
		fail("failed");
	return object;
}

/* Returns the next word of the line. */
static char *word(void)
{
	char *found = strtok(NULL, " ");

	if (!found) {
		errno = EINVAL;
		fail("missing word");
	}
	return found;
}

static unsigned long long number(void)
{
	return strtoull(word(), NULL, 0);
}

/* Returns the next number of a word whose numbers are separated by colons. */
static unsigned long long part(char **rest)
{
	char *found = strsep(rest, ":");

	return found ? strtoull(found, NULL, 0) : 0;
}

static int qp_of(uint32_t qp_num)
{
	int i;

	for (i = 0; i < qp_count; i++) {
		if (qps[i] && qps[i]->qp_num == qp_num)
			return i;
	}
	return -1;
}

/* Reads `OFFSET+LENGTH,...`, `#BUFFER+LENGTH` or `-` as scatter/gather entries. Returns their number. */
static int gather(char *text, struct ibv_sge *into)
{
	char *sge;
	int count = 0;

	if (!strcmp(text, "-"))
		return 0;
	while ((sge = strsep(&text, ","))) {
		char *length = strchr(sge, '+');
		int wrong = *sge == '!', is_buffer = *sge == '#';
		struct ibv_mr *mr = is_buffer ? buffers : region();

		sge += wrong || is_buffer;
		into[count].addr = (uintptr_t)mr->addr + strtoul(sge, NULL, 0) * (is_buffer ? buffer_length : 1);
		into[count].length = length ? strtoul(length + 1, NULL, 0) : 0;
		into[count].lkey = mr->lkey + wrong;
		count++;
	}
	return count;
}

/* Reads the letters of access rights. */
static int access_of(const char *letters)
{
	return (strchr(letters, 'l') ? IBV_ACCESS_LOCAL_WRITE : 0) | (strchr(letters, 'w') ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (strchr(letters, 'r') ? IBV_ACCESS_REMOTE_READ : 0) | (strchr(letters, 'a') ? IBV_ACCESS_REMOTE_ATOMIC : 0) |
	       (strchr(letters, 'b') ? IBV_ACCESS_MW_BIND : 0);
}

/* Returns new memory with a pattern in it. */
static void *memory_of(size_t length)
{
	unsigned char *memory = some(aligned_alloc(4096, (length + 4095) / 4096 * 4096));
	size_t i;

	for (i = 0; i < length; i++)
		memory[i] = i * 7 + 3;
	return memory;
}

static void create_region(void)
{
	size_t length = number();

	mrs[mr_count++] = some(ibv_reg_mr(first_pd(), memory_of(length), length, access_of("lwrab")));
}

static void create_buffers(void)
{
	size_t length = number();

	buffer_length = number();
	length *= buffer_length;
	mrs[mr_count++] = buffers = some(ibv_reg_mr(first_pd(), memory_of(length), length, access_of("l")));
}

static void create_cq(void)
{
	int capacity = number();
	char *channel = word();

	cqs[cq_count++] = some(ibv_create_cq(context(), capacity, NULL,
					    strcmp(channel, "-") ? channels[atoi(channel)] : NULL, 0));
}

static void resize_cq(void)
{
	struct ibv_cq *cq = cqs[number()];

	check(ibv_resize_cq(cq, number()));
	printf("capacity %d\n", cq->cqe);
}

static void create_srq(void)
{
	struct ibv_srq_init_attr init = { 0 };

	init.attr.max_wr = number();
	init.attr.max_sge = number();
	srqs[srq_count] = some(ibv_create_srq(first_pd(), &init));
	printf("srq %u %u\n", init.attr.max_wr, init.attr.max_sge);
	srq_count++;
}

static void create_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex init = { .srq_type = IBV_SRQT_XRC, .pd = first_pd(), .xrcd = domain };

	init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	init.cq = cqs[number()];
	init.attr.max_wr = number();
	init.attr.max_sge = number();
	srqs[srq_count] = some(ibv_create_srq_ex(context(), &init));
	printf("srq %u %u\n", init.attr.max_wr, init.attr.max_sge);
	srq_count++;
}

static void create_domain(void)
{
	struct ibv_xrcd_init_attr init = { .fd = -1, .oflags = O_CREAT };

	init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	domain = some(ibv_open_xrcd(context(), &init));
}

static void create_target(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .xrcd = domain };

	init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	qps[qp_count++] = some(ibv_create_qp_ex(context(), &init));
}

static enum ibv_qp_type qp_type(const char *name)
{
	return !strcmp(name, "rc") ? IBV_QPT_RC : !strcmp(name, "uc") ? IBV_QPT_UC :
	       !strcmp(name, "initiator") ? IBV_QPT_XRC_SEND : IBV_QPT_UD;
}

static void set_capacities(struct ibv_qp_cap *cap)
{
	cap->max_send_wr = number();
	cap->max_recv_wr = number();
	cap->max_send_sge = number();
	cap->max_recv_sge = number();
	cap->max_inline_data = number();
}

static void try_qp(void)
{
	struct ibv_qp_init_attr init = { .qp_type = qp_type(word()) };
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = cqs[number()];
	set_capacities(&init.cap);
	qp = ibv_create_qp(first_pd(), &init);
	if (qp) {
		printf("created\n");
		check(ibv_destroy_qp(qp));
	} else {
		printf("refused %d\n", errno);
	}
}

/* Registers the first region again, over new memory that is never freed. */
static void replace_memory(void)
{
	size_t length = number();

	check(ibv_rereg_mr(region(), IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory_of(length), length, 0));
}

static void create_qp(void)
{
	struct ibv_qp_init_attr init = { 0 };
	char *srq;

	init.qp_type = qp_type(word());
	init.send_cq = cqs[number()];
	init.recv_cq = cqs[number()];
	srq = word();
	if (strcmp(srq, "-"))
		init.srq = srqs[atoi(srq)];
	set_capacities(&init.cap);
	init.sq_sig_all = !strcmp(word(), "all");
	qps[qp_count++] = some(ibv_create_qp(first_pd(), &init));
	printf("qp %u %u %u %u %u\n", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
	       init.cap.max_recv_sge, init.cap.max_inline_data);
}

static void set_address(struct ibv_ah_attr *address)
{
	address->is_global = 1;
	address->port_num = 1;
	address->grh.dgid = gid;
	address->grh.sgid_index = gid_index;
	address->grh.hop_limit = 64;
}

static void create_ah(void)
{
	struct ibv_ah_attr address = { 0 };

	set_address(&address);
	address.grh.flow_label = number();
	address.grh.traffic_class = number();
	address.grh.hop_limit = number();
	address.sl = number();
	address.static_rate = number();
	ahs[ah_count++] = some(ibv_create_ah(first_pd(), &address));
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (qp->qp_type != IBV_QPT_UC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	check(ibv_modify_qp(qp, &attr, mask | (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .rq_psn = PSN,
		.sq_psn = PSN, .max_dest_rd_atomic = 3, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 5,
		.rnr_retry = 6, .max_rd_atomic = 2,
	};
	int receive = 0, send = 0;

	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV) {
		receive = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		send = IBV_QP_TIMEOUT;
	}
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		send = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	to_init(qp);
	set_address(&attr.ah_attr);
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       receive));
	attr.qp_state = IBV_QPS_RTS;
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | send));
}

static void to_datagrams(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .sq_psn = PSN };

	to_init(qp);
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

static void set_ece(struct ibv_qp *qp)
{
	struct ibv_ece ece;

	check(ibv_query_ece(qp, &ece));
	ece.options = number();
	check(ibv_set_ece(qp, &ece));
}

static void show_ece(struct ibv_qp *qp)
{
	struct ibv_ece ece;

	check(ibv_query_ece(qp, &ece));
	printf("ece %u %u\n", ece.vendor_id, ece.options);
}

static void show_qp(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	printf("state %d peer %d psn %u %u depths %u %u retries %u %u\n", attr.qp_state, qp_of(attr.dest_qp_num),
	       attr.rq_psn, attr.sq_psn, attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.retry_cnt, attr.rnr_retry);
}

static void show_srq(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr;

	check(ibv_query_srq(srq, &attr));
	printf("srq %u %u %u\n", attr.max_wr, attr.max_sge, attr.srq_limit);
}

static void set_limit(void)
{
	struct ibv_srq *srq = srqs[number()];
	struct ibv_srq_attr attr = { .srq_limit = number() };

	check(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
}

static void show_async_event(void)
{
	struct ibv_async_event found;

	check(ibv_get_async_event(context(), &found));
	printf("async %d\n", found.event_type);
	ibv_ack_async_event(&found);
}

static void create_group(void)
{
	struct ibv_ah_attr address = { 0 };

	set_address(&address);
	address.grh.dgid = group;
	ahs[ah_count++] = some(ibv_create_ah(first_pd(), &address));
}

static void add_receive(void)
{
	struct ibv_recv_wr *wr = &receives[receive_count];

	memset(wr, 0, sizeof(*wr));
	wr->wr_id = next_id++;
	wr->sg_list = receive_sges[receive_count];
	wr->num_sge = gather(word(), wr->sg_list);
	if (receive_count++)
		receives[receive_count - 2].next = wr;
}

static void set_operation(struct ibv_send_wr *wr, char *text)
{
	char *name = strsep(&text, ":");
	uint64_t address = (uintptr_t)region()->addr;
	uint32_t srqn;

	if (!strcmp(name, "at")) {
		check(ibv_get_srq_num(srqs[part(&text)], &srqn));
		wr->qp_type.xrc.remote_srqn = srqn;
		name = strsep(&text, ":");
	}

	if (!strcmp(name, "send") || !strcmp(name, "send_imm")) {
		wr->opcode = IBV_WR_SEND;
	} else if (!strcmp(name, "send_inv")) {
		wr->opcode = IBV_WR_SEND_WITH_INV;
		wr->invalidate_rkey = text ? windows[part(&text)]->rkey : region()->rkey;
	} else if (!strcmp(name, "invalidate")) {
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->invalidate_rkey = windows[part(&text)]->rkey;
	} else if (!strcmp(name, "write_through")) {
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->wr.rdma.rkey = windows[part(&text)]->rkey;
		wr->wr.rdma.remote_addr = address + part(&text);
	} else if (!strcmp(name, "datagram") || !strcmp(name, "datagram_imm")) {
		wr->opcode = IBV_WR_SEND;
		wr->wr.ud.ah = ahs[part(&text)];
		wr->wr.ud.remote_qpn = qps[part(&text)]->qp_num;
		wr->wr.ud.remote_qkey = QKEY;
	} else if (!strcmp(name, "multicast")) {
		wr->opcode = IBV_WR_SEND;
		wr->wr.ud.ah = ahs[part(&text)];
		wr->wr.ud.remote_qpn = 0xffffff;
		wr->wr.ud.remote_qkey = QKEY;
	} else if (!strncmp(name, "write", 5) || !strcmp(name, "read")) {
		wr->opcode = *name == 'w' ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		wr->wr.rdma.remote_addr = address + part(&text);
		wr->wr.rdma.rkey = region()->rkey + (strcmp(name, "write_badly") ? 0 : 1);
	} else {
		wr->opcode = !strcmp(name, "swap") ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = address + part(&text);
		wr->wr.atomic.rkey = region()->rkey;
		wr->wr.atomic.compare_add = part(&text);
		wr->wr.atomic.swap = part(&text);
	}
	if (strstr(name, "_imm")) {
		wr->opcode = wr->opcode == IBV_WR_SEND ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htonl(part(&text));
	}
}

static int flags_of(const char *letters)
{
	return (strchr(letters, 's') ? IBV_SEND_SIGNALED : 0) | (strchr(letters, 'e') ? IBV_SEND_SOLICITED : 0) |
	       (strchr(letters, 'f') ? IBV_SEND_FENCE : 0) | (strchr(letters, 'i') ? IBV_SEND_INLINE : 0);
}

static void add_send(void)
{
	struct ibv_send_wr *wr = &sends[send_count];

	memset(wr, 0, sizeof(*wr));
	wr->wr_id = next_id++;
	set_operation(wr, word());
	wr->send_flags = flags_of(word());
	wr->sg_list = send_sges[send_count];
	wr->num_sge = gather(word(), wr->sg_list);
	if (send_count++)
		sends[send_count - 2].next = wr;
}

/* Binds a window. For type 2, the program chooses the key and posts a request; for type 1, the library does both. */
static void bind_window(void)
{
	struct ibv_qp *qp = qps[number()];
	struct ibv_mw *window = windows[number()];
	struct ibv_send_wr wr = { .wr_id = next_id++, .opcode = IBV_WR_BIND_MW }, *bad;
	struct ibv_mw_bind request = { .wr_id = wr.wr_id };
	struct ibv_sge sge[MANY];

	request.bind_info.mr = region();
	if (gather(word(), sge)) {
		request.bind_info.addr = sge->addr;
		request.bind_info.length = sge->length;
	}
	request.bind_info.mw_access_flags = access_of(word());
	request.send_flags = wr.send_flags = flags_of(word());
	if (window->type == IBV_MW_TYPE_1) {
		check(ibv_bind_mw(qp, window, &request));
		return;
	}
	wr.bind_mw.mw = window;
	wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
	wr.bind_mw.bind_info = request.bind_info;
	check(ibv_post_send(qp, &wr, &bad));
	window->rkey = wr.bind_mw.rkey;
}

static void show(const struct ibv_wc *wc)
{
	int is_receive = !!(wc->opcode & IBV_WC_RECV), qp = qp_of(wc->qp_num);
	unsigned int flags = wc->wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM);

	printf("completion id=%llu status=%d qp=%d", (unsigned long long)wc->wr_id, wc->status, qp);
	if (wc->status) {
		printf(" vendor=%u\n", wc->vendor_err);
		return;
	}
	printf(" opcode=%d", wc->opcode);
	if (is_receive || wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP ||
	    wc->opcode == IBV_WC_FETCH_ADD)
		printf(" length=%u", wc->byte_len);
	if (is_receive)
		printf(" flags=%u", flags | (wc->wc_flags & IBV_WC_WITH_INV ? 4 : 0));
	/* The library defines neither this flag nor the data for sends. */
	if (is_receive && wc->wc_flags & IBV_WC_WITH_IMM)
		printf(" immediate=%u", ntohl(wc->imm_data));
	if (is_receive && wc->wc_flags & IBV_WC_WITH_INV)
		printf(" invalidated=%d", wc->invalidated_rkey == region()->rkey);
	if (is_receive && qp >= 0 && qps[qp]->qp_type == IBV_QPT_UD)
		printf(" source=%d sl=%u", qp_of(wc->src_qp), wc->sl);
	printf("\n");
}

static void poll(void)
{
	int cq = number(), most = number(), count, i;
	struct ibv_wc wcs[MANY];

	count = ibv_poll_cq(cqs[cq], most, wcs);
	if (count < 0)
		fail("failed");
	printf("polled %d\n", count);
	for (i = 0; i < count; i++)
		show(&wcs[i]);
}

/* Lets the engine of the card sweep, unless it runs freely. */
static void sweep(const char *times)
{
	if (sweeps >= 0)
		check(write(sweeps, times, 1) == 1 ? 0 : -1);
}

static void wait_for(void)
{
	struct ibv_cq *cq = cqs[number()];
	int left = number();
	struct ibv_wc wc;

	while (left) {
		int count = ibv_poll_cq(cq, 1, &wc);

		if (count < 0)
			fail("failed");
		if (count) {
			show(&wc);
			left--;
		} else {
			sweep("1");
			sched_yield();
		}
	}
}

static void run_freely(void)
{
	check(close(sweeps));
	sweeps = -1;
}

static void event(void)
{
	struct ibv_cq *cq;
	void *unused;
	int i;

	check(ibv_get_cq_event(channels[number()], &cq, &unused));
	ibv_ack_cq_events(cq, 1);
	for (i = 0; i < cq_count; i++) {
		if (cqs[i] == cq)
			printf("event %d\n", i);
	}
}

static void show_memory(void)
{
	char *place = word();
	size_t length = number(), i;
	unsigned char *from;

	if (*place == '#')
		from = (unsigned char *)buffers->addr + strtoul(place + 1, NULL, 0) * buffer_length;
	else
		from = (unsigned char *)region()->addr + strtoul(place, NULL, 0);
	for (i = 0; i < length; i++)
		printf("%02x", from[i]);
	printf("\n");
}

static void destroy(void)
{
	char *kind = word();
	int i = number();

	if (!strcmp(kind, "qp")) {
		check(ibv_destroy_qp(qps[i]));
		qps[i] = NULL;
	} else if (!strcmp(kind, "cq")) {
		check(ibv_destroy_cq(cqs[i]));
		cqs[i] = NULL;
	} else if (!strcmp(kind, "srq")) {
		check(ibv_destroy_srq(srqs[i]));
	} else if (!strcmp(kind, "ah")) {
		check(ibv_destroy_ah(ahs[i]));
	} else if (!strcmp(kind, "channel")) {
		check(ibv_destroy_comp_channel(channels[i]));
	} else if (!strcmp(kind, "xrcd")) {
		check(ibv_close_xrcd(domain));
	} else if (!strcmp(kind, "window")) {
		check(ibv_dealloc_mw(windows[i]));
	} else if (!strcmp(kind, "mr")) {
		check(ibv_dereg_mr(mrs[i]));
	} else {
		check(ibv_dealloc_pd(pds[i]));
	}
}

static void run(const char *verb)
{
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_receive;
	struct ibv_qp *qp;

	if (!strcmp(verb, "pd")) {
		pds[pd_count++] = some(ibv_alloc_pd(context()));
	} else if (!strcmp(verb, "use")) {
		current = number();
	} else if (!strcmp(verb, "mr")) {
		create_region();
	} else if (!strcmp(verb, "buffers")) {
		create_buffers();
	} else if (!strcmp(verb, "buffered")) {
		/* Only this project's library has two ways to post. */
	} else if (!strcmp(verb, "access")) {
		check(ibv_rereg_mr(region(), IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access_of(word())));
	} else if (!strcmp(verb, "replace")) {
		replace_memory();
	} else if (!strcmp(verb, "try_qp")) {
		try_qp();
	} else if (!strcmp(verb, "domain")) {
		check(ibv_rereg_mr(region(), IBV_REREG_MR_CHANGE_PD, pds[number()], NULL, 0, 0));
	} else if (!strcmp(verb, "window")) {
		windows[window_count++] = some(ibv_alloc_mw(first_pd(), number()));
	} else if (!strcmp(verb, "bind")) {
		bind_window();
	} else if (!strcmp(verb, "channel")) {
		channels[channel_count++] = some(ibv_create_comp_channel(context()));
	} else if (!strcmp(verb, "cq")) {
		create_cq();
	} else if (!strcmp(verb, "xrcd")) {
		create_domain();
	} else if (!strcmp(verb, "xrc_srq")) {
		create_xrc_srq();
	} else if (!strcmp(verb, "target")) {
		create_target();
	} else if (!strcmp(verb, "resize")) {
		resize_cq();
	} else if (!strcmp(verb, "srq")) {
		create_srq();
	} else if (!strcmp(verb, "qp")) {
		create_qp();
	} else if (!strcmp(verb, "ah")) {
		create_ah();
	} else if (!strcmp(verb, "connect")) {
		qp = qps[number()];
		connect_to(qp, qps[number()]);
	} else if (!strcmp(verb, "datagrams")) {
		to_datagrams(qps[number()]);
	} else if (!strcmp(verb, "reset")) {
		to_state(qps[number()], IBV_QPS_RESET);
	} else if (!strcmp(verb, "error")) {
		to_state(qps[number()], IBV_QPS_ERR);
	} else if (!strcmp(verb, "suspend")) {
		to_state(qps[number()], IBV_QPS_SQD);
	} else if (!strcmp(verb, "resume")) {
		to_state(qps[number()], IBV_QPS_RTS);
	} else if (!strcmp(verb, "show_qp")) {
		show_qp(qps[number()]);
	} else if (!strcmp(verb, "show_srq")) {
		show_srq(srqs[number()]);
	} else if (!strcmp(verb, "limit")) {
		set_limit();
	} else if (!strcmp(verb, "async")) {
		show_async_event();
	} else if (!strcmp(verb, "group")) {
		create_group();
	} else if (!strcmp(verb, "join")) {
		check(ibv_attach_mcast(qps[number()], &group, GROUP_LID));
	} else if (!strcmp(verb, "leave")) {
		check(ibv_detach_mcast(qps[number()], &group, GROUP_LID));
	} else if (!strcmp(verb, "ece")) {
		set_ece(qps[number()]);
	} else if (!strcmp(verb, "show_ece")) {
		show_ece(qps[number()]);
	} else if (!strcmp(verb, "receive")) {
		add_receive();
	} else if (!strcmp(verb, "send")) {
		add_send();
	} else if (!strcmp(verb, "post_receives")) {
		check(ibv_post_recv(qps[number()], receives, &bad_receive));
		receive_count = 0;
	} else if (!strcmp(verb, "post_shared")) {
		check(ibv_post_srq_recv(srqs[number()], receives, &bad_receive));
		receive_count = 0;
	} else if (!strcmp(verb, "post_sends")) {
		check(ibv_post_send(qps[number()], sends, &bad_send));
		send_count = 0;
	} else if (!strcmp(verb, "post_too_many")) {
		printf("refused %d\n", ibv_post_send(qps[number()], sends, &bad_send));
		send_count = 0;
	} else if (!strcmp(verb, "poll")) {
		poll();
	} else if (!strcmp(verb, "await")) {
		wait_for();
	} else if (!strcmp(verb, "free")) {
		run_freely();
	} else if (!strcmp(verb, "arm")) {
		struct ibv_cq *cq = cqs[number()];

		check(ibv_req_notify_cq(cq, !strcmp(word(), "solicited")));
	} else if (!strcmp(verb, "event")) {
		event();
	} else if (!strcmp(verb, "memory")) {
		show_memory();
	} else if (!strcmp(verb, "destroy")) {
		destroy();
	} else {
		errno = EINVAL;
		fail("unknown verb");
	}
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = some(ibv_get_device_list(NULL));
	struct ibv_context *opened = NULL;
	int i;

	for (i = 0; list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			opened = some(ibv_open_device(list[i]));
	}
	ibv_free_device_list(list);
	return some(opened);
}

static void open_context(const char *name)
{
	current = context_count++;
	contexts[current].context = open_device(name);
	contexts[current].pd = pd_count;
	contexts[current].mr = mr_count;
}

int main(int count, char **arguments)
{
	char text[512], shown[512];
	FILE *script;

	if (count != 6) {
		fprintf(stderr, "usage: scenario DEVICE GID GID_INDEX SWEEPS SCRIPT\n");
		return 2;
	}
	line = "start";
	if (inet_pton(AF_INET6, arguments[2], &gid) != 1)
		fail("no GID");
	gid_index = atoi(arguments[3]);
	sweeps = open(arguments[4], O_WRONLY);
	check(sweeps < 0 ? -1 : 0);
	script = some(fopen(arguments[5], "r"));
	open_context(arguments[1]);
	line = shown;
	while (fgets(text, sizeof(text), script)) {
		char *verb;

		line_number++;
		text[strcspn(text, "\n")] = 0;
		strcpy(shown, text);
		verb = strtok(text, " ");
		if (verb && !strcmp(verb, "context"))
			open_context(arguments[1]);
		else
			run(verb ? verb : "");
		sweep("2");
	}
	while (context_count)
		check(ibv_close_device(contexts[--context_count].context));
	return 0;
}
