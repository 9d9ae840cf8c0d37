//! Identifications for fragmented datagrams that leave with a shared external address. Their
//! senders chose identifications without knowing of each other, so the gateway chooses new ones
//! (RFC 6864 section 5.3.1).
//!
//! Each external address has one sequence for all protocols and destinations. This is stricter than
//! the RFC requires and needs no state per destination. The sequence goes through all 65,536 values
//! in an order that depends on the seed (RFC 7739), and then through the same order again. So two
//! uses of a value are always 65,536 datagrams apart. They are also at least [`LIFETIME`] apart: a
//! request that comes too early gets no value (RFC 6864 section 5.2 obliges sources to keep such a
//! rate). So an address sends about 2,000 fragmented datagrams a second. One internal host gets a
//! quarter of them, so that it does not use up the values for others.

use crate::Timestamp;
use crate::random::Generator;
use crate::rate::Rate;
use crate::time::nanos;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use natgate_wire::{Delta, Ipv4};

/// Lifetime of fragments. RFC 6864 speaks of two minutes at most. Packets spend far less than a
/// second in the network, and receivers commonly wait 30 seconds for the rest of a datagram.
pub(crate) const LIFETIME: Duration = Duration::from_secs(30);

/// A sequence remembers the time of its last use for each eighth of its values, not for each value.
/// So an address sends between seven eighths and all of the values in one lifetime.
const PARTS: usize = 8;
const PART_LEN: u16 = (0x1_0000 / PARTS) as u16;

/// Number of identifications that one internal host gets in a lifetime.
const SHARE: u64 = 0x1_0000 / 4;
/// The last twelve bits of addresses tell internal hosts apart.
const HOSTS: usize = 4096;

const ROUNDS: usize = 4;

/// Writes an identification into the IPv4 header at the front of `packet` and updates its checksum.
///
/// # Panics
/// When there is no whole IPv4 header.
pub(crate) fn write(packet: &mut [u8], identification: u16) {
    let mut header = Ipv4::new_header_checked(packet).expect("a checked packet");
    let delta = Delta::NONE.replace_u16(header.identification(), identification);
    header.set_identification(identification);
    header.update_checksum(delta);
}

/// The sequences of all external addresses.
#[derive(Clone, Debug)]
pub(crate) struct Identifications {
    /// The round functions of a Feistel network on two bytes: random tables.
    rounds: [[u8; 256]; ROUNDS],
    sequences: Vec<Sequence>,
    /// Rates of internal hosts.
    hosts: Vec<Rate>,
    /// This engine's values of addresses with ports of several engines: the values with this
    /// remainder modulo the number of engines.
    own: (u16, u16),
}

#[derive(Clone, Copy, Debug)]
struct Sequence {
    /// Makes the order of this address differ from others.
    key: [u8; ROUNDS],
    /// Steps taken, modulo the period.
    position: u16,
    /// Time of the latest value from each part.
    used: [Option<Timestamp>; PARTS],
}

impl Identifications {
    /// Makes a sequence for each of `addresses` external addresses, with room for `room`.
    pub(crate) fn new(addresses: usize, room: usize, generator: &mut Generator) -> Self {
        let mut rounds = [[0; 256]; ROUNDS];
        for bytes in rounds.as_flattened_mut().chunks_exact_mut(8) {
            bytes.copy_from_slice(&generator.next_u64().to_le_bytes());
        }
        let sequences = Vec::with_capacity(room);
        let mut all = Self { rounds, sequences, hosts: vec![Rate::default(); HOSTS], own: (0, 1) };
        all.grow(addresses, generator);
        all
    }

    /// Adds sequences until there are `addresses`.
    pub(crate) fn grow(&mut self, addresses: usize, generator: &mut Generator) {
        while self.sequences.len() < addresses {
            let [a, b, c, d, ..] = generator.next_u64().to_le_bytes();
            let sequence = Sequence { key: [a, b, c, d], position: 0, used: [None; PARTS] };
            self.sequences.push(sequence);
        }
    }

    /// Makes this engine number `number` of `engines` that have ports of the same addresses.
    pub(crate) fn divide(&mut self, number: u16, engines: u16) {
        self.own = (number, engines);
    }

    /// The engine's number, and the number of engines.
    pub(crate) fn place(&self) -> (u16, u16) {
        self.own
    }

    /// The tables of all sequences, for another engine.
    pub(crate) fn rounds(&self) -> &[[u8; 256]; ROUNDS] {
        &self.rounds
    }

    /// Sets the tables of another engine.
    pub(crate) fn set_rounds(&mut self, rounds: &[u8]) -> Option<()> {
        let (rounds, []) = rounds.as_chunks() else { return None };
        self.rounds = rounds.try_into().ok()?;
        Some(())
    }

    /// An address's sequence: its key, its position, and the time of use of each part.
    pub(crate) fn sequence(&self, address: u32) -> Option<([u8; 4], u16, [Option<Timestamp>; 8])> {
        let Sequence { key, position, used } = *self.sequences.get(address as usize)?;
        Some((key, position, used))
    }

    /// Continues another engine's sequence of an address.
    pub(crate) fn set_sequence(
        &mut self,
        address: u32,
        (key, position, used): ([u8; 4], u16, [Option<Timestamp>; 8]),
    ) {
        if let Some(sequence) = self.sequences.get_mut(address as usize) {
            *sequence = Sequence { key, position, used };
        }
    }

    /// Bytes that [`Identifications::new`] takes.
    pub(crate) fn memory(addresses: usize) -> u64 {
        (addresses * size_of::<Sequence>() + HOSTS * size_of::<Rate>()) as u64
    }

    /// The next identification of an address for an internal host. `address` is the index of the
    /// address, and true if several engines share it. `None`: each value may still be in use, or
    /// the host has had its share. Time never goes back from call to call.
    ///
    /// # Panics
    /// When there is no such address.
    pub(crate) fn next_for(
        &mut self,
        now: Timestamp,
        (address, is_shared): (usize, bool),
        host: u32,
    ) -> Option<u16> {
        let rate = &mut self.hosts[host as usize % HOSTS];
        let (spacing, burst) = (nanos(LIFETIME) / SHARE, nanos(LIFETIME));
        if !rate.permits_spaced(now.0, spacing, burst) {
            return None;
        }
        let (remainder, engines) = self.own;
        let mut value = self.next(now, address)?;
        while is_shared && value % engines != remainder {
            value = self.next(now, address)?;
        }
        let rate = &mut self.hosts[host as usize % HOSTS];
        rate.count_spaced(now.0, spacing);
        Some(value)
    }

    /// True if [`Identifications::next_for`] would return a value.
    pub(crate) fn has_next_for(
        &self,
        now: Timestamp,
        (address, is_shared): (usize, bool),
        host: u32,
    ) -> bool {
        let rate = self.hosts[host as usize % HOSTS];
        let (spacing, burst) = (nanos(LIFETIME) / SHARE, nanos(LIFETIME));
        let (remainder, engines) = self.own;
        let mut sequence = self.sequences[address];
        let is_own = |value: u16| !is_shared || value % engines == remainder;
        rate.permits_spaced(now.0, spacing, burst)
            && core::iter::from_fn(|| self.step(now, &mut sequence)).any(is_own)
    }

    fn next(&mut self, now: Timestamp, address: usize) -> Option<u16> {
        let mut sequence = self.sequences[address];
        let value = self.step(now, &mut sequence);
        self.sequences[address] = sequence;
        value
    }

    /// Takes one step of a sequence.
    fn step(&self, now: Timestamp, sequence: &mut Sequence) -> Option<u16> {
        let part = usize::from(sequence.position / PART_LEN);
        //= rfc6864#section-4.2
        //= rfc6864#section-4.3-unique
        //= rfc6864#section-5.2
        let enters = sequence.position.is_multiple_of(PART_LEN);
        if enters && sequence.used[part].is_some_and(|used| now.since(used) < LIFETIME) {
            return None;
        }
        sequence.used[part] = Some(now);
        let value = permute(&self.rounds, sequence.key, sequence.position);
        sequence.position = sequence.position.wrapping_add(1);
        Some(value)
    }
}

/// A one-to-one map of 16-bit numbers (Luby and Rackoff: four rounds of random functions).
fn permute(rounds: &[[u8; 256]; ROUNDS], key: [u8; ROUNDS], value: u16) -> u16 {
    let [mut left, mut right] = value.to_be_bytes();
    for (round, key) in rounds.iter().zip(key) {
        (left, right) = (right, left ^ round[usize::from(right ^ key)]);
    }
    u16::from_be_bytes([left, right])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const SECOND: u64 = 1_000_000_000;

    fn identifications(seed: u8) -> Identifications {
        Identifications::new(2, 2, &mut Generator::new([seed; 32]))
    }

    fn take(from: &mut Identifications, now: u64, address: usize, n: usize) -> Vec<u16> {
        (0..n).map_while(|_| from.next(Timestamp(now), address)).collect()
    }

    //= test rfc6864#section-4.3-unique
    #[test]
    fn every_value_comes_once_before_any_comes_again() {
        let mut identifications = identifications(1);
        let mut seen = vec![false; 0x1_0000];
        for value in take(&mut identifications, 0, 0, 0x1_0000) {
            assert!(!core::mem::replace(&mut seen[usize::from(value)], true), "{value} came twice");
        }
        assert!(seen.iter().all(|&s| s));
    }

    //= test rfc6864#section-4.3-unique
    //= test rfc6864#section-5.2
    #[test]
    fn no_value_comes_again_within_the_lifetime() {
        let mut identifications = identifications(2);
        let first = take(&mut identifications, 0, 0, 40_000);
        let rest = take(&mut identifications, 5 * SECOND, 0, 40_000);
        assert_eq!(first.len() + rest.len(), 0x1_0000);
        assert_eq!(take(&mut identifications, 30 * SECOND - 1, 0, 1), []);
        // Values 0 to 32,767 are 30 seconds old. Values from there to 40,960 share a part with
        // younger ones.
        let again = take(&mut identifications, 30 * SECOND, 0, 0x1_0000);
        assert_eq!(again, first[..32_768]);
        assert_eq!(take(&mut identifications, 35 * SECOND - 1, 0, 1), []);
        let again = take(&mut identifications, 35 * SECOND, 0, 0x1_0000);
        assert_eq!(again[..7_232], first[32_768..]);
        assert_eq!(again[7_232..], rest);
    }

    #[test]
    fn writing_keeps_the_header_checksum_right() {
        let mut bytes = [0; 20];
        let mut header = Ipv4::init(&mut bytes, 20);
        header.set_total_len(20);
        header.set_identification(0x1234);
        header.fill_checksum();
        for value in [0, 1, 0x1234, 0xffff] {
            write(&mut bytes, value);
            let header = Ipv4::new_checked(&bytes).expect("a whole packet");
            assert!(header.identification() == value && header.checksum_valid());
        }
    }

    #[test]
    fn a_host_does_not_use_up_an_address() {
        let mut identifications = identifications(6);
        let mut take = |now, host, n| {
            (0..n)
                .filter(|_| identifications.next_for(Timestamp(now), (0, false), host).is_some())
                .count()
        };
        assert_eq!(take(0, 1, 20_000), 16_384);
        assert_eq!(take(0, 2, 20_000), 16_384);
        assert_eq!(take(15 * SECOND, 1, 20_000), 8192);
        assert_eq!(take(15 * SECOND, 3, 20_000), 16_384);
    }

    #[test]
    fn an_address_does_not_use_up_another_ones() {
        let mut identifications = identifications(3);
        take(&mut identifications, 0, 0, 0x1_0000);
        assert_eq!(identifications.next(Timestamp(0), 0), None);
        assert_eq!(take(&mut identifications, 0, 1, 0x1_0000).len(), 0x1_0000);
    }

    #[test]
    fn the_order_depends_on_seed_and_address_and_does_not_count() {
        let mut one = identifications(4);
        let mut other = identifications(5);
        let orders =
            [take(&mut one, 0, 0, 1000), take(&mut one, 0, 1, 1000), take(&mut other, 0, 0, 1000)];
        for (i, order) in orders.iter().enumerate() {
            for later in &orders[i + 1..] {
                let same = order.iter().zip(later).filter(|(a, b)| a == b).count();
                assert!(same < 5, "{same} of 1000 alike");
            }
            let mut steps: Vec<u16> =
                order.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
            steps.sort_unstable();
            let repeated = steps.windows(2).filter(|pair| pair[0] == pair[1]).count();
            assert!(repeated < 50, "{repeated} of 999 steps repeat");
        }
        assert_eq!(take(&mut identifications(4), 0, 0, 1000), orders[0]);
    }

    //= test rfc6864#section-4.3-unique
    #[test]
    fn engines_that_share_an_address_use_no_value_twice() {
        let mut seen = vec![false; 0x1_0000];
        for number in 0..3 {
            let mut identifications = identifications(7 + number);
            identifications.divide(number.into(), 3);
            for host in 0..2 {
                while let Some(value) = identifications.next_for(Timestamp(0), (0, true), host) {
                    let again = core::mem::replace(&mut seen[usize::from(value)], true);
                    assert!(!again, "{value} came twice");
                }
            }
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}
