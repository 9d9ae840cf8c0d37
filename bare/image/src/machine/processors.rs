//! The processors: the data of each, the start of processors beside the first, and their threads,
//! one each.
//!
//! A processor begins with 16 bits and the first MiB of memory, so its first instructions are
//! copied to a page there. They bring it to the state of the first processor before its program.
//! Then it waits for a thread, which it keeps until the machine restarts.

use super::controller::{self, Signal};
use super::ports::{counter, write_msr};
use super::sole::Sole;
use super::{boot, clock, system, traps, watchdog};
use arrayvec::ArrayVec;
use natgate_bare::calls::Thread;
use natgate_bare::memory::{Memory, PAGE};
use natgate_gateway::Wake;
use std::arch::{asm, global_asm};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Most processors.
const MOST: usize = 64;

/// Bytes of the stack of a processor beside the first. The processor waits on it, and later handles
/// interrupts on it.
const STACK: usize = 32 << 10;

/// Data of one processor. The processor finds them by its GS register.
#[repr(C)]
pub(crate) struct Processor {
    /// Address of this structure.
    place: *const Self,
    /// Ticks since the processor's latest sign of progress.
    pub(super) still: AtomicI32,
    number: u32,
    /// Number of interrupts by cards and by other processors.
    pub(super) alarms: AtomicU64,
    /// End of the stack for interrupts.
    stack_end: u64,
    /// Id of its interrupt controller.
    id: u32,
    /// Descriptors: code, data, the task segment.
    descriptors: [u64; 5],
    /// Task segment: 104 bytes. Only the first interrupt stack, at byte 36, matters.
    task: [u32; 26],
    /// Cycle counter. A waiting processor writes it when this is 0.
    now: AtomicU64,
    /// Its thread: the end of the stack, the address of the thread's own data, and the first
    /// instruction, which is written last.
    thread: [AtomicU64; 3],
}

// SAFETY: the pointer refers to the structure itself; all other changeable fields are atomic.
unsafe impl Sync for Processor {}

/// Offsets of a processor's data, relative to GS.
pub(super) const NUMBER: usize = offset_of!(Processor, number);
pub(super) const STILL: usize = offset_of!(Processor, still);
pub(super) const ALARMS: usize = offset_of!(Processor, alarms);

const STACK_END: usize = offset_of!(Processor, stack_end);

/// Data of the first processor.
pub(super) static mut FIRST: Processor = Processor::new(0, 0, 0);

/// Started processors beside the first, and the number of them that have a thread.
static OTHERS: Sole<(ArrayVec<&'static Processor, MOST>, usize)> =
    Sole::new((ArrayVec::new_const(), 0));

/// Ids of the processors by number, if there are several, and their count. The processor that ends
/// the machine reads them at any time.
static IDS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Data of the processor that begins next.
static NEXT: AtomicPtr<Processor> = AtomicPtr::new(null_mut());

/// Number of the processor, counted from 1, that restarts the machine; 0 in normal operation.
pub(super) static ENDING: AtomicU32 = AtomicU32::new(0);

// Code of 16 bits, in any page below 1 MiB. It uses the page tables of the first processor, and
// switches to 64 bits at once.
global_asm!(
    ".pushsection .rodata.natgate_begin,\"a\",@progbits",
    ".code16",
    "natgate_begin:",
    "cli",
    "cld",
    "movw %cs, %ax",
    "movw %ax, %ds",
    "movl ${features}, %eax",
    "movl %eax, %cr4",
    "movl $natgate_tables, %eax",
    "movl %eax, %cr3",
    "movl $0xc0000080, %ecx",
    "rdmsr",
    "orl ${long_mode}, %eax",
    "wrmsr",
    "lgdtl natgate_begin_descriptors - natgate_begin",
    "movl ${paging}, %eax",
    "movl %eax, %cr0",
    "ljmpl $8, $natgate_further",
    "natgate_begin_descriptors: .short 23",
    ".long natgate_gdt",
    "natgate_begin_end:",
    ".code64",
    ".popsection",
    features = const boot::FEATURES,
    long_mode = const boot::LONG_MODE,
    paging = const boot::PAGING,
    options(att_syntax),
);

global_asm!(
    ".pushsection .text.natgate_further,\"ax\",@progbits",
    "natgate_further:",
    "mov rdi, qword ptr [{next}]",
    "mov rsp, qword ptr [rdi + {stack_end}]",
    // This function changes no register that carries an argument.
    "call natgate_settle",
    "call {wait}",
    "ud2",
    ".popsection",
    next = sym NEXT,
    stack_end = const STACK_END,
    wait = sym wait,
);

unsafe extern "C" {
    static natgate_begin: u8;
    static natgate_begin_end: u8;
    static natgate_trap_stack_end: u8;
}

impl Processor {
    const fn new(number: u32, id: u32, stack_end: u64) -> Self {
        Self {
            place: std::ptr::null(),
            still: AtomicI32::new(0),
            number,
            alarms: AtomicU64::new(0),
            stack_end,
            id,
            descriptors: [0; 5],
            task: [0; 26],
            now: AtomicU64::new(0),
            thread: [const { AtomicU64::new(0) }; 3],
        }
    }
}

/// Data of this processor.
pub(super) fn here() -> &'static Processor {
    let place: *const Processor;
    // SAFETY: every processor sets this value first, and the structure does not move.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) place, options(nomem, nostack, preserves_flags));
        &*place
    }
}

/// Number of this processor; the first is 0.
pub(crate) fn number() -> usize {
    here().number as usize
}

/// Makes this processor the first one. Runs before the environment exists.
pub(super) fn be_first() {
    let first = &raw mut FIRST;
    // SAFETY: no other code runs yet.
    unsafe {
        (&raw mut (*first).stack_end)
            .write_volatile((&raw const natgate_trap_stack_end).addr() as u64);
        be(first);
    }
}

/// Makes this processor the owner of `processor`. The environment does not exist yet, so this
/// function must not call a function that copies memory.
///
/// # Safety
/// No other processor uses the structure yet, and it does not move.
unsafe fn be(processor: *mut Processor) {
    const CODE: u64 = 0x00af_9a00_0000_ffff;
    const DATA: u64 = 0x00cf_9200_0000_ffff;
    const TASK: u16 = 0x18;
    const GS_BASE: u32 = 0xc000_0101;
    // SAFETY: the caller promises it; the processor reads the tables in the form that is written
    // here.
    unsafe {
        (&raw mut (*processor).place).write_volatile(processor);
        let stack = (&raw const (*processor).stack_end).read_volatile();
        let task = (&raw mut (*processor).task).cast::<u32>();
        task.add(9).write_volatile(stack as u32);
        task.add(10).write_volatile((stack >> 32) as u32);
        let base = task.addr() as u64;
        let low = 103 | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        let descriptors = (&raw mut (*processor).descriptors).cast::<u64>();
        descriptors.add(1).write_volatile(CODE);
        descriptors.add(2).write_volatile(DATA);
        descriptors.add(3).write_volatile(low);
        descriptors.add(4).write_volatile(base >> 32);
        let place = traps::Place { limit: 39, base: descriptors.addr() as u64 };
        asm!("lgdt [{}]", in(reg) &raw const place);
        asm!("ltr {:x}", in(reg) TASK);
        write_msr(GS_BASE, processor.addr() as u64);
    }
    traps::load();
    system::prepare();
}

/// Waits for a thread, on a processor beside the first.
extern "C" fn wait(processor: *mut Processor) -> ! {
    const FS_BASE: u32 = 0xc000_0100;
    // SAFETY: the processor has just begun, and the structure was created for it.
    unsafe { be(processor) };
    controller::start();
    let Processor { now, thread: [stack, data, begin], .. } = here();
    while begin.load(Ordering::Acquire) == 0 {
        if now.load(Ordering::Relaxed) == 0 {
            now.store(counter(), Ordering::Release);
        }
    }
    watchdog::tick();
    let [stack, data, begin] = [stack, data, begin].map(|place| place.load(Ordering::Relaxed));
    // SAFETY: the creator of the thread has given its first instruction, stack and data. For the
    // thread this is the end of a call with the result 0.
    unsafe {
        write_msr(FS_BASE, data);
        asm!(
            "mov rsp, rdi",
            "xor ebp, ebp",
            "sti",
            "jmp rsi",
            in("rax") 0_u64,
            in("rdi") stack,
            in("rsi") begin,
            options(noreturn),
        );
    }
}

/// Starts `wanted` processors of these ids, beside this one.
///
/// # Errors
/// The reason why fewer are running.
pub(crate) fn start(wanted: usize, ids: &[u32]) -> Result<(), String> {
    if wanted == 0 {
        return Ok(());
    }
    let own = controller::id();
    let others = ids.iter().copied().filter(|id| *id != own && controller::can_reach(*id));
    let others: Vec<u32> = others.take(MOST - 1).collect();
    if others.len() < wanted {
        return Err(format!(
            "workers.count is {}, and this machine has {} processors; it can be that many at most",
            wanted + 1,
            others.len() + 1
        ));
    }
    IDS[0].store(own, Ordering::Relaxed);
    let page = prepare_page().ok_or(
        "no memory below 640 KiB is free, where further processors begin; set workers.count = 1",
    )?;
    let begun = || OTHERS.with(|(others, _)| others.len());
    for id in others.into_iter().skip(begun()).take(wanted - begun()) {
        start_one(begun() as u32 + 1, id, page)?;
    }
    Ok(())
}

/// Starts the processor with this id.
fn start_one(number: u32, id: u32, page: u8) -> Result<(), String> {
    /// Pauses from the processors' manuals, and the longest wait, nanoseconds.
    const AFTER_RESET: u64 = 10_000_000;
    const AFTER_BEGIN: u64 = 200_000;
    const PATIENCE: u64 = 500_000_000;
    /// Largest difference of two counters, as a fraction of a second, and the number of
    /// comparisons.
    const ALIKE: u64 = 100_000;
    const LOOKS: usize = 100;
    let stack = Vec::leak(vec![0_u128; STACK / size_of::<u128>()]).as_ptr_range().end;
    let processor = Box::leak(Box::new(Processor::new(number, id, stack.addr() as u64)));
    let place = &raw mut *processor;
    // SAFETY: the structure does not move, and the new processor changes this field atomically.
    let now = unsafe { &(*place).now };
    let wait = |nanoseconds| {
        let begin = clock::now().1;
        while now.load(Ordering::Acquire) == 0 && clock::now().1 - begin < nanoseconds {
            std::hint::spin_loop();
        }
        now.load(Ordering::Relaxed) != 0
    };
    NEXT.store(place, Ordering::Release);
    controller::send(id, Signal::Reset);
    clock::pause(AFTER_RESET);
    let begins = [AFTER_BEGIN, PATIENCE].into_iter().any(|patience| {
        controller::send(id, Signal::Begin(page));
        wait(patience)
    });
    // All processors use one clock. Each comparison has two bounds, so an interruption does not
    // falsify it.
    let apart = clock::frequency() / ALIKE;
    let is_alike = begins
        && (0..LOOKS).all(|_| {
            let before = counter();
            now.store(0, Ordering::Relaxed);
            wait(PATIENCE)
                && (before.saturating_sub(apart)..=counter() + apart)
                    .contains(&now.load(Ordering::Relaxed))
        });
    let problem = match (begins, is_alike) {
        (true, true) => None,
        (true, false) => Some("counts cycles from another time on than the first"),
        (false, _) => Some("does not start"),
    };
    if let Some(problem) = problem {
        // The processor must not begin later with another processor's data.
        controller::send(id, Signal::Reset);
        return Err(format!("processor {number} {problem}; set workers.count = {number}"));
    }
    // SAFETY: from now on the structure is only read, or changed atomically.
    OTHERS.with(|(others, _)| others.push(unsafe { &*place }));
    IDS[number as usize].store(id, Ordering::Relaxed);
    COUNT.store(number as usize + 1, Ordering::Release);
    Ok(())
}

/// Copies the first instructions to a page below 640 KiB; returns its number, or `None` if no page
/// is free.
fn prepare_page() -> Option<u8> {
    const END: u64 = 640 << 10;
    let told = system::told()?;
    let mut memory = Memory::new();
    for (start, len) in &told.memory {
        let end = start.saturating_add(*len).min(END);
        memory.give(*start, end.saturating_sub(*start));
    }
    // The first page of memory is read-only.
    for (start, len) in told.modules.into_iter().chain([(0, PAGE), told.letter]) {
        memory.withhold(start, len);
    }
    let page = memory.take(PAGE)?;
    let (start, end) = (&raw const natgate_begin, &raw const natgate_begin_end);
    // SAFETY: the page has no other owner, because memory below 1 MiB is not given to the program.
    unsafe { (page as *mut u8).copy_from(start, end.addr() - start.addr()) };
    u8::try_from(page / PAGE).ok()
}

/// Gives a thread to a processor without one; returns the thread's number, or `None` if there is no
/// such processor.
pub(super) fn give(thread: &Thread, begin: u64) -> Option<u32> {
    let processor = OTHERS.with(|(others, given)| {
        let processor = others.get(*given).copied()?;
        *given += 1;
        Some(processor)
    })?;
    processor.thread[0].store(thread.stack, Ordering::Relaxed);
    processor.thread[1].store(thread.data, Ordering::Relaxed);
    let number = processor.number + 1;
    if let Some(place) = thread.number {
        // SAFETY: the C library passes memory of its own.
        unsafe { (place as *mut u32).write(number) };
    }
    processor.thread[2].store(begin, Ordering::Release);
    Some(number)
}

/// Number of interrupts of all processors, by cards and by other processors.
pub(crate) fn alarms() -> u64 {
    let others = OTHERS.with(|(others, _)| others.clone());
    let of_others = others.iter().map(|other| other.alarms.load(Ordering::Relaxed));
    of_others.sum::<u64>() + watchdog::alarms()
}

/// Wakes a sleeping processor.
#[derive(Debug)]
pub(crate) struct Bell(u32);

impl Bell {
    /// Bell of the processor with this number; `None` if it has not been started.
    pub(crate) fn of(number: usize) -> Option<Self> {
        (number < COUNT.load(Ordering::Acquire)).then(|| Self(IDS[number].load(Ordering::Relaxed)))
    }
}

impl Wake for Bell {
    fn wake(&self) {
        controller::send(self.0, Signal::Alarm);
    }
}

/// Stops all other processors at the end of the machine, unless another processor does so already.
pub(super) fn stop_others() {
    /// Time for the other processors to stop, nanoseconds.
    const MOMENT: u64 = 1_000_000;
    let own = here().number + 1;
    match ENDING.compare_exchange(0, own, Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) if COUNT.load(Ordering::Acquire) > 1 => {
            // Other processors of the machine belong to the firmware, which may not handle the
            // signal.
            for (number, id) in IDS[..COUNT.load(Ordering::Acquire)].iter().enumerate() {
                if number != here().number as usize {
                    controller::send(id.load(Ordering::Relaxed), Signal::End);
                }
            }
            clock::pause(MOMENT);
        }
        Err(other) if other != own => loop {
            // SAFETY: this processor stops here.
            unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
        },
        _ => {}
    }
}
