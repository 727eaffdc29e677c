// SPDX-License-Identifier: GPL-2.0
/*
 * mlx5_card: an RDMA device without hardware that has the user ABI of mlx5.
 *
 * A device is created on a network device: rdma link add mlx5_0 type mlx5_card netdev NAME. The C library's mlx5
 * provider opens it by its driver id. A thread emulates the hardware: see engine.c.
 *
 * In debugfs, mlx5_card/stats has counts of the actions of the device, and mlx5_card/queues has the positions of all queues.
 * A write to mlx5_card/fault causes a fault, and a write to mlx5_card/answer alters an answer: see fault.c and answer.c.
 */
#include <linux/debugfs.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <net/addrconf.h>

#include "card.h"

int card_max_cqe_version = 1;
module_param_named(cqe_version, card_max_cqe_version, int, 0600);
MODULE_PARM_DESC(cqe_version, "version of completions that the device offers: 0 or 1");
bool card_dynamic;
module_param_named(dynamic, card_dynamic, bool, 0600);
MODULE_PARM_DESC(dynamic, "new contexts take doorbell registers by ioctl if their program can");
int card_trace;
module_param_named(trace, card_trace, int, 0600);
MODULE_PARM_DESC(trace, "1: log driver data of commands; 2: also work queue entries and completions");
int card_strict = 1;
module_param_named(strict, card_strict, int, 0600);
MODULE_PARM_DESC(strict, "wait for stores to registers, not only to doorbell records (default: 1)");

uint card_request_length = ~0U;
module_param_named(request_length, card_request_length, uint, 0600);
MODULE_PARM_DESC(request_length, "longest request of a context in bytes; older kernels refuse longer ones");
uint card_answer_length = ~0U;
module_param_named(answer_length, card_answer_length, uint, 0600);
MODULE_PARM_DESC(answer_length, "longest answer to the request of a context in bytes; older kernels return less");
uint card_register_size = CARD_BF_SIZE;
module_param_named(register_size, card_register_size, uint, 0600);
MODULE_PARM_DESC(register_size, "bytes of a register for sends in new contexts, or 0 for registers of one word");
uint card_register_pages = ~0U;
module_param_named(register_pages, card_register_pages, uint, 0600);
MODULE_PARM_DESC(register_pages, "maximum number of register pages that a context can map");
uint card_first_page = 1;
module_param_named(first_page, card_first_page, uint, 0600);
MODULE_PARM_DESC(first_page, "smallest number of a new register page that a program allocates");

static bool card_complains = true;
module_param_named(complains, card_complains, bool, 0600);
MODULE_PARM_DESC(complains, "log the faults of programs that `bad` counts (default: Y)");

DEFINE_MUTEX(card_lock);
DEFINE_SPINLOCK(card_kernel_lock);
DEFINE_XARRAY_ALLOC(card_qps);
DEFINE_XARRAY_ALLOC(card_mkeys);
/* Numbers of domains and completion queues. */
DEFINE_XARRAY_ALLOC1(card_numbers);
DEFINE_XARRAY_ALLOC1(card_srqs);
LIST_HEAD(card_qp_list);
LIST_HEAD(card_cq_list);
LIST_HEAD(card_members);
struct card_device *card_devices[CARD_DEVICES];
atomic_t card_stat[8];
static struct task_struct *card_thread;
static struct dentry *card_debugfs;
u32 card_next_qp, card_next_mkey, card_next_number, card_next_srq;

/* Reports and counts something that no correct program does. The test bed finds the text in the kernel's log. */
void card_bad(const char *format, ...)
{
	struct va_format text = { .fmt = format };
	va_list args;

	if (atomic_inc_return(&card_stat[CARD_BAD]) > CARD_BAD_SHOWN || !card_complains)
		return;
	va_start(args, format);
	text.va = &args;
	pr_err("rdmacm_mlx5: fault of a program: %pV\n", &text);
	va_end(args);
}

/*
 * Allocates the number of an object. With completions of version 0, which name objects by number, the device allocates the
 * lowest free number, as firmware may. Otherwise it does not reuse numbers at once, because the connection manager keeps the
 * number of an ended connection for some time.
 */
int card_number(struct xarray *objects, u32 *number, void *object, u32 first, u32 last, u32 *next)
{
	struct xa_limit limit = XA_LIMIT(first, last);

	if (!card_max_cqe_version)
		return xa_alloc(objects, number, object, limit, GFP_KERNEL);
	return xa_alloc_cyclic(objects, number, object, limit, next, GFP_KERNEL);
}

static int card_query_device(struct ib_device *device, struct ib_device_attr *attr, struct ib_udata *udata)
{
	struct mlx5_ib_query_device_resp resp = {};

	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = (u64)CARD_FW_MAJOR << 32 | CARD_FW_MINOR << 16 | CARD_FW_SUBMINOR;
	attr->sys_image_guid = device->node_guid;
	attr->vendor_id = 0x02c9;
	attr->vendor_part_id = 4119;
	attr->max_mr_size = U64_MAX;
	attr->page_size_cap = 0xfffff000;
	attr->kernel_cap_flags = IBK_LOCAL_DMA_LKEY | IBK_ALLOW_USER_UNREG;
	attr->max_qp = 1 << 18;
	attr->max_qp_wr = 1 << CARD_LOG_QP_SZ;
	attr->max_send_sge = 30;
	attr->max_recv_sge = 32;
	attr->max_sge_rd = 30;
	attr->max_cq = 1 << 24;
	attr->max_cqe = CARD_MAX_CQE - 1;
	attr->max_mr = 1 << 24;
	attr->max_mw = 1 << 24;
	attr->device_cap_flags = IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_WINDOW_TYPE_2B | IB_DEVICE_XRC;
	attr->max_pd = 1 << 24;
	attr->max_ah = INT_MAX;
	attr->max_srq = 1 << 23;
	attr->max_srq_wr = (1 << CARD_LOG_QP_SZ) - 1;
	attr->max_srq_sge = 31;
	attr->max_qp_rd_atom = CARD_MAX_RD_ATOMIC;
	attr->max_qp_init_rd_atom = CARD_MAX_RD_ATOMIC;
	attr->max_res_rd_atom = CARD_MAX_RD_ATOMIC << 18;
	attr->atomic_cap = IB_ATOMIC_HCA;
	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = CARD_CLOCK_KHZ;
	attr->max_pkeys = 1;
	attr->max_mcast_grp = 1 << 13;
	attr->max_mcast_qp_attach = 56;
	attr->max_total_mcast_qp_attach = 56 << 13;
	if (udata && udata->outlen) {
		resp.response_length = min(udata->outlen, sizeof(resp));
		return card_give(udata, "query_device", &resp, resp.response_length, 0);
	}
	return 0;
}

static bool card_is_up(const struct card_device *device)
{
	return netif_running(device->ndev) && netif_carrier_ok(device->ndev);
}

static int card_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	bool is_up = card_is_up(container_of(ibdev, struct card_device, ib));

	attr->state = is_up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = is_up ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = CARD_MTU;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_EDR;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->ip_gids = true;
	attr->gid_tbl_len = CARD_GIDS;
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = SZ_1G;
	attr->max_vl_num = 1;
	return 0;
}

static int card_get_port_immutable(struct ib_device *device, u32 port, struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = CARD_GIDS;
	immutable->pkey_tbl_len = 1;
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer card_get_link_layer(struct ib_device *device, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static void card_get_dev_fw_str(struct ib_device *device, char *text)
{
	snprintf(text, IB_FW_VERSION_NAME_MAX, "%d.%d.%04d", CARD_FW_MAJOR, CARD_FW_MINOR, CARD_FW_SUBMINOR);
}

static int card_query_pkey(struct ib_device *device, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

static int card_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct card_device *device = container_of(attr->device, struct card_device, ib);

	if (attr->index < CARD_GIDS)
		device->gids[attr->index] = attr->gid;
	return 0;
}

static int card_del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct card_device *device = container_of(attr->device, struct card_device, ib);

	if (attr->index < CARD_GIDS)
		memset(&device->gids[attr->index], 0, sizeof(union ib_gid));
	return 0;
}

static void card_forget(struct card_device *device)
{
	int slot;

	spin_lock_irq(&card_kernel_lock);
	for (slot = 0; slot < CARD_DEVICES; slot++) {
		if (card_devices[slot] == device)
			card_devices[slot] = NULL;
	}
	spin_unlock_irq(&card_kernel_lock);
}

static void card_dealloc_driver(struct ib_device *ib)
{
	card_forget(container_of(ib, struct card_device, ib));
}

static void card_disassociate_ucontext(struct ib_ucontext *context)
{
}

static const struct ib_device_ops card_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_MLX5,
	.uverbs_abi_ver = MLX5_IB_UVERBS_ABI_VERSION,

	.add_gid = card_add_gid,
	.alloc_mw = card_alloc_mw,
	.alloc_pd = card_alloc_pd,
	.alloc_ucontext = card_alloc_ucontext,
	.alloc_xrcd = card_alloc_xrcd,
	.attach_mcast = card_attach_mcast,
	.create_ah = card_create_ah,
	.create_cq = card_create_cq,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	.create_user_cq = card_create_cq,
#endif
	.create_qp = card_create_qp,
	.create_srq = card_create_srq,
	.create_user_ah = card_create_ah,
	.dealloc_mw = card_dealloc_mw,
	.dealloc_driver = card_dealloc_driver,
	.dealloc_pd = card_dealloc_pd,
	.dealloc_ucontext = card_dealloc_ucontext,
	.dealloc_xrcd = card_dealloc_xrcd,
	.del_gid = card_del_gid,
	.dereg_mr = card_dereg_mr,
	.destroy_ah = card_destroy_ah,
	.destroy_cq = card_destroy_cq,
	.destroy_qp = card_destroy_qp,
	.destroy_srq = card_destroy_srq,
	.detach_mcast = card_detach_mcast,
	.disassociate_ucontext = card_disassociate_ucontext,
	.get_dma_mr = card_get_dma_mr,
	.get_dev_fw_str = card_get_dev_fw_str,
	.get_link_layer = card_get_link_layer,
	.get_port_immutable = card_get_port_immutable,
	.mmap = card_mmap,
	.mmap_free = card_uar_free,
	.modify_qp = card_modify_qp,
	.modify_srq = card_modify_srq,
	.poll_cq = card_poll_cq,
	.post_recv = card_post_recv,
	.post_send = card_post_send,
	.query_device = card_query_device,
	.query_pkey = card_query_pkey,
	.query_port = card_query_port,
	.query_qp = card_query_qp,
	.query_srq = card_query_srq,
	.reg_user_mr = card_reg_user_mr,
	.reg_user_mr_dmabuf = card_reg_user_mr_dmabuf,
	.req_notify_cq = card_req_notify_cq,
	.rereg_user_mr = card_rereg_user_mr,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	.resize_user_cq = card_resize_cq,
#else
	.resize_cq = card_resize_cq,
#endif

	INIT_RDMA_OBJ_SIZE(ib_ah, card_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, card_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_mw, card_mw, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, card_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, card_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, card_srq, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, card_context, ib),
	INIT_RDMA_OBJ_SIZE(ib_xrcd, card_xrcd, ib),
};

static int card_stats_show(struct seq_file *file, void *unused)
{
	static const char *const names[] = {
		"wqes", "cqes", "blueflame", "doorbell", "unrung", "events", "bad", "mads"
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		seq_printf(file, "%s %d\n", names[i], atomic_read(&card_stat[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(card_stats);

/* Shows the positions of each queue of a program, and how completion queues are armed. */
static int card_queues_show(struct seq_file *file, void *unused)
{
	struct card_qp *qp;
	struct card_cq *cq;

	mutex_lock(&card_lock);
	list_for_each_entry(qp, &card_qp_list, entry)
		seq_printf(file, "qp %u state %d peer %u sends %u done %u receives %u done %u%s%s\n", qp->qpn,
			   qp->attr.qp_state, qp->attr.dest_qp_num, be32_to_cpu(qp->db[1]), qp->sq_ci,
			   be32_to_cpu(qp->db[0]), qp->rq_ci, qp->stalled ? " stalled" : "",
			   qp->unrung ? " unrung" : "");
	list_for_each_entry(cq, &card_cq_list, entry) {
		if (cq->user)
			seq_printf(file, "cq %u written %u polled %u armed %#x fired %#x\n", cq->cqn, cq->pi,
				   be32_to_cpu(cq->db[0]), be32_to_cpu(cq->arm), cq->fired);
	}
	mutex_unlock(&card_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(card_queues);

/* The PCI device that a program finds in sysfs: a ConnectX-5. */
static ssize_t modalias_show(struct device *device, struct device_attribute *attribute, char *buf)
{
	return sysfs_emit(buf, "pci:v000015B3d00001017sv000015B3sd00000000bc02sc00i00\n");
}
static DEVICE_ATTR_RO(modalias);

static struct device *card_parent;

static int card_newlink(const char *name, struct net_device *ndev)
{
	struct card_device *device;
	int err, slot;

	device = ib_alloc_device(card_device, ib);
	if (!device)
		return -ENOMEM;
	device->ndev = ndev;
	device->was_up = card_is_up(device);
	device->ib.node_type = RDMA_NODE_IB_CA;
	device->ib.phys_port_cnt = 1;
	device->ib.num_comp_vectors = num_possible_cpus();
	addrconf_addr_eui48((u8 *)&device->ib.node_guid, ndev->dev_addr);
	strscpy(device->ib.node_desc, "emulated mlx5", sizeof(device->ib.node_desc));
	device->ib.dev.parent = card_parent;
	ib_set_device_ops(&device->ib, &card_ops);
	device->ib.driver_def = card_definitions;
	err = ib_device_set_netdev(&device->ib, ndev, 1);
	if (err)
		goto free;
	/* Registration delivers GIDs and management datagrams, so the device is entered into the table before its registration. */
	spin_lock_irq(&card_kernel_lock);
	for (slot = 0; slot < CARD_DEVICES && card_devices[slot]; slot++)
		;
	if (slot < CARD_DEVICES)
		card_devices[slot] = device;
	spin_unlock_irq(&card_kernel_lock);
	if (slot == CARD_DEVICES) {
		err = -ENOSPC;
		goto free;
	}
	err = ib_register_device(&device->ib, name, NULL);
	if (!err)
		return 0;
	card_forget(device);
free:
	ib_dealloc_device(&device->ib);
	return err;
}

static struct rdma_link_ops card_link_ops = {
	.type = "mlx5_card",
	.newlink = card_newlink,
};

/* Reports a change of the port's state, once. */
static void card_report_port(struct card_device *device)
{
	struct ib_event event = { .device = &device->ib, .element.port_num = 1 };
	bool is_up = card_is_up(device);

	if (is_up == device->was_up)
		return;
	device->was_up = is_up;
	event.event = is_up ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
	ib_dispatch_event(&event);
}

/* Reports changes of the state of a network device, and unregisters the device with it. */
static int card_on_netdev(struct notifier_block *block, unsigned long event, void *data)
{
	struct ib_device *ib = ib_device_get_by_netdev(netdev_notifier_info_to_dev(data), RDMA_DRIVER_MLX5);

	if (!ib)
		return NOTIFY_DONE;
	if (event == NETDEV_UNREGISTER)
		ib_unregister_device_queued(ib);
	else if (event == NETDEV_UP || event == NETDEV_DOWN || event == NETDEV_CHANGE)
		card_report_port(container_of(ib, struct card_device, ib));
	ib_device_put(ib);
	return NOTIFY_DONE;
}

static struct notifier_block card_notifier = { .notifier_call = card_on_netdev };

static int __init card_init(void)
{
	int err;

	err = card_clock_init();
	if (err)
		return err;
	card_parent = root_device_register("mlx5_card");
	err = PTR_ERR_OR_ZERO(card_parent);
	if (err)
		goto clock;
	err = device_create_file(card_parent, &dev_attr_modalias);
	if (err)
		goto parent;
	card_thread = kthread_run(card_engine, NULL, "mlx5_card");
	err = PTR_ERR_OR_ZERO(card_thread);
	if (err)
		goto parent;
	err = register_netdevice_notifier(&card_notifier);
	if (err)
		goto thread;
	card_debugfs = debugfs_create_dir("mlx5_card", NULL);
	card_journal_init(card_debugfs);
	card_fault_init(card_debugfs);
	card_answer_init(card_debugfs);
	debugfs_create_file("stats", 0400, card_debugfs, NULL, &card_stats_fops);
	debugfs_create_file("queues", 0400, card_debugfs, NULL, &card_queues_fops);
	rdma_link_register(&card_link_ops);
	return 0;
thread:
	kthread_stop(card_thread);
parent:
	root_device_unregister(card_parent);
clock:
	card_clock_exit();
	return err;
}
module_init(card_init);

static void __exit card_exit(void)
{
	rdma_link_unregister(&card_link_ops);
	unregister_netdevice_notifier(&card_notifier);
	ib_unregister_driver(RDMA_DRIVER_MLX5);
	debugfs_remove(card_debugfs);
	kthread_stop(card_thread);
	card_journal_exit();
	root_device_unregister(card_parent);
	card_clock_exit();
}
module_exit(card_exit);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
MODULE_ALIAS_RDMA_LINK("mlx5_card");
MODULE_DESCRIPTION("RDMA device without hardware that has the user ABI of mlx5");
MODULE_LICENSE("GPL");
