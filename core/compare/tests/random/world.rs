//! Execution of a case: the packets of operations, and the packets that came out before, which
//! answers and errors refer to.

use crate::common::{Spec, end, error_about, set_icmp_sum, side};
use crate::configs::fit;
use crate::operations::{Ask, Burst, Forged, Forgery, Jump, Operation, Send, Target, Wait, What};
use crate::policy::give_timeouts;
use natgate_compare::{Divergence, Pair};
use natgate_engine::{
    Allocation, Config, Endpoint, MapRequest, PeerRequest, PoolConfig, RemoteFilter, Rule, Side,
    Timestamp, Verdict, WantedEndpoint,
};
use natgate_wire::protocol::{DCCP, ESP, GRE, ICMP, TCP, UDP, UDP_LITE};
use natgate_wire::tcp::flags::{ACK, SYN};
use natgate_wire::{Ipv4, dccp};
use std::time::Duration;

/// Subscribers. One has a static mapping if there are any. The last but one is no subscriber, and
/// the last is the broadcast address.
pub(crate) const INSIDE: [[u8; 4]; 6] =
    [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3], [10, 0, 0, 80], [11, 0, 0, 1], [10, 0, 255, 255]];
pub(crate) const REMOTE: [[u8; 4]; 3] = [[198, 51, 100, 1], [198, 51, 100, 2], [192, 0, 2, 200]];
/// Senders outside. The last three are forged: the addresses belong inside, or to a link.
pub(crate) const OUTSIDE: [[u8; 4]; 6] =
    [REMOTE[0], REMOTE[1], REMOTE[2], INSIDE[1], [169, 254, 9, 9], [10, 0, 9, 9]];
/// The gateway's own addresses, inside and outside.
pub(crate) const OWN: [[u8; 4]; 2] = [[10, 0, 0, 254], [192, 0, 2, 1]];
pub(crate) const POOL: [u8; 4] = [203, 0, 113, 1];
/// External addresses of static mappings: outside the pool, and in it.
pub(crate) const FIXED: [[u8; 4]; 2] = [[203, 0, 113, 80], [203, 0, 113, 2]];
pub(crate) const PORTS: [u16; 8] = [5000, 5001, 1023, 1024, 2000, 2001, 80, 0];
pub(crate) const PROTOCOLS: [u8; 7] = [TCP, UDP, ICMP, DCCP, GRE, ESP, UDP_LITE];
pub(crate) const START: Timestamp = Timestamp(1_000_000_000_000_000_077);

/// More packets than this are sorted by side, so that their batches are large.
const LARGE: usize = 16;

/// A packet with its side and its realm.
type Sent = (Side, u16, Vec<u8>);

/// A packet that was sent on.
pub(crate) struct ForwardedPacket {
    from: Side,
    exit: Side,
    /// The inside realms that the packet came from and went to.
    realms: (u16, u16),
    input: Vec<u8>,
    output: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) pair: Pair,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    pub(crate) seen: Vec<ForwardedPacket>,
}

impl World {
    fn ask(&mut self, ask: &Ask) -> Result<(), Divergence> {
        let protocol = PROTOCOLS[ask.protocol];
        let live: Vec<u16> = self.config.realm_numbers().collect();
        let realm = live[ask.realm % live.len()];
        let internal = end(INSIDE[ask.near.0], PORTS[ask.near.1]);
        let remote = end(REMOTE[ask.far.0], PORTS[ask.far.1]);
        let first = end(POOL, 0).address.to_bits();
        let address = ask.wanted.0.map(|off| (first + u32::from(off)).into());
        let wanted = WantedEndpoint { address, port: ask.wanted.1, strict: ask.strict };
        let (lifetime, nonce) = (Duration::from_millis(ask.lifetime), [ask.nonce; 12]);
        if let What::Peer = ask.what {
            let request =
                PeerRequest { protocol, realm, internal, remote, wanted, lifetime, nonce };
            return self.pair.peer(self.now, &request);
        }
        let filter = |(prefix_len, port): (u8, bool)| RemoteFilter {
            address: remote.address.to_bits(),
            prefix_len,
            port: if port { remote.port } else { 0 },
        };
        let filters: Vec<RemoteFilter> = ask.filter.map(filter).into_iter().collect();
        let request = MapRequest {
            protocol,
            realm,
            internal,
            wanted,
            lifetime,
            nonce,
            replaces_filters: ask.replaces,
            filters: &filters,
        };
        match ask.what {
            What::Unmap => self.pair.unmap(self.now, &request),
            _ => self.pair.map(self.now, &request),
        }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) -> Result<(), Divergence> {
        match operation {
            Operation::Unnoticed(nanos) => {
                self.now.0 += nanos;
                // `Pair::advance` asks the engine at each tick which held ports are free first.
                let has_blocks = |pool: &PoolConfig| {
                    matches!(self.config.allocation_of(pool), Allocation::Block(_))
                };
                let limited = self.config.limits.held_ports.is_some();
                if limited && self.config.pools.iter().any(has_blocks) {
                    self.pair.advance(self.now)?;
                }
            }
            Operation::Ask(ask) => self.ask(ask)?,
            Operation::Wait(wait) => {
                let told = self.wait(wait);
                self.pair.advance(told)?;
            }
            Operation::Server(server, is_up) => self.pair.mark_server(0, *server, *is_up),
            Operation::Restart(seed) => self.restart(*seed)?,
            Operation::Rules(rules, realm) => self.replace_rules(rules, *realm)?,
            Operation::Reconfigure(other) => {
                self.pair.advance(self.now)?;
                let config = other.in_place_of(&self.config);
                let config = config.in_numbers_of(self.pair.engine.config());
                if self.pair.reconfigure(&config)? {
                    self.config = config;
                }
            }
            Operation::Pools(edits) => {
                for edit in edits {
                    self.config.pools = edit.apply(&self.config);
                }
                self.pair.advance(self.now)?;
                self.pair.change_pools(&self.config.pools)?;
                self.pair.advance(self.now)?;
            }
            Operation::Connect { near, target, protocol, body } => {
                let send = Send::Fresh {
                    outside: false,
                    near: *near,
                    target: target.clone(),
                    protocol: *protocol,
                    body: body.clone(),
                };
                self.connect(&send)?;
            }
            Operation::Burst(burst) => self.send(&self.burst(burst))?,
            Operation::Forgery(forgery) => {
                // One by one, because the packets come from both sides.
                for packet in self.forgery(forgery) {
                    self.send(&[packet])?;
                }
            }
            Operation::Packets(sends) => {
                let mut packets: Vec<Sent> =
                    sends.iter().filter_map(|send| self.packet(send)).collect();
                if sends.len() > LARGE {
                    packets.sort_by_key(|sent| sent.0 == Side::Outside);
                }
                // One batch for consecutive packets from one side.
                for batch in packets.chunk_by(|one, next| one.0 == next.0) {
                    self.send(batch)?;
                }
            }
        }
        Ok(())
    }

    fn restart(&mut self, seed: [u8; 32]) -> Result<(), Divergence> {
        // No rule may name an address that its pool has lost.
        let pools = &self.config.pools;
        let gone: Vec<u16> = (1..)
            .zip(&self.config.realms)
            .filter_map(|(number, realm)| realm.gone.then_some(number))
            .collect();
        let realms = self.config.realms.iter_mut().map(|realm| &mut realm.rules);
        for (number, rules) in (0..).zip(std::iter::once(&mut self.config.rules).chain(realms)) {
            let timeouts: Vec<u8> = rules.iter().map(|rule| rule.timeouts).collect();
            *rules = fit(rules, pools);
            for (rule, timeouts) in rules.iter_mut().zip(timeouts) {
                rule.timeouts = timeouts;
            }
            if !gone.contains(&number) {
                self.pair.replace_rules_of(number, rules)?;
            }
        }
        self.pair.restart(seed)
    }

    fn replace_rules(&mut self, rules: &[Rule], realm: usize) -> Result<(), Divergence> {
        let live: Vec<u16> = self.config.realm_numbers().collect();
        let realm = live[realm % live.len()];
        self.pair.advance(self.now)?;
        let mut rules = fit(rules, &self.config.pools);
        give_timeouts(&mut rules, self.config.timeout_sets.len());
        self.pair.replace_rules_of(realm, &rules)?;
        match usize::from(realm).checked_sub(1) {
            None => self.config.rules = rules,
            Some(place) => self.config.realms[place].rules = rules,
        }
        Ok(())
    }

    fn send(&mut self, batch: &[Sent]) -> Result<(), Divergence> {
        let from = batch[0].0;
        let inputs: Vec<(u16, Vec<u8>)> =
            batch.iter().map(|(_, realm, bytes)| (*realm, bytes.clone())).collect();
        let (results, _) = self.pair.process_in(self.now, from, &inputs)?;
        for ((realm, input), done) in inputs.into_iter().zip(results) {
            if let Verdict::Forward(exit) = done.verdict {
                let realms = (realm, done.realm);
                self.seen.push(ForwardedPacket { from, exit, realms, input, output: done.bytes });
            }
        }
        let excess = self.seen.len().saturating_sub(32);
        self.seen.drain(..excess);
        Ok(())
    }

    /// Sends the first packet, an answer, and an answer to the answer, as far as they get.
    fn connect(&mut self, first: &Send) -> Result<(), Divergence> {
        let Some(mut packet) = self.packet(first) else { return Ok(()) };
        for (flags, kind) in [(SYN | ACK, dccp::kind::RESPONSE), (ACK, dccp::kind::ACK)] {
            let known = self.seen.last().map(|seen| seen.input.clone());
            self.send(&[packet.clone()])?;
            let Some(seen) = self.seen.last().filter(|seen| Some(&seen.input) != known.as_ref())
            else {
                return Ok(());
            };
            if is_icmp_error(&seen.output) {
                return Ok(());
            }
            let answer = Spec::answer(&seen.output);
            packet =
                (seen.exit, seen.realms.1, Spec { flags, dccp: (kind, true), ..answer }.bytes());
        }
        self.send(&[packet])
    }

    fn burst(&self, burst: &Burst) -> Vec<Sent> {
        let first = match burst.outside {
            false => INSIDE[burst.first % INSIDE.len()],
            true => OUTSIDE[burst.first % OUTSIDE.len()],
        };
        let protocol = PROTOCOLS[burst.protocol % PROTOCOLS.len()];
        let destination = self.target(&burst.target, PORTS[0]);
        let packet = |index: u32| {
            let source = u32::from_be_bytes(first) + index * burst.step;
            let mut spec = Spec::new(protocol, Endpoint::new(source, PORTS[0]), destination);
            let remote = if burst.outside { &mut spec.source } else { &mut spec.destination };
            remote.port = remote.port.wrapping_add(burst.port_step.wrapping_mul(index as u16));
            let identifier = if burst.outside { destination.port } else { spec.identifier };
            let service = index as u8;
            let realm = self.realm(burst.first / INSIDE.len());
            (
                side(burst.outside),
                realm,
                Spec { identifier, service, ttl: burst.ttl, ..spec }.bytes(),
            )
        };
        (0..burst.count as u32).map(packet).collect()
    }

    /// The packets of a forgery; none if no TCP packet was forwarded.
    fn forgery(&self, forgery: &Forgery) -> Vec<Sent> {
        let is_tcp = |seen: &&ForwardedPacket| ip(&seen.input).protocol() == TCP;
        let all: Vec<&ForwardedPacket> = self.seen.iter().filter(is_tcp).collect();
        let Some(at) = forgery.pick.checked_rem(all.len()) else { return Vec::new() };
        let seen = all[at];
        let forge = |forged: &Forged| {
            let (from, realm, mut spec) = match forged.back {
                true => (seen.exit, seen.realms.1, Spec::answer(&seen.output)),
                false => (seen.from, seen.realms.0, Spec::like(&seen.input)),
            };
            let jump = match forged.jump {
                Jump::Off(off) => off,
                Jump::Lie(off) => forgery.lie.wrapping_add(off),
                Jump::Window(ahead, shift, off) => {
                    (0xffff << shift) * if ahead { 1 } else { -1 } + off
                }
            };
            spec.sequence = spec.sequence.wrapping_add_signed(jump);
            spec.flags = forged.flags;
            (from, realm, spec.bytes())
        };
        forgery.segments.iter().map(forge).collect()
    }

    /// Moves the clock and returns the time to pass on.
    fn wait(&mut self, wait: &Wait) -> Timestamp {
        let times = &self.config.timeouts;
        let ahead = match *wait {
            Wait::Nanos(nanos) => nanos,
            Wait::Next(off) => {
                let next = self.pair.model.next_tick().unwrap_or(self.now);
                next.0.saturating_sub(self.now.0).saturating_add_signed(off)
            }
            Wait::Timeout(index, off) => {
                let times = [
                    times.udp,
                    times.tcp_opening,
                    times.tcp_established,
                    times.tcp_closing,
                    times.icmp,
                    times.other,
                    times.hold_down,
                    Duration::from_secs(6),
                    Duration::from_secs(1),
                ];
                (times[index % times.len()].as_nanos() as u64).saturating_add_signed(off)
            }
            Wait::Hours(hours) => hours * 3_600_000_000_000,
            Wait::Back(nanos) => return Timestamp(self.now.0 - nanos),
        };
        self.now.0 += ahead;
        self.now
    }

    fn target(&self, target: &Target, port: u16) -> Endpoint {
        match *target {
            Target::Remote(address, port) => {
                end(REMOTE[address % REMOTE.len()], PORTS[port % PORTS.len()])
            }
            Target::Mapping(pick) => {
                let mappings = self.pair.model.mappings();
                match mappings.len() {
                    0 => end(POOL, port),
                    len => mappings[pick % len].id.external,
                }
            }
            Target::Pool(address, port) => {
                Endpoint::new(u32::from_be_bytes(POOL) + u32::from(address), port)
            }
            Target::Own(index) => end(OWN[index % 2], port),
            Target::Fixed(index, port) => end(FIXED[index % 2], PORTS[port % PORTS.len()]),
            Target::Raw(address) => end(address, port),
        }
    }

    /// One of the realms that exist, or existed.
    fn realm(&self, pick: usize) -> u16 {
        (pick % (self.config.realms.len() + 1)) as u16
    }

    /// The packet to send, with its side and realm. `None`: it refers to a packet that does not
    /// exist.
    fn packet(&self, send: &Send) -> Option<Sent> {
        let picked = |pick: usize| self.seen.get(pick.checked_rem(self.seen.len())?);
        Some(match send {
            Send::Fresh { outside, near, target, protocol, body } => {
                let protocol = PROTOCOLS[protocol % PROTOCOLS.len()];
                let port = PORTS[near.1 % PORTS.len()];
                let source = match outside {
                    false => end(INSIDE[near.0 % INSIDE.len()], port),
                    true => end(OUTSIDE[near.0 % OUTSIDE.len()], port),
                };
                let destination = self.target(target, port);
                let mut spec = Spec::new(protocol, source, destination);
                if *outside {
                    spec.identifier = destination.port;
                }
                let realm = self.realm(near.0 / INSIDE.len());
                (side(*outside), realm, body.apply(spec, None))
            }
            Send::Again { pick, body } => {
                let seen = picked(*pick)?;
                if is_icmp_error(&seen.input) {
                    return None;
                }
                let spec = Spec::like(&seen.input);
                (seen.from, seen.realms.0, body.apply(spec, Some(&seen.output)))
            }
            Send::Back { pick, exact, body } => {
                let seen = picked(*pick)?;
                if is_icmp_error(&seen.output) {
                    return None;
                }
                let spec = Spec::answer(&seen.output);
                let bytes = if *exact { spec.bytes() } else { body.apply(spec, None) };
                (seen.exit, seen.realms.1, bytes)
            }
            Send::Error { pick, kind, from, len, about } => {
                let seen = picked(*pick)?;
                let arrived = Ipv4::new_checked(&seen.output[..]).expect("came out");
                let source = match (from, seen.exit) {
                    (None, _) => Endpoint::new(arrived.destination(), 0),
                    (Some(index), Side::Inside) => end(INSIDE[index % INSIDE.len()], 0),
                    (Some(index), Side::Outside) => end(OUTSIDE[index % OUTSIDE.len()], 0),
                };
                let mut bytes = error_about(&about.of(&seen.output), source, *kind, (*len).max(20));
                if let Some(at) = about.spoil {
                    let at = 20 + at % (bytes.len() - 20);
                    bytes[at] ^= 0x41;
                    if at.is_multiple_of(2) {
                        set_icmp_sum(&mut bytes);
                    }
                }
                (seen.exit, seen.realms.1, bytes)
            }
        })
    }
}

/// The header of a forwarded packet.
fn ip(packet: &[u8]) -> Ipv4<&[u8]> {
    Ipv4::new_checked(packet).expect("came out")
}

pub(crate) fn is_icmp_error(packet: &[u8]) -> bool {
    let ip = ip(packet);
    ip.protocol() == ICMP && natgate_wire::icmp::is_error(ip.payload()[0])
}
