//! Connections that this node does not know, although a former owner may have changed them: their
//! segments are dropped. And those that pass unread, which are in no doubt.

use super::super::{Arrived, Control, Ends, Kind, Stage};
use super::{FORGOTTEN, Paired, Part, Waiting, end, key_of, tcp_flags};
use crate::counters::Losses;
use natgate_engine::{Endpoint, Engine, Side, Timestamp};
use natgate_payload::{NewFlow, Payloads};
use natgate_wire::protocol;
use natgate_wire::tcp::flags::SYN;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Most connections that are remembered because they pass unread.
const MOST_UNREAD: usize = 4096;

/// Time for which such a connection is remembered before a further segment of its host.
const UNANSWERED: Duration = Duration::from_secs(30);

/// Most endpoints whose connections are refused.
const MOST_SEVERED: usize = 1 << 16;

/// An external endpoint whose connections this node does not know, or knows no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Severed {
    pub(super) since: Timestamp,
    /// True if it is so in order that the slice can move: no connection begins for a while.
    pub(super) leaves_out: bool,
}

impl Paired {
    /// True if segments of unknown connections with an external endpoint are dropped.
    fn drops_strange(&self, now: Timestamp, external: &SocketAddrV4) -> bool {
        let is_recent = |since: &Timestamp| now.since(*since) < FORGOTTEN;
        let doubted = self.share(*external.ip()).and_then(|share| share.doubted);
        let severed = self.severed.get(external).map(|severed| severed.since);
        doubted.iter().chain(&severed).any(is_recent)
    }
}

impl Stage {
    /// Remembers a connection that passes unread from its SYN on, as `control` asks to read it.
    /// Returns false if there is no room, and later segments would be dropped: so is the SYN.
    pub(in crate::alg) fn note_unread(
        &mut self,
        Arrived { now, from, .. }: Arrived,
        control: &Control,
        packet: &[u8],
    ) -> bool {
        let Self { paired: Some(paired), payloads, .. } = self else { return true };
        let external = &control.endpoints.external;
        let Some(flags) = tcp_flags(packet).filter(|_| control.new_flow == NewFlow::Read) else {
            return true;
        };
        let key = key_of(protocol::TCP, &control.endpoints);
        if paired.share(*external.ip()).is_none() {
            return true;
        }
        if payloads.find(key.0, key.1, key.2).is_some() {
            paired.unread.remove(&key);
            return true;
        }
        if let Some(until) = paired.unread.get_mut(&key) {
            *until = if from == Side::Inside { now.plus(FORGOTTEN) } else { *until };
            return true;
        }
        let is_opening = flags & SYN != 0;
        let has_room = paired.unread.len() < MOST_UNREAD;
        if is_opening && has_room {
            paired.unread.insert(key, now.plus(UNANSWERED));
        }
        !is_opening || has_room || !paired.drops_strange(now, external)
    }

    /// Ends connections of static mappings in a slice that goes to a node whose version of the link
    /// has no control flows: the mappings stand there, and segments would pass with raw numbers.
    pub(crate) fn end_changed(&mut self, engine: &mut Engine, now: Timestamp, slice: usize) {
        let Some(paired) = self.paired.as_ref().filter(|paired| paired.lacks_flows) else { return };
        let Some(share) = paired.shares.get(slice) else { return };
        let is_static = |external: SocketAddrV4| {
            let key = engine.copy_key(protocol::TCP, end(external));
            key.and_then(|key| engine.copy_facts(key)).is_some_and(|facts| facts.is_static)
        };
        let all = self.payloads.each().filter(|(_, number, _)| *number == protocol::TCP);
        let all = all.map(|(_, _, ends)| ends.external).filter(|end| share.has(*end.ip()));
        let all: BTreeSet<SocketAddrV4> = all.filter(|end| is_static(*end)).collect();
        for external in all {
            let mut has_reset = false;
            while self.payloads.reset_changed(external) {
                has_reset = true;
                self.keep_own(engine, now);
            }
            if has_reset {
                self.sever(now, (protocol::TCP, end(external)), true);
            }
        }
    }

    /// Keeps packets of the framework's own, which wait for nothing.
    fn keep_own(&mut self, engine: &mut Engine, now: Timestamp) {
        let (mut buffer, mut losses) = ([0; Payloads::BUFFER], Losses::default());
        while let Some((side, realm, len)) =
            self.poll_transmit(engine, now, &mut buffer, &mut losses)
        {
            let Some(paired) = &mut self.paired else { return };
            let (packet, host) = (buffer[..len].to_vec(), (realm, Ipv4Addr::UNSPECIFIED.into()));
            paired.bytes += len;
            let to = (side, realm);
            paired.packets.push_back(Waiting { ticket: 0, host, since: now, to, packet });
        }
    }

    /// Time since which this node does not know all connections of a slice, if the partner's
    /// version of the link has such a word.
    pub(crate) fn doubted(&self, now: Timestamp, slice: usize) -> Option<Timestamp> {
        let paired = self.paired.as_ref().filter(|paired| !paired.lacks_flows)?;
        let share = paired.shares.get(slice)?;
        // The next owner refuses the connections that are left out, and knows so.
        let is_its =
            |(end, one): &(&SocketAddrV4, &Severed)| share.has(*end.ip()) && !one.leaves_out;
        let severed = paired.severed.iter().filter(is_its).map(|(_, one)| one.since);
        let latest = severed.chain(share.doubted).max();
        latest.filter(|since| now.since(*since) < FORGOTTEN)
    }

    /// The flows of a static mapping that stands have no copy, or lose it: they are forgotten here,
    /// and their segments are dropped. Returns true if there was one. `leaves_out`: no connection
    /// begins for a while.
    pub(crate) fn sever(
        &mut self,
        now: Timestamp,
        (number, Endpoint { address, port }): (u8, Endpoint),
        leaves_out: bool,
    ) -> bool {
        let Self { paired: Some(paired), payloads, .. } = self else { return false };
        let external = SocketAddrV4::new(address, port);
        let before = payloads.flows();
        payloads.forget_all(number, external);
        let has_room = paired.severed.len() < MOST_SEVERED;
        if number == protocol::TCP && (has_room || paired.severed.contains_key(&external)) {
            paired.severed.insert(external, Severed { since: now, leaves_out });
        }
        payloads.flows() < before
    }

    /// The gateway's protocol of a segment from outside, if its connection is not known here and a
    /// former owner may have changed it. The segment's numbers may be those of other bytes inside.
    pub(in crate::alg) fn astray(&self, now: Timestamp, ends: Ends, packet: &[u8]) -> Option<Kind> {
        let kind = self.may_be_astray(ends).filter(|_| self.inbound(ends).is_none())?;
        let paired = self.paired.as_ref()?;
        let share = paired.share(*ends.destination.ip())?;
        let is_doubted = share.doubted.is_some_and(|since| now.since(since) < FORGOTTEN);
        let is_opening = tcp_flags(packet).is_none_or(|flags| flags & SYN != 0);
        let key = (ends.protocol, ends.destination, ends.source);
        let is_unread = || paired.unread.contains_key(&key);
        (is_doubted && !is_opening && !is_unread()).then_some(kind)
    }

    /// The gateway's protocol of a packet from outside, if its address has had doubted connections.
    pub(in crate::alg) fn may_be_astray(&self, ends: Ends) -> Option<Kind> {
        let share = self.paired.as_ref()?.share(*ends.destination.ip())?;
        let is_of_pair = share.part != Part::None;
        let is_doubted = ends.protocol == protocol::TCP && is_of_pair && share.doubted.is_some();
        is_doubted.then(|| self.settings.kind(protocol::TCP, ends.source.port()))?
    }
}
