//! Programs that were compiled with this crate: Rust that the compiler has generated from them.
//!
//! `natgate p4 compile --emit rust` makes such a file; a test fails if a file is not the output of
//! the compiler for its program.

#[allow(dead_code, unused, unreachable_pub, clippy::all, reason = "made by a program")]
#[rustfmt::skip]
mod nat;
#[allow(dead_code, unused, unreachable_pub, clippy::all, reason = "made by a program")]
#[rustfmt::skip]
mod nat64;

use crate::Program;
use crate::rt::Execute;

/// A compiled program.
struct CompiledProgram {
    name: &'static str,
    text: &'static str,
    source: &'static str,
    make: fn(u64) -> Box<dyn Execute>,
}

const PROGRAMS: [CompiledProgram; 2] = [
    CompiledProgram {
        name: "nat",
        text: include_str!("../../../nat.p4"),
        source: include_str!("nat.rs"),
        make: |seed| Box::new(nat::Nat::new(seed)),
    },
    CompiledProgram {
        name: "nat64",
        text: include_str!("../../../nat64.p4"),
        source: include_str!("nat64.rs"),
        make: |seed| Box::new(nat64::Nat64::new(seed)),
    },
];

fn compiled_program(name: &str) -> Option<&'static CompiledProgram> {
    PROGRAMS.iter().find(|one| one.name == name)
}

/// Names of the compiled programs.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|one| one.name)
}

/// P4 source of a compiled program.
pub fn text(name: &str) -> Option<&'static str> {
    compiled_program(name).map(|one| one.text)
}

/// Rust source of a compiled program.
pub fn source(name: &str) -> Option<&'static str> {
    compiled_program(name).map(|one| one.source)
}

/// Executor of a compiled program; `seed` is that of its random numbers.
pub fn made(name: &str, seed: u64) -> Option<Box<dyn Execute>> {
    compiled_program(name).map(|one| (one.make)(seed))
}

/// Executor of a program as compiled Rust, if exactly this program was compiled; `seed` is that of
/// its random numbers.
pub fn compiled(program: &Program, seed: u64) -> Option<Box<dyn Execute>> {
    let found = PROGRAMS.iter().find(|one| program.rust(one.name) == one.source)?;
    Some((found.make)(seed))
}
