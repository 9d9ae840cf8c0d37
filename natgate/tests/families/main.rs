//! A running natgate with both families between kernels: hosts that have IPv6 alone reach IPv4
//! servers, hosts that have IPv4 alone cross a network of IPv6, prefixes are translated, packets
//! are routed, and customers of softwires have tunnels. The hosts find the gateway by Neighbor
//! Discovery only.
//!
//! ```text
//! client eth0 ---- inside [nat] outside ---- eth0 server
//! ```
//!
//! Needs root and the programs that `make test` installs, and fails without them. One test runs at
//! a time.

mod both;
mod control;
mod cpe;
mod dslite;
mod dslite_requests;
mod ftp;
mod guest;
mod nat64;
mod peers;
mod requests;
mod routed;
mod softwires;
mod stateless;
mod tayga;
mod traced;
mod world;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngsix";
