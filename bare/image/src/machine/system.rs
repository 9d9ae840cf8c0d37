//! The instruction by which the standard library calls a kernel, and who answers instead.
//!
//! Nothing changes its privilege: the instruction is a jump here, and the answer a jump back. What
//! the answer is says [`natgate_bare::calls`]; here are the addresses that are believed.

use super::sole::Sole;
use super::{boot, clock, console, ports, processors, restart};
use natgate_bare::boot::{Addresses, BootInfo};
use natgate_bare::calls::{self, Answer, Call, Heap, TRY_AGAIN};
use natgate_bare::memory::Memory;
use std::arch::{asm, global_asm};

/// Bytes that [`boot::STATES`] take: those of old, what tells which were saved, the upper halves of
/// AVX's.
const SAVED: usize = 512 + 64 + 256;

global_asm!(
    ".pushsection .text.natgate_call,\"ax\",@progbits",
    // A function that calls nothing may use 128 bytes below the stack's end. A call changes no
    // registers but RAX, RCX (where to go on) and R11.
    "natgate_call:",
    "lea rsp, [rsp - 128]",
    "push rcx; push rdi; push rsi; push rdx; push r8; push r9; push r10; push rbp",
    "mov rbp, rsp",
    "sub rsp, {room} + 64",
    "and rsp, -64",
    "mov r11, rax",
    "cmp qword ptr [natgate_wide], 0",
    "je 2f",
    // What tells which were saved is written in part, and restoring wants the rest to be zero.
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
    /// Whether it is known which memory there is.
    is_known: bool,
}

/// Memory by its addresses, as far as it is mapped.
#[derive(Clone, Copy)]
pub(crate) struct Physical;

impl Addresses for Physical {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let end = address.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > boot::mapped_end()) {
            return false;
        }
        // SAFETY: it is mapped; nothing is expected of what is read. A boot loader may have put
        // something at address 0, where no pointer of the language's can be.
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

/// What the boot loader has told.
pub(crate) fn told() -> Option<BootInfo> {
    BootInfo::read(boot::loader(), boot::start_info(), &Physical)
}

/// Has all threads allocate from one heap: each one's own would take 64 MiB when it begins.
pub(crate) fn share_heap() {
    // SAFETY: it sets a number in the C library.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Bytes of memory that nobody has.
pub(crate) fn free_memory() -> u64 {
    SYSTEM.with(|system| system.memory.free_bytes())
}

/// Has this processor's calls come here.
pub(super) fn prepare() {
    const SELECTORS: u32 = 0xc000_0081;
    const ENTRY: u32 = 0xc000_0082;
    const MASK: u32 = 0xc000_0084;
    let entry = (&raw const natgate_call).addr() as u64;
    // SAFETY: code and data have the selectors 8 and 16; the entry is above; no flags change.
    unsafe {
        ports::write_msr(SELECTORS, 8 << 32);
        ports::write_msr(ENTRY, entry);
        ports::write_msr(MASK, 0);
    }
}

/// Answers a call: its number, its arguments, and where it ends.
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
    /// Finds out which memory there is, once: what is above the first MiB and nobody's.
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

/// Does what an answer to a call says that ends there; returns its result.
fn carry_out(answer: Answer, end: u64) -> i64 {
    match answer {
        Answer::Value(value) => value,
        Answer::Cleared(start, len) => {
            clear((start, len));
            start as i64
        }
        Answer::Print(start, len) => {
            // SAFETY: the standard library passes what it wants to be printed.
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
            // SAFETY: the C library says where the thread's own data is.
            unsafe { ports::write_msr(FS_BASE, address) };
            0
        }
        Answer::Thread(thread) => {
            processors::give(&thread, end).map_or(TRY_AGAIN, |number| number.into())
        }
        Answer::End(_) => restart::restart(),
    }
}

/// A number that is hard to guess: from the processor, or from how long slow instructions take.
pub(crate) fn random() -> u64 {
    ports::random().unwrap_or_else(|| {
        (0..64).fold(0_u64, |mixed, _| {
            ports::in8(0x61);
            (mixed.rotate_left(7) ^ ports::counter()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    })
}

/// # Safety
/// So many bytes are there.
unsafe fn slice<'a>(start: u64, len: u64) -> &'a [u8] {
    // SAFETY: the caller promises that.
    unsafe { std::slice::from_raw_parts(start as *const u8, len as usize) }
}

/// Clears memory by words; only whole pages are given out, so there is room for the last.
fn clear((start, len): (u64, u64)) {
    // SAFETY: nobody else has this memory, which has just been given out.
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
