//! Requests for mappings in tunnels of DS-Lite: a host sends them to the gateway's inner address
//! (RFC 6333 section 6.5). The translator names the host; the caller reads the request and answers.

use super::Dslite;
use super::dslite::AFTR;
use super::from_tunnel::{Arrived, Content, admit, read_inner};
use crate::translator::{Fate, Translator};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{Direction, DropReason, is_martian};
use natgate_wire::{Ipv6, Udp, ipv6, protocol};

/// Port of requests for mappings (RFC 6887 section 19.1).
const PORT: u16 = 5351;
/// Length of an IPv4 header without options, bytes.
const PLAIN: usize = 20;
/// Next header of an IPv4 packet in a tunnel.
const IPV4: u8 = 4;
/// Offset of the destination in an IPv4 header.
const DESTINATION: usize = 16;

/// A request in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunneledRequest<'p> {
    /// The subscriber: the far end of the tunnel.
    pub b4: Ipv6Addr,
    /// The gateway's end of the tunnel.
    pub end: Ipv6Addr,
    /// The gateway's address in the tunnel, which was asked.
    pub asked: Ipv4Addr,
    /// The inner packet: IPv4 with a whole UDP datagram. Its source is that of a host that may
    /// send.
    pub packet: &'p [u8],
}

/// True if a packet with an IPv4 packet behind its fixed header may have a request in it.
#[inline]
pub(crate) fn may_ask(bytes: &[u8]) -> bool {
    let destination =
        bytes.get(ipv6::HEADER_LEN + DESTINATION..).and_then(|bytes| bytes.first_chunk());
    destination == Some(&AFTR.octets())
}

/// True if an inner packet is a request, as far as its headers tell.
fn is_request(inner: &[u8]) -> bool {
    let Ok(header) = read_inner(inner) else { return false };
    header.destination() == AFTR.to_bits()
        && header.protocol() == protocol::UDP
        && header.header_len() == PLAIN
        && !header.is_fragment()
        && Udp::new_checked(header.payload()).is_some_and(|udp| {
            let is_whole = usize::from(udp.length()) <= header.payload().len();
            is_whole && udp.destination_port() == PORT
        })
}

impl Dslite {
    /// The request in a packet that has arrived.
    fn request<'p>(&self, bytes: &'p [u8], arrived: Arrived) -> Option<TunneledRequest<'p>> {
        let inner = bytes.get(arrived.at..).filter(|inner| is_request(inner))?;
        self.admit(bytes, arrived).ok()?;
        let b4 = Ipv6Addr::from_bits(arrived.ends.0);
        Some(TunneledRequest { b4, end: self.address(), asked: AFTR, packet: inner })
    }
}

impl Translator {
    /// The request for a mapping in an IPv6 packet from inside to the gateway's end of the tunnels
    /// of DS-Lite. The B4 and the inner source are permitted ones, as for any packet. `None`: the
    /// packet is something else.
    pub fn tunneled_request<'p>(&self, bytes: &'p [u8]) -> Option<TunneledRequest<'p>> {
        let arrived = Arrived::whole(bytes).filter(|arrived| self.is_aftr(arrived.ends.1))?;
        let Ok((Content::Whole(at), traffic_class)) = admit(bytes) else { return None };
        self.dslite()?.request(bytes, Arrived { at, traffic_class, ..arrived })
    }

    /// The B4 and the inner packet, which are not checked, of an IPv6 packet from inside to the
    /// gateway's end of the tunnels of DS-Lite. `None`: the packet is something else, or has
    /// headers between the outer and the inner one.
    pub fn tunneled_packet<'p>(&self, bytes: &'p [u8]) -> Option<(Ipv6Addr, &'p [u8])> {
        let header = Ipv6::new_checked(bytes).ok()?;
        let is_plain = header.next_header() == IPV4 && self.is_aftr(header.destination());
        let inner = bytes.get(ipv6::HEADER_LEN..header.total_len()).filter(|_| is_plain)?;
        Some((Ipv6Addr::from_bits(header.source()), inner))
    }

    /// True if the host with an inner address behind a tunnel may have mappings.
    pub(crate) fn permits_requester(&self, b4: Ipv6Addr, inner: Ipv4Addr) -> bool {
        let (is_b4, may_send) = self.permits_tunneled(b4.to_bits(), inner.to_bits());
        is_b4 && may_send && !is_martian(inner.to_bits())
    }

    /// Counts a packet of `len` bytes if it has a request in it, which the caller may take.
    #[inline]
    pub(super) fn take_request(
        &mut self,
        bytes: &[u8],
        arrived: Arrived,
        len: usize,
    ) -> Option<Fate> {
        if !self.has_request(bytes, arrived) {
            return None;
        }
        self.count_drop(Direction::Local, DropReason::LocalUnsupported, len);
        Some(Fate::Local)
    }

    /// True if a packet that has arrived has a request in it.
    pub(super) fn has_request(&self, bytes: &[u8], arrived: Arrived) -> bool {
        self.dslite().is_some_and(|dslite| dslite.request(bytes, arrived).is_some())
    }
}
