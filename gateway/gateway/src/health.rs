//! Health checks of the servers of services: who is asked when, and who is up.
//!
//! The worker that has a service asks its servers, from the gateway's own address inside and by the
//! router's ordinary way. Answers come back to the same worker: it has the servers' packets, too.
//! Like the router this is a state machine: [`Health::poll`] writes packets, [`Health::take`] reads
//! answers, [`Health::next_change`] tells what the translator has to know.

mod attempt;
mod settings;

pub use attempt::CheckFailure;
use attempt::{Attempt, Outcome};
use natgate_engine::{Cursor, Filter, HashKey, Prefix, Service, Timestamp};
use natgate_wire::{Icmp, Ipv4, Tcp, protocol};
pub use settings::{CheckKind, HealthSettings, LONGEST_REQUEST, MOST_CHECKED};
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Purpose of the secret of this file among those from one seed.
const PURPOSE: u64 = 0x6865_616c_7468;

/// Local ports and identifiers: the dynamic ports of RFC 6335 section 6.
const FIRST_PORT: u16 = 49_152;

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// No check has ended. The server gets sessions.
    Unchecked,
    /// The server gets sessions.
    Up,
    /// The server gets no new sessions.
    Down,
}

impl ServerState {
    /// Name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unchecked => "unchecked",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// A change of a server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerChange {
    /// Time of the change.
    pub time: Timestamp,
    /// Number of the server's realm.
    pub realm: u16,
    /// External endpoint of the service.
    pub external: SocketAddrV4,
    /// Internal endpoint of the server.
    pub server: SocketAddrV4,
    /// The last failure, if the server is down now.
    pub failure: Option<CheckFailure>,
    /// True if no server of the service that may get new sessions is up now.
    pub is_last: bool,
}

/// A server that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerHealth {
    /// Places of the service and of the server in the configuration.
    pub place: (usize, usize),
    /// State.
    pub state: ServerState,
    /// Time of the last change of the state, or of the first check's begin.
    pub since: Timestamp,
    /// Checks with an answer, and without.
    pub checks: [u64; 2],
    /// Failure of the last check.
    pub failure: Option<CheckFailure>,
}

/// The checks of one server.
#[derive(Debug)]
struct Check {
    place: (usize, usize),
    realm: u16,
    /// Protocol of the service; `None`: all.
    protocol: Option<u8>,
    external: SocketAddrV4,
    server: SocketAddrV4,
    /// True if the server gets new sessions while it is up.
    gets_sessions: bool,
    settings: HealthSettings,
    /// Time when the next attempt begins.
    next: Timestamp,
    attempt: Option<Attempt>,
    /// Time when the attempt has failed.
    deadline: Timestamp,
    /// An attempt whose connection is to be reset.
    closing: Option<Attempt>,
    /// Results in a row that speak against the state.
    against: u8,
    told: ServerHealth,
}

impl Check {
    /// True if the other one asks the same server in the same way for the same service.
    fn is_like(&self, other: &Self) -> bool {
        let ends = |check: &Self| (check.realm, check.protocol, check.external, check.server);
        ends(self) == ends(other) && self.settings == other.settings
    }

    /// The sessions of the server.
    fn sessions(&self) -> Filter {
        Filter {
            realm: Some(self.realm),
            protocol: self.protocol,
            subscriber: Some(Prefix::new(*self.server.ip(), 32)),
            internal_port: Some(self.server.port()),
            external: Some(Prefix::new(*self.external.ip(), 32)),
            external_port: Some(self.external.port()),
            ..Filter::default()
        }
    }
}

/// All checks of one worker.
#[derive(Debug)]
pub(crate) struct Health {
    checks: Vec<Check>,
    /// Checks by the local port of the attempt in progress.
    by_port: HashMap<u16, usize>,
    /// Time of the next work.
    next: Timestamp,
    /// Check at which the next search for work begins.
    place: usize,
    /// Changes that nobody has been told of, with the place of the server.
    changes: VecDeque<((usize, usize), ServerChange)>,
    /// Servers whose sessions end.
    ending: VecDeque<(Filter, Cursor)>,
    secret: HashKey,
    drawn: u64,
}

/// The services of a configuration, and how the servers of each are checked, if they are.
pub(crate) type Checked<'s> = (&'s [Service], &'s [Option<HealthSettings>]);

/// The servers that are to be checked.
fn checks((services, health): Checked<'_>, now: Timestamp) -> Vec<Check> {
    let services = services.iter().zip(health).enumerate();
    let of_service = |(place, (service, health)): (usize, (&Service, &Option<HealthSettings>))| {
        let Some(health) = health.clone() else { return Vec::new() };
        let external = SocketAddrV4::new(service.external.0, service.external.1);
        let check = |(number, server): (usize, &natgate_engine::Server)| Check {
            place: (place, number),
            realm: service.realm,
            protocol: service.protocol,
            external,
            server: SocketAddrV4::new(server.internal.0, server.internal.1),
            gets_sessions: server.share() > 0,
            settings: health.clone(),
            next: now,
            attempt: None,
            deadline: now,
            closing: None,
            against: 0,
            told: ServerHealth {
                place: (place, number),
                state: ServerState::Unchecked,
                since: now,
                checks: [0; 2],
                failure: None,
            },
        };
        service.servers.iter().enumerate().map(check).collect()
    };
    services.flat_map(of_service).take(MOST_CHECKED).collect()
}

impl Health {
    /// The checks that the settings ask for; `None`: none.
    pub(crate) fn new(settings: Checked<'_>, seed: [u8; 32], now: Timestamp) -> Option<Box<Self>> {
        let checks = checks(settings, now);
        let health = Self {
            checks,
            by_port: HashMap::new(),
            next: now,
            place: 0,
            changes: VecDeque::new(),
            ending: VecDeque::new(),
            secret: HashKey::from_seed(seed, PURPOSE),
            drawn: 0,
        };
        (!health.checks.is_empty()).then(|| Box::new(health))
    }

    /// Puts other settings in force. Servers that are checked before and after keep their state; if
    /// they are checked in the same way, their check goes on.
    /// Returns the places of servers that are not checked any more and were down.
    pub(crate) fn renew(&mut self, settings: Checked<'_>, now: Timestamp) -> Vec<(usize, usize)> {
        let mut former = std::mem::replace(&mut self.checks, checks(settings, now));
        self.by_port.clear();
        for (place, check) in self.checks.iter_mut().enumerate() {
            let same = former.iter().position(|other| other.place == check.place);
            let Some(mut other) = same.map(|same| former.swap_remove(same)) else { continue };
            check.told = other.told;
            if other.is_like(check) {
                other.gets_sessions = check.gets_sessions;
                *check = other;
                if let Some(attempt) = &check.attempt {
                    self.by_port.insert(attempt.local_port(), place);
                }
            } else {
                check.closing = other.attempt.filter(Attempt::is_connected).or(other.closing);
            }
        }
        (self.next, self.place) = (now, 0);
        let is_down = |check: &Check| check.told.state == ServerState::Down;
        former.iter().filter(|check| is_down(check)).map(|check| check.place).collect()
    }

    /// True if nothing is checked and nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.checks.is_empty() && self.changes.is_empty() && self.ending.is_empty()
    }

    /// Time of the next work.
    pub(crate) fn next_deadline(&self) -> Timestamp {
        let is_late = !self.changes.is_empty() || !self.ending.is_empty();
        if is_late { Timestamp(0) } else { self.next }
    }

    /// State of each server of this worker. `is_own`: true if this worker has a host.
    pub(crate) fn servers(&self, is_own: impl Fn(u16, Ipv4Addr) -> bool) -> Vec<ServerHealth> {
        let own = self.checks.iter().filter(|check| is_own(check.realm, *check.server.ip()));
        own.map(|check| check.told).collect()
    }

    /// Writes the next packet that is due; returns its realm and its length. `address` is the
    /// gateway's own address in a realm, `None` if this worker cannot ask a server now: it does not
    /// have the server, or the link is down. An attempt in progress then ends without a result.
    pub(crate) fn poll(
        &mut self,
        now: Timestamp,
        address: impl Fn(u16, Ipv4Addr) -> Option<Ipv4Addr>,
        into: &mut [u8],
    ) -> Option<(u16, usize)> {
        if now < self.next {
            return None;
        }
        let count = self.checks.len();
        for _ in 0..count {
            let place = self.place;
            self.place = (place + 1) % count;
            let len = self.work(now, place, &address, into);
            if len > 0 {
                return Some((self.checks[place].realm, len));
            }
        }
        let due = |check: &Check| match (&check.closing, &check.attempt) {
            (Some(_), _) => Timestamp(0),
            (None, Some(attempt)) => attempt.due().min(check.deadline),
            (None, None) => check.next,
        };
        self.next = self.checks.iter().map(due).min().unwrap_or(Timestamp(u64::MAX));
        None
    }

    /// Does the work of one check that is due; returns the length of its packet, 0 if there is
    /// none.
    fn work(
        &mut self,
        now: Timestamp,
        place: usize,
        address: impl Fn(u16, Ipv4Addr) -> Option<Ipv4Addr>,
        into: &mut [u8],
    ) -> usize {
        let check = &mut self.checks[place];
        if let Some(closing) = check.closing.take() {
            return closing.write_reset(into);
        }
        if check.attempt.is_some() && now >= check.deadline {
            if address(check.realm, *check.server.ip()).is_none() {
                self.give_up(place);
            } else {
                self.conclude(now, place, Err(CheckFailure::Silent));
            }
            return 0;
        }
        if let Some(attempt) = &mut check.attempt {
            return if now >= attempt.due() { attempt.write(now, into) } else { 0 };
        }
        if now < check.next {
            return 0;
        }
        check.next = now.plus(check.settings.interval);
        check.deadline = now.plus(check.settings.timeout);
        let Some(own) = address(check.realm, *check.server.ip()) else { return 0 };
        let Some(port) = self.free_port() else { return 0 };
        let first = self.draw() as u32;
        let check = &mut self.checks[place];
        let server = SocketAddrV4::new(
            *check.server.ip(),
            check.settings.port.unwrap_or(check.server.port()),
        );
        let ends = (SocketAddrV4::new(own, port), server);
        let mut attempt = Attempt::new(now, &check.settings.kind, ends, first);
        let len = attempt.write(now, into);
        check.attempt = Some(attempt);
        self.by_port.insert(port, place);
        len
    }

    /// Ends the attempt of a check without a result.
    fn give_up(&mut self, place: usize) {
        if let Some(attempt) = self.checks[place].attempt.take() {
            self.by_port.remove(&attempt.local_port());
        }
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.secret.hash(self.drawn, self.drawn)
    }

    /// A local port that no attempt has.
    fn free_port(&mut self) -> Option<u16> {
        (0..64).find_map(|_| {
            let port = FIRST_PORT + (self.draw() % u64::from(u16::MAX - FIRST_PORT)) as u16;
            (!self.by_port.contains_key(&port)).then_some(port)
        })
    }

    /// Takes a packet to the gateway's own address in a realm, if a check expects it.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        realm: u16,
        packet: &[u8],
        own: Option<Ipv4Addr>,
    ) -> bool {
        let Some((source, destination, port)) = ends(packet) else { return false };
        let Some(&place) = self.by_port.get(&port) else { return false };
        let check = &mut self.checks[place];
        if check.realm != realm || own != Some(destination) || *check.server.ip() != source {
            return false;
        }
        let Some(attempt) = &mut check.attempt else { return false };
        let Ok(packet) = Ipv4::new_checked(packet) else { return false };
        let outcome = attempt.take(&packet);
        self.next = Timestamp(0);
        if let Some(outcome) = outcome {
            self.conclude(now, place, outcome);
        }
        true
    }

    /// Ends the attempt of a check.
    fn conclude(&mut self, now: Timestamp, place: usize, outcome: Outcome) {
        let check = &mut self.checks[place];
        let Some(attempt) = check.attempt.take() else { return };
        self.by_port.remove(&attempt.local_port());
        check.closing = Some(attempt).filter(Attempt::is_connected);
        let told = &mut check.told;
        told.checks[usize::from(outcome.is_err())] += 1;
        told.failure = outcome.err();
        let (is_against, most, to) = match (told.state, outcome) {
            (ServerState::Down, Ok(())) => (true, check.settings.successes, ServerState::Up),
            (ServerState::Unchecked, Ok(())) => (true, 0, ServerState::Up),
            (ServerState::Down, Err(_)) | (ServerState::Up, Ok(())) => (false, 0, told.state),
            (_, Err(_)) => (true, check.settings.failures, ServerState::Down),
        };
        check.against = if is_against { check.against.saturating_add(1) } else { 0 };
        if !is_against || check.against < most {
            return;
        }
        let was = std::mem::replace(&mut told.state, to);
        (told.since, check.against) = (now, 0);
        if was == ServerState::Unchecked && to == ServerState::Up {
            return;
        }
        // The sessions of a server that is up again are left alone.
        let filter = self.checks[place].sessions();
        self.ending.retain(|(other, _)| *other != filter);
        if to == ServerState::Down && self.checks[place].settings.ends_sessions {
            self.ending.push_back((filter, Cursor::default()));
        }
        self.tell(now, place);
    }

    /// Notes a change for the translator and the log.
    fn tell(&mut self, now: Timestamp, place: usize) {
        let Check { place: of, realm, external, server, told, .. } = self.checks[place];
        let is_other = |other: &&Check| other.place.0 == of.0 && other.gets_sessions;
        let mut others = self.checks.iter().filter(is_other);
        let change = ServerChange {
            time: now,
            realm,
            external,
            server,
            failure: told.failure.filter(|_| told.state == ServerState::Down),
            is_last: others.all(|other| other.told.state == ServerState::Down),
        };
        self.changes.push_back((of, change));
    }

    /// The next change of a server's state: its place, and true if it is up.
    pub(crate) fn next_change(&mut self) -> Option<((usize, usize), bool, ServerChange)> {
        let (place, change) = self.changes.pop_front()?;
        Some((place, change.failure.is_none(), change))
    }

    /// The servers whose sessions are to end, and how far that is.
    pub(crate) fn ending(&mut self) -> &mut VecDeque<(Filter, Cursor)> {
        &mut self.ending
    }
}

/// Source, destination, and the port or identifier of the gateway in a packet.
fn ends(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, u16)> {
    let ip = Ipv4::new_checked(packet).ok().filter(|ip| !ip.is_fragment())?;
    let port = match ip.protocol() {
        protocol::TCP => Tcp::new_checked(ip.payload())?.destination_port(),
        protocol::ICMP => Icmp::new_checked(ip.payload())?.identifier(),
        _ => return None,
    };
    Some((Ipv4Addr::from_bits(ip.source()), Ipv4Addr::from_bits(ip.destination()), port))
}

#[cfg(test)]
mod tests;
