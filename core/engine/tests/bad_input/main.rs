//! Invalid packets: each is dropped for its own reason, without any other effect. No byte of it
//! changes, no mapping, session, timer or port changes, no event is raised and no answer is sent
//! (sections 2 to 6 of the specification).
//!
//! The tables name the fault and the reason. The engine in the tests has live mappings of every
//! kind (`world`), so that damage would be possible, and it translates as before afterwards.
//! `random` applies the same checks to random bytes, and to good packets with random faults.

#[path = "../common/mod.rs"]
mod common;
mod headers;
mod icmp;
mod parties;
mod random;
mod world;
