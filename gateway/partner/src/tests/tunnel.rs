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

/// The link is full of packets, loses a fifth of QUIC's packets, and more if many come at once.
/// Messages that are sent at once share a few of these packets, so all of them may be lost.
/// The link does not repeat them: the test sends each one until it comes, as replication does.
#[test]
fn messages_and_views_do_not_wait_for_packets() {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    let relay = Relay::start(b.local_address(), 1);
    let a = rig.start("a", "b", relay.address);
    [&a, &b].into_iter().for_each(wait_for_connection);
    relay.lose(Loss::Fifth);
    let packet = [1; 1_000];
    let mut packets = 0;
    let mut fill = || {
        let more = (0..).take_while(|_| a.pass(&packet)).count();
        packets += more as u64;
        more
    };
    for number in (0..100_u32).map(u32::to_le_bytes) {
        assert!(a.tell(number.to_vec()));
        let (mut is_first, mut has_come) = (false, false);
        until_true("a message that went before packets", || {
            fill();
            let sent = a.status().sent;
            send(&a, &number);
            until_true("a message on its way", || a.status().sent > sent);
            // If fewer have left the full queue, one that was there before the message still waits.
            is_first |= fill() < TUNNEL_PACKETS;
            has_come |= std::iter::from_fn(|| b.receive()).any(|message| message == number);
            is_first && has_come
        });
    }
    until_true("the last view", || {
        fill();
        b.heard().as_deref() == Some(&99_u32.to_le_bytes())
    });
    // No packet has taken the place of a message in QUIC's buffer.
    until_true("all datagrams on their way", || {
        let status = a.status();
        a.datagrams_gone() == status.sent + packets - status.unpassed
    });
    assert_eq!(a.status().connections, 1);
}
