//! The kernel's BPF, as far as the bed's programs need it: maps, programs, interfaces, trials.

use super::code::Instruction;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const CREATE_MAP: libc::c_int = 0;
const LOOK_UP: libc::c_int = 1;
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
    flags: u32,
}

#[repr(C)]
struct MapEntry {
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

/// What any bytes are a value of, and which has no bytes between its fields.
///
/// # Safety
/// Both hold for the type.
pub(crate) unsafe trait Plain: Copy + Default {}

// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}

/// A map of the kernel's.
pub(crate) struct Map<K, V> {
    descriptor: OwnedFd,
    of: PhantomData<(K, V)>,
}

impl<V: Plain> Map<u32, V> {
    /// An array.
    pub(crate) fn array(entries: u32) -> io::Result<Self> {
        const ARRAY: u32 = 2;
        Self::new(ARRAY, entries, 0)
    }
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// A hash table. Entries get memory as they come: that lies in large pages of the kernel's,
    /// what is taken at once does not, and finding cold entries there takes longer.
    pub(crate) fn table(entries: u32) -> io::Result<Self> {
        const HASH: u32 = 1;
        const NOT_AT_ONCE: u32 = 1;
        Self::new(HASH, entries, NOT_AT_ONCE)
    }

    fn new(kind: u32, entries: u32, flags: u32) -> io::Result<Self> {
        let (key_len, value_len) = (mem::size_of::<K>() as u32, mem::size_of::<V>() as u32);
        let mut request = MapCreate { kind, key_len, value_len, entries, flags };
        let descriptor = bpf(CREATE_MAP, &mut request).map(own);
        let descriptor = descriptor.map_err(said(format!("a map of {entries} entries")))?;
        Ok(Self { descriptor, of: PhantomData })
    }

    /// What programs know it by while they are loaded.
    pub(crate) fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    pub(crate) fn update(&self, key: &K, value: &V) -> io::Result<()> {
        let mut request = MapEntry {
            map: self.descriptor() as u32,
            padding: 0,
            key: (&raw const *key) as u64,
            value: (&raw const *value) as u64,
            flags: 0,
        };
        bpf(UPDATE, &mut request).map(drop)
    }

    pub(crate) fn look_up(&self, key: &K) -> io::Result<V> {
        let mut value = V::default();
        let mut request = MapEntry {
            map: self.descriptor() as u32,
            padding: 0,
            key: (&raw const *key) as u64,
            value: (&raw mut value) as u64,
            flags: 0,
        };
        bpf(LOOK_UP, &mut request)?;
        Ok(value)
    }

    /// Bytes of the kernel's memory that it takes, by the kernel's own account.
    pub(crate) fn memory(&self) -> io::Result<u64> {
        let file = format!("/proc/self/fdinfo/{}", self.descriptor());
        let text = fs::read_to_string(&file)?;
        let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        let bytes = line.and_then(|line| line.trim().parse().ok());
        bytes.ok_or_else(|| io::Error::other(format!("{file} does not tell a map's memory")))
    }
}

/// Loads an XDP program; `what` is it called in errors.
///
/// # Errors
/// The system's, with what the kernel's verifier says last.
pub(crate) fn load(what: &str, program: &[Instruction]) -> io::Result<OwnedFd> {
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
        io::Error::new(error.kind(), format!("{what}: {error}: {said:?}"))
    })
}

/// Has a program run over so many frames that begin as this one, and each go where it says.
pub(crate) fn run(program: &OwnedFd, frame: &[u8], repeat: u32) -> io::Result<()> {
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
        done => done.map(drop).map_err(said(format!("{repeat} frames sent by a program"))),
    }
}

/// Runs a program over a frame, again and again; returns what it said at last, the frame as it left
/// it, and the time of one run.
pub(crate) fn attempt(
    program: &OwnedFd,
    frame: &[u8],
    repeat: u32,
) -> io::Result<(u32, Vec<u8>, Duration)> {
    let mut output = vec![0; frame.len()];
    let mut request = ProgramRun {
        program: program.as_raw_fd() as u32,
        frame_len: frame.len() as u32,
        frame: frame.as_ptr() as u64,
        output_len: output.len() as u32,
        output: output.as_mut_ptr() as u64,
        repeat,
        ..ProgramRun::default()
    };
    bpf(RUN, &mut request)?;
    Ok((request.result, output, Duration::from_nanos(request.duration.into())))
}

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's general receive path.
    Generic,
}

/// Attaches a program to an interface for as long as what is returned lives.
pub(crate) fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    const XDP: u32 = 37;
    let flags = match mode {
        Mode::Generic => 1 << 1,
        Mode::Native => 1 << 2,
    };
    let program = program.as_raw_fd() as u32;
    let mut request = LinkCreate { program, interface, attach_type: XDP, flags };
    let what = format!("a program attached to interface {interface} ({mode:?})");
    bpf(CREATE_LINK, &mut request).map(own).map_err(said(what))
}

/// Says what the kernel has refused.
fn said(what: String) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn own(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the commands whose results get here return a descriptor that nobody else has.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Makes a request of the kernel's BPF; `T` is the beginning of the command's structure.
fn bpf<T>(command: libc::c_int, request: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the request outlives the call, and its length is passed; what it points to outlives
    // it at every caller. The kernel writes into the request of a run, all of whose fields are
    // plain integers; into a load's log and the frame that a run leaves, which are as long as the
    // request says and borrowed mutably until then; and into the value that is looked up, which is
    // of the map's type, any bytes of which are a value.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, request as *mut T, mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
