//! IPv4 packets from outside that the engine refuses for their headers, and that RFC 7915
//! translates: packets with a source route, and ICMP errors from addresses that no packet may have.
//! For hosts of NAT64 they become packets that the engine takes; for all others they stay as they
//! are.

use crate::convert::{ErrorMessage, HEADROOM, Refusal};
use crate::nat64::{DUMMY, about_ipv4};
use crate::realms::HostKind;
use crate::translator::Translator;
use alloc::vec;
use natgate_engine::{
    DropReason, Engine, Explanation, Packet, Side, Timestamp, Verdict, is_martian,
};
use natgate_wire::ipv4::{HEADER_LEN, Options, has_unexpired_source_route, scan_options};
use natgate_wire::{Ipv4, icmp, protocol};

/// Option "no operation".
const NO_OPERATION: u8 = 1;

impl Translator {
    /// True if an IPv4 packet may have to be amended.
    #[inline]
    pub(crate) fn may_amend(&self, from: Side, header: &Ipv4<&[u8]>) -> bool {
        let is_odd = header.header_len() > HEADER_LEN
            || header.protocol() == protocol::ICMP && is_martian(header.source());
        is_odd && from == Side::Outside && self.nat64.is_some()
    }

    /// Amends an IPv4 packet from outside that goes to a host of NAT64.
    ///
    /// # Errors
    /// The refusal of a packet with a source route that is not used up.
    //= rfc7915#section-4.1-source-route
    //= rfc7915#section-4.1-source-error
    #[cold]
    pub(crate) fn amend(
        &self,
        engine: &Engine,
        now: Timestamp,
        packet: &mut Packet<'_>,
    ) -> Result<(), Refusal> {
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(packet.bytes());
        let Some(is_unexpired) = amended(&mut buffer[HEADROOM..]) else { return Ok(()) };
        let copy = Packet::new(&mut buffer, HEADROOM);
        let mut explanation = Explanation::new();
        engine.explain(now, Side::Outside, &copy, &mut explanation);
        let realm = explanation.becomes.map(|becomes| becomes.realm);
        let of_nat64 = self.realms.of(HostKind::Nat64);
        if explanation.verdict != Verdict::Forward(Side::Inside) || realm != of_nat64 {
            return Ok(());
        }
        if is_unexpired {
            let refusal = Refusal::with(DropReason::SourceRoute, ErrorMessage::SOURCE_ROUTE_FAILED);
            return Err(if is_answered(packet.bytes()) { refusal } else { refusal.quiet() });
        }
        packet.bytes_mut().copy_from_slice(copy.bytes());
        Ok(())
    }
}

/// No error answers an ICMP error, or a fragment other than the first (RFC 1812 section 4.3.2.7).
fn is_answered(bytes: &[u8]) -> bool {
    let Ok(header) = Ipv4::new_checked(bytes) else { return false };
    let kind = header.payload().first().copied();
    let is_error = header.protocol() == protocol::ICMP && kind.is_some_and(icmp::is_error);
    header.fragment_offset() == 0 && !is_error
}

/// Amends a packet; says whether it has a source route that is not used up. `None`: there is
/// nothing to amend, or the packet is damaged.
fn amended(bytes: &mut [u8]) -> Option<bool> {
    let header = Ipv4::new_checked(&*bytes).ok().filter(Ipv4::checksum_valid)?;
    let has_route = scan_options(header.options()) == Options::SourceRoute;
    let is_unexpired = has_unexpired_source_route(header.options());
    let is_odd_error = is_martian(header.source()) && about_ipv4(bytes).is_some();
    if !has_route && !is_odd_error {
        return None;
    }
    let header_len = header.header_len();
    if has_route {
        bytes[HEADER_LEN..header_len].fill(NO_OPERATION);
    }
    let mut header = Ipv4::new_checked(bytes).ok()?;
    if is_odd_error {
        header.set_source(DUMMY);
    }
    header.fill_checksum();
    Some(is_unexpired)
}
