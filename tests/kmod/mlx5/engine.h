/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations for the files of the thread that emulates the device. */
#ifndef CARD_ENGINE_H
#define CARD_ENGINE_H

#include "card.h"

struct card_span {
	void *at;
	u32 length;
};

struct card_list {
	struct card_span spans[CARD_MAX_SGE];
	u32 count, length;
};

/* A copy of a send queue entry in contiguous memory. */
struct card_wqe {
	u8 bytes[64 * 16];
	u32 ds, at;			/* length, and offset of the next segment, in bytes */
	u16 index;
	u8 opcode, flags;
	__be32 imm;
};

struct ib_pd *card_pd_of(const struct card_qp *qp);
const void *card_segment(struct card_wqe *wqe, u32 size);

void *card_memory(struct ib_pd *pd, const struct card_qp *peer, u32 number, u64 addr, u32 length, int access);
bool card_add_span(struct card_list *list, void *at, u32 length);
void card_move(const struct card_list *to, u32 skip, const struct card_list *from);
bool card_invalidate(struct card_qp *qp, u32 number);
u8 card_change_key(struct card_qp *qp, struct card_wqe *wqe);

#endif
