//! NAT64 (RFC 6146): the engine translates, with a number in place of each inside host.
//!
//! A packet from inside becomes IPv4 with the host's number as source; the engine takes it as a
//! packet of a realm of numbers. A packet that the engine sends into that realm becomes IPv6. A
//! host may reach a remote address by several prefixes, so the prefix of each host and remote
//! address is remembered while they have a session, unless it is the first one.

mod prefixes;

use crate::convert::{
    Addresses, Converter, Cut, DIFFERENCE, ErrorMessage, Place, Plain4, Plain6, Refusal,
};
use crate::embedding::Pref64;
use crate::errors;
use crate::hosts::{Hosts, SUBSCRIBERS};
use crate::prefix::addresses_of;
use crate::quotes::Quotes;
use crate::realms::HostKind;
use crate::settings::Nat64Settings;
use crate::share::Share;
use crate::translator::{Fate, Translator, cut_of};
use crate::untranslated::{Piece, Untranslated};
use alloc::string::String;
use alloc::vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{
    Config, DropReason, Engine, Packet, Prefix, Ranges, RealmConfig, Side, SideConfig, Timestamp,
    Verdict,
};
use natgate_wire::ipv6::MIN_MTU;
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6, icmp, icmpv6, ipv6, protocol};
pub use prefixes::CarriedPath;
use prefixes::Prefixes;

/// Source of the engine's errors to the realm of numbers (RFC 7600).
pub(crate) const DUMMY: u32 = 0xc000_0008;
/// Offset of the protocol in the IPv4 header, bytes.
const PROTOCOL: usize = 9;
/// Name of the realm of numbers.
pub(crate) const REALM: &str = "nat64";

/// The origin of a packet to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The engine has forwarded the packet, or has answered it in place.
    Packet,
    /// The engine has made the packet, or has held it.
    Engine,
}

/// A remote address, and the place of the prefix by which a host reaches it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    pub(crate) remote: u32,
    pub(crate) prefix: usize,
}

/// The state of NAT64.
#[derive(Clone, Debug)]
pub(crate) struct Nat64 {
    settings: Nat64Settings,
    /// The hosts that are translated; `None`: all.
    subscribers: Option<Ranges<u128>>,
    /// The realm of numbers.
    pub(crate) realm: u16,
    converter: Converter,
    pub(crate) hosts: Hosts,
    prefixes: Prefixes,
    /// Packets from inside that have been taken last, as received.
    pub(crate) quotes: Quotes,
    /// Datagrams to hosts whose first fragment could not be converted.
    untranslated: Untranslated,
}

impl Nat64 {
    pub(crate) fn new(
        settings: Nat64Settings,
        (realm, share): (u16, Share),
        converter: Converter,
        config: &Config,
        seed: [u8; 32],
    ) -> Result<Self, String> {
        let most = config.limits.subscribers.map_or(SUBSCRIBERS, |most| most as usize);
        let sessions = (settings.prefixes.len() > 1).then(|| config.session_room() as usize);
        let mut hosts = Hosts::new(settings.subscriber_length, most, share, seed);
        //= rfc6146#section-3.1-manual
        hosts.begin_with(&settings.static_hosts)?;
        let subscribers = &settings.subscribers;
        let some = (!subscribers.is_empty()).then(|| addresses_of(subscribers));
        Ok(Self {
            subscribers: some,
            converter,
            hosts,
            prefixes: Prefixes::new(sessions, seed),
            quotes: Quotes::default(),
            untranslated: Untranslated::default(),
            realm,
            settings,
        })
    }

    /// True if an address embeds an IPv4 address in one of the prefixes.
    #[inline]
    pub(crate) fn claims(&self, destination: u128) -> bool {
        self.settings
            .prefixes
            .iter()
            .any(|prefix| prefix.contains(Ipv6Addr::from_bits(destination)))
    }

    /// The prefix that has an address, and the IPv4 address that it embeds.
    pub(crate) fn prefix_of(&self, address: u128) -> Option<(Pref64, Option<Ipv4Addr>)> {
        let address = Ipv6Addr::from_bits(address);
        let prefix = self.settings.prefixes.iter().find(|prefix| prefix.contains(address))?;
        Some((*prefix, prefix.extract(address)))
    }

    #[inline]
    pub(crate) fn is_subscriber(&self, source: u128) -> bool {
        self.subscribers.as_ref().is_none_or(|subscribers| subscribers.has(source))
    }

    /// Checks a packet from inside before it is converted. Returns the number of the host that an
    /// error is about.
    fn check_sender(&self, source: u128, bytes: &[u8]) -> Result<Option<Ipv4Addr>, Refusal> {
        let about = about_ipv6(bytes);
        if about.is_none() && !self.is_subscriber(source) {
            return Err(DropReason::NotSubscriber.into());
        }
        crate::forward::check_hop(bytes)?;
        Ok(about.and_then(|(_, receiver)| self.hosts.number(receiver)))
    }

    /// Place of the prefix by which the host with a number reaches a remote address.
    fn prefix_for(&self, number: u32, remote: u32) -> usize {
        if self.prefixes.is_off() {
            return 0;
        }
        let host = self.hosts.address(Ipv4Addr::from_bits(number));
        host.map_or(0, |host| self.prefixes.find(host, remote))
    }

    /// The address of a remote IPv4 address as a host knows it.
    fn embed(&self, host: u32, remote: u32) -> u128 {
        let number = self.prefix_for(host, remote);
        self.settings.prefixes[number].embed(Ipv4Addr::from_bits(remote)).to_bits()
    }

    /// Place of its prefix, and IPv4 address, of an address that embeds one.
    #[inline(always)]
    pub(crate) fn find(&self, address: u128) -> Option<(usize, Ipv4Addr)> {
        self.settings.find(address)
    }

    /// True if an IPv4 address may stand in the prefix at a place.
    #[inline(always)]
    pub(crate) fn may_stand(&self, prefix: usize, address: u32) -> bool {
        self.settings.may_stand(prefix, Ipv4Addr::from_bits(address))
    }

    /// Place of its prefix, and IPv4 address, of an address that embeds one that may be translated.
    pub(crate) fn extract(&self, address: u128) -> Result<(usize, u32), Refusal> {
        self.settings.extract(address)
    }

    /// Gives a plain packet from a host IPv4 headers.
    #[inline]
    pub(crate) fn convert_plain(
        &mut self,
        packet: &mut Packet<'_>,
        plain: &Plain6,
        ends: (u32, u32),
    ) {
        self.converter.plain_to_ipv4(packet, plain, ends);
    }

    /// True if the prefix by which a host is about to reach a remote address can be noted.
    #[inline(always)]
    pub(crate) fn may_note(&self, host: u128, Reached { remote, prefix }: Reached) -> bool {
        self.prefixes.is_off() || self.prefixes.may_note(host, remote, prefix)
    }

    /// Frees the notes of prefixes without a session, some in each call.
    pub(crate) fn sweep_prefixes(&mut self, engine: &Engine) {
        if !self.prefixes.is_off() {
            let hosts = &self.hosts;
            self.prefixes.sweep(engine, self.realm, |number| hosts.address(number));
        }
    }

    /// Notes the prefix by which a host reaches a remote address, if the engine has not refused the
    /// packet.
    #[inline(always)]
    pub(crate) fn note_prefix(&mut self, number: u32, reached: Reached, verdict: Verdict) {
        let Reached { remote, prefix } = reached;
        if !self.prefixes.is_off()
            && !matches!(verdict, Verdict::Drop(_) | Verdict::Held)
            && let Some(host) = self.hosts.address(Ipv4Addr::from_bits(number))
        {
            self.prefixes.note(host, remote, prefix);
        }
    }

    /// Place of the prefix by which the host with a number reaches a remote address. `None`: there
    /// is one prefix.
    pub(crate) fn path(&self, number: Ipv4Addr, remote: Ipv4Addr) -> Option<u8> {
        let is_one = self.prefixes.is_off();
        (!is_one).then(|| self.prefix_for(number.to_bits(), remote.to_bits()) as u8)
    }

    /// Notes the prefix by which a host reaches a remote address at another gateway. No packet is
    /// between its question for room and its note, so such a prefix may take the room of a batch.
    pub(crate) fn note_path(&mut self, number: Ipv4Addr, Reached { remote, prefix }: Reached) {
        if prefix < self.settings.prefixes.len()
            && let Some(host) = self.hosts.address(number)
        {
            self.prefixes.note(host, remote, prefix);
        }
    }

    /// The prefixes by which hosts reach remote addresses, but for the first prefix.
    pub(crate) fn carried_paths(&self) -> impl Iterator<Item = CarriedPath> {
        self.prefixes.all().map(|(host, remote, place)| CarriedPath {
            host: Ipv6Addr::from_bits(host),
            remote: Ipv4Addr::from_bits(remote),
            prefix: self.settings.prefixes[place].prefix(),
        })
    }

    /// Notes the prefix by which a host reached a remote address in another process, if there is
    /// the prefix. As for [`Nat64::note_path`], all room is there for it: the other process may
    /// have filled what a batch may take.
    pub(crate) fn adopt_path(&mut self, CarriedPath { host, remote, prefix }: CarriedPath) {
        let place = self.settings.prefixes.iter().position(|one| one.prefix() == prefix);
        if let Some(place) = place {
            self.prefixes.note(host.to_bits(), remote.to_bits(), place);
        }
    }

    /// Converts a plain packet that the engine has forwarded to the host with a number whose hash
    /// is known. `false`: the packet is unchanged, and [`Nat64::convert_to_host`] has to take it.
    #[inline]
    pub(crate) fn pass_to_host(&self, packet: &mut Packet<'_>, hash: u64) -> bool {
        let Some(plain) = Plain4::read(packet.bytes()) else { return false };
        let Some(host) = self.hosts.address_hashed(plain.destination, hash) else { return false };
        if !self.converter.passes_to_ipv6(&plain) {
            return false;
        }
        let prefix = self.settings.prefixes[self.prefixes.find(host, plain.source)];
        let remote = prefix.embed(Ipv4Addr::from_bits(plain.source)).to_bits();
        self.converter.plain_to_ipv6(packet, &plain, (remote, host));
        true
    }

    /// Converts a packet to a host. `own` is the gateway's address inside. Anybody outside can send
    /// an error with the source of the engine's own errors; only those of `origin` are own ones.
    pub(crate) fn convert_to_host(
        &mut self,
        packet: &mut Packet<'_>,
        own: Option<u128>,
        origin: Origin,
    ) -> Result<Option<Cut>, DropReason> {
        let piece = Piece::of(packet.bytes());
        //= rfc6146#section-3.4-zero-discard
        if let Some(reason) = piece.and_then(|piece| self.untranslated.reason(piece)) {
            return Err(reason);
        }
        let is_icmp = packet.bytes().get(PROTOCOL) == Some(&protocol::ICMP);
        let is_own = is_icmp && origin == Origin::Engine && is_own_error(packet.bytes());
        let received = if is_own { self.quotes.find(packet.bytes()) } else { None };
        let is_refusal = is_own && is_host_unreachable(packet.bytes());
        let own = own.unwrap_or_else(|| {
            self.settings.prefixes[0].embed(Ipv4Addr::from_bits(DUMMY)).to_bits()
        });
        let about = if is_icmp { about_ipv4(packet.bytes()) } else { None };
        let mut addresses = Inward { nat64: &*self, own, is_own, about };
        let converted = self.converter.to_ipv6(packet, &mut addresses);
        if let Some(piece) = piece {
            let refused = converted.as_ref().err().map(|refusal| refusal.reason);
            self.untranslated.note(piece, refused);
        }
        let cut = cut_of(converted.map_err(|refusal| refusal.reason)?);
        if is_refusal {
            tell_address_unreachable(packet);
        }
        if let Some(received) = received {
            quote_as_received(packet, own, received);
        }
        Ok(cut)
    }
}

/// Has an error of the engine's quote the packet from inside that provoked it as it came.
fn quote_as_received(packet: &mut Packet<'_>, own: u128, received: &[u8]) {
    let Ok(header) = Ipv6::new_checked(packet.bytes()) else { return };
    let sender = Ipv6::new_header_checked(received).map(|quoted| quoted.source());
    if sender != Ok(header.destination()) {
        return;
    }
    let Some(error) = Icmpv6::new_checked(header.payload()) else { return };
    let message = ErrorMessage::new(error.kind(), error.code(), error.word());
    // The quotation may be longer than the one that the engine made, and there may not be room for
    // all of it.
    let room = packet.end().saturating_sub(ipv6::HEADER_LEN + icmpv6::HEADER_LEN);
    let quoted = &received[..received.len().min(room)];
    let mut bytes = [0; MIN_MTU];
    let len = errors::write_ipv6(&mut bytes, own, message, quoted);
    packet.set_start(packet.end() - len);
    packet.bytes_mut().copy_from_slice(&bytes[..len]);
}

/// The engine's realm of numbers. `mtu` is that of the IPv6 link.
pub(crate) fn realm_of(settings: &Nat64Settings, mtu: u16, config: &Config) -> RealmConfig {
    RealmConfig {
        name: String::from(REALM),
        inside: SideConfig {
            mtu: Some(mtu - DIFFERENCE as u16),
            silent: config.inside.silent,
            ..SideConfig::default()
        },
        subscribers: vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)],
        default_pool: config.default_pool,
        host_bits: Some(Hosts::host_bits(settings.subscriber_length)),
        order: u16::MAX,
        ..RealmConfig::default()
    }
}

/// True if an IPv4 packet is an ICMP error that the engine made for the realm.
fn is_own_error(bytes: &[u8]) -> bool {
    let Ok(header) = Ipv4::new_checked(bytes) else { return false };
    let kind = header.payload().first().copied();
    header.source() == DUMMY
        && header.protocol() == protocol::ICMP
        && header.fragment_offset() == 0
        && kind.is_some_and(icmp::is_error)
}

/// True if an ICMP message says that the host cannot be reached.
fn is_host_unreachable(bytes: &[u8]) -> bool {
    let header = Ipv4::new_checked(bytes);
    header.is_ok_and(|header| header.payload().starts_with(&[icmp::kind::UNREACHABLE, 1]))
}

/// Has an error of the engine's, with which a host learns that it gets no external endpoint, say
/// that the address is unreachable (RFC 6146 section 3.5.1.1).
fn tell_address_unreachable(packet: &mut Packet<'_>) {
    let Ok(mut header) = Ipv6::new_checked(packet.bytes_mut()) else { return };
    let (source, destination) = (header.source(), header.destination());
    let Some(mut error) = Icmpv6::new_checked(header.payload_mut()) else { return };
    //= rfc6146#section-3.5.1.1-refused
    //= rfc6146#section-3.5.2.3-refused
    error.set_code(ErrorMessage::ADDRESS_UNREACHABLE.code);
    error.fill_checksum(source, destination);
}

/// The destination of the packet that an IPv4 ICMP error quotes.
pub(crate) fn about_ipv4(bytes: &[u8]) -> Option<u32> {
    let header = Ipv4::new_checked(bytes).ok()?;
    if header.protocol() != protocol::ICMP || header.fragment_offset() != 0 {
        return None;
    }
    let message = Icmp::new_checked(header.payload()).filter(|icmp| icmp::is_error(icmp.kind()))?;
    Some(Ipv4::new_header_checked(message.body()).ok()?.destination())
}

/// Source and destination of the packet that an ICMPv6 error quotes.
fn about_ipv6(bytes: &[u8]) -> Option<(u128, u128)> {
    let at = crate::pairs::quote(&Ipv6::new_checked(bytes).ok()?)?;
    let about = Ipv6::new_header_checked(bytes.get(at..)?).ok()?;
    Some((about.source(), about.destination()))
}

impl Translator {
    /// Converts a packet from inside to IPv4 as a packet that is taken; nothing else changes.
    /// Returns the number that its sender has, or would get.
    pub(crate) fn foretell_number(
        &self,
        source: u128,
        packet: &mut Packet<'_>,
    ) -> Result<Option<Ipv4Addr>, Refusal> {
        let Some(nat64) = &self.nat64 else { return Err(DropReason::NoRoute.into()) };
        let receiver = nat64.check_sender(source, packet.bytes())?;
        let Nat64 { settings, hosts: numbers, prefixes, .. } = nat64;
        let mut addresses = Outward { settings, prefixes, numbers, receiver, sender: None };
        nat64.converter.clone().to_ipv4(packet, &mut addresses)?;
        packet.set_realm(nat64.realm);
        Ok(addresses.sender.map(|(number, _)| number))
    }

    /// True if the source of a packet is in one of the prefixes. Such a packet could turn round for
    /// ever (RFC 6146 section 3.5). The remote hosts of a CLAT may be in a prefix of that name.
    //= rfc6146#section-3.5-loop
    //= rfc6146#section-5.4-loop
    pub(crate) fn loops(&self, from: Side, (source, destination): (u128, u128)) -> bool {
        let is_clats = from == Side::Outside && self.claims_clat(destination);
        self.nat64.as_ref().is_some_and(|nat64| nat64.claims(source)) && !is_clats
    }

    /// Takes a packet from inside to an address of one of the prefixes.
    pub(crate) fn take_nat64(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        source: u128,
        packet: &mut Packet<'_>,
    ) -> Fate {
        let len = packet.len();
        let sender = match self.convert_to_number(now, source, packet) {
            Ok(sender) => sender,
            Err(refusal) => {
                return self.refuse_sender(now, HostKind::Nat64, (packet, len), refusal);
            }
        };
        let sender = sender.map(|(number, reached)| (number, Some(reached)));
        self.take_numbered(engine, now, packet, sender, len)
    }

    /// Converts a packet from inside to IPv4. Returns the number of its sender, and how it reaches
    /// its receiver, unless the packet is an error.
    //= rfc6146#section-3
    fn convert_to_number(
        &mut self,
        now: Timestamp,
        source: u128,
        packet: &mut Packet<'_>,
    ) -> Result<Option<(Ipv4Addr, Reached)>, Refusal> {
        let Some(nat64) = &mut self.nat64 else { return Err(DropReason::NoRoute.into()) };
        let receiver = nat64.check_sender(source, packet.bytes())?;
        nat64.quotes.add(packet.bytes(), None);
        packet.set_realm(nat64.realm);
        let Nat64 { settings, converter, hosts, prefixes, .. } = nat64;
        let numbers = Numbering { hosts, now: now.0 };
        let mut addresses = Outward { settings, prefixes, numbers, receiver, sender: None };
        let converted = converter.to_ipv4(packet, &mut addresses);
        let sender = addresses.sender;
        if let (Err(_), Some((number, _))) = (&converted, sender) {
            hosts.forget_new(number);
        }
        converted.map(|_| sender)
    }
}

/// Numbers of hosts.
trait Numbers {
    /// The number of a packet's sender.
    fn of_sender(&mut self, source: u128) -> Result<Ipv4Addr, DropReason>;

    /// The number of a host that has one.
    fn of_host(&self, host: u128) -> Option<Ipv4Addr>;
}

/// Gives numbers to hosts that have none.
struct Numbering<'n> {
    hosts: &'n mut Hosts,
    now: u64,
}

impl Numbers for Numbering<'_> {
    fn of_sender(&mut self, source: u128) -> Result<Ipv4Addr, DropReason> {
        self.hosts.intern(source, self.now)
    }

    fn of_host(&self, host: u128) -> Option<Ipv4Addr> {
        self.hosts.number(host)
    }
}

/// Says which numbers hosts would get.
impl Numbers for &Hosts {
    fn of_sender(&mut self, source: u128) -> Result<Ipv4Addr, DropReason> {
        self.foretell(source).map(|(number, _)| number)
    }

    fn of_host(&self, host: u128) -> Option<Ipv4Addr> {
        self.number(host)
    }
}

/// Addresses of a packet from a host.
struct Outward<'n, N> {
    settings: &'n Nat64Settings,
    prefixes: &'n Prefixes,
    numbers: N,
    /// The number of the host whose packet an error is about.
    receiver: Option<Ipv4Addr>,
    /// The number of the sender, and how it reaches the receiver.
    sender: Option<(Ipv4Addr, Reached)>,
}

impl Nat64Settings {
    /// Place of its prefix, and IPv4 address, of an address that embeds one.
    #[inline(always)]
    fn find(&self, address: u128) -> Option<(usize, Ipv4Addr)> {
        let address = Ipv6Addr::from_bits(address);
        let mut all = self.prefixes.iter().enumerate();
        all.find_map(|(number, prefix)| Some((number, prefix.extract(address)?)))
    }

    /// True if an IPv4 address may stand in the prefix at a place.
    #[inline(always)]
    fn may_stand(&self, prefix: usize, address: Ipv4Addr) -> bool {
        self.non_global.permits(self.prefixes[prefix], address)
    }

    /// Place of its prefix, and IPv4 address, of an address that embeds one that may be translated.
    fn extract(&self, address: u128) -> Result<(usize, u32), Refusal> {
        let (number, ipv4) = self.find(address).ok_or(DropReason::Untranslatable)?;
        match self.may_stand(number, ipv4) {
            true => Ok((number, ipv4.to_bits())),
            false => Err(DropReason::NotGlobal.into()),
        }
    }
}

impl<N: Numbers> Addresses for Outward<'_, N> {
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        match place {
            Place::Packet => {
                let (prefix, remote) = self.settings.extract(destination)?;
                if !self.prefixes.may_note(source, remote, prefix) {
                    return Err(DropReason::SessionTableFull.into());
                }
                let number = self.numbers.of_sender(source)?;
                self.sender = Some((number, Reached { remote, prefix }));
                Ok((number.to_bits(), remote))
            }
            Place::Error => {
                // Any router may send an error. The mapping's address becomes the source.
                let number = self.receiver.ok_or(DropReason::IcmpNoSession)?;
                Ok((number.to_bits(), self.settings.extract(destination)?.1))
            }
            Place::Quoted => {
                let number = self.numbers.of_host(destination);
                let number = number.ok_or(DropReason::IcmpNoSession)?;
                Ok((self.settings.extract(source)?.1, number.to_bits()))
            }
        }
    }

    fn to_ipv6(&mut self, _: Place, _: u32, _: u32) -> Result<(u128, u128), Refusal> {
        Err(DropReason::Untranslatable.into())
    }
}

/// Addresses of a packet to a host.
struct Inward<'n> {
    nat64: &'n Nat64,
    own: u128,
    /// True if the packet is an error of the engine's own.
    is_own: bool,
    /// The remote address of the session that an error is about.
    about: Option<u32>,
}

impl Inward<'_> {
    fn host(&self, number: u32) -> Result<u128, Refusal> {
        let host = self.nat64.hosts.address(Ipv4Addr::from_bits(number));
        host.ok_or(DropReason::NoMapping.into())
    }
}

impl Addresses for Inward<'_> {
    fn to_ipv4(&mut self, _: Place, _: u128, _: u128) -> Result<(u32, u32), Refusal> {
        Err(DropReason::Untranslatable.into())
    }

    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        match place {
            Place::Packet => Ok((self.nat64.embed(destination, source), self.host(destination)?)),
            Place::Error => {
                let host = self.host(destination)?;
                if self.is_own {
                    return Ok((self.own, host));
                }
                let settings = &self.nat64.settings;
                let about = self.about.unwrap_or(source);
                let prefix = settings.prefixes[self.nat64.prefix_for(destination, about)];
                // A router may have an address that must not stand in the prefix.
                let source = Ipv4Addr::from_bits(source);
                match settings.non_global.permits(prefix, source) {
                    true => Ok((prefix.embed(source).to_bits(), host)),
                    false => Ok((self.own, host)),
                }
            }
            Place::Quoted => Ok((self.host(source)?, self.nat64.embed(source, destination))),
        }
    }
}
