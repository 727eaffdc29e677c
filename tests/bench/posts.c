/*
 * Posts and polls like `bench-posts`, with the C library. Each kind of post and poll has a separate function, for a profiler
 * that counts the instructions of functions.
 *
 * usage: bench-posts-c ADDRESS COUNT [idle]
 *
 * With `idle`, it waits after each post to a send queue until the device is idle, in functions of other names.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PORT "7476"
#define MESSAGE 64
#define INLINE 32
#define LIST 16
/* The byte behind the message in the memory of the server, which the client reads last. */
#define ARRIVED 1
/* Seconds until the data of a read arrive. */
#define LIMIT 60
#define KIND __attribute__((noinline, noclone)) void

static char outgoing[MESSAGE + 1], incoming[MESSAGE + 1];

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

KIND receive(struct ibv_qp *qp, struct ibv_recv_wr *request, int count)
{
	struct ibv_recv_wr *bad;

	while (count--)
		check(ibv_post_recv(qp, request, &bad), "post a receive");
}

/* Waits until the device has executed the last requests, so that it is idle. The profiler does not count this. */
KIND wait_until_idle(struct ibv_qp *qp, int count)
{
	struct ibv_wc done;

	while (count--) {
		while (!ibv_poll_cq(qp->send_cq, 1, &done))
			;
		check(done.status != IBV_WC_SUCCESS, "wait for a request");
	}
}

#define POSTS(name, idle, what)                                                     \
	KIND name(struct ibv_qp *qp, struct ibv_send_wr *request, int count)         \
	{                                                                            \
		struct ibv_send_wr *bad;                                             \
                                                                                     \
		while (count--)                                                      \
			check(ibv_post_send(qp, request, &bad), "post " what);       \
	}                                                                            \
                                                                                     \
	KIND idle(struct ibv_qp *qp, struct ibv_send_wr *request, int count)         \
	{                                                                            \
		struct ibv_send_wr *bad;                                             \
                                                                                     \
		while (count--) {                                                    \
			check(ibv_post_send(qp, request, &bad), "post " what);       \
			wait_until_idle(qp, 1);                                      \
		}                                                                    \
	}

POSTS(send_, send_idle, "a send")
POSTS(send_inline, send_inline_idle, "an inline send")
POSTS(write_, write_idle, "a write")
POSTS(write_inline, write_inline_idle, "an inline write")

/* The list has LIST requests. */
KIND write_list(struct ibv_qp *qp, struct ibv_send_wr *list, int count)
{
	struct ibv_send_wr *bad;

	for (; count; count -= LIST)
		check(ibv_post_send(qp, list, &bad), "post a list");
}

KIND write_list_idle(struct ibv_qp *qp, struct ibv_send_wr *list, int count)
{
	struct ibv_send_wr *bad;

	for (; count; count -= LIST) {
		check(ibv_post_send(qp, list, &bad), "post a list");
		wait_until_idle(qp, LIST);
	}
}

KIND poll_sends(struct ibv_cq *cq, int count)
{
	struct ibv_wc done;

	while (count--)
		check(ibv_poll_cq(cq, 1, &done) != 1 || done.status != IBV_WC_SUCCESS, "poll a write");
}

KIND poll_(struct ibv_cq *cq, int count)
{
	struct ibv_wc done;

	while (count--)
		check(ibv_poll_cq(cq, 1, &done) != 1, "poll");
}

KIND poll_list(struct ibv_cq *cq, int count)
{
	struct ibv_wc done[LIST];

	for (; count; count -= LIST)
		check(ibv_poll_cq(cq, LIST, done) != LIST, "poll a list");
}

KIND poll_empty(struct ibv_cq *cq, int count)
{
	struct ibv_wc done;

	while (count--)
		check(ibv_poll_cq(cq, 1, &done), "poll an empty queue");
}

static void *connect_(void *client)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};

	check(rdma_connect(client, &param), "connect");
	return NULL;
}

static struct rdma_cm_id *endpoint(const char *address, int flags, int count)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 2 * count, .max_recv_wr = 2 * count, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = INLINE },
	};
	struct rdma_cm_id *id;

	check(rdma_getaddrinfo(address, PORT, &hints, &found), "find the address");
	check(rdma_create_ep(&id, found, NULL, &init), "make an endpoint");
	rdma_freeaddrinfo(found);
	return id;
}

/* Reads the byte that arrives when all earlier requests have been carried out. */
static void post_read(struct ibv_qp *qp, const struct ibv_send_wr *write, uint32_t lkey, int flags)
{
	struct ibv_sge byte = { (uintptr_t)outgoing + MESSAGE, 1, lkey };
	struct ibv_send_wr read = *write, *bad;

	read.opcode = IBV_WR_RDMA_READ;
	read.sg_list = &byte;
	read.send_flags = flags;
	read.wr.rdma.remote_addr += MESSAGE;
	check(ibv_post_send(qp, &read, &bad), "post a read");
}

/* Waits until all requests, which are unsignaled, have completed. */
static void settle(struct rdma_cm_id *client, const struct ibv_send_wr *write, uint32_t lkey)
{
	struct ibv_wc done;

	post_read(client->qp, write, lkey, IBV_SEND_SIGNALED);
	while (!ibv_poll_cq(client->send_cq, 1, &done))
		;
	check(done.status != IBV_WC_SUCCESS, "read");
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *listener, *client, *server;
	struct ibv_send_wr send = { .num_sge = 1, .opcode = IBV_WR_SEND }, write, list[LIST], *bad;
	struct ibv_recv_wr request = { .num_sge = 1 };
	struct ibv_mr *ours, *theirs;
	pthread_t connecting;
	int waits = argc == 4 && !strcmp(argv[3], "idle");
	int place, flags = waits ? IBV_SEND_SIGNALED : 0;
	int count = argc == 3 + waits ? atoi(argv[2]) / LIST * LIST : 0;

	if (!count) {
		fputs("usage: bench-posts-c ADDRESS COUNT [idle]\n", stderr);
		return 1;
	}
	listener = endpoint(argv[1], RAI_PASSIVE, 2 * count);
	check(rdma_listen(listener, 1), "listen");
	client = endpoint(argv[1], 0, 2 * count);
	check(pthread_create(&connecting, NULL, connect_, client), "start a thread");
	check(rdma_get_request(listener, &server), "wait for a request");
	theirs = ibv_reg_mr(server->pd, incoming, sizeof(incoming),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	ours = ibv_reg_mr(client->pd, outgoing, sizeof(outgoing), IBV_ACCESS_LOCAL_WRITE);
	check(!ours || !theirs, "register memory");
	request.sg_list = &(struct ibv_sge){ (uintptr_t)incoming, MESSAGE, theirs->lkey };
	incoming[MESSAGE] = ARRIVED;
	receive(server->qp, &request, 2 * count);
	check(rdma_accept(server, NULL), "accept");
	pthread_join(connecting, NULL);
	send.sg_list = &(struct ibv_sge){ (uintptr_t)outgoing, MESSAGE, ours->lkey };
	send.send_flags = flags;
	write = send;
	write.opcode = IBV_WR_RDMA_WRITE;
	write.wr.rdma.remote_addr = (uintptr_t)incoming;
	write.wr.rdma.rkey = theirs->rkey;
	(waits ? send_idle : send_)(client->qp, &send, count);
	settle(client, &write, ours->lkey);
	(waits ? write_idle : write_)(client->qp, &write, count);
	settle(client, &write, ours->lkey);
	/* Signaled writes, whose completions are in the queue when the byte of the read has arrived. */
	write.send_flags = IBV_SEND_SIGNALED;
	outgoing[MESSAGE] = 0;
	for (place = 0; place < count; place++)
		check(ibv_post_send(client->qp, &write, &bad), "post a signaled write");
	post_read(client->qp, &write, ours->lkey, 0);
	/* The signal ends the program if a write or the read has failed. */
	alarm(LIMIT);
	while (*(volatile char *)&outgoing[MESSAGE] != ARRIVED)
		;
	alarm(0);
	poll_sends(client->send_cq, count);
	send.sg_list->length = INLINE;
	send.send_flags = write.send_flags = IBV_SEND_INLINE | flags;
	(waits ? send_inline_idle : send_inline)(client->qp, &send, count);
	settle(client, &write, ours->lkey);
	(waits ? write_inline_idle : write_inline)(client->qp, &write, count);
	settle(client, &write, ours->lkey);
	for (place = 0; place < LIST; place++) {
		list[place] = write;
		list[place].next = place + 1 < LIST ? &list[place + 1] : NULL;
	}
	(waits ? write_list_idle : write_list)(client->qp, list, count);
	settle(client, &write, ours->lkey);
	poll_(server->recv_cq, count);
	poll_list(server->recv_cq, count);
	poll_empty(server->recv_cq, count);
	printf("bench-posts-c: %d of each\n", count);
	fflush(stdout);
	/* Nothing is torn down: the memory outlives the process's last request. */
	_exit(0);
}
