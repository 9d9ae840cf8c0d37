//! One network namespace, created and removed by `ip netns`, and entered by threads and programs.
//!
//! A namespace is known only by its name, `<tag><process id>-<node>`. So another process can find
//! and remove the namespaces of a killed one: see [`sweep`]. Every function that starts a process
//! or creates a namespace holds [`GATE`], which [`abandon`] takes for ever.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Folder of `ip netns` with its names.
const NAMES: &str = "/run/netns";

/// Folder of `ip netns` with the namespaces' own files of `/etc`: one folder for each.
const ETC: &str = "/etc/netns";

/// End of the name of a network's directory.
const FILES: &str = "files";

/// Lock for starts that need a cleanup.
static GATE: Mutex<()> = Mutex::new(());

/// A network namespace with a name.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates the namespace.
    pub(crate) fn create(name: String) -> io::Result<Self> {
        let _gate = gate();
        ip(&["netns", "add", &name])?;
        Ok(Self { name })
    }

    /// Name of the namespace for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs work in a thread inside this namespace. Sockets created there belong to the namespace
    /// for ever, independent of their later users.
    ///
    /// # Errors
    /// The system's error if the namespace cannot be entered.
    ///
    /// # Panics
    /// If the work panics.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let name = self.name.as_str();
        thread::scope(|scope| {
            let handle = scope.spawn(move || enter_here(name).map(|()| work()));
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a program to its end, for at most `seconds`. After that time it is killed, and its exit
    /// code is 124.
    ///
    /// # Errors
    /// If the program cannot be started or its exit code is not 0. The message has its output.
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

    /// Starts a program in the background; it is killed with the thread that started it.
    ///
    /// # Errors
    /// The system's error if the program cannot be started.
    pub fn start(&self, program: &Path, arguments: &[&str], log: &Path) -> io::Result<Child> {
        self.start_with_input(program, arguments, log, Stdio::null())
    }

    /// Starts a program like [`Self::start`], with an input.
    ///
    /// # Errors
    /// The errors of [`Self::start`].
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

    /// Runs commands of `ip`, one on each line, inside the namespace.
    ///
    /// # Errors
    /// The error of `ip`, with the commands.
    pub fn ip_batch(&self, lines: &str) -> io::Result<()> {
        let _gate = gate();
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch", "-"]);
        let mut child =
            start(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()))?;
        let mut input = child.stdin.take().expect("standard input was asked for");
        // If `ip` has ended already, its output is more useful than the error of the pipe.
        let _ = input.write_all(lines.as_bytes());
        drop(input);
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let wrong = text(&output.stderr);
        Err(io::Error::other(format!("ip -n {} -batch: {wrong} in:\n{lines}", self.name)))
    }

    /// Writes a file that programs in this namespace find below `/etc`. A folder there hides the
    /// machine's own, which must exist.
    ///
    /// # Errors
    /// The system's error if the file cannot be written.
    pub fn write_etc(&self, path: &str, content: &str) -> io::Result<()> {
        let _gate = gate();
        let path = Path::new(ETC).join(&self.name).join(path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        written.and_then(|()| fs::write(&path, content)).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })
    }

    /// Sets a key below `/proc/sys/net` if this kernel has it.
    ///
    /// # Errors
    /// The system's error if the kernel refuses the value.
    pub fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let path = Path::new("/proc/sys/net").join(key);
        self.enter(|| if path.exists() { fs::write(&path, value) } else { Ok(()) })?
    }
}

/// Ends the process after a signal or an aborting panic, which drop nothing. Prevents new starts,
/// ends every child of this process, removes everything with the prefix, and exits with this code.
pub fn abandon(prefix: &str, code: i32) -> ! {
    let _gate = gate();
    for task in entries("/proc/self/task") {
        let children = fs::read_to_string(format!("/proc/self/task/{task}/children"));
        kill_all(&children.unwrap_or_default());
    }
    sweep(prefix);
    std::process::exit(code)
}

/// Removes the remains of ended processes under this tag; those of running processes stay.
pub fn remove_leftovers(tag: &str) {
    let temporary = std::env::temp_dir();
    let names = entries(NAMES).into_iter().chain(entries(&temporary)).chain(entries(ETC));
    for name in names {
        let Some(rest) = name.strip_prefix(tag) else { continue };
        let Some((number, _)) = rest.split_once('-') else { continue };
        if number.parse::<u32>().is_ok() && !Path::new("/proc").join(number).exists() {
            sweep(&format!("{tag}{number}-"));
        }
    }
}

/// Sweeps. If [`abandon`] is running, waits for the end of the process.
pub(crate) fn sweep_in_turn(prefix: &str) {
    let _gate = gate();
    sweep(prefix);
}

/// Ends the processes in all namespaces with this prefix, and removes the namespaces, their
/// files of `/etc` and their directories.
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
        // Another process may remove it at this moment.
        let _ = fs::remove_dir_all(temporary.join(name));
    }
    let ours = |name: &String| name.starts_with(prefix);
    for name in entries(ETC).into_iter().filter(ours) {
        let _ = fs::remove_dir_all(Path::new(ETC).join(name));
        // The folder remains if it has files of other namespaces.
        let _ = fs::remove_dir(ETC);
    }
}

/// Directory for the files of a network.
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

/// Moves the calling thread into a namespace.
fn enter_here(name: &str) -> io::Result<()> {
    let file = File::open(Path::new(NAMES).join(name))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Kills the listed processes; some may have ended already.
fn kill_all(numbers: &str) {
    let pids = numbers.split_whitespace().filter_map(|n| Pid::from_raw(n.parse().ok()?));
    for pid in pids {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// File names in a directory; empty if it cannot be read.
fn entries(directory: impl AsRef<Path>) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
