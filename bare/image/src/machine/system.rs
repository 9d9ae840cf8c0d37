//! The entry of system calls of the standard library, and the execution of their results.
//!
//! A call does not change the privilege level: the instruction is a jump to this code, and the
//! return is a jump back. [`natgate_bare::calls`] decides on the results. This module trusts the
//! addresses.

use super::sole::Sole;
use super::{boot, clock, console, ports, processors, restart};
use natgate_bare::boot::{Addresses, BootInfo};
use natgate_bare::calls::{self, Answer, Call, Heap, TRY_AGAIN};
use natgate_bare::memory::Memory;
use std::arch::{asm, global_asm};

/// Bytes of the register sets [`boot::STATES`]: the legacy area, the header, and the upper halves
/// of AVX's registers.
const SAVED: usize = 512 + 64 + 256;

global_asm!(
    ".pushsection .text.natgate_call,\"ax\",@progbits",
    // A leaf function may use 128 bytes below the end of the stack. A call changes only RAX, RCX
    // (the return address) and R11.
    "natgate_call:",
    "lea rsp, [rsp - 128]",
    "push rcx; push rdi; push rsi; push rdx; push r8; push r9; push r10; push rbp",
    "mov rbp, rsp",
    "sub rsp, {room} + 64",
    "and rsp, -64",
    "mov r11, rax",
    "cmp qword ptr [natgate_wide], 0",
    "je 2f",
    // The save instruction writes only a part of the header, and the restore instruction needs
    // zeros in the rest.
    "xor eax, eax",
    "mov [rsp + 512], rax",
    "mov [rsp + 520], rax",
    "mov [rsp + 528], rax",
    "xor edx, edx",
    "mov eax, {states}",
    "xsave64 [rsp]",
    "jmp 3f",
    "2: fxsave64 [rsp]",
    "3: sub rsp, 64",
    "mov [rsp], r11",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov rdx, [rbp + 32]",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], r10",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov rdx, [rbp + 56]",
    "mov [rsp + 56], rdx",
    "mov rdi, rsp",
    "call {answer}",
    "add rsp, 64",
    "mov r11, rax",
    "cmp qword ptr [natgate_wide], 0",
    "je 4f",
    "xor edx, edx",
    "mov eax, {states}",
    "xrstor64 [rsp]",
    "jmp 5f",
    "4: fxrstor64 [rsp]",
    "5: mov rax, r11",
    "mov rsp, rbp",
    "pop rbp; pop r10; pop r9; pop r8; pop rdx; pop rsi; pop rdi; pop rcx",
    "lea rsp, [rsp + 128]",
    "jmp rcx",
    ".popsection",
    answer = sym answer,
    room = const SAVED,
    states = const boot::STATES,
);

unsafe extern "C" {
    static natgate_call: u8;
}

static SYSTEM: Sole<System> =
    Sole::new(System { memory: Memory::new(), heap: Heap::new(), is_known: false });

struct System {
    memory: Memory,
    heap: Heap,
    /// True if the memory of the machine is known.
    is_known: bool,
}

/// Mapped memory, accessed by address.
#[derive(Clone, Copy)]
pub(crate) struct Physical;

impl Addresses for Physical {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let end = address.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > boot::mapped_end()) {
            return false;
        }
        // SAFETY: the memory is mapped, and any content is valid. A boot loader may have put data
        // at address 0, where Rust permits no pointer.
        unsafe {
            asm!(
                "rep movsb",
                inout("rsi") address => _,
                inout("rdi") into.as_mut_ptr() => _,
                inout("rcx") into.len() => _,
                options(nostack, preserves_flags),
            );
        }
        true
    }
}

/// Information of the boot loader.
pub(crate) fn told() -> Option<BootInfo> {
    BootInfo::read(boot::loader(), boot::start_info(), &Physical)
}

/// Makes all threads allocate from one heap. A heap of its own would cost a thread 64 MiB at its
/// begin.
pub(crate) fn share_heap() {
    // SAFETY: the call sets a number in the C library.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Bytes of free memory.
pub(crate) fn free_memory() -> u64 {
    SYSTEM.with(|system| system.memory.free_bytes())
}

/// Directs this processor's system calls to this module.
pub(super) fn prepare() {
    const SELECTORS: u32 = 0xc000_0081;
    const ENTRY: u32 = 0xc000_0082;
    const MASK: u32 = 0xc000_0084;
    let entry = (&raw const natgate_call).addr() as u64;
    // SAFETY: code and data have the selectors 8 and 16, the entry is above, and no flags change.
    unsafe {
        ports::write_msr(SELECTORS, 8 << 32);
        ports::write_msr(ENTRY, entry);
        ports::write_msr(MASK, 0);
    }
}

/// Answers a call, given its number, its arguments, and its return address.
extern "C" fn answer(call: &[u64; 8]) -> i64 {
    let [number, arguments @ .., end] = *call;
    let call = Call { number, arguments };
    let answer = SYSTEM.with(|system| {
        system.look();
        let before = system.heap.range();
        let answer = calls::answer(&call, &mut system.memory, &mut system.heap);
        if system.heap.range() != before {
            clear(system.heap.range());
        }
        answer
    });
    carry_out(answer, end)
}

impl System {
    /// Determines the free memory once: all memory above the first MiB without another owner.
    fn look(&mut self) {
        const FIRST: u64 = 1 << 20;
        if std::mem::replace(&mut self.is_known, true) {
            return;
        }
        let Some(told) = told() else { return };
        let end = boot::mapped_end();
        for (start, len) in &told.memory {
            let stop = start.saturating_add(*len).min(end);
            self.memory.give(*start, stop.saturating_sub(*start));
        }
        let others = [(0, FIRST), boot::image(), told.letter];
        for (start, len) in told.modules.into_iter().chain(others) {
            self.memory.withhold(start, len);
        }
    }
}

/// Executes the action for a call with the return address `end`; returns the result.
fn carry_out(answer: Answer, end: u64) -> i64 {
    match answer {
        Answer::Value(value) => value,
        Answer::Cleared(start, len) => {
            clear((start, len));
            start as i64
        }
        Answer::Print(start, len) => {
            // SAFETY: the standard library passes the bytes that it wants to print.
            console::print(unsafe { slice(start, len) });
            len as i64
        }
        Answer::PrintPieces(list, count) => {
            // SAFETY: as above; each piece is two numbers.
            let pieces =
                unsafe { std::slice::from_raw_parts(list as *const (u64, u64), count as usize) };
            let print = |(start, len): &(u64, u64)| carry_out(Answer::Print(*start, *len), end);
            pieces.iter().map(print).sum()
        }
        Answer::Random(start, len) => {
            for place in 0..len {
                let byte = random().to_le_bytes()[0];
                // SAFETY: the standard library passes memory of its own.
                unsafe { ((start + place) as *mut u8).write(byte) };
            }
            len as i64
        }
        Answer::TimeOfDay(place) => write_time(place, clock::now().0),
        Answer::Uptime(place) => write_time(place, clock::now().1),
        Answer::ThreadPointer(address) => {
            const FS_BASE: u32 = 0xc000_0100;
            // SAFETY: the C library passes the address of the thread's own data.
            unsafe { ports::write_msr(FS_BASE, address) };
            0
        }
        Answer::Thread(thread) => {
            processors::give(&thread, end).map_or(TRY_AGAIN, |number| number.into())
        }
        Answer::End(_) => restart::restart(),
    }
}

/// Number that is hard to guess: from the processor, or from the duration of slow instructions.
pub(crate) fn random() -> u64 {
    ports::random().unwrap_or_else(|| {
        (0..64).fold(0_u64, |mixed, _| {
            ports::in8(0x61);
            (mixed.rotate_left(7) ^ ports::counter()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    })
}

/// # Safety
/// There are `len` bytes at `start`.
unsafe fn slice<'a>(start: u64, len: u64) -> &'a [u8] {
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts(start as *const u8, len as usize) }
}

/// Clears memory by words. Only whole pages are allocated, so there is room for the last word.
fn clear((start, len): (u64, u64)) {
    // SAFETY: this memory has just been allocated and has no other owner.
    unsafe {
        asm!(
            "rep stosq",
            inout("rdi") start => _,
            inout("rcx") len.div_ceil(8) => _,
            in("rax") 0_u64,
            options(nostack),
        );
    }
}

fn write_time(place: u64, nanoseconds: u64) -> i64 {
    const SECOND: u64 = 1_000_000_000;
    // SAFETY: the standard library passes memory of its own for two numbers.
    unsafe { (place as *mut [u64; 2]).write([nanoseconds / SECOND, nanoseconds % SECOND]) };
    0
}
