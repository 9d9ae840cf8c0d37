//! The engine allocates nothing after its start, whatever packets come. Every allocation of this
//! program is counted, and none may happen in a call of the engine.

mod common;

use common::*;
use natgate_engine::{
    Allocation, BlockConfig, Config, DeterministicConfig, Engine, Packet, Prefix, Side, Timestamp,
    Verdict,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes of large blocks that grew, and so were copied.
static MOVED: AtomicU64 = AtomicU64::new(0);
const LARGE: usize = 1 << 20;

// SAFETY: every call goes to the system's allocator unchanged. Counting touches no memory of the
// block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        if layout.size() >= LARGE {
            MOVED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The parts run one after the other, because the counts are for the whole program.
#[test]
fn nothing_is_allocated_after_start_up() {
    what_is_set_aside_is_not_touched();
    let release_after = Duration::from_secs(1);
    let block = BlockConfig { size: 16, max_per_subscriber: 2, release_after };
    let plan = DeterministicConfig {
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 23)],
        ports_per_subscriber: Some(1),
        dynamic_ports: 100,
        ..DeterministicConfig::default()
    };
    for allocation in
        [Allocation::Random, Allocation::Block(block), Allocation::Deterministic(plan)]
    {
        nothing_is_allocated(allocation);
    }
}

/// Ports take memory only when a mapping has them, although there is room for more addresses. A
/// copy to a larger place would take the memory at once, for every protocol.
fn what_is_set_aside_is_not_touched() {
    let mut config =
        Config { pools: vec![pool("203.0.113.1", "203.0.113.16", (1024, 1400))], ..config() };
    config.limits.external_addresses = Some(64);
    Engine::new(&config, [3; 32], Timestamp(0)).unwrap();
    assert_eq!(MOVED.load(Ordering::Relaxed), 0);
}

fn nothing_is_allocated(allocation: Allocation) {
    let mut config =
        Config { pools: vec![pool("203.0.113.1", "203.0.113.2", (1024, 1400))], ..config() };
    config.allocation = allocation;
    config.limits.mappings = Some(600);
    let mut engine = Engine::new(&config, [3; 32], Timestamp(0)).unwrap();
    let mut now = Timestamp(0);
    let mut buffer = vec![0; 65_535];
    let mut seen = [0_u64; 3];
    for round in 0_u32..20_000 {
        let subscriber = format!("10.0.{}.{}:{}", round % 7, 10 + round % 200, 1000 + round % 900);
        let mut packets = [
            udp(&subscriber, REMOTE),
            tcp(&subscriber, REMOTE, "S", round, 0),
            ping("10.0.0.77", "198.51.100.1", round as u16),
            udp("10.0.0.99:5", "198.51.100.3:1100"),
            tcp("10.0.0.98:5", "203.0.113.1:1101", "S", 1, 0),
        ];
        if round % 3 == 0 {
            set_ttl(&mut packets[0], 1);
        }
        // A fragment without the first of its datagram.
        packets[3][7] = u8::from(round % 5 == 0);
        packets[3][4..6].copy_from_slice(&(round as u16).to_be_bytes());
        fill_header_checksum(&mut packets[3]);
        let mut batch = packets.each_mut().map(|bytes| Packet::new(bytes, 0));
        let mut verdicts = [Verdict::Held; 5];
        now = Timestamp(now.0 + 50_000_000);

        let before = ALLOCATIONS.load(Ordering::Relaxed);
        while engine.advance(now) {
            while engine.poll_event().is_some() {}
            while engine.poll_transmit(&mut buffer).is_some() {}
        }
        engine.process(now, Side::Inside, &mut batch, &mut verdicts);
        while engine.poll_event().is_some() {}
        while engine.poll_transmit(&mut buffer).is_some() {}
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "in round {round}");

        for verdict in verdicts {
            seen[match verdict {
                Verdict::Forward(_) | Verdict::Reply(_) => 0,
                Verdict::Drop(_) => 1,
                Verdict::Held | Verdict::HandOver => 2,
            }] += 1;
        }
    }
    assert!(seen.iter().all(|&n| n > 1000), "all kinds of packets were there: {seen:?}");
}
