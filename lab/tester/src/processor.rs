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

/// Processor time of a process with all its threads.
///
/// # Errors
/// [`ProcessorError`] if there is no such process.
pub fn process_time(process: u32) -> Result<Duration, ProcessorError> {
    let failed = |cause| ProcessorError { process, cause };
    let tasks = fs::read_dir(format!("/proc/{process}/task")).map_err(failed)?;
    let mut total = Duration::ZERO;
    for task in tasks {
        total += read(&task.map_err(failed)?.path()).map_err(failed)?;
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
        let own = std::process::id();
        let before = process_time(own).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(60) {}
        let worked = process_time(own).unwrap() - before;
        // Other processes may have used the processor meanwhile, and the scheduler may count only
        // at its ticks.
        assert!(worked > Duration::from_millis(10), "{worked:?}");
        assert!(process_time(u32::MAX).is_err() && task_time(u32::MAX).is_err());
    }
}
