/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CARD_H
#define CARD_H

#include <linux/dcache.h>
#include <linux/dma-buf.h>
#include <linux/iosys-map.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/mlx5/cq.h>
#include <linux/mlx5/device.h>
#include <linux/mlx5/qp.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/version.h>
#include <linux/xarray.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/uverbs_ioctl.h>

#define CARD_MTU	IB_MTU_1024
#define CARD_DEVICES	4
#define CARD_GIDS	256
#define CARD_UARS	256			/* maximum number of register pages of a context, as in libmlx5 */
#define CARD_BF_OFFSET	0x800
#define CARD_ARM_OFFSET	0x20			/* offset of the register that arms completion queues, in its page */
#define CARD_BF_SIZE	512			/* largest size of a register, with two buffers */
#define CARD_LOG_QP_SZ	15			/* logarithm of the maximum number of blocks in a send queue */
#define CARD_SQ_DESC	1024
#define CARD_RQ_DESC	512
#define CARD_MAX_CQE	(1 << 22)
#define CARD_MAX_SGE	32
#define CARD_FW_MAJOR	16			/* version of the firmware */
#define CARD_FW_MINOR	35
#define CARD_FW_SUBMINOR	4030
#define CARD_MAX_RD_ATOMIC	16
/* Flag of the UMR control segment: the window must not be bound. The kernel's headers have no name for it. */
#define CARD_UMR_CHECK_FREE	(1 << 5)
/* The options of enhanced connection establishment (ECE) that the device has. */
#define CARD_ECE	0x10000003
#define CARD_CLOCK_OFFSET	0x40			/* offset of the time in the page of the clock */
#define CARD_CLOCK_KHZ	1000000
#define CARD_BAD_SHOWN	100			/* maximum number of faults of programs in the log */
#define CARD_UNDEFINED	0xa5U			/* value of bytes that the operation of a completion does not define */
#define CARD_NEVER_ARMED	cpu_to_be32(0xffffffff)

struct card_device {
	struct ib_device ib;
	struct net_device *ndev;
	bool was_up;
	union ib_gid gids[CARD_GIDS];
	struct card_qp *gsi;
};

/* A page of doorbell registers: two for sends, and one that arms completion queues. See register.c. */
struct card_registers {
	struct kref refs;
	struct page *page;
	u32 size;			/* bytes of a register for sends, or 0 if the only register has one word */
	u32 doorbells[2];		/* number of doorbells seen in each register for sends */
	u64 arm_store;			/* last store to the arming register, in memory order */
	u32 arm_sweep;			/* number of the sweep that saw arm_store */
};

struct card_context {
	struct ib_ucontext ib;
	struct card_registers *registers[CARD_UARS];
	u32 total_bfregs, low_latency;
	u32 uses[CARD_UARS * 2];
	u32 register_size;
	atomic_t register_pages;	/* number of pages of registers that were mapped */
	u8 cqe_version;
	bool dynamic;			/* programs get registers by ioctl */
};

struct card_pd {
	struct ib_pd ib;
	u32 pdn;
};

struct card_xrcd {
	struct ib_xrcd ib;
};

struct card_ah {
	struct ib_ah ib;
	struct rdma_ah_attr attr;
};

/* User memory that is pinned, and mapped for the engine. */
struct card_map {
	struct ib_umem *umem;
	void *base, *va;
};

/* The key of a region, or of a window, which gives access to a part of a region. */
struct card_key {
	u32 key;
	struct ib_pd *pd;
	bool is_window;
	u64 start, length;
	int access;
	/* only for regions */
	void *memory;
	/* only for windows */
	bool is_bound, is_type_2;
	u32 region, qpn;
	u64 address;
};

struct card_mr {
	struct ib_mr ib;
	struct card_key key;
	struct card_map map;
	struct dma_buf *dmabuf;			/* used instead of the map */
	struct iosys_map dmabuf_map;
};

struct card_mw {
	struct ib_mw ib;
	struct card_key key;
};

struct card_cq {
	struct ib_cq ib;
	struct list_head entry;
	struct card_map buf, db_map;
	__be32 *db;				/* consumer index; arm word */
	u32 cqn, cqe_size, entries, pi, solicited_pi;
	__be32 arm;				/* last arm word whose store to the register the engine has seen */
	u32 fired;				/* arm word for which the last event was raised */
	bool user, has_solicited, overrun;
	struct card_context *context;		/* context of the program */
	struct card_registers *registers;	/* page of the arming register; holds a reference */
	u32 seen_index, seen_arm;		/* last values in the journal */
	bool seen_arm_set;
	struct list_head late;			/* completions that a fault delays */
	u32 late_qpn;				/* queue pair whose release ends the delay, or 0 */
	u32 unended_qpn;			/* queue pair for which the next ring gets no end, or 0 */
	/* only for queues of the kernel */
	struct ib_wc *ring;
	u32 first, used;
	bool armed;
};

struct card_srq {
	struct ib_srq ib;
	struct card_map buf, db_map;
	__be32 *db;
	u32 srqn, max, shift, max_sge, limit;
	u32 uidx;				/* user index of a queue in an XRC domain */
	struct card_context *context;
	u16 ci, head;
	bool has_overrun;
};

/* A receive of a queue pair of the kernel. */
struct card_recv {
	struct ib_cqe *cqe;
	struct ib_sge sge;
};

/* Faults of a queue pair: see fault.c. */
enum card_doorbell { CARD_DOORBELL_SEEN, CARD_DOORBELL_TO_LOSE, CARD_DOORBELL_LOST };

struct card_failure {
	u8 syndrome, vendor;			/* without a failure, the syndrome is zero */
};

struct card_qp {
	struct ib_qp ib;
	struct list_head entry;
	struct card_map buf, db_map;
	__be32 *db;				/* counts of posted receives and of posted send blocks */
	struct ib_qp_attr attr;
	struct ib_qp_init_attr init;
	struct card_context *context;
	struct card_srq *named;			/* queue that the current request names to an XRC target */
	u32 qpn, uidx, sq_count, rq_count, rq_shift, sq_offset;
	int bfreg;				/* number of its static register, or -1 */
	struct card_registers *registers;	/* page of its registers; holds a reference */
	u32 bf_first, bf_count;			/* registers of the page that take its doorbells */
	u32 doorbells;				/* number of its doorbells that were seen */
	u32 other_doorbells;			/* doorbells of other queue pairs when its last entry had a doorbell */
	bool user, established;
	bool has_overrun;			/* more receives were posted than its ring holds */
	u16 sq_ci, rq_ci;
	u16 rung;				/* entries before this index may start */
	unsigned long stalled;			/* jiffies since which it waits for its peer, or 0 */
	unsigned long unrung;			/* jiffies since which it waits for a doorbell, or 0 */
	u32 seen_receives, seen_sends;		/* last values in the journal */
	bool late;				/* the next completion will be delayed */
	enum card_doorbell lost;
	struct card_failure failure;		/* injected failure of the next send */
	/* only for queue pairs of the kernel */
	struct card_recv *recvs;
	u32 recv_first, recv_used, recv_size;
};

/* A queue pair in a multicast group. */
struct card_member {
	struct list_head entry;
	struct card_qp *qp;
	union ib_gid gid;
};

extern struct mutex card_lock;			/* protects all objects of programs */
extern spinlock_t card_kernel_lock;		/* protects the rings of the kernel */
extern struct xarray card_qps, card_mkeys, card_numbers, card_srqs;
extern u32 card_next_qp, card_next_mkey, card_next_number, card_next_srq;
extern struct list_head card_qp_list, card_cq_list, card_members;
extern struct card_device *card_devices[CARD_DEVICES];
extern int card_trace, card_strict, card_max_cqe_version;
extern bool card_dynamic;
extern uint card_request_length, card_answer_length, card_register_size, card_register_pages, card_first_page;
extern atomic_t card_stat[8];
enum { CARD_WQES, CARD_CQES, CARD_BLUEFLAME, CARD_DOORBELL, CARD_UNRUNG, CARD_EVENTS, CARD_BAD, CARD_MADS };

__printf(1, 2) void card_bad(const char *format, ...);
int card_number(struct xarray *objects, u32 *number, void *object, u32 first, u32 last, u32 *next);
int card_take(struct ib_udata *udata, const char *what, void *to, size_t size);
int card_give(struct ib_udata *udata, const char *what, const void *from, size_t size, size_t least);
int card_map(struct ib_device *device, struct card_map *map, u64 addr, size_t size, int access);
void card_unmap(struct card_map *map);
bool card_is_aligned(u64 buffer, u64 record);

int card_alloc_ucontext(struct ib_ucontext *ibcontext, struct ib_udata *udata);
void card_dealloc_ucontext(struct ib_ucontext *ibcontext);
int card_mmap(struct ib_ucontext *ibcontext, struct vm_area_struct *vma);
bool card_has_ece(const struct card_context *context);
bool card_is_user_index(const struct card_context *context, u32 uidx);
int card_take_bfreg(struct card_context *context);

int card_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int card_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int card_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int card_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int card_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata);
int card_destroy_ah(struct ib_ah *ah, u32 flags);
struct ib_mr *card_get_dma_mr(struct ib_pd *pd, int access);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
struct ib_mr *card_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access, struct ib_dmah *dmah,
			       struct ib_udata *udata);
#else
struct ib_mr *card_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access, struct ib_udata *udata);
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
struct ib_mr *card_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd, int access,
				      struct ib_dmah *dmah, struct uverbs_attr_bundle *attrs);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
struct ib_mr *card_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd, int access,
				      struct uverbs_attr_bundle *attrs);
#else
struct ib_mr *card_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd, int access,
				      struct ib_udata *udata);
#endif
struct ib_mr *card_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length, u64 iova, int access,
				 struct ib_pd *pd, struct ib_udata *udata);
int card_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
int card_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int card_dealloc_mw(struct ib_mw *ibmw);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
int card_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, struct uverbs_attr_bundle *attrs);
#else
int card_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, struct ib_udata *udata);
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
int card_resize_cq(struct ib_cq *cq, unsigned int cqe, struct ib_udata *udata);
#else
int card_resize_cq(struct ib_cq *cq, int cqe, struct ib_udata *udata);
#endif
int card_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);

int card_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata);
int card_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask, struct ib_udata *udata);
int card_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int card_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);

int card_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *udata);
int card_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int card_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int card_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int card_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int card_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init);

void card_stamp(struct mlx5_cqe64 *cqe);
void card_clock_tick(void);
int card_clock_mmap(struct vm_area_struct *vma, unsigned long command);
int card_clock_init(void);
void card_clock_exit(void);

struct card_registers *card_registers_new(u32 size);
void card_registers_put(struct card_registers *registers);
void card_see_doorbells(struct card_qp *qp);
void card_end_doorbells(struct card_qp *qp);
void card_see_arm_stores(void);
void card_see_arm(struct card_cq *cq);
void card_end_arm(struct card_cq *cq);

extern const struct uapi_definition card_definitions[];
struct card_registers *card_uar_registers(const struct card_context *context, u32 id);
int card_uar_mmap(struct ib_ucontext *context, struct vm_area_struct *vma);
void card_uar_free(struct rdma_user_mmap_entry *entry);

__printf(3, 4) void card_journal(const void *bytes, size_t length, const char *format, ...);
void card_journal_created_qp(const struct card_qp *qp);
void card_journal_qp(struct card_qp *qp);
void card_journal_cq(struct card_cq *cq);
void card_journal_ring(struct card_qp *qp, u16 index, u32 buffer, void *at);
void card_journal_modify(const struct card_qp *qp, const struct ib_qp_attr *attr, int mask, size_t inlen);
bool card_may_sweep(void);
void card_end_sweep(void);
void card_journal_init(struct dentry *directory);
void card_journal_exit(void);

bool card_is_late(struct card_cq *cq, const struct mlx5_cqe64 *cqe, u8 opcode, bool solicited);
bool card_loses_doorbell(struct card_qp *qp);
void card_forget_faults(struct card_qp *qp);
void card_fault_init(struct dentry *directory);
void *card_alter(const char *command, const void *from, size_t *size);
void card_answer_init(struct dentry *directory);

int card_engine(void *unused);
void *card_block(struct card_qp *qp, u16 index);
void card_complete(struct card_cq *cq, const struct mlx5_cqe64 *from, u8 opcode, bool solicited);
void card_qp_event(struct card_qp *qp, enum ib_event_type type);
void card_qp_to_error(struct card_qp *qp);

void card_grh(union rdma_network_hdr *hdr, const union ib_gid *sgid, const union ib_gid *dgid, u8 hop_limit,
	     u32 class_and_flow, u32 length);
int card_gsi_create(struct card_qp *qp, struct ib_qp_init_attr *init);
void card_gsi_destroy(struct card_qp *qp);
int card_post_send(struct ib_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int card_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);
int card_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wc);
int card_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags);

#endif
