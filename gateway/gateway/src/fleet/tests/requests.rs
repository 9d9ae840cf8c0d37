//! Requested mappings of a pair: what goes on, what a partner may say, and one epoch at both nodes.

use super::histories::Judge;
use super::workers::{Counts, flows};
use super::{A1, Allotment, B2, External, Pair, Process, SECOND};
use crate::fleet::FleetRequest;
use natgate_engine::{
    Endpoint, Explicit, ExplicitError, MapRequest, Nonce, Timestamp, WantedEndpoint,
};
use natgate_wire::protocol::UDP;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

const NONCE: Nonce = [9; 12];

/// Lifetime of every request.
const LIFETIME: Duration = Duration::from_secs(600);

/// Longest lifetime that a partner confirms: the hold-down.
const CONFIRMED: Duration = Duration::from_secs(120);

/// A host, by the last number of its address, and its port.
type Flow = (u8, u16);

impl Process {
    /// What a service for requests does before a turn: lost mappings begin a new epoch.
    pub(super) fn watch(&mut self) {
        let lost: u64 = self.engines().map(|engine| engine.explicit_lost()).sum();
        if lost != self.lost {
            self.lost = lost;
            self.fleet.epoch().begin(Timestamp(self.now));
        }
    }

    /// Realm and endpoint of a flow. `None`: the node does not have the realm, or the worker of the
    /// host stands still.
    fn inside(&mut self, (host, port): Flow) -> Option<(u16, Endpoint)> {
        let (realm, address) = self.number(host)?;
        let stands_still = self.still.contains(&self.worker_of((realm, address)));
        (!stands_still).then_some((realm, Endpoint { address, port }))
    }

    fn map_with(&mut self, flow: Flow, nonce: Nonce) -> Result<Explicit, ExplicitError> {
        let (realm, internal) = self.inside(flow).ok_or(ExplicitError::NotSubscriber)?;
        let request = MapRequest {
            protocol: UDP,
            realm,
            internal,
            wanted: WantedEndpoint::default(),
            lifetime: LIFETIME,
            nonce,
            replaces_filters: false,
            filters: &[],
        };
        let now = Timestamp(self.now);
        self.engine_of((realm, internal.address)).map(now, &request)
    }

    fn map(&mut self, flow: Flow) -> Result<(External, Duration), ExplicitError> {
        let Explicit { external, lifetime } = self.map_with(flow, NONCE)?;
        let seconds = lifetime.expect("no static mapping").as_secs();
        Ok(((external.address, external.port), Duration::from_secs(seconds)))
    }

    fn unmap(&mut self, flow: Flow) -> Result<Duration, ExplicitError> {
        let (realm, internal) = self.inside(flow).ok_or(ExplicitError::NotSubscriber)?;
        let now = Timestamp(self.now);
        self.engine_of((realm, internal.address)).unmap(now, UDP, realm, internal, NONCE)
    }

    fn unmap_all(&mut self, host: u8) -> Result<(), ExplicitError> {
        let (realm, Endpoint { address, .. }) =
            self.inside((host, 0)).ok_or(ExplicitError::NotSubscriber)?;
        self.engine.unmap_all(Timestamp(self.now), UDP, realm, address, [0; 12])
    }

    /// Sends a datagram of a server to an external endpoint. Returns the host that gets it.
    fn knock(&mut self, to: External) -> Option<External> {
        self.answer(to, None).map(|(_, host)| host)
    }

    fn epoch(&self) -> Duration {
        self.fleet.epoch().told(Timestamp(self.now)).expect("the epoch has begun").0
    }
}

fn is_near(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) <= Duration::from_secs(1)
}

#[test]
fn a_requested_mapping_goes_on_after_a_crash() {
    let mut pair = Pair::start();
    pair.run(10.0);
    let (external, _) = pair.a().map((5, 80)).expect("granted");
    assert_eq!(external.0, A1);
    pair.run(0.2);
    let host = (Ipv4Addr::new(10, 0, 0, 5), 80);
    assert_eq!(pair.b().knock(external), Some(host), "it is copied at once");
    let before = pair.b().epoch();
    pair.end_a_with_guardian();
    pair.run(1.0);
    assert!(pair.b().epoch() < before, "the latest requests may be lost: hosts learn of it");
    assert_eq!(pair.b().knock(external), Some(host));
    let stranger = pair.b().map_with((5, 80), [1; 12]);
    assert!(matches!(stranger, Err(ExplicitError::Nonce(left)) if left > CONFIRMED));
    // It ends when it was to end.
    pair.run(590.0);
    assert_eq!(pair.b().knock(external), Some(host));
    let renewed = pair.b().map((5, 80)).expect("renewed during or after the hold-down");
    assert_eq!(renewed, (external, LIFETIME));
    pair.run(590.0);
    assert_eq!(pair.b().knock(external), Some(host));
    assert_eq!(pair.b().unmap((5, 80)).map(|left| left <= LIFETIME), Ok(true));
    pair.run(400.0);
    assert_eq!(pair.b().knock(external), None);
    assert_eq!(pair.b().engine.mappings().count(), 0);
}

#[test]
fn a_requested_mapping_has_the_same_end_at_the_partner() {
    let mut pair = Pair::start();
    let (external, _) = pair.a().map((5, 80)).expect("granted");
    pair.run(1.0);
    pair.end_a_with_guardian();
    pair.run(596.0);
    assert_eq!(pair.b().engine.mappings().count(), 1);
    pair.run(5.0);
    assert_eq!(pair.b().engine.mappings().count(), 0);
    assert_eq!(pair.b().knock(external), None);
}

#[test]
fn ends_of_copies_follow_clocks_of_different_rates() {
    let mut pair = Pair::start();
    // 18 s in an hour, as 50 ppm are in four days.
    pair.drift = SECOND / 200;
    for _ in 0..4 {
        pair.run(900.0);
    }
    pair.a().map((5, 80)).expect("granted");
    pair.run(1.0);
    let left = |process: &Process| {
        let mapping = process.engine.mappings().next().expect("one");
        mapping.expires.expect("an end").since(Timestamp(process.now))
    };
    let (of_a, of_b) = (left(pair.a()), left(pair.b()));
    assert!(is_near(of_a, of_b), "{of_a:?}, {of_b:?}");
}

#[test]
fn a_partner_confirms_what_there_is_and_changes_nothing() {
    let mut pair = Pair::start();
    let (external, lifetime) = pair.a().map((5, 80)).expect("granted");
    assert_eq!(lifetime, LIFETIME);
    pair.run(1.0);
    assert_eq!(pair.b().map((5, 80)), Ok((external, CONFIRMED)));
    assert_eq!(pair.b().unmap((5, 80)), Err(ExplicitError::Others));
    pair.run(520.0);
    let (_, left) = pair.b().map((5, 80)).expect("confirmed");
    assert!(left < CONFIRMED && left > Duration::from_secs(60), "{left:?}");
    // Another endpoint of the host gets a port of the partner's own slice.
    assert_eq!(pair.b().map((5, 81)).expect("granted").0.0, B2);
    assert_eq!(pair.a().unmap((5, 80)), Ok(Duration::ZERO));
    pair.run(1.0);
    assert_eq!(pair.b().unmap((5, 80)), Ok(Duration::ZERO), "there is none");
    assert_eq!(pair.b().knock(external), None);
}

#[test]
fn a_partner_does_not_say_that_a_mapping_of_the_owner_does_not_exist() {
    let mut pair = Pair::start();
    pair.run(2.0);
    assert_eq!(pair.b().unmap((5, 80)), Ok(Duration::ZERO), "there is none");
    assert_eq!(pair.b().unmap_all(5), Ok(()));
    pair.wire().is_cut = true;
    pair.a().map_with((5, 80), [0; 12]).expect("granted");
    pair.run(5.0);
    assert_eq!(pair.b().unmap((5, 80)), Err(ExplicitError::Others), "the owner may have one");
    assert_eq!(pair.b().unmap_all(5), Err(ExplicitError::Others));
    pair.wire().is_cut = false;
    pair.run(2.0);
    assert_eq!(pair.b().unmap_all(5), Err(ExplicitError::Others), "the owner has one");
    assert_eq!(pair.b().unmap_all(6), Ok(()));
    assert_eq!(pair.a().unmap_all(5), Ok(()));
    pair.run(2.0);
    assert_eq!(pair.b().unmap_all(5), Ok(()));
    // A mapping of packets is copied, and the owner's host requests it when the link is cut.
    pair.a().send((7, 1)).expect("sent");
    pair.run(3.0);
    pair.wire().is_cut = true;
    pair.a().map((7, 1)).expect("granted");
    assert_eq!(pair.b().unmap((7, 1)), Err(ExplicitError::Others));
    // An owner of everything knows.
    pair.a = None;
    pair.ask("b", FleetRequest::Forget("a".into())).expect("it forgets");
    pair.run(1.0);
    assert_eq!((pair.b().unmap((5, 80)), pair.b().unmap_all(5)), (Ok(Duration::ZERO), Ok(())));
}

#[test]
fn a_renewal_that_did_not_arrive_leaves_time_after_a_take_over() {
    let mut pair = Pair::start();
    let (external, _) = pair.a().map((5, 80)).expect("granted");
    pair.run(1.0);
    pair.wire().is_cut = true;
    pair.run(500.0);
    pair.a().map((5, 80)).expect("renewed");
    pair.run(300.0);
    assert_eq!(pair.b().map((5, 80)), Err(ExplicitError::Others), "its time has passed here");
    pair.a = None;
    pair.ask("b", FleetRequest::Forget("a".into())).expect("it forgets");
    pair.run(110.0);
    assert_eq!(pair.b().map((5, 80)), Ok((external, LIFETIME)), "the host repeats its request");
}

#[test]
fn a_planned_move_and_a_restart_leave_the_epoch() {
    let mut pair = Pair::start();
    pair.run(100.0);
    assert!(is_near(pair.a().epoch(), pair.b().epoch()));
    let (external, _) = pair.a().map((5, 80)).expect("granted");
    pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(1.0);
    assert_eq!(pair.b().map((5, 80)), Ok((external, LIFETIME)));
    pair.restart_a();
    assert!(pair.a().fleet.epoch().began().is_none(), "it answers no request yet");
    pair.run(3.0);
    let (a, b) = (pair.a().epoch(), pair.b().epoch());
    assert!(is_near(a, b) && a > Duration::from_secs(100), "{a:?}, {b:?}");
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
    pair.run(1.0);
    assert_eq!(pair.a().map((5, 80)), Ok((external, LIFETIME)));
    assert!(pair.a().epoch() > Duration::from_secs(100));
}

/// A loss just before a planned move: the worker carries the operator's command out between a turn
/// of the pair and the look of the service at losses.
#[test]
fn a_loss_just_before_a_move_is_told_by_the_new_owner() {
    for faults in [0, 4] {
        let mut pair = Pair::start();
        pair.run(100.0);
        pair.a().map((5, 80)).expect("granted");
        pair.run(1.3);
        pair.wire().faults = faults;
        pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
        pair.a().clear(5);
        let (a, now) = (pair.a.as_mut().expect("it runs"), Timestamp(pair.now));
        let node = (&mut a.engine, &mut a.algs);
        a.fleet.turn(now, node, &mut natgate_ipv6::CopiedHosts::new(None, now), None);
        // No message but those that the move waits for: the old owner's process ends at once.
        for _ in 0..2000 {
            pair.run(0.01);
            if pair.b().status().slices[0].role == "owner" {
                break;
            }
        }
        assert_eq!(pair.b().status().slices[0].role, "owner");
        pair.end_a_with_guardian();
        let epoch = pair.b().epoch();
        assert!(epoch < Duration::from_secs(30), "{epoch:?}");
    }
}

#[test]
fn a_loss_at_a_node_that_owns_nothing_is_one_of_the_pair() {
    let mut pair = Pair::start();
    pair.run(100.0);
    pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(1.0);
    let now = Timestamp(pair.now);
    pair.a().fleet.epoch().begin(now);
    pair.run(3.0);
    let (a, b) = (pair.a().epoch(), pair.b().epoch());
    assert!(is_near(a, b) && b < Duration::from_secs(5), "{a:?}, {b:?}");
}

#[test]
fn a_loss_at_one_node_is_one_of_the_pair() {
    let mut pair = Pair::start();
    pair.run(100.0);
    pair.a().map((5, 80)).expect("granted");
    pair.a().clear(5);
    pair.run(3.0);
    let (a, b) = (pair.a().epoch(), pair.b().epoch());
    assert!(is_near(a, b) && b < Duration::from_secs(5), "{a:?}, {b:?}");
    // A crash of a node whose slices are taken is one, too, and the node learns of it.
    pair.run(50.0);
    pair.end_a_with_guardian();
    pair.run(20.0);
    pair.restart_a();
    pair.run(3.0);
    let (a, b) = (pair.a().epoch(), pair.b().epoch());
    assert!(is_near(a, b) && b < Duration::from_secs(30), "{a:?}, {b:?}");
}

/// Granted endpoints of UDP: what hosts rely on.
#[derive(Default)]
pub(super) struct Grants {
    of: BTreeMap<External, Grant>,
    /// The latest loss that any node has told.
    lost: Timestamp,
}

struct Grant {
    flow: Flow,
    at: Timestamp,
    until: Timestamp,
}

impl Grants {
    /// Checks that an endpoint that leads to a flow is not granted to another one.
    pub(super) fn check(&self, external: External, flow: Flow, now: u64) {
        let Some(grant) = self.of.get(&external) else { return };
        let is_relied_on = grant.until > Timestamp(now + SECOND) && grant.at > self.lost;
        assert!(
            grant.flow == flow || !is_relied_on,
            "{external:?} is granted to {:?} and leads to {flow:?}",
            grant.flow
        );
    }
}

impl Judge {
    pub(super) fn hear_of_losses(&mut self, pair: &Pair) {
        let began = |process: &Process| process.fleet.epoch().began();
        let nodes = [&pair.a, &pair.b].into_iter().flatten();
        let latest = nodes.filter_map(began).max().unwrap_or_default();
        self.grants.lost = self.grants.lost.max(latest);
    }

    /// Requests the mapping of a flow of a node, or gives it up.
    pub(super) fn request(&mut self, process: &mut Process, flow: Flow, gives_up: bool) {
        let now = Timestamp(process.now);
        if gives_up {
            if process.unmap(flow).is_ok() {
                self.grants.of.retain(|_, grant| grant.flow != flow);
            }
            return;
        }
        let Ok((external, lifetime)) = process.map(flow) else { return };
        self.note(Some(external), (flow, false), now.0);
        let until = now.plus(lifetime);
        self.grants.of.insert(external, Grant { flow, at: now, until });
    }
}

/// Makes the workers of node a take turns in steps: first those beside the leading one, then that.
fn step(pair: &mut Pair, leads: bool) {
    pair.a().still = vec![usize::from(leads)];
    pair.run(0.01);
}

/// A host of the second worker renews its mapping at some moment of a planned move, after that
/// worker's turn and before the leading one's. What it is told holds at the new owner.
#[test]
fn a_renewal_at_any_moment_of_a_move_is_kept_by_the_new_owner() {
    let (mut confirmed, mut renewed) = (0, 0);
    for moment in 0..60 {
        let mut pair = Pair::of(Allotment::Many, Counts(2, 2));
        // The second worker borrows ports.
        flows(&mut pair, 2..60);
        let is_second = |host: &u8| {
            let process = pair.a.as_ref().expect("it runs");
            process.worker_of((0, Ipv4Addr::new(10, 0, 0, *host))) == 1
        };
        let flow = ((2..100).find(is_second).expect("it has hosts"), 80);
        let (external, _) = pair.a().map(flow).expect("granted");
        assert_eq!(external.0, A1);
        pair.run(100.0);
        pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
        let mut until = Timestamp(0);
        for turn in 0..400 {
            step(&mut pair, false);
            if turn == moment {
                pair.a().still.clear();
                if let Ok((to, lifetime)) = pair.a().map(flow) {
                    assert_eq!(to, external);
                    until = Timestamp(pair.now).plus(lifetime);
                    confirmed += usize::from(lifetime <= CONFIRMED);
                    renewed += usize::from(lifetime == LIFETIME);
                }
            }
            step(&mut pair, true);
        }
        pair.a().still.clear();
        pair.run(1.0);
        assert_eq!(pair.b().status().slices[0].role, "owner", "it moves");
        let ends: Vec<Timestamp> = pair
            .b()
            .engines()
            .flat_map(|engine| engine.mappings().collect::<Vec<_>>())
            .filter(|mapping| mapping.id.internal.port == flow.1)
            .filter_map(|mapping| mapping.expires)
            .collect();
        let [end] = ends[..] else { panic!("moment {moment}: {ends:?}") };
        assert!(end.0 + SECOND > until.0, "moment {moment}: {end:?} is before {until:?}");
    }
    assert!(confirmed > 0 && renewed > 0, "{confirmed} confirmed, {renewed} renewed");
}

/// A worker stands still between the two steps of the end of a drain. The other one carries
/// requests out again after a second, and for four.
#[test]
fn a_worker_that_stands_still_in_a_move_keeps_no_request_of_another_for_long() {
    let mut pair = Pair::of(Allotment::Many, Counts(2, 2));
    flows(&mut pair, 2..60);
    let is_first = |host: &u8| {
        let process = pair.a.as_ref().expect("it runs");
        process.worker_of((0, Ipv4Addr::new(10, 0, 0, *host))) == 0
    };
    let flow = ((2..100).find(is_first).expect("it has hosts"), 80);
    assert_eq!(pair.a().map(flow).expect("granted").0.0, A1);
    pair.run(3.0);
    pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
    for _ in 0..400 {
        step(&mut pair, false);
        step(&mut pair, true);
        if pair.a().fleet.orders[0].ends > 0 {
            break;
        }
    }
    assert!(pair.a().fleet.orders[0].ends > 0, "the end is ordered");
    pair.a().still = vec![1];
    let mut carried_out = 0;
    for _ in 0..60 {
        pair.run(0.1);
        let lifetime = pair.a().map(flow).map(|(_, lifetime)| lifetime);
        carried_out += u32::from(lifetime == Ok(LIFETIME));
    }
    assert!((30..=50).contains(&carried_out), "{carried_out} of 60");
    pair.a().still.clear();
    pair.run(4.0);
    pair.run(4.0);
    assert_eq!(pair.b().status().slices[0].role, "owner", "it moves");
}
