//! Memory as the experiments see it: what is resident, lines fetched ahead, tables that are there
//! before the clock runs.

/// An empty vector whose memory has been touched, so that filling it makes the kernel do nothing.
pub(crate) fn touched<T: Copy>(capacity: usize, value: T) -> Vec<T> {
    let mut vector = vec![value; capacity];
    std::hint::black_box(&mut vector);
    vector.clear();
    vector
}

/// Bytes that the process has resident, reserved huge pages included, after what was freed has gone
/// back to the kernel.
pub(crate) fn resident() -> u64 {
    // SAFETY: the allocator gives back pages that nobody has; no live block is touched.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    // Not `status`: its counters are of each processor and may be off by some hundred KiB.
    let pages = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let field = |name: &str| {
        let line = pages.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let kibibytes =
        ["Rss:", "Shared_Hugetlb:", "Private_Hugetlb:"].map(|name| field(name).unwrap_or(0));
    kibibytes.iter().sum::<u64>() << 10
}
