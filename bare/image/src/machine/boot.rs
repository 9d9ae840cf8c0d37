//! The first instructions: from the processor's state after the boot loader (32 bits, no paging) to
//! the start of an ordinary program. Boot loaders find them by PVH (QEMU's `-kernel`) or by
//! Multiboot2 (GRUB, after a BIOS and after UEFI).
//!
//! Memory is mapped at its own addresses: in pages of 2 MiB below 4 GiB, and in pages of 1 GiB up
//! to 512 GiB if the processor has them. From there to 64 TiB it is mapped uncached, for the
//! registers of cards. Page 0, which may contain information of the boot loader, is read-only. The
//! program's start code finds the environment of Linux: a stack with the program's name and a few
//! values.

use std::arch::global_asm;

// ELF note with the address of the first instruction, for a PVH boot loader.
global_asm!(
    ".pushsection .note.pvh,\"a\",@note",
    ".balign 4",
    ".long 4, 8, 18",
    ".asciz \"Xen\"",
    ".quad natgate_boot",
    ".popsection",
);

/// First number of a Multiboot2 header, and its bytes.
const HEADER: u32 = 0xe852_50d6;
const HEADER_LEN: u32 = 80;

// Header for a Multiboot2 boot loader, at a multiple of 8 bytes near the begin of the file. It is
// the content of a note, because notes have such a place.
global_asm!(
    ".pushsection .note.natgate_multiboot,\"a\",@note",
    ".balign 8",
    ".long 12, {len}, 1",
    ".asciz \"natgate\"",
    ".long 0",
    ".long {header}, 0, {len}, {sum}",
    // Address of the first instruction.
    ".short 3, 0",
    ".long 12, natgate_multiboot, 0",
    // A text screen is accepted.
    ".short 4, 0",
    ".long 12, 2, 0",
    // A frame buffer of any size with 32 bits a pixel is accepted. The image also starts without a
    // screen.
    ".short 5, 1",
    ".long 20, 0, 0, 32, 0",
    ".short 0, 0",
    ".long 8",
    ".popsection",
    header = const HEADER,
    len = const HEADER_LEN,
    sum = const 0_u32.wrapping_sub(HEADER).wrapping_sub(HEADER_LEN),
);

/// Features of the processor in ECX (CPUID leaf 1).
const HAS_XSAVE: u32 = 1 << 26;
const HAS_AVX: u32 = 1 << 28;

/// Register sets that a program may use and a call preserves: x87, SSE and AVX.
pub(super) const STATES: u32 = 0b111;

/// Enabled features in CR4: physical address extension, and SSE, which every program of 64 bits may
/// use.
pub(super) const FEATURES: u32 = 0x620;
/// Long mode, and the instruction for system calls (EFER).
pub(super) const LONG_MODE: u32 = 0x101;
/// Paging, with write protection in privileged mode (CR0).
pub(super) const PAGING: u32 = 0x8001_0033;

global_asm!(
    ".pushsection .text.natgate_boot,\"ax\",@progbits",
    ".code32",
    // A Multiboot2 loader leaves its number in EAX. The rest equals PVH.
    ".globl natgate_multiboot",
    "natgate_multiboot:",
    "mov dword ptr [natgate_loader], eax",
    ".globl natgate_boot",
    "natgate_boot:",
    "cli",
    "cld",
    "mov esp, offset natgate_stack_end",
    "mov dword ptr [natgate_start_info], ebx",
    // The only entry of the first table, and the first four entries of the second table.
    "mov eax, offset natgate_tables + 0x1003",
    "mov dword ptr [natgate_tables], eax",
    "xor ecx, ecx",
    "mov eax, offset natgate_tables + 0x2003",
    "2: mov dword ptr [natgate_tables + 0x1000 + ecx * 8], eax",
    "add eax, 0x1000",
    "inc ecx",
    "cmp ecx, 4",
    "jne 2b",
    // 2048 pages of 2 MiB.
    "xor ecx, ecx",
    "mov eax, 0x83",
    "3: mov dword ptr [natgate_tables + 0x2000 + ecx * 8], eax",
    "add eax, 0x200000",
    "inc ecx",
    "cmp ecx, 2048",
    "jne 3b",
    // The first page of 2 MiB as pages of 4 KiB, with a read-only page 0.
    "mov eax, offset natgate_tables + 0x6003",
    "mov dword ptr [natgate_tables + 0x2000], eax",
    "mov dword ptr [natgate_tables + 0x6000], 1",
    "mov ecx, 1",
    "mov eax, 0x1003",
    "4: mov dword ptr [natgate_tables + 0x6000 + ecx * 8], eax",
    "add eax, 0x1000",
    "inc ecx",
    "cmp ecx, 512",
    "jne 4b",
    // Pages of 1 GiB, if the processor has them.
    "mov eax, 0x80000000",
    "cpuid",
    "cmp eax, 0x80000001",
    "jb 6f",
    "mov eax, 0x80000001",
    "cpuid",
    "test edx, 1 << 26",
    "jz 6f",
    "mov ecx, 4",
    "5: mov eax, ecx",
    "shl eax, 30",
    "or eax, 0x83",
    "mov dword ptr [natgate_tables + 0x1000 + ecx * 8], eax",
    "mov eax, ecx",
    "shr eax, 2",
    "mov dword ptr [natgate_tables + 0x1004 + ecx * 8], eax",
    "inc ecx",
    "cmp ecx, 512",
    "jne 5b",
    // Memory of cards above 512 GiB.
    "mov ecx, 512",
    "7: mov eax, ecx",
    "shl eax, 30",
    "or eax, 0x9b",
    "mov dword ptr [natgate_far_tables + ecx * 8 - 0x1000], eax",
    "mov eax, ecx",
    "shr eax, 2",
    "mov dword ptr [natgate_far_tables + ecx * 8 - 0xffc], eax",
    "inc ecx",
    "cmp ecx, 128 * 512",
    "jne 7b",
    "mov ecx, 1",
    "mov eax, offset natgate_far_tables + 3",
    "8: mov dword ptr [natgate_tables + ecx * 8], eax",
    "add eax, 0x1000",
    "inc ecx",
    "cmp ecx, 128",
    "jne 8b",
    "mov dword ptr [natgate_large_pages], 1",
    "6: mov eax, {features}",
    "mov cr4, eax",
    "mov eax, offset natgate_tables",
    "mov cr3, eax",
    "mov ecx, 0xc0000080",
    "rdmsr",
    "or eax, {long_mode}",
    "wrmsr",
    "mov eax, {paging}",
    "mov cr0, eax",
    "lgdt [natgate_gdt_place]",
    "push 8",
    "mov eax, offset natgate_long",
    "push eax",
    "retf",
    ".code64",
    "natgate_long:",
    "lea rsp, [natgate_stack_end]",
    "call natgate_settle",
    "call {prepare}",
    // Values for the start code: the number of arguments, the arguments, the environment, and
    // auxiliary pairs.
    "rdtsc",
    "mov dword ptr [natgate_random], eax",
    "mov dword ptr [natgate_random + 8], eax",
    "lea rax, [natgate_random]",
    "push 0",
    "push 0",
    "push 0",
    "push 23",
    "push rax",
    "push 25",
    "push 4096",
    "push 6",
    "push 0",
    "push 0",
    "lea rax, [natgate_name]",
    "push rax",
    "push 1",
    "xor edx, edx",
    "xor ebp, ebp",
    "jmp _start",
    // Segments; and the registers of AVX, if the processor has them. With AVX the C library copies
    // and clears twice as many bytes at once.
    ".globl natgate_settle",
    "natgate_settle:",
    "mov eax, 0x10",
    "mov ds, eax",
    "mov es, eax",
    "mov ss, eax",
    "xor eax, eax",
    "mov fs, eax",
    "mov gs, eax",
    "mov eax, 1",
    "cpuid",
    "and ecx, {wide}",
    "cmp ecx, {wide}",
    "jne 9f",
    "mov rax, cr4",
    "or eax, 1 << 18",
    "mov cr4, rax",
    "xor ecx, ecx",
    "xor edx, edx",
    "mov eax, {states}",
    "xsetbv",
    "mov qword ptr [natgate_wide], 1",
    "9: ret",
    ".popsection",
    // Descriptors of code and data, until a processor has its own.
    ".pushsection .data.natgate_gdt,\"aw\",@progbits",
    ".balign 16",
    ".globl natgate_gdt",
    "natgate_gdt: .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff",
    "natgate_gdt_place: .short 23",
    ".quad natgate_gdt",
    "natgate_name: .asciz \"natgate\"",
    ".balign 8",
    ".globl natgate_start_info",
    "natgate_start_info: .quad 0",
    ".globl natgate_loader",
    "natgate_loader: .quad 0",
    ".globl natgate_large_pages",
    "natgate_large_pages: .quad 0",
    ".globl natgate_wide",
    "natgate_wide: .quad 0",
    "natgate_random: .quad 0, 0",
    ".popsection",
    ".pushsection .bss.natgate_boot,\"aw\",@nobits",
    ".balign 4096",
    ".globl natgate_tables",
    "natgate_tables: .skip 0x7000",
    "natgate_far_tables: .skip 0x7f000",
    ".skip {stack}",
    "natgate_stack_end:",
    ".popsection",
    prepare = sym super::traps::prepare,
    wide = const HAS_XSAVE | HAS_AVX,
    states = const STATES,
    features = const FEATURES,
    long_mode = const LONG_MODE,
    paging = const PAGING,
    stack = const 4 << 20,
);

unsafe extern "C" {
    static natgate_start_info: u64;
    static natgate_loader: u64;
    static natgate_large_pages: u64;
    static __executable_start: u8;
    static _end: u8;
}

/// Address of the boot loader's information.
pub(crate) fn start_info() -> u64 {
    // SAFETY: the value is written once, before the first Rust instruction.
    unsafe { natgate_start_info }
}

/// Content of EAX after a Multiboot2 boot loader; 0 after another.
pub(crate) fn loader() -> u32 {
    // SAFETY: as above.
    unsafe { natgate_loader as u32 }
}

/// End of the usable memory.
pub(crate) fn mapped_end() -> u64 {
    if has_large_pages() { 512 << 30 } else { 4 << 30 }
}

/// End of the reachable memory of cards.
pub(crate) fn registers_end() -> u64 {
    if has_large_pages() { 64 << 40 } else { 4 << 30 }
}

fn has_large_pages() -> bool {
    // SAFETY: as above.
    unsafe { natgate_large_pages != 0 }
}

/// Address and bytes of the image.
pub(crate) fn image() -> (u64, u64) {
    let (start, end) = (&raw const __executable_start, &raw const _end);
    (start.addr() as u64, (end.addr() - start.addr()) as u64)
}
