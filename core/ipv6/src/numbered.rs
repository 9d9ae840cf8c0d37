//! Hosts that have numbers in the engine: those of NAT64, and those behind the tunnels of DS-Lite.
//! Each kind has a table and a realm of its own.

use crate::convert::{Cut, DIFFERENCE, ErrorMessage, Refusal};
use crate::errors::HOST_UNREACHABLE;
use crate::hosts::no_number;
use crate::nat64::{CarriedPath, Nat64, Origin, Reached};
use crate::realms::{HostKind, HostRealms};
use crate::translator::{Fate, LEAST_MTU, Translator, process};
use crate::{CarriedHost, Hosts, StaticHost, UnfitHost};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{
    Direction, DropReason, Engine, Outcome, Packet, Prefix, Refusal as Answer, Side, Timestamp,
    Verdict,
};

/// True if a packet is refused because its host gets no number.
pub(crate) fn is_short(reason: DropReason) -> bool {
    matches!(reason, DropReason::MappingTableFull | DropReason::PortQuota)
}

/// Name of a host of NAT64 or DS-Lite that has a number in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostName {
    /// Address of the host; `None`: no host has the number any more. A host behind a tunnel of
    /// DS-Lite has its inner IPv4 address, as an IPv4-mapped one (RFC 4291 section 2.5.5.2).
    pub address: Option<Ipv6Addr>,
    /// Prefix that is the subscriber.
    pub prefix: Ipv6Addr,
    /// Length of the prefix, bits.
    pub len: u8,
}

/// The hosts of a kind.
fn of_kind(hosts: &[StaticHost], kind: HostKind) -> Vec<StaticHost> {
    hosts.iter().filter(|host| host.kind() == kind).copied().collect()
}

impl HostName {
    /// Inner address of a host behind a tunnel of DS-Lite.
    pub fn inner(&self) -> Option<Ipv4Addr> {
        self.address?.to_ipv4_mapped()
    }
}

impl Translator {
    /// Realms of hosts with numbers in the engine.
    #[inline]
    pub fn realms(&self) -> HostRealms {
        self.realms
    }

    /// The hosts of a kind; `None`: there are none.
    #[inline]
    pub fn hosts(&self, kind: HostKind) -> Option<&Hosts> {
        match kind {
            HostKind::Nat64 => self.nat64.as_ref().map(|nat64| &nat64.hosts),
            HostKind::Dslite => self.tunneled_hosts(),
        }
    }

    pub(crate) fn hosts_mut(&mut self, kind: HostKind) -> Option<&mut Hosts> {
        match kind {
            HostKind::Nat64 => self.nat64.as_mut().map(|nat64| &mut nat64.hosts),
            HostKind::Dslite => self.tunneled_hosts_mut(),
        }
    }

    /// The hosts of a realm; `None`: they have no numbers.
    pub(crate) fn hosts_of(&self, realm: u16) -> Option<&Hosts> {
        self.hosts(self.realms.kind(realm)?)
    }

    pub(crate) fn hosts_of_mut(&mut self, realm: u16) -> Option<&mut Hosts> {
        self.hosts_mut(self.realms.kind(realm)?)
    }

    /// All hosts of both kinds, in no order, for another process.
    pub fn carried_hosts(&self) -> impl Iterator<Item = CarriedHost> {
        HostKind::ALL.into_iter().filter_map(|kind| self.hosts(kind)).flat_map(Hosts::carried)
    }

    /// Forgets the packet that was taken last, and a new sender whose packet was refused. Errors
    /// about the packet must have been converted.
    #[inline]
    pub(crate) fn forget_last(&mut self) {
        if let Some(nat64) = &mut self.nat64 {
            nat64.quotes.clear();
            nat64.hosts.forget_refused();
        }
        if let Some(hosts) = self.tunneled_hosts_mut() {
            hosts.forget_refused();
        }
    }

    /// The prefixes by which hosts of NAT64 reach remote addresses, for another process.
    pub fn carried_paths(&self) -> impl Iterator<Item = CarriedPath> {
        self.nat64.iter().flat_map(Nat64::carried_paths)
    }

    /// Takes the prefixes of another process's translator.
    pub fn adopt_paths(&mut self, paths: impl IntoIterator<Item = CarriedPath>) {
        if let Some(nat64) = &mut self.nat64 {
            paths.into_iter().for_each(|path| nat64.adopt_path(path));
        }
    }

    /// Takes the hosts of another process's translator, whose mappings the engine has. Without
    /// NAT64 or DS-Lite there is no place for its hosts, nor for their mappings.
    ///
    /// # Errors
    /// The first host that does not fit. The translator is not to be used then.
    pub fn adopt_hosts(
        &mut self,
        hosts: impl IntoIterator<Item = CarriedHost>,
        now: Timestamp,
    ) -> Result<(), UnfitHost> {
        let is_of_nat64 = |host: &CarriedHost| host.kind() == HostKind::Nat64;
        let (of_nat64, tunneled): (Vec<_>, Vec<_>) = hosts.into_iter().partition(is_of_nat64);
        for (kind, hosts) in [(HostKind::Nat64, of_nat64), (HostKind::Dslite, tunneled)] {
            self.hosts_mut(kind).map_or(Ok(()), |own| own.adopt(hosts, now.0))?;
        }
        Ok(())
    }

    /// Gives numbers to hosts of static mappings, those of NAT64 first, that may come into force
    /// until a time, and returns them; `None` for hosts of other translators that share the work.
    /// The engine's next
    /// configuration has these numbers ([`Settings::add_realm`](crate::Settings::add_realm)).
    ///
    /// # Errors
    /// A sentence if there is no NAT64 or no DS-Lite for a host, or no number.
    pub fn reserve(
        &mut self,
        hosts: &[StaticHost],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Option<Ipv4Addr>>, String> {
        let mut all = Vec::with_capacity(hosts.len());
        for kind in HostKind::ALL {
            let own = of_kind(hosts, kind);
            let Some(table) = self.hosts_mut(kind) else {
                match own.first() {
                    None => continue,
                    Some(host) => return Err(format!("there is no {} for {host}", kind.name())),
                }
            };
            let numbers = table.reserve(&own, (now.0, until.0));
            all.extend(numbers.map_err(|(host, _)| no_number(host, table.most_subscribers()))?);
        }
        Ok(all)
    }

    /// Keeps the numbers of the hosts of static mappings that are in force now.
    pub fn keep(&mut self, hosts: &[StaticHost]) {
        for kind in HostKind::ALL {
            if let Some(table) = self.hosts_mut(kind) {
                table.keep(&of_kind(hosts, kind));
            }
        }
    }

    /// Frees hosts that have no mappings any more, some in each call.
    pub(crate) fn sweep_hosts(&mut self, engine: &Engine, now: Timestamp) {
        for (realm, kind) in self.realms.all() {
            if let Some(hosts) = self.hosts_mut(kind) {
                hosts.sweep(engine, realm, now.0);
            }
        }
        if let Some(nat64) = &mut self.nat64 {
            nat64.sweep_prefixes(engine);
        }
    }

    /// Adds the error for the sender to the refusal of a host that gets no number, as the engine
    /// answers a host that gets no port.
    //= rfc6146#section-3.5.1.1-refused
    pub(crate) fn with_answer(&self, kind: HostKind, refusal: Refusal) -> Refusal {
        let Refusal { reason, .. } = refusal;
        let message = match (self.refusal, kind) {
            _ if !is_short(reason) => return refusal,
            (Answer::HostUnreachable, HostKind::Nat64) => ErrorMessage::ADDRESS_UNREACHABLE,
            (Answer::HostUnreachable, HostKind::Dslite) => HOST_UNREACHABLE,
            (Answer::Prohibited, HostKind::Nat64) => ErrorMessage::PROHIBITED_IPV6,
            (Answer::Prohibited, HostKind::Dslite) => ErrorMessage::PROHIBITED,
            (Answer::Silent, _) => return refusal,
        };
        Refusal::with(reason, message)
    }

    /// Has the engine take an IPv4 packet from a host's number, which is counted with `len` bytes
    /// and has the host's realm. `sender`: the number, and for NAT64 how it reaches the receiver,
    /// unless the packet is an error.
    pub(crate) fn take_numbered(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        packet: &mut Packet<'_>,
        sender: Option<(Ipv4Addr, Option<Reached>)>,
        len: usize,
    ) -> Fate {
        let (more, realm) = (len - packet.len(), packet.realm());
        let before = engine.counters().packets;
        let verdict = process(engine, now, Side::Inside, packet);
        self.add_bytes(&before, engine, more);
        // A hairpinned packet that the receiver's half refuses has made a mapping.
        let (way, dropped) = (Direction::Hairpin as usize, Outcome::Dropped as usize);
        let may_be_mapped = engine.counters().packets[way][dropped] != before[way][dropped];
        if let (Verdict::Drop(_), false, Some(hosts)) =
            (verdict, may_be_mapped, self.hosts_of_mut(realm))
        {
            hosts.note_refused(sender.map(|(number, _)| number));
        }
        if let (Some((number, Some(reached))), Some(nat64)) = (sender, &mut self.nat64) {
            nat64.note_prefix(number.to_bits(), reached, verdict);
        }
        self.departure(Side::Inside, packet, verdict, len)
    }

    /// Converts an IPv4 packet that the engine sends to a host with a number in a realm, in a
    /// buffer with [`HEADROOM`](crate::convert::HEADROOM) bytes before the packet.
    ///
    /// # Errors
    /// The reason why the packet is lost.
    pub fn convert_to_host(
        &mut self,
        realm: u16,
        packet: &mut Packet<'_>,
    ) -> Result<Option<Cut>, DropReason> {
        self.convert_from(realm, packet, Origin::Packet)
    }

    /// As [`Translator::convert_to_host`], for a packet of
    /// [`Engine::poll_transmit`](natgate_engine::Engine::poll_transmit): it may be an error of the
    /// engine's own, which comes from the gateway's address. With
    /// [`ERROR_ROOM`](crate::ERROR_ROOM) bytes before the packet, such an error quotes as much as
    /// ICMPv6 permits.
    ///
    /// # Errors
    /// The reason why the packet is lost.
    pub fn convert_own_to_host(
        &mut self,
        realm: u16,
        packet: &mut Packet<'_>,
    ) -> Result<Option<Cut>, DropReason> {
        self.convert_from(realm, packet, Origin::Engine)
    }

    fn convert_from(
        &mut self,
        realm: u16,
        packet: &mut Packet<'_>,
        origin: Origin,
    ) -> Result<Option<Cut>, DropReason> {
        let own = self.own_ipv6(Side::Inside);
        match &mut self.nat64 {
            Some(nat64) if nat64.realm == realm => nat64.convert_to_host(packet, own, origin),
            _ => self.enter_tunnel(packet),
        }
    }

    /// Largest IPv4 packet to a host of a kind on a link, bytes. For DS-Lite, tunnel packets are
    /// cut, so any fits.
    pub fn mtu_of_hosts(kind: HostKind, link: u16) -> u16 {
        match kind {
            HostKind::Nat64 => link.max(LEAST_MTU) - DIFFERENCE as u16,
            HostKind::Dslite => u16::MAX,
        }
    }

    /// The host with a number, and its subscriber; `None`: the realm is another one.
    pub fn host(&self, realm: u16, number: Ipv4Addr) -> Option<HostName> {
        let hosts = self.hosts_of(realm)?;
        let (prefix, len) = hosts.subscriber(number)?;
        let address = hosts.behind(number.to_bits()).map(|(end, inner)| match inner {
            0 => Ipv6Addr::from_bits(end),
            inner => Ipv4Addr::from_bits(inner).to_ipv6_mapped(),
        });
        Some(HostName { address, prefix: Ipv6Addr::from_bits(prefix), len })
    }

    /// The number of the host with an inner address that is behind the tunnel of another host.
    pub fn number_beside(&self, host: Ipv4Addr, inner: Ipv4Addr) -> Option<Ipv4Addr> {
        let hosts = self.tunneled_hosts()?;
        let (end, _) = hosts.behind(host.to_bits())?;
        hosts.number_behind(end, inner.to_bits())
    }

    /// The inner address of a host with a number, if it is behind the tunnel of another host.
    pub fn inner_beside(&self, host: Ipv4Addr, other: Ipv4Addr) -> Option<Ipv4Addr> {
        let hosts = self.tunneled_hosts()?;
        let (_, inner) = hosts.behind(other.to_bits())?;
        let is_beside = hosts.subscriber(host)? == hosts.subscriber(other)?;
        is_beside.then(|| inner.into())
    }

    /// Realm and numbers of the hosts of a kind in a prefix, which is one address or a subscriber.
    /// `None`: there are no such hosts.
    pub fn numbers(&self, kind: HostKind, prefix: Ipv6Addr, len: u8) -> Option<(u16, Prefix)> {
        Some((self.realms.of(kind)?, self.hosts(kind)?.numbers(prefix.to_bits(), len)?))
    }
}
