//! A link that loses packets: a lost datagram is not repeated, and delays no other.

use super::relay::{Loss, Relay};
use super::rig::{NOBODY, Rig, receive, send, until_true, wait_for_connection};
use crate::Link;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

fn relayed(seed: u64) -> (Rig, Relay, [Link; 2]) {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    let relay = Relay::start(b.local_address(), seed);
    let a = rig.start("a", "b", relay.address);
    wait_for_connection(&a);
    wait_for_connection(&b);
    (rig, relay, [a, b])
}

#[test]
fn a_lost_message_is_not_repeated_and_the_next_one_comes_without_it() {
    let (_rig, relay, [a, b]) = relayed(1);
    send(&a, b"first");
    assert_eq!(receive(&b), b"first");
    relay.lose(Loss::Dialer);
    let (sent, lost) = (a.status().sent, relay.lost());
    send(&a, b"lost");
    until_true("a lost packet", || a.status().sent > sent && relay.lost() > lost + 1);
    relay.lose(Loss::None);
    send(&a, b"next");
    assert_eq!(receive(&b), b"next");
    // Views are repeated: the link has noticed and mended all losses when the next ones arrive.
    assert!(a.tell(b"mended".to_vec()));
    for _ in 0..5 {
        until_true("a view", || b.heard().is_some());
    }
    assert!(a.status().lost_packets > 0);
    assert_eq!(b.receive(), None);
    assert_eq!((a.status().connections, b.status().received), (1, 2));
}

#[test]
fn with_a_fifth_of_all_packets_lost_the_others_arrive() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let (_rig, relay, [a, b]) = relayed(seed);
    relay.lose(Loss::Fifth);
    let mut received = BTreeSet::new();
    let mut is_repeated = false;
    let mut take = || {
        while let Some(message) = b.receive() {
            let number = u32::from_le_bytes(message[..4].try_into().unwrap());
            is_repeated |= !received.insert(number);
        }
        received.len()
    };
    let mut views = 0_u32;
    for number in 0..1_000_u32 {
        // One message a packet.
        let mut message = vec![0; 1_000];
        message[..4].copy_from_slice(&number.to_le_bytes());
        assert!(a.send(message), "message {number}");
        assert!(a.tell(number.to_le_bytes().to_vec()));
        thread::sleep(Duration::from_millis(2));
        take();
        views += u32::from(b.heard().is_some());
    }
    let long = vec![5; 200_000];
    send(&a, &long);
    until_true("the last view", || b.heard().as_deref() == Some(&999_u32.to_le_bytes()));
    until_true("the long message", || a.status().sent == 1_001);
    relay.lose(Loss::None);
    let count = take();
    assert!(!is_repeated, "seed {seed}");
    // 800 are expected. The long message is one more.
    assert!((701..901).contains(&count), "{count} of 1000, seed {seed}");
    assert!(views > 100, "{views} views, seed {seed}");
    assert!(a.status().lost_packets > 100 && a.status().connections == 1, "seed {seed}");
}

/// The copy of many mappings ends: losses that are not due to load do not slow the link down. With
/// the window that QUIC's own congestion control gives, the messages take more than the patience.
#[test]
fn with_a_fifth_of_all_packets_lost_many_messages_go() {
    const MESSAGES: u64 = 100_000;
    let seed = std::process::id().into();
    println!("seed {seed}");
    let (_rig, relay, [a, b]) = relayed(seed);
    relay.lose(Loss::Fifth);
    let mut queued = 0;
    until_true("the last message", || {
        while queued < MESSAGES && a.send(vec![0; 1_000]) {
            queued += 1;
        }
        while b.receive().is_some() {}
        a.status().sent == MESSAGES
    });
    assert!(a.status().lost_packets > MESSAGES / 10, "seed {seed}");
}
