//! Random packets of softwires against a plain model: bindings and rules are searched one by one,
//! and port sets are lists of ports.

#[path = "common/explained.rs"]
mod explained;

use natgate_engine::{
    AddressRange, Config, DropReason as R, Engine, Packet, PoolConfig, Prefix, Side, Timestamp,
};
use natgate_ipv6::softwire::{
    Binding, BindingTable, Lw4o6Settings, MapMode, MapParameters, MapRule, MapSettings, PortSets,
    SoftwireSettings,
};
use natgate_ipv6::{Fate, Prefix6, Settings, Translator};
use natgate_wire::{Ipv4, Ipv6};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const ROOM: usize = 64;
/// Ends of the tunnels of lw4o6 and of MAP-E.
const AFTR: u128 = 0x2001_0db8_ffff_0000_u128 << 64 | 2;
const BR: u128 = 0x2001_0db8_ffff_0000_u128 << 64 | 3;
/// Addresses of bindings, of the rule's customers, and of others.
const BOUND: u32 = 0xcb00_7100;
const RULED: u32 = 0xc000_0200;
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
    end: u128,
}

#[derive(Clone, Debug)]
struct World {
    settings: Settings,
    customers: Vec<Customer>,
}

fn world(division: (u8, u8), bound: &[(u8, u16)], (offset, ea): (u8, u8)) -> World {
    let sets = PortSets::new(division.0, division.1).expect("at most 16 bits");
    let (mut bindings, mut customers) = (Vec::new(), Vec::<Customer>::new());
    for (number, (host, psid)) in bound.iter().enumerate() {
        let psid = (u32::from(*psid) % sets.count()) as u16;
        let ipv4 = BOUND + u32::from(host % 4);
        let b4 = 0x2001_0db8_00b4_u128 << 80 | number as u128;
        let ports = ports(division.0, division.1, psid);
        let is_same = |one: &Customer| one.ipv4 == ipv4 && one.ports == ports;
        if customers.iter().any(is_same) {
            continue;
        }
        let (b4, br) = (Ipv6Addr::from_bits(b4), Ipv6Addr::from_bits(AFTR));
        bindings.push(Binding { ipv4: Ipv4Addr::from_bits(ipv4), sets, psid, b4, br });
        customers.push(Customer { ipv4, ports, address: b4.to_bits(), end: AFTR });
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
    let rule = MapRule::new(MapParameters {
        ipv6: Prefix6 { address: Ipv6Addr::from_bits(0x2001_0db8_0900_u128 << 80), len: 40 },
        ipv4: Prefix::new(Ipv4Addr::from_bits(RULED), 30),
        ea_length: ea,
        psid_offset: offset,
        psid: None,
        mode: MapMode::Encapsulation(Ipv6Addr::from_bits(BR)),
    })
    .expect("EA bits that fit");
    for host in 0..4 {
        for psid in 0..(1_u32 << (ea - 2)) {
            // RFC 7597 sections 5.2 and 6, written out: prefix, EA bits, address, identifier.
            let (ipv4, embedded) = (RULED + host, host << (ea - 2) | psid);
            let address = 0x2001_0db8_0900_u128 << 80
                | u128::from(embedded) << (128 - 40 - u32::from(ea))
                | u128::from(ipv4) << 16
                | u128::from(psid);
            let ports = ports(offset, ea - 2, psid as u16);
            customers.push(Customer { ipv4, ports, address, end: BR });
        }
    }
    let map = vec![MapSettings { rule, softwire: SOFTWIRE }];
    let settings = Settings { configured: true, lw4o6: Some(lw4o6), map, ..Settings::default() };
    World { settings, customers }
}

fn udp(source: (u32, u16), destination: (u32, u16)) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[20..22].copy_from_slice(&source.1.to_be_bytes());
    bytes[22..24].copy_from_slice(&destination.1.to_be_bytes());
    bytes[24..26].copy_from_slice(&12_u16.to_be_bytes());
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(32);
    header.set_ttl(64);
    header.set_protocol(17);
    header.set_source(source.0);
    header.set_destination(destination.0);
    header.fill_checksum();
    bytes
}

fn tunneled(ends: (u128, u128), inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes.extend(inner);
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(inner.len() as u16);
    header.set_next_header(4);
    header.set_hop_limit(9);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    bytes
}

/// Where a packet goes: outside, into a tunnel, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    Outside,
    Tunnel(u128, u128),
    Dropped(R),
}

impl World {
    fn owner(&self, ipv4: u32, port: u16) -> Option<&Customer> {
        self.customers.iter().find(|one| one.ipv4 == ipv4 && one.ports.contains(&port))
    }

    /// The model's fate of a packet from outside.
    fn inbound(&self, to: (u32, u16)) -> Went {
        match self.owner(to.0, to.1) {
            Some(one) => Went::Tunnel(one.end, one.address),
            None => Went::Dropped(R::NoBinding),
        }
    }

    /// The model's fate of a packet from a tunnel.
    fn outbound(&self, ends: (u128, u128), from: (u32, u16), to: (u32, u16)) -> Went {
        let Some(sender) = self.owner(from.0, from.1) else {
            let reason = if ends.1 == AFTR { R::NoBinding } else { R::SoftwireSource };
            return Went::Dropped(reason);
        };
        if (sender.address, sender.end) != ends {
            return Went::Dropped(R::SoftwireSource);
        }
        let is_softwires = self.customers.iter().any(|one| one.ipv4 == to.0)
            || (BOUND..BOUND + 4).contains(&to.0) && self.spans(to.0);
        match self.owner(to.0, to.1) {
            Some(one) if one.address == sender.address && to.0 == from.0 => Went::Dropped(R::Land),
            Some(one) => Went::Tunnel(one.end, one.address),
            None if is_softwires => Went::Dropped(R::NoBinding),
            None => Went::Outside,
        }
    }

    /// True if an address is between those of the bindings.
    fn spans(&self, ipv4: u32) -> bool {
        let bound = || self.customers.iter().filter(|one| one.end == AFTR).map(|one| one.ipv4);
        bound().any(|one| one <= ipv4) && bound().any(|one| one >= ipv4)
    }
}

fn take(translator: &mut Translator, engine: &mut Engine, from: Side, bytes: &[u8]) -> Went {
    let mut buffer = vec![0; ROOM];
    buffer.extend(bytes);
    let mut packet = Packet::new(&mut buffer, ROOM);
    let (before, now) = (translator.counters(), Timestamp(1_000_000_000));
    let fate = explained::take(translator, engine, (now, from), &mut packet);
    let after = translator.counters();
    match fate {
        Fate::Send(departure) if departure.side == Side::Outside => Went::Outside,
        Fate::Send(_) => {
            let header = Ipv6::new_checked(packet.bytes()).expect("a packet in a tunnel");
            let inner = Ipv4::new_checked(header.payload()).expect("a packet of IPv4");
            assert!(inner.checksum_valid() && inner.ttl() == 63);
            Went::Tunnel(header.source(), header.destination())
        }
        Fate::HandOver(_) => unreachable!("the engine is alone"),
        Fate::Nothing | Fate::Local => {
            let differs =
                |reason: &R| after.drops[*reason as usize] != before.drops[*reason as usize];
            Went::Dropped(R::ALL.iter().copied().find(differs).expect("a reason"))
        }
    }
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
            2 if choice & 1 == 0 => (BOUND + u32::from(choice >> 1 & 7), port),
            2 => (RULED + u32::from(choice >> 1 & 7), port),
            _ => (REMOTE + u32::from(choice), port),
        }
    }
}

fn end() -> impl Strategy<Value = End> {
    (any::<u8>(), any::<u8>(), any::<u16>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packets_go_where_the_plain_model_sends_them(
        division in (0_u8..=6, 0_u8..=8),
        bound in prop::collection::vec((any::<u8>(), any::<u16>()), 0..12),
        rule in (0_u8..=15, 2_u8..=6),
        packets in prop::collection::vec((any::<bool>(), end(), end(), any::<u8>()), 1..60),
    ) {
        let rule = (rule.0.min(12), rule.1);
        let world = world(division, &bound, rule);
        let external = Ipv4Addr::new(198, 51, 100, 253);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pool = PoolConfig { addresses, ..PoolConfig::default() };
        let mut config = Config { pools: vec![pool], ..Config::default() };
        let translator = Translator::new(&world.settings, &mut config, [1; 32]);
        let mut translator = translator.expect("good settings").expect("settings of IPv6");
        let mut engine = Engine::new(&config, [1; 32], Timestamp(0)).expect("a configuration");
        for (inbound, one, other, choice) in packets {
            let (from, to) = (world.end(one), world.end(other));
            if inbound {
                let from = (REMOTE - 1, from.1);
                let went = take(&mut translator, &mut engine, Side::Outside, &udp(from, to));
                prop_assert_eq!(went, world.inbound(to), "from outside to {:?}", to);
                continue;
            }
            // The tunnel is that of the sender, or another customer's.
            let sender = world.owner(from.0, from.1).filter(|_| choice % 4 != 0);
            let other = world.customers.get(usize::from(choice) % world.customers.len().max(1));
            let Some(tunnel) = sender.or(other) else { continue };
            let ends = (tunnel.address, if choice % 16 == 1 { BR } else { tunnel.end });
            let bytes = tunneled(ends, &udp(from, to));
            let went = take(&mut translator, &mut engine, Side::Inside, &bytes);
            prop_assert_eq!(went, world.outbound(ends, from, to), "{:?} to {:?}", from, to);
        }
    }
}
