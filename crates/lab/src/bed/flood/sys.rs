//! The kernel's BPF, as far as the generator needs it.

use super::program::Instruction;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const CREATE_MAP: libc::c_int = 0;
const UPDATE: libc::c_int = 2;
const LOAD: libc::c_int = 5;
const RUN: libc::c_int = 10;
const CREATE_LINK: libc::c_int = 28;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramRun {
    program: u32,
    result: u32,
    frame_len: u32,
    output_len: u32,
    frame: u64,
    output: u64,
    repeat: u32,
    duration: u32,
    context_len: u32,
    context_output_len: u32,
    context: u64,
    context_output: u64,
    flags: u32,
    processor: u32,
    batch: u32,
    padding: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// An array of 64-bit values.
pub(super) fn array(entries: u32) -> io::Result<OwnedFd> {
    const ARRAY: u32 = 2;
    let mut request = MapCreate { kind: ARRAY, key_len: 4, value_len: 8, entries };
    bpf(CREATE_MAP, &mut request).map(own)
}

pub(super) fn update(map: &OwnedFd, key: u32, value: u64) -> io::Result<()> {
    let mut request = MapUpdate {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    bpf(UPDATE, &mut request).map(drop)
}

/// Loads an XDP program.
///
/// # Errors
/// The system's, with what the kernel's verifier says last.
pub(super) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    const XDP: u32 = 6;
    let mut log = vec![0_u8; 1 << 16];
    let request = |log_level, log: &mut [u8]| ProgramLoad {
        kind: XDP,
        instruction_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level,
        log_len: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
    };
    if let Ok(loaded) = bpf(LOAD, &mut request(0, &mut [])) {
        return Ok(own(loaded));
    }
    bpf(LOAD, &mut request(1, &mut log)).map(own).map_err(|error| {
        let text = String::from_utf8_lossy(&log);
        let said: Vec<&str> = text.trim_end_matches('\0').lines().rev().take(2).collect();
        io::Error::new(error.kind(), format!("the generator's program: {error}: {said:?}"))
    })
}

/// Has a program run over so many frames that begin as this one, and each go where it says.
pub(super) fn run(program: &OwnedFd, frame: &[u8], repeat: u32) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    let mut request = ProgramRun {
        program: program.as_raw_fd() as u32,
        frame_len: frame.len() as u32,
        frame: frame.as_ptr() as u64,
        repeat,
        flags: LIVE_FRAMES,
        batch: 64,
        ..ProgramRun::default()
    };
    match bpf(RUN, &mut request) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        done => done.map(drop),
    }
}

/// Attaches a program to an interface, in the generic mode, for as long as what is returned lives.
pub(super) fn attach(program: &OwnedFd, interface: u32) -> io::Result<OwnedFd> {
    const XDP: u32 = 37;
    const GENERIC: u32 = 1 << 1;
    let mut request = LinkCreate {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: XDP,
        flags: GENERIC,
    };
    bpf(CREATE_LINK, &mut request).map(own)
}

fn own(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the commands whose results get here return a descriptor that nobody else has.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Makes a request of the kernel's BPF; `T` is the beginning of the command's structure.
fn bpf<T>(command: libc::c_int, request: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the request outlives the call, and its length is passed; what it points to outlives
    // it at every caller. The kernel writes into the request of a run, all of whose fields are plain
    // integers, and into a load's log, which is as long as it says and borrowed mutably until then.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, request as *mut T, mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
