//! Devices around devices: whatever the back end, frames can be recorded ([`Tap`]), told line by
//! line ([`Tracer`]), or harmed on their way ([`Faulty`]).
//!
//! For finding out what happens and for tests; none of them is made to be fast. They can be put
//! around each other in any order.

mod fault;
mod halves;
mod tap;
mod trace;
mod watch;

pub use fault::{FaultCounts, Faults, FaultsError, Faulty};
pub use tap::Tap;
pub use trace::Tracer;
pub use watch::{Watched, Watcher, Way};

/// Nanoseconds since 1970.
fn wall_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
