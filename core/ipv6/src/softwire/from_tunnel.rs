//! IPv6 packets from customers to the gateway's end of a tunnel.

use super::endpoint::{self, End, Port};
use super::fragments::{Datagram, Ports};
use super::to_tunnel::{Passed, both_ports, datagram};
use super::tunnel::{IPV4, service_behind, set_hop};
use super::{Answer, Located, Location, Owner, Softwires, Stopped};
use crate::complaint::{check_headers, unknown_protocol};
use crate::convert::{Cut, ErrorMessage, Refusal};
use crate::errors::{HOST_UNREACHABLE, SOURCE_POLICY};
use crate::translator::{Fate, Translator};
use natgate_engine::{Direction, DropReason, Packet, Side, Timestamp, is_martian};
use natgate_wire::ipv4::{Ipv4Error, Options, scan_options};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6, Tcp, ipv4, ipv6, protocol};

/// An IPv6 packet at the gateway's end of a tunnel, as read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    /// Source and destination.
    pub(super) ends: (u128, u128),
    /// Offset of the IPv4 packet.
    pub(super) at: usize,
    pub(super) traffic_class: u8,
}

/// The content of a packet at the gateway's end of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// An IPv4 packet at an offset.
    Whole(usize),
    /// A part of one, and the offset of the fragment header.
    Fragment(usize, Fragment),
    /// An ICMPv6 message at an offset.
    Icmp(usize),
}

impl Arrived {
    /// Reads a packet without headers between the outer and the inner one.
    pub(super) fn whole(bytes: &[u8]) -> Option<Self> {
        let header = Ipv6::new_checked(bytes).ok()?;
        let ends = (header.source(), header.destination());
        Some(Self { ends, at: ipv6::HEADER_LEN, traffic_class: header.traffic_class() })
    }
}

/// Finds the content of a packet, if the gateway knows it, and its traffic class.
#[inline]
fn read_content(bytes: &[u8]) -> Result<(Option<Content>, u8), DropReason> {
    let header = Ipv6::new_checked(bytes).map_err(|_| DropReason::BadLength)?;
    let traffic_class = header.traffic_class();
    if header.next_header() == IPV4 {
        return Ok((Some(Content::Whole(ipv6::HEADER_LEN)), traffic_class));
    }
    let walk = header.walk().map_err(|_| DropReason::ExtensionHeaders)?;
    if walk.segments_left.is_some() {
        return Err(DropReason::SegmentsLeft);
    }
    let content = match (walk.protocol, walk.fragment) {
        // Headers between the fragment header and the IPv4 packet are not known.
        (IPV4, Some((at, fragment))) if !fragment.is_atomic() => {
            (fragment.next_header == IPV4).then_some(Content::Fragment(at, fragment))
        }
        (IPV4, _) => Some(Content::Whole(walk.transport)),
        (protocol::ICMPV6, None) => Some(Content::Icmp(walk.transport)),
        _ => None,
    };
    Ok((content, traffic_class))
}

/// Reads the outer headers of a packet: its content, and its traffic class.
///
/// # Errors
/// The refusal of the packet, and the direction that it counts for.
#[inline]
pub(super) fn admit(bytes: &[u8]) -> Result<(Content, u8), (Direction, Refusal)> {
    let is_plain = bytes.get(ipv6::NEXT_HEADER) == Some(&IPV4);
    let (content, class) = read_content(bytes).map_err(|reason| {
        let error = check_headers(bytes).err().and_then(|refusal| refusal.error);
        (Direction::Outbound, Refusal { reason, error })
    })?;
    if !is_plain {
        check_headers(bytes).map_err(|refusal| (Direction::Local, refusal))?;
    }
    let content = content.ok_or_else(|| (Direction::Local, unknown_protocol(bytes)))?;
    Ok((content, class))
}

impl Translator {
    /// Takes an IPv6 packet from inside, if it is a softwire's.
    #[inline]
    pub(crate) fn take_softwire(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        ends: (u128, u128),
    ) -> Option<Fate> {
        let softwires = self.softwires.as_ref()?;
        if softwires.is_tunnel_end(ends.1) {
            return Some(self.take_from_tunnel(now, packet, ends));
        }
        let dmr = softwires.domains.dmr(ends.1)?;
        Some(self.take_translated(now, packet, dmr))
    }

    /// Takes a packet to the gateway's end of a tunnel.
    fn take_from_tunnel(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        ends: (u128, u128),
    ) -> Fate {
        let len = packet.len();
        let Some((content, traffic_class)) = self.content(now, packet) else {
            return Fate::Nothing;
        };
        match content {
            Content::Whole(at) => {
                self.take_arrived(now, packet, Arrived { ends, at, traffic_class }, len)
            }
            Content::Fragment(at, fragment) => self.reassemble(now, packet.bytes(), at, fragment),
            Content::Icmp(at) => self.take_tunnel_icmp(now, packet, at),
        }
    }

    /// The content and the traffic class of a packet to the gateway's end of a tunnel. `None`: the
    /// packet is dropped.
    #[inline]
    pub(super) fn content(&mut self, now: Timestamp, packet: &Packet<'_>) -> Option<(Content, u8)> {
        match admit(packet.bytes()) {
            Ok(admitted) => Some(admitted),
            Err((direction, refusal)) => {
                self.refuse_own((now, Side::Inside, direction), packet.bytes(), refusal);
                None
            }
        }
    }

    /// Counts a packet from a customer as dropped.
    pub(super) fn drop_outer(&mut self, packet: &Packet<'_>, reason: DropReason) -> Fate {
        self.count_drop(Direction::Outbound, reason, packet.len());
        Fate::Nothing
    }

    /// Takes a whole packet that is in a tunnel, without an outer fragment header. It is counted
    /// with `len` bytes.
    pub(super) fn take_whole(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        len: usize,
    ) -> Fate {
        match Arrived::whole(packet.bytes()) {
            Some(arrived) => self.take_arrived(now, packet, arrived, len),
            None => Fate::Nothing,
        }
    }

    #[inline]
    fn take_arrived(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        arrived: Arrived,
        len: usize,
    ) -> Fate {
        let (own, mtu) = (self.own_ipv4(), self.mtu_outside());
        let Some(softwires) = &mut self.softwires else { return Fate::Nothing };
        let first = first_fragment(packet.bytes(), arrived);
        let whole = packet.start();
        let taken = softwires.leave_tunnel(packet, arrived, (own, mtu));
        let fate = match taken {
            Ok((passed, owner)) => {
                if let Some(owner) = owner {
                    softwires.count_from(owner, len);
                }
                self.pass((now, Side::Inside), packet, passed, len)
            }
            Err(Stopped { reason, answer }) => {
                self.count_drop(Direction::Outbound, reason, len);
                match answer {
                    Answer::Nothing => {}
                    Answer::Inner(message) => {
                        self.answer_in_tunnel(now, arrived.ends, message, packet.bytes());
                    }
                    Answer::Outer(message) => {
                        packet.set_start(whole);
                        // The customer knows the gateway by this address alone (RFC 7596
                        // section 5.1).
                        self.answer_own(now, Side::Inside, packet.bytes(), message);
                    }
                }
                Fate::Nothing
            }
        };
        if let Some((datagram, ports)) = first {
            self.learn(now, datagram, ports);
        }
        fate
    }
}

/// The datagram and the ports of an inner first fragment.
#[inline]
fn first_fragment(bytes: &[u8], arrived: Arrived) -> Option<(Datagram, Ports)> {
    let packet = Ipv4::new_checked(bytes.get(arrived.at..)?).ok()?;
    let is_first = packet.more_fragments() && packet.fragment_offset() == 0;
    is_first.then(|| (datagram(arrived.ends.0, &packet), both_ports(&packet)))
}

/// Reads the IPv4 packet in a tunnel.
pub(super) fn read_inner(bytes: &[u8]) -> Result<Ipv4<&[u8]>, DropReason> {
    let inner = Ipv4::new_checked(bytes).map_err(|error| match error {
        Ipv4Error::Version => DropReason::NotIpv4,
        Ipv4Error::Length => DropReason::BadLength,
    })?;
    match inner.checksum_valid() {
        true => Ok(inner),
        false => Err(DropReason::BadHeaderChecksum),
    }
}

/// Checks what a packet carries through a tunnel, as the engine checks other packets.
pub(super) fn check_carried(packet: &Ipv4<&[u8]>) -> Result<(), DropReason> {
    match scan_options(packet.options()) {
        Options::Plain => {}
        Options::SourceRoute => return Err(DropReason::SourceRoute),
        Options::Malformed => return Err(DropReason::BadOptions),
    }
    let (offset, payload) = (packet.fragment_offset(), packet.payload());
    if packet.header_len() + offset + payload.len() > usize::from(u16::MAX) {
        return Err(DropReason::FragmentTooLong);
    }
    let begins = packet.more_fragments() && offset == 0 && packet.protocol() == protocol::TCP;
    match begins && Tcp::new_prefix_checked(payload).is_none() {
        true => Err(DropReason::FragmentTiny),
        false => Ok(()),
    }
}

impl Softwires {
    /// Takes a packet out of its tunnel, and to its receiver. `outside` has the gateway's own IPv4
    /// addresses and the MTU of the outside link. If the packet is stopped by an error about the
    /// IPv4 packet, it is that packet.
    #[inline]
    pub(super) fn leave_tunnel(
        &mut self,
        packet: &mut Packet<'_>,
        arrived: Arrived,
        outside: ([Option<u32>; 2], u16),
    ) -> Result<(Passed, Option<Owner>), Stopped> {
        let inner = read_inner(&packet.bytes()[arrived.at..])?;
        check_carried(&inner)?;
        let (source, destination) = (inner.source(), inner.destination());
        let (total_len, service) = (usize::from(inner.total_len()), inner.service());
        let mut ports = None;
        let port = || endpoint::port(&inner, End::Source);
        let location = match self.locate(source, port)? {
            Location::NeedsPort => {
                let datagram = datagram(arrived.ends.0, &inner);
                ports = self.fragments.ports(&datagram);
                let Some(ports) = ports else { return Ok((Passed::Hold(datagram), None)) };
                self.locate(source, || Ok(ports.source))?
            }
            location => location,
        };
        let owner = self.check_origin(location, arrived.ends)?;
        let service = service_behind(service, arrived.traffic_class)?;
        if is_martian(destination) {
            return Err(DropReason::MartianDestination.into());
        }
        let port = || match ports {
            Some(Ports { destination, .. }) => Ok(destination),
            None => endpoint::port(&inner, End::Destination),
        };
        let receiver = match self.locate(destination, port)? {
            Location::NeedsPort => {
                let datagram = datagram(arrived.ends.0, &inner);
                let Some(ports) = self.fragments.ports(&datagram) else {
                    return Ok((Passed::Hold(datagram), None));
                };
                self.locate(destination, || Ok(ports.destination))?
            }
            receiver => receiver,
        };
        // Customers that share an address may reach each other.
        let is_own = |to: &Located| source == destination && to.tunnel.customer == arrived.ends.0;
        if matches!(&receiver, Location::Customer(to) if is_own(to)) {
            return Err(DropReason::Land.into());
        }
        packet.set_start(packet.start() + arrived.at);
        packet.truncate(total_len);
        let passed = self.go_on(packet, owner, receiver, service, outside)?;
        Ok((passed, Some(owner)))
    }

    /// Checks that a packet came from the customer that has its source.
    //= rfc7596#section-6.2-verify
    //= rfc7597#section-8.1-validate
    #[inline]
    fn check_origin(&mut self, location: Location, ends: (u128, u128)) -> Result<Owner, Stopped> {
        let spoofed = DropReason::SoftwireSource;
        let lw4o6 = self.is_of_lw4o6(ends.1);
        let Location::Customer(Located { owner, tunnel }) = location else {
            return Err(self.no_customer(lw4o6));
        };
        if tunnel.customer == ends.0 && tunnel.br == ends.1 {
            return Ok(owner);
        }
        self.counter(owner).spoofed += 1;
        //= rfc7596#section-6.2-policy
        //= rfc7597#section-8.1-discard
        Err(match owner {
            Owner::Bindings if self.answers(owner) => Stopped::outer(spoofed, SOURCE_POLICY),
            _ => spoofed.into(),
        })
    }

    /// The refusal of a packet whose source no customer has.
    #[cold]
    fn no_customer(&self, is_lw4o6: bool) -> Stopped {
        match is_lw4o6 && self.answers(Owner::Bindings) {
            true => Stopped::outer(DropReason::NoBinding, SOURCE_POLICY),
            false if is_lw4o6 => DropReason::NoBinding.into(),
            false => DropReason::SoftwireSource.into(),
        }
    }

    /// True if an address is the gateway's end of a tunnel of lw4o6.
    fn is_of_lw4o6(&self, address: u128) -> bool {
        self.lw4o6.is_some() && !self.domains.is_br(address)
    }

    /// Sends an IPv4 packet from a customer on: to another customer, or outside.
    #[inline]
    pub(super) fn go_on(
        &mut self,
        packet: &mut Packet<'_>,
        from: Owner,
        receiver: Location,
        service: u8,
        outside: ([Option<u32>; 2], u16),
    ) -> Result<Passed, Refusal> {
        match receiver {
            Location::Elsewhere => {}
            Location::Customer(to) => {
                let both = [from, to.owner].contains(&Owner::Bindings);
                let is_closed = both && self.lw4o6.as_ref().is_some_and(|one| !one.hairpinning);
                //= rfc7596#section-6.2-hairpin-policy
                if is_closed {
                    return Err(DropReason::HairpinDisabled.into());
                }
                //= rfc7596#section-6.2-hairpin
                let cut = self.send_to_customer(packet, to, service, Some(from))?;
                self.count_to(to.owner, packet.len());
                return Ok(Passed::Sent(Direction::Hairpin, Side::Inside, cut));
            }
            Location::NeedsPort => return Err(DropReason::FragmentUnmatched.into()),
            Location::Unbound if self.answers(Owner::Bindings) => {
                return Err(Refusal::with(DropReason::NoBinding, HOST_UNREACHABLE));
            }
            Location::Unbound => return Err(DropReason::NoBinding.into()),
        }
        let (own, mtu) = outside;
        let header = Ipv4::new_header_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        if own.contains(&Some(header.destination())) {
            return Err(DropReason::LocalUnsupported.into());
        }
        let ttl = header.ttl();
        if ttl <= 1 {
            return Err(Refusal::with(DropReason::TtlExceeded, ErrorMessage::TTL_EXCEEDED));
        }
        let mut cut = None;
        if packet.len() > usize::from(mtu) {
            if header.dont_fragment() {
                let error = ErrorMessage::fragmentation_needed(mtu);
                return Err(Refusal::with(DropReason::TooBig, error));
            }
            // The sender of the gateway cuts a packet with options.
            let is_plain = header.header_len() == ipv4::HEADER_LEN;
            cut = is_plain.then_some(Cut { limit: mtu.into(), identification: 0 });
        }
        if self.mss.is_some() {
            self.clamp_mss(packet, self.tunnel_mtu(from));
        }
        set_hop(packet.bytes_mut(), ttl - 1, service);
        Ok(Passed::Sent(Direction::Outbound, Side::Outside, cut))
    }
}

/// The port of a packet that has none of its own because it is a later fragment.
pub(super) const fn is_later(port: Port) -> bool {
    matches!(port, Port::Later)
}
