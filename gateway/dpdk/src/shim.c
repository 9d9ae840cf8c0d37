/* The calls to libdpdk whose types or inline functions only a C compiler knows.
 *
 * A burst of frames crosses between Rust and C as one array of descriptors: no call a packet.
 * Nothing here decides anything; src/sys.rs has the same declarations and must be kept in step.
 * Functions that can fail return a negative errno.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include "gate.h"

/* Most frames of a burst, natgate_io::BATCH; free bytes before each, natgate_io::HEADROOM. */
#define BURST 64
#define HEADROOM 64
#define DESCRIPTORS 1024
/* What most drivers hand over at most by one call. */
#define COMMON_BURST 32

/* A received frame lies at bytes + start in a buffer of room bytes, which is mbuf's. A frame to send
 * lies there likewise, or, when there is no mbuf, somewhere else at bytes. */
struct natgate_frame {
	struct rte_mbuf *mbuf;
	uint8_t *bytes;
	uint32_t start;
	uint32_t len;
	uint32_t room;
};

/* Frames that came in and were not handed out. */
struct natgate_refused {
	uint64_t oversize;
	uint64_t unfinished;
	uint64_t memory;
};

/* Which frames of a burst were not sent: bit i stands for frame i. */
struct natgate_lost {
	uint64_t full;
	uint64_t refused;
};

struct natgate_limits {
	uint16_t queues;
	uint16_t mtu;
};

struct natgate_link {
	uint8_t mac[RTE_ETHER_ADDR_LEN];
	uint16_t mtu;
	bool up;
};

struct natgate_statistics {
	uint64_t missed;
	uint64_t no_buffer;
	uint64_t transmit_errors;
};

int natgate_dpdk_start(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

struct rte_mempool *natgate_dpdk_pool(uint32_t count, uint32_t cache, uint16_t room)
{
	return rte_pktmbuf_pool_create("natgate", count, cache, 0, RTE_PKTMBUF_HEADROOM + room,
				       SOCKET_ID_ANY);
}

int natgate_dpdk_find(const char *name)
{
	uint16_t port;
	int error = rte_eth_dev_get_port_by_name(name, &port);

	return error ? error : port;
}

int natgate_dpdk_make(const char *name, const char *arguments)
{
	return rte_eal_hotplug_add("vdev", name, arguments);
}

int natgate_dpdk_limits(uint16_t port, struct natgate_limits *limits)
{
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);
	uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN, mtu;

	if (error)
		return error;
	if (info.max_mtu != UINT16_MAX && info.max_rx_pktlen > info.max_mtu)
		overhead = info.max_rx_pktlen - info.max_mtu;
	mtu = info.max_rx_pktlen > overhead ? info.max_rx_pktlen - overhead : 0;
	limits->mtu = RTE_MIN(mtu, info.max_mtu);
	limits->queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	return 0;
}

/* The hardware spreads packets over several queues by addresses and ports, if it can. */
static void spread(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info)
{
	uint64_t fields = info->flow_type_rss_offloads &
			  (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV4_UDP |
			   RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_TCP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);

	if (fields) {
		conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf->rx_adv_conf.rss_conf.rss_hf = fields;
	}
}

/* Neighbor Discovery sends to groups of solicited nodes: a port that has no filter for groups, and cannot
 * be told to let all of them pass, gets them anyway. */
static int receive_groups(uint16_t port)
{
	int error = rte_eth_allmulticast_enable(port);

	return error == -ENOTSUP ? 0 : error;
}

int natgate_dpdk_configure(uint16_t port, uint16_t queues, uint16_t mtu, struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { .rxmode = { .mtu = mtu } };
	uint16_t received = DESCRIPTORS, sent = DESCRIPTORS;
	int socket = rte_eth_dev_socket_id(port);
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);

	if (error)
		return error;
	if (queues > 1)
		spread(&conf, &info);
	error = rte_eth_dev_configure(port, queues, queues, &conf);
	if (!error && !strcmp(info.driver_name, "net_memif"))
		error = natgate_gate_add(port, queues);
	if (!error)
		error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &received, &sent);
	for (uint16_t queue = 0; queue < queues && !error; queue++)
		error = rte_eth_rx_queue_setup(port, queue, received, socket, NULL, pool);
	for (uint16_t queue = 0; queue < queues && !error; queue++)
		error = rte_eth_tx_queue_setup(port, queue, sent, socket, NULL);
	if (!error)
		error = rte_eth_dev_start(port);
	if (!error)
		error = receive_groups(port);
	if (!error)
		rte_eth_stats_reset(port);
	return error;
}

struct closing {
	uint16_t port;
	const char *name;
};

static void close_port(void *argument)
{
	const struct closing *closing = argument;

	natgate_gate_remove(closing->port);
	rte_eth_dev_stop(closing->port);
	rte_eth_dev_close(closing->port);
	if (closing->name)
		rte_eal_hotplug_remove("vdev", closing->name);
}

/* Closes a port, and removes the device if it has a name; in DPDK's thread, since memif's driver does
 * not look whether a port is being closed whose other end goes. */
void natgate_dpdk_close(uint16_t port, const char *name)
{
	struct closing closing = { .port = port, .name = name };

	if (natgate_gate_call(close_port, &closing))
		close_port(&closing);
}

int natgate_dpdk_link(uint16_t port, struct natgate_link *link)
{
	struct rte_eth_link state = { 0 };
	struct rte_ether_addr mac;
	int error = rte_eth_link_get_nowait(port, &state);

	if (!error)
		error = rte_eth_macaddr_get(port, &mac);
	if (!error)
		error = rte_eth_dev_get_mtu(port, &link->mtu);
	if (error)
		return error;
	memcpy(link->mac, mac.addr_bytes, sizeof link->mac);
	link->up = state.link_status == RTE_ETH_LINK_UP;
	return 0;
}

int natgate_dpdk_statistics(uint16_t port, struct natgate_statistics *statistics)
{
	struct rte_eth_stats stats;
	int error = rte_eth_stats_get(port, &stats);

	if (error)
		return error;
	statistics->missed = stats.imissed;
	statistics->no_buffer = stats.rx_nombuf;
	statistics->transmit_errors = stats.oerrors;
	return 0;
}

/* A thread of which DPDK knows has a cache of free buffers of its own. */
static void register_thread(void)
{
	static __thread bool tried;

	if (unlikely(!tried) && rte_lcore_id() == LCORE_ID_ANY)
		rte_thread_register();
	tried = true;
}

/* A received frame that others see, too, or that lies in pieces: a copy that is ours and whole. */
static __rte_noinline struct rte_mbuf *copied(struct rte_mbuf *mbuf, struct rte_mempool *pool,
					      struct natgate_refused *refused)
{
	struct rte_mbuf *copy = rte_pktmbuf_copy(mbuf, pool, 0, UINT32_MAX);

	rte_pktmbuf_free(mbuf);
	if (!copy) {
		refused->memory++;
	} else if (copy->nb_segs != 1) {
		refused->oversize++;
		rte_pktmbuf_free(copy);
		copy = NULL;
	}
	return copy;
}

static inline bool is_ours(const struct rte_mbuf *mbuf)
{
	return mbuf->nb_segs == 1 && RTE_MBUF_DIRECT(mbuf) && rte_mbuf_refcnt_read(mbuf) == 1 &&
	       mbuf->data_off >= HEADROOM;
}

static inline bool is_unfinished(const struct rte_mbuf *mbuf)
{
	return (mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE;
}

/* Takes in at most count frames of at most longest bytes; returns how many. */
uint16_t natgate_dpdk_receive(uint16_t port, uint16_t queue, struct rte_mempool *pool,
			      uint32_t longest, struct natgate_frame *frames, uint16_t count,
			      struct natgate_refused *refused)
{
	struct rte_mbuf *mbufs[BURST];
	uint16_t got, kept = 0;
	rte_spinlock_t *lock;

	register_thread();
	lock = natgate_gate_enter(port, queue);
	got = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(count, BURST));
	if (got == COMMON_BURST && got < count)
		got += rte_eth_rx_burst(port, queue, mbufs + got, RTE_MIN(count, BURST) - got);
	natgate_gate_leave(lock);
	for (uint16_t i = 0; i < got; i++) {
		struct rte_mbuf *mbuf = mbufs[i];

		if (unlikely(!is_ours(mbuf)))
			mbuf = copied(mbuf, pool, refused);
		if (unlikely(!mbuf))
			continue;
		if (unlikely(mbuf->pkt_len > longest || is_unfinished(mbuf))) {
			*(is_unfinished(mbuf) ? &refused->unfinished : &refused->oversize) += 1;
			rte_pktmbuf_free(mbuf);
			continue;
		}
		frames[kept++] = (struct natgate_frame){
			.mbuf = mbuf,
			.bytes = mbuf->buf_addr,
			.start = mbuf->data_off,
			.len = mbuf->data_len,
			.room = mbuf->buf_len,
		};
	}
	return kept;
}

void natgate_dpdk_release(struct rte_mbuf **mbufs, uint32_t count)
{
	rte_pktmbuf_free_bulk(mbufs, count);
}

/* A copy of a frame that lies elsewhere. */
static inline struct rte_mbuf *fresh(const struct natgate_frame *frame, struct rte_mempool *pool)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	if (mbuf)
		memcpy(rte_pktmbuf_mtod(mbuf, void *), frame->bytes, frame->len);
	return mbuf;
}

/* Sends frames in order. Those that have an mbuf give it away, sent or not. */
void natgate_dpdk_transmit(uint16_t port, uint16_t queue, struct rte_mempool *pool, uint16_t room,
			   const struct natgate_frame *frames, uint16_t count,
			   struct natgate_lost *lost)
{
	struct rte_mbuf *mbufs[BURST];
	uint8_t places[BURST];
	uint16_t filled = 0, sent = 0, taken;
	rte_spinlock_t *lock;

	register_thread();
	for (uint16_t i = 0; i < count && i < BURST; i++) {
		const struct natgate_frame *frame = &frames[i];
		struct rte_mbuf *mbuf = frame->mbuf;

		if (mbuf) {
			mbuf->data_off = frame->start;
			mbuf->ol_flags = 0;
		} else if (frame->len > room) {
			lost->refused |= UINT64_C(1) << i;
			continue;
		} else if (!(mbuf = fresh(frame, pool))) {
			lost->full |= UINT64_C(1) << i;
			continue;
		}
		mbuf->data_len = mbuf->pkt_len = frame->len;
		mbufs[filled] = mbuf;
		places[filled++] = i;
	}
	lock = natgate_gate_enter(port, queue);
	while (sent < filled &&
	       (taken = rte_eth_tx_burst(port, queue, mbufs + sent, filled - sent)) > 0)
		sent += taken;
	natgate_gate_leave(lock);
	for (uint16_t i = sent; i < filled; i++) {
		lost->full |= UINT64_C(1) << places[i];
		rte_pktmbuf_free(mbufs[i]);
	}
}
