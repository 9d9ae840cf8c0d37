//! BPF programs of the bed's own (the generator's, and those that are measured), loaded and attached
//! with errors that name them.

use natgate_io::bpf::assembler::Code;
use natgate_io::bpf::{self, Mode};
use std::io;
use std::os::fd::OwnedFd;

/// Loads an XDP program; errors call it `name`.
///
/// # Errors
/// The system's, with the last lines of the kernel's verifier.
pub(crate) fn load(name: &str, program: &Code) -> io::Result<OwnedFd> {
    const LINES: usize = 2;
    bpf::load(program).map_err(|error| {
        let log = bpf::verifier_log(program, LINES);
        io::Error::new(error.kind(), format!("{name}: {error}: {log:?}"))
    })
}

/// Attaches a program to an interface for as long as the returned link lives.
///
/// # Errors
/// The system's.
pub(crate) fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    let what = format!("a program attached to interface {interface} ({mode:?})");
    bpf::attach(program, interface, mode).map_err(refused(what))
}

/// Names what the kernel refused.
pub(crate) fn refused(what: String) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
