//! Random operations, compared with the same rules over maps and vectors.

use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

/// The rules of fragments over maps and vectors.
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

    /// True if a record of this datagram exists or can be made.
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

    /// Adds a piece, byte by byte, or returns the contradiction.
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
    /// Verdicts, counters, released bytes and deadlines equal the model's after every operation. In
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
