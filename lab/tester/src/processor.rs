//! Processor time of other processes, in nanoseconds, as the scheduler counts it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Failure to read the processor time of a process.
#[derive(Debug, thiserror::Error)]
#[error("the processor time of process {process} cannot be read: {cause}")]
pub struct ProcessorError {
    /// The process.
    pub process: u32,
    /// Error of the system.
    pub cause: io::Error,
}

/// Processor time of a process with all its present threads.
///
/// # Errors
/// [`ProcessorError`] if there is no such process.
pub fn process_time(process: u32) -> Result<Duration, ProcessorError> {
    let failed = |cause| ProcessorError { process, cause };
    let tasks = fs::read_dir(format!("/proc/{process}/task")).map_err(failed)?;
    let mut total = Duration::ZERO;
    for task in tasks {
        match read(&task.map_err(failed)?.path()) {
            Ok(time) => total += time,
            // The thread has ended since the list was read.
            Err(cause) if has_ended(&cause) => {}
            Err(cause) => return Err(failed(cause)),
        }
    }
    Ok(total)
}

/// Processor time of one thread, by its id.
///
/// # Errors
/// [`ProcessorError`] if there is no such thread.
pub fn task_time(task: u32) -> Result<Duration, ProcessorError> {
    let path = format!("/proc/{task}");
    read(Path::new(&path)).map_err(|cause| ProcessorError { process: task, cause })
}

/// True if a task cannot be read because it has ended.
fn has_ended(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::NotFound || cause.raw_os_error() == Some(libc::ESRCH)
}

/// Run time of a task: the first number in the kernel's statistics.
fn read(task: &Path) -> io::Result<Duration> {
    let text = fs::read_to_string(task.join("schedstat"))?;
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Ok(Duration::from_nanos(nanoseconds.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn work_is_counted_and_waiting_is_not() {
        // Other threads of this process begin and end meanwhile.
        let own = || read(Path::new("/proc/thread-self")).unwrap();
        let before = own();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(60) {}
        let worked = own() - before;
        // Other processes may have used the processor meanwhile, and the scheduler may count only
        // at its ticks.
        assert!(worked > Duration::from_millis(10), "{worked:?}");
        assert!(process_time(std::process::id()).unwrap() >= worked);
        assert!(process_time(u32::MAX).is_err() && task_time(u32::MAX).is_err());
    }
}
