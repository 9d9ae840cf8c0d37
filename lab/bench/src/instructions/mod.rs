//! Instructions and cache lines a packet, counted by valgrind's callgrind: the benchmark that needs
//! no quiet machine.
//!
//! The program runs itself under callgrind. The one inside ([`counted`]) makes sessions and then
//! gives the engine rounds of packets, in the order of [`PATHS`], and calls [`mark`] before and
//! after each; callgrind writes its counters down at every mark, into a file with the next number,
//! and collects only what happens in the gateway's turn (`engine::bench::turn`). The simulated last
//! cache is so much smaller than the table that its misses are the cold lines that a packet
//! touches, and so much larger than a batch that a packet's own bytes are none of them. Prefetches
//! are not simulated, so a line counts whether or not it was asked for ahead.

mod report;

pub use report::{Change, against, page, table};

use crate::engine::{Bench, Mode, Plan};
use serde::Serialize;
use std::ffi::OsStr;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Sessions, whose mappings alone are sixteen times the simulated cache.
const SESSIONS: u64 = 1 << 17;
const QUICK_SESSIONS: u64 = 1 << 10;
/// Packets of a round.
const PACKETS: usize = 1024;
/// Rounds of each thing to count.
const ROUNDS: usize = 8;
const BATCH: usize = 64;

/// What is counted, and in how many rounds.
const PATHS: [(&str, usize); 7] = [
    ("create_udp", ROUNDS),
    ("outbound_udp", ROUNDS),
    ("inbound_udp", ROUNDS),
    ("expire_udp", 1),
    ("create_tcp", ROUNDS),
    ("outbound_tcp", ROUNDS),
    ("inbound_tcp", ROUNDS),
];

/// Sessions that are made before anything is counted.
fn sessions(quick: bool) -> u64 {
    if quick { QUICK_SESSIONS } else { SESSIONS }
}

/// Sessions that are made while it is counted.
const CREATED: u64 = (ROUNDS * PACKETS) as u64;

/// What a packet (or a mapping that expires) costs on one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// The path.
    pub path: &'static str,
    /// Instructions a packet.
    pub instructions: f64,
    /// Reads and writes of memory a packet.
    pub accesses: f64,
    /// Cold cache lines a packet.
    pub lines: f64,
}

/// Why nothing could be counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Valgrind is not there.
    #[error("valgrind cannot be started: {0}; install it (apt-get install valgrind)")]
    Valgrind(std::io::Error),
    /// The program inside failed, or callgrind did.
    #[error("the program failed under valgrind: {0}")]
    Failed(String),
    /// A file of callgrind's is missing or not understood.
    #[error("callgrind's output is not understood: {0}")]
    Output(String),
}

/// Counts by running `program` with `arguments`, which must lead to [`counted`], under callgrind,
/// whose files go to `directory`.
///
/// # Errors
/// [`Error`].
pub fn count(
    program: &Path,
    arguments: &[&OsStr],
    directory: &Path,
    quick: bool,
) -> Result<Vec<Count>, Error> {
    let file = directory.join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--cache-sim=yes", "--quiet"])
        .args(["--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,16,64"])
        .args(["--collect-atstart=no", "--toggle-collect=*engine::bench::turn*"])
        .arg("--dump-before=*instructions::mark*")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(Error::Valgrind)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Failed(format!("{}; it said: {said}", output.status)));
    }
    // The first file ends where the first round begins, the second has that round, and so on.
    let read = |part: usize| {
        let path = format!("{}.{part}", file.display());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        totals(&text).ok_or(format!("{path} has no totals"))
    };
    let mut before = 0;
    let counts = PATHS.map(|(path, rounds)| {
        let parts: Result<Vec<Totals>, String> =
            (before..before + rounds).map(|round| read(2 * round + 2)).collect();
        before += rounds;
        let units = match path {
            "expire_udp" => sessions(quick) + CREATED,
            _ => (rounds * PACKETS) as u64,
        };
        let parts = parts.map_err(Error::Output)?;
        let each =
            |field: fn(&Totals) -> u64| parts.iter().map(field).sum::<u64>() as f64 / units as f64;
        Ok(Count {
            path,
            instructions: each(|totals| totals.instructions),
            accesses: each(|totals| totals.accesses),
            lines: each(|totals| totals.lines),
        })
    });
    counts.into_iter().collect()
}

/// The totals of one file of callgrind's.
#[derive(Debug, PartialEq)]
struct Totals {
    instructions: u64,
    accesses: u64,
    lines: u64,
}

fn totals(text: &str) -> Option<Totals> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let events: Vec<&str> = line("events: ")?.split_whitespace().collect();
    let values: Vec<u64> =
        line("totals: ")?.split_whitespace().map(|value| value.parse().unwrap_or(0)).collect();
    // Callgrind leaves out zeros at the end.
    let of = |name: &str| {
        let at = events.iter().position(|event| *event == name)?;
        Some(values.get(at).copied().unwrap_or(0))
    };
    Some(Totals {
        instructions: of("Ir")?,
        accesses: of("Dr")? + of("Dw")?,
        lines: of("DLmr")? + of("DLmw")?,
    })
}

/// What runs under callgrind; `quick`: with a table that fits the simulated cache.
pub fn counted(quick: bool) {
    let sessions = sessions(quick);
    for tcp in [false, true] {
        let plan = Plan { sessions: sessions + CREATED, batch: BATCH, time: Duration::ZERO, tcp };
        let mut bench = Bench::new(&plan);
        for first in (0..sessions).step_by(PACKETS) {
            bench.create(first..first + PACKETS as u64);
        }
        for first in (sessions..sessions + CREATED).step_by(PACKETS) {
            let places = first..first + PACKETS as u64;
            bench.prepare_creation(places.clone());
            mark();
            bench.process(0..PACKETS, Mode::Outbound);
            mark();
            bench.finish_creation(places);
        }
        // The first answer of a session takes the complete way, once.
        for session in 0..sessions {
            bench.prepare(Mode::Inbound, 1, session..session + 1);
            bench.process(0..1, Mode::Inbound);
        }
        for mode in [Mode::Outbound, Mode::Inbound] {
            for _ in 0..ROUNDS {
                bench.prepare(mode, PACKETS, 0..sessions);
                mark();
                bench.process(0..PACKETS, mode);
                mark();
            }
        }
        if !tcp {
            mark();
            bench.expire();
            mark();
        }
    }
}

/// Has callgrind write its counters down. The number keeps this function from being taken for
/// another that does the same.
#[inline(never)]
fn mark() {
    static MARKS: AtomicU32 = AtomicU32::new(0);
    black_box(MARKS.fetch_add(1, Ordering::Relaxed));
}
