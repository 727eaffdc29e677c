// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of doorbell registers, and the stores of programs to them.
 *
 * The pages are plain memory, so the device sees a store only if no other store overwrites it before the next sweep. A store
 * of a queue pair may be overwritten by its own later stores, which count for the earlier ones too, or by those of queue pairs
 * that share the register. The device erases each store that it has seen, so each store is seen once.
 */
#include <linux/jiffies.h>

#include "card.h"

struct card_registers *card_registers_new(u32 size)
{
	struct card_registers *registers = kzalloc(sizeof(*registers), GFP_KERNEL);

	if (!registers)
		return NULL;
	kref_init(&registers->refs);
	registers->size = size;
	registers->page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!registers->page) {
		kfree(registers);
		return NULL;
	}
	return registers;
}

static void card_registers_free(struct kref *refs)
{
	struct card_registers *registers = container_of(refs, struct card_registers, refs);

	__free_page(registers->page);
	kfree(registers);
}

void card_registers_put(struct card_registers *registers)
{
	if (registers)
		kref_put(&registers->refs, card_registers_free);
}

static u64 *card_buffer(const struct card_registers *registers, u32 buffer)
{
	return page_address(registers->page) + CARD_BF_OFFSET + buffer * (registers->size / 2);
}

/* Sends */

/* Returns the number of doorbells of other queue pairs that were seen in the registers of this one. */
static u32 card_other_doorbells(const struct card_qp *qp)
{
	u32 i, count = 0;

	for (i = 0; i < qp->bf_count; i++)
		count += qp->registers->doorbells[qp->bf_first + i];
	return count - qp->doorbells;
}

/* Handles a doorbell, which is the first 8 bytes of an entry. It counts for all earlier entries, too. */
static void card_ring(struct card_qp *qp, u32 buffer, u64 store, u64 *at)
{
	u16 index = be32_to_cpu(*(__be32 *)&store) >> 8;
	/* The program stores the record before the register. */
	u16 pi = be32_to_cpu(smp_load_acquire(&qp->db[1]));
	u16 ahead = index - qp->sq_ci, posted = pi - qp->sq_ci, end;
	const struct mlx5_wqe_ctrl_seg *ctrl;
	bool is_copied;
	u32 blocks;

	qp->doorbells++;
	if (!qp->sq_count)
		return card_bad("doorbell of queue pair %u, which has no send queue", qp->qpn);
	if (qp->attr.qp_state < IB_QPS_RTS)
		return card_bad("doorbell of queue pair %u in the state %u", qp->qpn, qp->attr.qp_state);
	/* The entry was executed already because of a later doorbell. */
	if (ahead >= 0x8000)
		return;
	if (posted > qp->sq_count || ahead >= posted)
		return card_bad("doorbell of queue pair %u for index %u, and the record has %u", qp->qpn, index, pi);
	ctrl = card_block(qp, index);
	blocks = DIV_ROUND_UP((be32_to_cpu(ctrl->qpn_ds) & 0x3f) * 16, 64);
	if (READ_ONCE(*(const u64 *)ctrl) != store || !blocks || blocks > posted - ahead)
		return card_bad("doorbell %016llx of queue pair %u differs from its entry %016llx",
				be64_to_cpu((__force __be64)store), qp->qpn,
				be64_to_cpu(READ_ONCE(*(const __be64 *)ctrl)));
	/* If the program allocated the page itself, the first doorbell shows which of the registers it uses. */
	if (qp->bf_count > 1) {
		qp->bf_first = buffer / 2;
		qp->bf_count = 1;
		qp->other_doorbells = card_other_doorbells(qp);
	}
	if (card_loses_doorbell(qp))
		return;
	is_copied = qp->registers->size && !memcmp(at + 1, (const u64 *)ctrl + 1, 8);
	atomic_inc(&card_stat[is_copied ? CARD_BLUEFLAME : CARD_DOORBELL]);
	card_journal_ring(qp, index, qp->bfreg < 0 ? buffer : buffer % 2, at);
	end = index + blocks;
	if ((u16)(end - qp->sq_ci) > (u16)(qp->rung - qp->sq_ci))
		qp->rung = end;
	qp->unrung = 0;
}

/* Handles the store in a buffer of a register, and erases it. */
static void card_take_store(struct card_registers *registers, u32 buffer)
{
	u64 *at = card_buffer(registers, buffer), store = READ_ONCE(*at);
	u32 qpn = be32_to_cpu(*((__be32 *)&store + 1)) >> 8;
	struct card_qp *qp = xa_load(&card_qps, qpn);

	if (!store)
		return;
	if (qp && qp->registers == registers && buffer / 2 - qp->bf_first < qp->bf_count) {
		registers->doorbells[buffer / 2]++;
		card_ring(qp, buffer, store, at);
	} else {
		card_bad("doorbell %016llx in a register that is not of queue pair %u",
			 be64_to_cpu((__force __be64)store), qpn);
	}
	/* A newer store stays for the next sweep. */
	cmpxchg(at, store, 0);
}

/* Handles the stores in the registers of a queue pair, which determine which of its entries may start. */
void card_see_doorbells(struct card_qp *qp)
{
	u32 first = qp->bf_first, count = qp->bf_count, i;
	u16 pi;

	for (i = 0; i < 2 * count; i++)
		card_take_store(qp->registers, 2 * first + i);
	pi = be32_to_cpu(smp_load_acquire(&qp->db[1]));
	if (pi == qp->rung) {
		qp->other_doorbells = card_other_doorbells(qp);
		qp->unrung = 0;
		return;
	}
	if (qp->lost == CARD_DOORBELL_LOST)
		return;
	/*
	 * If queue pairs share a register, the doorbell of one may overwrite that of another one before the engine sees it.
	 * So a queue pair starts without its doorbell after some time, and the device counts this start. If no doorbell of another
	 * queue pair can have overwritten its own one, the queue pair waits without limit.
	 */
	if (!qp->unrung)
		qp->unrung = jiffies | 1;
	if (time_before(jiffies, qp->unrung + msecs_to_jiffies(20)) ||
	    (card_strict && card_other_doorbells(qp) == qp->other_doorbells))
		return;
	atomic_inc(&card_stat[CARD_UNRUNG]);
	qp->rung = pi;
	qp->unrung = 0;
}

/* Ends a send queue, which is reset or destroyed. Erases its doorbells, and reports a fault if one is missing. */
void card_end_doorbells(struct card_qp *qp)
{
	u16 pi;

	if (!qp->registers || !qp->sq_count || qp->attr.qp_state == IB_QPS_RESET)
		return;
	card_see_doorbells(qp);
	pi = be32_to_cpu(smp_load_acquire(&qp->db[1]));
	if (card_strict && pi != qp->rung && qp->lost != CARD_DOORBELL_LOST &&
	    card_other_doorbells(qp) == qp->other_doorbells)
		card_bad("queue pair %u ends with the record at %u, and its last doorbell was for %u", qp->qpn, pi,
			 qp->rung);
}

/* Arming */

static u32 card_arm_sweep;			/* the number of the current sweep */

static struct card_cq *card_armed_cq(const struct card_registers *registers, u32 cqn)
{
	struct card_cq *cq;

	list_for_each_entry(cq, &card_cq_list, entry) {
		if (cq->user && cq->registers == registers && cq->cqn == cqn)
			return cq;
	}
	return NULL;
}

/* Handles the store in an arming register, and erases it. */
static void card_take_arm_store(struct card_registers *registers)
{
	u64 store = xchg((u64 *)(page_address(registers->page) + CARD_ARM_OFFSET), 0);
	u32 cqn = be32_to_cpu(*((__be32 *)&store + 1));

	if (!store)
		return;
	registers->arm_store = store;
	registers->arm_sweep = card_arm_sweep;
	if (!card_armed_cq(registers, cqn))
		card_bad("store %016llx arms completion queue %u, which has another register or does not exist",
			 be64_to_cpu((__force __be64)store), cqn);
}

/* Reads and clears the arming registers of all completion queues. The engine calls this at the beginning of each sweep. */
void card_see_arm_stores(void)
{
	struct card_cq *cq;

	card_arm_sweep++;
	list_for_each_entry(cq, &card_cq_list, entry) {
		if (cq->user)
			card_take_arm_store(cq->registers);
	}
}

/*
 * Takes a new arm word from the record if this sweep has seen a store to the register. Queues share the register, and a store
 * for one queue may overwrite that of another queue, so each store counts for all of them. A program stores the record before
 * the register, so this sweep or a later one sees the store for a new word.
 */
void card_see_arm(struct card_cq *cq)
{
	if (!card_strict || cq->registers->arm_sweep == card_arm_sweep)
		cq->arm = READ_ONCE(cq->db[1]);
}

/*
 * Erases the store of a completion queue that is destroyed. The store may have overwritten that of another queue, so it counts
 * in the next sweep.
 */
void card_end_arm(struct card_cq *cq)
{
	u64 *at = page_address(cq->registers->page) + CARD_ARM_OFFSET, store = READ_ONCE(*at);

	if (!store || be32_to_cpu(*((__be32 *)&store + 1)) != cq->cqn || cmpxchg(at, store, 0) != store)
		return;
	cq->registers->arm_store = store;
	cq->registers->arm_sweep = card_arm_sweep + 1;
}
