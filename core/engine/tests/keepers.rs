//! Holds that several keepers share: none of them takes back what another one has asked for.

mod common;

use common::*;
use natgate_engine::{
    Behavior, Config, Endpoint, ExplicitError, Keeper, Limits, MapRequest, Nonce, RemoteFilter,
    WantedEndpoint,
};
use natgate_wire::protocol::UDP;
use std::time::Duration;

const NONCE: Nonce = [7; 12];
const HOST: &str = "10.0.0.5:8080";

fn asking() -> Lab {
    let base = config();
    let limits =
        Limits { explicit_mappings: 64, explicit_per_subscriber: 8, ..base.limits.clone() };
    Lab::new(&Config { limits, filtering: Behavior::AddressAndPortDependent, ..base })
}

fn end(text: &str) -> Endpoint {
    let (address, port) = endpoint(text);
    Endpoint::new(address, port)
}

fn filter(last: u8) -> RemoteFilter {
    let address = u32::from_be_bytes([198, 51, 100, last]);
    RemoteFilter { address, prefix_len: 32, port: 0 }
}

/// A keeper with a number, who has asked for the remote address with this last byte.
fn keeper(number: u32, last: u8) -> Keeper {
    Keeper { nonce: NONCE, number, filter: filter(last) }
}

/// A request for a hold; without filters it admits everybody.
fn request(seconds: u64, filters: &[RemoteFilter]) -> MapRequest<'_> {
    MapRequest {
        protocol: UDP,
        realm: 0,
        internal: end(HOST),
        wanted: WantedEndpoint::default(),
        lifetime: Duration::from_secs(seconds),
        nonce: NONCE,
        replaces_filters: filters.is_empty(),
        filters,
    }
}

/// Asks for a hold. Returns the seconds that it lasts now.
fn ask(lab: &mut Lab, (number, last): (u32, u8), seconds: u64) -> u64 {
    let filters = [filter(last)];
    let request = request(seconds, &filters);
    let made = lab.engine.map_for(lab.now, &request, number).expect("a mapping");
    let lifetime = made.lifetime.expect("an end");
    assert_eq!(Some(lifetime), left(lab));
    lifetime.as_secs()
}

/// The time that the hold still lasts.
fn left(lab: &Lab) -> Option<Duration> {
    let made = lab.engine.mappings().next()?;
    made.expires.map(|expires| expires.since(lab.now))
}

fn shorten(lab: &mut Lab, (number, last): (u32, u8), seconds: u64) -> u64 {
    let lifetime = Duration::from_secs(seconds);
    lab.engine.shorten(lab.now, (UDP, 0, end(HOST)), keeper(number, last), lifetime);
    left(lab).map_or(0, |left| left.as_secs())
}

fn withdraw(lab: &mut Lab, (number, last): (u32, u8)) -> u64 {
    lab.engine.withdraw(lab.now, (UDP, 0, end(HOST)), keeper(number, last));
    left(lab).map_or(0, |left| left.as_secs())
}

#[test]
fn a_hold_that_lasts_longer_keeps_its_time() {
    let mut lab = asking();
    assert_eq!(ask(&mut lab, (1, 1), 3600), 3600);
    assert_eq!(ask(&mut lab, (1, 1), 60), 3600);
    assert_eq!(ask(&mut lab, (2, 1), 60), 3600);
    lab.wait_s(3000.0);
    assert_eq!(ask(&mut lab, (2, 1), 60), 600);
    assert_eq!(ask(&mut lab, (1, 2), 900), 900);
}

#[test]
fn a_keeper_takes_back_only_what_others_have_not_asked_for() {
    let mut lab = asking();
    ask(&mut lab, (1, 1), 600);
    // Alone.
    assert_eq!(shorten(&mut lab, (2, 1), 60), 600);
    assert_eq!(shorten(&mut lab, (1, 1), 500), 500);
    // The second one asks for more, and the registrar refuses.
    assert_eq!(ask(&mut lab, (2, 1), 3600), 3600);
    assert_eq!(shorten(&mut lab, (1, 1), 60), 3600);
    assert_eq!(withdraw(&mut lab, (1, 1)), 3600);
    assert_eq!(shorten(&mut lab, (2, 1), 60), 500);
    // It asks for less.
    assert_eq!(ask(&mut lab, (2, 1), 30), 500);
    assert_eq!(withdraw(&mut lab, (2, 1)), 500);
    // The first one again.
    lab.wait_s(100.0);
    assert_eq!(ask(&mut lab, (1, 1), 900), 900);
    assert_eq!(shorten(&mut lab, (1, 1), 60), 400);
    // When the time of the others is over, the last one is alone.
    lab.wait_s(300.0);
    assert_eq!(ask(&mut lab, (1, 1), 900), 900);
    lab.wait_s(101.0);
    assert_eq!(withdraw(&mut lab, (1, 1)), 0);
    assert_eq!(lab.engine.mappings().count(), 0);
}

/// Two keepers with a remote address each.
#[test]
fn the_end_of_the_last_keeper_leaves_the_time_of_others() {
    let mut lab = asking();
    ask(&mut lab, (1, 1), 600);
    assert_eq!(ask(&mut lab, (2, 2), 3600), 3600);
    assert_eq!(withdraw(&mut lab, (2, 2)), 600);
    let admitted = lab.engine.admits_requested(UDP, 0, end(HOST), Some(filter(1)));
    assert_eq!(admitted.map(|left| left.as_secs()), Some(600));
}

/// The registrar of the second keeper grants less time, or none.
#[test]
fn a_keeper_beside_another_remote_address_can_end_sooner() {
    let mut lab = asking();
    ask(&mut lab, (1, 1), 600);
    ask(&mut lab, (2, 2), 3600);
    assert_eq!(shorten(&mut lab, (2, 3), 60), 3600, "an address that is not admitted");
    assert_eq!(shorten(&mut lab, (2, 2), 900), 900);
    assert_eq!(shorten(&mut lab, (2, 2), 60), 600);
    for last in [1, 2] {
        let admitted = lab.engine.admits_requested(UDP, 0, end(HOST), Some(filter(last)));
        assert_eq!(admitted.map(|left| left.as_secs()), Some(600));
    }
}

/// Asks for a hold that admits everybody.
fn open(lab: &mut Lab, number: u32, seconds: u64) -> Result<u64, ExplicitError> {
    let request = request(seconds, &[]);
    let made = lab.engine.map_for(lab.now, &request, number)?;
    Ok(made.lifetime.expect("an end").as_secs())
}

#[test]
fn nobody_opens_a_hold_for_the_time_of_its_filters() {
    let mut lab = asking();
    assert!(!lab.engine.is_requested(UDP, 0, end(HOST)));
    ask(&mut lab, (1, 1), 3600);
    assert!(lab.engine.is_requested(UDP, 0, end(HOST)));
    for keeper in [1, 2] {
        assert_eq!(open(&mut lab, keeper, 180), Err(ExplicitError::Filters));
    }
    let mut admits =
        |last| lab.engine.admits_requested(UDP, 0, end(HOST), last).map(|left| left.as_secs());
    assert_eq!((admits(Some(filter(1))), admits(None)), (Some(3600), None));
    lab.wait_s(3500.0);
    assert_eq!(open(&mut lab, 2, 180), Ok(180));
    assert_eq!(open(&mut lab, 1, 30), Ok(180));
}

/// A generator of test choices (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Random keepers: the hold lasts as long as somebody has asked, or as was asked at all.
#[test]
fn no_keeper_loses_its_time() {
    let seed = 3;
    println!("seed {seed}");
    let mut random = Random(seed);
    for round in 0..300_u16 {
        let mut lab = asking();
        // The end that each keeper needs, and the latest that anybody has asked for.
        let (mut needs, mut latest, mut now) = ([0_u64; 3], 0, 0);
        for _ in 0..40 {
            let number = random.below(3) as usize;
            let seconds = 30 * (1 + random.below(20));
            // All have one remote address, or each has its own.
            let last = 1 + number as u8 * (round % 2) as u8;
            let of = (number as u32 + 1, last);
            let had = now + left(&lab).map_or(0, |left| left.as_secs());
            let end = now
                + match random.below(4) {
                    0 | 1 => {
                        needs[number] = needs[number].max(now + seconds);
                        latest = latest.max(now + seconds);
                        ask(&mut lab, of, seconds)
                    }
                    2 if needs[number] > now => {
                        needs[number] = needs[number].min(now + seconds);
                        shorten(&mut lab, of, seconds)
                    }
                    3 if needs[number] > now => {
                        needs[number] = 0;
                        withdraw(&mut lab, of)
                    }
                    _ => {
                        lab.wait_s(seconds as f64);
                        now += seconds;
                        continue;
                    }
                };
            for need in needs.into_iter().filter(|need| *need > now) {
                assert!(end >= need, "{end} is before {need}, at {now}");
            }
            assert!(end <= latest.max(now).max(had), "{end} is after {latest}, at {now}");
        }
    }
}

/// The copy of a hold belongs to the engine that decides about the mapping.
#[test]
fn a_partner_changes_no_hold() {
    let mut lab = asking();
    lab.engine.join_pair();
    let all = lab.engine.config().pools[0].addresses[0];
    lab.engine.set_duty(all, OWNER);
    ask(&mut lab, (1, 1), 600);
    lab.engine.set_duty(all, PARTNER);
    assert_eq!(shorten(&mut lab, (1, 1), 60), 600);
    assert_eq!(withdraw(&mut lab, (1, 1)), 600);
    let limited = lab.engine.admit_only(UDP, 0, end(HOST), NONCE, filter(2));
    assert_eq!(limited, None);
    lab.engine.set_duty(all, OWNER);
    assert_eq!(shorten(&mut lab, (1, 1), 60), 60);
}
