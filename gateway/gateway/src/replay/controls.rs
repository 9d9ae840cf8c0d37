//! Packets of control flows in a replay, which application-level gateways read.

use super::{ALG_ROOM, Cause, HEADROOM, Header, Replay, ReplayError};
use crate::alg::{Arrived, HostEnds, Stage, Taken};
use crate::counters::Origin;
use crate::limits::LONGEST;
use natgate_engine::{Engine, Packet, Side, Verdict};
use natgate_ipv6::{Departure, Fate};
use natgate_payload::{Fate as AlgFate, Payloads, Room};
use std::io::Write;

impl<W: Write> Replay<'_, W> {
    /// Takes a packet that may be of a control flow.
    pub(super) fn take_control(
        &mut self,
        engine: &mut Engine,
        (side, realm, header): (Side, u16, Header),
        bytes: &[u8],
    ) -> Result<(), ReplayError> {
        let Some(mut alg) = self.alg.take() else { return Ok(()) };
        let mut work = self.room_for(bytes);
        let mut room = Room::new(&mut work[HEADROOM..], bytes.len());
        let arrived = Arrived { now: self.now, from: side, realm };
        let tools = (&mut *engine, self.translator.as_ref());
        let taken = alg.take(tools, arrived, &mut room, &mut self.losses);
        let end = HEADROOM + room.bytes().len();
        let sent = match taken {
            Taken::Decided(Verdict::Forward(Side::Inside), realm) if self.is_of_hosts(realm) => {
                let packet = Packet::new(&mut work[..end], HEADROOM).in_realm(realm);
                let origin = Origin::forwarded(side, Side::Inside, bytes.len());
                self.send_to_host(packet, self.now, Cause::Passed(header), Some(origin))
            }
            Taken::Decided(verdict, realm) => {
                let packet = &mut work[HEADROOM..end];
                self.send_decided(engine, (side, realm, header), verdict, packet)
            }
            Taken::Kept => Ok(()),
        };
        self.finish_control(engine, (side, header), (alg, work), sent)
    }

    /// Takes a packet from inside that may be of a control flow of a host with a number.
    pub(super) fn take_control_of_host(
        &mut self,
        engine: &mut Engine,
        header: Header,
        bytes: &[u8],
    ) -> Result<(), ReplayError> {
        let Some(mut alg) = self.alg.take() else { return Ok(()) };
        let mut work = self.room_for(bytes);
        let Some(translator) = &mut self.translator else { return Ok(()) };
        let mut packet = Packet::new(&mut work[..HEADROOM + bytes.len()], HEADROOM);
        if alg.has_tunneled_call((&*engine, &*translator), self.now, bytes)
            && translator.take_out_of_tunnel(self.now, &mut packet)
        {
            let (start, len, realm) = (packet.start(), packet.len(), packet.realm());
            let mut room = Room::new(&mut work[start..], len);
            let arrived = Arrived { now: self.now, from: Side::Inside, realm };
            let of = (&mut room, bytes.len());
            let taken = alg.take_call_of(engine, arrived, of, &mut self.losses);
            let end = start + room.bytes().len();
            let sent = match taken {
                Some(Taken::Decided(..)) => {
                    let origin = Origin::forwarded(Side::Inside, Side::Outside, bytes.len());
                    let to = (Side::Outside, 0);
                    let cause = Cause::Passed(header);
                    self.send_translated(engine, to, cause, &mut work[start..end], origin)
                }
                _ => Ok(()),
            };
            return self.finish_control(engine, (Side::Inside, header), (alg, work), sent);
        }
        let fate = translator.take(engine, self.now, Side::Inside, &mut packet);
        let (start, mut end) = (packet.start(), packet.end());
        let mut is_held = false;
        if let (Fate::Send(Departure { side: Side::Outside, .. }), Some(ends)) =
            (fate, HostEnds::read(translator, bytes))
        {
            let mut room = Room::new(&mut work[start..], end - start);
            let edited = alg.edit_of_host(engine, translator, self.now, ends, &mut room);
            end = start + room.bytes().len();
            is_held = edited == AlgFate::Held;
        }
        let sent = match fate {
            Fate::Send(departure) if !is_held => {
                let is_answer = departure.answers;
                let cause = if is_answer { Cause::Answered(header) } else { Cause::Passed(header) };
                self.depart(engine, departure, cause, &mut work[start..end])
            }
            _ => Ok(()),
        };
        self.finish_control(engine, (Side::Inside, header), (alg, work), sent)
    }

    /// The work buffer with a packet behind headroom, and room for edits behind it.
    fn room_for(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut work = std::mem::take(&mut self.work);
        work.resize(HEADROOM, 0);
        work.extend_from_slice(bytes);
        work.resize(HEADROOM + (bytes.len() + ALG_ROOM).min(LONGEST), 0);
        work
    }

    /// True if hosts of a realm have numbers.
    fn is_of_hosts(&self, realm: u16) -> bool {
        self.translator.as_ref().is_some_and(|translator| translator.realms().has(realm))
    }

    /// Sends the framework's own packets, and reports what a packet of a control flow has made.
    fn finish_control(
        &mut self,
        engine: &mut Engine,
        (side, header): (Side, Header),
        (mut alg, mut work): (Stage, Vec<u8>),
        mut sent: Result<(), ReplayError>,
    ) -> Result<(), ReplayError> {
        work.resize(work.len().max(HEADROOM + Payloads::BUFFER), 0);
        while let Some((to, realm, len)) =
            alg.poll_transmit(engine, self.now, &mut work[HEADROOM..], &mut self.losses)
        {
            let cause = if to == side { Cause::Answered(header) } else { Cause::Passed(header) };
            let end = HEADROOM + len;
            let own = match to == Side::Inside && self.is_of_hosts(realm) {
                true => {
                    let packet = Packet::new(&mut work[..end], HEADROOM).in_realm(realm);
                    self.send_to_host(packet, self.now, cause, None)
                }
                false => self.send((to, realm), self.now, cause, &work[HEADROOM..end], None),
            };
            sent = sent.and(own);
        }
        alg.sweep(engine, self.now);
        // The mapping of an expectation is told before the expectation.
        sent = sent.and(self.drain(engine, Some((side, header))));
        while let Some(expectation) = alg.poll_expectation() {
            let told = self.observer.expectation(&expectation, self.translator.as_ref());
            sent = sent.and(told.map_err(ReplayError::Events));
        }
        (self.work, self.alg) = (work, Some(alg));
        sent
    }
}
