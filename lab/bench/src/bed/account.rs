//! Processor time: whose is counted, and on which processor it is spent.
//!
//! A program's threads are counted by the scheduler. So are the kernel's threads that take frames
//! in from the subject's devices: with threaded NAPI what the kernel does with a frame, forwarding
//! and translating it included, is done in a thread of the device's own instead of an interrupt of
//! the sender's. All of it is the subject's time, and nothing of the tester's is.

use natgate_tester::{ProcessorError, process_time, task_time};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// The niceness of what measures and is measured.
const PREFERRED: i32 = -10;
/// Where the scheduler says of which group of tasks this process is, and how nice that is.
const SESSION: &str = "/proc/self/autogroup";
/// How long threads of the kernel's may take to be there.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whose time is the subject's.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Processes, with all their threads.
    pub processes: Vec<u32>,
    /// Threads.
    pub tasks: Vec<u32>,
}

impl Account {
    /// What was spent until now.
    ///
    /// # Errors
    /// [`ProcessorError`] when one of them is no more.
    pub fn spent(&self) -> Result<Duration, ProcessorError> {
        let processes = self.processes.iter().map(|&process| process_time(process));
        let tasks = self.tasks.iter().map(|&task| task_time(task));
        let mut time = Duration::ZERO;
        for each in processes.chain(tasks) {
            time += each?;
        }
        Ok(time)
    }

    /// Has all of them run on one processor, before what else the machine does there.
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

/// Processors of the machine that may be used.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Has a thread run on one processor; `None`: this one.
pub(super) fn pin(task: Option<u32>, processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    let task = task.and_then(|task| Pid::from_raw(task as i32));
    Ok(sched_setaffinity(task, &set)?)
}

/// Has a thread go before the generator's, and before what else the machine does.
pub(super) fn prefer(task: u32) -> io::Result<()> {
    Ok(setpriority_process(Pid::from_raw(task as i32), PREFERRED)?)
}

/// Has a thread go before all others of its processor, as the interrupts do that it stands for.
fn put_first(task: u32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call, which only reads them.
    match unsafe { libc::sched_setscheduler(task as i32, libc::SCHED_FIFO, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The session's share of the processors is the usual one again when this goes.
pub(super) struct Session(Option<String>);

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(niceness) = &self.0 {
            // Whoever may raise it may lower it.
            let _ = fs::write(SESSION, niceness);
        }
    }
}

/// Has this process and what it starts go before the rest of the machine. Where the scheduler
/// groups tasks by session, niceness counts for nothing against those of other groups, such as the
/// kernel's threads: these would keep the subject waiting for milliseconds.
pub(super) fn prefer_session() -> Session {
    let before = fs::read_to_string(SESSION).ok();
    let before = before.and_then(|text| Some(text.trim().rsplit_once(' ')?.1.to_owned()));
    // Linux may be built without.
    Session(before.filter(|_| fs::write(SESSION, PREFERRED.to_string()).is_ok()))
}

/// Has this thread's priority be the usual one.
pub(super) fn prefer_none() -> io::Result<()> {
    Ok(setpriority_process(None, 0)?)
}

/// The kernel's threads that take frames in from these interfaces, put on a processor.
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
        // What has just ended has no name any more.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        if names.iter().any(|device| belongs(&name, device)) {
            found.push(number);
        }
    }
    Ok(found)
}

/// Whether a thread of this name takes in frames of the device: `napi/<device>-<number>`.
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
