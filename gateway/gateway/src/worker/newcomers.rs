//! Packets of new hosts while the table of subscribers is more than half full. The translator
//! leaves a packet alone that would make its host a subscriber then. It takes the packet after all
//! if a neighbour entry agrees with the packet's source. So forged sources fill at most half of the
//! table, and packets of hosts with mappings need no look-up.

use super::serve;
use super::stages::Stages;
use crate::link::Link;
use natgate_engine::{Direction, DropReason, Side, Timestamp, Verdict};
use natgate_io::Frame;
use std::net::Ipv4Addr;

impl Stages {
    /// Decides about packets of a batch that the translator has left alone: it takes them after
    /// all, or they are dropped.
    #[inline]
    pub(super) fn admit_newcomers(
        &mut self,
        now: Timestamp,
        from: Side,
        frames: &mut [Frame<'_>],
        verdicts: &mut [Verdict],
    ) {
        if from == Side::Inside && self.engine.is_crowded() {
            self.admit_some(now, frames, verdicts);
        }
    }

    #[cold]
    fn admit_some(&mut self, now: Timestamp, frames: &mut [Frame<'_>], verdicts: &mut [Verdict]) {
        for (frame, verdict) in frames.iter_mut().zip(verdicts) {
            if *verdict == Verdict::Held && self.engine.awaits_admission(frame) {
                *verdict = match self.is_admitted(now, frame) {
                    true => self.engine.process_admitted(now, frame),
                    false => self.refuse(frame),
                };
            }
        }
    }

    /// True if the host of a packet from inside has a record already, or may become a subscriber
    /// because a neighbour entry agrees with the packet's source.
    pub(super) fn is_admitted(&mut self, now: Timestamp, frame: &mut Frame<'_>) -> bool {
        let octets = frame.bytes().get(12..16).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
        let Some(source) = octets.map(Ipv4Addr::from) else { return true };
        let link = Link::inside(frame.realm());
        if self.engine.is_established(link.realm, source) {
            return true;
        }
        let hardware = serve::source(frame, self.router.mac(link));
        hardware.is_none_or(|mac| self.router.vouches(now, link, source, mac))
    }

    /// Counts a packet from inside as dropped, for want of room for its host.
    fn refuse(&mut self, packet: &Frame<'_>) -> Verdict {
        let reason = DropReason::MappingTableFull;
        self.engine.count_lost(Direction::Outbound, reason, packet.len());
        Verdict::Drop(reason)
    }

    /// Returns true, and counts the packet as dropped, if the host of a packet from inside may not
    /// become a subscriber now.
    pub(super) fn bars(&mut self, now: Timestamp, from: Side, frame: &mut Frame<'_>) -> bool {
        let bars = from == Side::Inside
            && self.engine.guards(frame.realm())
            && !self.is_admitted(now, frame);
        if bars {
            self.refuse(frame);
        }
        bars
    }
}
