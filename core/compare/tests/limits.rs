//! Engine and model at limits that the random comparison does not reach.

mod common;

use common::{A, EXTERNAL, REMOTE, START, Spec, end};
use natgate_compare::{Divergence, Pair};
use natgate_engine::{
    AddressRange, Config, DropReason, Endpoint, Engine, Limits, Side, StaticMapping, Verdict,
};
use natgate_wire::protocol::{GRE, TCP, UDP};
use std::net::Ipv4Addr;
use std::time::Duration;

const WHOLE: Endpoint = end([203, 0, 113, 80], 0);
/// Packets a batch: the largest number, because each batch is followed by a look at everything.
const BATCH: usize = Engine::MAX_BATCH;

/// The rate of errors permits an answer to every packet.
fn config() -> Config {
    Config {
        limits: Limits { icmp_errors_per_second: 1_000_000, ..Limits::default() },
        ..common::config()
    }
}

/// Number of packets dropped for a reason, and number of answered ones.
fn send(
    pair: &mut Pair,
    from: Side,
    packets: &[Vec<u8>],
    reason: DropReason,
) -> Result<(usize, usize), Divergence> {
    let (mut dropped, mut answered) = (0, 0);
    for batch in packets.chunks(BATCH) {
        let (done, answers) = pair.process(START, from, batch)?;
        dropped += done.iter().filter(|one| one.verdict == Verdict::Drop(reason)).count();
        answered += answers.len();
    }
    Ok((dropped, answered))
}

/// 3.25: a whole mapped address has 4,096 mappings at a time. A further one from inside is refused
/// with an answer.
#[test]
fn an_address_mapped_as_a_whole_is_full_some_time() -> Result<(), Divergence> {
    let whole = StaticMapping {
        protocol: None,
        internal: (A.address, None),
        external: (WHOLE.address, None),
        ..StaticMapping::default()
    };
    let mut pair = Pair::new(&Config { statics: vec![whole], ..config() }, [0; 32], START)?;
    let out = |port: u16| Spec::new(TCP, Endpoint { port, ..A }, REMOTE).bytes();
    let packets: Vec<Vec<u8>> = (1..4096 + 20).map(out).collect();
    let full = DropReason::MappingTableFull;
    assert_eq!(send(&mut pair, Side::Inside, &packets, full)?, (19, 19));
    let into = Spec::new(UDP, REMOTE, Endpoint { port: 1, ..WHOLE }).bytes();
    assert_eq!(send(&mut pair, Side::Outside, &[into], full)?, (1, 0));
    pair.check_state()
}

/// 5.13: of a pool of many addresses, some are looked at for a mapping without a port. Engine and
/// model agree while the pool fills, and when it is full.
#[test]
fn a_pool_of_many_addresses_fills_with_mappings_without_ports() -> Result<(), Divergence> {
    const ADDRESSES: u32 = 48;
    const HOSTS: u32 = 250;
    let last = Ipv4Addr::from_bits(EXTERNAL.address.to_bits() + ADDRESSES - 1);
    let mut config = config();
    config.pools[0].addresses = vec![AddressRange { first: EXTERNAL.address, last }];
    config.limits.mappings = Some(4096);
    let mut pair = Pair::new(&config, [0; 32], START)?;
    let packet = |host: u32| {
        let address = Ipv4Addr::from_bits(A.address.to_bits() + host);
        Spec::new(GRE, Endpoint { address, port: 0 }, REMOTE).bytes()
    };
    let mut made = 0;
    for _ in 0..4 {
        for host in 0..HOSTS {
            let (done, _) = pair.process(START, Side::Inside, &[packet(host)])?;
            match done[0].verdict {
                Verdict::Forward(Side::Outside) => {}
                verdict => assert_eq!(verdict, Verdict::Drop(DropReason::Ambiguous)),
            }
        }
        made = pair.engine.mappings().count();
    }
    assert_eq!(made, ADDRESSES as usize, "all addresses are found in the end");
    pair.check_state()
}

/// 3.33: a static mapping has 65,535 sessions.
#[test]
fn a_static_mapping_is_full_some_time() -> Result<(), Divergence> {
    let web = StaticMapping {
        protocol: Some(UDP),
        internal: (A.address, Some(A.port)),
        external: (WHOLE.address, Some(A.port)),
        ..StaticMapping::default()
    };
    let limits = Limits {
        sessions_per_mapping: 1,
        extra_sessions: Some(100_000),
        extra_sessions_per_subscriber: Some(0),
        ..config().limits
    };
    let mut pair = Pair::new(&Config { statics: vec![web], limits, ..config() }, [0; 32], START)?;
    let to = |client: u32| Endpoint::new(REMOTE.address.to_bits() + client, 80);
    let packets: Vec<Vec<u8>> =
        (0..65_535 + 9).map(|client| Spec::new(UDP, A, to(client)).bytes()).collect();
    let full = DropReason::SessionLimit;
    assert_eq!(send(&mut pair, Side::Inside, &packets, full)?, (9, 0));
    pair.check_state()
}

/// 3.35, 4.20: when the first session of a mapping goes, the one made last takes its place. If a
/// stranger made it, strangers may make one more.
#[test]
fn the_session_made_last_takes_the_place_of_the_first() -> Result<(), Divergence> {
    let limits = Limits { extra_sessions: Some(2), ..config().limits };
    for [second, third] in [[Side::Inside, Side::Outside], [Side::Outside, Side::Inside]] {
        let mut pair = Pair::new(&Config { limits: limits.clone(), ..config() }, [0; 32], START)?;
        let after = |seconds| START.plus(Duration::from_secs(seconds));
        let (first, _) = pair.process(START, Side::Inside, &[Spec::new(UDP, A, REMOTE).bytes()])?;
        let external = Spec::like(&first[0].bytes).source;
        let packet = |from: Side, port: u16| {
            let remote = Endpoint { port, ..REMOTE };
            match from {
                Side::Inside => Spec::new(UDP, A, remote).bytes(),
                Side::Outside => Spec::new(UDP, remote, external).bytes(),
            }
        };
        for (at, from) in [(1, second), (2, third)] {
            let (done, _) = pair.process(after(at), from, &[packet(from, at as u16)])?;
            assert_eq!(done[0].verdict, Verdict::Forward(from.other()));
        }
        pair.advance(after(300))?;
        pair.check_state()?;
        let (done, _) = pair.process(after(300), Side::Outside, &[packet(Side::Outside, 3)])?;
        let admitted = done[0].verdict == Verdict::Forward(Side::Inside);
        assert_eq!(admitted, third == Side::Outside);
        pair.check_state()?;
    }
    Ok(())
}

/// 4.23: 1,024 unsolicited SYNs are remembered.
#[test]
fn so_many_unsolicited_syns_are_answered_and_no_more() -> Result<(), Divergence> {
    let mut pair = Pair::new(&config(), [0; 32], START)?;
    let from = |index: u32| Endpoint::new(REMOTE.address.to_bits() + index, 80);
    let syns: Vec<Vec<u8>> =
        (0..1030).map(|index| Spec::new(TCP, from(index), EXTERNAL).bytes()).collect();
    let dropped = send(&mut pair, Side::Outside, &syns, DropReason::NoMapping)?;
    assert_eq!(dropped, (1030, 0));
    assert_eq!(pair.advance(START.plus(Duration::from_secs(6)))?.len(), 1024);
    assert_eq!(pair.model.counters().errors_suppressed, 6);
    pair.check_state()
}
