//! Packets that waited: fragments of a datagram whose ports are known now, and packets of tunnels
//! that are whole again. They leave by a queue, because they have no buffer of the caller's.

use super::endpoint::{self, End};
use super::fragments::{Datagram, Held, Ports};
use super::reassembly::{Complete, UNKNOWN};
use super::{Located, Location, Loss, Softwires};
use crate::complaint::about_fragment;
use crate::convert::{Cut, HEADROOM};
use crate::translator::{Departure, Fate, Translator};
use alloc::vec;
use alloc::vec::Vec;
use natgate_engine::{Counters, Direction, DropReason, Packet, Side, Timestamp};
use natgate_wire::ipv6::{FRAGMENT_LEN, Fragment};
use natgate_wire::{Ipv4, Ipv6};

impl Translator {
    /// Remembers the ports of a datagram, and sends the fragments that waited for them.
    #[cold]
    pub(super) fn learn(&mut self, now: Timestamp, datagram: Datagram, ports: Ports) {
        let Some(softwires) = &mut self.softwires else { return };
        let waiting = softwires.fragments.learn(now.0, datagram, ports);
        for Held { side, bytes } in waiting {
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(&bytes);
            let mut packet = Packet::new(&mut buffer, HEADROOM);
            let fate = match side {
                Side::Outside => self.take_softwire_ipv4(now, &mut packet, Ok(())),
                Side::Inside => {
                    let Ok(header) = Ipv6::new_checked(packet.bytes()) else {
                        continue;
                    };
                    let ends = (header.source(), header.destination());
                    self.take_softwire(now, &mut packet, ends).unwrap_or(Fate::Nothing)
                }
            };
            self.release(fate, packet.bytes());
        }
    }

    /// Queues a packet that may leave.
    pub(super) fn release(&mut self, fate: Fate, bytes: &[u8]) {
        if let (Fate::HandOver(realm), Some(softwires)) = (fate, &mut self.softwires) {
            return softwires.push_turned(realm, bytes);
        }
        let Fate::Send(Departure { side, cut, counted, .. }) = fate else { return };
        let Some(softwires) = &mut self.softwires else { return };
        let queued = match cut {
            None => softwires.push_released(side, bytes.to_vec()),
            Some(cut) => softwires.push_cut(side, cut, bytes),
        };
        if let Err(reason) = queued {
            let (direction, outcome, len) = counted;
            self.lose(direction, outcome, len, reason);
        }
    }

    /// Takes a fragment of a packet in a tunnel.
    #[cold]
    pub(super) fn reassemble(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        at: usize,
        fragment: Fragment,
    ) -> Fate {
        let Some(softwires) = &self.softwires else { return Fate::Nothing };
        let payer = match softwires.payer(bytes, at, fragment) {
            Ok(payer) => payer,
            Err(reason) => {
                self.count_drop(Direction::Outbound, reason, bytes.len());
                return Fate::Nothing;
            }
        };
        let whole = self.take_fragment(now, bytes, (at, fragment), payer);
        let Some((mut buffer, fragments, received)) = whole else { return Fate::Nothing };
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let before = self.counts().clone();
        let fate = self.take_whole(now, &mut packet, received);
        self.count_more(&before, fragments - 1);
        self.release(fate, packet.bytes());
        Fate::Nothing
    }

    /// Takes a fragment of a packet in a tunnel. If the packet is whole now, returns it in a buffer
    /// with [`HEADROOM`], the number of its fragments and their bytes: the last fragment counts all
    /// bytes, the others count as packets. The fragment may use the share of `payer`.
    pub(super) fn take_fragment(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        (at, fragment): (usize, Fragment),
        payer: u128,
    ) -> Option<(Vec<u8>, u64, usize)> {
        // A fragment whose time is over is none of the datagram.
        self.advance_softwires(now);
        let softwires = self.softwires.as_mut()?;
        match softwires.reassembly.take(now.0, bytes, (at, fragment), payer) {
            Ok(None) => None,
            Err(reason) => {
                self.count_drop(Direction::Outbound, reason, bytes.len());
                if let Some(message) = about_fragment(bytes, at, reason) {
                    self.answer_own(now, Side::Inside, bytes, message);
                }
                None
            }
            Ok(Some(Complete { bytes, fragments, received })) => {
                let mut buffer = vec![0; HEADROOM];
                buffer.extend(&bytes);
                Some((buffer, fragments, received))
            }
        }
    }

    /// Counts `more` packets like the one that has been counted since `before`.
    pub(super) fn count_more(&mut self, before: &Counters, more: u64) {
        let now = self.counts().clone();
        if !add_like(self.counts_mut(), (before, &now), more) {
            // The packet waits as one, and is counted as one when it goes on.
            self.counts_mut().count_forwarded(Direction::Outbound, more, 0);
        }
    }

    /// Forgets what softwires no longer wait for.
    #[inline]
    pub(crate) fn advance_softwires(&mut self, now: Timestamp) {
        if let Some(softwires) = &mut self.softwires
            && !softwires.is_idle()
        {
            let losses = softwires.expire(now.0);
            losses.iter().for_each(|loss| loss.count(self.counts_mut()));
        }
    }

    /// Drops and counts what softwires wait for.
    pub fn drop_held(&mut self) {
        self.advance_softwires(Timestamp(u64::MAX));
    }
}

impl Softwires {
    /// The source that a fragment of a packet to a tunnel's end is charged to. A forged source must
    /// not have a share of its own.
    fn payer(&self, bytes: &[u8], at: usize, fragment: Fragment) -> Result<u128, DropReason> {
        let packet = Ipv6::new_header_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let ends = (packet.source(), packet.destination());
        if self.domains.is_br(ends.1) && self.domains.has_customer(ends.0) {
            return Ok(ends.0);
        }
        if !self.lw4o6.as_ref().is_some_and(|lw4o6| lw4o6.has_br(ends.1)) {
            return Err(DropReason::SoftwireSource);
        }
        // Bindings are not found by their B4. The first fragment tells the IPv4 source.
        let payload = bytes.get(at + FRAGMENT_LEN..).filter(|_| fragment.offset == 0);
        let inner = payload.and_then(|payload| Ipv4::new_header_checked(payload).ok());
        let location =
            inner.map(|inner| self.locate(inner.source(), || endpoint::port(&inner, End::Source)));
        let is_bound = |to: &Located| (to.tunnel.customer, to.tunnel.br) == ends;
        Ok(match location {
            Some(Ok(Location::Customer(to))) if is_bound(&to) => ends.0,
            _ => UNKNOWN,
        })
    }

    fn push_cut(&mut self, side: Side, cut: Cut, bytes: &[u8]) -> Result<(), DropReason> {
        let mut fragments = cut.fragments(bytes);
        let mut buffer = vec![0; cut.limit];
        while let Some(len) = fragments.write_next(&mut buffer) {
            self.push_released(side, buffer[..len].to_vec())?;
        }
        Ok(())
    }

    /// Forgets what is due; returns what was lost.
    #[cold]
    fn expire(&mut self, now: u64) -> Vec<Loss> {
        self.paths.expire(now);
        let fragments = self.fragments.expire(now).into_iter().map(|held| Loss {
            side: held.side,
            reason: DropReason::FragmentUnmatched,
            packets: 1,
            bytes: held.bytes.len() as u64,
        });
        let mut losses: Vec<Loss> = fragments.collect();
        losses.extend(self.reassembly.expire(now).into_iter().map(|lost| Loss {
            side: Side::Inside,
            reason: lost.reason,
            packets: lost.fragments,
            bytes: lost.bytes,
        }));
        losses
    }
}

/// Counts `more` packets like the one that was counted between two states of counters. Returns
/// `false` if none was.
pub(super) fn add_like(
    to: &mut Counters,
    (before, now): (&Counters, &Counters),
    more: u64,
) -> bool {
    let add = |(count, (before, now)): (&mut u64, (&u64, &u64))| {
        if now != before {
            *count = count.wrapping_add(more);
        }
    };
    let packets = before.packets.iter().flatten().zip(now.packets.iter().flatten());
    to.packets.iter_mut().flatten().zip(packets).for_each(add);
    to.drops.iter_mut().zip(before.drops.iter().zip(&now.drops)).for_each(add);
    now.packets != before.packets
}
