//! The clock of this machine. It uses the processor's cycle counter, whose rate is measured with
//! the classic timer of PCs. The real-time clock gives the date, and the rate is compared with it
//! from then on. If the timer does not run, as in some machines that boot by UEFI, the processor
//! reports its rate.

use super::ports::{counter, in8, out8};
use super::sole::Sole;
use natgate_bare::time::{self, Clock, Comparison, Rate, Registers};
use natgate_engine::Timestamp;
use std::arch::x86_64::__cpuid;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Two copies of the clock, which all processors read and the first corrects. `CURRENT` is the
/// index of the valid copy.
static CLOCKS: [Slot; 2] = [const { Slot([const { AtomicU64::new(0) }; Clock::PARTS]) }; 2];
static CURRENT: AtomicUsize = AtomicUsize::new(NONE);
const NONE: usize = 2;

static WATCH: Sole<Option<Watch>> = Sole::new(None);

/// Place of one copy of the clock.
struct Slot([AtomicU64; Clock::PARTS]);

/// State of the comparison with the real-time clock.
struct Watch {
    comparison: Comparison,
    /// Latest content of its register of seconds, and that second since 1970.
    register: u8,
    second: u64,
    /// Value of the counter before which no second begins.
    next: u64,
}

/// The timer's frequency, Hz, and the number of its ticks in one measurement: about 20 ms.
const TIMER: u64 = 1_193_182;
const TICKS: u64 = 23_863;

/// Sufficient precision of the counter's rate, parts of a million, and the most measurements.
const ENOUGH: u64 = 1000;
const MOST_TRIES: usize = 50;

/// Measures the counter's rate, and reads the date.
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

/// Compares the counter with the real-time clock. Call it often. It reads that clock only shortly
/// before a second begins, because a read costs as much as some packets.
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

/// Publishes a clock to all processors. Calls are so far apart that no processor still reads the
/// older copy.
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

/// Nanoseconds since 1970, and since the start of the machine; 0 before the clock has been
/// measured.
pub(crate) fn now() -> (u64, u64) {
    let counter = counter();
    clock().map_or((0, 0), |clock| (clock.since_1970(counter), clock.uptime(counter)))
}

/// The time as a timestamp of packets.
pub(crate) fn timestamp() -> Timestamp {
    Timestamp(now().0)
}

/// Message for a machine whose clock cannot be measured.
pub(crate) const MISSING: &str = "this machine's timer does not run, so there is no time to go by";

/// Cycles a second; 0 if the rate is unknown.
pub(crate) fn frequency() -> u64 {
    clock().map_or(0, |clock| clock.frequency())
}

/// Waits for a number of nanoseconds.
pub(crate) fn pause(nanoseconds: u64) {
    let begin = now().1;
    // Without a clock a wait is impossible.
    while begin != 0 && now().1 - begin < nanoseconds {
        std::hint::spin_loop();
    }
}

/// Measures the counter's rate with the timer until the result is precise. Interruptions widen the
/// bounds but do not falsify them. `None` if the timer does not run.
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

/// Measures the counter's rate while the timer's third channel counts down once. Returns
/// `Some(None)` if the measurement was disturbed too much, and `None` if the channel does not count
/// down.
fn measure() -> Option<Option<Rate>> {
    const GATE: u16 = 0x61;
    const COMMAND: u16 = 0x43;
    const CHANNEL: u16 = 0x42;
    const OUTPUT: u8 = 1 << 5;
    /// A read takes at least 50 ns, so a running timer has ended after this number of reads.
    const MOST_LOOKS: u32 = 2_000_000;
    let gate = in8(GATE) & !3;
    out8(GATE, gate | 1);
    out8(COMMAND, 0b1011_0000);
    out8(CHANNEL, TICKS as u8);
    // The second byte starts the count.
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
    // The channel loads the count with one tick, and signals the end with the tick after the last.
    let nanoseconds = |ticks: u64| ticks * 1_000_000_000 / TIMER;
    Some(Rate::of(cycles, (nanoseconds(TICKS), nanoseconds(TICKS + 2) + 1)))
}

/// Frequency of the counter that the processor, or the host of a virtual machine, reports.
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

/// Register of the real-time clock's seconds.
const SECONDS: u8 = 0;

/// Reads a register of the real-time clock.
fn read(register: u8) -> u8 {
    const INDEX: u16 = 0x70;
    const DATA: u16 = 0x71;
    out8(INDEX, register);
    in8(DATA)
}

/// Returns true if the real-time clock's registers are changing or about to change.
fn is_changing() -> bool {
    const UPDATING: u8 = 0x80;
    read(0x0a) & UPDATING != 0
}

/// Reads the date, seconds since 1970; 0 if the clock has none.
fn date() -> u64 {
    let read_all = || {
        let _ = (0..1_000_000).any(|_| !is_changing());
        Registers { fields: [SECONDS, 2, 4, 7, 8, 9].map(read), format: read(0x0b) }
    };
    // Fields may change during a read, so the loop ends when two reads are equal.
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
