//! Due work happens in bounded calls, one between two batches. It keeps pace with the mappings that
//! packets begin.

mod common;

use common::*;
use natgate_engine::{
    Change, Config, Cursor, Engine, Filter, Limits, Packet, Side, Timeouts, Timestamp, Verdict,
};
use std::net::Ipv4Addr;
use std::time::Duration;

const BATCH: u64 = 64;
const SECOND: u64 = 1_000_000_000;
const SUBSCRIBERS: u64 = 250;

/// A batch in which each packet begins a mapping.
fn batch(first: u64) -> Vec<Vec<u8>> {
    let packet = |number| {
        let (host, port) = (2 + number % SUBSCRIBERS, 1024 + number / SUBSCRIBERS);
        udp(&format!("10.0.0.{host}:{port}"), REMOTE)
    };
    (first..first + BATCH).map(packet).collect()
}

/// Every packet begins a mapping, without a pause. Old mappings leave as fast as new ones come, and
/// soon after their time.
#[test]
fn old_mappings_leave_as_fast_as_new_ones_come() {
    let (idle, held) = (Duration::from_secs(2), Duration::from_secs(1));
    let timeouts = Timeouts { udp: idle, hold_down: held, ..Timeouts::default() };
    let limits = Limits {
        udp_ports: u32::MAX,
        mappings: Some(1 << 20),
        new_mappings_per_second: u32::MAX,
        ..Limits::default()
    };
    let pools = vec![pool("203.0.113.1", "203.0.113.12", (1024, 65_535))];
    let mut engine =
        Engine::new(&Config { timeouts, limits, pools, ..config() }, [1; 32], Timestamp(0))
            .unwrap();
    // One batch a millisecond.
    let a_second = BATCH * 1000;
    let (mut made, mut gone, mut most) = (0, 0, 0);
    for millisecond in 1..10_000 {
        let now = Timestamp(millisecond * SECOND / 1000);
        engine.advance(now);
        let mut buffers = batch(made);
        made += BATCH;
        let mut packets: Vec<Packet<'_>> =
            buffers.iter_mut().map(|bytes| Packet::new(bytes, 0)).collect();
        let mut verdicts = [Verdict::Held; BATCH as usize];
        engine.process(now, Side::Inside, &mut packets, &mut verdicts);
        assert_eq!(verdicts, [Verdict::Forward(Side::Outside); BATCH as usize], "at {now:?}");
        let events = std::iter::from_fn(|| engine.poll_event());
        gone += events.filter(|event| matches!(event.change, Change::MappingRemoved(_))).count();
        most = most.max(made - gone as u64);
    }
    let seconds = most as f64 / a_second as f64;
    assert!(seconds < 3.5, "mappings of {seconds} seconds are there, which end after {idle:?}");
}

/// An element that was looked at ahead of its turn may be removed between two calls.
#[test]
fn what_is_due_may_go_between_two_calls() {
    let limits = Limits { sessions_per_mapping: 500, ..Limits::default() };
    let mut lab = Lab::new(&Config { limits, ..config() });
    let hosts = ["10.0.0.5:4000", "10.0.0.6:4000"];
    for host in hosts {
        for number in 0..400 {
            lab.out(&udp(host, &format!("198.51.100.7:{}", 1000 + number)));
        }
    }
    // The timers are due together, and a call looks at only some of them.
    lab.wait_s(299.9);
    lab.now = lab.now.plus(Duration::from_millis(250));
    for host in hosts.iter().rev() {
        assert!(lab.engine.advance(lab.now));
        let subscriber = Some(Ipv4Addr::from_bits(endpoint(host).0).into());
        let filter = Filter { subscriber, ..Filter::default() };
        assert_eq!(lab.engine.clear_mappings(&mut Cursor::default(), 1 << 20, &filter), (1, true));
    }
    lab.wait_s(0.0);
    assert_eq!(lab.engine.mappings().count(), 0);
}
