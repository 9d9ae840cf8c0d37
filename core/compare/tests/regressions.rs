//! Cases in which engine and model once differed, made small.

mod common;

use common::{A, EXTERNAL, START, Spec, Sum, end, error_about};
use natgate_compare::{Divergence, Pair};
use natgate_engine::{
    AddressRange, Behavior, Config, DropReason, Endpoint, Limits, Match, PoolConfig, Prefix, Rule,
    RuleAction, Side, StaticMapping, Timeouts, Verdict,
};
use natgate_wire::Ipv4;
use natgate_wire::protocol::{DCCP, ICMP, UDP};
use std::time::Duration;

/// UDP mappings that go after four seconds.
fn config() -> Config {
    Config {
        timeouts: Timeouts { udp: Duration::from_secs(4), ..Timeouts::default() },
        ..common::config()
    }
}

fn remote(port: u16) -> Endpoint {
    end([198, 51, 100, 1], port)
}

/// A mapping that depends on the remote port keeps its first remote endpoint, even when that
/// session is gone and another port of the same address comes in.
#[test]
fn a_mapping_keeps_its_key_when_its_first_session_goes() -> Result<(), Divergence> {
    let config = Config { mapping: Behavior::AddressAndPortDependent, ..config() };
    let after = |seconds| START.plus(Duration::from_secs(seconds));
    let mut pair = Pair::new(&config, [0; 32], START)?;
    let out = Spec::new(UDP, A, remote(80)).bytes();
    let (done, _) = pair.process(START, Side::Inside, std::slice::from_ref(&out))?;
    let external = Spec::like(&done[0].bytes).source;
    for (seconds, port) in [(2, 81), (5, 82)] {
        pair.advance(after(seconds))?;
        let into = Spec::new(UDP, remote(port), external).bytes();
        pair.process(after(seconds), Side::Outside, &[into])?;
        pair.check_state()?;
    }
    pair.process(after(5), Side::Inside, &[out])?;
    pair.check_state()?;
    pair.advance(after(60))?;
    pair.check_state()
}

/// A port with the end of its hold-down at the present tick makes room for a new held port. Ports
/// that are due later stay held.
#[test]
fn what_is_due_now_makes_room_for_what_is_held_now() -> Result<(), Divergence> {
    let seconds = Duration::from_secs;
    let config = Config {
        limits: Limits { held_ports: Some(2), ..Limits::default() },
        timeouts: Timeouts { udp: seconds(4), hold_down: seconds(10), ..Timeouts::default() },
        ..config()
    };
    let mut pair = Pair::new(&config, [0; 32], START)?;
    for (second, port) in [(0, 1000), (5, 1001), (10, 1002)] {
        let now = START.plus(seconds(second));
        pair.advance(now)?;
        let out = Spec::new(UDP, Endpoint { port, ..A }, remote(80)).bytes();
        pair.process(now, Side::Inside, &[out])?;
    }
    for second in [13, 14, 18, 19, 24] {
        pair.advance(START.plus(seconds(second)))?;
        pair.check_state()?;
    }
    assert_eq!(pair.model.pool_usage(0, UDP).held, 0);
    Ok(())
}

/// A source route in the packet that an ICMP error embeds is the reason for the drop, even if that
/// packet is a later fragment.
#[test]
fn an_embedded_source_route_is_seen_before_the_rest() -> Result<(), Divergence> {
    let mut pair = Pair::new(&config(), [0; 32], START)?;
    let options = vec![1, 131, 3, 4];
    let sent = Spec { options, ..Spec::new(UDP, EXTERNAL, remote(80)) };
    let mut about = sent.bytes();
    let mut later = Ipv4::new_checked(&mut about[..]).expect("made so");
    later.set_fragment_field(1);
    later.fill_checksum();
    let error = error_about(&about, remote(0), (11, 0), 60);
    let (done, _) = pair.process(START, Side::Outside, &[error])?;
    assert_eq!(done[0].verdict, Verdict::Drop(DropReason::SourceRoute));
    Ok(())
}

/// A wrong checksum of 0xffff stays if the only change is an identifier of 0xffff to 0. It does not
/// become 0, although 0 would be wrong by the same amount.
#[test]
fn a_full_checksum_stays_full_when_a_full_identifier_becomes_zero() -> Result<(), Divergence> {
    let mut config = config();
    config.pools[0].ports = (0xffff, 0xffff);
    let mut pair = Pair::new(&config, [0; 32], START)?;
    let sum = Sum::Is(0xffff);
    let query = Spec { sum, ..Spec::new(ICMP, Endpoint { port: 0, ..A }, remote(0)) };
    let (sent, _) = pair.process(START, Side::Inside, &[query.bytes()])?;
    let answer = Spec { sum, ..Spec::answer(&sent[0].bytes) };
    let about = Spec { sum, ..Spec::like(&sent[0].bytes) };
    let error = error_about(&about.bytes(), remote(0), (3, 3), 28);
    for (packet, header_at) in [(answer.bytes(), 20), (error, 48)] {
        let (done, _) = pair.process(START, Side::Outside, &[packet])?;
        assert_eq!(done[0].bytes[header_at + 2..header_at + 6], [0xff, 0xff, 0, 0]);
    }
    Ok(())
}

/// A mapping that shares a port takes none, so no threshold is reported again.
#[test]
fn a_threshold_is_not_reached_again_by_a_port_that_is_shared() -> Result<(), Divergence> {
    let base = common::config();
    let pool = PoolConfig {
        ports: (2000, 2000),
        overloading: true,
        thresholds: vec![80],
        ..base.pools[0].clone()
    };
    let mut pair = Pair::new(&Config { pools: vec![pool], ..base }, [0; 32], START)?;
    for (second, port) in [(0, 1000), (100, 1001)] {
        let now = START.plus(Duration::from_secs(second));
        pair.advance(now)?;
        let out = Spec::new(UDP, Endpoint { port, ..A }, remote(port)).bytes();
        let (done, _) = pair.process(now, Side::Inside, &[out])?;
        assert_eq!(done[0].verdict, Verdict::Forward(Side::Outside));
        pair.check_state()?;
    }
    Ok(())
}

/// A subscriber without its last mapping of a pool gets a new pair there, whatever it has of other
/// pools.
#[test]
fn mappings_of_another_pool_keep_no_pairing() -> Result<(), Divergence> {
    let pool = |last: u8, count: u8| PoolConfig {
        addresses: vec![AddressRange {
            first: [203, 0, 113, last].into(),
            last: [203, 0, 113, last + count - 1].into(),
        }],
        ports: (2000, 2000),
        ..common::config().pools[0].clone()
    };
    let elsewhere = remote(80).address;
    let rule = Rule::new(Match::Destination(Prefix::new(elsewhere, 32), 0), RuleAction::Snat(1));
    let timeouts = Timeouts { hold_down: Duration::ZERO, ..config().timeouts };
    let pools = vec![pool(1, 2), pool(9, 1)];
    let config = Config { pools, rules: vec![rule], timeouts, ..config() };
    let nearby = Endpoint { address: [198, 51, 100, 9].into(), ..remote(80) };
    let second = Endpoint { port: A.port + 1, ..A };
    let other = |last| Endpoint { address: [10, 0, 0, last].into(), ..A };
    // Others take both addresses when the first mapping is gone, and one becomes free again.
    let packets = [
        (0, A, nearby),
        (3, second, remote(80)),
        (5, other(77), nearby),
        (6, second, remote(80)),
        (8, other(78), nearby),
        (9, second, remote(80)),
        (10, A, nearby),
    ];
    for seed in 0..8 {
        let mut pair = Pair::new(&config, [seed; 32], START)?;
        for (second, from, to) in packets {
            let now = START.plus(Duration::from_secs(second));
            pair.advance(now)?;
            let (done, _) = pair.process(now, Side::Inside, &[Spec::new(UDP, from, to).bytes()])?;
            assert_eq!(done[0].verdict, Verdict::Forward(Side::Outside));
            pair.check_state()?;
        }
    }
    Ok(())
}

/// A subscriber whose address is now in another pool gets a new pair, although the address gives
/// out ports there.
#[test]
fn an_address_of_another_pool_is_no_pair() -> Result<(), Divergence> {
    let [one, other] = [1, 2].map(|last: u8| AddressRange {
        first: [203, 0, 113, last].into(),
        last: [203, 0, 113, last].into(),
    });
    let pool = |name: &str, range| PoolConfig {
        name: name.into(),
        addresses: vec![range],
        ..common::config().pools[0].clone()
    };
    let pools = |first, second| vec![pool("first", first), pool("second", second)];
    let mut pair = Pair::new(&Config { pools: pools(one, other), ..config() }, [0; 32], START)?;
    let lasting = Endpoint { port: A.port + 1, ..A };
    let out = |from| Spec::new(UDP, from, remote(80)).bytes();
    // One mapping lasts, with the first address. The second mapping gets another address while the
    // pools are exchanged.
    for (second, from, exchange) in [
        (0, lasting, None),
        (1, lasting, Some(pools(other, one))),
        (2, A, None),
        (3, lasting, Some(pools(one, other))),
        (6, lasting, None),
        (8, lasting, None),
        (8, A, None),
    ] {
        let now = START.plus(Duration::from_secs(second));
        pair.advance(now)?;
        if let Some(pools) = exchange {
            pair.change_pools(&pools)?;
            pair.advance(now)?;
        }
        let (done, _) = pair.process(now, Side::Inside, &[out(from)])?;
        assert_eq!(done[0].verdict, Verdict::Forward(Side::Outside));
        pair.check_state()?;
    }
    Ok(())
}

/// A static mapping of a whole address translates no port 0 of DCCP: not for its host, nor for
/// packets to it, also of another host inside.
#[test]
fn the_reserved_port_of_a_whole_address_has_no_mapping() -> Result<(), Divergence> {
    let whole = Endpoint { address: [203, 0, 113, 80].into(), port: 0 };
    let server = Endpoint { address: [10, 0, 0, 9].into(), port: 0 };
    let statics = vec![StaticMapping {
        external: (whole.address, None),
        internal: (server.address, None),
        ..StaticMapping::default()
    }];
    let config = Config { statics, answer_unsolicited_syn: true, ..config() };
    let mut pair = Pair::new(&config, [0; 32], START)?;
    let cases = [
        (Side::Inside, server, remote(80)),
        (Side::Outside, remote(80), whole),
        (Side::Inside, A, whole),
    ];
    for (protocol, port) in [(DCCP, 0), (DCCP, 5001), (UDP, 0)] {
        let at = |end: Endpoint| if end.port == 0 { Endpoint { port, ..end } } else { end };
        for (from, source, destination) in cases {
            let packet = Spec::new(protocol, at(source), at(destination)).bytes();
            let (done, _) = pair.process(START, from, &[packet])?;
            pair.check_state()?;
            let is_refused = done[0].verdict == Verdict::Drop(DropReason::NoMapping);
            assert_eq!(is_refused, (protocol, port) == (DCCP, 0), "{:?}", done[0].verdict);
        }
    }
    // Senders outside and of other hosts inside are told later.
    pair.advance(START.plus(Duration::from_secs(7)))?;
    pair.check_state()
}
