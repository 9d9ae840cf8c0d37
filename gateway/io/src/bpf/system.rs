//! The kernel's BPF: maps, programs, interfaces, test runs.
//!
//! Errors are the system's and carry its error number.
#![allow(unsafe_code)]

use super::assembler::Code;
use std::fmt;
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
const DETACH_LINK: libc::c_int = 34;

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

#[repr(C)]
struct LinkDetach {
    link: u32,
}

/// A type of keys or values of a map.
///
/// # Safety
/// Any bytes are a value of the type, and the type has no bytes between its fields.
pub unsafe trait Plain: Copy + Default {}

// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}

/// A map in the kernel.
#[derive(Debug)]
pub struct Map<K, V> {
    descriptor: OwnedFd,
    of: PhantomData<(K, V)>,
}

impl<V: Plain> Map<u32, V> {
    /// Creates an array.
    ///
    /// # Errors
    /// The system's.
    pub fn array(entries: u32) -> io::Result<Self> {
        const ARRAY: u32 = 2;
        Self::new(ARRAY, entries, 0)
    }
}

impl Map<u32, u32> {
    /// Creates a map of AF_XDP sockets by receive queue (XSKMAP). The value is the socket's
    /// descriptor.
    ///
    /// # Errors
    /// The system's.
    pub fn sockets(queues: u32) -> io::Result<Self> {
        const SOCKETS: u32 = 17;
        Self::new(SOCKETS, queues, 0)
    }
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// Creates a hash table. Entries are allocated on insertion, in large pages of the kernel.
    /// Memory that is allocated beforehand does not lie in large pages, and the look-up of a cold
    /// entry there takes longer.
    ///
    /// # Errors
    /// The system's.
    pub fn table(entries: u32) -> io::Result<Self> {
        const HASH: u32 = 1;
        const NOT_AT_ONCE: u32 = 1;
        Self::new(HASH, entries, NOT_AT_ONCE)
    }

    fn new(kind: u32, entries: u32, flags: u32) -> io::Result<Self> {
        let (key_len, value_len) = (mem::size_of::<K>() as u32, mem::size_of::<V>() as u32);
        let mut request = MapCreate { kind, key_len, value_len, entries, flags };
        let descriptor = bpf(CREATE_MAP, &mut request).map(own)?;
        Ok(Self { descriptor, of: PhantomData })
    }

    /// Number by which a program names the map while the program is loaded.
    pub fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The system's.
    pub fn update(&self, key: &K, value: &V) -> io::Result<()> {
        let mut request = MapEntry {
            map: self.descriptor() as u32,
            padding: 0,
            key: (&raw const *key) as u64,
            value: (&raw const *value) as u64,
            flags: 0,
        };
        bpf(UPDATE, &mut request).map(drop)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// The system's; an error of kind `NotFound` if the map has no such key.
    pub fn look_up(&self, key: &K) -> io::Result<V> {
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

    /// Bytes of kernel memory that the map takes, as the kernel reports them.
    ///
    /// # Errors
    /// The system's, or an error if the kernel's report has no number of bytes.
    pub fn memory(&self) -> io::Result<u64> {
        let file = format!("/proc/self/fdinfo/{}", self.descriptor());
        let text = fs::read_to_string(&file)?;
        let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        let bytes = line.and_then(|line| line.trim().parse().ok());
        bytes.ok_or_else(|| io::Error::other(format!("{file} does not tell a map's memory")))
    }
}

/// Loads an XDP program.
///
/// # Errors
/// The system's; [`verifier_log`] has the reasons of the kernel's verifier.
pub fn load(program: &Code) -> io::Result<OwnedFd> {
    bpf(LOAD, &mut ProgramLoad::new(program, &mut [])).map(own)
}

/// Last lines of the kernel verifier's log for an XDP program.
pub fn verifier_log(program: &Code, lines: usize) -> Vec<String> {
    let mut log = vec![0_u8; 1 << 16];
    // The log is the result, even if the program is loaded.
    let _loaded = bpf(LOAD, &mut ProgramLoad::new(program, &mut log)).map(own);
    let text = String::from_utf8_lossy(&log);
    let lines = text.trim_end_matches('\0').lines().rev().take(lines);
    lines.map(str::to_owned).collect()
}

impl ProgramLoad {
    fn new(program: &Code, log: &mut [u8]) -> Self {
        const XDP: u32 = 6;
        let instructions = program.instructions();
        Self {
            kind: XDP,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: c"Apache-2.0".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_len: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        }
    }
}

/// Runs a program over `count` frames that begin like `frame`. Each frame goes where the program
/// sends it.
///
/// # Errors
/// The system's.
pub fn run_live(program: &OwnedFd, frame: &[u8], count: u32) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    let mut request = ProgramRun {
        program: program.as_raw_fd() as u32,
        frame_len: frame.len() as u32,
        frame: frame.as_ptr() as u64,
        repeat: count,
        flags: LIVE_FRAMES,
        batch: 64,
        ..ProgramRun::default()
    };
    match bpf(RUN, &mut request) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        done => done.map(drop),
    }
}

/// The outcome of a [`test_run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The program's last answer.
    pub answer: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// The time of one run.
    pub time: Duration,
}

/// Runs a program `repeat` times over one frame and sends the frame nowhere.
///
/// # Errors
/// The system's.
pub fn test_run(program: &OwnedFd, frame: &[u8], repeat: u32) -> io::Result<Outcome> {
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
    let time = Duration::from_nanos(request.duration.into());
    Ok(Outcome { answer: request.result, frame: output, time })
}

/// The place of a program in an interface's receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel processes the frame.
    Native,
    /// In the kernel's general receive path: works with every driver, and costs more.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// Attaches an XDP program to an interface. The link keeps the program attached until the last
/// descriptor of the link is closed, or until [`detach`].
///
/// # Errors
/// The system's.
pub fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    const XDP: u32 = 37;
    let flags = match mode {
        Mode::Generic => 1 << 1,
        Mode::Native => 1 << 2,
    };
    let program = program.as_raw_fd() as u32;
    bpf(CREATE_LINK, &mut LinkCreate { program, interface, attach_type: XDP, flags }).map(own)
}

/// Detaches a program from its interface, even if other processes have descriptors of the link.
///
/// # Errors
/// The system's.
pub fn detach(link: &OwnedFd) -> io::Result<()> {
    bpf(DETACH_LINK, &mut LinkDetach { link: link.as_raw_fd() as u32 }).map(drop)
}

fn own(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the commands whose results come here return a descriptor without another owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Makes a BPF request; `T` is the beginning of the command's structure.
fn bpf<T>(command: libc::c_int, request: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the request outlives the call, and the call receives its length. At every caller the
    // targets of the request's pointers outlive the call. The kernel writes into the request of a
    // run, which has only plain integers; into a load's log and the frame that a run leaves, which
    // have the length in the request and are borrowed mutably until then; and into the looked-up
    // value, which has the map's type, any bytes of which are a value.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, request as *mut T, mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
