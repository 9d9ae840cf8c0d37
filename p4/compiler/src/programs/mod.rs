//! Programs that were compiled with this crate: Rust that the compiler has made from them.
//!
//! `natgate p4 compile --emit rust` makes such a file; a test says when one is not what its program
//! comes to.

#[allow(dead_code, unused, unreachable_pub, clippy::all, reason = "made by a program")]
#[rustfmt::skip]
mod nat;

use crate::Program;
use crate::rt::Execute;

/// A program that was compiled.
struct CompiledProgram {
    name: &'static str,
    text: &'static str,
    source: &'static str,
    make: fn(u64) -> Box<dyn Execute>,
}

const PROGRAMS: [CompiledProgram; 1] = [CompiledProgram {
    name: "nat",
    text: include_str!("../../../nat.p4"),
    source: include_str!("nat.rs"),
    make: |seed| Box::new(nat::Nat::new(seed)),
}];

fn compiled_program(name: &str) -> Option<&'static CompiledProgram> {
    PROGRAMS.iter().find(|one| one.name == name)
}

/// The names of the programs that were compiled.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|one| one.name)
}

/// One of them, as P4.
pub fn text(name: &str) -> Option<&'static str> {
    compiled_program(name).map(|one| one.text)
}

/// The Rust source that one of them was compiled from.
pub fn source(name: &str) -> Option<&'static str> {
    compiled_program(name).map(|one| one.source)
}

/// What executes one of them as compiled Rust; `seed` is that of its random numbers.
pub fn made(name: &str, seed: u64) -> Option<Box<dyn Execute>> {
    compiled_program(name).map(|one| (one.make)(seed))
}

/// What executes a program as compiled Rust, if exactly this program was compiled; `seed` is that
/// of its random numbers.
pub fn compiled(program: &Program, seed: u64) -> Option<Box<dyn Execute>> {
    let found = PROGRAMS.iter().find(|one| program.rust(one.name) == one.source)?;
    Some((found.make)(seed))
}
