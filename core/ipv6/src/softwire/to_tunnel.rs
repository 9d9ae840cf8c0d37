//! IPv4 packets to customers: into a tunnel, or translated.

use super::endpoint::{self, End, Port};
use super::fragments::{Datagram, Ports};
use super::from_tunnel::check_carried;
use super::tunnel::{encapsulate, lower_mss, set_hop};
use super::{Answer, Located, Location, MapMode, Owner, Softwires, Stopped};
use crate::convert::{Cut, ErrorMessage, Refusal};
use crate::errors::HOST_UNREACHABLE;
use crate::translator::{Fate, Translator};
use natgate_engine::{Direction, DropReason, Outcome, Packet, Side, Timestamp};
use natgate_wire::{Ipv4, ipv4, ipv6, protocol, tcp};

/// What became of a packet that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// The packet in the buffer leaves.
    Sent(Direction, Side, Option<Cut>),
    /// The packet is a fragment that waits for the first one of its datagram.
    Hold(Datagram),
}

/// The name of an IPv4 packet's datagram.
pub(super) fn datagram(customer: u128, packet: &Ipv4<&[u8]>) -> Datagram {
    Datagram {
        customer,
        ends: (packet.source().into(), packet.destination().into()),
        identification: packet.identification().into(),
        protocol: packet.protocol(),
    }
}

/// The ports of both ends of a packet that is no later fragment.
pub(super) fn both_ports(packet: &Ipv4<&[u8]>) -> Ports {
    let port = |end| endpoint::port(packet, end).unwrap_or(Port::Absent);
    Ports { source: port(End::Source), destination: port(End::Destination) }
}

impl Softwires {
    /// Sends an IPv4 packet to a customer. The hop is counted, and the packet gets a type of
    /// service.
    ///
    /// # Errors
    /// The refusal of the packet, which is unchanged.
    #[inline]
    pub(super) fn send_to_customer(
        &mut self,
        packet: &mut Packet<'_>,
        to: Located,
        service: u8,
        from: Option<Owner>,
    ) -> Result<Option<Cut>, Refusal> {
        if let Owner::Rule(place) = to.owner
            && let MapMode::Translation(dmr) = self.domains.mode(place)
        {
            let address = to.tunnel.customer;
            return self.translate_to_customer(packet, (place, dmr), address, service, from);
        }
        let header = Ipv4::new_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        check_carried(&header)?;
        let (ttl, may_cut) = (header.ttl(), !header.dont_fragment());
        if ttl <= 1 {
            return Err(Refusal::with(DropReason::TtlExceeded, ErrorMessage::TTL_EXCEEDED));
        }
        let mtu = self.mtu_to(to);
        let len = packet.len() + ipv6::HEADER_LEN;
        let mut cut = None;
        if len > usize::from(mtu) {
            //= rfc2473#section-7.2-discard
            if !may_cut {
                let inner = mtu - ipv6::HEADER_LEN as u16;
                let error = ErrorMessage::fragmentation_needed(inner);
                return Err(Refusal::with(DropReason::TooBig, error));
            }
            //= rfc2473#section-7.2-fragment
            if len - ipv6::HEADER_LEN > usize::from(u16::MAX) {
                return Err(DropReason::TooBig.into());
            }
            let identification = self.identification(to.tunnel.customer);
            cut = Some(Cut { limit: mtu.into(), identification });
        }
        if self.mss.is_some() {
            self.clamp_mss(packet, from.map_or(mtu, |from| mtu.min(self.tunnel_mtu(from))));
        }
        set_hop(packet.bytes_mut(), ttl - 1, service);
        // Marks of congestion go through whatever the class is.
        let class = self.traffic_class.map_or(service, |class| class & !3 | service & 3);
        //= rfc7596#section-6.2-encapsulate
        //= rfc7596#section-6.2-class
        encapsulate(packet, to.tunnel, class);
        Ok(cut)
    }

    /// The MTU of the tunnels to an owner's customers, bytes. That of MAP-T is 20 bytes more than
    /// the link's: its packets have one header, of 40 bytes, and those of a tunnel two, of 60.
    pub(super) fn tunnel_mtu(&self, owner: Owner) -> u16 {
        let mtu = self.softwire(owner).mtu.map_or(self.mtu, |mtu| mtu.min(self.mtu));
        match owner {
            Owner::Rule(place) => match self.domains.mode(place) {
                MapMode::Translation(_) => mtu.saturating_add(ipv4::HEADER_LEN as u16),
                MapMode::Encapsulation(_) => mtu,
            },
            Owner::Bindings => mtu,
        }
    }

    /// Lowers the segment size of a SYN to what fits a tunnel.
    #[cold]
    pub(super) fn clamp_mss(&self, packet: &mut Packet<'_>, mtu: u16) {
        const HEADERS: u16 = (ipv6::HEADER_LEN + ipv4::HEADER_LEN + tcp::HEADER_LEN) as u16;
        if let Some(limit) = self.mss {
            lower_mss(packet.bytes_mut(), limit.min(mtu - HEADERS));
        }
    }

    /// The customer that an IPv4 packet from outside is for. A fragment without a port waits for
    /// the first one of its datagram.
    fn locate_receiver(&self, bytes: &[u8]) -> Result<Result<Located, Datagram>, Stopped> {
        let packet = Ipv4::new_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let port = || endpoint::port(&packet, End::Destination);
        let location = match self.locate(packet.destination(), port)? {
            Location::NeedsPort => {
                //= rfc7597#section-8.3.2-fragments
                let datagram = datagram(0, &packet);
                let Some(ports) = self.fragments.ports(&datagram) else {
                    return Ok(Err(datagram));
                };
                self.locate(packet.destination(), || Ok(ports.destination))?
            }
            location => location,
        };
        match location {
            Location::Customer(to) => {
                let is_closed = to.owner == Owner::Bindings
                    && packet.protocol() == protocol::ICMP
                    && self.lw4o6.as_ref().is_some_and(|lw4o6| !lw4o6.inbound_icmp);
                //= rfc7596#section-8.1-policy
                if is_closed { Err(DropReason::InboundIcmp.into()) } else { Ok(Ok(to)) }
            }
            //= rfc7596#section-6.2-no-match
            //= rfc7596#section-6.2-unreachable
            _ if self.answers(Owner::Bindings)
                || self.domains.find(packet.destination()).is_some() =>
            {
                Err(Refusal::with(DropReason::NoBinding, HOST_UNREACHABLE).into())
            }
            _ => Err(DropReason::NoBinding.into()),
        }
    }

    /// Takes an IPv4 packet from outside, whose header has been checked.
    pub(super) fn take_from_outside(&mut self, packet: &mut Packet<'_>) -> Result<Passed, Stopped> {
        let to = match self.locate_receiver(packet.bytes())? {
            Ok(to) => to,
            Err(datagram) => return Ok(Passed::Hold(datagram)),
        };
        let service = packet.bytes()[1];
        let cut = self.send_to_customer(packet, to, service, None)?;
        self.count_to(to.owner, packet.len());
        Ok(Passed::Sent(Direction::Inbound, Side::Inside, cut))
    }
}

impl Translator {
    /// Takes an IPv4 packet of `len` bytes from outside that is a softwire's. `checked` is the
    /// result of the checks of every packet.
    pub(crate) fn take_softwire_ipv4(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        checked: Result<(), DropReason>,
    ) -> Fate {
        let len = packet.len();
        let Some(softwires) = &mut self.softwires else { return Fate::Nothing };
        let first = checked.ok().and_then(|()| first_fragment(packet.bytes()));
        let taken = checked.map_err(Stopped::from);
        let taken = taken.and_then(|()| softwires.take_from_outside(packet));
        let fate = match taken {
            Ok(passed) => self.pass((now, Side::Outside), packet, passed, len),
            Err(Stopped { reason, answer }) => {
                let error = match answer {
                    Answer::Inner(message) => Some(message),
                    Answer::Outer(_) | Answer::Nothing => None,
                };
                self.refuse(now, Side::Outside, packet, len, Refusal { reason, error })
            }
        };
        if let Some((datagram, ports)) = first {
            self.learn(now, datagram, ports);
        }
        fate
    }

    /// Counts a packet that may go on, or holds it.
    #[inline]
    pub(super) fn pass(
        &mut self,
        moment: (Timestamp, Side),
        packet: &Packet<'_>,
        passed: Passed,
        len: usize,
    ) -> Fate {
        match passed {
            Passed::Hold(datagram) => self.hold(moment, datagram, packet, len),
            Passed::Sent(direction, side, cut) => {
                self.count(direction, len);
                let counted = (direction, Outcome::Forwarded, len);
                Fate::Send(crate::Departure { side, realm: 0, answers: false, cut, counted })
            }
        }
    }

    /// Holds a fragment that came in on a side; without room it is dropped.
    #[cold]
    fn hold(
        &mut self,
        (now, from): (Timestamp, Side),
        datagram: Datagram,
        packet: &Packet<'_>,
        len: usize,
    ) -> Fate {
        let Some(softwires) = &mut self.softwires else { return Fate::Nothing };
        if !softwires.fragments.hold(now.0, datagram, from, packet.bytes()) {
            let direction = Direction::forwarded(from, from.other());
            self.count_drop(direction, DropReason::FragmentLimit, len);
        }
        Fate::Nothing
    }
}

/// The datagram and the ports of a first fragment from outside.
#[inline]
fn first_fragment(bytes: &[u8]) -> Option<(Datagram, Ports)> {
    let packet = Ipv4::new_checked(bytes).ok()?;
    let is_first = packet.more_fragments() && packet.fragment_offset() == 0;
    is_first.then(|| (datagram(0, &packet), both_ports(&packet)))
}
