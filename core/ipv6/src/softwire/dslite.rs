//! DS-Lite (RFC 6333): the engine translates, with a number in place of each host behind a tunnel.
//!
//! A subscriber is a B4, the far end of a tunnel, or a prefix with one B4 at a time (RFC 7785). A
//! host is a subscriber and an inner IPv4 address, so hosts of different subscribers may have the
//! same inner address. Packets leave their tunnel,
//! their source becomes the host's number, and the engine takes them as packets of a realm of
//! numbers. What the engine sends into that realm gets the inner address again, and an outer
//! header.

use super::bindings::Tunnel;
use super::endpoint::End;
use super::from_tunnel::{Arrived, Content, read_inner};
use super::readdress::readdress;
use super::release::add_like;
use super::tunnel::{encapsulate, service_behind, set_hop};
use super::{SoftwireSettings, Softwires};
use crate::convert::{Cut, HEADROOM, Refusal};
use crate::hosts::{Hosts, SUBSCRIBERS, prefix_of};
use crate::nat64::about_ipv4;
use crate::prefix::addresses_of;
use crate::realms::HostKind;
use crate::share::Share;
use crate::translator::{Fate, Translator};
use crate::{Prefix6, StaticHost};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use natgate_engine::{
    Config, Direction, DropReason, Engine, Packet, Prefix, Ranges, RealmConfig, Side, SideConfig,
    Timestamp, is_martian,
};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6, ipv6};

/// Name of the realm of numbers.
pub(crate) const REALM: &str = "dslite";
/// The gateway's address in every tunnel (RFC 6333 section 6.5).
//= rfc6333#section-6.5-address
pub(super) const AFTR: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
/// Addresses of tunnels' ends (RFC 6333 section 5.7).
const WELL_KNOWN: Prefix = Prefix::new(Ipv4Addr::new(192, 0, 0, 0), 29);
/// Addresses of [`WELL_KNOWN`] that no host has: of the network, of the gateway, the broadcast
/// address.
const NO_HOSTS: [u32; 3] = [0xc000_0000, 0xc000_0001, 0xc000_0007];

/// True if a host behind a tunnel may have an inner address; `others`: the addresses besides those
/// of tunnels' ends.
//= rfc6333#section-11-sources
pub fn may_be_behind(inner: Ipv4Addr, others: impl IntoIterator<Item = Prefix>) -> bool {
    let inner = inner.to_bits();
    may_be_host(inner, || others.into_iter().any(|prefix| prefix.contains(inner)))
}

/// True if a host behind a tunnel may have an inner address. `is_other`: it is one of the addresses
/// besides those of tunnels' ends.
#[inline]
fn may_be_host(inner: u32, is_other: impl FnOnce() -> bool) -> bool {
    !NO_HOSTS.contains(&inner) && (WELL_KNOWN.contains(inner) || is_other())
}

/// Bits that tell the hosts of a B4 apart.
const HOST_BITS: u8 = 8;

/// Settings of DS-Lite, RFC 6333.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DsliteSettings {
    /// The gateway's end of the tunnels.
    pub address: Ipv6Addr,
    /// Prefixes of the other ends.
    pub b4: Vec<Prefix6>,
    /// Bits of a B4's address that name its subscriber: 48 to 128.
    pub subscriber_length: u8,
    /// Least time between two changes of a subscriber's B4.
    pub b4_change_interval: Duration,
    /// Treatment of the tunnels.
    pub softwire: SoftwireSettings,
    /// Hosts of static mappings, each once. The mappings are in the engine's configuration, in the
    /// realm of these hosts, with their numbers.
    pub static_hosts: Vec<StaticHost>,
}

/// The state of DS-Lite.
#[derive(Clone, Debug)]
pub(super) struct Dslite {
    settings: DsliteSettings,
    /// The realm of numbers.
    realm: u16,
    /// Addresses of the tunnels' other ends.
    b4: Ranges<u128>,
    /// Inner addresses that may send, besides those of RFC 6333 section 5.7.
    inner: Ranges<u32>,
    hosts: Hosts,
}

/// The engine's realm of numbers.
pub(crate) fn realm_of(config: &Config) -> RealmConfig {
    RealmConfig {
        name: String::from(REALM),
        inside: SideConfig {
            address: Some(AFTR),
            // Outer packets are cut, never inner ones.
            //= rfc6333#section-6.3-order
            mtu: Some(u16::MAX),
            silent: config.inside.silent,
            ..SideConfig::default()
        },
        subscribers: vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)],
        default_pool: config.default_pool,
        host_bits: Some(HOST_BITS),
        order: u16::MAX,
        ..RealmConfig::default()
    }
}

impl Dslite {
    /// # Errors
    /// A sentence about the host of a static mapping that gets no number.
    pub(super) fn new(
        settings: DsliteSettings,
        (realm, share): (u16, Share),
        config: &Config,
        seed: [u8; 32],
    ) -> Result<Self, String> {
        let most = config.limits.subscribers.map_or(SUBSCRIBERS, |most| most as usize);
        let interval = settings.b4_change_interval.as_nanos();
        let interval = u64::try_from(interval).unwrap_or(u64::MAX);
        let subscriber = (settings.subscriber_length, interval);
        let mut hosts = Hosts::of_tunnels(subscriber, most, share, seed);
        hosts.begin_with(&settings.static_hosts)?;
        let (b4, inner) = (addresses_of(&settings.b4), Ranges::of_ipv4(&config.subscribers));
        Ok(Self { settings, realm, b4, inner, hosts })
    }

    /// Takes the inner addresses that may send from the engine's new configuration.
    pub(super) fn renew(&mut self, config: &Config) {
        self.inner = Ranges::of_ipv4(&config.subscribers);
    }

    /// True if an inner address may send.
    #[inline]
    fn may_send(&self, inner: u32) -> bool {
        may_be_host(inner, || self.inner.has(inner))
    }

    /// The gateway's end of the tunnels.
    pub(super) fn address(&self) -> Ipv6Addr {
        self.settings.address
    }

    /// True if the gateway believes reports about narrower paths.
    pub(super) fn believes_reports(&self) -> bool {
        self.settings.softwire.path_mtu
    }

    fn is_b4(&self, address: u128) -> bool {
        self.b4.has(address)
    }

    /// The engine's realm of the hosts' numbers.
    #[inline]
    pub(super) fn realm(&self) -> u16 {
        self.realm
    }

    /// The number of a host that sends through a tunnel, by its hash, if the tunnel and the inner
    /// address may send and the subscriber has this tunnel already.
    #[inline(always)]
    pub(super) fn known(
        &mut self,
        now: Timestamp,
        (b4, inner): (u128, u32),
        hash: u64,
    ) -> Option<u32> {
        if !self.hosts.is_end(b4) || !self.is_b4(b4) || !self.may_send(inner) {
            return None;
        }
        self.hosts.known_behind(b4, inner, hash, now.0)
    }

    /// Checks a packet in its tunnel.
    pub(super) fn admit(&self, bytes: &[u8], arrived: Arrived) -> Result<Admitted, DropReason> {
        let b4 = arrived.ends.0;
        //= rfc6333#section-11-registered
        if !self.is_b4(b4) {
            return Err(DropReason::SoftwireSource);
        }
        let bytes = &bytes[arrived.at..];
        let inner = read_inner(bytes)?;
        let (source, destination) = (inner.source(), inner.destination());
        let known = match about_ipv4(bytes) {
            // Any router behind the B4 may send an error. The quoted packet tells the host.
            Some(receiver) => {
                let number = self.hosts.number_behind(b4, receiver);
                let number = number.filter(|_| self.hosts.is_end(b4));
                Some(number.ok_or(DropReason::IcmpNoSession)?)
            }
            None if is_martian(source) => return Err(DropReason::MartianSource),
            //= rfc6333#section-11-sources
            None if !self.may_send(source) => return Err(DropReason::NotSubscriber),
            None if source == destination => return Err(DropReason::Land),
            None => None,
        };
        //= rfc6333#section-7.1-class
        let service = service_behind(inner.service(), arrived.traffic_class)?;
        let (len, ttl) = (usize::from(inner.total_len()), inner.ttl());
        Ok(Admitted { source, known, len, ttl, service })
    }

    /// Takes a packet out of its tunnel and gives it its host's number. Returns the number, unless
    /// the packet is an error.
    fn enter(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        arrived: Arrived,
    ) -> Result<Option<Ipv4Addr>, DropReason> {
        let admitted = self.admit(packet.bytes(), arrived)?;
        let number = match admitted.known {
            Some(number) => number,
            //= rfc6333#section-6.6-source
            None => self.intern(arrived.ends.0, admitted.source, now)?,
        };
        admitted.leave(packet, arrived, number);
        packet.set_realm(self.realm);
        Ok(admitted.known.is_none().then_some(number))
    }

    /// True if a packet moves its subscriber from another tunnel to its own.
    #[inline(never)]
    fn moves(&self, now: Timestamp, bytes: &[u8]) -> bool {
        let source = Ipv6::new_header_checked(bytes).map(|header| header.source());
        if !source.is_ok_and(|source| self.hosts.may_move_to(source, now.0)) {
            return false;
        }
        let Some(arrived) = Arrived::whole(bytes) else { return false };
        self.admit(bytes, arrived).is_ok_and(|admitted| admitted.known.is_none())
    }

    /// The number of a host that sends through a tunnel, to which its subscriber moves.
    //= rfc7785#section-4-contexts
    fn intern(&mut self, b4: u128, inner: u32, now: Timestamp) -> Result<Ipv4Addr, DropReason> {
        if !self.hosts.may_send_from(b4, now.0) {
            return Err(DropReason::SoftwireSource);
        }
        let number = self.hosts.intern_behind(b4, inner, now.0)?;
        self.hosts.note_end(number.to_bits(), b4, now.0);
        Ok(number)
    }
}

/// A packet in its tunnel that may go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    /// The inner source.
    source: u32,
    /// The number of the host that an error is about.
    known: Option<Ipv4Addr>,
    /// Length, bytes.
    len: usize,
    ttl: u8,
    service: u8,
}

impl Admitted {
    /// Takes the packet out of its tunnel and gives its source a number.
    fn leave(&self, packet: &mut Packet<'_>, arrived: Arrived, number: Ipv4Addr) {
        packet.set_start(packet.start() + arrived.at);
        packet.truncate(self.len);
        set_hop(packet.bytes_mut(), self.ttl, self.service);
        readdress(packet.bytes_mut(), End::Source, number.to_bits());
    }
}

impl Softwires {
    /// Largest packet of DS-Lite's tunnels, bytes.
    fn dslite_mtu(&self) -> u16 {
        let configured = self.dslite.as_ref().and_then(|dslite| dslite.settings.softwire.mtu);
        configured.map_or(self.mtu, |mtu| mtu.min(self.mtu))
    }

    /// Puts an IPv4 packet that the engine sends to a host's number into the host's tunnel.
    fn enter_tunnel(&mut self, packet: &mut Packet<'_>) -> Result<Option<Cut>, DropReason> {
        let Some(dslite) = &self.dslite else { return Err(DropReason::NoMapping) };
        let header = Ipv4::new_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        let service = header.service();
        let found = dslite.hosts.behind(header.destination());
        let (b4, inner) = found.ok_or(DropReason::NoMapping)?;
        let address = dslite.settings.address;
        let tunnel = Tunnel { br: address.to_bits(), customer: b4 };
        let mtu = self.paths.mtu(b4, self.dslite_mtu());
        readdress(packet.bytes_mut(), End::Destination, inner);
        self.clamp_mss(packet, mtu);
        let mut cut = None;
        //= rfc6333#section-6.3-fragment
        //= rfc6333#section-6.3-order
        if packet.len() + ipv6::HEADER_LEN > usize::from(mtu) {
            cut = Some(Cut { limit: mtu.into(), identification: self.identification(b4) });
        }
        let class = self.traffic_class.map_or(service, |class| class & !3 | service & 3);
        //= rfc6333#section-6.6-reverse
        //= rfc6333#section-7.1-class
        encapsulate(packet, tunnel, class);
        let (packets, bytes) = &mut self.counter_of_dslite().inbound;
        (*packets, *bytes) = (*packets + 1, *bytes + packet.len() as u64);
        Ok(cut)
    }
}

impl Translator {
    pub(super) fn dslite(&self) -> Option<&Dslite> {
        self.softwires.as_ref()?.dslite.as_ref()
    }

    fn dslite_mut(&mut self) -> Option<&mut Dslite> {
        self.softwires.as_mut()?.dslite.as_mut()
    }

    /// The hosts behind tunnels; `None`: there is no DS-Lite.
    pub(crate) fn tunneled_hosts(&self) -> Option<&Hosts> {
        self.dslite().map(|dslite| &dslite.hosts)
    }

    pub(crate) fn tunneled_hosts_mut(&mut self) -> Option<&mut Hosts> {
        self.dslite_mut().map(|dslite| &mut dslite.hosts)
    }

    /// The number of a host behind a tunnel, if it has one.
    pub fn number_behind(&self, b4: Ipv6Addr, inner: Ipv4Addr) -> Option<Ipv4Addr> {
        self.dslite()?.hosts.number_behind(b4.to_bits(), inner.to_bits())
    }

    /// The number of a host that sends a request through a tunnel.
    pub(crate) fn intern_behind(
        &mut self,
        b4: Ipv6Addr,
        inner: Ipv4Addr,
        now: Timestamp,
    ) -> Result<Ipv4Addr, DropReason> {
        let dslite = self.dslite_mut().ok_or(DropReason::NotSubscriber)?;
        dslite.intern(b4.to_bits(), inner.to_bits(), now)
    }

    /// The realm of the hosts behind tunnels; `None`: there is no DS-Lite.
    pub(super) fn realm_of_tunnels(&self) -> Option<u16> {
        self.dslite().map(|dslite| dslite.realm)
    }

    /// True if packets of NAT64 and of DS-Lite may come in one batch. They go to the engine in runs
    /// of their own: give [`Translator::take_some`] first those that are not
    /// [`Translator::is_tunneled`], then the others. All packets of a flow are of one kind.
    pub fn has_two_kinds(&self) -> bool {
        self.nat64.is_some() && self.dslite().is_some()
    }

    /// True if an IPv6 packet is to the gateway's end of the tunnels of DS-Lite.
    pub fn is_tunneled(&self, packet: &[u8]) -> bool {
        let header = Ipv6::new_header_checked(packet);
        header.is_ok_and(|header| self.is_aftr(header.destination()))
    }

    /// True if an address is the gateway's end of the tunnels of DS-Lite.
    #[inline]
    pub(crate) fn is_aftr(&self, address: u128) -> bool {
        self.dslite().is_some_and(|dslite| dslite.settings.address.to_bits() == address)
    }

    /// Puts a packet of the engine's into the tunnel of its host.
    pub(crate) fn enter_tunnel(
        &mut self,
        packet: &mut Packet<'_>,
    ) -> Result<Option<Cut>, DropReason> {
        match &mut self.softwires {
            Some(softwires) => softwires.enter_tunnel(packet),
            None => Err(DropReason::Untranslatable),
        }
    }

    /// Takes an IPv6 packet from inside to the gateway's end of the tunnels.
    pub(crate) fn take_dslite(
        &mut self,
        engine: &mut Engine,
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
                let arrived = Arrived { ends, at, traffic_class };
                match self.take_request(packet.bytes(), arrived, len) {
                    Some(fate) => fate,
                    None if at > ipv6::HEADER_LEN && self.gives_plain() => {
                        self.push_plain(packet.bytes(), at, (1, len))
                    }
                    None => self.take_inner(engine, now, packet, arrived, len),
                }
            }
            // A forged source must not use the memory for fragments.
            Content::Fragment(..) if self.dslite().is_none_or(|one| !one.is_b4(ends.0)) => {
                if let Some(softwires) = &mut self.softwires {
                    softwires.counter_of_dslite().spoofed += 1;
                }
                self.drop_outer(packet, DropReason::SoftwireSource)
            }
            Content::Fragment(at, fragment) => {
                let hosts = self.tunneled_hosts();
                let len = hosts.map_or(128, |hosts| hosts.subscriber_length());
                let payer = prefix_of(ends.0, len);
                self.put_together(engine, now, packet.bytes(), (at, fragment), payer);
                Fate::Nothing
            }
            Content::Icmp(at) => self.take_aftr_icmp(engine, now, packet, at),
        }
    }

    /// Takes a whole packet in a tunnel, which is counted with `len` bytes.
    fn take_inner(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        packet: &mut Packet<'_>,
        arrived: Arrived,
        len: usize,
    ) -> Fate {
        match self.number_arrived(now, packet, arrived) {
            Ok(sender) => {
                let sender = sender.map(|number| (number, None));
                self.take_numbered(engine, now, packet, sender, len)
            }
            Err(reason) => {
                self.count_drop(Direction::Outbound, reason, len);
                self.answer_refused_host(now, arrived, reason, packet.bytes());
                Fate::Nothing
            }
        }
    }

    /// Tells a host behind a tunnel that it gets no number.
    #[cold]
    fn answer_refused_host(
        &mut self,
        now: Timestamp,
        arrived: Arrived,
        reason: DropReason,
        bytes: &[u8],
    ) {
        if let (Some(message), Some(inner)) =
            (self.with_answer(HostKind::Dslite, reason.into()).error, bytes.get(arrived.at..))
        {
            self.send_tunneled(now, AFTR.to_bits(), arrived.ends, message, inner);
        }
    }

    /// Counts a packet of `len` bytes from inside as dropped, and tells its sender if it is a host
    /// that gets no number.
    pub(crate) fn refuse_sender(
        &mut self,
        now: Timestamp,
        kind: HostKind,
        (packet, len): (&Packet<'_>, usize),
        refusal: Refusal,
    ) -> Fate {
        if kind == HostKind::Nat64 {
            return self.refuse(now, Side::Inside, packet, len, self.with_answer(kind, refusal));
        }
        if let Some(arrived) = Arrived::whole(packet.bytes()) {
            self.answer_refused_host(now, arrived, refusal.reason, packet.bytes());
        }
        self.refuse(now, Side::Inside, packet, len, refusal)
    }

    /// Takes a packet out of its tunnel and gives it its host's number. Returns the number, unless
    /// the packet is an error.
    fn number_arrived(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        arrived: Arrived,
    ) -> Result<Option<Ipv4Addr>, DropReason> {
        let Some(softwires) = &mut self.softwires else { return Err(DropReason::NoRoute) };
        let Some(dslite) = &mut softwires.dslite else { return Err(DropReason::NoRoute) };
        let len = packet.len() as u64;
        let entered = dslite.enter(now, packet, arrived);
        let counters = softwires.counter_of_dslite();
        match entered {
            Ok(_) => {
                let (packets, bytes) = &mut counters.outbound;
                (*packets, *bytes) = (*packets + 1, *bytes + len);
            }
            Err(DropReason::SoftwireSource) => counters.spoofed += 1,
            Err(_) => {}
        }
        let sender = entered?;
        softwires.clamp_mss(packet, softwires.dslite_mtu());
        Ok(sender)
    }

    /// As [`Translator::number_arrived`]; the host gets no number.
    pub(super) fn foretell_arrived(
        &self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        arrived: Arrived,
    ) -> Result<Option<Ipv4Addr>, DropReason> {
        let Some(dslite) = self.dslite() else { return Err(DropReason::NoRoute) };
        let admitted = dslite.admit(packet.bytes(), arrived)?;
        let number = match admitted.known {
            Some(number) => number,
            None if !dslite.hosts.may_send_from(arrived.ends.0, now.0) => {
                return Err(DropReason::SoftwireSource);
            }
            None => dslite.hosts.foretell_behind(arrived.ends.0, admitted.source)?.0,
        };
        admitted.leave(packet, arrived, number);
        packet.set_realm(dslite.realm);
        if let Some(softwires) = &self.softwires {
            softwires.clamp_mss(packet, softwires.dslite_mtu());
        }
        Ok(admitted.known.is_none().then_some(number))
    }

    /// Takes a packet from inside out of its tunnel, and gives it its host's number and realm. The
    /// caller sends it on, without the engine. False: nothing has changed, and
    /// [`Translator::take`] says what becomes of the packet.
    pub fn take_out_of_tunnel(&mut self, now: Timestamp, packet: &mut Packet<'_>) -> bool {
        let may_leave = |arrived: &Arrived| {
            self.dslite().is_some_and(|dslite| {
                dslite.address().to_bits() == arrived.ends.1
                    && dslite.hosts.may_send_from(arrived.ends.0, now.0)
                    && dslite.admit(packet.bytes(), *arrived).is_ok()
            })
        };
        let arrived = Arrived::whole(packet.bytes()).filter(may_leave);
        arrived.is_some_and(|arrived| self.number_arrived(now, packet, arrived).is_ok())
    }

    /// True if an address is that of a B4; true if an inner address may send.
    pub(super) fn permits_tunneled(&self, b4: u128, inner: u32) -> (bool, bool) {
        let permits = |dslite: &Dslite| (dslite.is_b4(b4), dslite.may_send(inner));
        self.dslite().map_or((false, false), permits)
    }

    /// True if a packet with the inner one behind the fixed header moves its subscriber from
    /// another tunnel to its own.
    #[inline]
    pub(crate) fn moves_tunnel(&self, now: Timestamp, packet: &Packet<'_>) -> bool {
        let dslite = self.dslite().filter(|dslite| dslite.hosts.have_ends());
        dslite.is_some_and(|dslite| dslite.moves(now, packet.bytes()))
    }

    /// As [`Translator::number_arrived`], for a packet with the inner one behind the fixed header.
    pub(crate) fn number_tunneled(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
    ) -> Result<Option<Ipv4Addr>, DropReason> {
        let arrived = Arrived::whole(packet.bytes()).ok_or(DropReason::BadLength)?;
        self.number_arrived(now, packet, arrived)
    }

    /// Takes a fragment of a packet in a tunnel from a B4.
    //= rfc6333#section-6.3-reassemble
    #[cold]
    fn put_together(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        bytes: &[u8],
        fragment: (usize, Fragment),
        payer: u128,
    ) {
        let whole = self.take_fragment(now, bytes, fragment, payer);
        let Some((mut buffer, fragments, received)) = whole else { return };
        if self.gives_plain() {
            let bytes = &buffer[HEADROOM..];
            self.push_plain(bytes, ipv6::HEADER_LEN, (fragments, received));
            return;
        }
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let Some(arrived) = Arrived::whole(packet.bytes()) else { return };
        let before = (self.counts().clone(), engine.counters().clone());
        let fate = self.take_inner(engine, now, &mut packet, arrived, received);
        let of_engine = (&before.1, engine.counters());
        if !add_like(self.counts_mut(), of_engine, fragments - 1) {
            self.count_more(&before.0, fragments - 1);
        }
        self.release(fate, packet.bytes());
    }
}
