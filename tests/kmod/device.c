// SPDX-License-Identifier: GPL-2.0
/*
 * kt0: an RDMA device without hardware and without network, for tests of programs that use it through
 * ib_uverbs.
 *
 * It keeps its queues in the kernel, so that its data path is the write commands POST_SEND, POST_RECV,
 * POST_SRQ_RECV, POLL_CQ and REQ_NOTIFY_CQ. Requests complete in order, and no byte is transferred. A send
 * completes a receive of the destination queue pair, and waits until one is posted.
 *
 * In debugfs, rdmacm_test/
 *   counts   has the number of objects of each kind
 *   event    takes "TYPE NUMBER" and raises the asynchronous event IB_EVENT_... TYPE. NUMBER is that of a
 *            queue pair, also for events of its send completion queue and its shared receive queue; of an
 *            XRC shared receive queue; or of a port
 *   deliver  takes "QPN SRQN LENGTH" and delivers a message through the XRC target queue pair QPN to the
 *            shared receive queue SRQN, because POST_SEND has no field for that number
 */
#include <linux/debugfs.h>
#include <linux/module.h>

#include "kt.h"

#define KT_GUID		0x0200007465737430ULL

/* The device refuses the commands that post and poll, as if programs had rings in their memory. */
static bool kt_rings;
module_param_named(rings, kt_rings, bool, 0400);

/* The errno with which every post fails, or 0. */
int kt_refusal;
module_param_named(refusal, kt_refusal, int, 0400);

/* The kind of object, as in enum kt_kind, whose destruction is refused with EBUSY: KT_MR, KT_SRQ or KT_QP. */
int kt_kept = -1;
module_param_named(kept, kt_kept, int, 0600);

struct kt_device {
	struct ib_device ib;
};

struct ib_device *kt;
DEFINE_SPINLOCK(kt_lock);
DEFINE_XARRAY_ALLOC1(kt_numbers);
LIST_HEAD(kt_cqs);
atomic_t kt_live[KT_KINDS];
static u32 kt_next_number;

int kt_number(struct kt_numbered *id, enum kt_kind kind)
{
	int err;

	id->kind = kind;
	err = xa_alloc_cyclic(&kt_numbers, &id->number, id, XA_LIMIT(1, 0xffffff),
			      &kt_next_number, GFP_KERNEL);
	return err < 0 ? err : 0;
}

struct kt_qp *kt_qp_of(u32 number)
{
	struct kt_numbered *id = xa_load(&kt_numbers, number);

	return id && id->kind == KT_QP ? container_of(id, struct kt_qp, id) : NULL;
}

struct kt_srq *kt_srq_of(u32 number)
{
	struct kt_numbered *id = xa_load(&kt_numbers, number);

	return id && id->kind == KT_SRQ ? container_of(id, struct kt_srq, id) : NULL;
}

static int kt_query_device(struct ib_device *device, struct ib_device_attr *attr,
			   struct ib_udata *udata)
{
	memset(attr, 0, sizeof(*attr));
	attr->sys_image_guid = cpu_to_be64(KT_GUID);
	attr->vendor_id = 0x74;
	attr->max_mr_size = U64_MAX;
	attr->page_size_cap = PAGE_SIZE;
	attr->device_cap_flags = IB_DEVICE_XRC | IB_DEVICE_SRQ_RESIZE | IB_DEVICE_MEM_WINDOW |
				 IB_DEVICE_MEM_WINDOW_TYPE_2B;
	attr->max_qp = 4096;
	attr->max_qp_wr = KT_MAX_WR;
	attr->max_send_sge = KT_MAX_SGE;
	attr->max_recv_sge = KT_MAX_SGE;
	attr->max_sge_rd = KT_MAX_SGE;
	attr->max_cq = 4096;
	attr->max_cqe = KT_MAX_CQE;
	attr->max_mr = 4096;
	attr->max_mw = 4096;
	attr->max_pd = 4096;
	attr->max_ah = 4096;
	attr->max_srq = 4096;
	attr->max_srq_wr = KT_MAX_WR;
	attr->max_srq_sge = KT_MAX_SGE;
	attr->max_qp_rd_atom = KT_MAX_DEPTH;
	attr->max_qp_init_rd_atom = KT_MAX_DEPTH;
	attr->max_res_rd_atom = KT_MAX_DEPTH;
	attr->atomic_cap = IB_ATOMIC_HCA;
	attr->max_pkeys = 1;
	return 0;
}

static int kt_query_port(struct ib_device *device, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_QDR;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = SZ_1G;
	attr->lid = 1;
	attr->max_vl_num = 1;
	return 0;
}

/* The port has no management datagrams, so the kernel's connection manager does not use the device. */
static int kt_get_port_immutable(struct ib_device *device, u32 port,
				 struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 1;
	immutable->pkey_tbl_len = 1;
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_IB;
	return 0;
}

static int kt_query_gid(struct ib_device *device, u32 port, int index, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	gid->global.interface_id = cpu_to_be64(KT_GUID);
	return 0;
}

static int kt_query_pkey(struct ib_device *device, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

static const struct ib_device_ops kt_device_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = 1,

	.query_device = kt_query_device,
	.query_port = kt_query_port,
	.query_gid = kt_query_gid,
	.query_pkey = kt_query_pkey,
	.get_port_immutable = kt_get_port_immutable,
};

static int __init kt_init(void)
{
	struct kt_device *device = ib_alloc_device(kt_device, ib);
	int err;

	if (!device)
		return -ENOMEM;
	kt = &device->ib;
	kt->node_type = RDMA_NODE_IB_CA;
	kt->phys_port_cnt = 1;
	kt->num_comp_vectors = 1;
	kt->node_guid = cpu_to_be64(KT_GUID);
	if (!kt_rings)
		kt->uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
				       BIT_ULL(IB_USER_VERBS_CMD_POST_RECV) |
				       BIT_ULL(IB_USER_VERBS_CMD_POST_SRQ_RECV) |
				       BIT_ULL(IB_USER_VERBS_CMD_POLL_CQ) |
				       BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	/* The device lacks get_dma_mr, which clients in the kernel need, so only ib_uverbs uses it. */
	ib_set_device_ops(kt, &kt_device_ops);
	ib_set_device_ops(kt, &kt_object_ops);
	ib_set_device_ops(kt, &kt_cq_ops);
	ib_set_device_ops(kt, &kt_qp_ops);
	ib_set_device_ops(kt, &kt_srq_ops);
	err = ib_register_device(kt, "kt0", NULL);
	if (err) {
		ib_dealloc_device(kt);
		return err;
	}
	kt_debugfs_add();
	return 0;
}
module_init(kt_init);

static void __exit kt_exit(void)
{
	kt_debugfs_remove();
	ib_unregister_device(kt);
	ib_dealloc_device(kt);
}
module_exit(kt_exit);

MODULE_DESCRIPTION("RDMA device for tests of user-space verbs");
MODULE_LICENSE("GPL");
