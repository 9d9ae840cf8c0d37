//! The whole program in its environment: the kernel of its machine with addresses and routes of its
//! own, senders that are too fast, unplugged cables, removed devices.
//!
//! The network is that of the demonstration. Needs root and the programs that `make test` installs,
//! and fails without them. One test runs at a time, because the tests share two cores with the
//! gateway.

mod daemon;
mod insight;
mod management;
mod overload;
mod p4;
mod recovery;

mod routes;
mod servers;
mod soak;
mod tester;
mod top;

use std::sync::Arc;

use natgate_testnet::{Gateway, TestNetwork, config};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "nglive";

/// A network with servers, without a gateway.
fn network() -> TestNetwork {
    TestNetwork::with_body(TAG, Arc::from(&b"a page"[..]))
}

/// Starts the gateway with this back end on both sides and more configuration.
fn start(network: &TestNetwork, backend: &str, more: &str) -> Gateway {
    network.start(PROGRAM, &config(more).replace("af-packet", backend))
}
