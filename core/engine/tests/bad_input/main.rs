//! Packets that nobody should send: each is dropped under its own reason, and that is all that
//! happens. No byte of it changes, no mapping, session, timer or port is touched, no event is
//! raised and nobody is answered (sections 2 to 6 of the specification).
//!
//! The tables name the fault and the reason. The engine that they run against has live mappings of
//! every kind (`world`), so that there is something to damage, and translates as before afterwards.
//! `random` turns random bytes, and good packets with random faults, into the same checks.

#[path = "../common/mod.rs"]
mod common;
mod headers;
mod icmp;
mod parties;
mod random;
mod world;
