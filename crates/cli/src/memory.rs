//! Whether the machine has the memory that something will take: tables are set aside at once and
//! taken as they are used, so what is missing would be noticed hours later, when the kernel ends
//! the process. And that what a daemon frees is the machine's again.

use bytesize::ByteSize;
use std::fs;

/// Makes sure that the machine has `needed` bytes to give.
///
/// # Errors
/// One sentence that says how much `what` needs and how much there is. Where the kernel does not
/// say, nothing is an error.
pub fn require(needed: u64, what: &str) -> Result<(), String> {
    match available() {
        Some(available) if needed > available => Err(format!(
            "{what} needs {} of memory and the machine has {} available",
            ByteSize(needed).display().iec(),
            ByteSize(available).display().iec()
        )),
        _ => Ok(()),
    }
}

/// Has every large piece of memory go back to the machine as soon as it is freed. By itself the C library
/// comes to keep pieces of the size that was freed last, for each thread, so that a daemon whose
/// configuration is exchanged now and then has 10 MiB more or less for no visible reason.
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

fn available_by(information: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = information.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
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
    fn what_no_machine_has_is_refused_in_one_sentence() {
        assert_eq!(require(1, "a byte"), Ok(()));
        let refused = require(1 << 60, "the configuration").unwrap_err();
        assert!(
            refused.starts_with("the configuration needs 1.0 EiB of memory and the machine has "),
            "{refused}"
        );
    }
}
