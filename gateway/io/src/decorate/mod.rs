//! Devices around devices: with any back end, frames can be recorded ([`Tap`]), shown line by line
//! ([`Tracer`]), or harmed on their way ([`Faulty`]).
//!
//! The decorators serve diagnosis and tests; none of them is fast. They can be nested in any order.

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
