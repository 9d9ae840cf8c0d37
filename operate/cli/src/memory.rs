//! Whether the machine has the memory that something will take: tables are set aside at once and
//! taken as they are used, so what is missing would be noticed hours later, when the kernel ends
//! the process. And that what a daemon frees is the machine's again.
//!
//! A process may have less memory than the machine: by a limit of its address space. What fails at
//! the start because of that ends the process with a sentence, not with a signal.

use bytesize::ByteSize;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Makes sure that the machine has `needed` bytes to give, and that this process may have them.
///
/// # Errors
/// One sentence that says how much `what` needs and how much there is. Where the kernel does not
/// say, nothing is an error.
pub fn require(needed: u64, what: &str) -> Result<(), String> {
    let show = |bytes| ByteSize(bytes).display().iec();
    if let Some(left) = left_of_limit().filter(|left| needed > *left) {
        return Err(format!(
            "{what} needs {} of memory and this process may take {} more by its limit, \
             `ulimit -v` or LimitAS= of a unit",
            show(needed),
            show(left)
        ));
    }
    match available() {
        Some(available) if needed > available => Err(format!(
            "{what} needs {} of memory and the machine has {} available",
            show(needed),
            show(available)
        )),
        _ => Ok(()),
    }
}

/// Bytes that this process may still take by its limit of address space, if it has one.
fn left_of_limit() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let taken = kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmSize:")?;
    Some(limit.saturating_sub(taken << 10))
}

/// What memory is being taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Devices and their rings.
    Devices,
    /// Event logs and their queues.
    Logs,
    /// Workers and their tables.
    Tables,
    /// All else that is made before packets flow.
    Rest,
    /// Packets flow: the process does not end by a sentence any more.
    Running,
}

impl Stage {
    const ALL: [Self; 5] = [Self::Devices, Self::Logs, Self::Tables, Self::Rest, Self::Running];

    /// What the memory is for, and the keys that make it less.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Devices => ("the devices", "inside.ring, outside.ring or workers.count"),
            Self::Logs => ("event logs", "queue of a [[log]]"),
            Self::Tables => (
                "the tables of mappings and sessions",
                "limits.mappings, limits.extra_sessions or workers.count",
            ),
            Self::Rest | Self::Running => ("the start", "limits.mappings or workers.count"),
        }
    }
}

/// The place in [`Stage::ALL`] of what is being done.
static STAGE: AtomicUsize = AtomicUsize::new(Stage::Running as usize);

/// The exit code for configurations that cannot be used.
const EXIT_CODE: i32 = 2;

/// Says what memory is taken for from now on. Until [`Stage::Running`] the process ends with a
/// sentence if there is none.
pub fn enter(stage: Stage) {
    natgate_hugepages::on_exhaustion(end_with_a_sentence);
    STAGE.store(stage as usize, Ordering::Relaxed);
}

/// Ends the process at its start, because so many bytes cannot be had.
fn end_with_a_sentence(size: usize) {
    let stage = Stage::ALL[STAGE.load(Ordering::Relaxed)];
    if stage == Stage::Running {
        return;
    }
    let mut text = [0; 512];
    let written = write_sentence(&mut text, stage, size);
    // It is not buffered, so nothing is allocated.
    let _ = io::stderr().write_all(&text[..written]);
    // SAFETY: the process ends at once, whatever state other threads and buffers are in.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Writes the sentence without allocating; returns its length.
fn write_sentence(text: &mut [u8], stage: Stage, size: usize) -> usize {
    let (what, keys) = stage.words();
    let room = text.len();
    let mut rest = &mut *text;
    let _ = writeln!(
        rest,
        "natgate: {what} need {} KiB of memory more and cannot have it; lower {keys}, or raise the \
         limit of this process (`ulimit -v`, or LimitAS= of a unit)",
        size.div_ceil(1024)
    );
    room - rest.len()
}

/// Has every large piece of memory go back to the machine as soon as it is freed. By itself the C
/// library comes to keep pieces of the size that was freed last, for each thread, so that a daemon
/// whose configuration is exchanged now and then has 10 MiB more or less for no visible reason.
pub fn return_what_is_freed() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE: libc::c_int = 256 << 10;
        // SAFETY: it sets a number in the C library, under a lock of its own.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        }
    }
}

/// Bytes that a program may still take, reserved huge pages that are free included; `None`: the
/// kernel does not say.
pub fn available() -> Option<u64> {
    available_by(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// A field of one of the kernel's texts, in the unit that it has there.
fn kibibytes(information: &str, name: &str) -> Option<u64> {
    let line = information.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()
}

fn available_by(information: &str) -> Option<u64> {
    let field = |name: &str| kibibytes(information, name);
    let reserved = field("HugePages_Free:")
        .zip(field("HugePages_Rsvd:").or(Some(0)))
        .zip(field("Hugepagesize:"))
        .map_or(0, |((free, promised), size)| free.saturating_sub(promised) * size);
    Some((field("MemAvailable:")? + reserved) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFORMATION: &str = "\
MemTotal:       24731708 kB
MemAvailable:    1000000 kB
HugePages_Total:     512
HugePages_Free:      300
HugePages_Rsvd:      100
Hugepagesize:       2048 kB
";

    #[test]
    fn free_huge_pages_count() {
        assert_eq!(available_by(INFORMATION), Some((1_000_000 + 200 * 2048) << 10));
        assert_eq!(available_by("MemAvailable: 7 kB\n"), Some(7 << 10));
        assert_eq!(available_by(""), None);
    }

    #[test]
    fn the_sentence_for_each_stage_names_amount_and_keys() {
        for stage in Stage::ALL {
            assert_eq!(Stage::ALL[stage as usize], stage);
            let mut text = [0; 512];
            let written = write_sentence(&mut text, stage, 200 << 20);
            let said = std::str::from_utf8(&text[..written]).unwrap();
            let (what, keys) = stage.words();
            assert!(said.starts_with(&format!("natgate: {what} need 204800 KiB")), "{said}");
            assert!(said.contains(keys) && said.ends_with(" of a unit)\n"), "{said}");
        }
    }

    #[test]
    fn what_no_machine_has_is_refused_in_one_sentence() {
        assert_eq!(require(1, "a byte"), Ok(()));
        let refused = require(1 << 60, "the configuration").unwrap_err();
        assert!(
            refused.starts_with("the configuration needs 1.0 EiB of memory and the machine has "),
            "{refused}"
        );
    }
}
