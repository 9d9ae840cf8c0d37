//! Executors of the program in these tests: the interpreter, Rust and DPDK's SWX pipeline.

use crate::environment;
use natgate_dpdk::Swx;
use natgate_p4::{Machine, Program, programs};
use std::sync::MutexGuard;

/// Lock that is held while machines are used.
pub(crate) type Turn = MutexGuard<'static, ()>;

/// The program in each of its executors.
pub(crate) fn all(program: &Program) -> (Turn, Vec<(&'static str, Machine<'_>)>) {
    let turn = environment::turn();
    let pipeline = program.swx().unwrap_or_else(|error| panic!("{}", error.rendered()));
    let swx = Swx::new(&pipeline, 0).expect("DPDK makes the pipeline");
    let made = programs::compiled(program, 0).expect("it is compiled with the crate");
    let machines = vec![
        ("interpreter", Machine::new(program, 0)),
        ("Rust", Machine::with(program, made)),
        ("SWX", Machine::with(program, Box::new(swx))),
    ];
    (turn, machines)
}
