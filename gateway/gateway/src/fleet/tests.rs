//! Two nodes with their engines, over a link that loses, repeats and reorders.

mod blocks;
mod busy;
mod controls;
mod histories;
mod hosts;
mod lagging;
mod ownership;
mod portless;
mod realms;
mod requests;
mod services;
mod strays;
mod whole;
mod whole_workers;
mod workers;

use super::*;
use natgate_engine::{
    AddressRange, Allocation, Behavior, BlockConfig, Change, Config, Cursor, DeterministicConfig,
    Event, Filter, Packet, PoolConfig, Pooling, Reconfiguration, Side, SideConfig, Verdict,
};
use natgate_pair::Boot;
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Ipv4, protocol};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

const REMOTE: u32 = 0xc633_6407;
const SECOND: u64 = 1_000_000_000;
/// Ports of a block.
const BLOCK: u16 = 16;
/// Ports of a block of one word, and of one of several words.
const WORD: u16 = 64;
const LARGE: u16 = 256;

/// The two ends of a link. Messages lie here until a node takes them.
#[derive(Default)]
struct Wire {
    messages: [Vec<Vec<u8>>; 2],
    views: [Option<Vec<u8>>; 2],
    /// Boot numbers of ended processes that a guardian has told each node, and the last heartbeat
    /// of each.
    ends: [Option<Boot>; 2],
    beats: [Boot; 2],
    is_cut: bool,
    /// True if the other node's version has no control flows in records, no sums in states, and no
    /// records without keys.
    is_old: bool,
    /// Number of the slice whose messages are lost.
    deaf: Option<u16>,
    /// The last word of presence of each node.
    words: [Vec<u8>; 2],
    /// Share of messages that are lost or come late, of 8.
    faults: u64,
    random: u64,
    /// Time by which messages that fit no datagram come later than others, nanoseconds; and those
    /// on their way, with the node and the time at which they come.
    stream_time: u64,
    streams: Vec<(usize, u64, Vec<u8>)>,
    now: u64,
}

/// Room of a datagram.
const ROOM: usize = 1100;

impl Wire {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % bound
    }
}

struct End(Arc<Mutex<Wire>>, usize);

impl PartnerLink for End {
    fn send(&mut self, message: Vec<u8>) -> bool {
        let mut wire = self.0.lock().expect("no test has failed");
        let slice = natgate_pair::read(&message).map(|(id, _)| id.slice);
        let is_lost = wire.deaf.is_some() && wire.deaf == slice;
        if !wire.is_cut && !is_lost && wire.below(8) >= wire.faults {
            if message.len() > ROOM && wire.stream_time > 0 {
                let due = wire.now + wire.stream_time;
                wire.streams.push((1 - self.1, due, message));
            } else {
                wire.messages[1 - self.1].push(message);
            }
        }
        !wire.is_cut
    }

    fn flush(&mut self) {}

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut wire = self.0.lock().expect("no test has failed");
        let now = wire.now;
        let arrived = wire.streams.extract_if(.., |(to, due, _)| *to == self.1 && *due <= now);
        let arrived: Vec<_> = arrived.map(|(.., message)| message).collect();
        wire.messages[self.1].extend(arrived);
        let count = wire.messages[self.1].len() as u64;
        let at = match wire.faults {
            _ if count == 0 => return None,
            0 => 0,
            _ => wire.below(count) as usize,
        };
        Some(wire.messages[self.1].remove(at))
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn tell(&mut self, view: Vec<u8>) {
        let mut wire = self.0.lock().expect("no test has failed");
        if !wire.is_cut {
            wire.views[1 - self.1] = Some(view);
        }
    }

    fn heard(&mut self) -> Option<Vec<u8>> {
        self.0.lock().expect("no test has failed").views[self.1].take()
    }

    fn pass(&mut self, datagram: &[u8]) -> bool {
        self.0.lock().expect("no test has failed").words[self.1] = datagram.to_vec();
        true
    }

    fn status(&self) -> LinkStatus {
        let wire = self.0.lock().expect("no test has failed");
        let connected = (!wire.is_cut).then_some(Duration::ZERO);
        LinkStatus {
            connected,
            lacks_flows: wire.is_old,
            lacks_sums: wire.is_old,
            leaves_keys: !wire.is_old,
            ..LinkStatus::default()
        }
    }

    fn ended(&mut self) -> Option<Boot> {
        self.0.lock().expect("no test has failed").ends[self.1].take()
    }

    fn beat(&mut self, boot: Boot) {
        self.0.lock().expect("no test has failed").beats[self.1] = boot;
    }
}

fn range(last: u8) -> AddressRange {
    let address = Ipv4Addr::new(203, 0, 113, last);
    AddressRange { first: address, last: address }
}

/// How subscribers of a pair get ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Allotment {
    #[default]
    Random,
    /// At random, of many ports.
    Many,
    /// Blocks of [`BLOCK`] ports.
    Blocks,
    /// Four ports of each of 16 subscribers, and 32 ports of each address for all.
    Arithmetic,
    /// At random, for hosts of several realms: three hosts each have one address. The nodes have
    /// their realms in other orders.
    Realms,
    /// At random, for hosts of NAT64, which have numbers.
    Nat64,
    /// At random, for hosts behind tunnels of DS-Lite.
    Dslite,
    /// At random, for hosts of both kinds in turn.
    Both,
    /// At random, and some hosts are the servers of a service.
    Services,
    /// Blocks of whole words of ports: of one, of several.
    Words,
    Large,
    /// Whole addresses, three of each node. Remote hosts reach a host only after its own packets.
    Whole,
}

impl Allotment {
    /// The ports of each address.
    fn ports(self) -> (u16, u16) {
        match self {
            Self::Blocks => (2048, 2175),
            Self::Words => (2048, 2815),
            Self::Large => (2048, 5119),
            Self::Whole => Allocation::ALL_PORTS,
            _ => (2000, 2063),
        }
    }

    /// The addresses of a slice.
    fn addresses(self, last: u8) -> Vec<AddressRange> {
        match self {
            Self::Whole => [last, last + 10, last + 20].map(range).to_vec(),
            _ => vec![range(last)],
        }
    }

    /// The addresses of all slices.
    fn all_addresses(self) -> Vec<Ipv4Addr> {
        let ranges = [1, 2].map(|last| self.addresses(last)).concat();
        ranges.iter().flat_map(|range| range.each()).collect()
    }

    /// The ports of a block.
    fn block_size(self) -> Option<u16> {
        match self {
            Self::Blocks => Some(BLOCK),
            Self::Words => Some(WORD),
            Self::Large => Some(LARGE),
            _ => None,
        }
    }

    fn allocation(self) -> Allocation {
        match self {
            Self::Whole => Allocation::Address,
            Self::Random
            | Self::Many
            | Self::Realms
            | Self::Nat64
            | Self::Dslite
            | Self::Both
            | Self::Services => Allocation::Random,
            Self::Blocks | Self::Words | Self::Large => Allocation::Block(BlockConfig {
                size: self.block_size().expect("it has blocks"),
                max_per_subscriber: 1,
                release_after: Duration::from_secs(1),
            }),
            Self::Arithmetic => Allocation::Deterministic(DeterministicConfig {
                realm: 0,
                subscribers: vec![natgate_engine::Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 28)],
                ports_per_subscriber: Some(4),
                dynamic_ports: 32,
            }),
        }
    }
}

/// The subscriber that has a port by [`Allotment::Arithmetic`].
fn computed((address, port): External) -> Option<u8> {
    let place = (port - 2000) / 4;
    let first = if address == A1 { 0 } else { 8 };
    (place < 8).then_some(first + place as u8)
}

/// A process of a node.
struct Process {
    engine: Engine,
    fleet: Fleet,
    /// The part of the first worker in a team, and the other workers.
    member: Option<crate::team::Member>,
    others: Vec<workers::Worker>,
    /// Numbers of the workers that stand still: they take no turns and no packets.
    still: Vec<usize>,
    /// Settings of the team, and a reload that has not reached all of its workers.
    settings: Option<crate::Settings>,
    reload: Option<workers::Reload>,
    /// The gateways, if a test has some.
    algs: Option<Box<Algs>>,
    /// The translator, if hosts have numbers.
    translator: Option<natgate_ipv6::Translator>,
    now: u64,
    allotment: Allotment,
    /// Requested mappings that the engine had lost at the last turn.
    lost: u64,
    /// Assignments and releases of blocks at all workers.
    block_log: Vec<Event>,
}

/// Takes the events of an engine. Those of blocks are kept.
fn take_events(engine: &mut Engine, block_log: &mut Vec<Event>) {
    while let Some(event) = engine.poll_event() {
        if matches!(event.change, Change::BlockAssigned(_) | Change::BlockReleased(_)) {
            block_log.push(event);
        }
    }
}

/// Prepares an engine for a reload. The reload before may not be done yet.
fn prepare(
    engine: &mut Engine,
    change: &mut Reconfiguration,
    now: Timestamp,
    block_log: &mut Vec<Event>,
) {
    let mut advance = |engine: &mut Engine| {
        engine.advance(now);
        take_events(engine, block_log);
    };
    let mut tries = 0;
    while engine.prepare_configuration(change).is_err() {
        advance(engine);
        tries += 1;
        assert!(tries < 100_000, "a reload ends");
    }
    while !engine.is_prepared() {
        advance(engine);
        tries += 1;
        assert!(tries < 100_000, "the pools are prepared");
    }
}

impl Process {
    fn start(
        node: &str,
        (folder, allotment, workers): (&Path, Allotment, workers::Counts),
        wire: &Arc<Mutex<Wire>>,
        now: u64,
    ) -> Self {
        let partner = if node == "a" { "b" } else { "a" };
        let at = |name: &str| folder.join(name);
        let slice = |last, owner: &str| SliceSettings {
            addresses: allotment.addresses(last),
            owner: owner.to_owned(),
        };
        let any = ([127, 0, 0, 1], 7600).into();
        let settings = FleetSettings {
            node: node.to_owned(),
            workers: workers.of(node),
            listen: any,
            certificate: at("certificate"),
            key: at("key"),
            authorities: at("authorities"),
            partner: PartnerSettings { node: partner.to_owned(), address: any },
            slices: vec![slice(1, "a"), slice(2, "b")],
            starts: at(node),
            hang: Duration::from_secs(3),
        };
        let pool = PoolConfig {
            name: "default".into(),
            addresses: [1, 2].map(|last| allotment.addresses(last)).concat(),
            ports: if workers.are_one() { allotment.ports() } else { allotment.wide_ports() },
            allocation: Some(allotment.allocation()),
            ..PoolConfig::default()
        };
        let side = |address: Ipv4Addr| SideConfig {
            address: Some(address),
            network: Some(natgate_engine::Prefix::new(address, 24)),
            ..SideConfig::default()
        };
        let limits = natgate_engine::Limits {
            explicit_mappings: 256,
            explicit_per_subscriber: 8,
            ..natgate_engine::Limits::default()
        };
        let mut config = Config {
            limits,
            realms: allotment.realms(node),
            pooling: match allotment {
                Allotment::Arithmetic => Pooling::SoftPaired,
                _ => Pooling::default(),
            },
            inside: side(Ipv4Addr::new(10, 0, 0, 1)),
            outside: side(Ipv4Addr::new(192, 0, 2, 1)),
            filtering: match allotment {
                Allotment::Whole => Behavior::AddressAndPortDependent,
                _ => Behavior::default(),
            },
            pools: vec![pool],
            services: allotment.services(),
            ..Config::default()
        };
        let number = usize::from(node == "b");
        wire.lock().expect("no test has failed").messages[number].clear();
        let end = || -> Box<dyn PartnerLink> { Box::new(End(Arc::clone(wire), number)) };
        if workers.of(node) > 1 {
            return Self::start_team(settings, config, allotment, now, end);
        }
        let translator = allotment.settings6().and_then(|settings| {
            natgate_ipv6::Translator::new(&settings, &mut config, [8; 32]).expect("good settings")
        });
        let mut engine = Engine::new(&config, [7; 32], Timestamp(now)).expect("a configuration");
        engine.join_pair();
        let (fleet, _) = Fleet::new(settings, end(), 77).expect("a file");
        Self {
            engine,
            fleet,
            member: None,
            others: Vec::new(),
            still: Vec::new(),
            settings: None,
            reload: None,
            algs: None,
            translator,
            now,
            allotment,
            lost: 0,
            block_log: Vec::new(),
        }
    }

    fn turn(&mut self, now: u64) {
        self.now = now;
        self.fleet.wake(Timestamp(now), &mut self.engine);
        while self.engine.advance(Timestamp(now)) {
            take_events(&mut self.engine, &mut self.block_log);
            while self.engine.poll_transmit(&mut [0; 1500]).is_some() {}
        }
        self.watch();
        if let Some(translator) = &mut self.translator {
            translator.sweep(&self.engine, Timestamp(now));
        }
        let partition = self.member.as_ref().map(|member| Arc::clone(member.partition()));
        if let Some(member) = &mut self.member {
            member.trade(Timestamp(now), &mut self.engine);
        }
        let mut hosts = CopiedHosts::new(self.translator.as_mut(), Timestamp(now));
        let node = (&mut self.engine, &mut self.algs);
        self.fleet.turn(Timestamp(now), node, &mut hosts, partition.as_ref());
    }

    /// A turn that keeps the engine's events.
    fn fleet_turn(&mut self, now: Timestamp, events: &mut Vec<Change>) {
        self.now = now.0;
        self.engine.advance(now);
        let node = (&mut self.engine, &mut self.algs);
        self.fleet.turn(now, node, &mut CopiedHosts::new(None, now), None);
        while let Some(event) = self.engine.poll_event() {
            events.push(event.change);
        }
    }

    fn status(&self) -> FleetStatus {
        self.fleet.status(Timestamp(self.now), &self.engine).expect("it leads")
    }

    /// Sends a datagram of a host's port. Returns its external endpoint.
    fn send(&mut self, (host, port): (u8, u16)) -> Option<(Ipv4Addr, u16)> {
        let (realm, address) = self.place(host)?;
        let bytes = packet(None, (address.to_bits(), port), SERVER);
        self.pass((Side::Inside, realm), bytes).map(|(source, ..)| source)
    }

    /// Sends a segment of a host's port. Returns its external endpoint.
    fn send_segment(&mut self, (host, port): (u8, u16), flags: u8) -> Option<(Ipv4Addr, u16)> {
        let (realm, address) = self.place(host)?;
        let bytes = packet(Some(flags), (address.to_bits(), port), SERVER);
        self.pass((Side::Inside, realm), bytes).map(|(source, ..)| source)
    }

    /// Sends a packet of the server to an external endpoint, a segment if it has flags. Returns the
    /// name of the realm that it reaches, and the host.
    fn answer(&mut self, to: External, flags: Option<u8>) -> Option<Place> {
        let to = (to.0.to_bits(), to.1);
        let (_, to, realm) = self.pass((Side::Outside, 0), packet(flags, SERVER, to))?;
        Some((self.realm_name(realm), to))
    }

    /// Sends a packet. Returns its ends and its realm afterwards, if it is forwarded.
    fn pass(
        &mut self,
        (from, realm): (Side, u16),
        mut bytes: [u8; 40],
    ) -> Option<(External, External, u16)> {
        if self.translator.is_some() {
            return self.pass_numbered(from, bytes);
        }
        let mut packets = [Packet::new(&mut bytes, 0).in_realm(realm)];
        let mut verdicts = [Verdict::Held];
        let now = Timestamp(self.now);
        let worker = self.worker_of_packet((from, realm), packets[0].bytes());
        if self.still.contains(&worker) {
            return None;
        }
        self.engine_at(worker).process(now, from, &mut packets, &mut verdicts);
        let realm = packets[0].realm();
        let packet = packets[0].bytes();
        let header = Ipv4::new_checked(packet).expect("a packet");
        let end = |address: u32, at: usize| {
            (Ipv4Addr::from_bits(address), u16::from_be_bytes([packet[at], packet[at + 1]]))
        };
        matches!(verdicts[0], Verdict::Forward(_))
            .then(|| (end(header.source(), 20), end(header.destination(), 22), realm))
    }

    /// Removes the mappings of a host.
    fn clear(&mut self, host: u8) {
        let Some((realm, address)) = self.number(host) else { return };
        let subscriber = Some(natgate_engine::Prefix::new(address, 32));
        let filter = Filter { realm: Some(realm), subscriber, ..Filter::default() };
        let mut block_log = std::mem::take(&mut self.block_log);
        for engine in self.engines() {
            let mut cursor = Cursor::default();
            while !engine.clear_mappings(&mut cursor, 1000, &filter).1 {
                take_events(engine, &mut block_log);
            }
            take_events(engine, &mut block_log);
        }
        self.block_log = block_log;
    }

    /// Reloads the configuration with another timeout of UDP, or with other realms.
    fn reload(&mut self, udp: u64) {
        let mut config = self.engine.config().clone();
        config.timeouts.udp = Duration::from_secs(udp);
        if self.allotment == Allotment::Realms {
            config.realms = realms::set(udp as usize);
        }
        if self.others.is_empty() {
            self.reload_with(&config);
        } else {
            self.reload_team(&config);
        }
    }

    /// Reloads the configuration of the one worker.
    fn reload_with(&mut self, config: &Config) {
        let mut change = Reconfiguration::new(self.engine.config(), config).expect("it is right");
        prepare(&mut self.engine, &mut change, Timestamp(self.now), &mut self.block_log);
        self.engine.reconfigure(change);
        let hosts = CopiedHosts::new(self.translator.as_mut(), Timestamp(self.now));
        self.fleet.renew(&mut self.engine, &hosts);
    }

    /// The realm's name and the endpoint inside of each external endpoint and protocol.
    fn hosts(&mut self) -> BTreeMap<(u8, External), Place> {
        let ends = |end: natgate_engine::Endpoint| (end.address, end.port);
        // A worker that stands still has realms that the others have no more.
        let named = |engine: &mut Engine| {
            let realms = engine.config().realms.clone();
            let name = move |realm: u16| {
                let place = usize::from(realm).checked_sub(1);
                place.map_or(String::new(), |place| realms[place].name.clone())
            };
            engine.mappings().map(|one| (one.id, name(one.id.realm))).collect::<Vec<_>>()
        };
        let mappings: Vec<(natgate_engine::MappingId, String)> =
            self.engines().flat_map(named).collect();
        // A service has several servers.
        let service = (self.allotment == Allotment::Services).then(services::service);
        let mapping = |(id, realm): (natgate_engine::MappingId, String)| {
            let internal = (self.known(id.realm, id.internal.address), id.internal.port);
            ((id.protocol, ends(id.external)), (realm, internal))
        };
        // Without ports, one endpoint may lead to several hosts.
        let has_port = |((number, end), _): &((u8, External), Place)| {
            *number != protocol::GRE && Some(*end) != service
        };
        let mut hosts = BTreeMap::new();
        for (end, place) in mappings.into_iter().map(mapping).filter(has_port) {
            let other = hosts.insert(end, place);
            assert!(other.is_none(), "{end:?} has mappings at two workers");
        }
        hosts
    }
}

type External = (Ipv4Addr, u16);

/// The name of a realm, and an endpoint inside.
type Place = (String, External);

const SERVER: (u32, u16) = (REMOTE, 80);

/// A datagram, or a segment with some flags.
pub(super) fn packet(flags: Option<u8>, source: (u32, u16), destination: (u32, u16)) -> [u8; 40] {
    let mut bytes = [0; 40];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(40);
    header.set_ttl(64);
    header.set_protocol(if flags.is_some() { protocol::TCP } else { protocol::UDP });
    header.set_source(source.0);
    header.set_destination(destination.0);
    header.fill_checksum();
    bytes[20..22].copy_from_slice(&source.1.to_be_bytes());
    bytes[22..24].copy_from_slice(&destination.1.to_be_bytes());
    match flags {
        Some(flags) => (bytes[32], bytes[33]) = (5 << 4, flags),
        None => bytes[25] = 20,
    }
    bytes
}

/// Two nodes.
struct Pair {
    folder: tempfile::TempDir,
    allotment: Allotment,
    workers: workers::Counts,
    wire: Arc<Mutex<Wire>>,
    now: u64,
    /// Time by which the clock of `b` gets ahead in a second, nanoseconds.
    drift: u64,
    /// Time by which it is ahead; less than 0: it is behind.
    ahead: i64,
    a: Option<Process>,
    b: Option<Process>,
}

impl Pair {
    fn start() -> Self {
        Self::with(Allotment::Random)
    }

    /// A pair whose subscribers get ports in this way.
    fn with(allotment: Allotment) -> Self {
        Self::of(allotment, workers::Counts::default())
    }

    /// Such a pair with these numbers of workers.
    fn of(allotment: Allotment, workers: workers::Counts) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (wire, now) = (Arc::default(), 1_700_000_000 * SECOND);
        let settings = (folder.path(), allotment, workers);
        let [a, b] = ["a", "b"].map(|node| Some(Process::start(node, settings, &wire, now)));
        let mut pair = Self { folder, allotment, workers, wire, now, drift: 0, ahead: 0, a, b };
        pair.run(1.0);
        pair
    }

    /// Lets time pass, in turns of 10 ms, or of 200 ms if it is long.
    fn run(&mut self, seconds: f64) {
        let turns = if seconds > 5.0 { 5.0 } else { 100.0 };
        for _ in 0..(seconds * turns).ceil() as u32 {
            self.now += (SECOND as f64 / turns) as u64;
            self.wire().now = self.now;
            self.ahead += (self.drift / turns as u64).cast_signed();
            if let Some(process) = &mut self.a {
                process.turn_all(self.now, &self.wire);
            }
            if let Some(process) = &mut self.b {
                process.turn_all(self.now.saturating_add_signed(self.ahead), &self.wire);
            }
        }
    }

    fn a(&mut self) -> &mut Process {
        self.a.as_mut().expect("it runs")
    }

    fn b(&mut self) -> &mut Process {
        self.b.as_mut().expect("it runs")
    }

    fn restart_a(&mut self) {
        let settings = (self.folder.path(), self.allotment, self.workers);
        let process = Process::start("a", settings, &self.wire, self.now);
        self.a = Some(process);
    }

    /// Ends the process of `a`. Its guardian tells `b` so.
    fn end_a_with_guardian(&mut self) {
        self.a = None;
        let mut wire = self.wire();
        if !wire.is_cut {
            wire.ends[1] = Some(wire.beats[0]);
        }
    }

    /// Makes a request of a node.
    fn ask(&mut self, node: &str, request: FleetRequest) -> FleetAnswer {
        let process = if node == "a" { self.a() } else { self.b() };
        process.fleet.answer(request, Timestamp(process.now), &mut process.engine)
    }

    fn below(&self, bound: u64) -> u64 {
        self.wire().below(bound)
    }

    /// True if both nodes find no fault in any slice.
    fn status_is_whole(&self) -> bool {
        let mut all = [&self.a, &self.b].into_iter().flatten().map(Process::status);
        all.all(|status| status.slices.iter().all(|slice| slice.fault().is_none()))
    }

    fn wire(&self) -> std::sync::MutexGuard<'_, Wire> {
        self.wire.lock().expect("no test has failed")
    }
}

const A1: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const B2: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

impl Pair {
    fn either(&mut self, to_a: bool) -> &mut Process {
        if to_a { self.a() } else { self.b() }
    }

    /// No external port leads to two hosts, at whichever node.
    fn check(&mut self) {
        let [Some(a), Some(b)] = [&mut self.a, &mut self.b] else { return };
        let (of_a, of_b) = (a.hosts(), b.hosts());
        for (external, host) in &of_a {
            let other = of_b.get(external).unwrap_or(host);
            assert_eq!(host, other, "{external:?} leads to two hosts");
        }
        self.check_addresses();
    }
}
