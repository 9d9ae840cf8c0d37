//! Packets of the tunnel: beside messages, behind them, and within their own bounds.

use super::relay::{Loss, Relay};
use super::rig::{NOBODY, Rig, connected, receive, send, until, until_true, wait_for_connection};
use crate::limits::{TUNNEL_HEAD, TUNNEL_PACKETS};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_packet_comes_as_it_is_and_not_among_messages() {
    let (_rig, [a, b]) = connected();
    let woken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&woken);
    b.wake_by(Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)));
    let longest = vec![7; a.datagram_room() - TUNNEL_HEAD];
    assert!(a.pass(&longest) && a.pass(b""));
    assert_eq!(until("a packet", || b.passed()), longest);
    assert_eq!(until("a packet", || b.passed()), b"");
    assert!((1..=2).contains(&woken.load(Ordering::Relaxed)));
    assert!(!a.pass(&vec![7; a.datagram_room() - TUNNEL_HEAD + 1]), "it fits no datagram");
    send(&b, b"message");
    assert!(b.pass(b"packet"));
    assert_eq!(receive(&a), b"message");
    assert_eq!(until("a packet", || a.passed()), b"packet");
    assert_eq!((a.receive(), b.receive(), a.passed()), (None, None, None));
}

#[test]
fn packets_that_nobody_takes_are_dropped_and_counted() {
    let (_rig, [a, b]) = connected();
    for number in 0..2 * TUNNEL_PACKETS {
        until_true("room", || a.pass(&number.to_le_bytes()));
    }
    until_true("more than there is room for", || b.status().passed_overflow > 0);
    let first = b.passed().expect("one waits");
    assert_eq!(first, 0_usize.to_le_bytes());
    let count = 1 + std::iter::from_fn(|| b.passed()).count();
    assert!(count >= TUNNEL_PACKETS, "{count}");
}

/// Nobody reads, and all queues of packets are full.
#[test]
fn a_word_does_not_wait_for_packets() {
    let (_rig, [a, b]) = connected();
    let packet = [1; 1_000];
    until_true("more than there is room for", || {
        while a.pass(&packet) {}
        b.status().passed_overflow > 0
    });
    while a.pass(&packet) {}
    assert!(a.pass(&[0, 7]), "it has a queue of its own");
    let mut packets = 0;
    until_true("the word", || {
        let passed = b.passed();
        packets += usize::from(passed.as_deref() == Some(&packet[..]));
        passed.as_deref() == Some(&[0, 7][..])
    });
    assert!(packets < TUNNEL_PACKETS / 2, "{packets} packets were before it");
}

#[test]
fn without_a_connection_no_packet_is_taken() {
    let rig = Rig::new();
    let alone = rig.start("b", "a", NOBODY.parse().unwrap());
    assert!(!alone.pass(b"packet"));
}

/// The link is full of packets, and replication goes on.
#[test]
fn messages_and_views_do_not_wait_for_packets() {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    let relay = Relay::start(b.local_address(), 1);
    let a = rig.start("a", "b", relay.address);
    [&a, &b].into_iter().for_each(wait_for_connection);
    relay.lose(Loss::Fifth);
    let packet = vec![1; 1_000];
    let mut full = 0_u32;
    for number in 0..200_u32 {
        (0..100).for_each(|_| full += u32::from(!a.pass(&packet)));
        send(&a, &number.to_le_bytes());
        assert!(a.tell(number.to_le_bytes().to_vec()));
        while b.passed().is_some() {}
    }
    until_true("the last view", || {
        while b.passed().is_some() {}
        (0..100).for_each(|_| full += u32::from(!a.pass(&packet)));
        b.heard().as_deref() == Some(&199_u32.to_le_bytes())
    });
    assert!(full > 0, "the link was full");
    let mut messages = 0;
    until_true("most messages", || {
        while b.passed().is_some() {}
        (0..100).for_each(|_| _ = a.pass(&packet));
        messages += std::iter::from_fn(|| b.receive()).count();
        messages > 100
    });
    assert_eq!(a.status().connections, 1);
}
