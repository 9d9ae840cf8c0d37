//! Cuts do not matter: each conversation is cut at every byte and at random places, its segments
//! are reordered, repeated and lost, and the same streams and the same expectations come out.

mod common;

use common::recorded::{Conversation, conversations};
use common::{Host, Link, Opening, Random, client_inside, mark, realm};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{CopiedHost, Expectation, FlowKey, Kind, Limits, Payloads, RestoreError};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// What came out: both streams, and the expectations.
type Outcome = (Vec<u8>, Vec<u8>, Vec<Expectation>);

/// Every protocol over TCP is cut at every byte: only TFTP has none.
#[test]
fn each_protocol_has_a_conversation() {
    let all = conversations();
    let has = |kind: &Kind| all.iter().any(|one| one.opening.kind == *kind);
    let without: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !has(kind)).collect();
    assert_eq!(without, [Kind::Tftp]);
}

/// Holds a conversation; `cuts` says how a message is cut into segments and in which order they
/// go, as ranges.
fn hold(
    conversation: &Conversation,
    opening: Opening,
    setting: impl FnOnce(&mut Link),
    mut cuts: impl FnMut(usize, usize) -> Vec<(usize, usize)>,
) -> Outcome {
    let mut link = conversation.open_as(opening);
    setting(&mut link);
    for (number, (from, text)) in conversation.messages.iter().enumerate() {
        let start = link.write(*from, text);
        for (first, last) in cuts(number, text.len()) {
            link.send(*from, start + first, start + last);
        }
        link.repeat_until_acknowledged(*from);
    }
    assert_eq!(link.payloads.free_buffers(), 4, "{}: an idle flow has a buffer", conversation.name);
    outcome(link)
}

/// What both hosts got, and the expectations that were made and shortened.
fn outcome(link: Link) -> Outcome {
    let [inside, outside] = link.hosts;
    (inside.received, outside.received, [link.book.made, link.book.shortened].concat())
}

fn whole(conversation: &Conversation) -> Outcome {
    let out = hold(conversation, conversation.opening, |_| {}, |_, len| vec![(0, len)]);
    let said = |from: Side| -> Vec<u8> {
        let of = conversation.messages.iter().filter(|(side, _)| *side == from);
        of.flat_map(|(_, text)| text.clone()).collect()
    };
    let is_edited = (&out.0, &out.1) != (&said(Outside), &said(Inside));
    let expects = conversation.opening.kind != Kind::Dns;
    assert!(is_edited, "{}: nothing is edited", conversation.name);
    assert_eq!(!out.2.is_empty(), expects, "{}", conversation.name);
    out
}

#[test]
fn a_cut_at_every_byte_changes_nothing() {
    for conversation in conversations() {
        let expected = whole(&conversation);
        for (number, (_, text)) in conversation.messages.iter().enumerate() {
            for cut in 1..text.len() {
                let cuts = |at, len| match at == number {
                    true => vec![(0, cut), (cut, len)],
                    false => vec![(0, len)],
                };
                let out = hold(&conversation, conversation.opening, |_| {}, cuts);
                assert!(out == expected, "{} message {number} cut at {cut}", conversation.name);
                // The same two segments in the other order.
                let cuts = |at, len| match at == number {
                    true => vec![(cut, len), (0, cut)],
                    false => vec![(0, len)],
                };
                let out = hold(&conversation, conversation.opening, |_| {}, cuts);
                assert!(out == expected, "{} message {number} turned at {cut}", conversation.name);
                // All of it again, in between and behind.
                let cuts = |at, len| match at == number {
                    true => vec![(cut, len), (0, cut), (0, cut), (0, len), (cut, len)],
                    false => vec![(0, len)],
                };
                let out = hold(&conversation, conversation.opening, |_| {}, cuts);
                assert!(out == expected, "{} message {number} again at {cut}", conversation.name);
            }
        }
    }
}

#[test]
fn single_bytes_change_nothing() {
    for conversation in conversations() {
        let expected = whole(&conversation);
        let bytes = |_, len| (0..len).map(|at| (at, at + 1)).collect();
        let out = hold(&conversation, conversation.opening, |_| {}, bytes);
        assert!(out == expected, "{}", conversation.name);
    }
}

/// Random ranges that cover a message, in a random order, some of them twice.
fn random_cuts(random: &mut Random, len: usize) -> Vec<(usize, usize)> {
    let mut places: Vec<usize> = (0..random.below(5)).map(|_| random.below(len + 1)).collect();
    places.extend([0, len]);
    places.sort_unstable();
    let mut cuts: Vec<_> = places.windows(2).map(|two| (two[0], two[1])).collect();
    cuts.retain(|(first, last)| first < last);
    for _ in 0..random.below(4) {
        let first = random.below(len);
        cuts.push((first, first + 1 + random.below(len - first)));
    }
    for at in (1..cuts.len()).rev() {
        cuts.swap(at, random.below(at + 1));
    }
    cuts
}

#[test]
fn random_segments_and_losses_change_nothing() {
    let conversations = conversations();
    let expected: Vec<Outcome> = conversations.iter().map(whole).collect();
    let first = std::env::var("NATGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in first..first + 3000 {
        let at = seed as usize % conversations.len();
        let (conversation, expected) = (&conversations[at], &expected[at]);
        let mut random = Random(seed);
        let mut opening = conversation.opening;
        // Numbers that wrap around in the conversation.
        opening.starts = [0, 0].map(|_| (random.below(400) as u32).wrapping_sub(200));
        opening.has_stamps = random.below(2) == 0;
        let loss = [0, 0, 12, 4][random.below(4)];
        let setting = |link: &mut Link| (link.loss, link.random) = (loss, Random(seed ^ 0xabcd));
        let out = hold(conversation, opening, setting, |_, len| random_cuts(&mut random, len));
        let (heard, wanted) =
            (String::from_utf8_lossy(&out.1), String::from_utf8_lossy(&expected.1));
        assert_eq!(heard, wanted, "{} with NATGATE_SEED={seed}", conversation.name);
        assert!(out == *expected, "{} with NATGATE_SEED={seed}", conversation.name);
    }
}

/// A sender with Nagle's algorithm waits for the acknowledgment of each part.
#[test]
fn a_sender_that_waits_for_acknowledgments_goes_on() {
    for conversation in conversations() {
        let expected = whole(&conversation);
        let mut link = conversation.open();
        for (from, text) in &conversation.messages {
            let start = link.write(*from, text);
            for at in start..start + text.len() {
                assert_eq!(link.hosts[*from as usize].acknowledged, at, "{}", conversation.name);
                link.send(*from, at, at + 1);
            }
        }
        assert!(outcome(link) == expected, "{}", conversation.name);
    }
}

#[test]
fn lengths_may_change_many_times_and_the_end_gets_through() {
    let mut opening = Opening::new(Kind::Ftp, client_inside(21), Inside);
    opening.starts = [u32::MAX - 1500, 7];
    let mut link = Link::open(opening);
    link.say(Outside, "220 ready\r\n");
    let mut expected = String::new();
    for round in 0..200_u32 {
        link.now += 10;
        let text = format!("PORT 10,0,0,5,{},{}\r\n", 4 + round % 200, round % 256);
        link.say(Inside, &text);
        let port = 60_000 + 2 * (round + 1);
        expected += &format!("PORT 203,0,113,1,{},{}\r\n", port / 256, port % 256);
        link.say(Outside, "200 ok\r\n");
    }
    link.say(Inside, "QUIT\r\n");
    assert_eq!(link.heard(Outside), expected + "QUIT\r\n");
    for side in [Inside, Outside] {
        link.end(side);
        assert!(link.hosts[side.other() as usize].has_received_end);
        let len = link.hosts[side as usize].written.len();
        assert_eq!(link.hosts[side as usize].acknowledged, len + 1);
    }
}

#[test]
fn a_message_that_grows_beyond_the_mss_is_split() {
    let mut opening = Opening::new(Kind::Ftp, client_inside(21), Inside);
    opening.mss = 536;
    let mut link = Link::open(opening);
    link.say(Outside, "220 ready\r\n");
    let text = "PORT 10,0,0,5,4,1\r\n".repeat(15) + "NOOP\r\n" + &"\r\n".repeat(110);
    assert!(text.len() < 524);
    let start = link.write(Inside, text.as_bytes());
    link.send(Inside, start, start + text.len());
    // The hosts check that no segment exceeds the MSS; nothing had to be repeated.
    let heard = link.heard(Outside);
    assert!(heard.len() > 536 && heard.matches("PORT 203,0,113,1,").count() == 15, "{heard}");
    assert_eq!(link.payloads.counters(Kind::Ftp).expectations, 15);
}

#[test]
fn sack_blocks_name_the_senders_own_bytes() {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside(21), Inside));
    link.say(Outside, "220 ready\r\n");
    let port = link.write(Inside, b"PORT 10,0,0,5,200,13\r\n");
    let noop = link.write(Inside, b"NOOP\r\nQUIT\r\n");
    let lost = link.hosts[0].segment(port, noop, false);
    assert_eq!(link.process(Inside, &lost).len(), 1);
    link.send(Inside, noop, noop + 6);
    assert_eq!((link.hosts[0].sacked, link.hosts[0].acknowledged), (Some((noop, noop + 6)), 0));
    link.repeat_until_acknowledged(Inside);
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\nNOOP\r\nQUIT\r\n");
}

/// Numbers wrap around many times on a connection that is not read any more.
#[test]
fn a_connection_of_many_gigabytes_is_acknowledged() {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside(21), Inside));
    link.say(Inside, "GET / HTTP/1.1\r\n\r\n");
    for round in 0..9 {
        // A gigabyte that the test does not send.
        let [inside, outside] = &mut link.hosts;
        inside.start = inside.start.wrapping_add(1 << 30);
        outside.other_start = outside.other_start.wrapping_add(1 << 30);
        let start = link.write(Inside, b"x");
        link.send(Inside, start, start + 1);
        assert_eq!(link.hosts[0].acknowledged, start + 1, "in round {round}");
    }
}

const LIMITS: Limits = Limits { flows: 8, buffers: 4 };

/// Another process goes on with the flows.
fn succeed(link: &mut Link) {
    let mut heir = Payloads::new(LIMITS, [9; 32]);
    for flow in link.payloads.save(mark) {
        for len in 0..flow.len() {
            let cut = heir.restore(&flow[..len], realm, |_, _, _| true);
            assert_eq!(cut, Err(RestoreError::Damaged), "{len} bytes are a flow");
        }
        let longer = [&flow[..], &[0]].concat();
        let longer = heir.restore(&longer, realm, |_, _, _| true);
        assert_eq!(longer, Err(RestoreError::Damaged), "a byte too much is a flow");
        assert_eq!(heir.restore(&flow, realm, |_, _, _| false), Err(RestoreError::Unwanted));
        assert_eq!((heir.flows(), heir.free_buffers()), (0, 4));
        assert_eq!(heir.restore(&flow, realm, |_, _, _| true), Ok(()));
        assert_eq!(heir.restore(&flow, realm, |_, _, _| true), Err(RestoreError::Known));
    }
    assert_eq!(heir.flows(), link.payloads.flows());
    assert_eq!(heir.free_buffers(), link.payloads.free_buffers());
    link.payloads = heir;
}

#[test]
fn another_process_goes_on_between_any_two_segments() {
    for conversation in &conversations() {
        let expected = whole(conversation);
        for size in [1, 13, usize::MAX] {
            let mut link = conversation.open();
            for (from, text) in &conversation.messages {
                let start = link.write(*from, text);
                for at in (0..text.len()).step_by(size.min(text.len())) {
                    succeed(&mut link);
                    let end = at.saturating_add(size).min(text.len());
                    link.send(*from, start + at, start + end);
                    succeed(&mut link);
                }
                link.repeat_until_acknowledged(*from);
            }
            assert!(outcome(link) == expected, "{} by {size}", conversation.name);
        }
    }
}

/// What a partner has of the flows: their fingerprints and records.
type Copies = BTreeMap<FlowKey, (u64, Vec<u8>)>;

/// Seconds by which the clock of the partner is ahead.
const AHEAD: u32 = 777;

/// Brings what has changed to the partner. Equal fingerprints are no change.
fn replicate(link: &mut Link, copies: &mut Copies) {
    link.payloads.track();
    for (key, _) in link.payloads.take_changed() {
        let Some(print) = link.payloads.print(key) else {
            copies.remove(&key);
            continue;
        };
        if copies.get(&key).is_none_or(|(known, _)| *known != print) {
            link.payloads.records(
                link.now,
                (key.0, key.1),
                |_| true,
                |record, of_record| {
                    assert_eq!(of_record, print);
                    copies.insert(key, (print, record.to_vec()));
                },
            );
        }
    }
}

/// The partner goes on, with its own clock.
fn take_over(link: &mut Link, copies: &Copies) {
    let mut heir = Payloads::new(LIMITS, [9; 32]);
    heir.track();
    let now = link.now + AHEAD;
    for (_, number, ends) in link.payloads.each() {
        let Some((print, record)) = copies.get(&(number, ends.external, ends.remote)) else {
            continue;
        };
        let address = match (ends.internal.ip(), ends.number) {
            (_, Some(number)) => number,
            (IpAddr::V4(address), None) => address,
            (IpAddr::V6(_), None) => Ipv4Addr::new(1, 0, 0, 7),
        };
        let has_number = ends.internal.is_ipv6() || ends.number.is_some();
        let host = CopiedHost { realm: ends.realm, address, has_number };
        let of = (number, ends.external, host);
        let copied = heir.take_copy(now, record, of, |_, _, _| true);
        assert_eq!(copied, Ok(*print));
        assert_eq!(heir.take_copy(now, record, of, |_, _, _| true), Ok(*print), "in its place");
        let mut other = Payloads::new(LIMITS, [9; 32]);
        for len in (0..record.len()).rev().take(40) {
            let cut = other.take_copy(now, &record[..len], of, |_, _, _| true);
            assert_eq!(cut, Err(RestoreError::Damaged), "{len} bytes are a flow");
        }
        let stranger = CopiedHost { address: Ipv4Addr::BROADCAST, has_number: false, ..host };
        let of = (number, ends.external, stranger);
        let copied = other.take_copy(now, record, of, |_, _, _| true);
        assert_eq!((copied, other.free_buffers()), (Err(RestoreError::Damaged), 4));
    }
    (link.payloads, link.now) = (heir, now);
}

/// The partner lacks deadlines, windows and acknowledgments, and needs none of them.
#[test]
fn a_partner_with_old_acknowledgments_goes_on_between_any_two_segments() {
    for conversation in &conversations() {
        let expected = whole(conversation);
        for (size, pace) in [(13, 1), (13, 2), (7, 5), (usize::MAX, 1), (usize::MAX, 3)] {
            let (mut link, mut copies, mut steps) = (conversation.open(), Copies::new(), 0);
            replicate(&mut link, &mut copies);
            for (from, text) in &conversation.messages {
                let start = link.write(*from, text);
                for at in (0..text.len()).step_by(size.min(text.len())) {
                    steps += 1;
                    if steps % pace == 0 {
                        take_over(&mut link, &copies);
                        replicate(&mut link, &mut copies);
                    }
                    let end = at.saturating_add(size).min(text.len());
                    link.send(*from, start + at, start + end);
                    replicate(&mut link, &mut copies);
                }
                link.repeat_until_acknowledged(*from);
                replicate(&mut link, &mut copies);
            }
            assert!(outcome(link) == expected, "{} by {size}, {pace}", conversation.name);
        }
    }
}

/// A difference of two numbers that matters: to the next byte, past a window, or past half of all.
fn difference(random: &mut Random) -> u32 {
    let size = [0, 1 << 8, 1 << 13, 1 << 16, 1 << 30, 1 << 31][random.below(6)];
    let bound = [1, 4, 100][random.below(3)];
    let near = size + random.below(bound) as u32;
    if random.below(2) == 0 { near } else { near.wrapping_neg() }
}

/// Changes bytes of a saved flow, or its numbers: most of them sequence numbers of the hosts.
fn change(random: &mut Random, hosts: &[Host; 2], flow: &mut [u8]) {
    let number = |flow: &[u8], at: usize| u32::from_le_bytes(flow[at..at + 4].try_into().unwrap());
    let is_sequence = |number: u32| {
        hosts.iter().any(|host| number.wrapping_sub(host.start).wrapping_add(9) < 1 << 11)
    };
    let places = 0..flow.len() - 4;
    let sequences: Vec<usize> =
        places.clone().filter(|at| is_sequence(number(flow, *at))).collect();
    for _ in 0..=random.below(3) {
        let any = random.below(places.len());
        match random.below(6) {
            0 => flow[any] = random.next() as u8,
            1 => flow[any..any + 2].copy_from_slice(&random.next().to_le_bytes()[..2]),
            _ => {
                let at = sequences.get(random.below(sequences.len() + 1)).map_or(any, |at| *at);
                let number = number(flow, at).wrapping_add(difference(random));
                flow[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        }
    }
}

/// A conversation up to some message, of which some segments have come.
fn part_of(random: &mut Random, conversation: &Conversation) -> Link {
    let mut link = conversation.open();
    let last = random.below(conversation.messages.len());
    for (number, (from, text)) in conversation.messages[..=last].iter().enumerate() {
        let start = link.write(*from, text);
        if number < last {
            link.send(*from, start, start + text.len());
            link.repeat_until_acknowledged(*from);
            continue;
        }
        let mut cuts = random_cuts(random, text.len());
        cuts.truncate(1 + random.below(cuts.len()));
        for (first, end) in cuts {
            let packet = link.hosts[*from as usize].segment(start + first, start + end, false);
            // The other host may lack what has left.
            for (to, packet) in link.process(*from, &packet) {
                if random.below(2) == 0 {
                    link.hosts[to as usize].receive(&packet);
                }
            }
        }
    }
    link
}

/// Damaged records give no flow, or one that passes whatever comes.
#[test]
fn flows_that_mean_something_else_are_taken_or_not() {
    let seed = std::env::var("NATGATE_SEED").map_or(11, |seed| seed.parse().expect("a number"));
    println!("NATGATE_SEED={seed}");
    let mut random = Random(seed);
    let conversations = conversations();
    let (mut taken, mut refused) = (0, 0);
    for round in 0..60_000 {
        let conversation = &conversations[round % conversations.len()];
        let mut link = part_of(&mut random, conversation);
        let Some(mut flow) = link.payloads.save(mark).next() else { continue };
        let mut heir = Payloads::new(LIMITS, [9; 32]);
        assert_eq!(heir.restore(&flow, realm, |_, _, _| true), Ok(()), "a flow as it was saved");
        change(&mut random, &link.hosts, &mut flow);
        let mut heir = Payloads::new(LIMITS, [9; 32]);
        if heir.restore(&flow, realm, |_, _, _| true).is_err() {
            assert_eq!(heir.free_buffers(), 4, "a refused flow gives its buffers back");
            refused += 1;
            continue;
        }
        taken += 1;
        link.payloads = heir;
        for _ in 0..12 {
            let from = [Inside, Outside][random.below(2)];
            let host = &mut link.hosts[from as usize];
            let (start, other_start) = (host.start, host.other_start);
            if random.below(2) == 0 {
                host.start = start.wrapping_add(difference(&mut random));
            }
            if random.below(2) == 0 {
                host.other_start = other_start.wrapping_add(difference(&mut random));
            }
            let end = random.below(host.written.len() + 1);
            let packet = match random.below(8) {
                0 => host.acknowledgment(),
                1 => host.reset(),
                _ => host.segment(random.below(end + 1), end, random.below(8) == 0),
            };
            (host.start, host.other_start) = (start, other_start);
            link.pass(from, &packet);
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}
