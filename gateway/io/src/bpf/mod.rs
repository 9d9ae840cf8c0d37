//! Programs for the kernel's virtual machine (BPF): an assembler, and the system calls that load
//! and attach a program.
//!
//! The XDP back end has one program, and the laboratory's test bed has several. The description of
//! a program is beside the code that uses it. Programs of the classic packet filter have other
//! instructions; [`crate::Steering`] assembles them itself.

pub mod assembler;
mod system;

pub use system::{
    Map, Mode, Outcome, Plain, attach, detach, load, run_live, test_run, verifier_log,
};
