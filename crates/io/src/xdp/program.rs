//! The XDP program: every frame of an interface goes to the socket of the queue that it came by.
//!
//! Assembled here by hand, since it is six instructions. It belongs to the interface and is shared
//! by all devices that serve queues of it; the kernel detaches it when the last of them closes it,
//! however the process ends. Frames of a queue without a socket go to the kernel.
#![allow(unsafe_code)]

use crate::{Error, LinkInfo, interface};
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Most queues of an interface.
pub(super) const MOST_QUEUES: u32 = 256;

/// How often to try again while the kernel has not let go of what a process before us used.
pub(super) const TRIES: u32 = 40;
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(25);

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes anything of the frame.
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

/// An interface's XDP program, shared by the devices that serve its queues.
#[derive(Clone, Debug)]
pub struct Hook {
    name: Arc<str>,
    attached: Arc<Mutex<Weak<Attachment>>>,
}

/// A program that is attached to an interface.
#[derive(Debug)]
pub(super) struct Attachment {
    index: u32,
    pub(super) mode: Mode,
    /// Why it is not native.
    pub(super) obstacle: Option<String>,
    /// Receive queues of the interface.
    pub(super) queues: u32,
    sockets: OwnedFd,
    /// Holds the program in its place.
    _link: OwnedFd,
}

impl Hook {
    /// For the interface of this name; it is attached when the first device opens it.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), attached: Arc::default() }
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Attaches the program unless it is attached already.
    pub(super) fn attach(&self, link: &LinkInfo) -> Result<Arc<Attachment>, Error> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = attached.upgrade().filter(|there| there.index == link.index) {
            return Ok(there);
        }
        let new = Arc::new(Attachment::new(link)?);
        *attached = Arc::downgrade(&new);
        Ok(new)
    }
}

impl Attachment {
    fn new(link: &LinkInfo) -> Result<Self, Error> {
        let name = &link.name;
        let queues = interface::receive_queues(name)?.min(MOST_QUEUES);
        let failed = |what| move |error| Error::of_xdp(what, name, error);
        let sockets = make_map(queues).map_err(failed("making a map of sockets (XSKMAP)"))?;
        let program =
            load(&assemble(sockets.as_raw_fd())).map_err(failed("loading an XDP program"))?;
        let native = match attach(&program, link.index, Mode::Native) {
            Ok(_link) => {
                let (index, mode, obstacle) = (link.index, Mode::Native, None);
                return Ok(Self { index, mode, obstacle, queues, sockets, _link });
            }
            Err(error) => error,
        };
        match (attach(&program, link.index, Mode::Generic), native.raw_os_error()) {
            (_, Some(libc::EBUSY | libc::EEXIST)) => Err(Error::OccupiedXdp(name.clone())),
            (Ok(_link), _) => {
                let obstacle = Some(explain(&native, link));
                let (index, mode) = (link.index, Mode::Generic);
                Ok(Self { index, mode, obstacle, queues, sockets, _link })
            }
            (Err(error), _) => Err(failed("attaching an XDP program")(error)),
        }
    }

    /// Has a queue's frames sent to a socket.
    pub(super) fn direct(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (key, value) = (queue, socket.as_raw_fd() as u32);
        let request = MapUpdate {
            map: self.sockets.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        bpf(UPDATE, &request).map(drop)
    }
}

/// What keeps the program from running in the driver, and what would help.
fn explain(error: &io::Error, link: &LinkInfo) -> String {
    let name = &link.name;
    match error.raw_os_error() {
        Some(libc::ENOSPC) => format!(
            "the other end of {name} has more transmit queues than {name} has receive queues; \
             `ethtool -L {name} rx N`, or tx 1 at the other end, would change that"
        ),
        Some(libc::ERANGE) => format!(
            "its MTU of {}, or that of the other end of a veth, is too large for it; `ip link set dev \
             {name} mtu 1500`, there too, would change that",
            link.mtu
        ),
        Some(libc::EOPNOTSUPP) => "its driver does not know it".to_owned(),
        _ => format!("its driver refuses it: {error}"),
    }
}

/// One instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The program, for this map of sockets: `return bpf_redirect_map(sockets, context->rx_queue_index,
/// XDP_PASS)`.
fn assemble(sockets: i32) -> [Instruction; 6] {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_CONSTANT_64: u8 = 0x18;
    const MOVE_CONSTANT: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const MAP_DESCRIPTOR: u8 = 1;
    const QUEUE_IN_CONTEXT: i16 = 16;
    const PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    let instruction = |code, [to, from]: [u8; 2], offset, immediate| Instruction {
        code,
        registers: if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from },
        offset,
        immediate,
    };
    [
        instruction(LOAD_WORD, [2, 1], QUEUE_IN_CONTEXT, 0),
        // Twice as long as the others.
        instruction(LOAD_CONSTANT_64, [1, MAP_DESCRIPTOR], 0, sockets),
        instruction(0, [0, 0], 0, 0),
        instruction(MOVE_CONSTANT, [3, 0], 0, PASS),
        instruction(CALL, [0, 0], 0, REDIRECT_MAP),
        instruction(EXIT, [0, 0], 0, 0),
    ]
}

const CREATE_MAP: libc::c_int = 0;
const UPDATE: libc::c_int = 2;
const LOAD: libc::c_int = 5;
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
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

fn make_map(entries: u32) -> io::Result<OwnedFd> {
    const SOCKETS: u32 = 17;
    let made = bpf(CREATE_MAP, &MapCreate { kind: SOCKETS, key_len: 4, value_len: 4, entries })?;
    Ok(own(made))
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    const XDP: u32 = 6;
    let request = ProgramLoad {
        kind: XDP,
        instruction_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
    };
    bpf(LOAD, &request).map(own)
}

/// Attaches a program; waits a little for one that is there to go.
fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    const XDP: u32 = 37;
    let flags = match mode {
        Mode::Generic => 1 << 1,
        Mode::Native => 1 << 2,
    };
    let program = program.as_fd().as_raw_fd() as u32;
    let request = LinkCreate { program, interface, attach_type: XDP, flags };
    for _ in 1..TRIES {
        match bpf(CREATE_LINK, &request) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                thread::sleep(BETWEEN_TRIES);
            }
            done => return done.map(own),
        }
    }
    bpf(CREATE_LINK, &request).map(own)
}

fn own(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the commands whose results get here return a descriptor that nobody else has.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Makes a request of the kernel's BPF; `T` is the beginning of the command's structure.
fn bpf<T>(command: libc::c_int, request: &T) -> io::Result<libc::c_int> {
    // SAFETY: the request outlives the call, and its length is passed; what it points to outlives
    // it at every caller; the commands used only read it.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, request as *const T, mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_program_is_what_an_assembler_makes_of_it() {
        let code: Vec<[u8; 8]> = assemble(0x0102)
            .iter()
            .map(|i| {
                let mut bytes = [i.code, i.registers, 0, 0, 0, 0, 0, 0];
                bytes[2..4].copy_from_slice(&i.offset.to_le_bytes());
                bytes[4..].copy_from_slice(&i.immediate.to_le_bytes());
                bytes
            })
            .collect();
        assert_eq!(
            code,
            [
                // r2 = *(u32 *)(r1 + 16)
                [0x61, 0x12, 16, 0, 0, 0, 0, 0],
                // r1 = map[fd 258] ll
                [0x18, 0x11, 0, 0, 2, 1, 0, 0],
                [0; 8],
                // r3 = 2
                [0xb7, 3, 0, 0, 2, 0, 0, 0],
                // call 51
                [0x85, 0, 0, 0, 51, 0, 0, 0],
                // exit
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn obstacles_come_with_a_remedy() {
        let link = LinkInfo {
            name: "eth7".to_owned(),
            index: 1,
            mac: natgate_wire::arp::Mac::default(),
            mtu: 3700,
            up: true,
        };
        let explained = |code| explain(&io::Error::from_raw_os_error(code), &link);
        assert!(explained(libc::ENOSPC).contains("`ethtool -L eth7 rx N`"));
        assert!(explained(libc::ERANGE).contains("MTU of 3700"));
        assert_eq!(explained(libc::EOPNOTSUPP), "its driver does not know it");
        assert!(explained(libc::EINVAL).contains("Invalid argument"));
    }
}
