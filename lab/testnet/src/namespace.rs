//! One network namespace: made and removed by `ip netns`, entered by threads and by programs.
//!
//! A namespace is known by its name alone, `<tag><process number>-<node>`, so that what a killed
//! process left behind can be found and removed by another: see [`sweep`]. What may start a process
//! or make a namespace does so under [`GATE`], which [`abandon`] takes and never gives back.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// How the name of a network's directory ends.
const FILES: &str = "files";

/// Held while something is started that would have to be cleaned up.
static GATE: Mutex<()> = Mutex::new(());

/// A network namespace with a name.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes it.
    pub(crate) fn create(name: String) -> io::Result<Self> {
        let _gate = gate();
        ip(&["netns", "add", &name])?;
        Ok(Self { name })
    }

    /// The name, as `ip netns exec` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does some work in a thread that is in this namespace. Sockets made there belong to it for
    /// good, whoever uses them later.
    ///
    /// # Errors
    /// The system's, when the namespace cannot be entered.
    ///
    /// # Panics
    /// When the work does.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let name = self.name.as_str();
        thread::scope(|scope| {
            let handle = scope.spawn(move || enter_here(name).map(|()| work()));
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a program to its end, but for so many seconds at most; then it is killed and its exit
    /// code is 124.
    ///
    /// # Errors
    /// When it cannot be started or its exit code is not 0: the message has what it said.
    pub fn run(&self, seconds: u32, program: &str, arguments: &[&str]) -> io::Result<Output> {
        let seconds = seconds.to_string();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "timeout", "-k", "1", &seconds, program]);
        command.args(arguments);
        let child = {
            let _gate = gate();
            start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?
        };
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(output);
        }
        let (said, wrong) = (text(&output.stdout), text(&output.stderr));
        let ending = match output.status.code() {
            Some(124) => format!("did not end within {seconds} s"),
            _ => format!("ended with {}", output.status),
        };
        let message = format!("{program} {} {ending}: {wrong} {said}", arguments.join(" "));
        Err(io::Error::other(message.trim().to_owned()))
    }

    /// Starts a program that stays; it is killed with the thread that started it.
    ///
    /// # Errors
    /// The system's, when it cannot be started.
    pub fn start(&self, program: &Path, arguments: &[&str], log: &Path) -> io::Result<Child> {
        self.start_with_input(program, arguments, log, Stdio::null())
    }

    /// As [`Self::start`], with an input.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn start_with_input(
        &self,
        program: &Path,
        arguments: &[&str],
        log: &Path,
        input: Stdio,
    ) -> io::Result<Child> {
        let log = File::create(log)?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "setpriv", "--pdeathsig", "KILL"]);
        command.arg(program).args(arguments);
        let _gate = gate();
        start(command.stdin(input).stdout(log.try_clone()?).stderr(log))
    }

    /// Commands to `ip`, one a line, inside the namespace.
    ///
    /// # Errors
    /// What `ip` said, with the commands.
    pub fn ip_batch(&self, lines: &str) -> io::Result<()> {
        let _gate = gate();
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch", "-"]);
        let mut child =
            start(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()))?;
        let mut input = child.stdin.take().expect("standard input was asked for");
        // If it has ended already, what it said tells more than the broken pipe.
        let _ = input.write_all(lines.as_bytes());
        drop(input);
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let wrong = text(&output.stderr);
        Err(io::Error::other(format!("ip -n {} -batch: {wrong} in:\n{lines}", self.name)))
    }

    /// Sets a key below `/proc/sys/net` if this kernel has it.
    ///
    /// # Errors
    /// The system's, when the kernel does not take the value.
    pub fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let path = Path::new("/proc/sys/net").join(key);
        self.enter(|| if path.exists() { fs::write(&path, value) } else { Ok(()) })?
    }
}

/// For the endings that drop nothing, a signal or a panic that aborts: lets nothing new be started,
/// ends every child of this process, removes what bears the prefix, and ends the process with this
/// exit code.
pub fn abandon(prefix: &str, code: i32) -> ! {
    let _gate = gate();
    for task in entries("/proc/self/task") {
        let children = fs::read_to_string(format!("/proc/self/task/{task}/children"));
        kill_all(&children.unwrap_or_default());
    }
    sweep(prefix);
    std::process::exit(code)
}

/// Removes what processes that are no more left behind under this tag; what belongs to a running
/// process stays.
pub fn remove_leftovers(tag: &str) {
    let temporary = std::env::temp_dir();
    let names = entries(NAMES).into_iter().chain(entries(&temporary));
    for name in names {
        let Some(rest) = name.strip_prefix(tag) else { continue };
        let Some((number, _)) = rest.split_once('-') else { continue };
        if number.parse::<u32>().is_ok() && !Path::new("/proc").join(number).exists() {
            sweep(&format!("{tag}{number}-"));
        }
    }
}

/// Sweeps, unless [`abandon`] is at it: then waits for the end that it brings.
pub(crate) fn sweep_in_turn(prefix: &str) {
    let _gate = gate();
    sweep(prefix);
}

/// Ends the processes in all namespaces of that prefix, and removes them and their directories.
fn sweep(prefix: &str) {
    for name in entries(NAMES) {
        if !name.starts_with(prefix) {
            continue;
        }
        if let Ok(output) = Command::new("ip").args(["netns", "pids", &name]).output() {
            kill_all(&text(&output.stdout));
        }
        if let Err(error) = ip(&["netns", "delete", &name]) {
            eprintln!("natgate: namespace {name} stays: {error}");
        }
    }
    let temporary = std::env::temp_dir();
    let ours = |name: &String| name.starts_with(prefix) && name.ends_with(FILES);
    for name in entries(&temporary).into_iter().filter(ours) {
        // Who else removes it is welcome to.
        let _ = fs::remove_dir_all(temporary.join(name));
    }
}

/// The directory for what a network writes to disk.
pub(crate) fn directory(prefix: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("{prefix}{FILES}"))
}

/// Runs `ip` to its end.
fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output().map_err(missing)?;
    if output.status.success() {
        return Ok(());
    }
    let wrong = text(&output.stderr);
    Err(io::Error::other(format!("ip {}: {wrong}", arguments.join(" "))))
}

fn start(command: &mut Command) -> io::Result<Child> {
    command.spawn().map_err(missing)
}

fn missing(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot start ip (package iproute2): {error}"))
}

fn gate() -> MutexGuard<'static, ()> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves the calling thread.
fn enter_here(name: &str) -> io::Result<()> {
    let file = File::open(Path::new(NAMES).join(name))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Kills the processes listed; those that have ended since are none the worse.
fn kill_all(numbers: &str) {
    let pids = numbers.split_whitespace().filter_map(|n| Pid::from_raw(n.parse().ok()?));
    for pid in pids {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// File names in a directory; none if it cannot be read.
fn entries(directory: impl AsRef<Path>) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
