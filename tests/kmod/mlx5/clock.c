// SPDX-License-Identifier: GPL-2.0
/*
 * The clock of the device, which counts nanoseconds. Completions carry its time. Programs read it in two pages: one has the
 * time, and the other one has the numbers by which a program computes the time of day from it.
 */
#include <linux/mm.h>
#include <linux/timekeeping.h>

#include "card.h"

static struct page *card_clock_page, *card_clock_info_page;

static u64 card_clock(void)
{
	return ktime_get_raw_ns();
}

/* Stores the current time in a completion. */
void card_stamp(struct mlx5_cqe64 *cqe)
{
	u64 now = card_clock();

	cqe->timestamp_h = cpu_to_be32(now >> 32);
	cqe->timestamp_l = cpu_to_be32(now);
}

/* Stores the current time in the page. The engine calls this in each sweep; a real device shows the time of each read. */
void card_clock_tick(void)
{
	WRITE_ONCE(*(__be64 *)(page_address(card_clock_page) + CARD_CLOCK_OFFSET), cpu_to_be64(card_clock()));
}

/* Maps one of the pages. Programs only read them. */
int card_clock_mmap(struct vm_area_struct *vma, unsigned long command)
{
	if (vma->vm_end - vma->vm_start != PAGE_SIZE || vma->vm_flags & VM_WRITE)
		return -EINVAL;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, VM_MAYWRITE);
#else
	vma->vm_flags &= ~VM_MAYWRITE;
#endif
	return vm_insert_page(vma, vma->vm_start,
			      command == MLX5_IB_MMAP_CORE_CLOCK ? card_clock_page : card_clock_info_page);
}

int card_clock_init(void)
{
	struct mlx5_ib_clock_info *info;

	card_clock_page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	card_clock_info_page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!card_clock_page || !card_clock_info_page) {
		card_clock_exit();
		return -ENOMEM;
	}
	info = page_address(card_clock_info_page);
	info->cycles = card_clock();
	info->nsec = ktime_get_real_ns();
	info->mult = 1;
	info->mask = U64_MAX;
	info->overflow_period = U64_MAX;
	card_clock_tick();
	return 0;
}

void card_clock_exit(void)
{
	if (card_clock_page)
		__free_page(card_clock_page);
	if (card_clock_info_page)
		__free_page(card_clock_info_page);
}
