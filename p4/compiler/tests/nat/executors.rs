//! Executors of the program in these tests.

use natgate_p4::{Machine, Program, programs};

/// Lock that is held while machines are used: not needed here.
pub(crate) struct Turn;

/// The program in each of its executors.
pub(crate) fn all(program: &Program) -> (Turn, Vec<(&'static str, Machine<'_>)>) {
    let made = programs::compiled(program, 0).expect("it is compiled with the crate");
    let machines =
        vec![("interpreter", Machine::new(program, 0)), ("Rust", Machine::with(program, made))];
    (Turn, machines)
}
