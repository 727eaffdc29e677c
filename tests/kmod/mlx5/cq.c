// SPDX-License-Identifier: GPL-2.0
/* Completion queues. */
#include "card.h"

static int card_create_user_cq(struct card_cq *cq, struct ib_udata *udata)
{
	struct card_context *context = rdma_udata_to_drv_context(udata, struct card_context, ib);
	struct mlx5_ib_create_cq cmd = {};
	int err;

	if (udata->inlen < offsetof(struct mlx5_ib_create_cq, flags))
		return -EINVAL;
	err = card_take(udata, "create_cq", &cmd, sizeof(cmd));
	if (err)
		return err;
	/* Without static registers, the program names a page of registers. */
	if (cmd.flags != (context->dynamic ? MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX : 0) ||
	    (cmd.cqe_size != 64 && cmd.cqe_size != 128) || cmd.reserved0 || cmd.reserved1 ||
	    !card_is_aligned(cmd.buf_addr, cmd.db_addr))
		return -EINVAL;
	if (cmd.cqe_comp_en)
		return -EOPNOTSUPP;
	cq->registers = context->registers[0];
	if (context->dynamic)
		cq->registers = card_uar_registers(context, cmd.uar_page_index);
	else
		kref_get(&cq->registers->refs);
	if (!cq->registers)
		return -EINVAL;
	cq->cqe_size = cmd.cqe_size;
	err = card_map(cq->ib.device, &cq->buf, cmd.buf_addr, (size_t)cq->entries * cq->cqe_size,
		      IB_ACCESS_LOCAL_WRITE);
	if (!err)
		err = card_map(cq->ib.device, &cq->db_map, cmd.db_addr, 8, 0);
	if (err)
		return err;
	cq->user = true;
	cq->context = context;
	cq->db = cq->db_map.va;
	cq->db[1] = cq->arm = CARD_NEVER_ARMED;
	cq->fired = U32_MAX;
	return card_give(udata, "create_cq", &cq->cqn, sizeof(cq->cqn), sizeof(cq->cqn));
}

static void card_free_cq(struct card_cq *cq)
{
	card_registers_put(cq->registers);
	card_unmap(&cq->buf);
	card_unmap(&cq->db_map);
	kvfree(cq->ring);
	if (cq->cqn)
		xa_erase(&card_numbers, cq->cqn);
}

static int card_create(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, struct ib_udata *udata)
{
	struct card_cq *cq = container_of(ibcq, struct card_cq, ib);
	int err;

	if (attr->cqe < 1 || attr->cqe >= CARD_MAX_CQE)
		return -EINVAL;
	INIT_LIST_HEAD(&cq->late);
	cq->entries = roundup_pow_of_two(attr->cqe + 1);
	ibcq->cqe = cq->entries - 1;
	err = card_number(&card_numbers, &cq->cqn, cq, 1, 0xffffff, &card_next_number);
	if (err < 0)
		return err;
	if (udata) {
		err = card_create_user_cq(cq, udata);
	} else {
		cq->ring = kvcalloc(cq->entries, sizeof(*cq->ring), GFP_KERNEL);
		err = cq->ring ? 0 : -ENOMEM;
	}
	if (err) {
		card_free_cq(cq);
		return err;
	}
	card_journal(NULL, 0, "cq cqn=%u cqe=%u vector=%u flags=%#x", cq->cqn, attr->cqe, attr->comp_vector,
		    attr->flags);
	mutex_lock(&card_lock);
	list_add_tail(&cq->entry, &card_cq_list);
	mutex_unlock(&card_lock);
	return 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
int card_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			 struct uverbs_attr_bundle *attrs)
{
	return card_create(cq, attr, attrs ? &attrs->driver_udata : NULL);
}
#else
int card_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, struct ib_udata *udata)
{
	return card_create(cq, attr, udata);
}
#endif

/* Writes the entry that ends a ring. The completion after it is the first one in the new ring. */
static void card_end_ring(struct card_cq *cq)
{
	struct mlx5_cqe64 *to = cq->buf.va + (cq->pi & (cq->entries - 1)) * cq->cqe_size + cq->cqe_size - 64;

	if (!cq->unended_qpn) {
		memset(to, CARD_UNDEFINED, offsetof(struct mlx5_cqe64, op_own));
		smp_store_release(&to->op_own, MLX5_CQE_RESIZE_CQ << 4 | !!(cq->pi & cq->entries));
	}
	cq->unended_qpn = 0;
	cq->pi++;
}

/* A queue that is armed raises its event with the entry that ends the old ring. */
static int card_resize(struct ib_cq *ibcq, u32 cqe, struct ib_udata *udata)
{
	struct card_cq *cq = container_of(ibcq, struct card_cq, ib);
	struct mlx5_ib_resize_cq cmd = {};
	struct card_map buf = {};
	u32 entries, waiting;
	int err;

	if (!cq->user)
		return -EOPNOTSUPP;
	if (cqe < 1 || cqe >= CARD_MAX_CQE)
		return -EINVAL;
	entries = roundup_pow_of_two(cqe + 1);
	if (entries == cq->entries)
		return 0;
	err = card_take(udata, "resize_cq", &cmd, sizeof(cmd));
	if (err)
		return err;
	if (cmd.reserved0 || cmd.reserved1 || cmd.cqe_size != cq->cqe_size ||
	    !card_is_aligned(cmd.buf_addr, 0))
		return -EINVAL;
	err = card_map(ibcq->device, &buf, cmd.buf_addr, (size_t)entries * cq->cqe_size, IB_ACCESS_LOCAL_WRITE);
	if (err)
		return err;
	mutex_lock(&card_lock);
	waiting = (cq->pi - be32_to_cpu(READ_ONCE(cq->db[0]))) & 0xffffff;
	/* The entry that ends the ring needs room, and the completions that were not polled need room in the new ring. */
	if (waiting >= cq->entries || waiting >= entries) {
		err = -EINVAL;
	} else {
		card_end_ring(cq);
		swap(cq->buf, buf);
		cq->entries = entries;
		ibcq->cqe = entries - 1;
		card_journal(NULL, 0, "resized_cq cqn=%u cqe=%u", cq->cqn, cqe);
	}
	mutex_unlock(&card_lock);
	card_unmap(&buf);
	return err;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
int card_resize_cq(struct ib_cq *cq, unsigned int cqe, struct ib_udata *udata)
{
	return card_resize(cq, cqe, udata);
}
#else
int card_resize_cq(struct ib_cq *cq, int cqe, struct ib_udata *udata)
{
	return card_resize(cq, max(cqe, 0), udata);
}
#endif

int card_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct card_cq *cq = container_of(ibcq, struct card_cq, ib);

	mutex_lock(&card_lock);
	if (cq->user)
		card_end_arm(cq);
	list_del(&cq->entry);
	mutex_unlock(&card_lock);
	card_journal(NULL, 0, "destroy_cq cqn=%u", cq->cqn);
	card_free_cq(cq);
	return 0;
}

