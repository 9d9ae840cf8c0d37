//! Schedules, thresholds and reloads, with servers of a few lines.

use super::*;
use natgate_engine::{Affinity, Server};
use natgate_wire::icmp::kind::ECHO_REPLY;
use std::collections::BTreeSet;
use std::time::Duration;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn at(millis: u64) -> Timestamp {
    Timestamp(7_000_000_000).plus(Duration::from_millis(millis))
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

/// Services, and how their servers are checked.
struct Settings {
    services: Vec<Service>,
    health: Vec<Option<HealthSettings>>,
}

impl Settings {
    fn checked(&self) -> Checked<'_> {
        (&self.services, &self.health)
    }
}

/// A service of servers that are asked by ICMP.
fn settings(servers: &[u8], health: Option<HealthSettings>) -> Settings {
    let server = |&number: &u8| Server {
        internal: (host(number), 8080),
        weight: 1,
        draining: false,
        backup: false,
    };
    let service = Service {
        realm: 0,
        protocol: Some(6),
        external: (Ipv4Addr::new(203, 0, 113, 1), 80),
        servers: servers.iter().map(server).collect(),
        affinity: Affinity::Address,
    };
    Settings { services: vec![service], health: vec![health] }
}

fn by_icmp() -> HealthSettings {
    HealthSettings { kind: CheckKind::Icmp, ..HealthSettings::default() }
}

/// The checks, with servers of which some do not answer.
struct World {
    health: Box<Health>,
    silent: BTreeSet<Ipv4Addr>,
    /// Packets sent.
    sent: usize,
}

impl World {
    fn new(settings: &Settings) -> Self {
        let health = Health::new(settings.checked(), [3; 32], at(0)).expect("servers are checked");
        Self { health, silent: BTreeSet::new(), sent: 0 }
    }

    /// Does all that is due; the servers answer at once. Returns the changes.
    fn pass(&mut self, now: Timestamp) -> Vec<(usize, bool)> {
        let mut packet = [0; 600];
        while let Some((realm, len)) = self.health.poll(now, |_, _| Some(OWN), &mut packet) {
            self.sent += 1;
            let server =
                Ipv4Addr::from_bits(Ipv4::new_checked(&packet[..len]).unwrap().destination());
            if !self.silent.contains(&server) {
                let reply = reply(&packet[..len]);
                assert!(self.health.take(now, realm, &reply, Some(OWN)));
            }
        }
        let changes = std::iter::from_fn(|| self.health.next_change());
        changes.map(|((_, server), is_up, _)| (server, is_up)).collect()
    }

    /// Passes all deadlines up to a time; returns the changes with their times, in milliseconds.
    fn until(&mut self, end: u64) -> Vec<(u64, usize, bool)> {
        let mut all = Vec::new();
        while self.health.next_deadline() <= at(end) {
            let now = self.health.next_deadline().max(at(0));
            let millis = now.since(at(0)).as_millis() as u64;
            all.extend(self.pass(now).into_iter().map(|(server, up)| (millis, server, up)));
        }
        all
    }

    fn states(&self) -> Vec<ServerState> {
        self.health.servers(|_, _| true).iter().map(|server| server.state).collect()
    }
}

/// The reply to an echo request.
fn reply(request: &[u8]) -> Vec<u8> {
    let mut reply = request.to_vec();
    reply.copy_within(12..16, 16);
    reply[12..16].copy_from_slice(&request[16..20]);
    let mut message = Icmp::new_checked(&mut reply[20..]).unwrap();
    message.set_kind(ECHO_REPLY);
    message.fill_checksum();
    reply
}

#[test]
fn a_server_goes_down_after_failures_in_a_row_and_comes_up_after_successes() {
    let mut world = World::new(&settings(&[5, 6], Some(by_icmp())));
    assert_eq!(world.states(), [ServerState::Unchecked; 2]);
    assert_eq!(world.until(4_999), []);
    assert_eq!(world.states(), [ServerState::Up; 2]);
    // Three checks without an answer, each of which fails after its timeout of 2 s.
    world.silent.insert(host(6));
    assert_eq!(world.until(18_000), [(17_000, 1, false)]);
    assert_eq!(world.states(), [ServerState::Up, ServerState::Down]);
    world.silent.clear();
    assert_eq!(world.until(40_000), [(25_000, 1, true)]);
    let told = world.health.servers(|_, host| host == Ipv4Addr::new(10, 0, 0, 6));
    assert_eq!((told.len(), told[0].checks, told[0].since), (1, [6, 3], at(25_000)));
}

#[test]
fn one_answer_between_failures_keeps_a_server_up() {
    let mut world = World::new(&settings(&[5], Some(by_icmp())));
    for round in 0..20 {
        match round % 3 {
            0 => world.silent.clear(),
            _ => drop(world.silent.insert(host(5))),
        }
        assert_eq!(world.until(5_000 * round + 4_000), []);
    }
}

#[test]
fn a_server_that_never_answers_goes_down_after_as_many_failures() {
    let mut world = World::new(&settings(&[5], Some(by_icmp())));
    world.silent.insert(host(5));
    assert_eq!(world.until(60_000), [(12_000, 0, false)]);
    let change = &world.health.servers(|_, _| true)[0];
    assert_eq!(change.failure, Some(CheckFailure::Silent));
    // Echo requests are repeated within the timeout.
    assert_eq!(world.sent, 25);
}

#[test]
fn the_last_server_that_goes_down_is_told_as_such() {
    let mut world = World::new(&settings(&[5, 6], Some(by_icmp())));
    world.silent.extend([host(5), host(6)]);
    let mut packet = [0; 600];
    let mut lasts = Vec::new();
    for millis in (0..20_000).step_by(500) {
        while world.health.poll(at(millis), |_, _| Some(OWN), &mut packet).is_some() {}
        let changes = std::iter::from_fn(|| world.health.next_change());
        lasts.extend(changes.map(|(_, _, change)| change.is_last));
    }
    // Both have failed when the changes are read.
    assert_eq!(lasts, [false, true]);
}

#[test]
fn only_the_answer_of_the_server_counts() {
    let mut world = World::new(&settings(&[5], Some(by_icmp())));
    let mut packet = [0; 600];
    let (_, len) = world.health.poll(at(0), |_, _| Some(OWN), &mut packet).unwrap();
    let right = reply(&packet[..len]);
    let changed = |place: usize| {
        let mut other = right.clone();
        other[place] ^= 1;
        Ipv4::new_header_checked(&mut other[..]).unwrap().fill_checksum();
        other
    };
    let health = &mut world.health;
    // Another source, another destination, another identifier.
    for place in [15, 19, 24] {
        assert!(!health.take(at(1), 0, &changed(place), Some(OWN)), "byte {place}");
    }
    assert!(!health.take(at(1), 1, &right, Some(OWN)), "another realm");
    assert!(!health.take(at(1), 0, &right, Some(host(9))), "another own address");
    assert!(!health.take(at(1), 0, &right[..24], Some(OWN)));
    assert!(health.take(at(1), 0, &right, Some(OWN)));
    assert!(!health.take(at(1), 0, &right, Some(OWN)), "the check is over");
}

#[test]
fn a_worker_asks_only_the_servers_that_it_has() {
    let mut health =
        Health::new(settings(&[5, 6], Some(by_icmp())).checked(), [3; 32], at(0)).unwrap();
    let mut packet = [0; 600];
    let own = |_, address| (address == host(6)).then_some(OWN);
    let (_, len) = health.poll(at(0), own, &mut packet).unwrap();
    assert_eq!(Ipv4::new_checked(&packet[..len]).unwrap().destination(), host(6).to_bits());
    assert_eq!(health.poll(at(0), own, &mut packet), None);
    assert!(health.next_deadline() > at(0));
    assert_eq!(health.servers(|_, address| address == host(6)).len(), 1);
}

#[test]
fn sessions_end_only_if_the_settings_say_so() {
    for ends_sessions in [false, true] {
        let by_icmp = HealthSettings { ends_sessions, failures: 1, ..by_icmp() };
        let mut world = World::new(&settings(&[5], Some(by_icmp)));
        world.silent.insert(host(5));
        let mut packet = [0; 600];
        for millis in (0..4_000).step_by(500) {
            while world.health.poll(at(millis), |_, _| Some(OWN), &mut packet).is_some() {}
        }
        let ending: Vec<_> = world.health.ending().iter().map(|(filter, _)| *filter).collect();
        assert_eq!(ending.len(), usize::from(ends_sessions));
        assert!(ending.iter().all(|filter| {
            let ports = (filter.internal_port, filter.external_port);
            (ports, filter.protocol) == ((Some(8080), Some(80)), Some(6))
        }));
        // A server that is up again has new sessions.
        world.silent.clear();
        for millis in (4_000..30_000).step_by(500) {
            world.pass(at(millis));
        }
        assert_eq!(world.states(), [ServerState::Up]);
        assert!(world.health.ending().is_empty());
    }
}

#[test]
fn a_reload_keeps_the_state_of_servers_that_stay_checked() {
    let mut world = World::new(&settings(&[5, 6], Some(by_icmp())));
    world.silent.insert(host(6));
    world.until(20_000);
    assert_eq!(world.states(), [ServerState::Up, ServerState::Down]);
    let faster = HealthSettings { interval: Duration::from_secs(1), ..by_icmp() };
    let faster = HealthSettings { timeout: Duration::from_millis(500), ..faster };
    assert_eq!(world.health.renew(settings(&[5, 6], Some(faster)).checked(), at(20_100)), []);
    assert_eq!(world.states(), [ServerState::Up, ServerState::Down]);
    world.silent.clear();
    assert_eq!(world.until(22_000), [(21_100, 1, true)]);
    world.silent.insert(host(5));
    assert_eq!(world.until(30_000).len(), 1);
    // Without checks, every server gets sessions.
    assert_eq!(world.health.renew(settings(&[5, 6], None).checked(), at(30_000)), [(0, 0)]);
    assert!(world.health.is_over());
    assert_eq!(world.health.poll(at(60_000), |_, _| Some(OWN), &mut [0; 600]), None);
}

#[test]
fn a_reload_that_takes_checks_away_goes_on_with_the_others() {
    let by_icmp = by_icmp();
    let settings = |services: &[&[u8]]| {
        let one = |servers: &&[u8]| settings(servers, Some(by_icmp.clone()));
        let all: Vec<Settings> = services.iter().map(one).collect();
        let services = all.iter().flat_map(|one| one.services.clone()).collect();
        Settings { services, health: all.into_iter().flat_map(|one| one.health).collect() }
    };
    let mut world = World::new(&settings(&[&[5], &[6, 7]]));
    world.silent.insert(host(6));
    // The silent server is asked again, so the search goes on behind it.
    world.until(1_500);
    assert_eq!(world.health.renew(settings(&[&[5]]).checked(), at(1_600)), []);
    world.until(20_000);
    assert_eq!(world.states(), [ServerState::Up]);
}

#[test]
fn failures_in_a_row_outlast_reloads() {
    let settings = settings(&[5], Some(by_icmp()));
    let mut world = World::new(&settings);
    world.silent.insert(host(5));
    let mut changes = Vec::new();
    for second in 1..=14 {
        changes.extend(world.until(1_000 * second));
        world.health.renew(settings.checked(), at(1_000 * second + 1));
    }
    let down: Vec<_> = changes.iter().map(|&(_, server, is_up)| (server, is_up)).collect();
    assert_eq!(down, [(0, false)]);
}

#[test]
fn a_reload_that_moves_a_service_asks_for_the_new_one() {
    let mut by_icmp = by_icmp();
    by_icmp.ends_sessions = true;
    by_icmp.failures = 1;
    let mut moved = settings(&[5], Some(by_icmp.clone()));
    let mut world = World::new(&moved);
    world.until(4_000);
    moved.services[0].external.1 = 81;
    moved.services[0].protocol = Some(17);
    world.health.renew(moved.checked(), at(4_100));
    let mut packet = [0; 600];
    for millis in (4_500..12_000).step_by(500) {
        while world.health.poll(at(millis), |_, _| Some(OWN), &mut packet).is_some() {}
    }
    let (filter, _) = world.health.ending().pop_front().expect("the server is down");
    assert_eq!((filter.external_port, filter.protocol), (Some(81), Some(17)));
}

#[test]
fn a_link_that_is_down_says_nothing_about_servers() {
    let mut world = World::new(&settings(&[5], Some(by_icmp())));
    world.until(4_000);
    world.silent.insert(host(5));
    let mut packet = [0; 600];
    for millis in (5_000..60_000).step_by(500) {
        let is_up = millis < 6_000;
        let own = |_, _| is_up.then_some(OWN);
        while world.health.poll(at(millis), own, &mut packet).is_some() {}
    }
    assert_eq!(world.states(), [ServerState::Up]);
    assert_eq!(world.health.servers(|_, _| true)[0].checks, [1, 0]);
}

#[test]
fn a_server_that_drains_is_not_the_last_one() {
    let mut settings = settings(&[5, 6], Some(by_icmp()));
    settings.services[0].servers[1].draining = true;
    let mut world = World::new(&settings);
    world.silent.insert(host(5));
    let mut packet = [0; 600];
    for millis in (0..20_000).step_by(500) {
        let poll = world.health.poll(at(millis), |_, _| Some(OWN), &mut packet);
        let Some((realm, len)) = poll else { continue };
        let request = packet[..len].to_vec();
        if Ipv4::new_checked(&request[..]).unwrap().destination() != host(5).to_bits() {
            world.health.take(at(millis), realm, &reply(&request), Some(OWN));
        }
    }
    let (_, _, change) = world.health.next_change().expect("a server is down");
    assert!(change.is_last, "the other one gets no new sessions");
}

#[test]
fn nothing_is_checked_unless_the_settings_say_so() {
    assert!(Health::new(settings(&[5], None).checked(), [3; 32], at(0)).is_none());
    let many: Vec<u8> = (5..69).collect();
    let one = settings(&many, Some(by_icmp()));
    let services = vec![one.services[0].clone(); 20];
    let all = Settings { services, health: vec![Some(by_icmp()); 20] };
    assert_eq!(Health::new(all.checked(), [3; 32], at(0)).unwrap().checks.len(), MOST_CHECKED);
}
