//! Connections that this node does not know, although a former owner may have changed them: their
//! segments are dropped, or answered with resets. Those that pass unread are in no doubt.

use super::super::{Arrived, Control, Ends, Kind, Stage};
use super::{
    FORGOTTEN, HostKey, MappingEnds, NOBODY, Paired, Part, Share, Waiting, key_of, tcp_flags,
};
use crate::counters::Losses;
use natgate_engine::{Endpoint, Engine, Side, Timestamp};
use natgate_payload::{NewFlow, Payloads};
use natgate_wire::protocol;
use natgate_wire::tcp::flags::SYN;
use std::collections::BTreeSet;
use std::net::SocketAddrV4;

/// Most endpoints whose connections are refused.
const MOST_SEVERED: usize = 1 << 16;

/// Most connections that were reset and whose segments get resets. Segments of further ones are
/// dropped.
const MOST_RESETS: usize = 1 << 14;

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
        let share = self.share(*external.ip());
        let share = share.filter(|share| share.part != Part::None);
        let doubted = share.and_then(Share::doubted);
        let severed = self.severed.get(external).map(|severed| severed.since);
        doubted.iter().chain(&severed).any(is_recent)
    }
}

impl Stage {
    /// Remembers a connection of a host that passes unread from its SYN on, as `control` asks to
    /// read it. Anybody outside can forge a SYN, so only one from inside counts: it begins the
    /// connection, or answers.
    pub(in crate::alg) fn note_unread(
        &mut self,
        Arrived { now, from, .. }: Arrived,
        (control, host): (&Control, HostKey),
        packet: &[u8],
    ) {
        let Self { paired: Some(paired), payloads, .. } = self else { return };
        let flags = tcp_flags(packet).filter(|_| control.new_flow == NewFlow::Read);
        let key = key_of(protocol::TCP, &control.endpoints);
        let share = paired.share(*control.endpoints.external.ip());
        let Some((flags, _)) = flags.zip(share) else { return };
        let is_opening = from == Side::Inside && flags & SYN != 0;
        if is_opening {
            paired.resets.remove(&key);
        }
        if payloads.has_host(key) {
            paired.unread.remove(&key);
        } else if !paired.unread.renew(&key, from == Side::Inside, now) && is_opening {
            paired.unread.insert(key, host, now);
        }
    }

    /// Ends changed connections in a slice that goes to a node whose version of the link has no
    /// control flows. Static mappings stand there, and segments would pass with raw numbers. Each
    /// host gets a reset, and one more for each later segment that comes to this node.
    pub(crate) fn end_changed(&mut self, engine: &mut Engine, now: Timestamp, slice: usize) {
        let Some(paired) = self.paired.as_ref().filter(|paired| paired.lacks_flows) else { return };
        let Some(share) = paired.shares.get(slice) else { return };
        let all = self.payloads.connections().filter(|end| share.has(*end.ip()));
        let all: BTreeSet<SocketAddrV4> = all.collect();
        for external in all {
            while let Some(key) = self.payloads.reset_changed(external) {
                self.keep_own(engine, now);
                let Some(paired) = &mut self.paired else { return };
                if paired.resets.len() < MOST_RESETS {
                    paired.resets.insert(key);
                } else {
                    self.note_severed(now, external, true);
                }
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
            let (packet, host) = (buffer[..len].to_vec(), NOBODY);
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
        let latest = severed.chain(share.doubted()).max();
        latest.filter(|since| now.since(*since) < FORGOTTEN)
    }

    /// The flows of a static mapping that stands have no copy, or lose it: they are forgotten here,
    /// and their segments are dropped. Returns true if there was one. `leaves_out`: no connection
    /// begins for a while.
    pub(crate) fn sever(&mut self, now: Timestamp, mapping: MappingEnds, leaves_out: bool) -> bool {
        if self.paired.is_none() {
            return false;
        }
        let before = self.payloads.flows();
        self.forget_flows(mapping);
        let (number, external, _) = mapping;
        if number == protocol::TCP {
            let external = SocketAddrV4::new(external.address, external.port);
            self.note_severed(now, external, leaves_out);
        }
        self.payloads.flows() < before
    }

    /// Notes that connections of an endpoint are not known. Without room, this node knows none of
    /// the slice for certain.
    fn note_severed(&mut self, now: Timestamp, external: SocketAddrV4, leaves_out: bool) {
        let Some(paired) = &mut self.paired else { return };
        if paired.severed.len() < MOST_SEVERED || paired.severed.contains_key(&external) {
            paired.severed.insert(external, Severed { since: now, leaves_out });
        } else if let Some(share) = paired.shares.iter_mut().find(|one| one.has(*external.ip())) {
            share.overflowed = Some(now);
        }
    }

    /// The gateway's protocol of a segment from outside, if its connection is not known here and a
    /// former owner may have changed it, or this node has. The segment's numbers may be those of
    /// other bytes inside. It is dropped, or answered with a reset.
    pub(in crate::alg) fn astray(
        &mut self,
        (engine, now): (&Engine, Timestamp),
        ends: Ends,
        packet: &[u8],
    ) -> Option<Kind> {
        let kind = self.may_be_astray(ends).filter(|_| self.inbound(ends).is_none())?;
        let is_of_all = self.settings.kind(protocol::TCP, ends.source.port()).is_some();
        if !is_of_all && !self.is_client(engine, ends) {
            return None;
        }
        let Self { paired: Some(paired), payloads, .. } = self else { return None };
        let is_opening = tcp_flags(packet).is_none_or(|flags| flags & SYN != 0);
        let key = (ends.protocol, ends.destination, ends.source);
        let is_strange = !is_opening && !paired.unread.has(&key);
        let is_reset = is_strange && paired.resets.contains(&key);
        if is_reset {
            payloads.refuse(Side::Outside, packet);
        }
        let is_dropped = is_reset || is_strange && paired.drops_strange(now, &ends.destination);
        is_dropped.then_some(kind)
    }

    /// True if a packet from a server outside goes to a host for which a message has named it. What
    /// one host says does not concern the connections of another.
    fn is_client(&self, engine: &Engine, ends: Ends) -> bool {
        let (address, port) = (*ends.destination.ip(), ends.destination.port());
        let key = engine.copy_key(ends.protocol, Endpoint { address, port });
        let host = key.and_then(|key| engine.copy_facts(key)).map(|facts| facts.host);
        host.is_some_and(|(realm, host)| self.further.is_client(host, ends.source, realm))
    }

    /// The gateway's protocol of a packet from outside, if its endpoint or address has had
    /// connections that are not known.
    pub(in crate::alg) fn may_be_astray(&self, ends: Ends) -> Option<Kind> {
        let paired = self.paired.as_ref().filter(|_| ends.protocol == protocol::TCP)?;
        let share = paired.share(*ends.destination.ip())?;
        let is_of_pair = share.part != Part::None;
        let is_doubted = is_of_pair && share.doubted().is_some();
        let is_severed = || paired.severed.contains_key(&ends.destination);
        let may_be = is_doubted || !paired.resets.is_empty() || is_severed();
        let named = || self.further.kind_outside(ends.source);
        may_be.then(|| self.settings.kind(protocol::TCP, ends.source.port()).or_else(named))?
    }
}
