//! Panics: a bug in the control plane does not end forwarding, and one in the data plane ends it at
//! once.
//!
//! A thread of the data plane (a worker, or a thread that workers rely on) holds packets and
//! tables. If an invariant breaks there, the process ends before another packet is sent, and a
//! service manager starts it again. A thread of the control plane (requests, logs, metrics, routes)
//! restarts its work instead; each such panic is reported and counted.
//!
//! Without [`install`] panics have their default effect.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Panics of the control plane so far.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// First pause before work restarts, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Work that lasted at least this long before it panicked restarts after the first pause.
const LASTED: Duration = Duration::from_secs(60);

thread_local! {
    static IS_DATA_PLANE: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread part of the data plane.
pub fn enter_data_plane() {
    IS_DATA_PLANE.set(true);
}

/// Number of panics of the control plane since the process began.
pub fn count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Reports each panic by `tell`, in one sentence, after the standard library's message. A panic of
/// the data plane then ends the process.
pub fn install(tell: fn(&str)) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        before(info);
        let is_data_plane = IS_DATA_PLANE.get();
        tell(&sentence(info, is_data_plane));
        if is_data_plane {
            process::abort();
        }
        PANICS.fetch_add(1, Ordering::Relaxed);
    }));
}

fn sentence(info: &PanicHookInfo<'_>, is_data_plane: bool) -> String {
    let current = thread::current();
    let thread = current.name().unwrap_or("without a name");
    let place = info.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let what = info.payload_as_str().unwrap_or("no message").replace('\n', " ");
    let goes_on = match is_data_plane {
        true => "natgate ends now, so that no packet goes by a broken table",
        false => "packets go on",
    };
    format!("warning: a bug of natgate's: thread {thread} panicked{place}: {what}; {goes_on}")
}

/// Runs work of the control plane until it returns. After a panic and a pause the work restarts,
/// with the same state.
pub fn contain<T>(mut work: impl FnMut() -> T) -> T {
    let mut pause = PAUSE.0;
    loop {
        let began = Instant::now();
        // The state of each caller permits a restart, however the last run ended.
        match panic::catch_unwind(AssertUnwindSafe(&mut work)) {
            Ok(done) => return done,
            Err(_) if began.elapsed() >= LASTED => pause = PAUSE.0,
            Err(_) => {}
        }
        thread::sleep(pause);
        pause = PAUSE.1.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Names the kind of thread that a child process of the test plays.
    const TRIAL: &str = "NATGATE_TEST_OF_PANICS";

    #[test]
    fn work_begins_anew_after_a_panic() {
        let (mut times, mut done) = (0, Vec::new());
        let result = contain(|| {
            times += 1;
            done.push(times);
            assert!(times > 2, "a panic on purpose");
            "done"
        });
        assert_eq!((result, times, done), ("done", 3, vec![1, 2, 3]));
    }

    /// The child process that [`planes_end_differently`] starts; no test of its own.
    #[test]
    fn trial() {
        let Ok(plane) = std::env::var(TRIAL) else { return };
        install(|sentence| eprintln!("told: {sentence}"));
        let is_data_plane = plane == "data";
        let work = move || {
            if is_data_plane {
                enter_data_plane();
            }
            panic!("a panic\non purpose");
        };
        let thread = thread::Builder::new().name("trial".into()).spawn(work);
        assert!(thread.unwrap().join().is_err());
        assert_eq!(count(), 1);
        eprintln!("goes on");
    }

    #[test]
    fn planes_end_differently() {
        let run = |plane: &str| {
            let this = std::env::current_exe().unwrap();
            let mut command = Command::new(this);
            command.args(["--exact", "panics::tests::trial", "--nocapture"]).env(TRIAL, plane);
            let output = command.output().unwrap();
            (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (status, said) = run("control");
        let told = "told: warning: a bug of natgate's: thread trial panicked at ";
        assert!(status.success() && said.contains("goes on"), "{said}");
        assert!(
            said.contains(told) && said.contains(": a panic on purpose; packets go on"),
            "{said}"
        );
        let (status, said) = run("data");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{said}");
        assert!(said.contains(told) && said.contains("natgate ends now"), "{said}");
        assert!(!said.contains("goes on"), "{said}");
    }
}
