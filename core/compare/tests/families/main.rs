//! The translator between the families, with the engine behind it, and the model on random packets.
//!
//! A case is made from one number for the configuration and one for each operation: fresh packets,
//! answers to and ICMP errors about packets that left, repeated packets, other pairs of NPTv6, and
//! time. A failing case is shrunk, and proptest prints and keeps its numbers. PROPTEST_CASES sets
//! the number of cases.

mod configs;
mod packets;
mod rng;
mod tunnels;

use natgate_compare::{Divergence, FamilyPair, HostRequest, Left};
use natgate_engine::{Counters, Direction, DropReason, Outcome, Side, Timestamp, WantedEndpoint};
use natgate_ipv6::{Requester, Settings};
use proptest::prelude::*;
use rng::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const START: Timestamp = Timestamp(1_000_000_000_000);

fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(usual), ..ProptestConfig::default() }
}

/// Both translators, and what has happened.
struct World {
    pair: FamilyPair,
    settings: Settings,
    now: Timestamp,
    /// Packets that left, and those that were given, with their sides.
    left: Vec<Left>,
    given: Vec<Left>,
    /// Packets from tunnels that have not been given yet.
    pieces: Vec<Vec<u8>>,
}

impl World {
    fn stateless(number: u64) -> Result<Self, Divergence> {
        let mut rng = Rng(number);
        let settings = configs::stateless(&mut rng);
        Self::of(rng, settings)
    }

    fn stateful(number: u64) -> Result<Self, Divergence> {
        let mut rng = Rng(number);
        let settings = configs::stateful(&mut rng);
        Self::of(rng, settings)
    }

    fn tunneled(number: u64) -> Result<Self, Divergence> {
        let mut rng = Rng(number);
        let settings = tunnels::settings(&mut rng);
        Self::of(rng, settings)
    }

    /// NAT64 and DS-Lite.
    fn both(number: u64) -> Result<Self, Divergence> {
        let mut rng = Rng(number);
        let settings = configs::stateful(&mut rng);
        let settings = tunnels::beside(&mut rng, settings);
        Self::of(rng, settings)
    }

    fn of(mut rng: Rng, settings: Settings) -> Result<Self, Divergence> {
        let config = configs::engine(&mut rng, &settings);
        let pair = FamilyPair::new(&settings, &config, rng.seed(), START)?;
        let (left, given, pieces) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { pair, settings, now: START, left, given, pieces })
    }

    fn apply(&mut self, number: u64) -> Result<(), Divergence> {
        let mut rng = Rng(number);
        if rng.chance(12) {
            let seconds = rng.one_of(&[0, 1, 30, 239, 241, 299, 301, 7200, 7441]);
            let duration = Duration::from_millis(seconds * 1000 + rng.next() % 1000);
            self.now = self.now.plus(duration);
            return self.pair.advance(self.now);
        }
        self.now = self.now.plus(Duration::from_micros(rng.next() % 5000));
        if !self.settings.nptv6.is_empty() && rng.chance(20) {
            self.settings.nptv6 = configs::nptv6(&mut rng);
            return self.pair.exchange_pairs(&self.settings.nptv6);
        }
        let has_numbers = self.settings.nat64.is_some() || self.settings.dslite.is_some();
        if has_numbers && rng.chance(6) {
            let request = self.request(&mut rng);
            return self.pair.request(self.now, &request);
        }
        let Some((side, mut bytes)) = self.packet(&mut rng) else { return Ok(()) };
        packets::mutate(&mut rng, &mut bytes);
        if !self.pair.is_modelled(side, &bytes) {
            return Ok(());
        }
        self.left.extend(self.pair.take(self.now, side, &bytes)?);
        self.given.push((side, bytes));
        Ok(())
    }

    /// A host of NAT64 or DS-Lite that requests something, and a remote address.
    fn requester(&self, rng: &mut Rng) -> (Requester, IpAddr) {
        let has_both = self.settings.nat64.is_some() && self.settings.dslite.is_some();
        if self.settings.dslite.is_some() && !(has_both && rng.chance(2)) {
            let remote = Ipv4Addr::from_bits(configs::ipv4_address(rng));
            let known = configs::host_and_remote(rng, &self.settings);
            let known = known.filter(|_| has_both && rng.chance(4));
            // A host behind a tunnel knows no address of NAT64.
            let other = known.map(|(_, remote)| Ipv6Addr::from_bits(remote).into());
            return (tunnels::requester(rng), other.unwrap_or(remote.into()));
        }
        let (host, remote) = match configs::host_and_remote(rng, &self.settings) {
            Some(ends) if !rng.chance(4) => ends,
            _ => {
                let mut address = || configs::ipv6_address(rng, &self.settings);
                (address(), address())
            }
        };
        (Ipv6Addr::from_bits(host).into(), Ipv6Addr::from_bits(remote).into())
    }

    /// A request of a host for a mapping or a session.
    fn request(&self, rng: &mut Rng) -> HostRequest {
        let (host, remote) = self.requester(rng);
        let remote = (remote, rng.one_of(&[53, 80, 4000, 0]));
        HostRequest {
            host,
            protocol: rng.one_of(&[6, 17, 17, 33, 50]),
            port: rng.one_of(&[80, 4000, 4001, 5000, 0]),
            remote: rng.chance(3).then_some(remote),
            wanted: WantedEndpoint {
                address: rng.chance(4).then_some(configs::EXTERNAL),
                port: rng.one_of(&[0, 0, 2001, 2004]),
                strict: rng.chance(4),
            },
            lifetime: Duration::from_secs(rng.one_of(&[0, 1, 30, 300, 7200])),
            nonce: [rng.one_of(&[1, 1, 1, 2]); 12],
        }
    }

    /// A packet and the side that it comes from.
    fn packet(&mut self, rng: &mut Rng) -> Option<Left> {
        let side = rng.one_of(&[Side::Inside, Side::Outside]);
        if self.settings.dslite.is_some() {
            if self.pieces.is_empty() && !rng.chance(3) {
                self.pieces = self.through_tunnel(rng);
            }
            if !self.pieces.is_empty() && !rng.chance(6) {
                let piece = self.pieces.swap_remove(rng.below(self.pieces.len()));
                return Some((Side::Inside, piece));
            }
        }
        if self.settings.dslite.is_some()
            && rng.chance(6)
            && let Some(bytes) = self.turning(rng)
        {
            return Some((Side::Inside, bytes));
        }
        match rng.below(10) {
            0..5 => Some((side, self.fresh(rng))),
            5 | 6 => {
                let (to, bytes) = self.one_of(rng, &self.left)?;
                Some((to, packets::answer(rng, &bytes)))
            }
            7 | 8 => {
                let (to, bytes) = self.one_of(rng, &self.left)?;
                Some((to, self.error(rng, &bytes)))
            }
            _ => self.one_of(rng, &self.given),
        }
    }

    /// A packet of a host of NAT64 to the external endpoint that a packet left with.
    fn turning(&self, rng: &mut Rng) -> Option<Vec<u8>> {
        let nat64 = self.settings.nat64.as_ref()?;
        let (to, bytes) = self.one_of(rng, &self.left)?;
        if to != Side::Outside || bytes[0] >> 4 != 4 {
            return None;
        }
        let answer = packets::answer(rng, &bytes);
        let external = u32::from_be_bytes([answer[16], answer[17], answer[18], answer[19]]);
        let (host, _) = configs::host_and_remote(rng, &self.settings)?;
        let external = rng.one_of(&nat64.prefixes).embed(external.into()).to_bits();
        packets::in_six(rng, (host, external), &answer)
    }

    /// A packet from a tunnel, or its fragments.
    fn through_tunnel(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        let Some((to, bytes)) = self.one_of(rng, &self.left) else {
            return tunnels::fresh(rng, &self.settings);
        };
        let opened = tunnels::open(&self.settings, &bytes);
        match (rng.below(4), opened) {
            (0 | 1, Some(opened)) => tunnels::answer(rng, &self.settings, opened),
            (2, Some(opened)) => tunnels::error(rng, &self.settings, &bytes, opened),
            (0, None) if to == Side::Outside && bytes[0] >> 4 == 4 => {
                tunnels::turning(rng, &self.settings, &bytes)
            }
            _ => tunnels::fresh(rng, &self.settings),
        }
    }

    fn one_of(&self, rng: &mut Rng, from: &[Left]) -> Option<Left> {
        let count = from.len().min(12);
        let latest = &from[from.len() - count..];
        if latest.is_empty() { None } else { Some(latest[rng.below(count)].clone()) }
    }

    fn fresh(&self, rng: &mut Rng) -> Vec<u8> {
        if rng.chance(3) {
            let ends = (configs::ipv4_address(rng), configs::ipv4_address(rng));
            return packets::four(rng, ends);
        }
        let mut address = || configs::ipv6_address(rng, &self.settings);
        let ends = (address(), address());
        packets::six(rng, ends)
    }

    /// An error from the receiver of a packet, or from a router, to its sender.
    fn error(&self, rng: &mut Rng, about: &[u8]) -> Vec<u8> {
        let at = |from: usize, len: usize| {
            about[from..from + len].iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte))
        };
        let is_router = rng.chance(2);
        if about[0] >> 4 == 6 {
            let router = configs::ipv6_address(rng, &self.settings);
            let source = if is_router { router } else { at(24, 16) };
            return packets::error6(rng, (source, at(8, 16)), about);
        }
        let router = configs::ipv4_address(rng);
        let source = if is_router { router } else { at(16, 4) as u32 };
        packets::error4(rng, (source, at(12, 4) as u32), about)
    }
}

fn run(world: Result<World, Divergence>, operations: &[u64]) -> Result<(), Divergence> {
    let mut world = world?;
    for (number, operation) in operations.iter().enumerate() {
        let result = world.apply(*operation).and_then(|()| world.pair.check_state());
        result.map_err(|divergence| {
            format!("operation {number}: {divergence}\n{:?}", world.settings)
        })?;
    }
    Ok(())
}

/// Sends a packet from a host inside to a remote host of IPv4, and the answer back. Returns the
/// answer that reached the host, and the one that should have; `None`: the packet did not leave.
fn there_and_back(
    world: Result<World, Divergence>,
    number: u64,
) -> Result<Option<[Vec<u8>; 2]>, Divergence> {
    let (mut world, mut rng) = (world?, Rng(number));
    let ends = configs::host_and_remote(&mut rng, &world.settings);
    let Some(ends) = ends else { return Ok(None) };
    let sent = packets::plain6(&mut rng, ends);
    let left = world.pair.take(START, Side::Inside, &sent)?;
    let [(Side::Outside, left)] = &left[..] else { return Ok(None) };
    let answer = packets::answer(&mut Rng(number), left);
    let mut back = world.pair.take(START, Side::Outside, &answer)?;
    let mut wanted = packets::answer(&mut Rng(number), &sent);
    wanted[7] = 63;
    match back.pop() {
        Some((Side::Inside, mut came)) if back.is_empty() => {
            // The traffic class is as configured.
            (came[0], came[1]) = (0x60, 0);
            Ok(Some([came, wanted]))
        }
        _ => Ok(Some([vec![], wanted])),
    }
}

proptest! {
    #![proptest_config(cases(100))]

    /// The answer to a packet comes back to its sender as if the remote host had IPv6. No port is
    /// left in few cases only: each world is new.
    #[test]
    fn answers_come_back(config: u64, number: u64) {
        for world in [World::stateless(config), World::stateful(config)] {
            if let Some([came, wanted]) =
                there_and_back(world, number).map_err(TestCaseError::fail)?
            {
                prop_assert_eq!(came, wanted);
            }
        }
    }
}

/// The random packets of tunnels meet the rules that they are made for.
#[test]
fn tunnels_meet_every_rule() {
    let mut seen = Counters::default();
    for number in 0..150_u64 {
        let mut rng = Rng(number);
        let mut world = World::tunneled(rng.next()).expect("good settings");
        for _ in 0..150 {
            world.apply(rng.next()).unwrap_or_else(|wrong| panic!("world {number}: {wrong}"));
        }
        seen.add(world.pair.engine.counters());
        seen.add(&world.pair.translator.counters());
    }
    let reasons = [
        DropReason::SoftwireSource,
        DropReason::NotIpv4,
        DropReason::BadHeaderChecksum,
        DropReason::MartianSource,
        DropReason::NotSubscriber,
        DropReason::EcnCongestion,
        DropReason::SegmentsLeft,
        DropReason::LocalUnsupported,
        DropReason::FragmentOverlap,
        DropReason::FragmentTiny,
        DropReason::FragmentLimit,
        DropReason::FragmentUnmatched,
        DropReason::IcmpNoSession,
        DropReason::IcmpBadChecksum,
        DropReason::PortQuota,
        DropReason::MappingTableFull,
        DropReason::NoMapping,
        DropReason::TtlExceeded,
    ];
    let missing: Vec<_> =
        reasons.iter().filter(|reason| seen.drops[**reason as usize] == 0).collect();
    assert!(missing.is_empty(), "no packet met {missing:?}");
    for way in [Direction::Outbound, Direction::Inbound, Direction::Hairpin] {
        let passed = seen.packets[way as usize][Outcome::Forwarded as usize];
        assert!(passed > 50, "{way:?}: {passed}");
    }
    assert!(seen.packets[Direction::Local as usize][Outcome::Replied as usize] > 10, "{seen:?}");
}

/// The random packets of hosts of NAT64 and of hosts behind tunnels meet each other.
#[test]
fn hosts_of_both_kinds_reach_each_other() {
    let mut turned = [0; 2];
    for number in 0..150_u64 {
        let mut rng = Rng(number);
        let mut world = World::both(rng.next()).expect("good settings");
        for _ in 0..150 {
            let (given, left) = (world.given.len(), world.left.len());
            world.apply(rng.next()).unwrap_or_else(|wrong| panic!("world {number}: {wrong}"));
            let Some((Side::Inside, came)) = world.given.get(given) else { continue };
            let is_tunneled = |bytes: &[u8]| tunnels::is_tunneled(&world.settings, bytes);
            for (_, bytes) in world.left[left..].iter().filter(|(to, _)| *to == Side::Inside) {
                if bytes[0] >> 4 == 6 && came[0] >> 4 == 6 {
                    match (is_tunneled(came), is_tunneled(bytes)) {
                        (true, false) => turned[0] += 1,
                        (false, true) => turned[1] += 1,
                        _ => {}
                    }
                }
            }
        }
    }
    assert!(turned.iter().all(|count| *count > 20), "{turned:?}");
}

/// Sends a packet through a tunnel to a remote host, and the answer back. Returns what came out of
/// the tunnel, and what should have; `None`: the packet did not leave.
fn there_and_back_again(
    world: Result<World, Divergence>,
    number: u64,
) -> Result<Option<[Vec<u8>; 2]>, Divergence> {
    let (mut world, mut rng) = (world?, Rng(number));
    let (ends, host) = tunnels::host(&mut rng, &world.settings);
    let sent = packets::plain4(&mut rng, (host, 0x0909_0909));
    let outer = packets::wrap6(&mut Rng(number), ends, 4, None, &sent);
    let left = world.pair.take(START, Side::Inside, &outer)?;
    let [(Side::Outside, left)] = &left[..] else { return Ok(None) };
    let answer = packets::answer(&mut Rng(number), left);
    let back = world.pair.take(START, Side::Outside, &answer)?;
    let mut wanted = packets::answer(&mut Rng(number), &sent);
    packets::take_hop(&mut wanted);
    let came = match &back[..] {
        [(Side::Inside, came)] => tunnels::open(&world.settings, came),
        _ => None,
    };
    let came = came.filter(|(b4, _)| *b4 == ends.0);
    Ok(Some([came.map_or(Vec::new(), |(_, inner)| inner), wanted]))
}

proptest! {
    #![proptest_config(cases(200))]

    /// The answer to a packet from a tunnel comes back through the tunnel, as if there were no
    /// gateway: addresses, ports and checksums are those of the host.
    #[test]
    fn answers_come_back_through_the_tunnel(config: u64, number: u64) {
        if let Some([came, wanted]) =
            there_and_back_again(World::tunneled(config), number).map_err(TestCaseError::fail)?
        {
            prop_assert_eq!(came, wanted);
        }
    }
}

proptest! {
    #![proptest_config(cases(250))]

    /// Translator and model agree on SIIT, the CLAT, NPTv6 and routing.
    #[test]
    fn stateless_translation_agrees_with_the_model(
        config: u64,
        operations in prop::collection::vec(any::<u64>(), 1..120),
    ) {
        run(World::stateless(config), &operations).map_err(TestCaseError::fail)?;
    }

    /// Translator, engine and model agree on DS-Lite beside the other tables.
    #[test]
    fn tunnels_agree_with_the_model(
        config: u64,
        operations in prop::collection::vec(any::<u64>(), 1..160),
    ) {
        run(World::tunneled(config), &operations).map_err(TestCaseError::fail)?;
    }

    /// Translator, engine and model agree on NAT64 beside DS-Lite.
    #[test]
    fn both_agree_with_the_model(
        config: u64,
        operations in prop::collection::vec(any::<u64>(), 1..160),
    ) {
        run(World::both(config), &operations).map_err(TestCaseError::fail)?;
    }

    /// Translator, engine and model agree on NAT64 beside the other tables.
    #[test]
    fn stateful_translation_agrees_with_the_model(
        config: u64,
        operations in prop::collection::vec(any::<u64>(), 1..120),
    ) {
        run(World::stateful(config), &operations).map_err(TestCaseError::fail)?;
    }
}
