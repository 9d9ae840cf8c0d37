//! The processor's counter of cycles.

/// The counter. Calls before it have ended, and those after it have not begun.
#[cfg(target_arch = "x86_64")]
pub fn cycles() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: every processor of 64 bits has the counter and the barriers, which change nothing
    // else. That it may touch memory is what the compiler is to believe, lest it moves work past
    // it.
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

/// Where there is none: nanoseconds since it was first asked.
#[cfg(not(target_arch = "x86_64"))]
pub fn cycles() -> u64 {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// What reading it takes: the median of many times between two readings.
pub(crate) fn own() -> u64 {
    let mut times = [0; 1001];
    for time in &mut times {
        let begin = cycles();
        *time = cycles() - begin;
    }
    times.sort_unstable();
    times[times.len() / 2]
}
