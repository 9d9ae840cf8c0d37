//! Instructions and cache lines a packet, counted by valgrind's callgrind. This benchmark needs no
//! quiet machine.
//!
//! The program runs itself under callgrind. The inner program ([`counted`]) creates sessions and
//! gives the engine rounds of packets, in the order of [`PATHS`]. It calls [`mark`] before and
//! after each. At every mark callgrind writes its counters into a file with the next number. It
//! counts only the gateway's turn (`engine::bench::turn`). The simulated last cache is much smaller
//! than the table, so its misses are the cold lines that a packet touches. It is much larger than a
//! batch, so a packet's own bytes are not among the misses. Prefetches are not simulated, so a
//! prefetched line counts, too.
//!
//! The last rounds go through a whole gateway ([`gateway`]). An engine alone gets the same packets,
//! and the difference of both counts is reported.

pub(crate) mod gateway;
mod report;
pub(crate) mod sip;

pub use report::{Change, against, page, table};

use crate::engine::{Bench, Mode, Plan};
use natgate_engine::Side;
use serde::Serialize;
use std::ffi::OsStr;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Sessions. Their mappings alone are sixteen times as large as the simulated cache.
const SESSIONS: u64 = 1 << 17;
const QUICK_SESSIONS: u64 = 1 << 10;
/// Packets of a round.
const PACKETS: usize = 1024;
/// Rounds of each path.
const ROUNDS: usize = 8;
const BATCH: usize = 64;

/// Counted paths, and the number of rounds of each.
const PATHS: [(&str, usize); 7] = [
    ("create_udp", ROUNDS),
    ("outbound_udp", ROUNDS),
    ("inbound_udp", ROUNDS),
    ("expire_udp", 1),
    ("create_tcp", ROUNDS),
    ("outbound_tcp", ROUNDS),
    ("inbound_tcp", ROUNDS),
];

/// Paths of a packet through a gateway: the cost is that of the first round without that of the
/// second one, if there is one.
const AROUND: [(&str, &[Round]); 7] = [
    ("gateway_outbound", &[Round::Gateway(Side::Inside), Round::Engine(Side::Inside)]),
    ("gateway_inbound", &[Round::Gateway(Side::Outside), Round::Engine(Side::Outside)]),
    ("alg_outbound", &[Round::GatewayWithAlg(Side::Inside), Round::Gateway(Side::Inside)]),
    ("alg_inbound", &[Round::GatewayWithAlg(Side::Outside), Round::Gateway(Side::Outside)]),
    ("sip_register", &[Round::Sip(sip::register)]),
    ("sip_answer", &[Round::SipAnswer]),
    ("sip_invite", &[Round::Sip(sip::invite)]),
];

/// Packets of a round, and what gets them.
#[derive(Clone, Copy, Debug)]
enum Round {
    /// An engine.
    Engine(Side),
    /// A gateway.
    Gateway(Side),
    /// A gateway with all application-level gateways on.
    GatewayWithAlg(Side),
    /// The same, with messages of SIP from inside.
    Sip(fn(u32, u32) -> Vec<u8>),
    /// The same, with the answers to the last of them.
    SipAnswer,
}

/// Sessions that exist before the count.
fn sessions(quick: bool) -> u64 {
    if quick { QUICK_SESSIONS } else { SESSIONS }
}

/// Sessions that are created during the count.
const CREATED: u64 = (ROUNDS * PACKETS) as u64;

/// Cost of a packet, or of an expiring mapping, on one path.
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

/// Reason why the count failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Valgrind is missing.
    #[error("valgrind cannot be started: {0}; install it (apt-get install valgrind)")]
    Valgrind(std::io::Error),
    /// The inner program or callgrind failed.
    #[error("the program failed under valgrind: {0}")]
    Failed(String),
    /// A file of callgrind is missing or not understood.
    #[error("callgrind's output is not understood: {0}")]
    Output(String),
}

/// Counts by running `program` with `arguments` under callgrind. The arguments must lead to
/// [`counted`]. Callgrind writes its files into `directory`.
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
        .arg("--toggle-collect=*instructions::gateway::counted*")
        // The work of the devices in memory is left out.
        .arg("--toggle-collect=*instructions::gateway::Source*receive*")
        .arg("--toggle-collect=*instructions::gateway::Sink*transmit*")
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
    // The first file ends at the begin of the first round, the second file has that round, and so
    // on.
    let read = |part: usize| {
        let path = format!("{}.{part}", file.display());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        totals(&text).ok_or(format!("{path} has no totals"))
    };
    let mut before = 0;
    let engine = PATHS.map(|(path, rounds)| {
        let parts: Result<Vec<Totals>, String> =
            (before..before + rounds).map(|round| read(2 * round + 2)).collect();
        before += rounds;
        let units = match path {
            "expire_udp" => sessions(quick) + CREATED,
            _ => (rounds * PACKETS) as u64,
        };
        let parts = parts.map_err(Error::Output)?;
        Ok(Count::new(path, units, |field| parts.iter().map(field).sum::<u64>() as f64))
    });
    let around = AROUND.map(|(path, rounds)| {
        let parts: Result<Vec<Totals>, String> =
            (before..before + rounds.len()).map(|round| read(2 * round + 2)).collect();
        before += rounds.len();
        let parts = parts.map_err(Error::Output)?;
        let units = gateway::PACKETS as u64;
        let less = |field: fn(&Totals) -> u64| parts.get(1).map_or(0.0, |part| field(part) as f64);
        Ok(Count::new(path, units, |field| field(&parts[0]) as f64 - less(field)))
    });
    engine.into_iter().chain(around).collect()
}

impl Count {
    /// The cost of each of `units`; `sum` adds a field of the totals up.
    fn new(path: &'static str, units: u64, sum: impl Fn(fn(&Totals) -> u64) -> f64) -> Self {
        let each = |field| sum(field) / units as f64;
        Self {
            path,
            instructions: each(|totals| totals.instructions),
            accesses: each(|totals| totals.accesses),
            lines: each(|totals| totals.lines),
        }
    }
}

/// Totals of one of callgrind's files.
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

/// The inner program that runs under callgrind; `quick` takes a table that fits the simulated
/// cache.
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
        // The first answer of a session takes longer, once.
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
    count_around();
}

/// Counts the rounds of [`AROUND`]; a round of packets for the second time.
fn count_around() {
    let (mut pair, mut with_alg) = (gateway::Pair::new(false), gateway::Pair::new(true));
    with_alg.ask_by_sip(sip::register);
    with_alg.answer_by_sip();
    with_alg.ask_by_sip(sip::invite);
    let mut run = |round: &Round| match *round {
        Round::Engine(side) => pair.engine(side),
        Round::Gateway(side) => pair.gateway(side),
        Round::GatewayWithAlg(side) => with_alg.gateway(side),
        Round::Sip(request) => with_alg.ask_by_sip(request),
        Round::SipAnswer => with_alg.answer_by_sip(),
    };
    for (_, rounds) in AROUND {
        if let [first, second] = rounds {
            run(first);
            run(second);
        }
        for round in rounds {
            mark();
            run(round);
            mark();
        }
    }
}

/// Makes callgrind write its counters. The number distinguishes this function from other functions
/// with equal code.
#[inline(never)]
fn mark() {
    static MARKS: AtomicU32 = AtomicU32::new(0);
    black_box(MARKS.fetch_add(1, Ordering::Relaxed));
}
