// SPDX-License-Identifier: GPL-2.0
/* Pages of registers as objects, which programs allocate by ioctl if the kernel has reported that it has no static ones. */
#include <linux/mm.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "card.h"

#define UVERBS_MODULE_NAME rdmacm_mlx5
#include <rdma/uverbs_named_ioctl.h>

static DEFINE_XARRAY_ALLOC1(card_uars);

struct card_uar {
	struct rdma_user_mmap_entry entry;
	struct card_registers *registers;
	u32 id;
};

/* Returns the page of the context with that number, and a reference to it. */
struct card_registers *card_uar_registers(const struct card_context *context, u32 id)
{
	struct card_registers *registers = NULL;
	struct card_uar *uar;

	xa_lock(&card_uars);
	uar = xa_load(&card_uars, id);
	if (uar && uar->entry.ucontext == &context->ib) {
		registers = uar->registers;
		kref_get(&registers->refs);
	}
	xa_unlock(&card_uars);
	return registers;
}

int card_uar_mmap(struct ib_ucontext *context, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry = rdma_user_mmap_entry_get(context, vma);
	int err;

	if (!entry)
		return -EINVAL;
	err = vm_insert_page(vma, vma->vm_start, container_of(entry, struct card_uar, entry)->registers->page);
	rdma_user_mmap_entry_put(entry);
	return err;
}

void card_uar_free(struct rdma_user_mmap_entry *entry)
{
	struct card_uar *uar = container_of(entry, struct card_uar, entry);

	xa_erase(&card_uars, uar->id);
	card_registers_put(uar->registers);
	kfree(uar);
}

static struct card_uar *card_uar_new(struct ib_ucontext *context)
{
	const struct card_context *owner = container_of(context, struct card_context, ib);
	struct card_uar *uar = kzalloc(sizeof(*uar), GFP_KERNEL);
	int err = -ENOMEM;

	if (!uar)
		return ERR_PTR(err);
	uar->registers = card_registers_new(owner->register_size);
	if (uar->registers)
		err = xa_alloc(&card_uars, &uar->id, uar, XA_LIMIT(card_first_page, card_first_page + 0xffff), GFP_KERNEL);
	if (!err) {
		err = rdma_user_mmap_entry_insert(context, &uar->entry, PAGE_SIZE);
		if (err)
			xa_erase(&card_uars, uar->id);
	}
	if (err) {
		card_registers_put(uar->registers);
		kfree(uar);
		return ERR_PTR(err);
	}
	return uar;
}

/* Writes the number, length and offset of a new register page to the answer. */
static int card_uar_describe(struct uverbs_attr_bundle *attrs, struct card_uar *uar)
{
	u64 offset = rdma_user_mmap_get_offset(&uar->entry);
	u32 length = PAGE_SIZE;
	const struct { u16 attr; const void *value; size_t size; } answers[] = {
		{ MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &uar->id, sizeof(uar->id) },
		{ MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, sizeof(length) },
		{ MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof(offset) },
	};
	int i, err = 0;

	for (i = 0; i < ARRAY_SIZE(answers) && !err; i++)
		err = uverbs_copy_to(attrs, answers[i].attr, answers[i].value, answers[i].size);
	return err;
}

static int UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC)(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *owner = ib_uverbs_get_ucontext(attrs);
	enum mlx5_ib_uapi_uar_alloc_type kind;
	struct card_uar *uar;
	int err;

	if (IS_ERR(owner))
		return PTR_ERR(owner);
	err = uverbs_get_const(&kind, attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
	if (err)
		return err;
	/* Both kinds are ordinary memory on this device. */
	if (kind > MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
		return -EOPNOTSUPP;
	uar = card_uar_new(owner);
	if (IS_ERR(uar))
		return PTR_ERR(uar);
	card_journal(NULL, 0, "uar_alloc page=%u kind=%u", uar->id, kind);
	/* From now on, the core destroys the object if the answer cannot be written. */
	uverbs_attr_get_uobject(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)->object = uar;
	uverbs_finalize_uobj_create(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	return card_uar_describe(attrs, uar);
}

static int card_uar_cleanup(struct ib_uobject *uobject, enum rdma_remove_reason why,
			   struct uverbs_attr_bundle *attrs)
{
	struct card_uar *uar = uobject->object;

	/* The line lacks the number: at the end of a context, either the kernel or the program determines the order of its pages. */
	card_journal(NULL, 0, "uar_free");
	rdma_user_mmap_entry_remove(&uar->entry);
	return 0;
}

DECLARE_UVERBS_NAMED_METHOD(
	MLX5_IB_METHOD_UAR_OBJ_ALLOC,
	UVERBS_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR, UVERBS_ACCESS_NEW, UA_MANDATORY),
	UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, enum mlx5_ib_uapi_uar_alloc_type, UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, UVERBS_ATTR_TYPE(u32), UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, UVERBS_ATTR_TYPE(u32), UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, UVERBS_ATTR_TYPE(u64), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(
	MLX5_IB_METHOD_UAR_OBJ_DESTROY,
	UVERBS_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_UAR, UVERBS_ACCESS_DESTROY,
			UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(MLX5_IB_OBJECT_UAR, UVERBS_TYPE_ALLOC_IDR(card_uar_cleanup),
			    &UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_ALLOC),
			    &UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_DESTROY));

const struct uapi_definition card_definitions[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(MLX5_IB_OBJECT_UAR),
	{},
};
