//! Memory of the experiments: resident bytes, prefetched lines, and tables that exist before the
//! measurement.

/// Creates an empty vector with touched memory, so that filling it makes no work for the kernel.
pub(crate) fn touched<T: Copy>(capacity: usize, value: T) -> Vec<T> {
    let mut vector = vec![value; capacity];
    std::hint::black_box(&mut vector);
    vector.clear();
    vector
}

/// Resident bytes of the process, reserved huge pages included. Freed memory goes back to the
/// kernel first.
pub(crate) fn resident() -> u64 {
    // SAFETY: the allocator gives back only pages without live blocks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    // The counters of `status` are kept per processor, and may be wrong by some hundred KiB.
    let pages = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let field = |name: &str| {
        let line = pages.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let kibibytes =
        ["Rss:", "Shared_Hugetlb:", "Private_Hugetlb:"].map(|name| field(name).unwrap_or(0));
    kibibytes.iter().sum::<u64>() << 10
}
