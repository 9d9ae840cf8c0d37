//! Limits and fixed places that several modules share.

/// Most devices.
pub const MOST_DEVICES: usize = 64;

/// Most workers.
pub const MOST_WORKERS: usize = 64;

/// Most captures at a time.
pub const MOST_CAPTURES: usize = 4;

/// Place of the outside's device among the devices.
pub(crate) const OUTSIDE: usize = 1;

/// Fewest neighbours that a side has room for, unless the configuration sets a number.
pub const FEWEST_NEIGHBORS: usize = 4096;

/// Most neighbours that a side has room for, unless the configuration sets a number.
pub const MOST_NEIGHBORS: usize = 1 << 16;

/// Bytes of the longest IP packet.
pub(crate) const LONGEST: usize = 65_535;
