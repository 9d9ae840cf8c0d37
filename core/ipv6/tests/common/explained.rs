//! An explanation against the fate of the same packet right afterwards.

use natgate_engine::{
    Counters, Direction, DropReason, Engine, Outcome, Packet, Side, Timestamp, Verdict,
};
use natgate_ipv6::{FamilyBecomes, FamilyEnd, FamilyExplanation, Fate, Translator};
use natgate_wire::{Ipv4, Ipv6};
use std::net::IpAddr;

/// Takes a packet that has been explained, and compares the explanation with its fate.
pub(crate) fn take(
    translator: &mut Translator,
    engine: &mut Engine,
    (now, from): (Timestamp, Side),
    packet: &mut Packet<'_>,
) -> Fate {
    let came = packet.bytes().to_vec();
    let mut explained = FamilyExplanation::new();
    translator.explain(engine, now, from, packet, &mut explained);
    assert_eq!(packet.bytes(), came, "an explanation changes nothing");
    let before = counters(engine, translator);
    let fate = translator.take(engine, now, from, packet);
    let after = counters(engine, translator);
    check(&explained, (&came, from), (fate, packet), [&before, &after]);
    fate
}

/// The counters of both together.
fn counters(engine: &Engine, translator: &Translator) -> Counters {
    let (mut sum, others) = (engine.counters().clone(), translator.counters());
    let ways = sum.packets.iter_mut().flatten().chain(&mut sum.drops);
    let others = others.packets.iter().flatten().chain(&others.drops);
    ways.zip(others).for_each(|(count, other)| *count = count.wrapping_add(*other));
    sum
}

/// Compares an explanation with a packet's fate. `before` and `after` are the counters around the
/// packet, which came alone.
fn check(
    explained: &FamilyExplanation,
    (came, from): (&[u8], Side),
    (fate, packet): (Fate, &Packet<'_>),
    [before, after]: [&Counters; 2],
) {
    if !explained.is_certain {
        return;
    }
    let what = || {
        let steps = (explained.steps(), explained.engine.steps());
        format!("of {came:02x?} from {from:?}, explained by {steps:?}")
    };
    let dropped = |reason: &DropReason| {
        let count = |counters: &Counters| counters.drops[*reason as usize];
        count(after) != count(before)
    };
    let reason = DropReason::ALL.iter().copied().find(dropped);
    let verdict = match fate {
        Fate::Send(departure) if departure.answers => Verdict::Reply(departure.side),
        Fate::Send(departure) => Verdict::Forward(departure.side),
        Fate::HandOver(_) => Verdict::HandOver,
        Fate::Nothing | Fate::Local => reason.map_or(Verdict::Held, Verdict::Drop),
    };
    let counts = |direction: Direction| {
        let total = |all: &Counters| {
            let of = |outcome: &Outcome| all.packets[direction as usize][*outcome as usize];
            Outcome::ALL.iter().map(of).fold(0, u64::wrapping_add)
        };
        total(after) != total(before)
    };
    // The gateway takes note of a report, and nothing leaves.
    let is_taken = verdict == Verdict::Held && counts(Direction::Local);
    let said = match explained.verdict {
        Verdict::Reply(_) if is_taken && explained.becomes.is_none() => Verdict::Held,
        verdict => verdict,
    };
    assert_eq!(said, verdict, "{}", what());
    if verdict != Verdict::Held {
        assert!(counts(explained.direction), "as {:?}, {}", explained.direction, what());
    }
    let leaves = matches!(fate, Fate::Send(_));
    assert_eq!(explained.becomes.is_some(), leaves, "{}", what());
    if let Some(becomes) = &explained.becomes {
        same_ends(becomes, packet.bytes(), &what);
    }
}

/// The ends of a packet, and its length.
fn ends(bytes: &[u8]) -> (IpAddr, IpAddr, u8, usize) {
    match bytes[0] >> 4 {
        6 => {
            let header = Ipv6::new_checked(bytes).expect("a packet");
            let at = header.walk().map_or(bytes.len(), |walk| walk.transport);
            let (from, to) = (header.source().to_be_bytes(), header.destination().to_be_bytes());
            let next = header.walk().map_or(59, |walk| walk.protocol);
            (from.into(), to.into(), next, at)
        }
        _ => {
            let header = Ipv4::new_checked(bytes).expect("a packet");
            let (from, to) = (header.source().to_be_bytes(), header.destination().to_be_bytes());
            (from.into(), to.into(), header.protocol(), header.header_len())
        }
    }
}

fn same_ends(becomes: &FamilyBecomes, bytes: &[u8], what: &impl Fn() -> String) {
    let (mut inner, mut outer) = (bytes, None);
    let (from, to, next, at) = ends(bytes);
    // A tunnel's fragment has no whole packet.
    if let (IpAddr::V6(br), IpAddr::V6(customer), 4) = (from, to, next)
        && Ipv4::new_checked(&bytes[at..]).is_ok()
    {
        outer = Some((br.to_bits(), customer.to_bits()));
        inner = &bytes[at..];
    }
    let tunnel = becomes.tunnel.map(|tunnel| (tunnel.br, tunnel.customer));
    assert_eq!(tunnel, outer, "{}", what());
    assert_eq!(becomes.len, bytes.len(), "{}", what());
    let (from, to, protocol, at) = ends(inner);
    let places = if matches!(protocol, 1 | 58) { [4, 4] } else { [0, 2] };
    let both = [(becomes.source, from, places[0]), (becomes.destination, to, places[1])];
    for (FamilyEnd { address, port }, real, place) in both {
        assert!(address.is_none_or(|address| address == real), "{real}, {}", what());
        if let Some(port) = port {
            let real = &inner[at + place..][..2];
            assert_eq!(port.to_be_bytes(), real, "{}", what());
        }
    }
}
