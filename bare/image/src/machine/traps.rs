//! Exceptions. The handler prints the registers and restarts the machine. No exception is expected.
//!
//! Handlers have a stack of their own, so a stack overflow is reported, too. Interrupts are the
//! timer's ticks and those of cards. The watchdog counts the ticks. Too many of them count as an
//! exception. Interrupts of cards end a sleep and need no other work: they are messages, and wires,
//! which are closed. An interrupt that cannot be held back comes from another processor at the end
//! of the machine.

use super::console::LastWords;
use super::{last_words, ports, processors, watchdog, wires};
use std::arch::{asm, global_asm};
use std::fmt::Write;

/// Vectors of ticks, of spurious interrupts, and of cards.
pub(crate) const TICK: u8 = 32;
pub(crate) const SPURIOUS: u8 = 33;
pub(crate) const ALARM: u8 = 34;

/// Vector of interrupts that cannot be held back.
const NOT_HELD_BACK: u8 = 2;

/// Number of vectors with handlers.
const VECTORS: usize = (wires::FIRST + wires::COUNT) as usize;

/// Bytes between the handlers of two vectors.
const DISTANCE: usize = 16;

global_asm!(
    ".pushsection .text.natgate_traps,\"ax\",@progbits",
    ".balign 16",
    "natgate_traps:",
    ".set vector, 0",
    ".rept {vectors}",
    ".balign 16",
    // Some exceptions come with a code; the handler adds a code to the others.
    ".if vector == {spurious}",
    "iretq",
    ".elseif vector == {tick}",
    "jmp natgate_tick",
    ".elseif vector == {alarm}",
    "jmp natgate_alarm",
    ".elseif vector >= {wires}",
    "jmp natgate_wire",
    ".elseif vector == {end}",
    "jmp natgate_end",
    ".elseif (vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17) || (vector == 21)",
    "push vector",
    "jmp natgate_trap",
    ".else",
    "push 0",
    "push vector",
    "jmp natgate_trap",
    ".endif",
    ".set vector, vector + 1",
    ".endr",
    "natgate_tick:",
    "push rax; push rcx; push rdx",
    "inc dword ptr gs:[{still}]",
    "cmp dword ptr gs:[{still}], {most}",
    "jl 2f",
    "pop rdx; pop rcx; pop rax",
    "push 0",
    "push {tick}",
    "jmp natgate_trap",
    "natgate_alarm:",
    "inc qword ptr gs:[{alarms}]",
    "push rax; push rcx; push rdx",
    // Signals the end of the interrupt to the controller, by memory or by a register.
    "2: mov ecx, 0x1b",
    "rdmsr",
    "test eax, 1 << 10",
    "jnz 3f",
    "and eax, 0xfffff000",
    "shl rdx, 32",
    "or rax, rdx",
    "mov dword ptr [rax + 0xb0], 0",
    "jmp 4f",
    "3: mov ecx, 0x80b",
    "xor eax, eax",
    "xor edx, edx",
    "wrmsr",
    "4: pop rdx; pop rcx; pop rax",
    "iretq",
    "natgate_wire:",
    "inc qword ptr gs:[{alarms}]",
    "push rax",
    "mov al, 0xff",
    "out 0x21, al",
    "out 0xa1, al",
    // Signals the end of the interrupt to both older controllers.
    "mov al, 0x20",
    "out 0xa0, al",
    "out 0x20, al",
    "pop rax",
    "iretq",
    // If another processor ends the machine, this processor stops here.
    "natgate_end:",
    "push rax",
    "mov eax, dword ptr [{ending}]",
    "test eax, eax",
    "jz 6f",
    "dec eax",
    "cmp eax, dword ptr gs:[{number}]",
    "je 6f",
    "5: hlt",
    "jmp 5b",
    "6: pop rax",
    "push 0",
    "push {end}",
    "jmp natgate_trap",
    "natgate_trap:",
    "push rax; push rbx; push rcx; push rdx; push rsi; push rdi; push rbp",
    "push r8; push r9; push r10; push r11; push r12; push r13; push r14; push r15",
    "mov rdi, rsp",
    "cld",
    "and rsp, -16",
    "call {handle}",
    "ud2",
    ".popsection",
    ".pushsection .bss.natgate_traps,\"aw\",@nobits",
    ".balign 16",
    ".skip 0x8000",
    ".globl natgate_trap_stack_end",
    "natgate_trap_stack_end:",
    ".popsection",
    vectors = const VECTORS,
    spurious = const SPURIOUS,
    tick = const TICK,
    alarm = const ALARM,
    wires = const wires::FIRST,
    end = const NOT_HELD_BACK,
    ending = sym processors::ENDING,
    number = const processors::NUMBER,
    still = const processors::STILL,
    alarms = const processors::ALARMS,
    most = const watchdog::MOST,
    handle = sym handle,
);

unsafe extern "C" {
    static natgate_traps: u8;
}

/// Registers in the order in which the handler pushes them.
#[repr(C)]
#[derive(Debug)]
struct Registers {
    /// R15 down to R8, then RBP, RDI, RSI, RDX, RCX, RBX, RAX.
    general: [u64; 15],
    vector: u64,
    code: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

static mut TABLE: [[u64; 2]; VECTORS] = [[0; 2]; VECTORS];

/// Installs the handlers of exceptions and of system calls on the first processor. It runs before
/// the environment and the C library exist, so it must not call a function that copies memory.
pub(crate) extern "C" fn prepare() {
    const CODE: u64 = 8;
    /// Present, an interrupt gate; the first interrupt stack.
    const GATE: u64 = 0x8e01 << 32;
    let handlers = (&raw const natgate_traps).addr();
    let table = &raw mut TABLE;
    // SAFETY: no other code runs yet, and the processor reads the table in the form that is written
    // here.
    unsafe {
        for vector in 0..VECTORS {
            let handler = (handlers + vector * DISTANCE) as u64;
            let low = handler & 0xffff | CODE << 16 | GATE | (handler >> 16 & 0xffff) << 48;
            let entry = (*table).as_mut_ptr().add(vector).cast::<u64>();
            entry.write_volatile(low);
            entry.add(1).write_volatile(handler >> 32);
        }
    }
    processors::be_first();
}

/// Gives this processor the table of handlers.
pub(super) fn load() {
    let table = &raw const TABLE;
    let place = Place { limit: (VECTORS * 16 - 1) as u16, base: table.addr() as u64 };
    // SAFETY: the table does not move.
    unsafe { asm!("lidt [{}]", in(reg) &raw const place) };
}

/// Place of a table, in the processor's format.
#[repr(C, packed)]
pub(super) struct Place {
    pub(super) limit: u16,
    pub(super) base: u64,
}

/// Prints the exception, and restarts the machine.
extern "C" fn handle(registers: &Registers) -> ! {
    processors::stop_others();
    let mut out = LastWords::new();
    let vector = registers.vector;
    let fault: u64;
    // SAFETY: a read of the register changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) fault, options(nomem, nostack)) };
    // Printing does not fail.
    let _ = match u8::try_from(vector) {
        Ok(TICK) => writeln!(
            out,
            "\nwatchdog: the gateway has stood still for {} seconds",
            watchdog::SECONDS
        ),
        _ => writeln!(out, "\nexception {vector} ({}), code {:#x}", name(vector), registers.code),
    };
    if processors::number() > 0 {
        let _ = writeln!(out, "processor {}", processors::number());
    }
    let _ = writeln!(
        out,
        "rip {:016x} rsp {:016x} rflags {:08x} cr2 {fault:016x} cycles {}",
        registers.rip,
        registers.rsp,
        registers.flags,
        ports::counter()
    );
    let names = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15",
    ];
    for (place, (name, value)) in names.iter().zip(registers.general.iter().rev()).enumerate() {
        let end = if place % 4 == 3 || place == 14 { '\n' } else { ' ' };
        let _ = write!(out, "{name:3} {value:016x}{end}");
    }
    last_words::conclude(out)
}

/// Name of an exception.
fn name(vector: u64) -> &'static str {
    match vector {
        0 => "division by zero",
        2 => "non-maskable interrupt",
        3 => "breakpoint",
        6 => "invalid instruction",
        8 => "double fault",
        12 => "stack fault",
        13 => "general protection",
        14 => "page fault",
        18 => "machine check",
        19 => "floating point",
        _ => "see the processor's manual",
    }
}
