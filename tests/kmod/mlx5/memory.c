// SPDX-License-Identifier: GPL-2.0
/* Memory to which keys give access, and requests that change keys. */
#include "engine.h"

/*
 * Returns the memory to which a key gives access, or NULL. PEER is the queue pair that received the request, or NULL for
 * local access.
 */
void *card_memory(struct ib_pd *pd, const struct card_qp *peer, u32 number, u64 addr, u32 length, int access)
{
	struct card_key *key = xa_load(&card_mkeys, number >> 8);

	if (!key || key->key != number || key->pd != pd || (access & ~key->access) || addr < key->start ||
	    addr - key->start > key->length || length > key->length - (addr - key->start))
		return NULL;
	if (!key->is_window)
		return key->memory + (addr - key->start);
	if (!peer || !key->is_bound || (key->is_type_2 && key->qpn != peer->qpn))
		return NULL;
	/* The region must permit the access of the device that the window permits the peer. */
	return card_memory(pd, NULL, key->region, key->address + (addr - key->start), length,
			   access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC) ? IB_ACCESS_LOCAL_WRITE : 0);
}

bool card_add_span(struct card_list *list, void *at, u32 length)
{
	if (!at || list->count == CARD_MAX_SGE)
		return false;
	list->spans[list->count++] = (struct card_span){ at, length };
	list->length += length;
	return true;
}

void card_move(const struct card_list *to, u32 skip, const struct card_list *from)
{
	u32 i = 0, at = skip, j, done, part;

	for (j = 0; j < from->count; j++) {
		for (done = 0; done < from->spans[j].length; done += part, at += part) {
			while (i < to->count && at >= to->spans[i].length)
				at -= to->spans[i++].length;
			if (i == to->count)
				return;
			part = min(to->spans[i].length - at, from->spans[j].length - done);
			memcpy(to->spans[i].at + at, from->spans[j].at + done, part);
		}
	}
}

/* Unbinds a window of type 2 from its queue pair. Returns false if it is not bound to this queue pair. */
bool card_invalidate(struct card_qp *qp, u32 number)
{
	struct card_key *key = xa_load(&card_mkeys, number >> 8);

	if (!key || key->key != number || !key->is_window || !key->is_type_2 || !key->is_bound ||
	    key->qpn != qp->qpn || key->pd != card_pd_of(qp))
		return false;
	key->is_bound = false;
	return true;
}

/* Translates the access flags of a segment to those of the kernel. */
static int card_access(u8 flags)
{
	return (flags & MLX5_PERM_LOCAL_WRITE ? IB_ACCESS_LOCAL_WRITE : 0) |
	       (flags & MLX5_PERM_REMOTE_READ ? IB_ACCESS_REMOTE_READ : 0) |
	       (flags & MLX5_PERM_REMOTE_WRITE ? IB_ACCESS_REMOTE_WRITE : 0) |
	       (flags & MLX5_PERM_ATOMIC ? IB_ACCESS_REMOTE_ATOMIC : 0);
}

/* Executes a request that binds or unbinds a window. Returns a syndrome or 0. */
u8 card_change_key(struct card_qp *qp, struct card_wqe *wqe)
{
	const struct mlx5_wqe_umr_ctrl_seg *umr = card_segment(wqe, sizeof(*umr));
	const struct mlx5_mkey_seg *seg = umr ? card_segment(wqe, sizeof(*seg)) : NULL;
	u32 number = be32_to_cpu(wqe->imm), owner;
	struct card_key *key = xa_load(&card_mkeys, number >> 8), *region;
	const struct mlx5_klm *klm;
	int access;
	u64 mask;

	if (!seg)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	mask = be64_to_cpu(umr->mkey_mask);
	owner = be32_to_cpu(seg->qpn_mkey7_0);
	if (!key || key->key != number || !key->is_window || key->pd != qp->ib.pd ||
	    !!(mask & MLX5_MKEY_MASK_QPN) != key->is_type_2)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	if (umr->flags & CARD_UMR_CHECK_FREE && key->is_bound)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	if (seg->status & MLX5_MKEY_STATUS_FREE) {
		if (key->is_type_2)
			return card_invalidate(qp, number) ? 0 : MLX5_CQE_SYNDROME_MW_BIND_ERR;
		key->is_bound = false;
		key->key = (number & ~0xff) | (owner & 0xff);
		return 0;
	}
	klm = card_segment(wqe, 64);
	region = klm ? xa_load(&card_mkeys, be32_to_cpu(klm->key) >> 8) : NULL;
	if (!region || region->key != be32_to_cpu(klm->key) || region->is_window ||
	    !(region->access & IB_ACCESS_MW_BIND) || region->pd != qp->ib.pd ||
	    !card_memory(qp->ib.pd, NULL, region->key, be64_to_cpu(klm->va), be32_to_cpu(klm->bcount), 0))
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	access = card_access(seg->flags);
	if (access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC) &&
	    !(region->access & IB_ACCESS_LOCAL_WRITE))
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	key->access = access;
	key->key = (number & ~0xff) | (owner & 0xff);
	key->start = be64_to_cpu(seg->start_addr);
	key->length = be64_to_cpu(seg->len);
	key->region = region->key;
	key->address = be64_to_cpu(klm->va);
	key->qpn = owner >> 8;
	key->is_bound = true;
	return 0;
}
