//! The translator between the families, with the engine behind it, and the model on random packets.
//!
//! A case is made from one number for the configuration and one for each operation: fresh packets,
//! answers to and ICMP errors about packets that left, repeated packets, and time. A failing case
//! is shrunk, and proptest prints and keeps its numbers. PROPTEST_CASES sets the number of cases.

mod configs;
mod packets;
mod rng;

use natgate_compare::{Divergence, FamilyPair, Left};
use natgate_engine::{Side, Timestamp};
use natgate_ipv6::Settings;
use proptest::prelude::*;
use rng::Rng;
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

    fn of(mut rng: Rng, settings: Settings) -> Result<Self, Divergence> {
        let config = configs::engine(&mut rng, &settings);
        let pair = FamilyPair::new(&settings, &config, rng.seed(), START)?;
        Ok(Self { pair, settings, now: START, left: Vec::new(), given: Vec::new() })
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
        let Some((side, mut bytes)) = self.packet(&mut rng) else { return Ok(()) };
        packets::mutate(&mut rng, &mut bytes);
        if !self.pair.is_modelled(side, &bytes) {
            return Ok(());
        }
        self.left.extend(self.pair.take(self.now, side, &bytes)?);
        self.given.push((side, bytes));
        Ok(())
    }

    /// A packet and the side that it comes from.
    fn packet(&mut self, rng: &mut Rng) -> Option<Left> {
        let side = rng.one_of(&[Side::Inside, Side::Outside]);
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

    /// Translator, engine and model agree on NAT64 beside the other tables.
    #[test]
    fn stateful_translation_agrees_with_the_model(
        config: u64,
        operations in prop::collection::vec(any::<u64>(), 1..120),
    ) {
        run(World::stateful(config), &operations).map_err(TestCaseError::fail)?;
    }
}
