//! BPF programs of the test bed: the generator's, and the measured ones. Errors of loading and
//! attaching name the program.

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

/// Attaches a program to an interface until the returned link is dropped.
///
/// # Errors
/// The system's.
pub(crate) fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    let what = format!("a program attached to interface {interface} ({mode:?})");
    bpf::attach(program, interface, mode).map_err(refused(what))
}

/// Adds the refused operation to an error of the kernel.
pub(crate) fn refused(what: String) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
