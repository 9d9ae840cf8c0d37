//! All that an engine knows, handed over to another one while packets flow: so that another
//! program, of another version perhaps, goes on where this one stops (section 17 of the
//! specification).
//!
//! [`Engine::export`](crate::Engine::export) writes records, as many at a time as its caller has
//! time for. It goes over the mappings pass after pass; of each it remembers a fingerprint of what
//! it wrote, and writes again what has another one since. So one mechanism is the first copy, the
//! changes, and, when packets have been stopped, the last changes: the last pass leaves nothing
//! out. [`Engine::restore`](crate::Engine::restore) reads the records into an engine that is new.
//! What it makes of a mapping depends on its last record alone, so it does not matter that passes
//! see the engine at several times.
//!
//! The form is a record's and not a struct's: numbers in little-endian order, times in nanoseconds
//! since 1970, addresses and names and not places in tables. Whoever changes it raises [`VERSION`].
//!
//! Not handed over, since it is made up for in seconds: fragments that wait, SYNs that are answered
//! late, how fast subscribers have made mappings of late, and what was told of limits.

mod export;
mod record;
mod restore;
#[cfg(test)]
mod tests;

pub use export::{Export, Exported};
pub use record::VERSION;
pub use restore::{Restoration, RestoreError, Restored};

/// What mappings made and gone are counted by ([`quota_class`](crate::protocols::quota_class)), in
/// order.
const KINDS: [&str; 3] = ["tcp", "udp", "icmp"];

/// Numbers in the records of mappings are below this: more than any engine has room for.
const MOST_NUMBERS: u32 = 1 << 27;
