//! Library of generated code: packets read and written, tables, counters, meters, registers.
//!
//! Everything here exists in the interpreter as well, but is made for speed: keys are packed into
//! one number, exact tables are hash tables, arrays are arrays.

mod exact;
mod key;
pub(crate) mod lines;
mod lpm;
mod objects;
mod packet;
mod pass;
mod scan;

pub use crate::ir::{Algorithm, Match};
pub use crate::machine::table::Tick;
pub use crate::machine::{Execute, Fate, Listed, Meter, Rates, Store, Verdict, World, one_by_one};
pub use exact::{Exact, Place};
pub use key::Packed;
pub use lpm::Lpm;
pub use natgate_io::Frame;
pub use objects::{Counters, Meters, Random, Registers, hash};
pub use packet::{
    Errors, Input, ReadPosition, Stop, be64, be128, bits, checksum, put_bits, shift_left,
    shift_right, signed,
};
pub use pass::{Ahead, Cell, Halves, Pass, Work, in_halves};
pub use scan::Scan;

use std::fmt::Debug;

/// An action of a table's list with its arguments, as entries have it.
pub trait Action: Copy + Debug {
    /// Action with that number in the list; the last one, if the number is too large.
    ///
    /// # Panics
    ///
    /// If there are fewer arguments than the action needs.
    fn of(number: usize, args: &[u128]) -> Self;

    /// Number in the list.
    fn number(&self) -> usize;

    /// Arguments.
    fn args(&self) -> Vec<u128>;
}

/// Result of a look-up in a table.
#[derive(Clone, Copy, Debug)]
pub struct LookupResult<A> {
    /// True if there is an entry.
    pub hit: bool,
    /// Action of the entry, or the default.
    pub action: A,
}
