//! Transfer of an engine's whole state to another engine while packets flow. So another program,
//! perhaps of another version, continues where this one stops (section 17 of the specification).
//!
//! [`Engine::export`](crate::Engine::export) writes records, within a budget of its caller. It
//! visits the mappings pass after pass. For each mapping it remembers a fingerprint of what it
//! wrote, and writes the mapping again if the fingerprint has changed. So one mechanism serves the
//! first copy, the changes, and, after packets have been stopped, the last changes: the last pass
//! is complete. [`Engine::restore`](crate::Engine::restore) reads the records into a new engine.
//! The restored mapping depends only on its last record, so passes may see the engine at several
//! times.
//!
//! The format is independent of structs: numbers in little-endian order, times in nanoseconds since
//! 1970, addresses and names instead of places in tables. A change of the format raises
//! [`VERSION`].
//!
//! [`Engine::copy_record`](crate::Engine::copy_record) and [`Engine::copy`](crate::Engine::copy)
//! carry single mappings between engines that both run (`docs/design/pair.md`).
//!
//! Some state is not transferred, because it recovers within seconds: waiting fragments, SYNs with
//! a delayed answer, the recent rate of new mappings, and reports about limits.

mod export;
mod record;
mod restore;
#[cfg(test)]
mod tests;

use crate::config::Behavior;
pub use export::{Export, Exported};
pub use record::{VERSION, fingerprint};
pub use restore::{
    Copied, Copies, CopyEnds, HostIdentity, HostNumbers, NoNumber, NoNumbers, RealmNumber,
    RecordHost, Restoration, RestoreError, Restored,
};

/// Names of the counters of mappings made and gone, in the order of
/// [`quota_class`](crate::protocols::quota_class).
const KINDS: [&str; 3] = ["tcp", "udp", "icmp"];

/// Number of a mapping behavior in records.
pub(crate) fn number_of(behavior: Behavior) -> u8 {
    match behavior {
        Behavior::EndpointIndependent => 0,
        Behavior::AddressDependent => 1,
        Behavior::AddressAndPortDependent => 2,
    }
}

/// Bound of the numbers in records of mappings: more than any engine has room for.
const MOST_NUMBERS: u32 = 1 << 27;
