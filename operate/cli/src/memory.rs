//! The machine's memory: a check that it has the memory that something will take, and the return of
//! memory that a daemon frees. Tables are set aside at once and taken as they are used. Without the
//! check, a lack would be noticed hours later, when the kernel ends the process.
//!
//! A process may have less memory than the machine: by a limit of its address space, or by one of
//! its control groups, whose processes the kernel ends. A start that fails for lack of memory ends
//! the process with a sentence, not with a signal.

mod groups;

use bytesize::ByteSize;
use groups::GroupLimit;
use natgate_hugepages::HUGE_PAGE;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder with the reserves of huge pages, by their size.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Makes sure that the machine has `needed` bytes to give, and that this process may have them.
///
/// # Errors
/// One sentence that says how much `what` needs and how much there is. If the kernel does not say,
/// nothing is an error.
pub fn require(needed: u64, what: &str) -> Result<(), String> {
    let information = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let reserved = reserved_by(&information, Path::new(HUGE_PAGES));
    let supply = Supply {
        address_space: left_of_limit(),
        // The kernel does not charge reserved huge pages to groups.
        group: groups::tightest().map(|mut group| {
            group.left = group.left.saturating_add(reserved);
            group
        }),
        machine: field(&information, "MemAvailable:").map(|free| (free << 10) + reserved),
    };
    supply.lack(needed, what).map_or(Ok(()), Err)
}

/// Bytes that this process may still take: by each of the limits that there are.
struct Supply {
    address_space: Option<u64>,
    group: Option<GroupLimit>,
    machine: Option<u64>,
}

impl Supply {
    /// The sentence that says what is missing, if anything is.
    fn lack(&self, needed: u64, what: &str) -> Option<String> {
        let show = |bytes| ByteSize(bytes).display().iec();
        let begin = format!("{what} needs {} of memory and", show(needed));
        if let Some(left) = self.address_space.filter(|left| needed > *left) {
            return Some(format!(
                "{begin} this process may take {} more by its limit, `ulimit -v` or LimitAS= of a \
                 unit",
                show(left)
            ));
        }
        if let Some(group) = self.group.as_ref().filter(|group| needed > group.left) {
            return Some(format!(
                "{begin} this process may take {} more by the limit of its control group, {} \
                 (MemoryMax= of a unit, --memory of a container)",
                show(group.left),
                group.file.display()
            ));
        }
        let available = self.machine.filter(|available| needed > *available)?;
        Some(format!("{begin} the machine has {} available", show(available)))
    }
}

/// Bytes that this process may still take by its limit of address space, if it has one.
fn left_of_limit() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let taken = field(&fs::read_to_string("/proc/self/status").ok()?, "VmSize:")?;
    Some(limit.saturating_sub(taken << 10))
}

/// Purpose for which memory is being taken.
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

    /// Purpose of the memory, and the keys that make it less.
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

/// The place of the present stage in [`Stage::ALL`].
static STAGE: AtomicUsize = AtomicUsize::new(Stage::Running as usize);

/// The exit code if the machine has too little memory: a service manager tries again.
const EXIT_CODE: i32 = 1;

/// Begins a stage: memory is taken for it from now on. Until [`Stage::Running`] the process ends
/// with a sentence if there is none.
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
    let information = fs::read_to_string("/proc/meminfo").ok()?;
    let reserved = reserved_by(&information, Path::new(HUGE_PAGES));
    Some((field(&information, "MemAvailable:")? << 10) + reserved)
}

/// The number behind a name at the beginning of a line, in one of the kernel's texts.
fn field(information: &str, name: &str) -> Option<u64> {
    let line = information.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes of reserved huge pages that are free and of the size that tables take. A machine can have
/// reserves of several sizes, and /proc/meminfo tells one of them: the default, often 1 GiB.
fn reserved_by(information: &str, folder: &Path) -> u64 {
    const KIB: usize = HUGE_PAGE >> 10;
    let folder = folder.join(format!("hugepages-{KIB}kB"));
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
    let is_default = field(information, "Hugepagesize:") == Some(KIB as u64);
    let told = |name| field(information, name).filter(|_| is_default);
    let free: Option<u64> = read("free_hugepages").or_else(|| told("HugePages_Free:"));
    let promised = read("resv_hugepages").or_else(|| told("HugePages_Rsvd:"));
    free.unwrap_or_default().saturating_sub(promised.unwrap_or_default()) * HUGE_PAGE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default size of a machine with reserves of 1 GiB pages.
    const INFORMATION: &str = "\
MemTotal:       24731708 kB
MemAvailable:    1000000 kB
HugePages_Total:       8
HugePages_Free:        7
HugePages_Rsvd:        1
Hugepagesize:    1048576 kB
";

    #[test]
    fn reserved_pages_count_if_they_are_of_the_size_that_tables_take() {
        let none = Path::new("/nonexistent");
        assert_eq!(reserved_by(INFORMATION, none), 0);
        assert_eq!(reserved_by("", none), 0);
        let small = INFORMATION.replace("1048576", "2048");
        assert_eq!(reserved_by(&small, none), 6 << 21);
        let sizes = std::env::temp_dir().join(format!("natgate-pages-{}", std::process::id()));
        for (size, free, promised) in [("1048576", "7\n", "1\n"), ("2048", "300\n", "100\n")] {
            let folder = sizes.join(format!("hugepages-{size}kB"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("free_hugepages"), free).unwrap();
            fs::write(folder.join("resv_hugepages"), promised).unwrap();
        }
        let counted = [INFORMATION, &small].map(|information| reserved_by(information, &sizes));
        fs::remove_dir_all(&sizes).unwrap();
        assert_eq!(counted, [200 << 21; 2]);
    }

    #[test]
    fn the_limit_that_is_too_low_is_named() {
        let group = |left| Some(GroupLimit { left, file: "/sys/g/memory.max".into() });
        let lack = |address_space, left, machine| {
            let machine = Some(machine);
            Supply { address_space, group: group(left), machine }.lack(3 << 30, "all of it")
        };
        assert_eq!(lack(None, 3 << 30, 3 << 30), None);
        let said = lack(Some(2 << 30), 1 << 30, 1 << 30).unwrap();
        assert!(
            said.ends_with("may take 2.0 GiB more by its limit, `ulimit -v` or LimitAS= of a unit")
        );
        assert_eq!(
            lack(Some(4 << 30), 1 << 30, 4 << 30).unwrap(),
            "all of it needs 3.0 GiB of memory and this process may take 1.0 GiB more by the limit \
             of its control group, /sys/g/memory.max (MemoryMax= of a unit, --memory of a \
             container)"
        );
        let said = lack(None, 4 << 30, 2 << 30).unwrap();
        assert!(said.ends_with(" and the machine has 2.0 GiB available"), "{said}");
        let unknown = Supply { address_space: None, group: None, machine: None };
        assert_eq!(unknown.lack(u64::MAX, "all of it"), None);
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
        assert!(refused.starts_with("the configuration needs 1.0 EiB of memory and "), "{refused}");
    }
}
