//! What comes of fragments in every order, of those that contradict each other, of floods, and of
//! time; at the end, random operations against a model in plain maps.

use super::coverage::MAX_PIECES;
use super::*;
use crate::packet::Outcome;
use crate::random::Generator;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

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

/// A fragment as its sender makes it.
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
    /// The payload has its place in the datagram written all over it.
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

/// A table, as the engine uses it.
struct World {
    fragments: Fragments,
    blocks: usize,
    counters: Counters,
    now: Timestamp,
}

impl World {
    fn new(memory: usize) -> Self {
        Self::of(Fragments::new(memory, TIMEOUT, hash_key()))
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

    /// Whether nothing is left of what came.
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

/// What has come, and what contradicts it.
fn contradictions() -> Vec<(Vec<Sent>, Sent)> {
    vec![
        // One byte into the piece before, one piece into the piece after, around, within.
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
    // As the first of its datagram to arrive, and after the first was translated.
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

/// Everything is forgotten at the first tick not before the arrival of its first fragment plus the
/// timeout, whatever comes in between.
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

#[test]
fn a_source_holds_an_eighth_of_the_memory() {
    let mut world = World::new(MEMORY);
    let share = MEMORY / BLOCK / 8;
    let held = (0..1000).filter(|&id| world.later(last(1480, 2960).id(id)) == Later::Held).count();
    assert_eq!(held, share / Store::blocks(1500));
    assert_eq!(world.later(last(1480, 2960).id(2000)), Later::Drop(LIMIT));
    // What could not be kept leaves no trace, and others still have room.
    assert_eq!(world.fragments.datagrams.len(), held);
    assert_eq!(world.later(last(1480, 2960).from(2)), Later::Held);
    assert_eq!(world.later_on(Side::Outside, last(1480, 2960)), Later::Held);
    // The first fragment makes room again.
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 2960).id(2000)), Later::Held);
}

#[test]
fn all_sources_hold_no_more_than_the_memory() {
    let mut world = World::new(MEMORY);
    let mut held = 0;
    for host in 0..20 {
        for id in 0..50 {
            held += usize::from(world.later(last(1480, 5000).from(host).id(id)) == Later::Held);
        }
    }
    assert!((MEMORY / BLOCK - 7..=MEMORY / BLOCK).contains(&(held * 7)), "{held}");
    world.advance(2 * SECOND);
    assert_eq!(world.dropped(UNMATCHED), held as u64);
    assert!(world.is_pristine());
}

#[test]
fn released_fragments_take_memory_until_they_are_fetched() {
    let mut world = World::sized(64, 4);
    assert_eq!(world.later(last(1480, 2960)), Later::Held);
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 2960).id(8)), Later::Drop(LIMIT));
    assert_eq!(world.released().len(), 1);
    assert_eq!(world.later(last(1480, 2960).id(8)), Later::Held);
}

#[test]
fn without_memory_only_order_helps() {
    let mut world = World::new(0);
    assert_eq!(world.later(last(1480, 1500)), Later::Drop(LIMIT));
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 1500)), APPLY);
    assert!(world.is_pristine());
}

#[test]
fn the_memory_told_is_in_proportion() {
    let default = Fragments::memory(16 << 20);
    assert!((16 << 20..28 << 20).contains(&default), "{default}");
    assert!(Fragments::memory(0) < 1 << 20);
}

/// Datagrams in order from another source, while a flood goes on.
fn bystander_passes(world: &mut World, id: u16) {
    assert_eq!(world.first(middle(0, 1480).from(99).id(id), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 1500).from(99).id(id)), APPLY);
}

//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_first_fragments_from_one_source_hurts_nobody_else() {
    for rewrite in [Some(REWRITE), None] {
        let mut world = World::new(MEMORY);
        let mut passed = 0;
        for id in 0..3000 {
            passed += usize::from(world.first(middle(0, 1480).id(id), rewrite).is_ok());
            bystander_passes(&mut world, id);
        }
        // A ninth of the table is an eighth of the rest.
        assert_eq!(passed, 1024_usize.div_ceil(9) - 1);
        assert_eq!(world.later(last(1480, 1500).from(99)), Later::Held);
    }
}

/// However many sources send first fragments that pass, who has nothing in the table gets a place.
//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_translated_first_fragments_leaves_others_a_place() {
    let mut world = World::new(MEMORY);
    for id in 0..3000 {
        for host in 100..116 {
            let _ = world.first(middle(0, 1480).from(host).id(id), Some(REWRITE));
        }
        bystander_passes(&mut world, id);
    }
}

//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_later_fragments_from_one_source_hurts_nobody_else() {
    let mut world = World::new(MEMORY);
    let mut held = 0;
    for id in 0..3000 {
        held += usize::from(world.later(last(1480, 1500).id(id)) == Later::Held);
        bystander_passes(&mut world, id);
    }
    assert_eq!(held, 1024_usize.div_ceil(9) - 1);
    assert_eq!(world.later(last(1480, 1500).from(99)), Later::Held);
    assert_eq!(world.first(middle(0, 1480).from(99), Some(REWRITE)), Ok(()));
    assert_eq!(world.released().len(), 1);
}

//= test rfc4787#REQ-14a
#[test]
fn a_flood_from_many_sources_leaves_room_for_datagrams_in_order() {
    let mut world = World::new(MEMORY);
    for host in 100..3000 {
        let _ = world.later(last(1480, 1500).from(host));
        let _ = world.later(last(65_528, 66_000).from(host).id(8));
        let _ = world.first(middle(0, 80).from(host).id(9), None);
        bystander_passes(&mut world, host as u16);
    }
    assert_eq!(world.fragments.datagrams.len(), 512);
    assert_eq!(world.later(last(1480, 1500)), Later::Drop(LIMIT));
    assert_eq!(world.later(last(65_528, 66_000)), Later::Drop(TOO_LONG));
    world.advance(3 * SECOND);
    assert!(world.is_pristine());
}

#[test]
fn a_full_table_refuses_first_fragments_too() {
    let mut world = World::sized(16, 64);
    for host in 0..16 {
        assert_eq!(world.first(middle(0, 80).from(host), Some(REWRITE)), Ok(()));
    }
    assert_eq!(world.first(middle(0, 80).from(20), Some(REWRITE)), Err(LIMIT));
    assert_eq!(world.later(last(80, 90).from(3)), APPLY);
    assert_eq!(world.first(middle(0, 80).from(20), Some(REWRITE)), Ok(()));
}

/// The same rules over maps and vectors.
#[derive(Default)]
struct Model {
    capacity: usize,
    blocks: usize,
    datagrams: BTreeMap<(u32, u16), ModelDatagram>,
    drops: BTreeMap<DropReason, u64>,
    released: Vec<Vec<u8>>,
}

struct ModelDatagram {
    due: u64,
    pieces: Vec<Sent>,
    waiting: Vec<Sent>,
    state: State,
}

fn blocks(sent: &Sent) -> usize {
    (sent.header_len + sent.len).div_ceil(BLOCK)
}

fn end(sent: &Sent) -> usize {
    sent.start + sent.len
}

impl Model {
    fn blocks_of(&self, host: Option<u32>) -> usize {
        self.datagrams
            .iter()
            .filter(|(key, _)| host.is_none_or(|h| h == key.0))
            .flat_map(|(_, datagram)| &datagram.waiting)
            .map(blocks)
            .sum()
    }

    fn fits_memory(&self, sent: &Sent) -> bool {
        self.blocks_of(None) + blocks(sent) <= self.blocks
            && self.blocks_of(Some(sent.source)) + blocks(sent) <= (self.blocks / 8).max(4)
    }

    fn unsettled(&self) -> usize {
        let settled = |d: &&ModelDatagram| matches!(d.state, State::Translated(_));
        self.datagrams.len() - self.datagrams.values().filter(settled).count()
    }

    /// Whether there is, or may be, a record of this datagram.
    fn open(&mut self, now: u64, key: (u32, u16)) -> bool {
        if self.datagrams.contains_key(&key) {
            return true;
        }
        let of_source = self.datagrams.keys().filter(|other| other.0 == key.0).count();
        let free = self.capacity - self.datagrams.len();
        if free == 0 || of_source > 0 && of_source >= free / 8 {
            return false;
        }
        let tick = SECOND / 8;
        let due = (now + 2 * SECOND).div_ceil(tick) * tick;
        let (pieces, waiting) = (Vec::new(), Vec::new());
        self.datagrams.insert(key, ModelDatagram { due, pieces, waiting, state: State::Open });
        true
    }

    /// Adds a piece, byte by byte, or says what is wrong with it.
    fn add(&mut self, key: (u32, u16), sent: Sent) -> Result<(), DropReason> {
        let datagram = self.datagrams.get_mut(&key).expect("there is one");
        if datagram.pieces.contains(&sent) {
            return Err(OVERLAP);
        }
        let overlaps = datagram.pieces.iter().any(|p| {
            let shared = (sent.start..end(&sent)).any(|byte| (p.start..end(p)).contains(&byte));
            let beyond = |last: &Sent, other: &Sent| !last.more && end(other) > end(last);
            let two_ends = !p.more && !sent.more;
            shared || two_ends || beyond(p, &sent) || beyond(&sent, p)
        });
        let reason = if sent.header_len + end(&sent) > 65_535 {
            TOO_LONG
        } else if overlaps {
            OVERLAP
        } else {
            datagram.pieces.push(sent);
            return Ok(());
        };
        datagram.state = State::Discarded(reason);
        self.drop_waiting(key, reason);
        Err(reason)
    }

    fn drop_waiting(&mut self, key: (u32, u16), reason: DropReason) {
        let datagram = self.datagrams.get_mut(&key).expect("there is one");
        let count = datagram.waiting.drain(..).count() as u64;
        if count > 0 {
            *self.drops.entry(reason).or_default() += count;
        }
    }

    fn forget_if_complete(&mut self, key: (u32, u16)) {
        let pieces = &self.datagrams[&key].pieces;
        let covered: usize = pieces.iter().map(|p| p.len).sum();
        if pieces.iter().any(|p| !p.more && end(p) == covered) {
            self.datagrams.remove(&key);
        }
    }

    fn first(&mut self, now: u64, sent: Sent, accept: bool) -> Result<(), DropReason> {
        let key = (sent.source, sent.identification);
        if sent.len == 0 || !sent.len.is_multiple_of(8) {
            return Err(TINY);
        }
        if !self.open(now, key) {
            return Err(LIMIT);
        }
        if let State::Discarded(reason) = self.datagrams[&key].state {
            return Err(reason);
        }
        self.add(key, sent)?;
        if accept {
            let datagram = self.datagrams.get_mut(&key).expect("there is one");
            datagram.state = State::Translated(REWRITE);
            self.released.extend(datagram.waiting.drain(..).map(|s| s.rewritten().bytes()));
            self.forget_if_complete(key);
        } else {
            self.drop_waiting(key, UNMATCHED);
            let datagram = self.datagrams.get_mut(&key).expect("there is one");
            datagram.state = State::Refused;
            datagram.pieces.clear();
            if self.unsettled() > self.capacity / 2 {
                self.datagrams.remove(&key);
            }
        }
        Ok(())
    }

    fn later(&mut self, now: u64, sent: Sent) -> Later {
        let key = (sent.source, sent.identification);
        if sent.len == 0 || (sent.more && !sent.len.is_multiple_of(8)) {
            return Later::Drop(TINY);
        }
        let known = self.datagrams.contains_key(&key);
        let too_long = sent.header_len + end(&sent) > 65_535;
        let room = self.unsettled() < self.capacity / 2 && (too_long || self.fits_memory(&sent));
        let open = known || (room && self.open(now, key));
        if !open {
            return Later::Drop(if too_long { TOO_LONG } else { LIMIT });
        }
        match self.datagrams[&key].state {
            State::Discarded(reason) => Later::Drop(reason),
            State::Refused => Later::Drop(UNMATCHED),
            State::Open => {
                let fits = self.fits_memory(&sent);
                if let Err(reason) = self.add(key, sent) {
                    return Later::Drop(reason);
                }
                let datagram = self.datagrams.get_mut(&key).expect("there is one");
                if !fits {
                    datagram.pieces.pop();
                    return Later::Drop(LIMIT);
                }
                datagram.waiting.push(sent);
                Later::Held
            }
            State::Translated(_) => match self.add(key, sent) {
                Err(reason) => Later::Drop(reason),
                Ok(()) => {
                    self.forget_if_complete(key);
                    APPLY
                }
            },
        }
    }

    fn advance(&mut self, now: u64) {
        let due: Vec<_> =
            self.datagrams.iter().filter(|(_, d)| d.due <= now).map(|(key, _)| *key).collect();
        for key in due {
            self.drop_waiting(key, UNMATCHED);
            self.datagrams.remove(&key);
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    First { sent: Sent, accept: bool },
    Later(Sent),
    Wait(u64),
}

/// Few sources, identifications and places, so that fragments meet.
fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let host = (0_u32..5, 0_u16..4);
    let first = (host.clone(), 0_usize..6, any::<bool>(), 0_u8..20).prop_map(
        |((host, id), units, accept, odd)| {
            let len = units * 400 + usize::from(odd == 0);
            Operation::First { sent: middle(0, len).from(host).id(id), accept }
        },
    );
    let later = (host, 1_usize..8, 0_usize..4, any::<bool>(), 0_usize..20).prop_map(
        |((host, id), start, units, more, odd)| {
            let (start, len) = (start * 400, units * 400);
            let sent = match odd {
                0 => part(start, start + len + 1, more),
                1 => part(start, start + len + 8, more),
                2 => part(start + 8, start + len + 8, more),
                3 => part(65_528 - start, 65_528 + len, more),
                _ => part(start, start + len, more),
            };
            Operation::Later(sent.from(host).id(id))
        },
    );
    let wait = (0_u64..12, 0_u64..3).prop_map(|(n, d)| Operation::Wait(n * SECOND / 8 + d));
    proptest::collection::vec(prop_oneof![4 => first, 10 => later, 1 => wait], 1..200)
}

proptest! {
    /// Fates, counters, released bytes and deadlines are the model's after every operation, and in
    /// the end nothing is left.
    #[test]
    fn behaves_as_its_model(
        operations in operations(),
        (capacity, blocks) in prop_oneof![Just((16, 40)), Just((24, 7)), Just((64, 400))],
    ) {
        let mut world = World::sized(capacity, blocks);
        let mut model = Model { capacity, blocks, ..Model::default() };
        let mut now = 0;
        for operation in operations {
            match operation {
                Operation::First { sent, accept } => {
                    let expected = model.first(now, sent, accept);
                    prop_assert_eq!(world.first(sent, accept.then_some(REWRITE)), expected);
                }
                Operation::Later(sent) => {
                    prop_assert_eq!(world.later(sent), model.later(now, sent));
                }
                Operation::Wait(time) => {
                    now += time;
                    model.advance(now);
                    world.advance(now);
                }
            }
            prop_assert_eq!(world.released(), core::mem::take(&mut model.released));
            for &reason in DropReason::ALL {
                let expected = model.drops.get(&reason).copied().unwrap_or(0);
                prop_assert_eq!(world.dropped(reason), expected, "{}", reason.name());
            }
            let deadline = model.datagrams.values().map(|d| d.due).min().map(Timestamp);
            prop_assert_eq!(world.fragments.next_deadline(), deadline);
            prop_assert_eq!(world.fragments.datagrams.len(), model.datagrams.len());
            prop_assert_eq!(world.fragments.unsettled, model.unsettled());
            let taken = model.blocks_of(None);
            prop_assert_eq!(world.fragments.store.free_blocks(), blocks - taken);
        }
        world.advance(now + 3 * SECOND);
        prop_assert!(world.is_pristine());
    }
}
