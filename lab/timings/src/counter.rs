//! The processor's cycle counter.

/// Reads the counter. Earlier calls have ended, and later ones have not begun.
#[cfg(target_arch = "x86_64")]
pub fn cycles() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: every processor of 64 bits has the counter and the barriers, which change nothing
    // else. The compiler must assume accesses to memory, so that it moves no work past the read.
    unsafe {
        core::arch::asm!(
            "lfence",
            "rdtsc",
            "lfence",
            out("eax") low,
            out("edx") high,
            options(nostack)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Nanoseconds since the first call, on machines without the counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn cycles() -> u64 {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// Cost of a read: the median over many pairs of reads.
pub(crate) fn own() -> u64 {
    let mut times = [0; 1001];
    for time in &mut times {
        let begin = cycles();
        *time = cycles() - begin;
    }
    times.sort_unstable();
    times[times.len() / 2]
}
