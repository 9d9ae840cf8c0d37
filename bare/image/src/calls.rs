//! What the standard library asks of a kernel, and what it is told here.
//!
//! There is no kernel. The library's few questions (memory, the time, random numbers, where to
//! print) are answered in place, as if by Linux: [`answer`] decides, and who called it does what
//! needs an address to be believed. Whatever a machine without files and processes does not have is
//! refused with the error for that. There are as many threads as processors have been started; each
//! has its own, and none ends.

use crate::memory::Memory;

/// A call: its number and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number, by Linux' counting on x86-64.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What is to be done for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing; this is the result.
    Value(i64),
    /// Clear so many bytes at an address, which is the result.
    Cleared(u64, u64),
    /// Print so many bytes that lie at an address; their number is the result.
    Print(u64, u64),
    /// Print so many pieces, whose list (each an address and a length) lies at an address; the
    /// bytes are the result.
    PrintPieces(u64, u64),
    /// Fill so many bytes at an address with random numbers; their number is the result.
    Random(u64, u64),
    /// Write the time there, two numbers, seconds and nanoseconds: since 1970.
    TimeOfDay(u64),
    /// The same, since the machine started.
    Uptime(u64),
    /// Have the thread's own data begin there.
    ThreadPointer(u64),
    /// Give a processor this thread; its number is the result.
    Thread(Thread),
    /// The program ends, with this code.
    End(u64),
}

/// A thread that is to begin where the call for it ends, with 0 as its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Where its stack ends.
    pub stack: u64,
    /// Where its own data is.
    pub data: u64,
    /// Where its number is to be written.
    pub number: Option<u64>,
}

/// The program's first stretch of memory, which grows at its end, as the C library wants one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap {
    start: u64,
    end: u64,
    most: u64,
}

/// Most bytes of that; more is asked for otherwise.
const HEAP: u64 = 16 << 20;

const NO_SUCH_FILE: i64 = -2;
/// There are no more threads, or a thing is not as it was expected: the caller may try again.
pub const TRY_AGAIN: i64 = -11;
const NO_MEMORY: i64 = -12;
const INVALID: i64 = -22;
const NO_SUCH_CALL: i64 = -38;

const ANONYMOUS: u64 = 0x20;
const FIXED: u64 = 0x10;
const SET_THREAD_POINTER: u64 = 0x1002;
const HUGE_PAGES: u64 = 14;
const FUTEX_OPERATION: u64 = 0x7f;
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const FUTEX_WAIT_BITSET: u64 = 9;
/// What is new shares the caller's memory, is a thread of the same program, and has data of its
/// own.
const AS_THREAD: u64 = 0x100 | 0x1_0000 | 0x8_0000;
const TELLS_NUMBER: u64 = 0x10_0000;
/// Longest random answer at once, bytes.
const MOST_RANDOM: u64 = 256;

/// Decides what is to be done for a call.
pub fn answer(call: &Call, memory: &mut Memory, heap: &mut Heap) -> Answer {
    let [first, second, third, fourth, fifth, _] = call.arguments;
    match call.number {
        number::WRITE if is_output(first) => Answer::Print(second, third),
        number::WRITEV if is_output(first) => Answer::PrintPieces(second, third),
        number::MMAP => map(second, fourth, memory),
        number::MUNMAP => {
            memory.give(first, second);
            Answer::Value(0)
        }
        number::BRK => Answer::Value(heap.grow(first, memory)),
        number::GETRANDOM => Answer::Random(first, second.min(MOST_RANDOM)),
        number::CLOCK_GETTIME if first == 0 => Answer::TimeOfDay(second),
        number::CLOCK_GETTIME => Answer::Uptime(second),
        number::ARCH_PRCTL if first == SET_THREAD_POINTER => Answer::ThreadPointer(second),
        // All memory is mapped, with the largest pages there are; there are no signals to be had.
        number::MADVISE if third == HUGE_PAGES => Answer::Value(0),
        number::MADVISE => Answer::Value(INVALID),
        number::MPROTECT
        | number::POLL
        | number::SIGALTSTACK
        | number::RT_SIGACTION
        | number::RT_SIGPROCMASK
        | number::SET_ROBUST_LIST
        | number::SCHED_YIELD => Answer::Value(0),
        number::SET_TID_ADDRESS | number::GETTID | number::GETPID => Answer::Value(1),
        number::OPENAT | number::READLINK | number::GETCWD => Answer::Value(NO_SUCH_FILE),
        number::CLONE if first & AS_THREAD == AS_THREAD => {
            let number = (first & TELLS_NUMBER != 0).then_some(third);
            Answer::Thread(Thread { stack: second, data: fifth, number })
        }
        // No thread sleeps in a call: nobody need be woken, and who waits looks again.
        number::FUTEX if second & FUTEX_OPERATION == FUTEX_WAKE => Answer::Value(0),
        number::FUTEX if is_wait(second & FUTEX_OPERATION) => Answer::Value(TRY_AGAIN),
        number::EXIT | number::EXIT_GROUP | number::TGKILL | number::FUTEX => Answer::End(first),
        _ => Answer::Value(NO_SUCH_CALL),
    }
}

fn is_wait(operation: u64) -> bool {
    matches!(operation, FUTEX_WAIT | FUTEX_WAIT_BITSET)
}

/// Whether a file is the standard output or the standard error.
fn is_output(file: u64) -> bool {
    matches!(file, 1 | 2)
}

fn map(len: u64, flags: u64, memory: &mut Memory) -> Answer {
    if flags & ANONYMOUS == 0 || flags & FIXED != 0 || len == 0 {
        return Answer::Value(INVALID);
    }
    memory.take(len).map_or(Answer::Value(NO_MEMORY), |start| Answer::Cleared(start, len))
}

impl Heap {
    /// None yet.
    pub const fn new() -> Self {
        Self { start: 0, end: 0, most: 0 }
    }

    /// Has the heap end at an address, if it can; returns where it ends.
    fn grow(&mut self, end: u64, memory: &mut Memory) -> i64 {
        if self.start == 0
            && let Some(start) = memory.take(HEAP)
        {
            *self = Self { start, end: start, most: start + HEAP };
        }
        if (self.start..=self.most).contains(&end) {
            self.end = end;
        }
        self.end as i64
    }

    /// Where it begins and how many bytes it may have, none before the first call for it; for who
    /// clears them beforehand.
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.most - self.start)
    }
}

/// The calls' numbers.
mod number {
    pub(super) const WRITE: u64 = 1;
    pub(super) const POLL: u64 = 7;
    pub(super) const MMAP: u64 = 9;
    pub(super) const MPROTECT: u64 = 10;
    pub(super) const MUNMAP: u64 = 11;
    pub(super) const BRK: u64 = 12;
    pub(super) const RT_SIGACTION: u64 = 13;
    pub(super) const RT_SIGPROCMASK: u64 = 14;
    pub(super) const WRITEV: u64 = 20;
    pub(super) const SCHED_YIELD: u64 = 24;
    pub(super) const MADVISE: u64 = 28;
    pub(super) const GETPID: u64 = 39;
    pub(super) const CLONE: u64 = 56;
    pub(super) const EXIT: u64 = 60;
    pub(super) const GETCWD: u64 = 79;
    pub(super) const READLINK: u64 = 89;
    pub(super) const SIGALTSTACK: u64 = 131;
    pub(super) const ARCH_PRCTL: u64 = 158;
    pub(super) const GETTID: u64 = 186;
    pub(super) const FUTEX: u64 = 202;
    pub(super) const SET_TID_ADDRESS: u64 = 218;
    pub(super) const CLOCK_GETTIME: u64 = 228;
    pub(super) const EXIT_GROUP: u64 = 231;
    pub(super) const TGKILL: u64 = 234;
    pub(super) const OPENAT: u64 = 257;
    pub(super) const SET_ROBUST_LIST: u64 = 273;
    pub(super) const GETRANDOM: u64 = 318;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PAGE;
    use proptest::prelude::*;

    fn ask(number: u64, arguments: [u64; 6], memory: &mut Memory, heap: &mut Heap) -> Answer {
        answer(&Call { number, arguments }, memory, heap)
    }

    fn some_memory() -> Memory {
        let mut memory = Memory::new();
        memory.give(1 << 20, 64 << 20);
        memory
    }

    #[test]
    fn memory_is_given_cleared_and_comes_back() {
        let (mut memory, mut heap) = (some_memory(), Heap::default());
        let free = memory.free_bytes();
        let arguments = [0, 3 * PAGE, 3, ANONYMOUS | 2, u64::MAX, 0];
        let given = ask(number::MMAP, arguments, &mut memory, &mut heap);
        assert_eq!(given, Answer::Cleared(1 << 20, 3 * PAGE));
        assert_eq!(memory.free_bytes(), free - 3 * PAGE);
        ask(number::MUNMAP, [1 << 20, 3 * PAGE, 0, 0, 0, 0], &mut memory, &mut heap);
        assert_eq!(memory.free_bytes(), free);
        let too_much = [0, 1 << 40, 3, ANONYMOUS, 0, 0];
        assert_eq!(ask(number::MMAP, too_much, &mut memory, &mut heap), Answer::Value(NO_MEMORY));
        let file = [0, PAGE, 3, 2, 3, 0];
        assert_eq!(ask(number::MMAP, file, &mut memory, &mut heap), Answer::Value(INVALID));
    }

    #[test]
    fn the_heap_grows_as_far_as_it_can() {
        let (mut memory, mut heap) = (some_memory(), Heap::default());
        let mut brk = |end| ask(number::BRK, [end, 0, 0, 0, 0, 0], &mut memory, &mut heap);
        let start = 1 << 20;
        assert_eq!(brk(0), Answer::Value(start));
        assert_eq!(brk(start as u64 + 5000), Answer::Value(start + 5000));
        assert_eq!(brk(start as u64 + HEAP + 1), Answer::Value(start + 5000));
        assert_eq!(heap.range(), (start as u64, HEAP));
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let (mut memory, mut heap) = (Memory::new(), Heap::default());
        let mut first = |number, first| ask(number, [first, 7, 8, 0, 0, 0], &mut memory, &mut heap);
        assert_eq!(first(number::WRITE, 1), Answer::Print(7, 8));
        assert_eq!(first(number::WRITE, 3), Answer::Value(NO_SUCH_CALL));
        assert_eq!(first(number::OPENAT, 1), Answer::Value(NO_SUCH_FILE));
        assert_eq!(first(number::BRK, 0), Answer::Value(0));
        // The C library asks for a thread in this way first, and then in the other.
        assert_eq!(first(435, 0), Answer::Value(NO_SUCH_CALL));
        assert_eq!(first(number::CLONE, 17), Answer::Value(NO_SUCH_CALL), "a process");
        assert_eq!(first(number::EXIT_GROUP, 3), Answer::End(3));
    }

    #[test]
    fn a_thread_is_given_its_stack_and_data_and_nobody_waits() {
        let (mut memory, mut heap) = (Memory::new(), Heap::default());
        let mut ask = |number, arguments| ask(number, arguments, &mut memory, &mut heap);
        // As the C library asks.
        let told = ask(number::CLONE, [0x3d_0f00, 1000, 2000, 3000, 4000, 0]);
        let thread = Thread { stack: 1000, data: 4000, number: Some(2000) };
        assert_eq!(told, Answer::Thread(thread));
        let silent = ask(number::CLONE, [AS_THREAD, 1000, 2000, 3000, 4000, 0]);
        assert_eq!(silent, Answer::Thread(Thread { number: None, ..thread }));
        const PRIVATE: u64 = 128;
        let futex = |operation| [1000, operation | PRIVATE, 1, 0, 0, 0];
        for operation in [FUTEX_WAIT, FUTEX_WAIT_BITSET] {
            assert_eq!(ask(number::FUTEX, futex(operation)), Answer::Value(TRY_AGAIN));
        }
        assert_eq!(ask(number::FUTEX, futex(FUTEX_WAKE)), Answer::Value(0));
    }

    proptest! {
        #[test]
        fn no_call_does_harm(number in 0..500_u64, arguments: [u64; 6]) {
            let (mut memory, mut heap) = (Memory::new(), Heap::default());
            memory.give(1 << 20, 64 << 20);
            memory.withhold(1 << 20, 32 << 20);
            if number != self::number::MUNMAP {
                answer(&Call { number, arguments }, &mut memory, &mut heap);
                prop_assert!(memory.free_bytes() <= 64 << 20);
            }
        }
    }
}
