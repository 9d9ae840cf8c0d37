//! What code that was made from programs stands on: packets read and written, tables, counters,
//! meters, registers.
//!
//! Everything here is what the interpreter has as well, made for speed: keys are packed into one
//! number, exact tables are hash tables, arrays are arrays.

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
    /// The action with that number in the list; the last one, if there is none.
    ///
    /// # Panics
    ///
    /// When there are fewer arguments than it takes.
    fn of(number: usize, args: &[u128]) -> Self;

    /// Its number in the list.
    fn number(&self) -> usize;

    /// Its arguments.
    fn args(&self) -> Vec<u128>;
}

/// The result of a look-up in a table.
#[derive(Clone, Copy, Debug)]
pub struct LookupResult<A> {
    /// Whether there is an entry.
    pub hit: bool,
    /// What is to be done.
    pub action: A,
}
