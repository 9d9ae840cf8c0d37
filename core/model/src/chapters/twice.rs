//! Translation of destinations by rules, and remote endpoints that have another name inside
//! (specification, section 13).
//!
//! A packet from inside gets its destination outside before the rest of the model looks at it. A
//! session stores the name inside of its remote endpoint.

use crate::bytes::{check_error, ends, icmp_kind, ip, is_martian};
use crate::chapters::far::{set_far, set_outer_far};
use crate::{Key, Model, Packet};
use natgate_engine::{DropReason, Endpoint, Match, Prefix, RuleAction, Side};
use natgate_wire::protocol::{DCCP, TCP, UDP};
use std::net::Ipv4Addr;

/// Default room for sessions with a translated destination, at least (13.18).
const LEAST_TWICE: usize = 1024;

impl Model {
    /// 13.3: gives a packet without a bypass or drop rule its destination outside.
    pub(crate) fn aim(&mut self, packet: &mut Packet) {
        match icmp_kind(&packet.bytes) {
            Some(3 | 4 | 11 | 12) => self.aim_error(packet),
            None | Some(0 | 8 | 13 | 14) => {
                let (internal, seen) = ends(&packet.bytes, Side::Inside);
                packet.seen = seen;
                let remote = self.remote_of(packet.protocol(), packet.realm, internal, seen);
                if remote != seen {
                    packet.aimed = true;
                    set_far(&mut packet.bytes, Side::Inside, remote);
                }
            }
            _ => {}
        }
    }

    /// 13.14: sends an error to the sender of the packet that the error quotes.
    fn aim_error(&self, packet: &mut Packet) {
        if check_error(&packet.bytes).is_err() {
            return;
        }
        let embedded = &packet.bytes[ip(&packet.bytes).header_len() + 8..];
        let (internal, seen) = ends(embedded, Side::Outside);
        let protocol = ip(embedded).protocol();
        let remote = self.seen_as_another(protocol, packet.realm, internal, seen);
        if let Some(remote) = remote
            && ip(&packet.bytes).destination() == seen.address.to_bits()
        {
            packet.aimed = remote.address != seen.address;
            set_outer_far(&mut packet.bytes, Side::Inside, remote.address);
        }
    }

    /// 13.1: the remote endpoint that a packet from inside goes to.
    fn remote_of(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        seen: Endpoint,
    ) -> Endpoint {
        if let Some(remote) = self.seen_as_another(protocol, realm, internal, seen) {
            return remote;
        }
        if self.is_seen_as_is(protocol, realm, internal, seen) {
            return seen;
        }
        self.dnat(protocol, realm, seen).unwrap_or(seen)
    }

    /// The remote endpoint, with another name, of an internal endpoint's session that is seen as
    /// `seen`.
    pub(crate) fn seen_as_another(
        &self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        seen: Endpoint,
    ) -> Option<Endpoint> {
        if !self.chapters.has_twice {
            return None;
        }
        let own =
            |key: &Key| (key.protocol, key.realm, key.internal) == (protocol, realm, internal);
        let own = self.mappings.iter().filter(|(key, _)| own(key));
        let mut sessions = own.flat_map(|(_, mapping)| &mapping.sessions);
        let found = sessions.find(|(remote, session)| session.seen == seen && **remote != seen);
        found.map(|(remote, _)| *remote)
    }

    fn is_seen_as_is(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        remote: Endpoint,
    ) -> bool {
        let key = self.key_of(protocol, realm, internal, remote);
        let session = self.mappings.get(&key).and_then(|mapping| mapping.sessions.get(&remote));
        session.is_some_and(|session| session.seen == remote)
    }

    /// 13.4: the destination to which the best rule sends packets.
    pub(crate) fn dnat(&self, protocol: u8, realm: u16, seen: Endpoint) -> Option<Endpoint> {
        let ports = matches!(protocol, TCP | UDP | DCCP);
        let rules = self.rules_of(realm).iter().filter_map(|rule| {
            let Match::Destination(prefix, port) = rule.matches else { return None };
            let to = match rule.action {
                RuleAction::Dnat(address, to) => {
                    let port = to.filter(|_| ports).unwrap_or(seen.port);
                    Endpoint { address, port }
                }
                RuleAction::DnatPrefix(to) => moved(seen, prefix, to),
                _ => return None,
            };
            let fits = fits(prefix, port, seen);
            fits.then_some(((rule.priority, prefix.len(), port != 0), to))
        });
        rules.max_by_key(|(rank, _)| *rank).map(|(_, to)| to)
    }

    /// 13.9: the name inside of the source of a packet from outside that belongs to no session.
    fn dnat_back(&self, realm: u16, source: Endpoint) -> Option<Endpoint> {
        let rules = self.rules_of(realm).iter().rev().filter_map(|rule| {
            let (Match::Destination(prefix, port), RuleAction::DnatPrefix(to)) =
                (rule.matches, &rule.action)
            else {
                return None;
            };
            let rank = (rule.priority, prefix.len(), port != 0);
            fits(*to, port, source).then(|| (rank, moved(source, *to, prefix)))
        });
        // Of equally good rules the last in this order is the first configured.
        rules.max_by_key(|(rank, _)| *rank).map(|(_, seen)| seen)
    }

    /// 13.5: checks that a translated packet may go to its destination.
    pub(crate) fn check_aim(&self, packet: &Packet) -> Result<(), DropReason> {
        let destination = ip(&packet.bytes).destination();
        if !packet.aimed {
            Ok(())
        } else if is_martian(destination) || self.is_broadcast(packet, destination) {
            Err(DropReason::MartianDestination)
        } else if self.is_own(packet.realm, destination) && !self.is_external(destination) {
            Err(DropReason::LocalUnsupported)
        } else {
            Ok(())
        }
    }

    /// 13.9 and 13.14: the name inside of the source of a packet from outside.
    pub(crate) fn seen_from_inside(&mut self, packet: &Packet) -> Endpoint {
        let bytes = &packet.bytes;
        let source = Endpoint::new(ip(bytes).source(), 0);
        let mut realm = 0; // 15.7
        let (remote, seen) = match icmp_kind(bytes) {
            Some(3 | 4 | 11 | 12) => {
                let about = check_error(bytes).ok().and_then(|()| {
                    let embedded = &bytes[ip(bytes).header_len() + 8..];
                    let (external, remote) = ends(embedded, Side::Inside);
                    realm = self.realm_of(ip(embedded).protocol(), external, remote);
                    let seen = self.session_seen(ip(embedded).protocol(), external, remote)?;
                    (remote.address == source.address).then_some(Endpoint { port: 0, ..seen })
                });
                (source, about)
            }
            None | Some(0 | 8 | 13 | 14) => {
                let (external, remote) = ends(bytes, Side::Outside);
                realm = self.realm_of(packet.protocol(), external, remote);
                (remote, self.session_seen(packet.protocol(), external, remote))
            }
            _ => (source, None),
        };
        seen.or_else(|| self.dnat_back(realm, remote)).unwrap_or(remote)
    }

    /// The realm of a packet from outside, as far as a mapping tells.
    fn realm_of(&mut self, protocol: u8, external: Endpoint, remote: Endpoint) -> u16 {
        self.by_external(protocol, external, remote).map_or(0, |key| key.realm)
    }

    /// The name inside of the remote endpoint of a session between these endpoints, if there is
    /// one.
    pub(crate) fn session_seen(
        &mut self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<Endpoint> {
        let key = self.by_external(protocol, external, remote)?;
        self.mappings[&key].sessions.get(&remote).map(|session| session.seen)
    }

    /// 13.11: checks that a session from outside may have this name of its remote endpoint.
    pub(crate) fn may_be_seen(
        &mut self,
        key: Key,
        remote: Endpoint,
        seen: Endpoint,
    ) -> Result<(), DropReason> {
        let another = self.seen_as_another(key.protocol, key.realm, key.internal, seen);
        if another.is_some_and(|another| another != remote)
            || remote != seen && self.is_seen_as_is(key.protocol, key.realm, key.internal, seen)
        {
            return Err(DropReason::Ambiguous);
        }
        self.room_to_see(remote, seen)
    }

    /// 13.8: checks that there is room for a session with this name of its remote endpoint.
    pub(crate) fn room_to_see(&self, remote: Endpoint, seen: Endpoint) -> Result<(), DropReason> {
        if remote == seen {
            return Ok(());
        }
        let sessions = self.mappings.values().flat_map(|mapping| &mapping.sessions);
        let twice = sessions.filter(|(remote, session)| session.seen != **remote).count();
        let most = self.config.limits.twice_sessions;
        let most = most.map_or((self.chapters.room / 4).max(LEAST_TWICE), |most| most as usize);
        if twice >= most { Err(DropReason::SessionTableFull) } else { Ok(()) }
    }
}

fn fits(prefix: Prefix, port: u16, end: Endpoint) -> bool {
    prefix.contains(end.address.to_bits()) && (port == 0 || port == end.port)
}

/// The endpoint at the same offset in another prefix.
fn moved(end: Endpoint, from: Prefix, to: Prefix) -> Endpoint {
    let place = end.address.to_bits().wrapping_sub(from.first());
    Endpoint { address: Ipv4Addr::from_bits(to.first().wrapping_add(place)), port: end.port }
}
