//! Packets from the inside (specification, section 3): permitted sources, destinations, and the
//! mapping and session of a packet. The gateway's answer to a ping and the limit of hops are here
//! too.

use crate::bytes::{ends, icmp_kind, ip, is_icmp_error, is_ping, lower_ttl, set_near};
use crate::points::DecisionPoints as _;
use crate::tcp::Segment;
use crate::{Fate, Key, Model, Packet, has_ports};
use natgate_engine::{Behavior, Direction, DropReason, Endpoint, Side, SideConfig, Verdict};
use natgate_wire::{Icmp, Ipv4, icmp};

/// Largest packet of a side without a configured MTU, bytes.
const USUAL_MTU: u16 = 1500;

impl Model {
    pub(crate) fn way_out(&mut self, packet: &mut Packet) -> Fate {
        let realm = packet.realm;
        let (source, destination) = packet.addresses();
        let names_host = self.host_bits(realm).is_some();
        if !names_host && (self.is_own(realm, source) || self.is_external(source)) {
            return Err(DropReason::SpoofedSource); // 3.1
        }
        self.redirect(packet);
        if self.is_own(realm, destination) && !self.is_external(destination) && !packet.aimed {
            return self.local(packet); // 3.2
        }
        if let Some(fate) = self.passes_untranslated(packet) {
            return fate;
        }
        let host = (realm, source.into());
        if !self.config.subscribers_of(realm).iter().any(|prefix| prefix.contains(source))
            && !self.has_static_internal(host)
            && packet.rule.is_none()
            && !is_icmp_error(&packet.bytes)
        {
            return Err(DropReason::NotSubscriber); // 3.12
        }
        self.check_redirect(packet)?;
        let (_, destination) = packet.addresses();
        let mut mtu = self.mtu(Side::Outside, 0);
        if self.is_external(destination) {
            packet.direction = Direction::Hairpin; // 3.14
            mtu = self.mtu_of_hairpin(realm);
            if !self.config.hairpinning {
                return Err(DropReason::HairpinDisabled);
            }
        } else if !packet.aimed && self.is_inside(realm, destination) {
            return Err(DropReason::SameSide);
        }
        self.hop(packet, mtu)?; // 3.15
        match icmp_kind(&packet.bytes) {
            Some(3 | 4 | 11 | 12) => self.error(packet)?, // 3.18
            None | Some(0 | 8 | 13 | 14) => {
                self.outbound(packet)?;
                if packet.direction == Direction::Hairpin
                    && let reply @ Verdict::Reply(_) = self.inbound(packet)?
                {
                    return Ok(reply); // 7.3
                }
                self.counters.portless += u64::from(!has_ports(packet.protocol()));
            }
            _ => return Err(DropReason::IcmpUnsupported),
        }
        lower_ttl(&mut packet.bytes);
        match packet.direction {
            Direction::Hairpin => Ok(Verdict::Forward(Side::Inside)),
            _ => Ok(Verdict::Forward(Side::Outside)),
        }
    }

    /// 3.21 to 3.37.
    fn outbound(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        let (internal, remote) = ends(&packet.bytes, Side::Inside);
        let mut key = self.key_of(packet.protocol(), packet.realm, internal, remote);
        if !self.mappings.contains_key(&key) {
            if self.is_midstream(packet) {
                return Err(DropReason::TcpNotSyn); // 3.26
            }
            self.check_place(remote, packet.seen)?;
            if matches!(icmp_kind(&packet.bytes), Some(0 | 14)) {
                return Err(DropReason::NoMapping);
            }
            key = self.create(packet, key, remote)?;
        } else if let Some(session) = self.mappings[&key].sessions.get(&remote) {
            if session.seen != packet.seen {
                return Err(DropReason::Ambiguous); // 13.7
            }
        } else {
            if self.is_midstream(packet) {
                return Err(DropReason::TcpNotSyn); // 3.32
            }
            self.check_place(remote, packet.seen)?;
            if let Err(reason) = self.room_for_session(key, remote, Side::Inside) {
                if reason == DropReason::MappingTableFull {
                    self.refuse(packet); // 3.28
                }
                return Err(reason);
            }
        }
        self.touch(key, (remote, packet.seen), Side::Inside, Segment::of(&packet.bytes));
        set_near(&mut packet.bytes, Side::Inside, self.mappings[&key].external); // 3.37
        self.edit(packet, remote, remote);
        Ok(())
    }

    /// 3.21: the key of the mapping between an internal and a remote endpoint.
    pub(crate) fn key_of(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        remote: Endpoint,
    ) -> Key {
        let of_remote = match self.config.mapping {
            _ if !has_ports(protocol) => Some(remote), // 5.13
            Behavior::EndpointIndependent => None,
            Behavior::AddressDependent => Some(Endpoint { port: 0, ..remote }),
            Behavior::AddressAndPortDependent => Some(remote),
        };
        let host_bits = self.host_bits(realm).unwrap_or(0);
        let ordinary =
            Key { protocol, realm, internal, remote: of_remote, beside: None, host_bits };
        self.key_instead(ordinary, remote)
    }

    /// 3.2: a packet to the gateway itself.
    pub(crate) fn local(&mut self, packet: &mut Packet) -> Fate {
        packet.direction = Direction::Local;
        packet.bytes.clone_from(&packet.received);
        if !is_ping(&packet.received) {
            return Err(DropReason::LocalUnsupported);
        }
        let (source, destination) = packet.addresses();
        let mut reply = Ipv4::new_checked(&mut packet.bytes[..]).expect("checked when it came in");
        reply.set_source(destination);
        reply.set_destination(source);
        reply.set_ttl(64);
        reply.fill_checksum();
        let mut icmp = Icmp::new_checked(reply.payload_mut()).expect("checked when it came in");
        icmp.set_kind(icmp::kind::ECHO_REPLY);
        icmp.fill_checksum();
        Ok(Verdict::Reply(packet.from))
    }

    /// 3.15: checks that a packet can go one hop further, over a link with this MTU.
    pub(crate) fn hop(&mut self, packet: &Packet, mtu: u16) -> Result<(), DropReason> {
        let ip = ip(&packet.received);
        if ip.ttl() <= 1 {
            self.answer(packet, (icmp::kind::TIME_EXCEEDED, 0, 0));
            return Err(DropReason::TtlExceeded);
        }
        if ip.dont_fragment() && ip.total_len() > mtu {
            self.answer(packet, (icmp::kind::UNREACHABLE, 4, mtu));
            return Err(DropReason::TooBig);
        }
        Ok(())
    }

    /// The configuration of a side, or of a realm of the inside.
    pub(crate) fn side(&self, side: Side, realm: u16) -> &SideConfig {
        match side {
            Side::Inside => self.config.inside_of(realm),
            Side::Outside => &self.config.outside,
        }
    }

    pub(crate) fn mtu(&self, side: Side, realm: u16) -> u16 {
        self.side(side, realm).mtu.unwrap_or(USUAL_MTU)
    }

    /// True if a TCP or DCCP packet cannot begin a session (3.26, 3.32, 4.17).
    pub(crate) fn is_midstream(&self, packet: &Packet) -> bool {
        Segment::of(&packet.received).is_some_and(|segment| {
            if self.config.tcp_pickup { segment.rst() } else { !segment.syn() }
        })
    }
}
