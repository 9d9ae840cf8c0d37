//! DPDK's environment (EAL): started once a process, with one pool of buffers for all ports.
//!
//! The environment would keep the thread that starts it on one core; afterwards the thread may run
//! on its former cores again. The environment counts only one core, because it does not own the
//! threads that move packets.
#![allow(unsafe_code)]

use crate::error::Refusal;
use crate::sys::{self, Mempool};
use crate::{Error, port_name};
use natgate_io::Pool;
use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Buffers for packets of one worker: those in the queues of two ports, both directions, in caches
/// and in use; and as many again for all workers together.
const BUFFERS: u32 = 8192;
/// Largest number of workers for which further buffers are made.
const MOST_WORKERS: u16 = 127;
/// Free buffers that a thread keeps for itself.
const CACHE: u32 = 512;
/// Least room of a buffer, bytes: most drivers expect it.
const LEAST_ROOM: u16 = 2048;
/// Memory of a buffer besides its room, bytes: headroom (128), description (128), the
/// pool's header (64), places in its ring, and padding.
const BESIDES: u64 = 512;
/// Default MTU of ports.
const USUAL_MTU: u16 = 1500;
/// Bytes of an Ethernet frame besides its packet: header, two VLAN tags, checksum.
const ETHERNET: u16 = 14 + 8 + 4;
/// Longest packet for which a buffer can have room, bytes.
const MOST_MTU: u16 = u16::MAX - ETHERNET - 1024;

/// DPDK's environment, running.
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    pub(crate) pool: Buffers,
}

/// The pool of buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Handle of the pool in DPDK.
    pub(crate) memory: NonNull<Mempool>,
    /// Identity of the pool in leases. It is not visible outside this crate.
    pub(crate) pool: Pool,
    /// Room of a buffer, bytes, headroom not counted.
    pub(crate) room: u16,
}

// SAFETY: a mempool may be used by all threads at once, and is never freed.
unsafe impl Send for Buffers {}
// SAFETY: likewise.
unsafe impl Sync for Buffers {}

/// Default memory without huge pages, MiB.
const USUAL_MEMORY: u32 = 256;

/// Result of the start: the arguments, `None` for the default ones; and the environment, `None` if
/// the start failed.
type Started = (Option<Vec<String>>, Option<Eal>);

static STARTED: Mutex<Option<Started>> = Mutex::new(None);

/// Starts DPDK with these arguments of its environment, for packets of up to `mtu` bytes. Without
/// arguments it gets those that virtual devices need: private memory, on huge pages if some are
/// free.
///
/// A further start with the same arguments returns the running environment. Arguments that make
/// DPDK end the process, such as `--help`, do so.
///
/// # Errors
/// [`Error`] if DPDK does not start, or was started with other arguments before.
pub fn start(arguments: Option<&[String]>, mtu: u16) -> Result<Eal, Error> {
    start_for(arguments, mtu, 1)
}

/// Starts DPDK with buffers for `workers` threads, each of which has a queue of two ports;
/// otherwise like [`start`]. The first start determines the number.
///
/// # Errors
/// The errors of [`start`].
pub fn start_for(arguments: Option<&[String]>, mtu: u16, workers: u16) -> Result<Eal, Error> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((before, eal)) = &*started {
        let is_same = before.as_deref() == arguments;
        let fits = |eal: &Eal| is_same && room_for(mtu) <= eal.pool.room;
        return eal.filter(fits).ok_or(Error::Once);
    }
    start_first(&mut started, arguments, (mtu, workers), USUAL_MEMORY)
}

/// Starts DPDK with buffers for `workers` threads, unless it runs. Without huge pages it gets
/// `memory` MiB, and what the buffers of further workers need.
///
/// # Errors
/// The errors of [`start`].
pub(crate) fn start_with_memory(memory: u32, workers: u16) -> Result<Eal, Error> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*started {
        Some((_, eal)) => eal.ok_or(Error::Once),
        None => {
            let memory = memory.saturating_add(memory_of_further(workers));
            start_first(&mut started, None, (USUAL_MTU, workers), memory)
        }
    }
}

fn start_first(
    started: &mut Option<Started>,
    given: Option<&[String]>,
    (mtu, workers): (u16, u16),
    memory: u32,
) -> Result<Eal, Error> {
    let arguments = given.map_or_else(|| usual_arguments(memory), <[String]>::to_vec);
    let command_line = command_line(&arguments)?;
    let result = initialize(command_line).map_err(|reason| Error::Start { arguments, reason });
    let result =
        result.and_then(|()| Ok(Eal { pool: Buffers::make(buffers_for(workers), room_for(mtu))? }));
    *started = Some((given.map(<[String]>::to_vec), result.as_ref().ok().copied()));
    result
}

impl Buffers {
    /// Longest packet for which a buffer has room, bytes.
    pub(crate) fn longest(self) -> u16 {
        self.room - ETHERNET
    }

    fn make(count: u32, room: u16) -> Result<Self, Error> {
        // SAFETY: the environment runs.
        let memory = unsafe { sys::natgate_dpdk_pool(count, CACHE, room) };
        let memory = NonNull::new(memory).ok_or(Error::Memory { count, bytes: room.into() })?;
        Ok(Self { memory, pool: Pool::unique(), room })
    }
}

/// Arguments that virtual devices need.
fn usual_arguments(memory: u32) -> Vec<String> {
    let memory = memory.to_string();
    let arguments: &[&str] = match huge_pages_are_free() {
        true => &["--no-pci", "--in-memory"],
        false => &["--no-pci", "--no-shconf", "--no-huge", "-m", &memory],
    };
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

fn huge_pages_are_free() -> bool {
    let Ok(sizes) = fs::read_dir("/sys/kernel/mm/hugepages") else { return false };
    sizes.flatten().any(|size| {
        let free = fs::read_to_string(size.path().join("free_hugepages"));
        free.is_ok_and(|count| count.trim().parse::<u64>().is_ok_and(|count| count > 0))
    })
}

/// Buffers for `workers` workers; one less than a power of two costs the least memory.
fn buffers_for(workers: u16) -> u32 {
    BUFFERS * (1 + u32::from(workers.clamp(1, MOST_WORKERS))) - 1
}

/// Memory for the buffers of workers beside the first, MiB, with room for packets of the default
/// MTU.
fn memory_of_further(workers: u16) -> u32 {
    let further = u64::from(buffers_for(workers) - buffers_for(1));
    let bytes = further * (u64::from(room_for(USUAL_MTU)) + BESIDES);
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

/// Room of a buffer for packets of `mtu` bytes.
fn room_for(mtu: u16) -> u16 {
    (mtu.min(MOST_MTU) + ETHERNET).max(LEAST_ROOM)
}

fn command_line(arguments: &[String]) -> Result<Vec<CString>, Error> {
    let core = allowed_cores().into_iter().next().unwrap_or(0).to_string();
    let ours = ["natgate", "--no-telemetry", "--log-level=error", "-l", &core];
    let all = ours.into_iter().chain(arguments.iter().map(String::as_str));
    all.map(|argument| text("the argument of dpdk.eal", argument)).collect()
}

/// Converts text to a C string.
pub(crate) fn text(what: &'static str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Text { what, text: text.to_owned() })
}

/// Starts the environment, then restores the cores on which this thread may run.
fn initialize(arguments: Vec<CString>) -> Result<(), Refusal> {
    // DPDK reorders the pointers and may keep some, so neither they nor the texts are ever freed.
    let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    pointers.push(std::ptr::null_mut());
    let count = (pointers.len() - 1) as c_int;
    let before = affinity();
    // SAFETY: `count` texts, and a null after them, that live as long as the process.
    let result = unsafe { sys::natgate_dpdk_start(count, pointers.leak().as_mut_ptr()) };
    if let Some(before) = before {
        // SAFETY: a set of this size is passed; 0 is this thread.
        unsafe { libc::sched_setaffinity(0, mem::size_of_val(&before), &before) };
    }
    check(result).map(drop)
}

/// Cores on which this thread may run.
fn affinity() -> Option<libc::cpu_set_t> {
    // SAFETY: a set is integers, of which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: a set of this size is passed; 0 is this thread.
    let result = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    (result == 0).then_some(set)
}

fn allowed_cores() -> Vec<usize> {
    let Some(set) = affinity() else { return Vec::new() };
    // SAFETY: the numbers are below the size of a set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Result of a function of the shim: a number, or a negative error number.
pub(crate) fn check(result: c_int) -> Result<c_int, Refusal> {
    if result < 0 { Err(Refusal::new(-result)) } else { Ok(result) }
}

/// Name and arguments of a device, as C strings.
pub(crate) fn split(device: &str) -> Result<(CString, CString), Error> {
    let name = port_name(device);
    let arguments = device[name.len()..].trim_start_matches(',');
    Ok((text("the device", name)?, text("the device", arguments)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_buffers() {
        assert_eq!([0, 1, 2, 4].map(buffers_for), [16_383, 16_383, 24_575, 40_959]);
        assert_eq!(buffers_for(u16::MAX), (1 << 20) - 1);
    }

    #[test]
    fn further_workers_get_memory_for_their_buffers() {
        // 8,192 buffers of 2,560 bytes for each.
        assert_eq!([0, 1, 2, 8].map(memory_of_further), [0, 0, 20, 140]);
    }

    #[test]
    fn buffers_have_room_for_the_longest_frame() {
        assert_eq!(room_for(1500), 2048);
        assert_eq!(room_for(9000), 9026);
        assert!(room_for(u16::MAX) > 64_000);
    }

    #[test]
    fn a_device_is_a_name_and_its_arguments() {
        let parts = |device| {
            let (name, arguments) = split(device).unwrap();
            (name.into_string().unwrap(), arguments.into_string().unwrap())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(parts("net_null0"), pair("net_null0", ""));
        assert_eq!(parts("net_memif0,role=server,id=1"), pair("net_memif0", "role=server,id=1"));
        assert!(matches!(split("a\0b"), Err(Error::Text { .. })));
    }
}
