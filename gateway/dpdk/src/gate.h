/* Who moves packets, and who hears from the other end, take turns where the driver does not see to it.
 *
 * When the other end of memif's shared memory goes, the driver unmaps it, in the thread in which DPDK
 * hears of everything, and whoever is reading a ring in it just then falls with it. That thread is kept
 * waiting in a function here but for moments in which nobody moves packets through such a port.
 */
#ifndef NATGATE_GATE_H
#define NATGATE_GATE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_spinlock.h>

/* Queues of a port that have a lock of their own; others share. */
#define NATGATE_GATE_LOCKS 64
/* How often to ask for a lock at a stretch. */
#define NATGATE_GATE_TRIES 1000

struct natgate_gate_lock {
	rte_spinlock_t lock;
} __rte_cache_aligned;

struct natgate_gate {
	struct natgate_gate_lock locks[NATGATE_GATE_LOCKS];
	/* Those in use; 0: nobody takes turns on this port. */
	uint16_t count;
};

extern struct natgate_gate natgate_gates[RTE_MAX_ETHPORTS];

/* Takes a lock; false: who has it is likely not to be on a processor, and wants this one. */
static inline bool natgate_gate_try(rte_spinlock_t *lock)
{
	for (uint32_t tries = 0; tries < NATGATE_GATE_TRIES; tries++) {
		if (rte_spinlock_trylock(lock))
			return true;
		rte_pause();
	}
	return false;
}

/* Before packets are moved; what is returned is for natgate_gate_leave. */
static inline rte_spinlock_t *natgate_gate_enter(uint16_t port, uint16_t queue)
{
	struct natgate_gate *gate = &natgate_gates[port];
	rte_spinlock_t *lock;

	if (likely(!gate->count))
		return NULL;
	lock = &gate->locks[queue % NATGATE_GATE_LOCKS].lock;
	while (!natgate_gate_try(lock))
		sched_yield();
	return lock;
}

static inline void natgate_gate_leave(rte_spinlock_t *lock)
{
	if (unlikely(lock != NULL))
		rte_spinlock_unlock(lock);
}

/* Has the thread in which DPDK hears of everything call a function, and waits for it. Negative: it
 * cannot be had. */
int natgate_gate_call(void (*function)(void *), void *argument);

/* From now on turns are taken on a port with so many queues. Negative: they cannot be. */
int natgate_gate_add(uint16_t port, uint16_t queues);

/* No longer; only for functions that natgate_gate_call calls. */
void natgate_gate_remove(uint16_t port);

#endif
