//! Programs that were compiled with this crate: Rust that the compiler has made from them.
//!
//! `natgate p4 compile --emit rust` makes such a file; a test says when one is not what its program comes to.

#[allow(dead_code, unused, unreachable_pub, clippy::all, reason = "made by a program")]
#[rustfmt::skip]
mod nat;

use crate::Program;
use crate::rt::Execute;

/// A program's name, its Rust source, and what makes one that executes it.
type Known = (&'static str, &'static str, fn(u64) -> Box<dyn Execute>);

const KNOWN: [Known; 1] = [("nat", include_str!("nat.rs"), |seed| Box::new(nat::Nat::new(seed)))];

/// The names of the programs that were compiled.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, ..)| *name)
}

/// The Rust source that one of them was compiled from.
pub fn source(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, ..)| *known == name).map(|(_, source, _)| *source)
}

/// What executes a program as compiled Rust, if exactly this program was compiled; `seed` is that of its random
/// numbers.
pub fn compiled(program: &Program, seed: u64) -> Option<Box<dyn Execute>> {
    let (.., make) = KNOWN.iter().find(|(name, source, _)| program.rust(name) == *source)?;
    Some(make(seed))
}
