//! Hosts of NAT64 and DS-Lite in a pair: each node has numbers of its own for them, and a copy is
//! of the host with its identity.

use super::workers::{COUNTS, Counts, flows};
use super::*;
use natgate_engine::HostIdentity;
use natgate_ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_ipv6::{
    Fate, HostKind, Nat64Settings, NonGlobal, Pref64, Prefix6, Requester, Settings,
};
use natgate_wire::Ipv6;
use std::net::Ipv6Addr;

/// Bytes before a packet.
const ROOM: usize = 64;
const AFTR: u128 = 0x2001_0db8_ffff << 80 | 1;
const B4: u128 = 0x2001_0db8_00b4 << 80;
const HOSTS: u128 = 0x2001_0db8 << 96;
const PREFIX: u128 = 0x0064_ff9b << 96;
/// A second prefix of remote hosts.
const SECOND_PREFIX: u128 = 0x2001_0db8_0064 << 80;
/// Next header of a packet of IPv4.
const IPV4: u8 = 4;

fn address(bits: u128) -> Ipv6Addr {
    Ipv6Addr::from_bits(bits)
}

fn prefix(bits: u128, len: u8) -> Prefix6 {
    Prefix6 { address: address(bits), len }
}

impl Allotment {
    /// Settings of IPv6, if hosts have numbers.
    pub(super) fn settings6(self) -> Option<Settings> {
        let mut settings = Settings { configured: true, ..Settings::default() };
        settings.inside.address = Some((address(HOSTS | 0xffff), 64));
        if matches!(self, Self::Nat64 | Self::Both) {
            let prefixes = [PREFIX, SECOND_PREFIX].map(|bits| Pref64::new(prefix(bits, 96)));
            settings.nat64 = Some(Nat64Settings {
                prefixes: prefixes.map(|prefix| prefix.expect("it may embed")).to_vec(),
                subscribers: Vec::new(),
                subscriber_length: 126,
                non_global: NonGlobal::Translate,
                static_hosts: Vec::new(),
            });
        }
        if matches!(self, Self::Dslite | Self::Both) {
            settings.dslite = Some(DsliteSettings {
                address: address(AFTR),
                b4: vec![prefix(B4, 48)],
                subscriber_length: 128,
                b4_change_interval: std::time::Duration::ZERO,
                softwire: SoftwireSettings { mtu: None, path_mtu: true },
                static_hosts: Vec::new(),
            });
        }
        (settings.nat64.is_some() || settings.dslite.is_some()).then_some(settings)
    }

    /// The identity of a host. Behind tunnels, hosts of several subscribers have one address. With
    /// NAT64 and DS-Lite, each second host is behind a tunnel.
    pub(super) fn identity(self, host: u8) -> HostIdentity {
        let number = u128::from(host);
        match self {
            Self::Both if !host.is_multiple_of(2) => Self::Dslite.identity(host),
            Self::Dslite => HostIdentity {
                address: B4 | (number / 3),
                inner: 0x0a00_0002 + u32::from(host % 3),
            },
            _ => HostIdentity { address: HOSTS | number << 1, inner: 0 },
        }
    }

    fn requester(self, host: u8) -> Requester {
        let HostIdentity { address: bits, inner } = self.identity(host);
        match inner {
            0 => Requester::Ipv6(address(bits)),
            inner => Requester::Tunneled { b4: address(bits), inner: Ipv4Addr::from_bits(inner) },
        }
    }

    /// The host with an identity, by the address that tests know it by.
    fn known(self, identity: HostIdentity) -> Option<Ipv4Addr> {
        let host = (0..=u8::MAX).find(|host| self.identity(*host) == identity)?;
        Some(self.place(host).1)
    }

    /// A packet of a host as it comes in, from one that has the address that tests know.
    fn wrap(self, bytes: &[u8; 40], by: u128) -> Vec<u8> {
        let header = Ipv4::new_checked(&bytes[..]).expect("a packet");
        let host = header.source().to_be_bytes()[3];
        let HostIdentity { address, inner } = self.identity(host);
        let (to, protocol, content) = match inner {
            0 => (by | u128::from(header.destination()), header.protocol(), bytes[20..].to_vec()),
            inner => {
                let mut content = *bytes;
                let mut header = Ipv4::new_checked(&mut content[..]).expect("a packet");
                header.set_source(inner);
                header.fill_checksum();
                (AFTR, IPV4, content.to_vec())
            }
        };
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(content.len() as u16).to_be_bytes());
        (packet[6], packet[7]) = (protocol, 64);
        packet[8..24].copy_from_slice(&address.to_be_bytes());
        packet[24..40].copy_from_slice(&to.to_be_bytes());
        packet.extend(content);
        packet
    }

    /// The host that a packet goes to and its port there, and the address from which it seems to
    /// come.
    fn unwrap(self, bytes: &[u8]) -> Option<(External, u128)> {
        let header = Ipv6::new_checked(bytes).expect("a packet of IPv6");
        let (source, address) = (header.source(), header.destination());
        let (inner, ports) = match source {
            AFTR => (Ipv4::new_checked(&bytes[40..]).expect("inner").destination(), 60),
            _ => (0, 40),
        };
        let port = u16::from_be_bytes([bytes[ports + 2], bytes[ports + 3]]);
        Some(((self.known(HostIdentity { address, inner })?, port), source))
    }
}

impl Process {
    /// Realm and number of a host at this node. A host without a number gets one.
    pub(super) fn number(&mut self, host: u8) -> Option<(u16, Ipv4Addr)> {
        let now = Timestamp(self.now);
        let requester = self.allotment.requester(host);
        let (worker, translator) = self.translator_of(self.allotment.identity(host));
        let Some(translator) = translator else { return self.place(host) };
        let numbered = translator.number_requester(requester, now).ok()?;
        assert_eq!(self.worker_of(numbered), worker, "the worker of the number");
        Some(numbered)
    }

    /// The address by which tests know the host with a number in a realm.
    pub(super) fn known(&mut self, realm: u16, number: Ipv4Addr) -> Ipv4Addr {
        let (now, allotment, worker) =
            (Timestamp(self.now), self.allotment, self.worker_of((realm, number)));
        let Some(translator) = self.parts_of(worker).1 else { return number };
        if !translator.realms().has(realm) {
            return number;
        }
        let hosts = CopiedHosts::new(Some(translator), now);
        let identity = natgate_engine::HostNumbers::identity(&hosts, (realm, number));
        allotment
            .known(identity.expect("a mapping's host has its number"))
            .expect("a host of tests")
    }

    /// Passes a packet through the translator. As [`Process::pass`], and the address from which a
    /// host of NAT64 has the packet.
    fn pass_families(
        &mut self,
        from: Side,
        bytes: &[u8; 40],
        by: u128,
    ) -> Option<((External, External, u16), u128)> {
        let (now, allotment) = (Timestamp(self.now), self.allotment);
        let mut buffer = vec![0; ROOM];
        match from {
            Side::Inside => buffer.extend(allotment.wrap(bytes, by)),
            Side::Outside => buffer.extend(bytes),
        }
        let worker = self.worker_of_packet((from, 0), &buffer[ROOM..]);
        if self.still.contains(&worker) {
            return None;
        }
        let (engine, Some(translator)) = self.parts_of(worker) else { return None };
        let mut packet = Packet::new(&mut buffer, ROOM);
        let fate = translator.take(engine, now, from, &mut packet);
        let Fate::Send(departure) = fate else { return None };
        let bytes = packet.bytes();
        if departure.answers {
            return None;
        }
        if departure.side == Side::Inside {
            let (to, source) = allotment.unwrap(bytes)?;
            let kind = if source == AFTR { HostKind::Dslite } else { HostKind::Nat64 };
            let realm = translator.realms().of(kind)?;
            return Some((((Ipv4Addr::UNSPECIFIED, 0), to, realm), source));
        }
        let header = Ipv4::new_checked(bytes).expect("a packet");
        let end = |address: u32, at: usize| {
            (Ipv4Addr::from_bits(address), u16::from_be_bytes([bytes[at], bytes[at + 1]]))
        };
        Some(((end(header.source(), 20), end(header.destination(), 22), 0), 0))
    }

    /// [`Process::pass`] for hosts with numbers.
    pub(super) fn pass_numbered(
        &mut self,
        from: Side,
        bytes: [u8; 40],
    ) -> Option<(External, External, u16)> {
        self.pass_families(from, &bytes, PREFIX).map(|(ends, _)| ends)
    }
}

fn taken(allotment: Allotment) -> (Pair, Vec<External>) {
    let mut pair = Pair::with(allotment);
    // Hosts of b come first, so the same hosts have other numbers at both nodes.
    for host in 20..24 {
        pair.b().send((host, 1)).expect("sent");
    }
    let flows = (3..8).map(|host| pair.a().send((host, 1)).expect("sent")).collect();
    pair.run(3.0);
    (pair, flows)
}

/// The limits of control flows count subscribers: a prefix of NAT64, and a B4.
#[test]
fn hosts_of_a_subscriber_have_numbers_of_one() {
    for (allotment, of_one) in [(Allotment::Nat64, 2), (Allotment::Dslite, 3)] {
        let mut pair = Pair::with(allotment);
        for host in 0..6 {
            let of = |process: &mut Process, host: u8| {
                let number = process.number(host).expect("a number");
                process.engine.subscriber_of(number)
            };
            let first = host - host % of_one;
            assert_eq!(of(pair.a(), host), of(pair.a(), first), "{allotment:?}: {host}");
            assert_ne!(of(pair.a(), host), of(pair.a(), first + of_one), "{allotment:?}: {host}");
        }
    }
}

#[test]
fn hosts_go_on_at_the_partner_with_other_numbers() {
    for allotment in [Allotment::Nat64, Allotment::Dslite, Allotment::Both] {
        let (mut pair, flows) = taken(allotment);
        assert!(pair.status_is_whole());
        assert_ne!(pair.a().number(4), pair.b().number(4));
        assert_eq!(pair.a().hosts(), pair.b().hosts());
        assert_eq!(pair.a().hosts().len(), 9);
        pair.end_a_with_guardian();
        pair.run(1.0);
        for (host, flow) in (3..).zip(&flows) {
            assert_eq!(pair.b().send((host, 1)).as_ref(), Some(flow));
            let reached = pair.b().answer(*flow, None).expect("it is there");
            let (realm, address) = allotment.place(host);
            assert_eq!(reached, (realm.to_owned(), (address, 1)));
        }
        pair.run(123.0);
        pair.restart_a();
        pair.run(3.0);
        pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
        pair.run(1.0);
        assert!(pair.status_is_whole());
        for (host, flow) in (3..).zip(&flows) {
            assert_eq!(pair.a().send((host, 1)).as_ref(), Some(flow));
        }
        // Hosts without mappings lose their numbers at both nodes.
        pair.run(900.0);
        for process in [&pair.a, &pair.b].into_iter().flatten() {
            assert_eq!(process.engine.mappings().count(), 0);
            let translator = process.translator.as_ref().expect("hosts have numbers");
            let hosts = HostKind::ALL.iter().filter_map(|kind| translator.hosts(*kind));
            assert!(hosts.map(natgate_ipv6::Hosts::counts).all(|counts| counts == (0, 0)));
        }
    }
}

/// Each worker has numbers of its own, and the nodes may have other numbers of workers.
#[test]
fn hosts_of_several_workers_go_on_at_the_partner() {
    for (workers, allotment) in COUNTS
        .into_iter()
        .flat_map(|workers| [(workers, Allotment::Nat64), (workers, Allotment::Dslite)])
    {
        let mut pair = Pair::of(allotment, workers);
        // Hosts of b come first, as far as its workers have ports.
        let of_b = (60..64).filter_map(|host| pair.b().send((host, 1))).count();
        assert!(of_b > 0);
        let flows = flows(&mut pair, 2..40);
        pair.run(3.0);
        assert!(pair.status_is_whole(), "{workers:?}: {:?}", pair.b().status());
        assert_eq!(pair.a().hosts(), pair.b().hosts());
        pair.end_a_with_guardian();
        pair.run(1.0);
        for (flow, external) in &flows {
            assert_eq!(pair.b().send(*flow), Some(*external), "{workers:?}");
            let (realm, address) = allotment.place(flow.0);
            let reached = pair.b().answer(*external, None).expect("it is there");
            assert_eq!(reached, (realm.to_owned(), (address, flow.1)), "{workers:?}");
        }
        pair.run(123.0);
        pair.restart_a();
        pair.run(3.0);
        pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
        pair.run(2.0);
        assert_eq!(pair.a().status().slices[0].role, "owner", "{workers:?}");
        for (flow, external) in &flows {
            assert_eq!(pair.a().send(*flow), Some(*external), "{workers:?}");
        }
        pair.check();
        if workers != Counts(2, 3) {
            continue;
        }
        // Hosts without mappings lose their numbers at both nodes.
        pair.run(900.0);
        for process in [&mut pair.a, &mut pair.b].into_iter().flatten() {
            for worker in 0..=process.others.len() {
                let (engine, translator) = process.parts_of(worker);
                let translator = translator.expect("hosts have numbers");
                let hosts = HostKind::ALL.iter().filter_map(|kind| translator.hosts(*kind));
                assert!(hosts.map(natgate_ipv6::Hosts::counts).all(|counts| counts == (0, 0)));
                assert_eq!(engine.mappings().count(), 0);
            }
        }
    }
}

#[test]
fn packets_come_back_by_the_prefix_that_the_host_has_used() {
    let mut pair = Pair::with(Allotment::Nat64);
    let bytes = packet(None, (0x0a00_0005, 7), SERVER);
    let sent = pair.a().pass_families(Side::Inside, &bytes, SECOND_PREFIX).expect("sent");
    let external = sent.0.0;
    pair.run(3.0);
    for process in [&mut pair.a, &mut pair.b].into_iter().flatten() {
        let to = (external.0.to_bits(), external.1);
        let back = packet(None, SERVER, to);
        let (_, source) = process.pass_families(Side::Outside, &back, PREFIX).expect("it comes");
        assert_eq!(address(source), address(SECOND_PREFIX | u128::from(REMOTE)));
    }
}

#[test]
fn a_partner_without_room_for_a_host_says_so_until_there_is_room() {
    let mut pair = Pair::with(Allotment::Nat64);
    let mut config = pair.b().engine.config().clone();
    config.limits.subscribers = Some(2);
    let settings = Allotment::Nat64.settings6().expect("settings");
    config.realms.pop();
    let few = natgate_ipv6::Translator::new(&settings, &mut config, [9; 32]).expect("good");
    pair.b().translator = few;
    // Two subscribers of four hosts each.
    let flows: Vec<External> =
        [4, 5, 6, 8].iter().map(|host| pair.a().send((*host, 1)).expect("sent")).collect();
    pair.run(5.0);
    let told = "1 mappings have no copy, because this node has no room for more hosts of NAT64 or \
                DS-Lite (limits.subscribers)";
    let fault = |process: &Process| process.status().slices[0].fault();
    assert_eq!(fault(pair.b()), Some(told.into()));
    assert_eq!(fault(pair.a()), Some(told.replace("this", "the other")));
    assert_eq!(pair.b().answer(flows[3], None), None);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(2.0);
    assert_eq!(pair.b().status().slices[0].role, "partner", "the slice waits for room");
    pair.ask("a", FleetRequest::Move(0, "a".into())).expect("it stays");
    // The other hosts end.
    for _ in 0..60 {
        assert!(pair.a().send((8, 1)).is_some());
        pair.run(20.0);
    }
    assert_eq!(fault(pair.b()), None);
    assert!(pair.b().answer(flows[3], None).is_some());
}

/// A pair in which all hosts are of one subscriber. Host 5 has a number at both nodes.
fn of_one_subscriber() -> Pair {
    let mut pair = Pair::with(Allotment::Nat64);
    let mut settings = Allotment::Nat64.settings6().expect("settings");
    if let Some(nat64) = &mut settings.nat64 {
        nat64.subscriber_length = 64;
    }
    for process in [&mut pair.a, &mut pair.b].into_iter().flatten() {
        let mut config = process.engine.config().clone();
        config.realms.pop();
        process.translator =
            natgate_ipv6::Translator::new(&settings, &mut config, [9; 32]).expect("good");
        process.reload(900);
    }
    pair.b().send((5, 1)).expect("sent");
    pair
}

/// Lets time pass, in which the subscriber has as many hosts at `b` as possible.
fn run_full(pair: &mut Pair, seconds: f64) {
    for _ in 0..(seconds / 0.5) as u32 {
        let process = pair.b();
        let now = Timestamp(process.now);
        let translator = process.translator.as_mut().expect("hosts have numbers");
        for host in 0..256 {
            let _ =
                translator.number_requester(Requester::Ipv6(address(HOSTS | 1 << 32 | host)), now);
        }
        pair.run(0.5);
    }
}

/// Flows of the hosts 4 and 5 by `a`. The partner has no place for the first.
fn refused_flow(pair: &mut Pair) -> [External; 2] {
    run_full(pair, 1.0);
    let flows = [4, 5].map(|host| pair.a().send((host, 1)).expect("sent"));
    run_full(pair, 4.0);
    let fault = pair.a().status().slices[0].fault().expect("a mapping has no copy");
    let told =
        "1 mappings have no copy, because their subscribers of NAT64 or DS-Lite have as many";
    assert!(fault.starts_with(told), "{fault}");
    flows
}

/// Checks that the slice is at `b` without the mapping of host 4, whose port is held there.
fn check_moved(pair: &mut Pair, [refused, copied]: [External; 2]) {
    let status = pair.b().status();
    assert_eq!((status.slices[0].role, status.slices[0].assigns), ("owner", true));
    assert_eq!(pair.a().status().slices[0].ended_to_move, 1);
    assert!(pair.status_is_whole());
    for process in [&mut pair.a, &mut pair.b].into_iter().flatten() {
        assert_eq!(process.answer(refused, None), None, "the mapping has ended at both nodes");
        assert!(process.answer(copied, None).is_some());
    }
    assert!(is_taken(pair.b(), refused), "the port is held");
    pair.run(125.0);
    assert!(!is_taken(pair.b(), refused), "the hold-down is over");
}

/// True if a port of UDP is used or held at a node.
fn is_taken(process: &Process, (address, port): External) -> bool {
    (0..2).any(|place| {
        let mut taken = [0; 1024];
        let its = process.engine.taken_ports(place, protocol::UDP, &mut taken);
        its == Some(address) && taken[usize::from(port) / 64] >> (port % 64) & 1 != 0
    })
}

#[test]
fn a_slice_moves_without_mappings_of_a_subscriber_that_is_full_at_the_partner() {
    let mut pair = of_one_subscriber();
    let flows = refused_flow(&mut pair);
    assert_eq!(pair.a().status().slices[0].ended_to_move, 0, "nothing ends without a move");
    assert!(pair.a().answer(flows[0], None).is_some());
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    run_full(&mut pair, 6.0);
    check_moved(&mut pair, flows);
}

#[test]
fn a_host_whose_packets_are_not_translated_gets_no_number() {
    let mut pair = Pair::with(Allotment::Nat64);
    let now = Timestamp(pair.now);
    let count = |process: &Process| {
        let translator = process.translator.as_ref();
        let hosts = translator.and_then(|one| one.hosts(HostKind::Nat64));
        hosts.expect("hosts").counts().0
    };
    let before = count(pair.b());
    let odd = [0, 1, 0xfe80 << 112 | 9, 0xff02 << 112 | 1, PREFIX | 5, HOSTS | 0xffff];
    let realms = pair.b().translator.as_ref().expect("NAT64").realms();
    let realm = realms.of(HostKind::Nat64).expect("NAT64");
    let mut hosts = CopiedHosts::new(pair.b().translator.as_mut(), now);
    for address in odd {
        let host = HostIdentity { address, inner: 0 };
        let number = natgate_engine::HostNumbers::number(&mut hosts, realm, host);
        assert_eq!(number, Err(natgate_engine::NoNumber::Unfit), "{address:x}");
    }
    assert_eq!(count(pair.b()), before);
}

#[test]
fn nodes_that_translate_for_other_hosts_share_nothing() {
    let mut pair = Pair::with(Allotment::Nat64);
    let mut settings = Allotment::Nat64.settings6().expect("settings");
    if let Some(nat64) = &mut settings.nat64 {
        nat64.subscribers = vec![prefix(HOSTS, 64)];
    }
    let mut config = pair.b().engine.config().clone();
    config.realms.pop();
    pair.b().translator =
        natgate_ipv6::Translator::new(&settings, &mut config, [9; 32]).expect("good");
    pair.b().reload(300);
    pair.run(5.0);
    let fault = pair.b().status().slices[0].fault().expect("something differs");
    assert!(fault.ends_with("differ in nat64.subscribers"), "{fault}");
}

#[test]
fn nodes_that_name_hosts_otherwise_share_nothing() {
    let mut pair = Pair::with(Allotment::Nat64);
    let mut settings = Allotment::Nat64.settings6().expect("settings");
    if let Some(nat64) = &mut settings.nat64 {
        nat64.prefixes.reverse();
        nat64.subscriber_length = 64;
    }
    let mut config = pair.b().engine.config().clone();
    config.realms.pop();
    pair.b().translator =
        natgate_ipv6::Translator::new(&settings, &mut config, [9; 32]).expect("good");
    pair.b().reload(300);
    let flow = pair.a().send((4, 1)).expect("sent");
    pair.run(5.0);
    let told = "nothing is copied, because the configurations of the two nodes differ in \
                nat64.prefixes, nat64.subscriber_length";
    assert_eq!(pair.b().status().slices[0].fault(), Some(told.into()));
    assert_eq!(pair.b().answer(flow, None), None);
}
