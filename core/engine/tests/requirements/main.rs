//! Requirements of RFCs on a NAT. Each has a test with its name: packets in, packets out, virtual
//! time. `requirements/` lists the requirements.

#[path = "../common/mod.rs"]
mod common;
mod exchange;
mod rfc1812;
mod rfc4787;
mod rfc4884;
mod rfc5382;
mod rfc5508;
mod rfc5597;
mod rfc6056;
mod rfc6864;
mod rfc6888;
mod rfc7857;
mod sctp;
