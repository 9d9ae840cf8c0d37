//! ICMPv6 at the gateway's end of a tunnel, and errors of the gateway's own about packets of
//! tunnels (RFC 2473 section 8).
//!
//! A router on the way through a tunnel reports to the gateway. The gateway believes a report that
//! quotes a packet of a customer that there is, and reports to the sender of the IPv4 packet.

use super::bindings::Tunnel;
use super::endpoint::{self, End};
use super::tunnel::IPV4;
use super::{Located, Location, Softwires};
use crate::convert::ErrorMessage;
use crate::errors::HOST_UNREACHABLE;
use crate::translator::{Fate, Translator};
use natgate_engine::{Direction, DropReason, Packet, Side, Timestamp};
use natgate_wire::{Icmpv6, Ipv4, Ipv6, icmpv6, ipv6, protocol};

/// A report from inside a tunnel, as understood.
struct Report<'p> {
    /// The IPv4 packet that it is about, as far as quoted.
    inner: &'p [u8],
    to: Located,
    /// The message for the sender of the IPv4 packet, if it gets one.
    message: Option<ErrorMessage>,
    /// The width of the path.
    width: Option<u16>,
}

/// An ICMPv6 error to the gateway's end of a tunnel.
pub(super) struct TunnelError<'p> {
    /// The gateway's end.
    own: u128,
    message: Icmpv6<&'p [u8]>,
    /// The quoted packet.
    body: &'p [u8],
}

impl<'p> TunnelError<'p> {
    /// Reads an ICMPv6 message at an offset of a packet.
    ///
    /// # Errors
    /// The reason why the message is no error to be believed.
    pub(super) fn read(bytes: &'p [u8], at: usize) -> Result<Self, DropReason> {
        let header = Ipv6::new_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let (source, own) = (header.source(), header.destination());
        let bytes = &bytes[at..header.total_len()];
        let message = Icmpv6::new_checked(bytes).ok_or(DropReason::BadLength)?;
        if !icmpv6::is_error(message.kind()) {
            return Err(DropReason::LocalUnsupported);
        }
        if !message.checksum_valid(source, own) {
            return Err(DropReason::IcmpBadChecksum);
        }
        let error = Self { own, message, body: &bytes[icmpv6::HEADER_LEN..] };
        // RFC 8201 section 4.
        if error.width().is_some_and(|width| usize::from(width) < ipv6::MIN_MTU) {
            return Err(DropReason::LocalUnsupported);
        }
        Ok(error)
    }

    /// The receiver of the quoted packet, and the IPv4 packet in it as far as quoted; `None`: it is
    /// no first packet of a tunnel from the gateway's end.
    pub(super) fn quoted(&self) -> Option<(u128, &'p [u8])> {
        let outer = Ipv6::new_header_checked(self.body).ok()?;
        let walk = outer.walk().ok()?;
        let is_later = walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0);
        let is_ours = outer.source() == self.own && walk.protocol == IPV4 && !is_later;
        let end = outer.total_len().min(self.body.len());
        let inner = self.body.get(walk.transport..end).filter(|_| is_ours)?;
        Some((outer.destination(), inner))
    }

    /// The width of the path, if the error is about it.
    pub(super) fn width(&self) -> Option<u16> {
        let is_wide = self.message.kind() == icmpv6::kind::PACKET_TOO_BIG;
        is_wide.then(|| self.message.word().min(u16::MAX.into()) as u16)
    }
}

impl Softwires {
    /// Understands an error that came to the gateway's end of a tunnel.
    fn report<'p>(&self, error: &TunnelError<'p>) -> Option<Report<'p>> {
        let (customer, inner) = error.quoted()?;
        let packet = Ipv4::new_header_checked(inner).ok()?;
        let port = || endpoint::port(&packet, End::Destination);
        let to = match self.locate(packet.destination(), port) {
            Ok(Location::Customer(to)) => to,
            _ => return None,
        };
        if to.tunnel != (Tunnel { br: error.own, customer }) {
            return None;
        }
        let width = error.width().filter(|_| self.softwire(to.owner).path_mtu);
        //= rfc2473#section-8.3-too-big
        //= rfc2473#section-8.3-unreachable
        let message = match error.width() {
            Some(width) if packet.dont_fragment() => {
                Some(ErrorMessage::fragmentation_needed(width - ipv6::HEADER_LEN as u16))
            }
            Some(_) => None,
            None => Some(HOST_UNREACHABLE),
        };
        Some(Report { inner, to, message, width })
    }

    /// True if an error is about a packet to a customer.
    pub(super) fn understands(&self, error: &TunnelError<'_>) -> bool {
        self.report(error).is_some()
    }

    /// The tunnel to the sender of a quoted IPv4 packet; `None`: the sender is outside.
    fn sender(&self, inner: &[u8]) -> Option<Tunnel> {
        let packet = Ipv4::new_header_checked(inner).ok()?;
        match self.locate(packet.source(), || endpoint::port(&packet, End::Source)) {
            Ok(Location::Customer(Located { tunnel, .. })) if tunnel.br != 0 => Some(tunnel),
            _ => None,
        }
    }
}

impl Translator {
    /// True if a packet reports the width of a path to a tunnel of lw4o6 or MAP. If several
    /// translators share the work, each has to hear of it: packets to one customer may leave by
    /// any. The other translators [overhear](Translator::overhear) the packet.
    pub fn is_path_report(&self, from: Side, packet: &[u8]) -> bool {
        let Some(softwires) = self.softwires.as_ref().filter(|_| from == Side::Inside) else {
            return false;
        };
        let is_end = |header: Ipv6<&[u8]>| softwires.is_tunnel_end(header.destination());
        packet.get(ipv6::NEXT_HEADER) == Some(&protocol::ICMPV6)
            && packet.get(ipv6::HEADER_LEN) == Some(&icmpv6::kind::PACKET_TOO_BIG)
            && softwires.has_bindings()
            && Ipv6::new_header_checked(packet).is_ok_and(is_end)
    }

    /// Learns the width of a path from a report that another translator takes. Nothing is counted.
    pub fn overhear(&mut self, now: Timestamp, packet: &[u8]) {
        let Ok(error) = TunnelError::read(packet, ipv6::HEADER_LEN) else { return };
        let Some(softwires) = &mut self.softwires else { return };
        if let Some(Report { to, width: Some(width), .. }) = softwires.report(&error) {
            softwires.paths.note(now.0, to.tunnel.customer, width);
        }
    }

    /// Takes an ICMPv6 message to the gateway's end of a tunnel.
    #[cold]
    pub(super) fn take_tunnel_icmp(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        at: usize,
    ) -> Fate {
        let len = packet.len();
        if crate::answer_echo(packet.bytes_mut()) {
            return self.reply(len);
        }
        let reason = match self.take_report(now, packet.bytes(), at) {
            Ok(()) => {
                self.count_reply(len);
                return Fate::Nothing;
            }
            Err(reason) => reason,
        };
        self.count_drop(Direction::Local, reason, len);
        Fate::Nothing
    }

    fn take_report(&mut self, now: Timestamp, bytes: &[u8], at: usize) -> Result<(), DropReason> {
        let error = TunnelError::read(bytes, at)?;
        let Some(softwires) = &mut self.softwires else { return Err(DropReason::IcmpNoSession) };
        let report = softwires.report(&error).ok_or(DropReason::IcmpNoSession)?;
        let Report { inner, to, message, width } = report;
        if let Some(width) = width {
            softwires.paths.note(now.0, to.tunnel.customer, width);
        }
        let sender = softwires.sender(inner);
        let Some(message) = message else { return Ok(()) };
        match sender {
            Some(tunnel) => {
                self.answer_in_tunnel(now, (tunnel.customer, tunnel.br), message, inner)
            }
            None => self.send_error(now, Side::Outside, inner, message),
        }
        Ok(())
    }

    /// Sends an ICMP error about an IPv4 packet that came out of a tunnel, back into the tunnel.
    #[cold]
    pub(super) fn answer_in_tunnel(
        &mut self,
        now: Timestamp,
        ends: (u128, u128),
        message: ErrorMessage,
        inner: &[u8],
    ) {
        let source = self.error_source_in_tunnel();
        self.send_tunneled(now, source, ends, message, inner);
    }
}
