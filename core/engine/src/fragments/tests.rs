//! Fragments in every order, fragments that contradict each other, and the passage of time.
//! `tests/room.rs` tests floods. `tests/model.rs` compares random operations with a model in plain
//! maps.

mod model;
mod room;

use super::datagrams::tick_of;
use super::*;
use crate::packet::Outcome;
use crate::random::Generator;
use alloc::vec;
use alloc::vec::Vec;

const SECOND: u64 = 1_000_000_000;
const TIMEOUT: Duration = Duration::from_secs(2);
const REMOTE: u32 = 0xc633_6402;
const REWRITE: Rewrite = Rewrite {
    source: 0xcb00_7101,
    destination: REMOTE,
    identification: 0x4321,
    out: Side::Outside,
    realm: 0,
    direction: Direction::Outbound,
};

/// A fragment that a sender makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    source: u32,
    destination: u32,
    protocol: u8,
    identification: u16,
    ttl: u8,
    start: usize,
    len: usize,
    more: bool,
    header_len: usize,
}

impl Sent {
    /// Bytes of the packet. Each payload byte contains its place in the datagram.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.header_len + self.len];
        let mut packet = Ipv4::init(&mut bytes, self.header_len);
        packet.set_total_len((self.header_len + self.len) as u16);
        packet.set_identification(self.identification);
        packet.set_fragment_field((self.start / 8) as u16 | if self.more { 0x2000 } else { 0 });
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.protocol);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        packet.fill_checksum();
        for (i, byte) in packet.payload_mut().iter_mut().enumerate() {
            *byte = ((self.start + i) % 251) as u8;
        }
        bytes
    }

    fn rewritten(self) -> Self {
        let Rewrite { source, destination, identification, .. } = REWRITE;
        Self { source, destination, identification, ttl: self.ttl - 1, ..self }
    }

    fn id(self, identification: u16) -> Self {
        Self { identification, ..self }
    }

    fn from(self, host: u32) -> Self {
        Self { source: 0x0a00_0000 + host, ..self }
    }
}

/// The payload bytes `start..end` of a UDP datagram.
fn part(start: usize, end: usize, more: bool) -> Sent {
    Sent {
        source: 0x0a00_0001,
        destination: REMOTE,
        protocol: protocol::UDP,
        identification: 7,
        ttl: 64,
        start,
        len: end - start,
        more,
        header_len: 20,
    }
}

fn middle(start: usize, end: usize) -> Sent {
    part(start, end, true)
}

fn last(start: usize, end: usize) -> Sent {
    part(start, end, false)
}

/// A table of fragments, used like the engine uses it.
struct World {
    fragments: Fragments,
    blocks: usize,
    counters: Counters,
    now: Timestamp,
}

impl World {
    fn new(memory: usize) -> Self {
        let most = Limits::MOST_FRAGMENTS;
        let limits =
            Limits { fragment_memory: memory, fragments_per_datagram: most, ..Limits::default() };
        Self::of(Fragments::new(&limits, TIMEOUT, hash_key()))
    }

    fn sized(capacity: usize, blocks: usize) -> Self {
        Self::of(Fragments::sized(capacity, blocks, TIMEOUT, hash_key()))
    }

    fn of(fragments: Fragments) -> Self {
        let blocks = fragments.store.free_blocks();
        Self { fragments, blocks, counters: Counters::default(), now: Timestamp(0) }
    }

    fn first(&mut self, sent: Sent, rewrite: Option<Rewrite>) -> Result<(), DropReason> {
        self.first_on(Side::Inside, sent, rewrite)
    }

    fn first_on(
        &mut self,
        side: Side,
        sent: Sent,
        rewrite: Option<Rewrite>,
    ) -> Result<(), DropReason> {
        let fragment = fragment(side, &sent.bytes());
        self.fragments.first(self.now, &fragment, &mut self.counters)?;
        self.fragments.decided(self.now, &fragment, rewrite, &mut self.counters);
        Ok(())
    }

    fn later(&mut self, sent: Sent) -> Later {
        self.later_on(Side::Inside, sent)
    }

    fn later_on(&mut self, side: Side, sent: Sent) -> Later {
        let bytes = sent.bytes();
        self.fragments.later(self.now, &fragment(side, &bytes), &bytes, &mut self.counters)
    }

    /// Everything released, oldest first.
    fn released(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buffer = vec![0; 65_535];
        while let Some(released) = self.fragments.poll_released(&mut buffer) {
            assert_eq!((released.out, released.direction), (REWRITE.out, REWRITE.direction));
            packets.push(buffer[..released.len].to_vec());
        }
        packets
    }

    fn advance(&mut self, to: u64) {
        self.now = Timestamp(to);
        self.fragments.advance(self.now, &mut self.counters);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.counters.drops[reason as usize]
    }

    /// True if no state is left.
    fn is_pristine(&self) -> bool {
        let fragments = &self.fragments;
        fragments.datagrams.len() == 0
            && fragments.sources.len() == 0
            && fragments.unsettled == 0
            && fragments.oldest == NONE
            && fragments.newest == NONE
            && fragments.store.free_blocks() == self.blocks
    }
}

fn hash_key() -> HashKey {
    HashKey::new(&mut Generator::new([1; 32]))
}

fn fragment(side: Side, bytes: &[u8]) -> Fragment {
    let packet = Ipv4::new_checked(bytes).expect("a whole packet");
    Fragment::of(side, &packet).expect("a fragment")
}

const MEMORY: usize = 1 << 20;
const APPLY: Later = Later::Apply(REWRITE);
const OVERLAP: DropReason = DropReason::FragmentOverlap;
const UNMATCHED: DropReason = DropReason::FragmentUnmatched;
const LIMIT: DropReason = DropReason::FragmentLimit;
const TOO_LONG: DropReason = DropReason::FragmentTooLong;
const TINY: DropReason = DropReason::FragmentTiny;

#[test]
fn a_whole_datagram_is_no_fragment() {
    let bytes = last(0, 100).bytes();
    let packet = Ipv4::new_checked(bytes.as_slice()).expect("a whole packet");
    assert!(Fragment::of(Side::Inside, &packet).is_none());
}

#[test]
fn in_order_each_fragment_goes_on_at_once() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(middle(1480, 2960)), APPLY);
    assert_eq!(world.later(last(2960, 3001)), APPLY);
    assert!(world.is_pristine());
}

#[test]
fn rewriting_is_as_if_the_sender_had_sent_it_so() {
    for header_len in [20, 24, 60] {
        let sent = Sent { header_len, ..middle(1480, 2960) };
        let mut bytes = sent.bytes();
        REWRITE.apply(&mut bytes);
        assert_eq!(bytes, sent.rewritten().bytes());
    }
}

//= test rfc4787#REQ-14
#[test]
fn what_comes_before_the_first_waits_for_it() {
    let mut world = World::new(MEMORY);
    let (a, b, c) = (last(2960, 3001), middle(1480, 2960), last(2960, 2999).id(8));
    assert_eq!(world.later(a), Later::Held);
    assert_eq!(world.later(c), Later::Held);
    assert_eq!(world.later(b), Later::Held);
    world.advance(SECOND);
    assert_eq!(world.fragments.next_released(), None);
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.fragments.next_released(), Some(Timestamp(SECOND)));
    assert_eq!(world.released(), [a.rewritten().bytes(), b.rewritten().bytes()]);
    world.advance(10 * SECOND);
    assert_eq!(world.dropped(UNMATCHED), 1);
    assert!(world.is_pristine());
}

#[test]
fn after_the_first_the_rest_may_come_in_any_order() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.later(middle(1480, 2960)), Later::Held);
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(4440, 4500)), APPLY);
    assert_eq!(world.later(middle(2960, 4440)), APPLY);
    assert_eq!(world.released().len(), 1);
    assert!(world.is_pristine());
}

#[test]
fn fragments_of_any_size_come_back_whole() {
    let mut world = World::new(MEMORY);
    let sizes = [8, 480, 488, 496, 1000, 1008, 9000, 30_000];
    let mut sent = Vec::new();
    let mut start = 8;
    for size in sizes {
        sent.push(middle(start, start + size));
        start += size;
    }
    sent.push(last(start, start + 1));
    for &fragment in &sent {
        assert_eq!(world.later(fragment), Later::Held);
    }
    assert_eq!(world.first(middle(0, 8), Some(REWRITE)), Ok(()));
    let expected: Vec<_> = sent.iter().map(|s| s.rewritten().bytes()).collect();
    assert_eq!(world.released(), expected);
    assert!(world.is_pristine());
}

#[test]
fn a_refused_first_takes_the_rest_with_it() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.later(last(1480, 1500)), Later::Held);
    assert_eq!(world.first(middle(0, 1480), None), Ok(()));
    assert_eq!(world.dropped(UNMATCHED), 1);
    assert_eq!(world.later(last(1480, 1500)), Later::Drop(UNMATCHED));
    // Nothing went on, so the sender may try again.
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 1500)), APPLY);
    assert!(world.is_pristine());
}

#[test]
fn drops_of_waiting_fragments_are_counted_by_side_with_their_length() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.later_on(Side::Inside, last(1480, 1500)), Later::Held);
    assert_eq!(world.later_on(Side::Outside, last(1480, 1600)), Later::Held);
    world.advance(10 * SECOND);
    let dropped = Outcome::Dropped as usize;
    assert_eq!(world.counters.packets[Direction::Outbound as usize][dropped], 1);
    assert_eq!(world.counters.bytes[Direction::Outbound as usize][dropped], 40);
    assert_eq!(world.counters.packets[Direction::Inbound as usize][dropped], 1);
    assert_eq!(world.counters.bytes[Direction::Inbound as usize][dropped], 140);
    assert_eq!(world.dropped(UNMATCHED), 2);
}

#[test]
fn datagrams_are_told_apart_by_all_of_their_key() {
    let others = [
        last(1480, 1500).id(8),
        last(1480, 1500).from(2),
        Sent { destination: REMOTE + 1, ..last(1480, 1500) },
        Sent { protocol: protocol::ICMP, ..last(1480, 1500) },
    ];
    let mut world = World::new(MEMORY);
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    for other in others {
        assert_eq!(world.later(other), Later::Held);
    }
    assert_eq!(world.later_on(Side::Outside, last(1480, 1500)), Later::Held);
    assert_eq!(world.later(last(1480, 1500)), APPLY);
}

#[test]
fn every_part_of_a_key_is_hashed() {
    let key = fragment(Side::Inside, &last(80, 90).bytes()).key;
    let keys = [
        key,
        Key { side: Side::Outside, ..key },
        Key { source: key.source ^ 1, ..key },
        Key { destination: key.destination ^ 1, ..key },
        Key { protocol: key.protocol ^ 1, ..key },
        Key { identification: key.identification ^ 1, ..key },
        Key { identification: key.identification ^ 0x8000, ..key },
    ];
    for (i, one) in keys.iter().enumerate() {
        assert!(keys[..i].iter().all(|other| other.words() != one.words()), "{one:?}");
    }
}

#[test]
fn a_repeated_fragment_is_dropped_and_harms_nothing() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.later(last(1480, 1500)), Later::Held);
    assert_eq!(world.later(last(1480, 1500)), Later::Drop(OVERLAP));
    assert_eq!(world.first(middle(0, 800), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 1500)), Later::Drop(OVERLAP));
    assert_eq!(world.first(middle(0, 800), Some(REWRITE)), Err(OVERLAP));
    assert_eq!(world.later(middle(800, 1480)), APPLY);
    assert_eq!(world.released(), [last(1480, 1500).rewritten().bytes()]);
    assert_eq!(world.counters, Counters::default());
}

/// Pieces that have come, and a piece that contradicts them.
fn contradictions() -> Vec<(Vec<Sent>, Sent)> {
    vec![
        // Into the end of a piece, into the start of a piece, around it, within it.
        (vec![middle(80, 160)], middle(152, 240)),
        (vec![middle(80, 160)], middle(40, 88)),
        (vec![middle(80, 160)], middle(40, 240)),
        (vec![middle(80, 160)], middle(88, 96)),
        // The same start or the same end.
        (vec![middle(80, 160)], middle(80, 168)),
        (vec![middle(80, 160)], middle(80, 152)),
        (vec![middle(80, 160)], middle(152, 160)),
        // Filling a gap and more; several whole pieces.
        (vec![middle(80, 160), middle(240, 320)], middle(160, 248)),
        (vec![middle(80, 160), middle(160, 240)], middle(80, 240)),
        // Beyond the end, and ends that contradict each other.
        (vec![last(240, 250)], middle(256, 264)),
        (vec![last(240, 250)], last(248, 260)),
        (vec![last(240, 250)], last(80, 90)),
        (vec![last(240, 250)], last(400, 410)),
        (vec![middle(240, 256)], last(80, 90)),
        // The same range, once as the last and once not.
        (vec![middle(80, 160)], last(80, 160)),
        (vec![last(80, 160)], middle(80, 160)),
    ]
}

#[test]
fn a_contradiction_before_the_first_discards_the_datagram() {
    for (seen, offender) in contradictions() {
        let mut world = World::new(MEMORY);
        for &fragment in &seen {
            assert_eq!(world.later(fragment), Later::Held);
        }
        assert_eq!(world.later(offender), Later::Drop(OVERLAP), "{seen:?} {offender:?}");
        assert_eq!(world.dropped(OVERLAP), seen.len() as u64);
        assert_eq!(world.first(middle(0, 80), Some(REWRITE)), Err(OVERLAP));
        assert_eq!(world.later(middle(800, 808)), Later::Drop(OVERLAP));
        assert_eq!(world.released(), Vec::<Vec<u8>>::new());
        assert_eq!(world.fragments.store.free_blocks(), world.blocks);
    }
}

#[test]
fn a_contradiction_after_the_first_stops_the_datagram() {
    for (seen, offender) in contradictions() {
        let mut world = World::new(MEMORY);
        assert_eq!(world.first(middle(0, 8), Some(REWRITE)), Ok(()));
        for &fragment in &seen {
            assert_eq!(world.later(fragment), APPLY);
        }
        assert_eq!(world.later(offender), Later::Drop(OVERLAP), "{seen:?} {offender:?}");
        assert_eq!(world.later(middle(800, 808)), Later::Drop(OVERLAP));
        assert_eq!(world.first(middle(0, 8), Some(REWRITE)), Err(OVERLAP));
    }
}

#[test]
fn a_first_that_overlaps_discards_the_datagram() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.later(last(80, 100)), Later::Held);
    assert_eq!(world.first(middle(0, 88), Some(REWRITE)), Err(OVERLAP));
    assert_eq!(world.dropped(OVERLAP), 1);
    assert_eq!(world.first(middle(0, 80), Some(REWRITE)), Err(OVERLAP));
    world.advance(2 * SECOND);
    assert!(world.is_pristine());
}

#[test]
fn a_datagram_discarded_during_the_translation_of_its_first_stays_so() {
    let mut world = World::new(MEMORY);
    let bytes = middle(0, 80).bytes();
    let first = fragment(Side::Inside, &bytes);
    assert_eq!(world.fragments.first(world.now, &first, &mut world.counters), Ok(()));
    assert_eq!(world.later(last(80, 100)), Later::Held);
    assert_eq!(world.later(last(88, 100)), Later::Drop(OVERLAP));
    world.fragments.decided(world.now, &first, Some(REWRITE), &mut world.counters);
    assert_eq!(world.later(middle(200, 208)), Later::Drop(OVERLAP));
    assert_eq!(world.released(), Vec::<Vec<u8>>::new());
}

#[test]
fn the_last_byte_is_number_65_535_of_the_packet() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.later(last(65_000, 65_515)), Later::Held);
    assert_eq!(world.later(last(65_000, 65_516).id(8)), Later::Drop(TOO_LONG));
    let with_options = Sent { header_len: 24, ..last(65_000, 65_512) };
    assert_eq!(world.later(with_options.id(9)), Later::Drop(TOO_LONG));
    assert_eq!(world.later(Sent { len: 511, ..with_options }.id(10)), Later::Held);
}

#[test]
fn a_fragment_that_is_too_long_discards_its_datagram() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.later(middle(80, 160)), Later::Held);
    assert_eq!(world.later(last(65_528, 66_000)), Later::Drop(TOO_LONG));
    assert_eq!(world.dropped(TOO_LONG), 1);
    assert_eq!(world.first(middle(0, 80), Some(REWRITE)), Err(TOO_LONG));
    // A fragment that is too long arrives before the first of its datagram, and after the first was
    // translated.
    assert_eq!(world.later(last(65_528, 66_000).id(8)), Later::Drop(TOO_LONG));
    assert_eq!(world.first(middle(0, 80).id(8), Some(REWRITE)), Err(TOO_LONG));
    assert_eq!(world.first(middle(0, 80).id(9), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(65_528, 66_000).id(9)), Later::Drop(TOO_LONG));
    assert_eq!(world.later(last(80, 90).id(9)), Later::Drop(TOO_LONG));
}

#[test]
fn what_no_honest_sender_makes_is_dropped_alone() {
    let tcp = |sent| Sent { protocol: protocol::TCP, ..sent };
    let mut world = World::new(MEMORY);
    for later in
        [middle(80, 80), last(80, 80), middle(80, 87), tcp(last(8, 100)), tcp(middle(16, 24))]
    {
        assert_eq!(world.later(later), Later::Drop(TINY));
    }
    for first in [middle(0, 0), middle(0, 12), tcp(middle(0, 16))] {
        assert_eq!(world.first(first, Some(REWRITE)), Err(TINY));
    }
    assert!(world.is_pristine());
    assert_eq!(world.first(tcp(middle(0, 24)), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(tcp(last(24, 25))), APPLY);
}

#[test]
fn a_datagram_has_so_many_fragments_and_no_more() {
    let mut world = World::new(MEMORY);
    let count = MAX_PIECES - 1;
    for i in 1..=count {
        assert_eq!(world.later(middle(8 * i, 8 * i + 8)), Later::Held);
    }
    assert_eq!(world.later(middle(8, 16)), Later::Drop(OVERLAP), "a repetition, not too many");
    assert_eq!(world.first(middle(0, 8), Some(REWRITE)), Ok(()));
    assert_eq!(world.released().len(), count);
    let end = 8 * MAX_PIECES;
    assert_eq!(world.later(middle(end, end + 8)), Later::Drop(LIMIT));
    assert_eq!(world.later(last(end, end + 3)), Later::Drop(LIMIT));
}

#[test]
fn a_limit_of_fragments_holds_for_datagrams_that_have_begun() {
    let mut world = World::new(MEMORY);
    assert_eq!(world.first(middle(0, 8), Some(REWRITE)), Ok(()));
    world.fragments.set_most(3);
    assert_eq!(world.later(middle(8, 16)), APPLY);
    assert_eq!(world.later(middle(16, 24)), APPLY);
    assert_eq!(world.later(middle(24, 32)), Later::Drop(LIMIT));
    // The datagram is discarded, and a larger limit does not bring it back.
    world.fragments.set_most(9);
    assert_eq!(world.later(last(24, 30)), Later::Drop(LIMIT));
}

#[test]
fn the_largest_datagram_in_packets_of_576_bytes_passes_in_any_order() {
    let pieces: Vec<Sent> = (0..65_515)
        .step_by(552)
        .map(|s| part(s, (s + 552).min(65_515), s + 552 < 65_515))
        .collect();
    for backwards in [false, true] {
        let mut world = World::new(16 << 20);
        let mut pieces = pieces.clone();
        if backwards {
            pieces.reverse();
        }
        for &sent in &pieces {
            if sent.start == 0 {
                assert_eq!(world.first(sent, Some(REWRITE)), Ok(()));
            } else {
                let fate = world.later(sent);
                assert_eq!(fate, if backwards { Later::Held } else { APPLY });
            }
        }
        assert_eq!(world.released().len(), if backwards { pieces.len() - 1 } else { 0 });
        assert!(world.is_pristine());
    }
}

#[test]
fn an_identification_may_be_used_again_when_its_datagram_is_whole() {
    let mut world = World::new(MEMORY);
    for _ in 0..3 {
        assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
        assert_eq!(world.later(last(1480, 1500)), APPLY);
        assert_eq!(world.later(last(1480, 1500)), Later::Held);
        assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
        assert_eq!(world.released().len(), 1);
    }
    assert!(world.is_pristine());
}

/// Everything is forgotten at the first tick that is not before the arrival of its first fragment
/// plus the timeout, whatever comes in between.
#[test]
fn the_timeout_ends_at_its_tick() {
    let tick = SECOND / 8;
    for (arrival, due) in [(0, 16 * tick), (1, 17 * tick), (tick, 17 * tick), (tick + 1, 18 * tick)]
    {
        let mut world = World::new(MEMORY);
        world.advance(arrival);
        assert_eq!(world.later(last(1480, 1500)), Later::Held);
        assert_eq!(world.first(middle(0, 80).id(8), Some(REWRITE)), Ok(()));
        assert_eq!(world.first(middle(0, 80).id(9), None), Ok(()));
        assert_eq!(world.fragments.next_deadline(), Some(Timestamp(due)));
        world.advance(due - 1);
        assert_eq!(world.later(middle(80, 160)), Later::Held);
        assert_eq!(world.later(middle(80, 160).id(8)), APPLY);
        assert_eq!(world.later(middle(80, 160).id(9)), Later::Drop(UNMATCHED));
        assert_eq!(world.fragments.next_deadline(), Some(Timestamp(due)));
        assert_eq!(world.dropped(UNMATCHED), 0);
        world.advance(due);
        assert_eq!(world.dropped(UNMATCHED), 2);
        assert!(world.is_pristine());
        assert_eq!(world.fragments.next_deadline(), None);
        assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
        assert_eq!(world.released(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn ticks_do_not_overflow() {
    assert!(tick_of(Timestamp(u64::MAX)) == Timestamp(u64::MAX));
    let mut world = World::new(MEMORY);
    world.advance(u64::MAX - 1);
    assert_eq!(world.later(last(1480, 1500)), Later::Held);
    world.advance(u64::MAX);
    assert!(world.is_pristine());
}
