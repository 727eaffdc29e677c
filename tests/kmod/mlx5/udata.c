// SPDX-License-Identifier: GPL-2.0
/* Driver data of commands, and pinned memory of programs. */
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "card.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define ib_umem_get ib_umem_get_va
#endif

static void card_show(const char *what, const char *direction, const void *data, size_t length)
{
	char prefix[48];

	if (!card_trace)
		return;
	snprintf(prefix, sizeof(prefix), "rdmacm_mlx5: %s %s: ", what, direction);
	print_hex_dump(KERN_INFO, prefix, DUMP_PREFIX_OFFSET, 16, 4, data, length, false);
}

/* Copies at most SIZE bytes of the driver data of a request. Bytes after them must be zero, as in mlx5_ib. */
int card_take(struct ib_udata *udata, const char *what, void *to, size_t size)
{
	int err = ib_copy_from_udata(to, udata, min(udata->inlen, size));

	if (!err && udata->inlen > size && !ib_is_udata_cleared(udata, size, udata->inlen - size))
		err = -EINVAL;
	if (!err && card_trace)
		pr_info("rdmacm_mlx5: %s: inlen %zu outlen %zu\n", what, udata->inlen, udata->outlen);
	if (!err) {
		card_show(what, "in", to, min(udata->inlen, size));
		card_journal(to, min(udata->inlen, size), "%s inlen=%zu outlen=%zu", what, udata->inlen,
			    udata->outlen);
	}
	return err;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#define card_copy _ib_respond_udata
#define CARD_CUTS_ANSWERS true
#else
#define card_copy ib_copy_to_udata
#define CARD_CUTS_ANSWERS false
#endif

/*
 * Answers with driver data. As in mlx5_ib, the program must have room for the first LEAST bytes before Linux 7.2; since
 * then, the answer is cut, or padded with zeros, to the room of the program.
 */
int card_give(struct ib_udata *udata, const char *what, const void *from, size_t size, size_t least)
{
	void *altered;
	int err;

	if (udata->outlen < least && !CARD_CUTS_ANSWERS)
		return -EFAULT;
	size = min(udata->outlen, size);
	altered = card_alter(what, from, &size);
	card_show(what, "out", altered ?: from, size);
	err = card_copy(udata, altered ?: (void *)from, size);
	kfree(altered);
	return err;
}

/* Returns true if a ring and a doorbell record at these addresses have the alignment that the hardware needs. */
bool card_is_aligned(u64 buffer, u64 record)
{
	return !(buffer & 63) && !(record & 7);
}

int card_map(struct ib_device *device, struct card_map *map, u64 addr, size_t size, int access)
{
	struct sg_page_iter iter;
	struct page **pages;
	size_t count, i = 0;

	map->umem = ib_umem_get(device, addr, size, access);
	if (IS_ERR(map->umem)) {
		int err = PTR_ERR(map->umem);

		map->umem = NULL;
		return err;
	}
	count = ib_umem_num_pages(map->umem);
	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	if (pages) {
		for_each_sgtable_page(&map->umem->sgt_append.sgt, &iter, 0)
			pages[i++] = sg_page_iter_page(&iter);
		map->base = vmap(pages, i, VM_MAP, PAGE_KERNEL);
		kvfree(pages);
	}
	if (!map->base) {
		ib_umem_release(map->umem);
		map->umem = NULL;
		return -ENOMEM;
	}
	map->va = map->base + (addr & ~PAGE_MASK);
	return 0;
}

void card_unmap(struct card_map *map)
{
	if (map->base)
		vunmap(map->base);
	if (map->umem)
		ib_umem_release(map->umem);
	memset(map, 0, sizeof(*map));
}

