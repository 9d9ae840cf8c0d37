//! Two links: messages, views, queues, and the end of one of them.

use super::relay::{Loss, Relay};
use super::rig::{
    Ends, NOBODY, Rig, assert_views_arrive, connected, receive, send, start, until, until_true,
    wait_for_connection,
};
use crate::{MAX_MESSAGE, MAX_VIEW, MIN_DATAGRAM_ROOM, QUEUE_MESSAGES};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn short_and_long_messages_arrive_in_both_directions() {
    let (_rig, [a, b]) = connected();
    let room = a.datagram_room();
    assert!(room >= MIN_DATAGRAM_ROOM);
    for length in [0, 1, MIN_DATAGRAM_ROOM, 100_000, 1 << 20, MAX_MESSAGE] {
        let message: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        send(&a, &message);
        assert!(receive(&b) == message, "{length} bytes from a");
        send(&b, &message);
        assert!(receive(&a) == message, "{length} bytes from b");
    }
    assert!(!a.send(vec![0; MAX_MESSAGE + 1]));
    let status = until("acknowledgements", || Some(a.status()).filter(|now| now.sent == 6));
    assert_eq!((status.received, status.send_overflow, status.connections), (6, 1, 1));
    assert_eq!(
        (status.version, status.refused, status.malformed),
        (Some(crate::transport::VERSIONS[0]), 0, 0)
    );
    assert!(status.is_running && status.round_trip.is_some());
}

#[test]
fn one_flush_sends_all_queued_messages() {
    let (_rig, [a, b]) = connected();
    let mut number = 0_u32;
    for count in [1, 0, 2, 100, 1].into_iter().cycle().take(200) {
        for queued in 0..count {
            assert!(a.queue((number + queued).to_le_bytes().to_vec()));
        }
        a.flush();
        for _ in 0..count {
            assert_eq!(receive(&b), number.to_le_bytes());
            number += 1;
        }
    }
    assert!(a.queue(b"by the next message".to_vec()));
    send(&a, b"which wakes the link");
    assert_eq!(receive(&b), b"by the next message");
    assert_eq!(receive(&b), b"which wakes the link");
}

#[test]
fn a_node_that_is_connected_can_send() {
    let rig = Rig::new();
    for round in 0..40 {
        let [a, _b] = rig.pair();
        // No pause: the next look comes at once.
        while a.status().connected_since.is_none() {
            std::hint::spin_loop();
        }
        assert!(a.send(vec![0]), "round {round}");
    }
}

#[test]
fn a_pair_may_have_ipv6_addresses() {
    let rig = Rig::new();
    ["a", "b"].iter().for_each(|node| rig.write(node, &rig.authority, 2099));
    let mut settings = rig.settings("b", "a", "[::1]:9".parse().unwrap());
    settings.listen = "[::1]:0".parse().unwrap();
    let b = start(&settings);
    let mut settings = rig.settings("a", "b", b.local_address());
    settings.listen = "[::]:0".parse().unwrap();
    let a = start(&settings);
    assert_views_arrive(&a, &b, b"from a");
    assert_views_arrive(&b, &a, b"from b");
}

#[test]
fn the_newest_view_arrives_and_is_repeated() {
    let (_rig, [a, b]) = connected();
    assert_eq!(b.heard(), None);
    for number in 0..1_000_u32 {
        assert!(a.tell(number.to_le_bytes().to_vec()));
    }
    let newest = 999_u32.to_le_bytes();
    until_true("the newest", || b.heard().as_deref() == Some(&newest));
    for _ in 0..3 {
        assert_eq!(until("a repetition", || b.heard()), newest);
    }
    let long = vec![7; MAX_VIEW];
    assert_views_arrive(&b, &a, &long);
    assert!(!b.tell(vec![7; MAX_VIEW + 1]));
    assert!(until("a repetition", || a.heard()) == long);
}

#[test]
fn a_view_that_was_told_before_the_connection_arrives_on_it() {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    assert!(b.tell(b"early".to_vec()));
    assert!(!b.send(b"too early".to_vec()));
    assert_eq!(b.status().send_overflow, 0);
    let a = rig.start("a", "b", b.local_address());
    assert_eq!(until("a view", || a.heard()), b"early");
}

#[test]
fn a_full_queue_refuses_messages_and_counts_them() {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    let relay = Relay::start(b.local_address(), 1);
    let a = rig.start("a", "b", relay.address);
    wait_for_connection(&a);
    relay.lose(Loss::All);
    until_true("a full queue", || (0..QUEUE_MESSAGES).any(|_| !a.send(vec![0; 1_000])));
    assert!(a.status().send_overflow > 0);
    // The messages in the queue go with the connection.
    until_true("the end of the connection", || a.status().connected_since.is_none());
    until_true("an empty queue", || a.status().abandoned > 0);
    assert!(!a.send(Vec::new()));
    relay.lose(Loss::None);
    wait_for_connection(&a);
    assert_views_arrive(&a, &b, b"again");
}

#[test]
fn bytes_that_wait_are_bounded() {
    let (_rig, [a, b]) = connected();
    // The receiver takes nothing: two long messages fill its queue.
    for _ in 0..4 {
        send(&a, &vec![0; MAX_MESSAGE]);
    }
    until_true("an overflow", || b.status().receive_overflow > 0);
    until_true("the end of all", || a.status().sent + a.status().abandoned == 4);
    until_true("the end of all at the other side", || {
        b.status().received + b.status().receive_overflow == 4
    });
    let messages = std::iter::from_fn(|| b.receive()).count();
    assert!((1..=2).contains(&messages), "{messages}");
    send(&a, b"room again");
    assert!(receive(&b) == b"room again");
}

#[test]
fn messages_beyond_the_receivers_queue_are_dropped_and_counted() {
    let (_rig, [a, b]) = connected();
    until_true("an overflow", || {
        let _ = (0..100).all(|_| a.send(vec![1]));
        b.status().receive_overflow > 0
    });
    assert_eq!(b.status().received, QUEUE_MESSAGES as u64);
    assert_views_arrive(&a, &b, b"views have a place of their own");
    let messages = std::iter::from_fn(|| b.receive()).take(QUEUE_MESSAGES).count();
    assert_eq!(messages, QUEUE_MESSAGES);
}

#[test]
fn views_and_long_messages_pass_while_datagrams_fill_the_link() {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    let relay = Relay::start(b.local_address(), 1);
    let a = rig.start("a", "b", relay.address);
    wait_for_connection(&a);
    // Packets have their final size.
    until_true("large packets", || a.datagram_room() > 1_350);
    relay.lose(Loss::Slow);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Such a datagram leaves no room in its packet.
                if !a.send(vec![0; a.datagram_room()]) {
                    thread::yield_now();
                }
            }
        });
        until_true("a full queue", || a.status().send_overflow > 0);
        until_true("a full link", || a.status().lost_packets > 200);
        let long = vec![9; 100_000];
        let (mut is_sent, mut is_received) = (false, false);
        for view in 0..5_u8 {
            assert!(a.tell(vec![view]));
            until_true("a view", || {
                is_sent = is_sent || a.send(long.clone());
                is_received |= std::iter::from_fn(|| b.receive()).any(|message| message == long);
                b.heard() == Some(vec![view])
            });
        }
        until_true("a long message", || {
            is_sent = is_sent || a.send(long.clone());
            is_received |= std::iter::from_fn(|| b.receive()).any(|message| message == long);
            is_received
        });
        drop(ends);
    });
    assert_eq!(a.status().connections, 1);
}

#[test]
fn a_node_that_restarts_is_found_again() {
    let (rig, [a, b]) = connected();
    let mut settings = rig.settings("b", "a", NOBODY.parse().unwrap());
    settings.listen = b.local_address();
    b.stop();
    until_true("the end", || a.status().connected_since.is_none());
    assert!(!a.send(b"nobody is there".to_vec()));
    let b = start(&settings);
    assert_views_arrive(&a, &b, b"to the second b");
    let settings = rig.settings("a", "b", b.local_address());
    a.stop();
    let a = start(&settings);
    assert_views_arrive(&a, &b, b"of the second a");
    assert_views_arrive(&b, &a, b"to the second a");
    assert!(b.status().connections >= 2);
}

#[test]
fn a_silent_partner_is_noticed_and_its_return_too() {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    let relay = Relay::start(b.local_address(), 1);
    let a = rig.start("a", "b", relay.address);
    assert_views_arrive(&a, &b, b"before");
    relay.lose(Loss::All);
    for link in [&a, &b] {
        until_true("silence", || link.status().connected_since.is_none());
        assert!(link.status().last_failure.is_some());
    }
    assert_eq!(b.status().last_failure.as_deref(), Some("the partner is silent"));
    relay.lose(Loss::None);
    wait_for_connection(&a);
    assert_views_arrive(&a, &b, b"after");
    assert_eq!(b.status().connections, 2);
}

#[test]
fn a_link_ends_with_its_last_handle_or_when_it_is_stopped() {
    let (_rig, [a, b]) = connected();
    let clone = b.clone();
    b.stop();
    assert!(!clone.status().is_running && !clone.send(Vec::new()) && clone.receive().is_none());
    assert!(clone.tell(vec![1]));
    let address = a.local_address();
    drop(a);
    until_true("a free port", || UdpSocket::bind(address).is_ok());
}
