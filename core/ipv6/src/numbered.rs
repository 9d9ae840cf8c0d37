//! Hosts that have numbers in the engine: those of NAT64, or those behind the tunnels of DS-Lite.

use crate::convert::{Cut, DIFFERENCE, ErrorMessage, Refusal};
use crate::errors::HOST_UNREACHABLE;
use crate::hosts::no_number;
use crate::nat64::{Origin, Reached};
use crate::translator::{Fate, LEAST_MTU, Translator, process};
use crate::{CarriedHost, Hosts, StaticHost, UnfitHost};
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

impl HostName {
    /// Inner address of a host behind a tunnel of DS-Lite.
    pub fn inner(&self) -> Option<Ipv4Addr> {
        self.address?.to_ipv4_mapped()
    }
}

impl Translator {
    /// Number of the realm of hosts with numbers in the engine; `None`: there is neither NAT64 nor
    /// DS-Lite.
    pub fn realm(&self) -> Option<u16> {
        self.hosts().map(|_| self.realm)
    }

    /// The hosts of NAT64, or those behind the tunnels of DS-Lite.
    pub fn hosts(&self) -> Option<&Hosts> {
        let of_nat64 = self.nat64.as_ref().map(|nat64| &nat64.hosts);
        of_nat64.or_else(|| self.tunneled_hosts())
    }

    pub(crate) fn hosts_mut(&mut self) -> Option<&mut Hosts> {
        match self.nat64 {
            Some(_) => self.nat64.as_mut().map(|nat64| &mut nat64.hosts),
            None => self.tunneled_hosts_mut(),
        }
    }

    /// Forgets the packet that was taken last, and a new sender whose packet was refused. Errors
    /// about the packet must have been converted.
    #[inline]
    pub(crate) fn forget_last(&mut self) {
        if let Some(nat64) = &mut self.nat64 {
            nat64.quotes.clear();
        }
        if let Some(hosts) = self.hosts_mut() {
            hosts.forget_refused();
        }
    }

    /// Takes the hosts of another process's translator, whose mappings the engine has. Without
    /// NAT64 and DS-Lite there is no place for the hosts, nor for their mappings.
    ///
    /// # Errors
    /// The first host that does not fit. The translator is not to be used then.
    pub fn adopt_hosts(
        &mut self,
        hosts: impl IntoIterator<Item = CarriedHost>,
        now: Timestamp,
    ) -> Result<(), UnfitHost> {
        self.hosts_mut().map_or(Ok(()), |own| own.adopt(hosts, now.0))
    }

    /// Gives numbers to hosts of static mappings that may come into force until a time, and returns
    /// them; `None` for hosts of other translators that share the work. The engine's next
    /// configuration has these numbers ([`Settings::add_realm`](crate::Settings::add_realm)).
    ///
    /// # Errors
    /// A sentence if there is neither NAT64 nor DS-Lite, or no number for a host.
    pub fn reserve(
        &mut self,
        hosts: &[StaticHost],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Option<Ipv4Addr>>, String> {
        let Some(table) = self.hosts_mut() else {
            return match hosts.is_empty() {
                true => Ok(Vec::new()),
                false => Err(String::from("there is neither NAT64 nor DS-Lite")),
            };
        };
        let numbers = table.reserve(hosts, (now.0, until.0));
        numbers.map_err(|(host, _)| no_number(host, table.most_subscribers()))
    }

    /// Keeps the numbers of the hosts of static mappings that are in force now.
    pub fn keep(&mut self, hosts: &[StaticHost]) {
        if let Some(table) = self.hosts_mut() {
            table.keep(hosts);
        }
    }

    /// Frees hosts that have no mappings any more, some in each call.
    pub(crate) fn sweep_hosts(&mut self, engine: &Engine, now: Timestamp) {
        let realm = self.realm;
        if let Some(hosts) = self.hosts_mut() {
            hosts.sweep(engine, realm, now.0);
        }
    }

    /// Adds the error for the sender to the refusal of a host that gets no number, as the engine
    /// answers a host that gets no port.
    //= rfc6146#section-3.5.1.1-refused
    pub(crate) fn with_answer(&self, refusal: Refusal) -> Refusal {
        let Refusal { reason, .. } = refusal;
        let message = match self.refusal {
            _ if !is_short(reason) => return refusal,
            Answer::HostUnreachable if self.nat64.is_some() => ErrorMessage::ADDRESS_UNREACHABLE,
            Answer::HostUnreachable => HOST_UNREACHABLE,
            Answer::Prohibited if self.nat64.is_some() => ErrorMessage::PROHIBITED_IPV6,
            Answer::Prohibited => ErrorMessage::PROHIBITED,
            Answer::Silent => return refusal,
        };
        Refusal::with(reason, message)
    }

    /// Has the engine take an IPv4 packet from a host's number, which is counted with `len` bytes.
    /// `sender`: the number, and for NAT64 how it reaches the receiver, unless the packet is an
    /// error.
    pub(crate) fn take_numbered(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        packet: &mut Packet<'_>,
        sender: Option<(Ipv4Addr, Option<Reached>)>,
        len: usize,
    ) -> Fate {
        let more = len - packet.len();
        packet.set_realm(self.realm);
        let before = engine.counters().packets;
        let verdict = process(engine, now, Side::Inside, packet);
        self.add_bytes(&before, engine, more);
        // A hairpinned packet that the receiver's half refuses has made a mapping.
        let (way, dropped) = (Direction::Hairpin as usize, Outcome::Dropped as usize);
        let may_be_mapped = engine.counters().packets[way][dropped] != before[way][dropped];
        if let (Verdict::Drop(_), false, Some(hosts)) = (verdict, may_be_mapped, self.hosts_mut()) {
            hosts.note_refused(sender.map(|(number, _)| number));
        }
        if let (Some((number, Some(reached))), Some(nat64)) = (sender, &mut self.nat64) {
            nat64.note_prefix(number.to_bits(), reached, verdict);
        }
        self.departure(Side::Inside, packet, verdict, len)
    }

    /// Converts an IPv4 packet that the engine sends to a host with a number, in a buffer with
    /// [`HEADROOM`](crate::convert::HEADROOM) bytes before the packet.
    ///
    /// # Errors
    /// The reason why the packet is lost.
    pub fn convert_to_host(&mut self, packet: &mut Packet<'_>) -> Result<Option<Cut>, DropReason> {
        self.convert_from(packet, Origin::Packet)
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
        packet: &mut Packet<'_>,
    ) -> Result<Option<Cut>, DropReason> {
        self.convert_from(packet, Origin::Engine)
    }

    fn convert_from(
        &mut self,
        packet: &mut Packet<'_>,
        origin: Origin,
    ) -> Result<Option<Cut>, DropReason> {
        let own = self.own_ipv6(Side::Inside);
        let Some(nat64) = &mut self.nat64 else { return self.enter_tunnel(packet) };
        nat64.convert_to_host(packet, own, origin)
    }

    /// Largest IPv4 packet to a host with a number on a link, bytes. For DS-Lite, tunnel packets
    /// are cut, so any fits.
    pub fn mtu_of_hosts(&self, link: u16) -> u16 {
        match self.nat64 {
            Some(_) => link.max(LEAST_MTU) - DIFFERENCE as u16,
            None => u16::MAX,
        }
    }

    /// The host with a number, and its subscriber; `None`: the realm is another one.
    pub fn host(&self, realm: u16, number: Ipv4Addr) -> Option<HostName> {
        let hosts = self.hosts().filter(|_| self.realm == realm)?;
        let (prefix, len) = hosts.subscriber(number)?;
        let address = match self.inner_address(number) {
            Some(inner) => Some(inner.to_ipv6_mapped()),
            None => hosts.address(number).map(Ipv6Addr::from_bits),
        };
        Some(HostName { address, prefix: Ipv6Addr::from_bits(prefix), len })
    }

    /// Realm and numbers of the hosts in a prefix, which is one address or a subscriber.
    /// `None`: there are no such hosts.
    pub fn numbers(&self, prefix: Ipv6Addr, len: u8) -> Option<(u16, Prefix)> {
        Some((self.realm()?, self.hosts()?.numbers(prefix.to_bits(), len)?))
    }
}
