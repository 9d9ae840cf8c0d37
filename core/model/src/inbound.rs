//! Packets from the outside (specification, section 4), and the second half of a hairpin (section
//! 7).

use crate::bytes::{ends, icmp_kind, is_ping, lower_ttl, set_near};
use crate::chapters::MappingMarks;
use crate::points::DecisionPoints as _;
use crate::tcp::Segment;
use crate::{Fate, Key, Model, Packet, has_ports};
use natgate_engine::{Behavior, Direction, DropReason, Endpoint, Side, TimeoutSet, Verdict};
use natgate_wire::protocol::{DCCP, TCP};

impl Model {
    pub(crate) fn way_in(&mut self, packet: &mut Packet) -> Fate {
        let (source, destination) = packet.addresses();
        let knows_realm = self.knows_realm(packet);
        if self.is_external(source)
            || self.is_outside_own(source)
            || knows_realm && self.is_own(0, source)
        {
            return Err(DropReason::SpoofedSource); // 4.1
        }
        if !self.is_external(destination) {
            return match self.is_outside_own(destination) {
                true => self.local(packet), // 4.2
                false => self.not_for_us(packet),
            };
        }
        let remote = packet.seen;
        self.see_source(packet, remote)?;
        match icmp_kind(&packet.bytes) {
            Some(3 | 4 | 11 | 12) => {
                self.error(packet)?; // 4.7
                self.hop(packet, self.mtu(Side::Inside, packet.exit))?;
            }
            None | Some(0 | 8 | 13 | 14) => {
                if let reply @ Verdict::Reply(_) = self.inbound(packet)? {
                    return Ok(reply);
                }
                self.counters.portless += u64::from(!has_ports(packet.protocol()));
            }
            _ => return Err(DropReason::IcmpUnsupported),
        }
        lower_ttl(&mut packet.bytes);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// 13.9, 4.6: gives the packet's source the name that it has inside.
    fn see_source(&mut self, packet: &mut Packet, remote: Endpoint) -> Result<(), DropReason> {
        packet.seen = self.source_seen(packet);
        let (source, _) = packet.addresses();
        let is_inside = self.knows_realm(packet) && self.is_inside(0, source);
        if is_inside && packet.seen == remote {
            return Err(DropReason::SpoofedSource); // 4.6
        }
        Ok(())
    }

    /// 4.8 to 4.24.
    pub(crate) fn inbound(&mut self, packet: &mut Packet) -> Fate {
        let (external, remote) = ends(&packet.bytes, Side::Outside);
        if self.before_inbound(packet, external, remote) && packet.direction != Direction::Hairpin {
            self.see_source(packet, remote)?;
        }
        let seen_anew = match packet.direction {
            Direction::Hairpin => remote, // 13.13
            _ => packet.seen,
        };
        let Some(key) = self.mapping_behind(packet.protocol(), external, remote) else {
            return self.without_mapping(packet, external, remote);
        };
        let known = self.mappings[&key].sessions.contains_key(&remote);
        let key = match known {
            true => key,
            false => match self.mapping_for_new(key, external, (remote, seen_anew)) {
                Some(key) => key,
                None => {
                    self.note_refused(packet, external, remote);
                    return Err(DropReason::Filtered); // 4.12, 5.53
                }
            },
        };
        let session = self.mappings[&key].sessions.get(&remote);
        let seen = session.map_or(seen_anew, |session| session.seen);
        self.enter(packet, key.realm, known, seen == remote)?;
        if self.drops_session(key, seen) {
            return Err(DropReason::Rule); // 4.9
        }
        if !known {
            if !self.admits_new(key, external, (remote, seen)) {
                self.note_refused(packet, external, remote);
                return Err(DropReason::Filtered); // 4.15
            }
            if self.is_midstream(packet) {
                return Err(DropReason::TcpNotSyn);
            }
            self.check_seen(key, remote, seen)?;
        }
        if packet.direction != Direction::Hairpin {
            self.hop(packet, self.mtu(Side::Inside, key.realm))?; // 4.19
        }
        if !known && let Err(reason) = self.room_for_session(key, remote, Side::Outside) {
            if reason == DropReason::NoMapping {
                self.note_refused(packet, external, remote); // 3.25
            }
            return Err(reason);
        }
        self.touch(key, (remote, seen), Side::Outside, Segment::of(&packet.bytes));
        set_near(&mut packet.bytes, Side::Outside, key.internal); // 4.24
        self.edit(packet, remote, seen);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// 4.8: no mapping has the external endpoint.
    fn without_mapping(&mut self, packet: &mut Packet, end: Endpoint, remote: Endpoint) -> Fate {
        let address = end.address.to_bits();
        let own = match packet.direction {
            Direction::Hairpin => self.is_own(packet.realm, address) && !packet.aimed, // 7.3
            _ => self.is_outside_own(address),
        };
        if own && is_ping(&packet.received) {
            return self.local(packet);
        }
        if let Some((key, pool)) = self.key_without_mapping(packet.protocol(), end, remote)
            && !matches!(icmp_kind(&packet.bytes), Some(0 | 14))
        {
            return self.map_at_owner(packet, (key, pool), end, remote);
        }
        self.note_refused(packet, end, remote);
        Err(DropReason::NoMapping)
    }

    /// 5.64: a packet to a port without a mapping, of an address that a host has.
    fn map_at_owner(
        &mut self,
        packet: &mut Packet,
        (key, pool): (Key, usize),
        end: Endpoint,
        remote: Endpoint,
    ) -> Fate {
        let seen = match packet.direction {
            Direction::Hairpin => remote, // 13.13
            _ => packet.seen,
        };
        self.enter(packet, key.realm, false, seen == remote)?;
        if self.drops_session(key, seen) {
            return Err(DropReason::Rule); // 4.9
        }
        let filtering = self.filtering_of(key.protocol);
        if filtering != Behavior::EndpointIndependent || !self.may_map(key, pool, end) {
            self.note_refused(packet, end, remote);
            return Err(DropReason::Filtered);
        }
        if self.is_midstream(packet) {
            return Err(DropReason::TcpNotSyn);
        }
        self.check_seen(key, remote, seen)?;
        if packet.direction != Direction::Hairpin {
            self.hop(packet, self.mtu(Side::Inside, key.realm))?; // 4.19
        }
        self.permits_from_outside(key, pool)?;
        if self.is_ambiguous_new(key, remote) {
            return Err(DropReason::Ambiguous);
        }
        self.make(key, (pool, None), end, remote, MappingMarks::default());
        self.mappings.get_mut(&key).expect("just made").timeouts = TimeoutSet::default();
        self.touch(key, (remote, seen), Side::Outside, Segment::of(&packet.bytes));
        set_near(&mut packet.bytes, Side::Outside, key.internal);
        self.edit(packet, remote, seen);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// 4.15 and 4.16: the filtering behavior of a protocol.
    fn filtering_of(&self, protocol: u8) -> Behavior {
        let own = match protocol {
            TCP | DCCP => self.config.filtering_tcp,
            _ => None,
        };
        own.unwrap_or(self.config.filtering)
    }

    /// 4.15: true if the filtering behavior admits a new session.
    fn admits_new(
        &self,
        key: Key,
        external: Endpoint,
        (remote, seen): (Endpoint, Endpoint),
    ) -> bool {
        let sessions = &self.mappings[&key].sessions;
        self.admits(key, external, seen).unwrap_or_else(|| match self.filtering_of(key.protocol) {
            Behavior::EndpointIndependent => true,
            Behavior::AddressDependent => sessions.keys().any(|end| end.address == remote.address),
            Behavior::AddressAndPortDependent => false,
        })
    }
}
