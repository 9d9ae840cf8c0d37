//! Processor time of this thread, or of the process. The work of other programs on a shared machine
//! does not count, as far as the kernel can separate it.

use libc::{CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, clock_gettime, clockid_t, timespec};

/// Nanoseconds of processor time of this thread.
pub(crate) fn now() -> u64 {
    read(CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds of processor time of all threads of the process.
pub(crate) fn of_process() -> u64 {
    read(CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: clockid_t) -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which lives during the call; every thread and every
    // process has its clock.
    let status = unsafe { clock_gettime(clock, &raw mut time) };
    assert_eq!(status, 0, "a thread and a process have a clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time of `work`, nanoseconds, and its result.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = now();
    let result = work();
    ((now() - start) as f64, result)
}
