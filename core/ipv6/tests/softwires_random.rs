//! Random packets of lw4o6, MAP-E and MAP-T against a plain model: bindings and rules are searched
//! one by one, and port sets are lists of ports. Packets are datagrams, also in fragments, echo
//! messages, and ICMP errors.

#[path = "common/explained.rs"]
mod explained;
#[path = "common/header6.rs"]
mod header6;
#[path = "softwires_random/packets.rs"]
mod packets;

use natgate_engine::{
    AddressRange, Config, DropReason as R, Engine, Packet, PoolConfig, Prefix, Side, Timestamp,
};
use natgate_ipv6::softwire::{
    Binding, BindingTable, Lw4o6Settings, MapMode, MapParameters, MapRule, MapSettings, PortSets,
    SoftwireSettings,
};
use natgate_ipv6::{Fate, Pref64, Prefix6, Settings, Translator};
use natgate_wire::Ipv6;
use packets::{Message, Way, fragments, packet4, packet6, same};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const ROOM: usize = 64;
/// Ends of the tunnels of lw4o6 and of MAP-E.
const AFTR: u128 = 0x2001_0db8_ffff_0000_u128 << 64 | 2;
const BR: u128 = 0x2001_0db8_ffff_0000_u128 << 64 | 3;
/// The prefix of the default mapping rule of MAP-T, 64 bits.
const DMR: u128 = 0x2001_0db8_fffe_0000_u128 << 64;
/// Addresses of bindings, of the customers of MAP-E and MAP-T, and of others.
/// Every other address lies between [`BELOW`] and the last of the bindings.
const BELOW: u32 = 0x0102_0302;
const BOUND: u32 = 0xcb00_7100;
const RULED: u32 = 0xc000_0200;
const TRANSLATED: u32 = 0xc000_0300;
const REMOTE: u32 = 0x0102_0304;

const SOFTWIRE: SoftwireSettings = SoftwireSettings { mtu: None, path_mtu: false };

/// The ports of a set, one by one (RFC 7597 section 5.1).
fn ports(offset: u8, len: u8, psid: u16) -> Vec<u16> {
    let (offset, len) = (u32::from(offset), u32::from(len));
    let has = |port: &u16| {
        let port = u32::from(*port);
        let high = port >> (16 - offset);
        let own = port >> (16 - offset - len) & ((1 << len) - 1);
        len == 0 || (offset == 0 || high > 0) && own == u32::from(psid)
    };
    (0..=u16::MAX).filter(has).collect()
}

/// A customer of the model.
#[derive(Clone, Debug)]
struct Customer {
    ipv4: u32,
    ports: Vec<u16>,
    address: u128,
    /// The gateway's end of the tunnel; none: MAP-T.
    end: Option<u128>,
}

#[derive(Clone, Debug)]
struct World {
    settings: Settings,
    customers: Vec<Customer>,
}

/// A rule: the start of its IPv6 prefix, its first IPv4 address, and its relay.
type Domain = (u128, u32, Option<u128>);

fn rule((prefix, first, relay): Domain, (offset, ea): (u8, u8)) -> MapRule {
    let dmr = Pref64::new(Prefix6 { address: Ipv6Addr::from_bits(DMR), len: 64 });
    let translation = MapMode::Translation(dmr.expect("a prefix of RFC 6052"));
    MapRule::new(MapParameters {
        ipv6: Prefix6 { address: Ipv6Addr::from_bits(prefix << 80), len: 40 },
        ipv4: Prefix::new(Ipv4Addr::from_bits(first), 30),
        ea_length: ea,
        psid_offset: offset,
        psid: None,
        mode: relay.map_or(translation, |br| MapMode::Encapsulation(Ipv6Addr::from_bits(br))),
    })
    .expect("EA bits that fit")
}

fn customers_of((prefix, first, end): Domain, (offset, ea): (u8, u8)) -> Vec<Customer> {
    let mut customers = Vec::new();
    for host in 0..4 {
        for psid in 0..(1_u32 << (ea - 2)) {
            // RFC 7597 sections 5.2 and 6, written out: prefix, EA bits, address, identifier.
            let (ipv4, embedded) = (first + host, host << (ea - 2) | psid);
            let address = prefix << 80
                | u128::from(embedded) << (128 - 40 - u32::from(ea))
                | u128::from(ipv4) << 16
                | u128::from(psid);
            let ports = ports(offset, ea - 2, psid as u16);
            customers.push(Customer { ipv4, ports, address, end });
        }
    }
    customers
}

fn world(division: (u8, u8), bound: &[(u8, u16)], (offset, ea): (u8, u8)) -> World {
    let sets = PortSets::new(division.0, division.1).expect("at most 16 bits");
    let (mut bindings, mut customers) = (Vec::new(), Vec::<Customer>::new());
    for (number, (host, psid)) in bound.iter().enumerate() {
        let psid = (u32::from(*psid) % sets.count()) as u16;
        let ipv4 = [BELOW, BOUND, BOUND + 1, BOUND + 3][usize::from(host % 4)];
        let b4 = 0x2001_0db8_00b4_u128 << 80 | number as u128;
        let ports = ports(division.0, division.1, psid);
        let is_same = |one: &Customer| one.ipv4 == ipv4 && one.ports == ports;
        if customers.iter().any(is_same) {
            continue;
        }
        let (b4, br) = (Ipv6Addr::from_bits(b4), Ipv6Addr::from_bits(AFTR));
        bindings.push(Binding { ipv4: Ipv4Addr::from_bits(ipv4), sets, psid, b4, br });
        customers.push(Customer { ipv4, ports, address: b4.to_bits(), end: Some(AFTR) });
    }
    let table = BindingTable::new(&bindings, Ipv6Addr::from_bits(AFTR), 1);
    let lw4o6 = Lw4o6Settings {
        address: Ipv6Addr::from_bits(AFTR),
        bindings: Arc::new(table.expect("bindings that differ")),
        hairpinning: true,
        icmp_errors: false,
        inbound_icmp: true,
        softwire: SOFTWIRE,
    };
    let map = [(0x2001_0db8_0900, RULED, Some(BR)), (0x2001_0db8_0a00, TRANSLATED, None)];
    let map = map.map(|domain| {
        customers.extend(customers_of(domain, (offset, ea)));
        MapSettings { rule: rule(domain, (offset, ea)), softwire: SOFTWIRE }
    });
    let map = map.to_vec();
    let settings = Settings { configured: true, lw4o6: Some(lw4o6), map, ..Settings::default() };
    World { settings, customers }
}

/// The IPv6 address of MAP-T that stands for an IPv4 one (RFC 6052 section 2.2, 64 bits).
fn embedded(ipv4: u32) -> u128 {
    DMR | u128::from(ipv4) << 24
}

/// Where a packet goes: outside, to a customer, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    Outside,
    Tunnel(u128, u128),
    Translated(u128),
    Dropped(R),
}

/// The start of a packet inside: a tunnel with both ends, or an address of MAP-T.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Tunnel(u128, u128),
    Translated(u128),
}

impl World {
    fn owner(&self, ipv4: u32, port: u16) -> Option<&Customer> {
        self.customers.iter().find(|one| one.ipv4 == ipv4 && one.ports.contains(&port))
    }

    /// The model's fate of a packet from outside.
    fn inbound(&self, to: (u32, u16)) -> Went {
        self.owner(to.0, to.1).map_or(Went::Dropped(R::NoBinding), arrives)
    }

    /// The model's fate of a packet from inside.
    fn outbound(&self, sender: Sender, message: Message, from: (u32, u16), to: (u32, u16)) -> Went {
        let owner = match sender {
            Sender::Tunnel(address, end) => {
                let Some(owner) = self.owner(from.0, from.1) else {
                    let reason = if end == AFTR { R::NoBinding } else { R::SoftwireSource };
                    return Went::Dropped(reason);
                };
                let own = (owner.address, owner.end);
                (own == (address, Some(end))).then_some(owner).ok_or(R::SoftwireSource)
            }
            Sender::Translated(address) => {
                let own = |one: &&Customer| one.end.is_none() && one.address == address;
                let owner = self.customers.iter().find(own);
                // The quoted packet tells the sender of an error.
                let reason = match message {
                    Message::Error => R::IcmpNoSession,
                    _ => R::SoftwireSource,
                };
                owner.filter(|one| one.ports.contains(&from.1)).ok_or(reason)
            }
        };
        let owner = match owner {
            Ok(owner) => owner,
            Err(reason) => return Went::Dropped(reason),
        };
        let is_softwires = self.customers.iter().any(|one| one.ipv4 == to.0);
        match self.owner(to.0, to.1) {
            Some(one) if one.address == owner.address && to.0 == from.0 => Went::Dropped(R::Land),
            Some(one) => arrives(one),
            None if is_softwires => Went::Dropped(R::NoBinding),
            None => Went::Outside,
        }
    }
}

/// A packet to a customer arrives.
fn arrives(customer: &Customer) -> Went {
    match customer.end {
        Some(end) => Went::Tunnel(end, customer.address),
        None => Went::Translated(customer.address),
    }
}

/// The gateway and a number for each packet.
struct Gateway {
    translator: Translator,
    engine: Engine,
    identification: u16,
}

impl Gateway {
    fn new(settings: &Settings) -> Self {
        let external = Ipv4Addr::new(198, 51, 100, 253);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pool = PoolConfig { addresses, ..PoolConfig::default() };
        let mut config = Config { pools: vec![pool], ..Config::default() };
        let translator = Translator::new(settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], Timestamp(0)).expect("a configuration");
        Self { translator, engine, identification: 0 }
    }

    /// Takes one packet: what leaves for it, and the first reason of a drop.
    fn take(&mut self, from: Side, bytes: &[u8]) -> (Vec<(Side, Vec<u8>)>, Option<R>) {
        let mut buffer = vec![0; ROOM];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, ROOM);
        let before = self.translator.counters();
        let now = (Timestamp(1_000_000_000), from);
        let fate = explained::take(&mut self.translator, &mut self.engine, now, &mut packet);
        let after = self.translator.counters();
        let differs = |reason: &R| after.drops[*reason as usize] != before.drops[*reason as usize];
        let reason = R::ALL.iter().copied().find(differs);
        let mut left = Vec::new();
        match fate {
            Fate::Send(departure) => {
                assert_eq!(departure.cut, None);
                left.push((departure.side, packet.bytes().to_vec()));
            }
            Fate::HandOver(_) => unreachable!("the engine is alone"),
            Fate::Nothing | Fate::Local => {}
        }
        let mut buffer = [0; 1500];
        while let Some((side, len)) = self.translator.poll_transmit(&mut buffer) {
            let bytes = buffer[..len].to_vec();
            // The gateway's own errors are not compared.
            if !packets::is_own_error(&bytes) {
                left.push((side, bytes));
            }
        }
        (left, reason)
    }

    /// Takes a packet, whole or in fragments, and compares the result with the model's.
    fn compare(&mut self, from: Side, way: &Way, expected: Went) {
        self.identification += 1;
        let whole = match way.sender {
            Some(Sender::Translated(address)) => packet6((address, embedded(way.to.0)), way),
            _ => packet4(way, self.identification),
        };
        let parts = match way.message {
            Message::Parts(first) => fragments(&whole, self.identification, first),
            _ => vec![whole],
        };
        let (mut left, mut reasons) = (Vec::new(), Vec::new());
        let number = parts.len();
        for part in parts {
            let part = match way.sender {
                Some(Sender::Tunnel(address, end)) => packets::tunneled((address, end), &part),
                _ => part,
            };
            let (more, reason) = self.take(from, &part);
            left.extend(more);
            reasons.extend(reason);
        }
        if let Went::Dropped(reason) = expected {
            assert_eq!(left, [], "{way:?}");
            assert_eq!(reasons.first(), Some(&reason), "{way:?}");
            return;
        }
        assert_eq!((left.len(), &reasons[..]), (number, &[][..]), "{way:?}");
        let contents: Vec<Vec<u8>> =
            left.iter().map(|(side, bytes)| content(*side, bytes, expected)).collect();
        let sent = match expected {
            Went::Translated(address) => packet6((embedded(way.source()), address), way),
            _ => packet4(way, 0),
        };
        same(way, &sent, &contents);
    }
}

/// The packet that arrives, out of its tunnel. Checks the way that it went.
fn content(side: Side, bytes: &[u8], expected: Went) -> Vec<u8> {
    let ends = |bytes: &[u8]| {
        let header = Ipv6::new_checked(bytes).expect("a packet of IPv6");
        (header.source(), header.destination())
    };
    let inside = side == Side::Inside;
    match expected {
        Went::Outside => assert!(!inside),
        Went::Tunnel(end, customer) => {
            assert_eq!((inside, bytes[6], ends(bytes)), (true, 4, (end, customer)));
            return bytes[40..].to_vec();
        }
        Went::Translated(customer) => assert_eq!((inside, ends(bytes).1), (true, customer)),
        Went::Dropped(_) => unreachable!("it has left"),
    }
    bytes.to_vec()
}

/// An end of a packet: a customer's with one of its ports, or one that may be nobody's.
type End = (u8, u8, u16);

impl World {
    fn end(&self, (kind, choice, port): End) -> (u32, u16) {
        match kind % 4 {
            0 | 1 if !self.customers.is_empty() => {
                let one = &self.customers[usize::from(choice) % self.customers.len()];
                let place = usize::from(port) % one.ports.len();
                (one.ipv4, one.ports[place])
            }
            2 => {
                let first = [BOUND, RULED, TRANSLATED][usize::from(choice) % 3];
                (first + u32::from(choice >> 2 & 7), port)
            }
            _ => (REMOTE + u32::from(choice), port),
        }
    }
}

fn end() -> impl Strategy<Value = End> {
    (any::<u8>(), any::<u8>(), any::<u16>())
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        3 => Just(Message::Datagram),
        1 => Just(Message::Echo),
        1 => Just(Message::Error),
        1 => any::<bool>().prop_map(Message::Parts),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packets_go_where_the_plain_model_sends_them(
        division in (0_u8..=6, 0_u8..=8),
        bound in prop::collection::vec((any::<u8>(), any::<u16>()), 0..12),
        rule in (0_u8..=15, 2_u8..=6),
        packets in prop::collection::vec(
            (any::<bool>(), end(), end(), any::<u8>(), message()),
            1..60,
        ),
    ) {
        let rule = (rule.0.min(12), rule.1);
        let world = world(division, &bound, rule);
        let mut gateway = Gateway::new(&world.settings);
        for (inbound, one, other, choice, message) in packets {
            let (mut from, mut to) = (world.end(one), world.end(other));
            if inbound {
                from.0 = REMOTE - 1;
                if message == Message::Echo {
                    from.1 = to.1;
                }
                let way = Way { sender: None, message, from, to };
                gateway.compare(Side::Outside, &way, world.inbound(to));
                continue;
            }
            if message == Message::Echo {
                to.1 = from.1;
            }
            // The start is that of the sender, or another customer's.
            let sender = world.owner(from.0, from.1).filter(|_| choice % 4 != 0);
            let other = world.customers.get(usize::from(choice) % world.customers.len().max(1));
            let Some(start) = sender.or(other) else { continue };
            let sender = match start.end {
                Some(end) => {
                    Sender::Tunnel(start.address, if choice % 16 == 1 { BR } else { end })
                }
                None => {
                    from.0 = start.ipv4;
                    Sender::Translated(start.address)
                }
            };
            let way = Way { sender: Some(sender), message, from, to };
            gateway.compare(Side::Inside, &way, world.outbound(sender, message, from, to));
        }
    }
}
