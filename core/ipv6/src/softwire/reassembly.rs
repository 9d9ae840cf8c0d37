//! Fragments of tunnel packets: a packet in a tunnel that was cut on its way is put together before
//! the tunnel ends (RFC 2473 section 7.2, RFC 6333 section 5.3).
//!
//! Memory and number are bounded, and each tunnel may use an eighth of both. A packet is charged
//! for its payload and for its name. Fragments that overlap end their packet (RFC 5722): its name
//! stays until its time is over, so that fragments that come later do not begin it again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use natgate_engine::DropReason;
use natgate_wire::Ipv6;
use natgate_wire::ipv6::{self, Fragment};

/// Most packets that are put together at a time.
const MOST: usize = 4096;
/// Most fragments of a packet.
const MOST_PIECES: usize = 64;
/// A tunnel may use one part of the memory and of the packets in this number.
const SHARE: usize = 8;
/// Memory that a packet is charged for besides its payload, bytes.
const OVERHEAD: usize = 512;
/// Longest payload of an IPv6 packet, bytes.
const LONGEST: usize = u16::MAX as usize;
/// The mark of a congested way in the traffic class.
const CONGESTED: u8 = 0b11;
/// All sources together that are not known to be customers, as payer.
pub(crate) const UNKNOWN: u128 = 0;

/// The name of a fragmented packet: source, destination, identification.
type Name = (u128, u128, u32);

#[derive(Clone, Debug, Default)]
struct Whole {
    /// The pieces by offset.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// The header of the first fragment.
    header: Option<[u8; ipv6::HEADER_LEN]>,
    next_header: u8,
    /// Length of the payload, when the last piece is there.
    len: Option<usize>,
    /// Bytes of all fragments as received, and those of their payloads.
    received: usize,
    bytes: usize,
    number: u64,
    /// The source whose share is charged.
    payer: u128,
    /// True if a fragment was marked on a congested way.
    is_marked: bool,
    /// The reason why the packet will never be complete.
    ended: Option<DropReason>,
}

/// Fragments whose packet will not be complete: their number, and their bytes as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) fragments: u64,
    pub(crate) bytes: u64,
    pub(crate) reason: DropReason,
}

/// A packet that is complete again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complete {
    /// The packet, without a fragment header.
    pub(crate) bytes: Vec<u8>,
    /// Number of its fragments, and their bytes as received.
    pub(crate) fragments: u64,
    pub(crate) received: usize,
}

/// The packets of a payer, and the bytes that they are charged for.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    packets: usize,
    bytes: usize,
}

/// Packets that are put together.
#[derive(Clone, Debug)]
pub(crate) struct Reassembly {
    packets: BTreeMap<Name, Whole>,
    /// The times at which the packets end, in the order of their first fragment to come.
    ends: BTreeMap<u64, (u64, Name)>,
    shares: BTreeMap<u128, Share>,
    next_number: u64,
    timeout: u64,
    memory: usize,
    used: usize,
    lost: Vec<Lost>,
}

impl Reassembly {
    pub(crate) fn new(memory: usize, timeout: u64) -> Self {
        Self {
            packets: BTreeMap::new(),
            ends: BTreeMap::new(),
            shares: BTreeMap::new(),
            next_number: 0,
            timeout,
            memory,
            used: 0,
            lost: Vec::new(),
        }
    }

    /// True if nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.lost.is_empty()
    }

    /// Takes a fragment; returns the packet if it is complete now. The payload begins behind the
    /// fragment header, which is at `at`. If the packet begins, the share of `payer` is charged for
    /// it: of its source, or of [`UNKNOWN`].
    ///
    /// # Errors
    /// The reason why the fragment is dropped.
    pub(crate) fn take(
        &mut self,
        now: u64,
        bytes: &[u8],
        (at, fragment): (usize, Fragment),
        payer: u128,
    ) -> Result<Option<Complete>, DropReason> {
        let packet = Ipv6::new_header_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let payload = bytes.get(at + ipv6::FRAGMENT_LEN..).ok_or(DropReason::BadLength)?;
        let end = fragment.offset + payload.len();
        if end > LONGEST {
            return Err(DropReason::FragmentTooLong);
        }
        if payload.is_empty() || fragment.more && payload.len() % 8 != 0 {
            return Err(DropReason::FragmentTiny);
        }
        let name = (packet.source(), packet.destination(), fragment.identification);
        let (payer, cost) = match self.packets.get(&name) {
            Some(Whole { ended: Some(reason), .. }) => return Err(*reason),
            Some(whole) => (whole.payer, Share { packets: 0, bytes: payload.len() }),
            None => (payer, Share { packets: 1, bytes: OVERHEAD + payload.len() }),
        };
        self.charge(payer, cost)?;
        let whole = self.packets.entry(name).or_insert_with(|| {
            self.next_number += 1;
            self.ends.insert(self.next_number, (now + self.timeout, name));
            Whole { number: self.next_number, payer, ..Whole::default() }
        });
        if let Err(reason) = whole.add(fragment, payload, bytes) {
            self.refund(payer, Share { packets: 0, bytes: payload.len() });
            self.give_up(name, reason);
            return Err(reason);
        }
        if !whole.is_complete() {
            return Ok(None);
        }
        Ok(self.remove(name).map(Whole::finish))
    }

    fn charge(&mut self, payer: u128, cost: Share) -> Result<(), DropReason> {
        let share = self.shares.get(&payer).copied().unwrap_or_default();
        let is_too_much = self.used + cost.bytes > self.memory
            || share.bytes + cost.bytes > self.memory / SHARE
            || self.packets.len() + cost.packets > MOST
            || share.packets + cost.packets > MOST / SHARE;
        if is_too_much {
            return Err(DropReason::FragmentLimit);
        }
        self.used += cost.bytes;
        let share = self.shares.entry(payer).or_default();
        share.packets += cost.packets;
        share.bytes += cost.bytes;
        Ok(())
    }

    fn refund(&mut self, payer: u128, cost: Share) {
        self.used -= cost.bytes;
        if let Some(share) = self.shares.get_mut(&payer) {
            share.packets -= cost.packets;
            share.bytes -= cost.bytes;
            if share.packets == 0 {
                self.shares.remove(&payer);
            }
        }
    }

    fn remove(&mut self, name: Name) -> Option<Whole> {
        let whole = self.packets.remove(&name)?;
        self.ends.remove(&whole.number);
        self.refund(whole.payer, Share { packets: 1, bytes: OVERHEAD + whole.bytes });
        Some(whole)
    }

    /// Ends a packet; its fragments are lost. The name stays, so that the fragments that are still
    /// to come are lost too (RFC 5722 section 4).
    fn give_up(&mut self, name: Name, reason: DropReason) {
        let Some(whole) = self.packets.get_mut(&name) else { return };
        let (number, payer) = (whole.number, whole.payer);
        let ended = Whole { number, payer, ended: Some(reason), ..Whole::default() };
        let whole = core::mem::replace(whole, ended);
        self.refund(payer, Share { packets: 0, bytes: whole.bytes });
        self.lose(&whole, reason);
    }

    fn lose(&mut self, whole: &Whole, reason: DropReason) {
        if !whole.pieces.is_empty() {
            let (fragments, bytes) = (whole.pieces.len() as u64, whole.received as u64);
            self.lost.push(Lost { fragments, bytes, reason });
        }
    }

    /// Ends what is due; returns what was lost.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Lost> {
        while let Some((_, &(end, name))) = self.ends.first_key_value()
            && end <= now
            && let Some(whole) = self.remove(name)
        {
            self.lose(&whole, DropReason::FragmentUnmatched);
        }
        core::mem::take(&mut self.lost)
    }
}

impl Whole {
    fn add(&mut self, fragment: Fragment, payload: &[u8], bytes: &[u8]) -> Result<(), DropReason> {
        let (start, end) = (fragment.offset, fragment.offset + payload.len());
        let before = self.pieces.range(..end).next_back();
        let overlaps = before.is_some_and(|(at, piece)| at + piece.len() > start);
        let ends_twice = match (self.len, fragment.more) {
            (Some(len), true) => end > len,
            (Some(len), false) => end != len,
            (None, false) => self.pieces.last_key_value().is_some_and(|(at, _)| *at >= end),
            (None, true) => false,
        };
        if overlaps || ends_twice {
            return Err(DropReason::FragmentOverlap);
        }
        if self.pieces.len() >= MOST_PIECES {
            return Err(DropReason::FragmentLimit);
        }
        if start == 0 {
            let mut header = [0; ipv6::HEADER_LEN];
            header.copy_from_slice(&bytes[..ipv6::HEADER_LEN]);
            self.header = Some(header);
            self.next_header = fragment.next_header;
        }
        if !fragment.more {
            self.len = Some(end);
        }
        self.pieces.insert(start, payload.to_vec());
        self.is_marked |= bytes[1] >> 4 & CONGESTED == CONGESTED;
        self.bytes += payload.len();
        self.received += bytes.len();
        Ok(())
    }

    fn is_complete(&self) -> bool {
        // Pieces do not overlap, so their sum tells that there is no gap.
        self.header.is_some() && self.len == Some(self.bytes)
    }

    fn finish(self) -> Complete {
        let header = self.header.unwrap_or([0; ipv6::HEADER_LEN]);
        let mut bytes = Vec::with_capacity(ipv6::HEADER_LEN + self.bytes);
        bytes.extend(header);
        self.pieces.values().for_each(|piece| bytes.extend(piece));
        if let Ok(mut packet) = Ipv6::new_header_checked(&mut bytes[..]) {
            packet.set_payload_len(self.bytes as u16);
            packet.set_next_header(self.next_header);
            // The mark of any fragment is the packet's (RFC 3168 section 5.3).
            if self.is_marked {
                packet.set_traffic_class(packet.traffic_class() | CONGESTED);
            }
        }
        Complete { bytes, fragments: self.pieces.len() as u64, received: self.received }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::Cut;

    fn fragments(source: u128, len: usize, limit: usize) -> Vec<Vec<u8>> {
        let mut bytes: Vec<u8> = (0..40 + len).map(|at| at as u8).collect();
        let mut packet = Ipv6::init(&mut bytes[..]);
        packet.set_payload_len(len as u16);
        packet.set_next_header(4);
        packet.set_source(source);
        packet.set_destination(2);
        let mut cut = Cut { limit, identification: 77 }.fragments(&bytes);
        let mut all = alloc::vec![bytes.clone()];
        let mut buffer = alloc::vec![0; limit];
        while let Some(len) = cut.write_next(&mut buffer) {
            all.push(buffer[..len].to_vec());
        }
        all
    }

    fn take(all: &mut Reassembly, now: u64, bytes: &[u8]) -> Result<Option<Complete>, DropReason> {
        let fragment = Fragment::read(&bytes[40..]).expect("a fragment");
        all.take(now, bytes, (40, fragment), u128::from(bytes[23]))
    }

    #[test]
    fn a_packet_is_complete_in_any_order() {
        let mut all = Reassembly::new(1 << 20, 10);
        let whole = fragments(1, 5000, 1280);
        for order in [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [3, 5, 1, 2, 4]] {
            for (step, number) in order.into_iter().enumerate() {
                let done = take(&mut all, 0, &whole[number]).expect("a good fragment");
                assert_eq!(done.is_some(), step == 4);
                if let Some(done) = done {
                    assert_eq!((&done.bytes, done.fragments), (&whole[0], 5));
                }
            }
        }
        assert_eq!((all.used, all.shares.len()), (0, 0));
        assert_eq!((all.ends.len(), all.packets.len()), (0, 0));
        assert!(all.is_empty());
    }

    #[test]
    fn the_mark_of_any_fragment_is_the_packets() {
        let whole = fragments(1, 3000, 1280);
        for marked in 1..4 {
            let mut all = Reassembly::new(1 << 20, 10);
            let mut whole = whole.clone();
            whole.iter_mut().for_each(|one| one[1] = one[1] & 0xf | 2 << 4);
            whole[marked][1] |= 3 << 4;
            let done = (1..4).filter_map(|number| take(&mut all, 0, &whole[number]).unwrap());
            let done = done.last().expect("a packet");
            assert_eq!(done.bytes[1] >> 4, 3, "fragment {marked}");
        }
    }

    #[test]
    fn overlaps_end_a_packet_and_its_name_until_its_time_is_over() {
        let mut all = Reassembly::new(1 << 20, 10);
        let whole = fragments(1, 3000, 1280);
        assert_eq!(take(&mut all, 0, &whole[1]), Ok(None));
        assert_eq!(take(&mut all, 0, &whole[1]), Err(DropReason::FragmentOverlap));
        let lost = all.expire(1);
        assert_eq!((lost.len(), lost[0].fragments), (1, 1));
        // The fragments that are all there would be whole without the overlap.
        for number in [1, 2, 3] {
            assert_eq!(take(&mut all, 2, &whole[number]), Err(DropReason::FragmentOverlap));
        }
        assert_eq!((all.used, all.packets.len(), all.shares[&1].packets), (OVERHEAD, 1, 1));
        assert!(all.expire(10).is_empty() && all.is_empty() && all.shares.is_empty());
        assert_eq!(take(&mut all, 10, &whole[2]), Ok(None));
        assert!(all.expire(19).is_empty());
        let lost = all.expire(20);
        assert_eq!((lost[0].reason, all.used), (DropReason::FragmentUnmatched, 0));
    }

    /// A first fragment of 8 bytes, by its number.
    fn small(source: u128, number: u32) -> Vec<u8> {
        let mut bytes = fragments(source, 3000, 1280).swap_remove(1);
        bytes.truncate(40 + 8 + 8);
        bytes[4..6].copy_from_slice(&16_u16.to_be_bytes());
        bytes[44..48].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    #[test]
    fn small_fragments_of_a_tunnel_fill_its_share_alone() {
        let mut all = Reassembly::new(16 << 20, 10);
        let waiting = (0..5000).filter(|number| take(&mut all, 0, &small(1, *number)).is_ok());
        assert_eq!(waiting.count(), MOST / SHARE);
        for number in 0..100 {
            assert_eq!(take(&mut all, 0, &small(2, number)), Ok(None));
        }
        assert_eq!(all.packets.len(), MOST / SHARE + 100);
        // Each packet costs more than its 8 bytes.
        let mut all = Reassembly::new(1 << 20, 10);
        let waiting = (0..5000).filter(|number| take(&mut all, 0, &small(1, *number)).is_ok());
        assert_eq!(waiting.count(), (1 << 20) / SHARE / (OVERHEAD + 8));
    }

    #[test]
    fn nothing_grows_with_the_packets_that_came() {
        let mut all = Reassembly::new(1 << 20, 10);
        for number in 0..10_000_u32 {
            let mut whole = fragments(1, 2000, 1280);
            whole.iter_mut().for_each(|one| one[44..48].copy_from_slice(&number.to_be_bytes()));
            assert_eq!(take(&mut all, 0, &whole[1]), Ok(None));
            assert!(take(&mut all, 0, &whole[2]).is_ok_and(|done| done.is_some()));
        }
        assert_eq!((all.ends.len(), all.packets.len(), all.shares.len()), (0, 0, 0));
        for number in 0..10_000 {
            let _ = take(&mut all, 0, &small(1, number));
            assert!(take(&mut all, 0, &small(1, number)).is_err());
        }
        assert_eq!((all.ends.len(), all.packets.len()), (255, 255));
        assert_eq!(all.used, all.packets.len() * OVERHEAD);
        all.expire(10);
        assert!(all.is_empty() && all.used == 0);
    }

    #[test]
    fn a_tunnel_uses_its_share_of_the_memory_alone() {
        let mut all = Reassembly::new(16_000, 10);
        let first = |source: u128, number: u8| {
            let mut bytes = fragments(source, 3000, 1280).swap_remove(1);
            bytes[47] = number;
            bytes
        };
        assert_eq!(take(&mut all, 0, &first(1, 0)), Ok(None));
        assert_eq!(take(&mut all, 0, &first(1, 1)), Err(DropReason::FragmentLimit));
        for source in 2..9 {
            assert_eq!(take(&mut all, 0, &first(source, 0)), Ok(None), "source {source}");
        }
        assert_eq!(all.expire(10).len(), 8);
    }
}
