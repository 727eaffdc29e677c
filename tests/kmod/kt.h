/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KT_H
#define KT_H

#include <linux/list.h>
#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/version.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#define KT_MAX_WR	1024
#define KT_MAX_SGE	4
#define KT_MAX_CQE	4096
#define KT_MAX_DEPTH	16
/* The maximum rate limit in kbit/s. */
#define KT_MAX_RATE	1000000
/* A key that no send may name. The device checks no other key. */
#define KT_FOREIGN_LKEY	0xffffffff

/* Values in completions: the origin of a datagram, and the vendor error of a failure. */
#define KT_SLID		0x1234
#define KT_SL		5
#define KT_PATH_BITS	6
#define KT_PKEY_INDEX	7
#define KT_VENDOR_ERR	0x74

enum kt_kind {
	KT_CONTEXT, KT_PD, KT_MR, KT_MW, KT_AH, KT_CQ, KT_SRQ, KT_QP, KT_XRCD, KT_KINDS
};

/* A work request. */
struct kt_wr {
	u64 wr_id;
	u32 length;
	enum ib_wr_opcode opcode;
	int send_flags;
	__be32 imm_data;
	u32 invalidate_rkey;
	u32 remote_qpn;
	bool is_foreign;
};

struct kt_queue {
	struct kt_wr *slots;
	u32 size;
	u32 first;
	u32 used;
};

struct kt_cq {
	struct ib_cq ib;
	struct list_head entry;
	struct ib_wc *slots;
	u32 first;
	u32 used;
	enum ib_cq_notify_flags armed;
};

/* An object that has a number: a queue pair or a shared receive queue. */
struct kt_numbered {
	enum kt_kind kind;
	u32 number;
};

struct kt_srq {
	struct ib_srq ib;
	struct kt_numbered id;
	struct kt_queue receives;
	u32 max_sge;
	u32 limit;
};

struct kt_qp {
	struct ib_qp ib;
	struct kt_numbered id;
	struct ib_qp_init_attr init;
	/* The state, and the other attributes that the program has set. */
	struct ib_qp_attr attr;
	struct kt_queue sends;
	struct kt_queue receives;
};

/* device.c */
extern struct ib_device *kt;
extern struct xarray kt_numbers;
extern struct list_head kt_cqs;
extern atomic_t kt_live[KT_KINDS];

/* Protects all queues and numbers. Event handlers are called under it, so that their objects are not destroyed. */
extern spinlock_t kt_lock;

static inline int kt_born(enum kt_kind kind)
{
	atomic_inc(&kt_live[kind]);
	return 0;
}

static inline int kt_died(enum kt_kind kind)
{
	atomic_dec(&kt_live[kind]);
	return 0;
}

static inline u32 kt_rounded(u32 wanted)
{
	return wanted ? roundup_pow_of_two(wanted) : 0;
}

int kt_number(struct kt_numbered *id, enum kt_kind kind);
struct kt_qp *kt_qp_of(u32 number);
struct kt_srq *kt_srq_of(u32 number);
extern int kt_refusal;
extern int kt_kept;

/* debugfs.c */
void kt_debugfs_add(void);
void kt_debugfs_remove(void);
void kt_event_of_cq(struct kt_cq *cq, enum ib_event_type type);
void kt_event_of_qp(struct kt_qp *qp, enum ib_event_type type);
void kt_event_of_srq(struct kt_srq *srq, enum ib_event_type type);

/* message.c */
int kt_queue_init(struct kt_queue *queue, u32 size);
void kt_push(struct kt_queue *queue, const struct kt_wr *wr);
struct kt_wr kt_pop(struct kt_queue *queue);
int kt_length(const struct ib_sge *list, int count, int most, u32 *length);
int kt_room(const struct kt_queue *queue);
int kt_post_receives(struct kt_queue *queue, u32 max_sge, const struct ib_recv_wr *list,
		     const struct ib_recv_wr **bad);
bool kt_consumes(enum ib_wr_opcode opcode);
enum ib_wc_status kt_receive(struct kt_qp *qp, struct kt_queue *queue, struct ib_cq *cq,
			     const struct kt_wr *message, u32 src_qp);
void kt_limit(struct kt_srq *srq);
void kt_flush_sends(struct kt_qp *qp);
void kt_flush(struct kt_qp *qp);
void kt_break(struct kt_qp *qp);
void kt_progress(struct kt_qp *qp);
void kt_progress_all(void);

/* object.c */
extern const struct ib_device_ops kt_object_ops;

/* cq.c */
extern const struct ib_device_ops kt_cq_ops;
void kt_complete(struct ib_cq *ibcq, const struct ib_wc *wc, bool solicited);
void kt_forget(struct kt_qp *qp);

/* qp.c */
extern const struct ib_device_ops kt_qp_ops;

/* srq.c */
extern const struct ib_device_ops kt_srq_ops;

#endif
