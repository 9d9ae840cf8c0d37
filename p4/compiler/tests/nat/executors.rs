//! What executes the program here.

use natgate_p4::{Machine, Program, programs};

/// What is held while machines are used: here, nothing.
pub(crate) struct Turn;

/// The program at work, by everything that executes it.
pub(crate) fn all(program: &Program) -> (Turn, Vec<(&'static str, Machine<'_>)>) {
    let made = programs::compiled(program, 0).expect("it is compiled with the crate");
    let machines =
        vec![("interpreter", Machine::new(program, 0)), ("Rust", Machine::with(program, made))];
    (Turn, machines)
}
