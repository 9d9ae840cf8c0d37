//! Control flows of FTP through a pair: what each host gets, whatever happens to the nodes.

mod doubts;
mod h323;
#[path = "../../../../../core/payload/tests/common/host.rs"]
#[allow(dead_code, reason = "a part is enough here")]
mod host;
mod servers;
mod tickets;
mod versions;

use super::workers::Counts;
use super::{A1, Allotment, External, Pair, Process, REMOTE, SECOND};
use crate::alg::{AlgSettings, Algs, Arrived, Kind, Taken};
use crate::counters::Losses;
use crate::fleet::FleetRequest;
use host::Host;
use natgate_engine::{Packet, Side, Timestamp, Verdict};
use natgate_payload::Room;
use natgate_wire::tcp::flags::{ACK, SYN};
use natgate_wire::{Ipv4, protocol};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The client's host, by the last number of its address.
const CLIENT: u8 = 5;

/// Time after which a host repeats what is not acknowledged.
const AGAIN: u64 = SECOND / 4;

/// Longer than a hold-down, seconds.
const HOLD_DOWN: f64 = 130.0;

impl Process {
    /// Turns the gateways of FTP, TFTP and SIP on.
    fn begin_gateway(&mut self) {
        self.begin_gateway_of(&[(Kind::Ftp, 21), (Kind::Tftp, 69), (Kind::Sip, 5060)]);
    }

    /// Turns gateways with these ports on.
    fn begin_gateway_of(&mut self, ports: &[(Kind, u16)]) {
        let mut settings = AlgSettings::default();
        ports.iter().for_each(|(kind, port)| settings.set(*kind, vec![*port]));
        self.begin_gateway_with(&settings);
    }

    fn begin_gateway_with(&mut self, settings: &AlgSettings) {
        let config = self.engine.config().clone();
        let algs = || Algs::new(settings, &config, [9; 32]);
        self.algs = algs();
        self.others.iter_mut().for_each(|worker| worker.algs = algs());
    }

    /// What leaves at once for a packet: the side and the packet of each.
    fn carry(&mut self, from: Side, bytes: &[u8]) -> Vec<(Side, Vec<u8>)> {
        let (now, mut out) = (Timestamp(self.now), Vec::new());
        let mut buffer = vec![0; 4096];
        buffer[..bytes.len()].copy_from_slice(bytes);
        let worker = self.worker_of_packet((from, 0), bytes);
        let (engine, algs) = match self.others.get_mut(worker.wrapping_sub(1)) {
            Some(worker) => (&mut worker.engine, &mut worker.algs),
            None => (&mut self.engine, &mut self.algs),
        };
        let stage = algs.as_mut().map(|algs| &mut algs.stage);
        let Some(stage) = stage.filter(|stage| stage.claims(from, bytes)) else {
            let mut packets = [Packet::new(&mut buffer[..bytes.len()], 0)];
            let mut verdicts = [Verdict::Held];
            engine.process(now, from, &mut packets, &mut verdicts);
            if let Verdict::Forward(to) = verdicts[0] {
                out.push((to, packets[0].bytes().to_vec()));
            }
            return out;
        };
        let mut losses = Losses::default();
        let arrived = Arrived { now, from, realm: 0 };
        let mut room = Room::new(&mut buffer, bytes.len());
        let taken = stage.take((engine, None), arrived, &mut room, &mut losses);
        if let Taken::Decided(Verdict::Forward(to), realm) = taken {
            match stage.must_wait() {
                true => stage.keep(now, (to, realm), room.bytes()),
                false => out.push((to, room.bytes().to_vec())),
            }
        }
        while let Some((to, realm, len)) =
            stage.poll_transmit(engine, now, &mut buffer, &mut losses)
        {
            match stage.must_wait() {
                true => stage.keep(now, (to, realm), &buffer[..len]),
                false => out.push((to, buffer[..len].to_vec())),
            }
        }
        stage.let_go();
        while stage.poll_expectation().is_some() {}
        while engine.poll_event().is_some() {}
        out
    }

    /// Packets that have waited for the partner, and wait no more.
    fn kept(&mut self) -> Vec<(Side, Vec<u8>)> {
        let now = Timestamp(self.now);
        let others = self.others.iter_mut().flat_map(|worker| &mut worker.algs);
        let mut kept = Vec::new();
        for algs in self.algs.iter_mut().chain(others) {
            while let Some(((to, _), packet)) = algs.stage.next_kept(now) {
                kept.push((to, packet));
            }
        }
        kept
    }

    /// True if the owner has said lately that this node has everything.
    fn knows_all(&self) -> bool {
        let fleets = self.others.iter().map(|worker| &worker.fleet);
        let mut slices = fleets.chain([&self.fleet]).map(|fleet| &fleet.slices[0]);
        slices.all(|slice| !slice.is_unsure(Timestamp(self.now)))
    }

    fn flows(&self) -> usize {
        let others = self.others.iter().flat_map(|worker| &worker.algs);
        self.algs.iter().chain(others).map(|algs| algs.stage.flows()).sum()
    }
}

/// A connection of FTP, and its hosts: inside, outside.
struct Talk {
    hosts: [Host; 2],
    /// True if packets come to `a`.
    at_a: bool,
    /// One packet in so many is lost; 0: none.
    loss: u64,
    repeats: [u64; 2],
    /// Ports that the client has named.
    named: u16,
}

fn host_of(end: SocketAddrV4, other: SocketAddrV4, start: u32) -> Host {
    let mut host = Host::new(end, other, start);
    // A copy's acknowledgments are old.
    (host.has_stamps, host.takes_old) = (false, true);
    host
}

impl Talk {
    /// Opens a connection by `a`.
    fn open(pair: &mut Pair) -> Self {
        Self::open_at(pair, true, 4000)
    }

    /// Opens a connection from a port of the client.
    fn open_at(pair: &mut Pair, at_a: bool, port: u16) -> Self {
        let client = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, CLIENT), port);
        let server = SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE), 21);
        let mut talk = Self::connect(pair, at_a, client, server);
        talk.say(pair, Side::Outside, "220 ready\r\n");
        talk.run(pair, 0.5);
        talk
    }

    /// A client inside opens a connection to a server.
    fn connect(pair: &mut Pair, at_a: bool, client: SocketAddrV4, server: SocketAddrV4) -> Self {
        let hosts = [host_of(client, server, 1000), host_of(server, client, 0xffff_fff0)];
        let mut talk = Self { hosts, at_a, loss: 0, repeats: [0; 2], named: 0 };
        // A worker may have to wait for ports.
        let mut out = Vec::new();
        for _ in 0..10 {
            let syn = talk.hosts[0].syn(SYN);
            out = pair.either(at_a).carry(Side::Inside, &syn);
            if !out.is_empty() {
                break;
            }
            pair.run(1.0);
        }
        let [(Side::Outside, packet)] = &out[..] else { panic!("{out:?}") };
        let header = Ipv4::new_checked(&packet[..]).expect("a packet");
        let port = u16::from_be_bytes([packet[20], packet[21]]);
        talk.hosts[1].other = SocketAddrV4::new(Ipv4Addr::from_bits(header.source()), port);
        talk.deliver(pair, out);
        let answer = talk.hosts[1].syn(SYN | ACK);
        talk.give(pair, Side::Outside, answer);
        let last = talk.hosts[0].acknowledgment();
        talk.give(pair, Side::Inside, last);
        talk
    }

    /// A client outside opens a connection to a server inside, which has an external endpoint.
    fn connect_in(
        pair: &mut Pair,
        at_a: bool,
        client: SocketAddrV4,
        (external, server): (SocketAddrV4, SocketAddrV4),
    ) -> Self {
        let hosts = [host_of(server, client, 1000), host_of(client, external, 0xffff_fff0)];
        let mut talk = Self { hosts, at_a, loss: 0, repeats: [0; 2], named: 0 };
        let syn = talk.hosts[1].syn(SYN);
        talk.give(pair, Side::Outside, syn);
        let answer = talk.hosts[0].syn(SYN | ACK);
        talk.give(pair, Side::Inside, answer);
        let last = talk.hosts[1].acknowledgment();
        talk.give(pair, Side::Outside, last);
        talk
    }

    fn external(&self) -> External {
        (*self.hosts[1].other.ip(), self.hosts[1].other.port())
    }

    /// Gives a packet of a host to the node to which packets come now.
    fn give(&mut self, pair: &mut Pair, from: Side, packet: Vec<u8>) {
        let mut queue = VecDeque::from([(from, packet)]);
        while let Some((from, packet)) = queue.pop_front() {
            let node = if self.at_a { &mut pair.a } else { &mut pair.b };
            let Some(node) = node else { continue };
            let out = node.carry(from, &packet);
            queue.extend(self.take(pair, out));
        }
    }

    /// Gives packets to their hosts. Returns the answers.
    fn take(&mut self, pair: &Pair, packets: Vec<(Side, Vec<u8>)>) -> Vec<(Side, Vec<u8>)> {
        let mut answers = Vec::new();
        for (to, packet) in packets {
            let is_lost = self.loss > 0 && pair.below(self.loss) == 0;
            if is_lost || !self.is_of_connection(to, &packet) {
                continue;
            }
            let answer = self.hosts[to as usize].receive(&packet);
            answers.extend(answer.map(|answer| (to, answer)));
        }
        answers
    }

    /// True if a packet has the ends that its receiver knows. Any other one is not of the
    /// connection.
    fn is_of_connection(&self, to: Side, packet: &[u8]) -> bool {
        let header = Ipv4::new_checked(packet).expect("a packet");
        let end = |address: u32, at: usize| {
            let port = u16::from_be_bytes([packet[at], packet[at + 1]]);
            SocketAddrV4::new(Ipv4Addr::from_bits(address), port)
        };
        let ends = (end(header.source(), 20), end(header.destination(), 22));
        let Host { own, other, .. } = &self.hosts[to as usize];
        ends == (*other, *own)
    }

    fn deliver(&mut self, pair: &mut Pair, packets: Vec<(Side, Vec<u8>)>) {
        for (from, answer) in self.take(pair, packets) {
            self.give(pair, from, answer);
        }
    }

    /// A host writes, and sends what it has written.
    fn say(&mut self, pair: &mut Pair, from: Side, text: &str) {
        self.write(pair, from, text.as_bytes());
    }

    fn write(&mut self, pair: &mut Pair, from: Side, bytes: &[u8]) {
        let host = &mut self.hosts[from as usize];
        let start = host.written.len();
        host.written.extend(bytes);
        let packet = host.segment(start, start + bytes.len(), false);
        self.give(pair, from, packet);
    }

    /// The client names its next port.
    fn name_port(&mut self, pair: &mut Pair) {
        self.named += 1;
        let (high, low) = (8 + self.named / 256, self.named % 256);
        self.say(pair, Side::Inside, &format!("PORT 10,0,0,{CLIENT},{high},{low}\r\n"));
    }

    /// Lets time pass. Hosts repeat what is not acknowledged.
    fn run(&mut self, pair: &mut Pair, seconds: f64) {
        for _ in 0..(seconds * 100.0).ceil() as u32 {
            pair.run(0.01);
            let mut all = Vec::new();
            for node in [&mut pair.a, &mut pair.b] {
                let kept = node.as_mut().map_or(Vec::new(), Process::kept);
                all.extend(kept);
            }
            self.deliver(pair, all);
            self.repeat(pair);
        }
    }

    fn repeat(&mut self, pair: &mut Pair) {
        for from in [Side::Inside, Side::Outside] {
            let host = &mut self.hosts[from as usize];
            let (acknowledged, end) = (host.acknowledged, host.written.len());
            if acknowledged >= end || pair.now < self.repeats[from as usize] {
                continue;
            }
            self.repeats[from as usize] = pair.now + AGAIN;
            let packet = host.segment(acknowledged, end.min(acknowledged + 400), false);
            self.give(pair, from, packet);
        }
    }

    /// The lines that the server has got: each is the client's, or names an external port in place
    /// of the client's. Returns the external ports with the client's.
    fn check(&self) -> Vec<(External, u16)> {
        let [client, server] = &self.hosts;
        assert!(server.written.starts_with(&client.received), "the client got other bytes");
        let lines = |bytes: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(bytes).into_owned();
            text.split_inclusive("\r\n").map(str::to_owned).collect()
        };
        let (said, heard) = (lines(&client.written), lines(&server.received));
        let mut ports = Vec::new();
        assert!(heard.len() <= said.len(), "{heard:?}");
        for (number, line) in heard.iter().enumerate().filter(|(_, line)| line.ends_with('\n')) {
            if *line == said[number] {
                continue;
            }
            let numbers = |line: &str| -> Option<Vec<u16>> {
                let numbers = line.strip_prefix("PORT ")?.strip_suffix("\r\n")?;
                numbers.split(',').map(|number| number.parse().ok()).collect()
            };
            let own = numbers(&said[number]).filter(|own| own.len() == 6);
            let (Some(new), Some(own)) = (numbers(line), own) else {
                panic!("{line:?} in place of {:?}", said[number])
            };
            let address: [u16; 4] = [203, 0, 113, new[3]];
            assert_eq!((&new[..4], new.len()), (&address[..], 6), "{line:?}");
            let address = Ipv4Addr::new(203, 0, 113, new[3] as u8);
            ports.push(((address, new[4] << 8 | new[5]), own[4] << 8 | own[5]));
        }
        ports
    }

    /// True if each host has got all that the other one has written.
    fn is_whole(&self) -> bool {
        let [client, server] = &self.hosts;
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        client.received == server.written && lines(&server.received) == lines(&client.written)
    }

    /// The port that the client named last, if the server got an external port for it.
    fn last_port(&self) -> Option<(External, u16)> {
        self.check().pop()
    }
}

fn pair() -> Pair {
    pair_of(Counts::default())
}

/// A pair whose nodes have these numbers of workers.
fn pair_of(workers: Counts) -> Pair {
    let mut pair = Pair::of(Allotment::Many, workers);
    pair.a().begin_gateway();
    pair.b().begin_gateway();
    pair.run(1.0);
    pair
}

fn inside(port: u16) -> External {
    (Ipv4Addr::new(10, 0, 0, CLIENT), port)
}

#[test]
fn a_connection_whose_length_has_changed_goes_on_after_a_crash() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    assert_eq!(talk.external().0, A1);
    talk.name_port(&mut pair);
    assert_eq!(talk.hosts[1].received, b"", "it waits for the partner");
    talk.run(&mut pair, 0.2);
    talk.say(&mut pair, Side::Outside, "200 fine\r\n");
    talk.run(&mut pair, 0.5);
    assert!(talk.is_whole());
    let [first, second] = [&talk.hosts[0].written, &talk.hosts[1].received].map(Vec::len);
    assert_ne!(first, second, "the lengths differ");
    let (external, port) = talk.last_port().expect("an external port");
    assert_eq!(pair.b().flows(), 1);
    pair.end_a_with_guardian();
    talk.at_a = false;
    talk.run(&mut pair, 0.1);
    assert_eq!(pair.b().answer(external, Some(SYN)), Some((String::new(), inside(port))));
    talk.say(&mut pair, Side::Inside, "NOOP\r\n");
    talk.say(&mut pair, Side::Outside, "200 fine\r\n");
    talk.run(&mut pair, 1.0);
    assert!(talk.is_whole());
    talk.run(&mut pair, HOLD_DOWN);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 1.0);
    let (external, port) = talk.last_port().expect("an external port");
    assert_eq!(port, (8 << 8) + 2);
    assert_eq!(pair.b().answer(external, Some(SYN)), Some((String::new(), inside(port))));
    assert!(talk.is_whole());
}

/// What the server heard before the crash, the partner knows.
#[test]
fn an_expectation_that_was_told_just_before_a_crash_stands() {
    for turns in 0..12 {
        let mut pair = pair();
        let mut talk = Talk::open(&mut pair);
        talk.name_port(&mut pair);
        talk.run(&mut pair, f64::from(turns) / 100.0);
        let before = talk.last_port();
        pair.end_a_with_guardian();
        talk.at_a = false;
        talk.run(&mut pair, 0.5);
        if let Some((external, port)) = before {
            let reached = pair.b().answer(external, Some(SYN));
            assert_eq!(reached, Some((String::new(), inside(port))), "{turns}");
        }
        talk.say(&mut pair, Side::Inside, "NOOP\r\n");
        talk.run(&mut pair, 2.0);
        talk.say(&mut pair, Side::Outside, "200 fine\r\n");
        talk.run(&mut pair, 1.0);
        talk.check();
        assert!(talk.is_whole(), "after {turns} turns");
        assert!(turns < 8 || before.is_some(), "it waits for {turns} turns");
    }
}

#[test]
fn a_connection_moves_and_comes_back() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    for (from, to) in [("a", "b"), ("b", "a"), ("a", "b")] {
        talk.name_port(&mut pair);
        talk.run(&mut pair, 0.5);
        assert!(talk.is_whole());
        pair.ask(from, FleetRequest::Move(0, to.into())).expect("it drains");
        talk.name_port(&mut pair);
        talk.run(&mut pair, 3.0);
        talk.at_a = to == "a";
        talk.run(&mut pair, 3.0);
        let owns = pair.either(to == "a").status().slices[0].role == "owner";
        assert!(owns && talk.is_whole(), "{from} to {to}");
        assert!(pair.status_is_whole());
    }
    assert!(talk.check().len() >= 3);
}

/// A node that is not the owner reads nothing: two readers would not agree.
#[test]
fn the_partner_lets_no_segment_of_a_connection_through() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 0.5);
    assert!(talk.is_whole());
    talk.at_a = false;
    talk.name_port(&mut pair);
    talk.say(&mut pair, Side::Outside, "200 fine\r\n");
    talk.run(&mut pair, 2.0);
    assert!(!talk.is_whole());
    assert_eq!(talk.check().len(), 1);
    talk.at_a = true;
    talk.run(&mut pair, 2.0);
    assert!(talk.is_whole());
    assert_eq!(talk.check().len(), 2);
}

/// Both nodes know without a search that a mapping has no control flows.
#[test]
fn only_mappings_of_control_flows_are_searched_for_flows() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    talk.run(&mut pair, 1.0);
    pair.a().send((CLIENT, 4001)).expect("sent");
    pair.run(3.0);
    let may_have = |pair: &mut Pair| {
        [true, false].map(|to_a| {
            let stage = pair.either(to_a).algs.as_ref().map(|algs| &algs.stage);
            [4000, 4001].map(|port| stage.expect("a gateway").may_have_flows(port))
        })
    };
    assert_eq!((pair.b().flows(), may_have(&mut pair)), (1, [[true, false]; 2]));
    pair.a().clear(CLIENT);
    pair.run(1.0);
    assert_eq!((pair.b().flows(), may_have(&mut pair)), (0, [[false; 2]; 2]));
}

#[test]
fn a_partner_without_the_gateway_has_no_copy_of_the_connection() {
    let mut pair = pair();
    pair.b().algs = None;
    let mut talk = Talk::open(&mut pair);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 3.0);
    assert!(talk.is_whole(), "the owner does not wait for what the partner refuses");
    let has_copy = |pair: &mut Pair, external: External| {
        pair.b().hosts().keys().any(|key| *key == (protocol::TCP, external))
    };
    let external = talk.external();
    assert!(!has_copy(&mut pair, external));
    let faults = ["a", "b"].map(|node| {
        let status = pair.either(node == "a").status();
        status.slices[0].fault().unwrap_or_default()
    });
    for fault in faults {
        assert!(fault.contains("lacks the gateway of their control flows"), "{fault}");
    }
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    talk.run(&mut pair, 5.0);
    let slice = &pair.b().status().slices[0];
    assert_eq!(slice.role, "owner", "the connection does not keep the slice");
    assert_eq!(pair.a().status().slices[0].ended_to_move, 1);
    let before = talk.hosts[1].received.len();
    talk.at_a = false;
    talk.say(&mut pair, Side::Inside, "NOOP\r\n");
    talk.run(&mut pair, 1.0);
    assert_eq!(talk.hosts[1].received.len(), before);
    talk.check();
}

/// Without a confirmation packets wait, and after a while they go alone. Then the partner does not
/// know the connection any more.
#[test]
fn a_partner_that_may_not_know_all_ends_connections() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 0.5);
    assert!(talk.is_whole());
    pair.wire().is_cut = true;
    talk.name_port(&mut pair);
    talk.run(&mut pair, 4.0);
    assert_eq!(talk.check().len(), 1, "it waits");
    talk.run(&mut pair, 26.0);
    assert_eq!(talk.check().len(), 2, "it does not wait for ever");
    talk.name_port(&mut pair);
    assert_eq!(talk.check().len(), 3, "nor does what comes next");
    // The end of a, of which b hears.
    pair.a = None;
    let beat = pair.wire().beats[0];
    pair.wire().is_cut = false;
    pair.wire().ends[1] = Some(beat);
    talk.at_a = false;
    let before = talk.hosts[0].received.len();
    talk.name_port(&mut pair);
    talk.say(&mut pair, Side::Outside, "200 fine\r\n");
    talk.run(&mut pair, 5.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    assert_eq!((talk.check().len(), pair.b().flows()), (3, 0), "no segment passes");
    assert_eq!(talk.hosts[0].received.len(), before, "nor does one from outside");
    // A partner of an older version changes nothing about that.
    pair.wire().is_old = true;
    talk.say(&mut pair, Side::Inside, "NOOP\r\n");
    talk.say(&mut pair, Side::Outside, "200 fine\r\n");
    talk.run(&mut pair, 1.0);
    assert_eq!((talk.hosts[0].received.len(), talk.check().len()), (before, 3));
    assert!(!talk.is_whole());
}

/// After a break of the link everything is as before.
#[test]
fn packets_wait_again_when_the_partner_answers_again() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    pair.wire().is_cut = true;
    talk.name_port(&mut pair);
    talk.run(&mut pair, 30.0);
    assert_eq!(talk.check().len(), 1);
    pair.wire().is_cut = false;
    talk.run(&mut pair, 10.0);
    talk.name_port(&mut pair);
    assert_eq!(talk.check().len(), 1, "it waits");
    talk.run(&mut pair, 1.0);
    assert_eq!(talk.check().len(), 2);
    pair.end_a_with_guardian();
    talk.at_a = false;
    talk.say(&mut pair, Side::Inside, "NOOP\r\n");
    talk.say(&mut pair, Side::Outside, "200 fine\r\n");
    talk.run(&mut pair, 2.0);
    assert!(talk.is_whole(), "b knows all");
}

/// Random histories: no host ever gets other bytes than the other one wrote, but for ports. If the
/// link holds and evidence comes at once, all bytes come.
#[test]
fn no_history_changes_a_byte_too_much() {
    histories(40, |_| Counts::default());
}

#[test]
fn no_history_of_several_workers_changes_a_byte_too_much() {
    let counts = [Counts(2, 2), Counts(2, 3), Counts(1, 2), Counts(3, 1)];
    histories(16, |seed| counts[seed as usize / 4 % counts.len()]);
}

fn histories(number: u64, workers: impl Fn(u64) -> Counts) {
    let asked = std::env::var("NATGATE_FLEET_HISTORIES").ok();
    let number = asked.map_or(number, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let workers = workers(seed);
        let result = std::panic::catch_unwind(|| history(seed, workers));
        assert!(result.is_ok(), "seed {seed}, {workers:?}");
    }
}

fn history(seed: u64, workers: Counts) {
    let mut pair = pair_of(workers);
    let mut talk = Talk::open(&mut pair);
    pair.wire().random = seed;
    let mut is_sure = true;
    if seed.is_multiple_of(2) {
        pair.wire().faults = 1;
        talk.loss = 8;
    }
    for _ in 0..60 {
        match pair.below(40) {
            0..12 => talk.name_port(&mut pair),
            12..16 => talk.say(&mut pair, Side::Inside, "NOOP\r\n"),
            16..20 => talk.say(&mut pair, Side::Inside, "PWD"),
            20..24 => talk.say(&mut pair, Side::Outside, "200 fine\r\n"),
            24 if pair.a.is_some() => {
                is_sure &= !pair.wire().is_cut && pair.b().knows_all();
                pair.end_a_with_guardian();
                talk.at_a = false;
            }
            25 if pair.a.is_none() => {
                pair.restart_a();
                pair.a().begin_gateway();
            }
            26 if seed % 4 == 3 => {
                let is_cut = pair.wire().is_cut;
                pair.wire().is_cut = !is_cut;
                is_sure = false;
            }
            27 if pair.a.is_some() => drop(pair.ask("a", FleetRequest::Move(0, "b".into()))),
            28 => drop(pair.ask("b", FleetRequest::Move(0, "a".into()))),
            29 => talk.at_a = pair.a.is_some() && pair.below(2) == 0,
            30 if seed.is_multiple_of(3) => pair.run(HOLD_DOWN),
            31 => talk.run(&mut pair, 3.0),
            _ => talk.run(&mut pair, 0.02),
        }
        let turns = pair.below(6) as f64;
        talk.run(&mut pair, turns / 100.0);
        talk.check();
    }
    // A line that has begun ends.
    talk.say(&mut pair, Side::Inside, "\r\n");
    (talk.loss, pair.wire().faults) = (0, 0);
    pair.wire().is_cut = false;
    for _ in 0..40 {
        let owner = |process: &Option<Process>| {
            process.as_ref().is_some_and(|process| process.status().slices[0].role == "owner")
        };
        talk.at_a = owner(&pair.a) || !owner(&pair.b) && pair.a.is_some();
        talk.run(&mut pair, 1.0);
        talk.check();
        if talk.is_whole() {
            return;
        }
    }
    assert!(!is_sure, "the connection stands still");
}
