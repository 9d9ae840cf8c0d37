//! Neighbor Discovery for IPv6 over Ethernet (RFC 4861): messages, options, and the addresses that
//! follow from hardware addresses.
//!
//! [`read`] takes a whole packet and makes all checks of RFC 4861 that need no state: a message
//! that it returns is valid. [`Solicitation`] and [`Advertisement`] write the two messages of
//! neighbors. The router decides which messages to believe and to answer.

use crate::arp::Mac;
use crate::icmpv6::kind;
use crate::ipv6::HEADER_LEN;
use crate::{Icmpv6, Ipv6, protocol};
use core::net::Ipv6Addr;

/// Hop limit of all messages: a packet that a router has forwarded has a lower one.
pub const HOP_LIMIT: u8 = 255;

/// Length of a packet with a solicitation or an advertisement and one hardware address, bytes.
pub const PACKET_LEN: usize = HEADER_LEN + TARGETED_LEN + LINK_ADDRESS_LEN;

/// Length of a message with a target, without options, bytes.
const TARGETED_LEN: usize = 24;

/// Length of an option with a hardware address, bytes.
pub const LINK_ADDRESS_LEN: usize = 8;

/// Types of options.
pub mod option {
    /// The sender's hardware address.
    pub const SOURCE_LINK_ADDRESS: u8 = 1;
    /// The target's hardware address.
    pub const TARGET_LINK_ADDRESS: u8 = 2;
    /// A prefix of the link.
    pub const PREFIX_INFORMATION: u8 = 3;
    /// The link's MTU.
    pub const MTU: u8 = 5;
    /// Servers of names (RFC 8106).
    pub const RDNSS: u8 = 25;
    /// The prefix of NAT64 (RFC 8781).
    pub const PREF64: u8 = 38;
}

/// All nodes of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// All routers of a link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The group of all hosts that may have an address (RFC 4291 section 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | address.to_bits() & 0xff_ffff)
}

/// Hardware address of a group (RFC 2464 section 7).
pub const fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

/// Link-local address that follows from a hardware address (RFC 4291 appendix A, RFC 2464
/// section 5).
pub const fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let interface = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(0xfe80 << 112 | interface as u128)
}

/// A valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A host asks for router advertisements.
    RouterSolicitation {
        /// The host's hardware address.
        mac: Option<Mac>,
    },
    /// A router tells about itself and the link.
    RouterAdvertisement,
    /// The sender asks for the target's hardware address, or whether the target is reachable.
    NeighborSolicitation {
        /// Address in question.
        target: Ipv6Addr,
        /// The sender's hardware address.
        mac: Option<Mac>,
    },
    /// The sender has the target's address.
    NeighborAdvertisement(Advertisement),
    /// A router tells of a better next hop.
    Redirect,
}

/// Reason why a packet is no valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The packet is no IPv6, its extension headers do not end, or it carries something else.
    Other,
    /// The packet is a fragment (RFC 6980).
    Fragment,
    /// A router has forwarded the packet.
    HopLimit,
    /// The checksum is wrong.
    Checksum,
    /// The code is not 0.
    Code,
    /// The message, or one of its options, is too short or too long.
    Length,
    /// The source, the destination or the target is wrong for this kind of message.
    Address,
}

/// Reads the message of a whole packet.
///
/// # Errors
/// [`Invalid`] if a host or router must ignore the packet (RFC 4861 sections 6.1, 7.1 and 8.1, RFC
/// 6980 section 5).
pub fn read(packet: &[u8]) -> Result<Message, Invalid> {
    let header = Ipv6::new_checked(packet).map_err(|_| Invalid::Other)?;
    let (source, destination) = (header.source(), header.destination());
    let walk = header.walk().map_err(|_| Invalid::Other)?;
    if walk.fragment.is_some() {
        return Err(Invalid::Fragment);
    }
    let bytes = &packet[walk.transport..header.total_len()];
    let message = Icmpv6::new_checked(bytes).ok_or(Invalid::Length)?;
    if walk.protocol != protocol::ICMPV6 || !is_discovery(message.kind()) {
        return Err(Invalid::Other);
    }
    if header.hop_limit() != HOP_LIMIT {
        return Err(Invalid::HopLimit);
    }
    if !message.checksum_valid(source, destination) {
        return Err(Invalid::Checksum);
    }
    if message.code() != 0 {
        return Err(Invalid::Code);
    }
    let ends = (Ipv6Addr::from_bits(source), Ipv6Addr::from_bits(destination));
    match message.kind() {
        kind::ROUTER_SOLICITATION => read_router_solicitation(bytes, ends),
        kind::ROUTER_ADVERTISEMENT => {
            options(bytes, 16)?;
            from_router(ends, Message::RouterAdvertisement)
        }
        kind::NEIGHBOR_SOLICITATION => read_neighbor_solicitation(bytes, ends),
        kind::NEIGHBOR_ADVERTISEMENT => read_neighbor_advertisement(bytes, ends),
        _ => {
            options(bytes, 40)?;
            from_router(ends, Message::Redirect)
        }
    }
}

/// True if a type of ICMPv6 belongs to Neighbor Discovery.
pub const fn is_discovery(message: u8) -> bool {
    message >= kind::ROUTER_SOLICITATION && message <= kind::REDIRECT
}

//= rfc4861#section-6.1.1
fn read_router_solicitation(
    bytes: &[u8],
    (source, _): (Ipv6Addr, Ipv6Addr),
) -> Result<Message, Invalid> {
    let mac = options(bytes, 8)?.link_address(option::SOURCE_LINK_ADDRESS);
    match source.is_multicast() || source.is_unspecified() && mac.is_some() {
        true => Err(Invalid::Address),
        false => Ok(Message::RouterSolicitation { mac }),
    }
}

//= rfc4861#section-7.1.1
fn read_neighbor_solicitation(
    bytes: &[u8],
    (source, destination): (Ipv6Addr, Ipv6Addr),
) -> Result<Message, Invalid> {
    let options = options(bytes, TARGETED_LEN)?;
    let target = target(bytes)?;
    let mac = options.link_address(option::SOURCE_LINK_ADDRESS);
    let is_group = solicited_node(destination) == destination;
    let probes = source.is_unspecified();
    match source.is_multicast() || probes && (mac.is_some() || !is_group) {
        true => Err(Invalid::Address),
        false => Ok(Message::NeighborSolicitation { target, mac }),
    }
}

//= rfc4861#section-7.1.2
fn read_neighbor_advertisement(
    bytes: &[u8],
    (source, destination): (Ipv6Addr, Ipv6Addr),
) -> Result<Message, Invalid> {
    let options = options(bytes, TARGETED_LEN)?;
    let target = target(bytes)?;
    let (router, solicited, replaces) =
        (bytes[4] & ROUTER != 0, bytes[4] & SOLICITED != 0, bytes[4] & OVERRIDE != 0);
    if destination.is_multicast() && solicited || source.is_multicast() || source.is_unspecified() {
        return Err(Invalid::Address);
    }
    let mac = options.link_address(option::TARGET_LINK_ADDRESS);
    let said = Advertisement { target, mac, router, solicited, replaces };
    Ok(Message::NeighborAdvertisement(said))
}

/// Messages of routers come from link-local addresses.
//= rfc4861#section-6.1.2
//= rfc4861#section-8.1
fn from_router((source, _): (Ipv6Addr, Ipv6Addr), message: Message) -> Result<Message, Invalid> {
    match source.is_unicast_link_local() {
        true => Ok(message),
        false => Err(Invalid::Address),
    }
}

/// The target of a message that has one; it is no group.
fn target(bytes: &[u8]) -> Result<Ipv6Addr, Invalid> {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[8..TARGETED_LEN]);
    let target = Ipv6Addr::from(octets);
    match target.is_multicast() {
        true => Err(Invalid::Address),
        false => Ok(target),
    }
}

/// Options of a message, all of them within it.
struct Options<'m>(&'m [u8]);

/// Checks the options that follow `len` bytes of a message.
fn options(message: &[u8], len: usize) -> Result<Options<'_>, Invalid> {
    let options = message.get(len..).ok_or(Invalid::Length)?;
    let mut rest = options;
    while !rest.is_empty() {
        let len = rest.get(1).map_or(0, |units| usize::from(*units) * 8);
        rest = rest.get(len..).filter(|_| len != 0).ok_or(Invalid::Length)?;
    }
    Ok(Options(options))
}

impl Options<'_> {
    /// Hardware address in the first option of a type, if it is a single station's.
    fn link_address(&self, kind: u8) -> Option<Mac> {
        let mut rest = self.0;
        while let [first, units, ..] = rest {
            let (option, others) = rest.split_at(usize::from(*units) * 8);
            if *first == kind && option.len() == LINK_ADDRESS_LEN {
                let mut mac = Mac::default();
                mac.0.copy_from_slice(&option[2..]);
                return Some(mac).filter(|mac| mac.is_station());
            }
            rest = others;
        }
        None
    }
}

const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// A neighbor advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Address that the sender has.
    pub target: Ipv6Addr,
    /// Hardware address of the target.
    pub mac: Option<Mac>,
    /// True if the sender is a router.
    pub router: bool,
    /// True if the message answers a solicitation.
    pub solicited: bool,
    /// True if the hardware address replaces another one that receivers know (the override flag).
    pub replaces: bool,
}

impl Advertisement {
    /// Writes a packet with the message.
    pub fn packet(&self, source: Ipv6Addr, destination: Ipv6Addr) -> [u8; PACKET_LEN] {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.router, ROUTER)
            | flag(self.solicited, SOLICITED)
            | flag(self.replaces, OVERRIDE);
        let mac = self.mac.map(|mac| (option::TARGET_LINK_ADDRESS, mac));
        targeted(kind::NEIGHBOR_ADVERTISEMENT, flags, self.target, mac, (source, destination))
    }
}

/// A neighbor solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// Address in question.
    pub target: Ipv6Addr,
    /// The sender's hardware address.
    pub mac: Mac,
}

impl Solicitation {
    /// Writes a packet with the message. Without a source the message asks whether another host has
    /// the target's address (RFC 4862 section 5.4.2), and names no hardware address.
    pub fn packet(&self, source: Option<Ipv6Addr>, destination: Ipv6Addr) -> Packet {
        let mac = source.map(|_| (option::SOURCE_LINK_ADDRESS, self.mac));
        let ends = (source.unwrap_or(Ipv6Addr::UNSPECIFIED), destination);
        let bytes = targeted(kind::NEIGHBOR_SOLICITATION, 0, self.target, mac, ends);
        let len = PACKET_LEN - if mac.is_some() { 0 } else { LINK_ADDRESS_LEN };
        Packet { bytes, len }
    }
}

/// A packet with a solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    bytes: [u8; PACKET_LEN],
    len: usize,
}

impl Packet {
    /// The bytes of the packet.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes a message about a target. Without a hardware address the packet ends before the option.
fn targeted(
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    mac: Option<(u8, Mac)>,
    (source, destination): (Ipv6Addr, Ipv6Addr),
) -> [u8; PACKET_LEN] {
    let mut bytes = [0; PACKET_LEN];
    let len = TARGETED_LEN + if mac.is_some() { LINK_ADDRESS_LEN } else { 0 };
    let message = &mut bytes[HEADER_LEN..];
    message[4] = flags;
    message[8..TARGETED_LEN].copy_from_slice(&target.octets());
    if let Some((option, mac)) = mac {
        let room = &mut message[TARGETED_LEN..];
        room[..2].copy_from_slice(&[option, 1]);
        room[2..].copy_from_slice(&mac.0);
    }
    finish(&mut bytes[..HEADER_LEN + len], kind, (source, destination));
    bytes
}

/// Writes the headers of a message whose body is in `packet` already, from the fifth byte of the
/// message on.
///
/// # Panics
/// When `packet` is shorter than both headers.
pub fn finish(packet: &mut [u8], kind: u8, (source, destination): (Ipv6Addr, Ipv6Addr)) {
    let len = packet.len() - HEADER_LEN;
    let mut header = Ipv6::init(&mut *packet);
    header.set_payload_len(len as u16);
    header.set_next_header(protocol::ICMPV6);
    header.set_hop_limit(HOP_LIMIT);
    header.set_source(source.to_bits());
    header.set_destination(destination.to_bits());
    if let Some(mut message) = Icmpv6::new_checked(header.payload_mut()) {
        message.set_kind(kind);
        message.set_code(0);
        message.fill_checksum(source.to_bits(), destination.to_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr as Ip;

    const MAC: Mac = Mac([2, 0, 0x5e, 0x10, 0, 1]);
    const HOST: Ip = Ip::new(0xfe80, 0, 0, 0, 0, 0, 0, 5);
    const OWN: Ip = Ip::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);

    fn solicitation() -> Packet {
        Solicitation { target: OWN, mac: MAC }.packet(Some(HOST), solicited_node(OWN))
    }

    fn advertisement() -> Advertisement {
        Advertisement { target: OWN, mac: Some(MAC), router: true, solicited: true, replaces: true }
    }

    /// A packet after a change of its bytes, with a right checksum.
    fn changed(packet: &[u8], change: impl FnOnce(&mut [u8])) -> Result<Message, Invalid> {
        let mut bytes = [0; PACKET_LEN + 8];
        let bytes = &mut bytes[..packet.len()];
        bytes.copy_from_slice(packet);
        change(bytes);
        let mut header = Ipv6::new_checked(&mut *bytes).expect("a packet");
        let (source, destination) = (header.source(), header.destination());
        if let Some(mut message) = Icmpv6::new_checked(header.payload_mut()) {
            message.fill_checksum(source, destination);
        }
        read(bytes)
    }

    #[test]
    fn addresses_follow_from_hardware_addresses() {
        assert_eq!(link_local(MAC), "fe80::5eff:fe10:1".parse::<Ip>().expect("an address"));
        assert_eq!(solicited_node(OWN), "ff02::1:ff12:3456".parse::<Ip>().expect("an address"));
        assert_eq!(group_mac(solicited_node(OWN)), Mac([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
        assert_eq!(group_mac(ALL_NODES), Mac([0x33, 0x33, 0, 0, 0, 1]));
    }

    #[test]
    fn reads_what_it_writes() {
        let read_back = Message::NeighborSolicitation { target: OWN, mac: Some(MAC) };
        assert_eq!(read(solicitation().bytes()), Ok(read_back));
        let probe = Solicitation { target: OWN, mac: MAC }.packet(None, solicited_node(OWN));
        let read_back = Message::NeighborSolicitation { target: OWN, mac: None };
        assert_eq!((read(probe.bytes()), probe.bytes().len()), (Ok(read_back), 64));
        let said = advertisement();
        assert_eq!(read(&said.packet(OWN, HOST)), Ok(Message::NeighborAdvertisement(said)));
    }

    //= test rfc4861#section-7.1.1
    #[test]
    fn packets_that_were_forwarded_or_are_damaged_are_invalid() {
        let packet = solicitation();
        let packet = packet.bytes();
        assert_eq!(changed(packet, |bytes| bytes[7] = 254), Err(Invalid::HopLimit));
        assert_eq!(changed(packet, |bytes| bytes[41] = 1), Err(Invalid::Code));
        assert_eq!(changed(packet, |bytes| bytes[65] = 0), Err(Invalid::Length));
        assert_eq!(changed(packet, |bytes| bytes[65] = 2), Err(Invalid::Length));
        assert_eq!(changed(packet, |bytes| bytes[48] = 0xff), Err(Invalid::Address));
        assert_eq!(changed(packet, |bytes| bytes[40] = 128), Err(Invalid::Other));
        let mut damaged = [0; PACKET_LEN];
        damaged.copy_from_slice(packet);
        damaged[71] ^= 1;
        assert_eq!(read(&damaged), Err(Invalid::Checksum));
        for len in 0..packet.len() {
            assert!(read(&packet[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_fragment_is_invalid() {
        let mut bytes = [0; PACKET_LEN + 8];
        let packet = solicitation();
        bytes[..HEADER_LEN].copy_from_slice(&packet.bytes()[..HEADER_LEN]);
        bytes[HEADER_LEN + 8..].copy_from_slice(&packet.bytes()[HEADER_LEN..]);
        bytes[5] += 8;
        bytes[6] = crate::ipv6::next::FRAGMENT;
        bytes[HEADER_LEN] = protocol::ICMPV6;
        assert_eq!(read(&bytes), Err(Invalid::Fragment));
    }

    #[test]
    fn a_probe_has_no_hardware_address_and_goes_to_a_group() {
        let packet = solicitation();
        let probe = changed(packet.bytes(), |bytes| bytes[8..24].fill(0));
        assert_eq!(probe, Err(Invalid::Address));
        let probe = Solicitation { target: OWN, mac: MAC }.packet(None, OWN);
        assert_eq!(read(probe.bytes()), Err(Invalid::Address));
    }

    //= test rfc4861#section-7.1.2
    #[test]
    fn a_solicited_advertisement_goes_to_one_host() {
        let said = advertisement();
        assert_eq!(read(&said.packet(OWN, ALL_NODES)), Err(Invalid::Address));
        let unsolicited = Advertisement { solicited: false, ..said };
        assert!(read(&unsolicited.packet(OWN, ALL_NODES)).is_ok());
        let packet = said.packet(OWN, HOST);
        assert_eq!(changed(&packet, |bytes| bytes[7] = 254), Err(Invalid::HopLimit));
        assert_eq!(changed(&packet, |bytes| bytes[41] = 1), Err(Invalid::Code));
        assert_eq!(changed(&packet, |bytes| bytes[65] = 0), Err(Invalid::Length));
        assert_eq!(changed(&packet, |bytes| bytes[48] = 0xff), Err(Invalid::Address));
    }

    //= test rfc4861#section-6.1.1
    #[test]
    fn a_router_solicitation_without_a_source_has_no_hardware_address() {
        let mut bytes = [0; HEADER_LEN + 16];
        bytes[HEADER_LEN + 8..].copy_from_slice(&[1, 1, 2, 0, 0, 0, 0, 9]);
        let ends = |source| (source, ALL_ROUTERS);
        let kind = kind::ROUTER_SOLICITATION;
        finish(&mut bytes, kind, ends(HOST));
        let mac = Some(Mac([2, 0, 0, 0, 0, 9]));
        assert_eq!(read(&bytes), Ok(Message::RouterSolicitation { mac }));
        finish(&mut bytes, kind, ends(Ip::UNSPECIFIED));
        assert_eq!(read(&bytes), Err(Invalid::Address));
        finish(&mut bytes[..HEADER_LEN + 8], kind, ends(Ip::UNSPECIFIED));
        assert!(read(&bytes[..HEADER_LEN + 8]).is_ok());
        finish(&mut bytes, kind, ends(HOST));
        bytes[7] = 254;
        assert_eq!(read(&bytes), Err(Invalid::HopLimit));
    }

    //= test rfc4861#section-6.1.2
    //= test rfc4861#section-8.1
    #[test]
    fn messages_of_routers_come_from_link_local_addresses() {
        let mut bytes = [0; HEADER_LEN + 16];
        for (source, expected) in
            [(HOST, Ok(Message::RouterAdvertisement)), (OWN, Err(Invalid::Address))]
        {
            finish(&mut bytes, kind::ROUTER_ADVERTISEMENT, (source, ALL_NODES));
            assert_eq!(read(&bytes), expected);
        }
        let mut redirect = [0; HEADER_LEN + 40];
        for (source, expected) in [(HOST, Ok(Message::Redirect)), (OWN, Err(Invalid::Address))] {
            finish(&mut redirect, kind::REDIRECT, (source, OWN));
            assert_eq!(read(&redirect), expected);
        }
        finish(&mut bytes[..HEADER_LEN + 8], kind::ROUTER_SOLICITATION, (OWN, ALL_ROUTERS));
        let read_back = Message::RouterSolicitation { mac: None };
        assert_eq!(read(&bytes[..HEADER_LEN + 8]), Ok(read_back));
    }

    #[test]
    fn a_group_is_nobodys_hardware_address() {
        let said = Advertisement { mac: Some(Mac::BROADCAST), ..advertisement() };
        let Ok(Message::NeighborAdvertisement(said)) = read(&said.packet(OWN, HOST)) else {
            panic!("the message is valid");
        };
        assert_eq!(said.mac, None);
    }
}
