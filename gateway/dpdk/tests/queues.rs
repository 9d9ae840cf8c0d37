//! Two threads at once, each with a queue of either port: through shared memory, and over a cable
//! of the kernel. Every frame arrives once and whole, by any queue.
//!
//! Needs the programs that `make test` installs, and root for a network namespace.
#![cfg(libdpdk)]

use natgate_dpdk::{DpdkDevice, Error, start_for};
use natgate_io::{Batch, Device, Frame, Lost, Statistics};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MTU: u16 = 1500;
const WORKERS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames that each thread sends, and most frames on their way: fewer than any queue holds.
const EACH: usize = 20_000;
const UNDER_WAY: usize = 100;

fn open(device: &str) -> Vec<DpdkDevice> {
    let eal = start_for(None, MTU, WORKERS as u16).expect("DPDK starts");
    eal.open(device, MTU, WORKERS as u16).unwrap_or_else(|error| panic!("{device}: {error}"))
}

/// A UDP datagram; the flow and the number are in the payload, too.
fn frame(sender: usize, number: usize) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a]);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[17] = 46;
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, sender as u8, 10, 0, 1, number as u8]);
    frame[38..40].copy_from_slice(&[0, 26]);
    frame[42..44].copy_from_slice(&[sender as u8, 0]);
    frame[44..48].copy_from_slice(&(number as u32).to_be_bytes());
    frame
}

/// Sends from one port to the other; returns the number of frames that came to each thread.
fn exchange(from: Vec<DpdkDevice>, to: Vec<DpdkDevice>) -> Vec<usize> {
    let arrived = [const { AtomicUsize::new(0) }; WORKERS];
    let all = || arrived.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
    let begin = Instant::now();
    let work = |own: usize, mut from: DpdkDevice, mut to: DpdkDevice| {
        let mut sent = 0;
        while all() < WORKERS * EACH {
            assert!(begin.elapsed() < PATIENCE, "{} frames of {}", all(), WORKERS * EACH);
            let mut batch = Batch::new();
            to.split().0.receive(&mut batch);
            for came in &batch {
                let bytes = came.bytes();
                let number = u32::from_be_bytes(bytes[44..48].try_into().unwrap());
                assert_eq!(bytes, frame(bytes[42].into(), number as usize));
                arrived[usize::from(bytes[42])].fetch_add(1, Ordering::Relaxed);
            }
            drop(batch);
            if sent < EACH && sent - arrived[own].load(Ordering::Relaxed) < UNDER_WAY {
                let mut bytes = frame(own, sent);
                let frames = &mut [Frame::of(&mut bytes, 0, 60)];
                assert_eq!(from.split().1.transmit(frames), Lost::NONE);
                sent += 1;
            }
        }
        (from.statistics(), to.statistics())
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let queues = from.into_iter().zip(to).enumerate();
        let start = |(own, (from, to))| scope.spawn(move || work(own, from, to));
        let threads: Vec<_> = queues.map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sent = Statistics::of_group(ended.iter().map(|(from, _)| *from));
    let received = Statistics::of_group(ended.iter().map(|(_, to)| *to));
    assert_eq!((sent.transmitted, received.received), ((WORKERS * EACH) as u64, sent.transmitted));
    assert_eq!((sent.transmit_full, received.receive_overrun), (0, 0));
    ended.iter().map(|(_, to)| to.received as usize).collect()
}

/// Maintains both ports until they are up.
fn wait_until_up(ports: [&mut Vec<DpdkDevice>; 2]) {
    let begin = Instant::now();
    for queue in ports.into_iter().flatten() {
        while !queue.link().up {
            assert!(begin.elapsed() < PATIENCE, "{} is not up", queue.link().name);
            std::thread::sleep(Duration::from_millis(10));
            queue.maintain();
        }
    }
}

#[test]
fn through_shared_memory() {
    let socket = std::env::temp_dir().join(format!("natgate-queues-{}", std::process::id()));
    let device = |name, role| format!("{name},role={role},socket={}", socket.display());
    let mut from = open(&(device("net_memif0", "server") + ",socket-abstract=no"));
    let mut to = open(&(device("net_memif1", "client") + ",socket-abstract=no"));
    wait_until_up([&mut from, &mut to]);
    // A frame sent by a queue comes by the queue of the same number.
    assert_eq!(exchange(from, to), [EACH, EACH]);
    let _ = std::fs::remove_file(socket);
}

/// Both ends of shared memory are closed, one right after the other: a thread of DPDK learns of the
/// first while the second is closed. DPDK reports a double free on standard error, so the test runs
/// in a process of its own.
#[test]
fn both_ends_go_at_once() {
    const OWN: &str = "NATGATE_BOTH_ENDS";
    if std::env::var_os(OWN).is_none() {
        let own = std::env::current_exe().expect("this program has a name");
        let arguments = ["both_ends_go_at_once", "--exact", "--nocapture"];
        let output = Command::new(own).args(arguments).env(OWN, "1").output();
        let output = output.expect("this program can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("Invalid memory"), "{said}");
        return;
    }
    let socket = std::env::temp_dir().join(format!("natgate-ends-{}", std::process::id()));
    let device = |name, role| format!("{name},role={role},socket={}", socket.display());
    for round in 0..200 {
        let mut server = open(&(device("net_memif2", "server") + ",socket-abstract=no"));
        let mut client = open(&(device("net_memif3", "client") + ",socket-abstract=no"));
        wait_until_up([&mut server, &mut client]);
        let (first, second) = if round % 2 == 0 { (client, server) } else { (server, client) };
        drop(first);
        drop(second);
    }
}

/// The other end is closed and opened while this end is polled all the time.
#[test]
fn the_other_end_goes_while_packets_move() {
    let socket = std::env::temp_dir().join(format!("natgate-goes-{}", std::process::id()));
    let device = |name, role| format!("{name},role={role},socket={}", socket.display());
    let server = open(&(device("net_memif4", "server") + ",socket-abstract=no"));
    let (ended, arrived) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (count, start) = (|| arrived.load(Ordering::Relaxed), Instant::now());
    let poll = |mut queue: DpdkDevice| {
        while !ended.load(Ordering::Relaxed) && start.elapsed() < 2 * PATIENCE {
            let ((receiver, sender), mut batch) = (queue.split(), Batch::new());
            receiver.receive(&mut batch);
            arrived.fetch_add(batch.len(), Ordering::Relaxed);
            sender.transmit(&mut batch);
        }
    };
    std::thread::scope(|scope| {
        server.into_iter().for_each(|queue| drop(scope.spawn(|| poll(queue))));
        for _ in 0..100 {
            let mut client = open(&(device("net_memif5", "client") + ",socket-abstract=no"));
            wait_until_up([&mut client, &mut Vec::new()]);
            let (before, begin) = (count(), Instant::now());
            while count() < before + UNDER_WAY {
                assert!(begin.elapsed() < PATIENCE, "nothing arrives any more");
                let mut bytes = frame(0, 0);
                client[0].split().1.transmit(&mut [Frame::of(&mut bytes, 0, 60)]);
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn over_a_cable_of_the_kernels() {
    // SAFETY: no pointers are passed; only this thread changes its namespace.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "a network namespace needs root: {}", std::io::Error::last_os_error());
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for arguments in
        ["link add near type veth peer name far", "link set near up", "link set far up"]
    {
        let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip can be run");
        assert!(output.status.success(), "{arguments}: {output:?}");
    }
    let mut from = open("net_af_packet0,iface=near,qpairs=2");
    let mut to = open("net_af_packet1,iface=far,qpairs=2");
    wait_until_up([&mut from, &mut to]);
    let came = exchange(from, to);
    assert!(came.iter().all(|count| *count > 0), "flows are spread: {came:?}");
    // The error for a port with fewer queues than workers names both remedies.
    let eal = start_for(None, MTU, WORKERS as u16).expect("DPDK runs");
    let error = eal.open("net_af_packet2,iface=near", MTU, WORKERS as u16);
    let error = error.expect_err("it has one queue");
    assert!(matches!(error, Error::Queues { asked: 2, most: 1, .. }), "{error}");
    assert!(error.to_string().contains("qpairs=2"), "{error}");
}
