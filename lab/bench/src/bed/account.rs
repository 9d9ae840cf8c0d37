//! Processor time of the subject, and the choice of the processor that each thread runs on.
//!
//! The scheduler counts the time of a program's threads. It also counts the kernel's threads that
//! take frames in from the subject's devices. With threaded NAPI a thread of the device does the
//! kernel's work on a frame, forwarding and translation included, instead of an interrupt of the
//! sender. All of that time is the subject's, and none of it is the tester's.

use natgate_tester::{ProcessorError, process_time, task_time};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Niceness of the threads that measure and of the threads that are measured.
const PREFERRED: i32 = -10;
/// File with the scheduler's task group of this process and the niceness of that group.
const SESSION: &str = "/proc/self/autogroup";
/// Longest wait for threads of the kernel to appear.
const PATIENCE: Duration = Duration::from_secs(2);

/// Processes and threads that count as the subject's.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Processes, with all their threads.
    pub processes: Vec<u32>,
    /// Threads.
    pub tasks: Vec<u32>,
}

impl Account {
    /// Returns the processor time spent until now.
    ///
    /// # Errors
    /// [`ProcessorError`] if a process or thread has ended.
    pub fn spent(&self) -> Result<Duration, ProcessorError> {
        let processes = self.processes.iter().map(|&process| process_time(process));
        let tasks = self.tasks.iter().map(|&task| task_time(task));
        let mut time = Duration::ZERO;
        for each in processes.chain(tasks) {
            time += each?;
        }
        Ok(time)
    }

    /// Pins all of them to one processor, with priority over the machine's other work there.
    pub(super) fn pin(&self, processor: usize) -> io::Result<()> {
        for process in &self.processes {
            for task in fs::read_dir(format!("/proc/{process}/task"))? {
                let name = task?.file_name();
                let task = name.to_str().and_then(|name| name.parse().ok());
                pin(task, processor)?;
                task.map_or(Ok(()), prefer)?;
            }
        }
        for &task in &self.tasks {
            pin(Some(task), processor)?;
            prefer(task)?;
        }
        Ok(())
    }
}

/// Number of processors that this process may use.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pins a thread to one processor; `None` is this thread.
pub(super) fn pin(task: Option<u32>, processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    let task = task.and_then(|task| Pid::from_raw(task as i32));
    Ok(sched_setaffinity(task, &set)?)
}

/// Gives a thread priority over the generator and over the machine's other work.
pub(super) fn prefer(task: u32) -> io::Result<()> {
    Ok(setpriority_process(Pid::from_raw(task as i32), PREFERRED)?)
}

/// Gives a thread priority over all others of its processor. The thread stands for interrupts,
/// which have that priority.
fn put_first(task: u32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call, which only reads them.
    match unsafe { libc::sched_setscheduler(task as i32, libc::SCHED_FIFO, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Restores the session's usual share of the processors when dropped.
pub(super) struct Session(Option<String>);

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(niceness) = &self.0 {
            // A process that could raise the share can lower it.
            let _ = fs::write(SESSION, niceness);
        }
    }
}

/// Gives this process and its children priority over the rest of the machine. If the scheduler
/// groups tasks by session, niceness has no effect against tasks of other groups. The kernel's
/// threads are in such groups and would delay the subject by milliseconds.
pub(super) fn prefer_session() -> Session {
    let before = fs::read_to_string(SESSION).ok();
    let before = before.and_then(|text| Some(text.trim().rsplit_once(' ')?.1.to_owned()));
    // A Linux kernel may lack session groups.
    Session(before.filter(|_| fs::write(SESSION, PREFERRED.to_string()).is_ok()))
}

/// Gives this thread the usual priority.
pub(super) fn prefer_none() -> io::Result<()> {
    Ok(setpriority_process(None, 0)?)
}

/// Finds the kernel's threads that take frames in from these interfaces, and pins them to a
/// processor.
pub(super) fn interface_threads(names: &[String], processor: usize) -> io::Result<Vec<u32>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let threads = find(names)?;
        if threads.len() >= names.len() {
            for &thread in &threads {
                pin(Some(thread), processor)?;
                put_first(thread)?;
            }
            return Ok(threads);
        }
        if Instant::now() > end {
            return Err(io::Error::other(format!(
                "the kernel has no threads for {}: threaded NAPI on veth needs Linux 5.15 or later",
                names.join(" and ")
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn find(names: &[String]) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number else { continue };
        // A process that has just ended has no name.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        if names.iter().any(|device| belongs(&name, device)) {
            found.push(number);
        }
    }
    Ok(found)
}

/// Returns true if a thread of this name takes in frames of the device: `napi/<device>-<number>`.
fn belongs(thread: &str, device: &str) -> bool {
    let rest = thread.strip_prefix("napi/").and_then(|rest| rest.strip_prefix(device));
    rest.is_some_and(|rest| rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_known_by_their_devices_names() {
        assert!(belongs("napi/i12345-739\n", "i12345"));
        assert!(!belongs("napi/i123456-739\n", "i12345"));
        assert!(!belongs("napi/a12345-739\n", "i12345") && !belongs("natgate\n", "i12345"));
    }

    #[test]
    fn an_account_adds_up_its_threads_and_processes() {
        let own = std::process::id();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20) {}
        let once = Account { processes: vec![own], tasks: vec![] }.spent().unwrap();
        let twice = Account { processes: vec![own, own], tasks: vec![] }.spent().unwrap();
        assert!(twice >= once * 2, "{once:?} {twice:?}");
        let gone = Account { processes: vec![], tasks: vec![u32::MAX] };
        assert!(gone.spent().is_err());
    }
}
