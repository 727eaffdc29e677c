// SPDX-License-Identifier: GPL-2.0
/* Contexts, domains, address handles, memory. */
#include <rdma/ib_umem.h>

#include "kt.h"

struct kt_context {
	struct ib_ucontext ib;
};

struct kt_pd {
	struct ib_pd ib;
};

struct kt_ah {
	struct ib_ah ib;
};

struct kt_mw {
	struct ib_mw ib;
};

struct kt_xrcd {
	struct ib_xrcd ib;
};

struct kt_mr {
	struct ib_mr ib;
	struct ib_umem *umem;
};

static atomic_t kt_next_key = ATOMIC_INIT(1);

static int kt_alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata)
{
	return kt_born(KT_CONTEXT);
}

static void kt_dealloc_ucontext(struct ib_ucontext *context)
{
	kt_died(KT_CONTEXT);
}

static int kt_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return kt_born(KT_PD);
}

static int kt_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return kt_died(KT_PD);
}

static int kt_create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *attr, struct ib_udata *udata)
{
	return kt_born(KT_AH);
}

static int kt_destroy_ah(struct ib_ah *ah, u32 flags)
{
	return kt_died(KT_AH);
}

static int kt_alloc_mw(struct ib_mw *mw, struct ib_udata *udata)
{
	mw->rkey = atomic_inc_return(&kt_next_key);
	return kt_born(KT_MW);
}

static int kt_dealloc_mw(struct ib_mw *mw)
{
	return kt_died(KT_MW);
}

static int kt_alloc_xrcd(struct ib_xrcd *xrcd, struct ib_udata *udata)
{
	return kt_born(KT_XRCD);
}

static int kt_dealloc_xrcd(struct ib_xrcd *xrcd, struct ib_udata *udata)
{
	return kt_died(KT_XRCD);
}

/* Memory regions. Their pages are pinned, as a real device requires, but never accessed. */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define ib_umem_get ib_umem_get_va
#endif

static struct ib_mr *kt_register(struct ib_pd *pd, u64 start, u64 length, u64 virt_addr, int access)
{
	struct kt_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->umem = ib_umem_get(pd->device, start, length, access);
	if (IS_ERR(mr->umem)) {
		struct ib_mr *err = ERR_CAST(mr->umem);

		kfree(mr);
		return err;
	}
	mr->ib.lkey = atomic_inc_return(&kt_next_key);
	mr->ib.rkey = mr->ib.lkey;
	kt_born(KT_MR);
	return &mr->ib;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
static struct ib_mr *kt_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 virt_addr,
				    int access, struct ib_dmah *dmah, struct ib_udata *udata)
{
	return dmah ? ERR_PTR(-EOPNOTSUPP) : kt_register(pd, start, length, virt_addr, access);
}
#else
static struct ib_mr *kt_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 virt_addr,
				    int access, struct ib_udata *udata)
{
	return kt_register(pd, start, length, virt_addr, access);
}
#endif

/* Changes a region, which keeps its keys. Returns NULL, because the region is not replaced. */
static struct ib_mr *kt_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length,
				      u64 virt_addr, int access, struct ib_pd *pd,
				      struct ib_udata *udata)
{
	struct kt_mr *mr = container_of(ibmr, struct kt_mr, ib);
	struct ib_umem *umem;

	if (flags & IB_MR_REREG_TRANS) {
		umem = ib_umem_get(pd->device, start, length, access);
		if (IS_ERR(umem))
			return ERR_CAST(umem);
		ib_umem_release(mr->umem);
		mr->umem = umem;
	}
	return NULL;
}

static int kt_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct kt_mr *mr = container_of(ibmr, struct kt_mr, ib);

	if (READ_ONCE(kt_kept) == KT_MR)
		return -EBUSY;
	ib_umem_release(mr->umem);
	kfree(mr);
	return kt_died(KT_MR);
}

const struct ib_device_ops kt_object_ops = {
	.alloc_ucontext = kt_alloc_ucontext,
	.dealloc_ucontext = kt_dealloc_ucontext,
	.alloc_pd = kt_alloc_pd,
	.dealloc_pd = kt_dealloc_pd,
	.create_ah = kt_create_ah,
	.create_user_ah = kt_create_ah,
	.destroy_ah = kt_destroy_ah,
	.alloc_mw = kt_alloc_mw,
	.dealloc_mw = kt_dealloc_mw,
	.alloc_xrcd = kt_alloc_xrcd,
	.dealloc_xrcd = kt_dealloc_xrcd,
	.reg_user_mr = kt_reg_user_mr,
	.rereg_user_mr = kt_rereg_user_mr,
	.dereg_mr = kt_dereg_mr,

	INIT_RDMA_OBJ_SIZE(ib_ucontext, kt_context, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, kt_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_ah, kt_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_mw, kt_mw, ib),
	INIT_RDMA_OBJ_SIZE(ib_xrcd, kt_xrcd, ib),
};
