//! System calls of the standard library, and their results without a kernel.
//!
//! The library needs only a few calls: memory, the time, random numbers, output. They have the
//! results of Linux. [`answer`] decides on the result, and the caller executes the parts that have
//! to trust an address. Calls that need files or processes fail with Linux' error. There are as
//! many threads as started processors. Each processor has one thread, and no thread ends.

use crate::memory::Memory;

/// A call: its number and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the call, as in Linux on x86-64.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Action for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No action; the value is the result.
    Value(i64),
    /// Clear a number of bytes at an address, which is the result: address, bytes.
    Cleared(u64, u64),
    /// Print bytes at an address; their number is the result: address, bytes.
    Print(u64, u64),
    /// Print pieces from a list at an address. Each entry of the list is an address and a length.
    /// The number of bytes is the result.
    PrintPieces(u64, u64),
    /// Fill bytes at an address with random numbers; their number is the result: address, bytes.
    Random(u64, u64),
    /// Write the time since 1970 to an address, as two numbers: seconds and nanoseconds.
    TimeOfDay(u64),
    /// Write the time since the start of the machine to an address, as two numbers: seconds and
    /// nanoseconds.
    Uptime(u64),
    /// Set the address of the thread's own data.
    ThreadPointer(u64),
    /// Start this thread on a processor; the thread's number is the result.
    Thread(Thread),
    /// End the program with this code.
    End(u64),
}

/// A new thread. It begins at the end of the call, with 0 as the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// End of its stack.
    pub stack: u64,
    /// Address of its own data.
    pub data: u64,
    /// Address for its number.
    pub number: Option<u64>,
}

/// The C library's heap: one range of memory that grows at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap {
    start: u64,
    end: u64,
    most: u64,
}

/// Largest size of the heap, bytes. The library requests more memory by other calls.
const HEAP: u64 = 16 << 20;

const NO_SUCH_FILE: i64 = -2;
/// Error of a call for a thread if no processor is free, or of a wait whose value has changed: the
/// caller may try again.
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
/// Flags of a new thread of this program, with shared memory and data of its own.
const AS_THREAD: u64 = 0x100 | 0x1_0000 | 0x8_0000;
const TELLS_NUMBER: u64 = 0x10_0000;
/// Most random bytes of one call.
const MOST_RANDOM: u64 = 256;

/// Decides on the action for a call.
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
        // All memory is mapped with the largest possible pages. There are no signals.
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
        // No thread sleeps in a call, so nothing has to be woken, and a waiting thread checks
        // again.
        number::FUTEX if second & FUTEX_OPERATION == FUTEX_WAKE => Answer::Value(0),
        number::FUTEX if is_wait(second & FUTEX_OPERATION) => Answer::Value(TRY_AGAIN),
        number::EXIT | number::EXIT_GROUP | number::TGKILL | number::FUTEX => Answer::End(first),
        _ => Answer::Value(NO_SUCH_CALL),
    }
}

fn is_wait(operation: u64) -> bool {
    matches!(operation, FUTEX_WAIT | FUTEX_WAIT_BITSET)
}

/// Returns true if a file is the standard output or the standard error.
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
    /// A heap without memory.
    pub const fn new() -> Self {
        Self { start: 0, end: 0, most: 0 }
    }

    /// Moves the end of the heap to an address if possible; returns the end.
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

    /// Address and largest size of the heap; the size is 0 before the first call for it. The caller
    /// can clear the memory beforehand.
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.most - self.start)
    }
}

/// Numbers of the calls.
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
        // The C library requests a thread by the newer call first, and then by the older one.
        assert_eq!(first(435, 0), Answer::Value(NO_SUCH_CALL));
        assert_eq!(first(number::CLONE, 17), Answer::Value(NO_SUCH_CALL), "a process");
        assert_eq!(first(number::EXIT_GROUP, 3), Answer::End(3));
    }

    #[test]
    fn a_thread_is_given_its_stack_and_data_and_nobody_waits() {
        let (mut memory, mut heap) = (Memory::new(), Heap::default());
        let mut ask = |number, arguments| ask(number, arguments, &mut memory, &mut heap);
        // The flags of the C library.
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
