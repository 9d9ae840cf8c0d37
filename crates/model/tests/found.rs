//! Cases in which engine and model once parted, made small and kept.

mod common;

use common::{Spec, end};
use natgate_engine::{
    AddressRange, Behavior, Config, Endpoint, PoolConfig, Side, Timeouts, Timestamp,
};
use natgate_model::compare::{Divergence, Pair};
use natgate_wire::protocol::UDP;
use std::time::Duration;

const A: Endpoint = end([10, 0, 0, 1], 5000);
const EXTERNAL: Endpoint = end([203, 0, 113, 1], 2000);

fn config() -> Config {
    let addresses = vec![AddressRange { first: EXTERNAL.address, last: EXTERNAL.address }];
    Config {
        pools: vec![PoolConfig { name: "default".into(), addresses, ports: (2000, 2003) }],
        timeouts: Timeouts { udp: Duration::from_secs(4), ..Timeouts::default() },
        ..Config::default()
    }
}

fn remote(port: u16) -> Endpoint {
    end([198, 51, 100, 1], port)
}

/// A mapping that depends on the remote port stays that of its first remote, also when the session
/// with it has gone and another port of the same address comes in.
#[test]
fn a_mapping_keeps_its_key_when_its_first_session_goes() -> Result<(), Divergence> {
    let config = Config { mapping: Behavior::AddressAndPortDependent, ..config() };
    let start = Timestamp(1_000_000_000_000);
    let after = |seconds| start.plus(Duration::from_secs(seconds));
    let mut pair = Pair::new(&config, [0; 32], start)?;
    let out = Spec::new(UDP, A, remote(80)).bytes();
    let (done, _) = pair.process(start, Side::Inside, std::slice::from_ref(&out))?;
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
