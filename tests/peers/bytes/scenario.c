/*
 * Uses the connection manager in one ROLE: `scenario ROLE ADDRESS PORT`. scenario.rs makes the same calls with this
 * project's library.
 */
#include <netinet/in.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP "239.7.7.7"
#define TIMEOUT_MS 2000

/* The address of the passive side. */
static const char *server;

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	check(inet_pton(AF_INET, ip, &address.sin_addr) != 1, ip);
	return address;
}

static struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	check(!channel, "rdma_create_event_channel");
	return channel;
}

static struct rdma_cm_id *create(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct rdma_cm_id *id;

	check(rdma_create_id(channel, &id, NULL, space), "rdma_create_id");
	return id;
}

/* Waits for an event, and returns its id: for a request, the new one. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s with status %d in place of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(type));
		exit(1);
	}
	id = event->id;
	check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = id->qp_type,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};

	check(rdma_create_qp(id, NULL, &init), "rdma_create_qp");
}

static struct rdma_conn_param param(void)
{
	return (struct rdma_conn_param){
		.private_data = "hello",
		.private_data_len = 5,
		.responder_resources = 3,
		.initiator_depth = 2,
		.flow_control = 1,
		.retry_count = 5,
		.rnr_retry_count = 6,
	};
}

static void bind_to(struct rdma_cm_id *id, const char *port)
{
	struct sockaddr_in here = address(server, port);

	check(rdma_bind_addr(id, (struct sockaddr *)&here), "rdma_bind_addr");
}

static void resolve(struct rdma_cm_id *id, const char *port)
{
	struct sockaddr_in there = address(server, port);

	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, TIMEOUT_MS), "rdma_resolve_addr");
	if (!id->channel)
		return;
	expect(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

static void route(struct rdma_cm_id *id)
{
	check(rdma_resolve_route(id, TIMEOUT_MS), "rdma_resolve_route");
	expect(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void destroy(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	check(rdma_destroy_id(id), "rdma_destroy_id");
}

static struct rdma_cm_id *listener(struct rdma_event_channel *events, enum rdma_port_space space,
				   const char *port)
{
	struct rdma_cm_id *id = create(events, space);

	bind_to(id, port);
	check(rdma_listen(id, 4), "rdma_listen");
	return id;
}

static void active(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *id = create(events, RDMA_PS_TCP);
	struct rdma_conn_param wanted = param();

	resolve(id, port);
	route(id);
	create_qp(id);
	check(rdma_connect(id, &wanted), "rdma_connect");
	expect(events, RDMA_CM_EVENT_ESTABLISHED);
	check(rdma_disconnect(id), "rdma_disconnect");
	expect(events, RDMA_CM_EVENT_DISCONNECTED);
	destroy(id);
	rdma_destroy_event_channel(events);
}

static void passive(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *listening = listener(events, RDMA_PS_TCP, port);
	struct rdma_cm_id *id = expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param wanted = param();

	create_qp(id);
	check(rdma_accept(id, &wanted), "rdma_accept");
	expect(events, RDMA_CM_EVENT_ESTABLISHED);
	expect(events, RDMA_CM_EVENT_DISCONNECTED);
	check(rdma_disconnect(id), "rdma_disconnect");
	destroy(id);
	destroy(listening);
	rdma_destroy_event_channel(events);
}

static void rejected(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *id = create(events, RDMA_PS_TCP);
	struct rdma_conn_param wanted = param();

	resolve(id, port);
	route(id);
	create_qp(id);
	check(rdma_connect(id, &wanted), "rdma_connect");
	expect(events, RDMA_CM_EVENT_REJECTED);
	destroy(id);
	rdma_destroy_event_channel(events);
}

static void rejecting(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *listening = listener(events, RDMA_PS_TCP, port);
	struct rdma_cm_id *id = expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);

	check(rdma_reject(id, "no", 2), "rdma_reject");
	destroy(id);
	destroy(listening);
	rdma_destroy_event_channel(events);
}

static void datagram_active(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *id = create(events, RDMA_PS_UDP);
	struct rdma_conn_param wanted = { .private_data = "hello", .private_data_len = 5 };

	resolve(id, port);
	route(id);
	create_qp(id);
	check(rdma_connect(id, &wanted), "rdma_connect");
	expect(events, RDMA_CM_EVENT_ESTABLISHED);
	destroy(id);
	rdma_destroy_event_channel(events);
}

static void datagram_passive(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *listening = listener(events, RDMA_PS_UDP, port);
	struct rdma_cm_id *id = expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param wanted = { .private_data = "hello", .private_data_len = 5 };

	create_qp(id);
	wanted.qp_num = id->qp->qp_num;
	check(rdma_accept(id, &wanted), "rdma_accept");
	destroy(id);
	destroy(listening);
	rdma_destroy_event_channel(events);
}

static void multicast(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *id = create(events, RDMA_PS_UDP);
	struct sockaddr_in group = address(GROUP, "0");

	bind_to(id, port);
	create_qp(id);
	check(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), "rdma_join_multicast");
	expect(events, RDMA_CM_EVENT_MULTICAST_JOIN);
	check(rdma_leave_multicast(id, (struct sockaddr *)&group), "rdma_leave_multicast");
	destroy(id);
	rdma_destroy_event_channel(events);
}

static void migrate(const char *port)
{
	struct rdma_event_channel *first = channel(), *second = channel();
	struct rdma_cm_id *id = create(first, RDMA_PS_TCP);
	struct rdma_conn_param wanted = param();

	resolve(id, port);
	check(rdma_migrate_id(id, second), "rdma_migrate_id");
	route(id);
	create_qp(id);
	check(rdma_connect(id, &wanted), "rdma_connect");
	expect(second, RDMA_CM_EVENT_ESTABLISHED);
	check(rdma_migrate_id(id, first), "rdma_migrate_id");
	check(rdma_disconnect(id), "rdma_disconnect");
	expect(first, RDMA_CM_EVENT_DISCONNECTED);
	destroy(id);
	rdma_destroy_event_channel(second);
	rdma_destroy_event_channel(first);
}

static void synchronous_active(const char *port)
{
	struct rdma_cm_id *id = create(NULL, RDMA_PS_TCP);
	struct sockaddr_in there = address(server, port);
	struct rdma_conn_param wanted = param();

	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, TIMEOUT_MS), "rdma_resolve_addr");
	check(rdma_resolve_route(id, TIMEOUT_MS), "rdma_resolve_route");
	create_qp(id);
	check(rdma_connect(id, &wanted), "rdma_connect");
	check(rdma_disconnect(id), "rdma_disconnect");
	destroy(id);
}

static void synchronous_passive(const char *port)
{
	struct rdma_cm_id *listening = listener(NULL, RDMA_PS_TCP, port);
	struct rdma_cm_id *id;
	struct rdma_conn_param wanted = param();

	check(rdma_get_request(listening, &id), "rdma_get_request");
	create_qp(id);
	check(rdma_accept(id, &wanted), "rdma_accept");
	check(rdma_disconnect(id), "rdma_disconnect");
	destroy(id);
	destroy(listening);
}

/* Moves a queue pair that the program created to `state`. */
static void modify(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attributes = { .qp_state = state };
	int mask;

	check(rdma_init_qp_attr(id, &attributes, &mask), "rdma_init_qp_attr");
	check(ibv_modify_qp(qp, &attributes, mask), "ibv_modify_qp");
}

static void external(const char *port)
{
	struct rdma_event_channel *events = channel();
	struct rdma_cm_id *id = create(events, RDMA_PS_TCP);
	struct rdma_conn_param wanted = param();
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_qp *qp;

	resolve(id, port);
	route(id);
	check(!(pd = ibv_alloc_pd(id->verbs)), "ibv_alloc_pd");
	check(!(cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0)), "ibv_create_cq");
	init.send_cq = init.recv_cq = cq;
	check(!(qp = ibv_create_qp(pd, &init)), "ibv_create_qp");
	modify(id, qp, IBV_QPS_INIT);
	wanted.qp_num = qp->qp_num;
	check(rdma_connect(id, &wanted), "rdma_connect");
	expect(events, RDMA_CM_EVENT_CONNECT_RESPONSE);
	modify(id, qp, IBV_QPS_RTR);
	modify(id, qp, IBV_QPS_RTS);
	check(rdma_establish(id), "rdma_establish");
	check(rdma_disconnect(id), "rdma_disconnect");
	expect(events, RDMA_CM_EVENT_DISCONNECTED);
	check(ibv_destroy_qp(qp), "ibv_destroy_qp");
	check(ibv_destroy_cq(cq), "ibv_destroy_cq");
	check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	destroy(id);
	rdma_destroy_event_channel(events);
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*play)(const char *port);
	} roles[] = {
		{ "active", active },
		{ "passive", passive },
		{ "rejected", rejected },
		{ "rejecting", rejecting },
		{ "datagram-active", datagram_active },
		{ "datagram-passive", datagram_passive },
		{ "multicast", multicast },
		{ "migrate", migrate },
		{ "synchronous-active", synchronous_active },
		{ "synchronous-passive", synchronous_passive },
		{ "external", external },
	};

	for (size_t i = 0; count == 4 && i < sizeof(roles) / sizeof(*roles); i++) {
		if (!strcmp(arguments[1], roles[i].name)) {
			server = arguments[2];
			roles[i].play(arguments[3]);
			return 0;
		}
	}
	fprintf(stderr, "usage: scenario ROLE ADDRESS PORT\n");
	return 2;
}
