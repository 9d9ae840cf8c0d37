//! Reports from inside the tunnels of DS-Lite: ICMPv6 errors of routers, to the gateway's end.
//!
//! A report counts only if it quotes a packet into the tunnel of a host that has a number. The
//! engine decides about it as about an error of that host's own.

use super::dslite::Dslite;
use super::endpoint::End;
use super::icmp::TunnelError;
use super::readdress::readdress;
use crate::convert::HEADROOM;
use crate::errors::{HOST_UNREACHABLE, write_ipv4};
use crate::translator::{Fate, Translator};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use natgate_engine::{
    Direction, DropReason, Engine, Explanation, Packet, Side, Timestamp, Verdict,
};
use natgate_wire::Ipv4;
use natgate_wire::ipv6::MIN_MTU;

/// The packet that a router in a tunnel reports on, as understood.
struct Report {
    b4: u128,
    /// Realm and number of the host.
    realm: u16,
    number: Ipv4Addr,
    /// The width of the path, if the report is about it.
    width: Option<u16>,
    /// The quoted IPv4 packet.
    inner: Vec<u8>,
}

impl Report {
    /// The ICMP error about the quoted packet, from its receiver's number, behind [`HEADROOM`].
    fn error(&self) -> Vec<u8> {
        let (number, mut inner) = (self.number.to_bits(), self.inner.clone());
        readdress(&mut inner, End::Destination, number);
        let mut bytes = [0; MIN_MTU];
        let len = write_ipv4(&mut bytes, number, HOST_UNREACHABLE, &inner, MIN_MTU as u16);
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(&bytes[..len]);
        buffer
    }
}

impl Translator {
    /// True if an error from inside a tunnel is about a packet to a host that has a number, and
    /// about the width of the path.
    pub(super) fn foretell_report(
        &self,
        (engine, now): (&Engine, Timestamp),
        bytes: &[u8],
        at: usize,
    ) -> Result<bool, DropReason> {
        let report = self.read_report(bytes, at)?;
        match report.width.is_some() {
            true if !self.has_session(engine, now, &report) => Err(DropReason::IcmpNoSession),
            is_about_width => Ok(is_about_width),
        }
    }

    /// Takes an ICMPv6 message to the gateway's end of the tunnels.
    #[cold]
    pub(super) fn take_aftr_icmp(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        packet: &mut Packet<'_>,
        at: usize,
    ) -> Fate {
        let len = packet.len();
        if crate::answer_echo(packet.bytes_mut()) {
            return self.reply(len);
        }
        let report = match self.read_report(packet.bytes(), at) {
            Ok(report) => report,
            Err(reason) => {
                self.count_drop(Direction::Local, reason, len);
                return Fate::Nothing;
            }
        };
        let Some(width) = report.width else {
            self.tell_sender(engine, now, &report, len);
            return Fate::Nothing;
        };
        if !self.has_session(engine, now, &report) {
            self.count_drop(Direction::Local, DropReason::IcmpNoSession, len);
            return Fate::Nothing;
        }
        let Some(softwires) = &mut self.softwires else { return Fate::Nothing };
        if softwires.dslite.as_ref().is_some_and(Dslite::believes_reports) {
            softwires.paths.note(now.0, report.b4, width);
        }
        self.count_reply(len);
        Fate::Nothing
    }

    /// Reads an error from inside a tunnel. It quotes a packet to a host that has a number. If a
    /// subscriber is a prefix, other ends in it have no paths: each would take a place in the
    /// table.
    fn read_report(&self, bytes: &[u8], at: usize) -> Result<Report, DropReason> {
        let error = TunnelError::read(bytes, at)?;
        let unknown = DropReason::IcmpNoSession;
        let (b4, inner) = error.quoted().ok_or(unknown)?;
        let packet = Ipv4::new_header_checked(inner).map_err(|_| unknown)?;
        let hosts = self.tunneled_hosts().filter(|hosts| hosts.is_end(b4)).ok_or(unknown)?;
        let realm = self.realm_of_tunnels().ok_or(unknown)?;
        let number = hosts.number_behind(b4, packet.destination()).ok_or(unknown)?;
        Ok(Report { b4, realm, number, width: error.width(), inner: inner.to_vec() })
    }

    /// True if the engine has the session of the quoted packet. A host that guesses the inner
    /// address of another must not make the other's path narrow.
    fn has_session(&self, engine: &Engine, now: Timestamp, report: &Report) -> bool {
        let mut buffer = report.error();
        let packet = Packet::new(&mut buffer, HEADROOM).in_realm(report.realm);
        let mut explanation = Explanation::new();
        engine.explain(now, Side::Inside, &packet, &mut explanation);
        !matches!(explanation.verdict, Verdict::Drop(_))
    }

    /// Tells the sender of an IPv4 packet that it did not come through the tunnel: an ICMP error
    /// from the packet's receiver, which the engine translates and counts with `received` bytes.
    //= rfc2473#section-8.3-unreachable
    fn tell_sender(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        report: &Report,
        received: usize,
    ) {
        let mut buffer = report.error();
        let mut packet = Packet::new(&mut buffer, HEADROOM).in_realm(report.realm);
        let fate = self.take_numbered(engine, now, &mut packet, None, received);
        self.release(fate, packet.bytes());
    }
}
