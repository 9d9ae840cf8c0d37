//! Tests of decorators around devices in memory.

use super::*;
use crate::memory::{self, Wire};
use crate::pcap::{Capture, Item};
use crate::{
    BATCH, Batch, Change, Device, Frame, Lease, LinkInfo, Lost, Pool, Receive, Statistics, Transmit,
};
use natgate_wire::arp::{Mac, Operation, Repr};
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn device() -> (Box<dyn Device>, Wire) {
    let (device, wire) = memory::pair("test", Mac([2, 0, 0, 0, 0, 1]));
    (Box::new(device), wire)
}

fn receive(device: &mut dyn Device) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    device.split().0.receive(&mut batch);
    batch.iter().map(|frame| frame.bytes().to_vec()).collect()
}

fn send(device: &mut dyn Device, bytes: &[u8]) -> Lost {
    let mut bytes = bytes.to_vec();
    let end = bytes.len();
    device.split().1.transmit(&mut [Frame::of(&mut bytes, 0, end)])
}

/// All frames sent to a wire.
fn taken(wire: &Wire) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| wire.take()).collect()
}

#[test]
fn a_tap_records_both_ways_and_changes_nothing() {
    let (inner, wire) = device();
    let tap = Arc::new(Mutex::new(Tap::new(Vec::new(), &["one", "two"], 1 << 20).expect("memory")));
    let mut device = Watched::new(inner, 1, tap.clone());
    assert!(wire.send(b"from afar, fourteen") && wire.send(b"and another one of these"));
    assert_eq!(receive(&mut device), [&b"from afar, fourteen"[..], b"and another one of these"]);
    assert_eq!(send(&mut device, b"an answer to that"), Lost::NONE);
    assert_eq!(taken(&wire), [b"an answer to that"]);
    wire.set_up(false);
    assert_eq!(send(&mut device, b"nobody hears this").count(), 1);
    drop(device);
    let tap = Arc::into_inner(tap).expect("nobody else has it").into_inner().expect("no panic");
    assert_eq!(tap.counts(), (3, 0));
    let bytes = tap.into_inner().expect("it has not ended");
    let mut capture = Capture::new(&bytes[..]);
    let mut frames = Vec::new();
    while let Some(item) = capture.next_item().expect("it can be read") {
        if let Item::Packet(record) = item {
            assert!(record.interface == 1 && record.time > 1_500_000_000_000_000_000);
            frames.push(capture.frame().to_vec());
        }
    }
    let expected = [&b"from afar, fourteen"[..], b"and another one of these", b"an answer to that"];
    assert_eq!(frames, expected);
    // Option 2 of a packet is its flags: inbound, inbound, outbound.
    let flags = [2, 0, 4, 0];
    let ways = bytes.windows(5).filter(|bytes| bytes[..4] == flags).map(|bytes| bytes[4]);
    assert_eq!(ways.collect::<Vec<_>>(), [1, 1, 2]);
}

/// A device that takes over the buffers of leased frames, and has to be polled.
#[derive(Debug)]
struct Greedy {
    inner: Box<dyn Device>,
    transmitter: GreedyTransmitter,
}

#[derive(Debug)]
struct GreedyTransmitter(Pool);

const INTERVAL: Duration = Duration::from_micros(100);

impl Device for Greedy {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (self.inner.split().0, &mut self.transmitter)
    }

    fn link(&self) -> &LinkInfo {
        self.inner.link()
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    fn maintain(&mut self) -> Option<Change> {
        self.inner.maintain()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(INTERVAL)
    }
}

impl Transmit for GreedyTransmitter {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        assert!(frames.len() <= BATCH);
        let mut lost = Lost::NONE;
        for (index, frame) in frames.iter_mut().enumerate() {
            if frame.take_over(self.0).is_none() {
                lost.mark(index);
            }
        }
        lost
    }
}

#[test]
fn a_tap_records_frames_whose_buffers_are_taken_over() {
    let pool = Pool::unique();
    let inner = Greedy { inner: device().0, transmitter: GreedyTransmitter(pool) };
    let tracer = Arc::new(Mutex::new(Tracer::new(Vec::new(), &["inside"])));
    let mut device = Box::new(Watched::new(Box::new(inner), 0, tracer.clone()));
    assert_eq!(device.poll_interval(), Some(INTERVAL));
    let mut lease = Lease::new(pool);
    lease.lend(NonZeroUsize::MIN);
    let (mut lost, mut sent) = (packet(6, 0, &[]), packet(47, 0, &[7; 6]));
    let (lost_end, sent_end) = (lost.len(), sent.len());
    let mut frames =
        [Frame::of(&mut lost, 0, lost_end), Frame::leased(&mut sent, 0, sent_end, &lease)];
    let missing = device.split().1.transmit(&mut frames);
    assert!(missing.contains(0) && missing.count() == 1 && frames[1].is_empty());
    let harmed = Faulty::new(device, Faults::default());
    assert_eq!(harmed.poll_interval(), Some(INTERVAL));
    drop(harmed);
    let told = Arc::into_inner(tracer).expect("nobody else has it").into_inner();
    let told = String::from_utf8(told.expect("no panic").into_inner()).expect("text");
    assert!(told.ends_with(" inside out 40 IPv4 10.0.0.5 > 198.51.100.7 protocol 47\n"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_tap_ends_at_its_limit_and_frames_pass() {
    let (inner, wire) = device();
    let tap = Arc::new(Mutex::new(Tap::new(Vec::new(), &["one"], 500).expect("memory")));
    let mut device = Watched::new(inner, 0, tap.clone());
    for _ in 0..10 {
        assert_eq!(send(&mut device, &[7; 100]), Lost::NONE);
    }
    assert_eq!(taken(&wire).len(), 10);
    assert_eq!(tap.lock().expect("no panic").counts(), (3, 7));
}

/// An output that takes nothing.
#[derive(Debug)]
struct Broken;

impl std::io::Write for Broken {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("broken"))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_tap_that_cannot_write_says_so_and_frames_pass() {
    let (inner, wire) = device();
    assert!(Tap::new(Broken, &["one"], 1000).is_err());
    let output = std::io::BufWriter::with_capacity(200, Broken);
    let tap = Arc::new(Mutex::new(Tap::new(output, &["one"], 1 << 20).expect("a buffer")));
    let mut device = Watched::new(inner, 0, tap.clone());
    for _ in 0..10 {
        assert_eq!(send(&mut device, &[7; 100]), Lost::NONE);
    }
    assert_eq!(taken(&wire).len(), 10);
    let mut tap = tap.lock().expect("no panic");
    assert!(tap.counts().1 > 0);
    assert_eq!(tap.flush().expect_err("it failed").to_string(), "broken");
}

/// A frame with a packet of this protocol: a datagram, or a payload with ports.
fn packet(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(len.to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, 5, 198, 51, 100, 7]);
    let sum = natgate_wire::checksum::checksum(&frame[14..]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(payload);
    frame
}

#[test]
fn a_tracer_tells_what_passes() {
    let (inner, wire) = device();
    let tracer = Arc::new(Mutex::new(Tracer::new(Vec::new(), &["inside"])));
    let mut device = Watched::new(inner, 0, tracer.clone());
    let asked = Repr {
        operation: Operation::Request,
        sender_mac: Mac([2, 0, 0, 0, 0, 2]),
        sender: [10, 0, 0, 5].into(),
        target_mac: Mac::default(),
        target: [10, 0, 0, 1].into(),
    };
    let answered = Repr { operation: Operation::Reply, ..asked };
    let ports = [0x0f, 0xa0, 0, 53, 0, 8, 0, 0];
    let sent = [
        packet(17, 0, &ports),
        packet(6, 0, &[ports, ports, [0x50; 8]].concat()),
        packet(1, 0, &[8, 0, 0, 0, 0, 1, 0, 2]),
        packet(17, 185, &ports),
        packet(47, 0, &[]),
        packet(17, 0, &[1]),
        asked.frame(Mac::BROADCAST).to_vec(),
        answered.frame(Mac::BROADCAST).to_vec(),
        packet(17, 0, &[])[..20].to_vec(),
        [&packet(17, 0, &[])[..12], &[0x86, 0xdd]].concat(),
        b"short".to_vec(),
    ];
    assert!(sent.iter().all(|frame| wire.send(frame)));
    assert_eq!(receive(&mut device), sent);
    assert_eq!(send(&mut device, &sent[0]), Lost::NONE);
    drop(device);
    let told = Arc::into_inner(tracer).expect("nobody else has it").into_inner();
    let told = String::from_utf8(told.expect("no panic").into_inner()).expect("text");
    // Each line begins with its time.
    let lines: Vec<_> = told.lines().map(|line| line.split_once(' ').expect("words").1).collect();
    assert_eq!(
        lines,
        [
            "inside in 42 IPv4 udp 10.0.0.5:4000 > 198.51.100.7:53",
            "inside in 58 IPv4 tcp 10.0.0.5:4000 > 198.51.100.7:53",
            "inside in 42 IPv4 icmp 8/0 10.0.0.5 > 198.51.100.7",
            "inside in 42 IPv4 10.0.0.5 > 198.51.100.7 protocol 17 from byte 1480 on",
            "inside in 34 IPv4 10.0.0.5 > 198.51.100.7 protocol 47",
            "inside in 35 IPv4 udp 10.0.0.5 > 198.51.100.7, damaged",
            "inside in 42 ARP who has 10.0.0.1? tell 10.0.0.5",
            "inside in 42 ARP 10.0.0.5 is at 02:00:00:00:00:02",
            "inside in 20 IPv4, damaged",
            "inside in 14 02:00:00:00:00:02 > 02:00:00:00:00:01 EtherType 0x86dd",
            "inside in 5 too short for Ethernet",
            "inside out 42 IPv4 udp 10.0.0.5:4000 > 198.51.100.7:53",
        ]
    );
}

/// Fate of a thousand frames each way.
fn harmed(faults: Faults) -> ([Vec<Vec<u8>>; 2], FaultCounts) {
    let (inner, wire) = device();
    let mut device = Faulty::new(inner, faults);
    let (mut inward, mut outward) = (Vec::new(), Vec::new());
    for number in 0..1000_u16 {
        assert!(wire.send(&number.to_be_bytes().repeat(20)));
        if number % 50 == 49 {
            inward.extend(receive(&mut device));
        }
        assert_eq!(send(&mut device, &number.to_be_bytes().repeat(20)), Lost::NONE);
        outward.extend(taken(&wire));
    }
    for _ in 0..50 {
        inward.extend(receive(&mut device));
    }
    assert!(device.maintain().is_none());
    outward.extend(taken(&wire));
    ([inward, outward], device.counts())
}

#[test]
fn without_faults_everything_passes_in_order() {
    let ([inward, outward], counts) = harmed(Faults::default());
    let expected: Vec<_> = (0..1000_u16).map(|number| number.to_be_bytes().repeat(20)).collect();
    assert!(inward == expected && outward == expected);
    assert_eq!(counts, FaultCounts::default());
}

#[test]
fn each_fault_does_what_it_says_and_as_often() {
    let seed = 5;
    let (passed, counts) = harmed(Faults { loss: 0.1, seed, ..Faults::default() });
    assert_eq!(passed.iter().map(Vec::len).sum::<usize>() as u64, 2000 - counts.lost);
    assert!((120..280).contains(&counts.lost), "{counts:?}");
    assert!(passed.iter().all(|way| way.is_sorted()));

    let (passed, counts) = harmed(Faults { duplicate: 0.1, seed, ..Faults::default() });
    assert_eq!(passed.iter().map(Vec::len).sum::<usize>() as u64, 2000 + counts.duplicated);
    assert!((120..280).contains(&counts.duplicated), "{counts:?}");
    assert!(passed.iter().all(|way| way.is_sorted()));

    let (passed, counts) = harmed(Faults { reorder: 0.1, seed, ..Faults::default() });
    assert!((120..280).contains(&counts.reordered), "{counts:?}");
    for mut way in passed {
        assert!(!way.is_sorted() && way.len() == 1000);
        way.sort();
        way.dedup();
        assert_eq!(way.len(), 1000);
    }

    let (passed, counts) = harmed(Faults { corrupt: 0.1, seed, ..Faults::default() });
    let wrong_bits = |(number, frame): (usize, &Vec<u8>)| -> u32 {
        let right = (number as u16).to_be_bytes().repeat(20);
        right.iter().zip(frame).map(|(right, is)| (right ^ is).count_ones()).sum()
    };
    let wrong: Vec<_> =
        passed.iter().flat_map(|way| way.iter().enumerate().map(wrong_bits)).collect();
    assert!((120..280).contains(&counts.corrupted) && wrong.len() == 2000, "{counts:?}");
    assert!(wrong.iter().all(|bits| *bits <= 1));
    assert_eq!(u64::from(wrong.iter().sum::<u32>()), counts.corrupted);
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    let faults = |seed| Faults { loss: 0.2, duplicate: 0.2, reorder: 0.2, corrupt: 0.2, seed };
    assert!(harmed(faults(1)) == harmed(faults(1)));
    assert!(harmed(faults(1)) != harmed(faults(2)));
    let all = Faults { loss: 0.0, duplicate: 1.0, reorder: 1.0, corrupt: 1.0, seed: 3 };
    let ([inward, outward], _) = harmed(all);
    assert_eq!((inward.len(), outward.len()), (2000, 2000));
    let (passed, counts) = harmed(Faults { loss: 1.0, ..all });
    assert!(passed.iter().all(Vec::is_empty) && counts.lost == 2000);
}

#[test]
fn faults_are_read_from_text() {
    let faults = "loss=0.01,duplicate=1,reorder=0,corrupt=0.5,seed=7".parse();
    let expected = Faults { loss: 0.01, duplicate: 1.0, reorder: 0.0, corrupt: 0.5, seed: 7 };
    assert_eq!(faults, Ok(expected));
    assert_eq!("loss=1".parse(), Ok(Faults { loss: 1.0, ..Faults::default() }));
    for wrong in ["", "loss", "loss=2", "loss=-0.1", "loss=NaN", "los=0.1", "seed=0.5", "seed=-1"] {
        let error = wrong.parse::<Faults>().expect_err("it is wrong");
        assert!(error.to_string().starts_with(&format!("{wrong:?} is no fault; write loss")));
    }
    assert!("loss=0.1,".parse::<Faults>().is_err());
}

#[test]
fn decorators_go_around_each_other() {
    let (inner, wire) = device();
    let tracer = Arc::new(Mutex::new(Tracer::new(Vec::new(), &["one"])));
    let faults = Faults { duplicate: 1.0, ..Faults::default() };
    let twice = Box::new(Faulty::new(inner, faults));
    let mut device = Watched::new(Box::new(Watched::new(twice, 0, tracer.clone())), 0, tracer);
    assert!(wire.send(&[1; 60]));
    assert_eq!(receive(&mut device), [[1; 60], [1; 60]]);
    assert_eq!(send(&mut device, &[2; 60]), Lost::NONE);
    assert_eq!(taken(&wire), [[2; 60], [2; 60]]);
    assert_eq!(device.link().name, "test");
    assert_eq!(device.statistics().received, 1);
    wire.set_up(false);
    assert!(matches!(device.maintain(), Some(crate::Change::Down)));
}
