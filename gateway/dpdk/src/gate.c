#define _GNU_SOURCE
#include "gate.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_interrupts.h>

/* How long the other ends wait at most until they are heard, nanoseconds: when each port has one, and
 * when one is awaited, which takes some thirty messages. */
#define WAIT 5000000
#define SHORT_WAIT 200000
#define SECOND 1000000000

struct natgate_gate natgate_gates[RTE_MAX_ETHPORTS];

struct call {
	void (*function)(void *);
	void *argument;
	sem_t done;
};

/* One call at a time. */
static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER;
static struct call *asked;

/* What brings DPDK's thread here: there while it is to come again. */
static struct rte_intr_handle *event;
/* What ends its waiting. */
static sem_t wanted;

/* Only DPDK's thread uses these: a call that has been made, and how many ports turns are taken on.
 * Their locks are this thread's but while it waits. */
static struct call *made;
static uint32_t ports;

static void come_again(void)
{
	eventfd_write(rte_intr_fd_get(event), 1);
}

static void give(struct natgate_gate *gate, uint16_t count)
{
	for (uint16_t place = 0; place < count; place++)
		rte_spinlock_unlock(&gate->locks[place].lock);
}

static void give_all(uint16_t ports_taken)
{
	for (uint16_t port = 0; port < ports_taken; port++)
		give(&natgate_gates[port], natgate_gates[port].count);
}

/* Takes the locks of a port; whether it could. */
static bool take(struct natgate_gate *gate)
{
	for (uint16_t place = 0; place < gate->count; place++) {
		if (!natgate_gate_try(&gate->locks[place].lock)) {
			give(gate, place);
			return false;
		}
	}
	return true;
}

/* Nobody waits for what has been taken while the rest cannot be had. */
static void take_all(void)
{
	for (uint16_t port = 0; port < RTE_MAX_ETHPORTS;) {
		if (take(&natgate_gates[port])) {
			port++;
			continue;
		}
		give_all(port);
		sched_yield();
		port = 0;
	}
}

static bool is_up(uint16_t port)
{
	struct rte_eth_link link;

	return !rte_eth_link_get_nowait(port, &link) && link.link_status == RTE_ETH_LINK_UP;
}

/* Packets move meanwhile. */
static void wait(void)
{
	struct timespec until;
	bool all_up = true;

	for (uint16_t port = 0; port < RTE_MAX_ETHPORTS; port++)
		if (natgate_gates[port].count)
			all_up &= is_up(port);
	give_all(RTE_MAX_ETHPORTS);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += all_up ? WAIT : SHORT_WAIT;
	until.tv_sec += until.tv_nsec / SECOND;
	until.tv_nsec %= SECOND;
	sem_clockwait(&wanted, CLOCK_MONOTONIC, &until);
	take_all();
}

/* What DPDK's thread does here, between hearing from the other ends. Whoever called learns of it only
 * when this thread comes again: until then it may still be told of files that the call has closed,
 * and who opens others meanwhile gets their numbers. */
static void come(void *unused)
{
	struct call *call;
	eventfd_t count;

	(void)unused;
	eventfd_read(rte_intr_fd_get(event), &count);
	if (made)
		sem_post(&made->done);
	made = NULL;
	call = __atomic_exchange_n(&asked, NULL, __ATOMIC_ACQUIRE);
	if (call) {
		call->function(call->argument);
		made = call;
	} else if (ports) {
		wait();
	}
	if (made || ports)
		come_again();
}

/* Makes the event. Negative: there is none. */
static int prepare(void)
{
	int file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), error = -ENOMEM;

	if (file < 0)
		return -errno;
	event = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	if (event) {
		rte_intr_fd_set(event, file);
		rte_intr_type_set(event, RTE_INTR_HANDLE_EXT);
		sem_init(&wanted, 0, 0);
		error = rte_intr_callback_register(event, come, NULL);
	}
	if (error) {
		rte_intr_instance_free(event);
		event = NULL;
		close(file);
	}
	return error;
}

int natgate_gate_call(void (*function)(void *), void *argument)
{
	struct call call = { .function = function, .argument = argument };
	int error;

	pthread_mutex_lock(&calling);
	error = event ? 0 : prepare();
	if (!error) {
		sem_init(&call.done, 0, 0);
		__atomic_store_n(&asked, &call, __ATOMIC_RELEASE);
		come_again();
		sem_post(&wanted);
		while (sem_wait(&call.done))
			;
		sem_destroy(&call.done);
	}
	pthread_mutex_unlock(&calling);
	return error;
}

struct adding {
	uint16_t port;
	uint16_t queues;
};

static void add(void *argument)
{
	const struct adding *adding = argument;
	struct natgate_gate *gate = &natgate_gates[adding->port];

	for (uint16_t place = 0; place < NATGATE_GATE_LOCKS; place++)
		rte_spinlock_init(&gate->locks[place].lock);
	gate->count = RTE_MIN(adding->queues, NATGATE_GATE_LOCKS);
	/* Nobody knows the port yet. */
	take(gate);
	ports++;
}

int natgate_gate_add(uint16_t port, uint16_t queues)
{
	struct adding adding = { .port = port, .queues = queues };

	return natgate_gate_call(add, &adding);
}

void natgate_gate_remove(uint16_t port)
{
	struct natgate_gate *gate = &natgate_gates[port];

	if (!gate->count)
		return;
	give(gate, gate->count);
	gate->count = 0;
	ports--;
}
