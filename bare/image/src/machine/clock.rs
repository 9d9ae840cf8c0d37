//! The clock of this machine: the processor's counter, measured against the timer that every PC
//! used to have, the date from the real-time clock, and the counter's rate compared with that clock
//! from then on. Where the timer stands still, as in some machines that boot by UEFI, the processor
//! is asked how fast it counts.

use super::ports::{counter, in8, out8};
use super::sole::Sole;
use natgate_bare::time::{self, Clock, Comparison, Rate, Registers};
use natgate_engine::Timestamp;
use std::arch::x86_64::__cpuid;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The clock, which all processors read and the first corrects: the one of two that the number
/// says.
static CLOCKS: [Slot; 2] = [const { Slot([const { AtomicU64::new(0) }; Clock::PARTS]) }; 2];
static CURRENT: AtomicUsize = AtomicUsize::new(NONE);
const NONE: usize = 2;

static WATCH: Sole<Option<Watch>> = Sole::new(None);

/// Where a clock is kept.
struct Slot([AtomicU64; Clock::PARTS]);

/// The real-time clock, watched.
struct Watch {
    comparison: Comparison,
    /// What its register of seconds held, and which second that was since 1970.
    register: u8,
    second: u64,
    /// Before this value of the counter no second begins.
    next: u64,
}

/// The timer's frequency, Hz, and for how many of its ticks the counter is watched: about 20 ms.
const TIMER: u64 = 1_193_182;
const TICKS: u64 = 23_863;

/// The timer is watched until the counter's rate is known so well, parts of a million, but so often
/// at most.
const ENOUGH: u64 = 1000;
const MOST_TRIES: usize = 50;

/// Measures the counter and reads the date.
pub(crate) fn start() {
    let begin = counter();
    let said = said();
    let Some(rate) = measure_well().or_else(|| said.map(Rate::said)) else { return };
    let clock = Clock::new(begin, date(), rate.choose(said));
    set(&clock);
    let watch = Watch {
        comparison: Comparison::new(rate),
        register: read(SECONDS),
        second: date(),
        next: 0,
    };
    WATCH.with(|place| *place = Some(watch));
}

/// Compares the counter with the real-time clock; to be called often, between other things. It
/// looks at that clock shortly before a second begins, for a look costs as much as some packets.
pub(crate) fn compare() {
    let now = counter();
    if WATCH.with(|watch| watch.as_ref().is_none_or(|watch| now < watch.next)) || is_changing() {
        return;
    }
    let found = WATCH.with(|watch| {
        let watch = watch.as_mut()?;
        let begin = counter();
        let register = read(SECONDS);
        if register != watch.register {
            (watch.register, watch.second) = (register, date());
            watch.next = begin + frequency() / 100 * 95;
        }
        let end = counter();
        watch.comparison.look((begin, end), watch.second).map(|frequency| (end, frequency))
    });
    if let Some(((end, frequency), mut clock)) = found.zip(clock()) {
        clock.correct(end, frequency);
        set(&clock);
    }
}

/// Has everybody read this clock from now on. It is not set again for so long that nobody still
/// reads the one before it.
fn set(clock: &Clock) {
    let other = (CURRENT.load(Ordering::Relaxed) + 1) % CLOCKS.len();
    for (place, part) in CLOCKS[other].0.iter().zip(clock.to_parts()) {
        place.store(part, Ordering::Relaxed);
    }
    CURRENT.store(other, Ordering::Release);
}

fn clock() -> Option<Clock> {
    let current = CLOCKS.get(CURRENT.load(Ordering::Acquire))?;
    Some(Clock::from_parts(current.0.each_ref().map(|place| place.load(Ordering::Relaxed))))
}

/// The time: nanoseconds since 1970 and since the machine started. Before the clock has been
/// measured, 0.
pub(crate) fn now() -> (u64, u64) {
    let counter = counter();
    clock().map_or((0, 0), |clock| (clock.since_1970(counter), clock.uptime(counter)))
}

/// The time as packets have it.
pub(crate) fn timestamp() -> Timestamp {
    Timestamp(now().0)
}

/// What is said where it cannot be measured.
pub(crate) const MISSING: &str = "this machine's timer does not run, so there is no time to go by";

/// Cycles a second; 0 where they cannot be measured.
pub(crate) fn frequency() -> u64 {
    clock().map_or(0, |clock| clock.frequency())
}

/// Lets so many nanoseconds pass.
pub(crate) fn pause(nanoseconds: u64) {
    let begin = now().1;
    // Without a clock there is nothing to wait by.
    while begin != 0 && now().1 - begin < nanoseconds {
        std::hint::spin_loop();
    }
}

/// The counter's rate by the timer, watched until it is known well. Whatever interrupts that, the
/// rate is within the bounds. `None`: the timer stands still.
fn measure_well() -> Option<Rate> {
    let mut known: Option<Rate> = None;
    for _ in 0..MOST_TRIES {
        let Some(rate) = measure()? else { continue };
        known = known.map_or(Some(rate), |known| known.and(rate));
        if known.is_some_and(|known| known.spread() <= ENOUGH) {
            break;
        }
    }
    known
}

/// The counter's rate while the timer's third channel counts down once; `Some(None)`: the
/// measurement was disturbed too much. `None`: the channel does not count down.
fn measure() -> Option<Option<Rate>> {
    const GATE: u16 = 0x61;
    const COMMAND: u16 = 0x43;
    const CHANNEL: u16 = 0x42;
    const OUTPUT: u8 = 1 << 5;
    /// No look takes less than 50 ns: after so many the time is up if the timer runs.
    const MOST_LOOKS: u32 = 2_000_000;
    let gate = in8(GATE) & !3;
    out8(GATE, gate | 1);
    out8(COMMAND, 0b1011_0000);
    out8(CHANNEL, TICKS as u8);
    // The second byte starts it.
    let before = counter();
    out8(CHANNEL, (TICKS >> 8) as u8);
    let after = counter();
    let mut last = after;
    let end = (0..MOST_LOOKS).find_map(|_| {
        let look = counter();
        if in8(GATE) & OUTPUT != 0 {
            return Some(counter());
        }
        last = look;
        None
    });
    out8(GATE, gate);
    let cycles = (last.saturating_sub(after), end?.saturating_sub(before));
    // It takes the count over with a tick, and says so with the one after the last.
    let nanoseconds = |ticks: u64| ticks * 1_000_000_000 / TIMER;
    Some(Rate::of(cycles, (nanoseconds(TICKS), nanoseconds(TICKS + 2) + 1)))
}

/// The counter's frequency as the processor, or the host of a virtual one, says it.
fn said() -> Option<u64> {
    const CRYSTAL: u32 = 0x15;
    const MEGAHERTZ: u32 = 0x16;
    const HOST: u32 = 0x4000_0000;
    const IS_VIRTUAL: u32 = 1 << 31;
    let most = __cpuid(0).eax;
    let leaf = |number| {
        let leaf = (number <= most).then(|| __cpuid(number));
        leaf.map_or([0; 3], |leaf| [leaf.eax, leaf.ebx, leaf.ecx])
    };
    let by_host = || {
        let is_virtual = __cpuid(1).ecx & IS_VIRTUAL != 0;
        let timing = HOST + 0x10;
        let is_said = is_virtual && __cpuid(HOST).eax >= timing;
        is_said.then(|| u64::from(__cpuid(timing).eax) * 1000).filter(|frequency| *frequency > 0)
    };
    let by_crystal = time::frequency(leaf(CRYSTAL), 0);
    by_crystal.or_else(by_host).or_else(|| time::frequency([0; 3], leaf(MEGAHERTZ)[0]))
}

/// The register of the real-time clock's seconds.
const SECONDS: u8 = 0;

/// A register of the real-time clock.
fn read(register: u8) -> u8 {
    const INDEX: u16 = 0x70;
    const DATA: u16 = 0x71;
    out8(INDEX, register);
    in8(DATA)
}

/// Whether the real-time clock's registers are changing or about to.
fn is_changing() -> bool {
    const UPDATING: u8 = 0x80;
    read(0x0a) & UPDATING != 0
}

/// The date, seconds since 1970; 0 if the clock has none.
fn date() -> u64 {
    let read_all = || {
        let _ = (0..1_000_000).any(|_| !is_changing());
        Registers { fields: [SECONDS, 2, 4, 7, 8, 9].map(read), format: read(0x0b) }
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
