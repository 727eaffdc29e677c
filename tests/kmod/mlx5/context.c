// SPDX-License-Identifier: GPL-2.0
/* Contexts, and their static doorbell registers, which need no command. */
#include <linux/mm.h>

#include "card.h"

int card_alloc_ucontext(struct ib_ucontext *ibcontext, struct ib_udata *udata)
{
	struct card_context *context = container_of(ibcontext, struct card_context, ib);
	struct mlx5_ib_alloc_ucontext_req_v2 req = {};
	struct mlx5_ib_alloc_ucontext_resp resp = {};
	int err, i;

	if (udata->inlen < sizeof(struct mlx5_ib_alloc_ucontext_req) || udata->inlen > card_request_length)
		return -EINVAL;
	context->register_size = card_register_size;
	if (context->register_size > CARD_BF_SIZE || (context->register_size && context->register_size < 128) ||
	    (context->register_size & (context->register_size - 1)))
		return -EINVAL;
	err = card_take(udata, "alloc_ucontext", &req, sizeof(req));
	if (err)
		return err;
	if (req.flags & ~MLX5_IB_ALLOC_UCTX_DEVX || req.comp_mask || req.reserved0 || req.reserved1 ||
	    req.reserved2)
		return -EOPNOTSUPP;
	if (!req.total_num_bfregs)
		return -EINVAL;
	if (req.total_num_bfregs > CARD_UARS * 2)
		return -ENOMEM;
	context->total_bfregs = ALIGN(req.total_num_bfregs, 2);
	if (req.num_low_latency_bfregs > context->total_bfregs - 1)
		return -EINVAL;
	context->low_latency = req.num_low_latency_bfregs;
	context->dynamic = card_dynamic && req.lib_caps & MLX5_LIB_CAP_DYN_UAR;
	if (context->dynamic)
		context->total_bfregs = 0;
	for (i = 0; i < context->total_bfregs / 2; i++) {
		context->registers[i] = card_registers_new(context->register_size);
		if (!context->registers[i])
			goto no_memory;
	}
	context->cqe_version = min_t(u8, card_max_cqe_version, req.max_cqe_version);
	resp.qp_tab_size = 1 << 18;
	resp.bf_reg_size = context->register_size;
	resp.tot_bfregs = context->total_bfregs;
	resp.cache_line_size = cache_line_size();
	resp.max_sq_desc_sz = CARD_SQ_DESC;
	resp.max_rq_desc_sz = CARD_RQ_DESC;
	resp.max_send_wqebb = 1 << CARD_LOG_QP_SZ;
	resp.max_recv_wr = 1 << CARD_LOG_QP_SZ;
	resp.max_srq_recv_wr = 1 << CARD_LOG_QP_SZ;
	resp.num_ports = 1;
	resp.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
	resp.hca_core_clock_offset = CARD_CLOCK_OFFSET;
	resp.clock_info_versions = BIT(MLX5_IB_CLOCK_INFO_V1);
	if (card_has_ece(context))
		resp.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE;
	resp.response_length = min3(udata->outlen, sizeof(resp), (size_t)card_answer_length);
	resp.cqe_version = context->cqe_version;
	resp.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
	resp.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
	resp.log_uar_size = 12;
	resp.num_uars_per_page = 1;
	err = card_give(udata, "alloc_ucontext", &resp, resp.response_length, 0);
	if (!err)
		return 0;
	goto fail;
no_memory:
	err = -ENOMEM;
fail:
	for (i = 0; i < CARD_UARS; i++)
		card_registers_put(context->registers[i]);
	return err;
}

void card_dealloc_ucontext(struct ib_ucontext *ibcontext)
{
	struct card_context *context = container_of(ibcontext, struct card_context, ib);
	int i;

	card_journal(NULL, 0, "dealloc_ucontext");
	for (i = 0; i < CARD_UARS; i++)
		card_registers_put(context->registers[i]);
}

int card_mmap(struct ib_ucontext *ibcontext, struct vm_area_struct *vma)
{
	struct card_context *context = container_of(ibcontext, struct card_context, ib);
	unsigned long command = vma->vm_pgoff >> 8 & 0xff, index = vma->vm_pgoff & 0xff;

	if (card_trace)
		pr_info("rdmacm_mlx5: mmap command %lu index %lu flags %lx\n", command, index, vma->vm_flags);
	card_journal(NULL, 0, "mmap command=%lu index=%lu length=%lu shared=%u read=%u write=%u", command, index,
		    vma->vm_end - vma->vm_start, !!(vma->vm_flags & VM_SHARED), !!(vma->vm_flags & VM_READ),
		    !!(vma->vm_flags & VM_WRITE));
	if (command == MLX5_IB_MMAP_CORE_CLOCK || command == MLX5_IB_MMAP_CLOCK_INFO)
		return card_clock_mmap(vma, command);
	if (atomic_inc_return(&context->register_pages) > card_register_pages)
		return -ENOMEM;
	if (context->dynamic)
		return card_uar_mmap(ibcontext, vma);
	if (command != MLX5_IB_MMAP_REGULAR_PAGE && command != MLX5_IB_MMAP_WC_PAGE &&
	    command != MLX5_IB_MMAP_NC_PAGE)
		return -EINVAL;
	if (vma->vm_end - vma->vm_start != PAGE_SIZE || index >= context->total_bfregs / 2)
		return -EINVAL;
	return vm_insert_page(vma, vma->vm_start, context->registers[index]->page);
}

/* Returns true if the device negotiates options of connections. Devices with completions of version 0 do not. */
bool card_has_ece(const struct card_context *context)
{
	return context->cqe_version;
}

/* Returns true if completions of CONTEXT can name a queue pair or a shared receive queue by this index. */
bool card_is_user_index(const struct card_context *context, u32 uidx)
{
	return context->cqe_version ? uidx < 0xffffff : uidx == 0xffffff;
}

/* Chooses a register as mlx5_ib does: one for each of the first queue pairs, then shared ones. */
int card_take_bfreg(struct card_context *context)
{
	u32 high = context->total_bfregs - context->low_latency, i, best = 1;

	for (i = high; i < context->total_bfregs; i++) {
		if (!context->uses[i]) {
			context->uses[i]++;
			return i;
		}
	}
	if (high < 2) {
		context->uses[0]++;
		return 0;
	}
	for (i = 1; i < high; i++) {
		if (context->uses[i] < context->uses[best])
			best = i;
	}
	context->uses[best]++;
	return best;
}

