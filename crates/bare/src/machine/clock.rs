//! The clock of this machine: the processor's counter, measured against the timer that every PC
//! used to have, and the date from the real-time clock. Where that timer stands still, as in some
//! machines that boot by UEFI, the processor is asked how fast it counts.

use super::ports::{counter, in8, out8};
use natgate_bare::time::{self, Clock, Registers};
use natgate_engine::Timestamp;
use std::arch::x86_64::__cpuid;
use std::sync::OnceLock;

static CLOCK: OnceLock<Clock> = OnceLock::new();

/// The timer's frequency, Hz, and for how many of its ticks the counter is watched: about 20 ms.
const TIMER: u64 = 1_193_182;
const TICKS: u64 = 23_863;

/// Measures the counter and reads the date.
pub(crate) fn start() {
    let begin = counter();
    let measured = (0..3).map_while(|_| measure()).min();
    let rate = measured.map(|cycles| (cycles, TICKS * 1_000_000_000 / TIMER));
    let rate = rate.or_else(|| said().map(|frequency| (frequency, 1_000_000_000)));
    if let Some(clock) = rate.and_then(|rate| Clock::new(begin, date(), rate)) {
        CLOCK.get_or_init(|| clock);
    }
}

/// Cycles a second, as far as the processor says.
fn said() -> Option<u64> {
    const CRYSTAL: u32 = 0x15;
    const MEGAHERTZ: u32 = 0x16;
    let most = __cpuid(0).eax;
    let leaf = |number| {
        let leaf = (number <= most).then(|| __cpuid(number));
        leaf.map_or([0; 3], |leaf| [leaf.eax, leaf.ebx, leaf.ecx])
    };
    time::frequency(leaf(CRYSTAL), leaf(MEGAHERTZ)[0])
}

/// The time: nanoseconds since 1970 and since the machine started. Before the clock has been
/// measured, 0.
pub(crate) fn now() -> (u64, u64) {
    let counter = counter();
    CLOCK.get().map_or((0, 0), |clock| (clock.since_1970(counter), clock.uptime(counter)))
}

/// The time as packets have it.
pub(crate) fn timestamp() -> Timestamp {
    Timestamp(now().0)
}

/// Cycles a second.
pub(crate) fn frequency() -> u64 {
    CLOCK.get().map_or(0, Clock::frequency)
}

/// Lets so many nanoseconds pass.
pub(crate) fn pause(nanoseconds: u64) {
    let begin = now().1;
    // Without a clock there is nothing to wait by.
    while begin != 0 && now().1 - begin < nanoseconds {
        std::hint::spin_loop();
    }
}

/// Cycles while the timer's third channel counts down; `None`: it does not.
fn measure() -> Option<u64> {
    const GATE: u16 = 0x61;
    const COMMAND: u16 = 0x43;
    const CHANNEL: u16 = 0x42;
    const OUTPUT: u8 = 1 << 5;
    /// No look takes less than 50 ns: after so many the time is up if the timer runs.
    const MOST_LOOKS: u32 = 2_000_000;
    let gate = in8(GATE) & !3;
    out8(GATE, gate);
    out8(COMMAND, 0b1011_0000);
    out8(CHANNEL, TICKS as u8);
    out8(CHANNEL, (TICKS >> 8) as u8);
    out8(GATE, gate | 1);
    let begin = counter();
    let has_ended = (0..MOST_LOOKS).any(|_| in8(GATE) & OUTPUT != 0);
    let cycles = counter() - begin;
    out8(GATE, gate);
    has_ended.then_some(cycles)
}

/// The date, seconds since 1970; 0 if the clock has none.
fn date() -> u64 {
    const INDEX: u16 = 0x70;
    const DATA: u16 = 0x71;
    const UPDATING: u8 = 0x80;
    let read = |register: u8| {
        out8(INDEX, register);
        in8(DATA)
    };
    let read_all = || {
        let _ = (0..1_000_000).any(|_| read(0x0a) & UPDATING == 0);
        Registers { fields: [0, 2, 4, 7, 8, 9].map(read), format: read(0x0b) }
    };
    // Read until two agree: fields change while they are read.
    let mut last = read_all();
    for _ in 0..10 {
        let again = read_all();
        if again == last {
            break;
        }
        last = again;
    }
    last.seconds().unwrap_or(0)
}
