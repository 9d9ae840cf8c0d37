//! The processors: what each has of its own, how those beside the first are started, and the
//! threads that they are given, one each.
//!
//! A processor that begins knows 16 bits and the first MiB, so its first instructions are copied to
//! a page there. They take it to where the first was before its program began; then it waits to be
//! given a thread. It keeps that for as long as the machine is on.

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

/// Most of them.
const MOST: usize = 64;

/// Bytes of the stack on which one beside the first waits, and handles interrupts from then on.
const STACK: usize = 32 << 10;

/// What a processor has of its own. It finds it by its GS register.
#[repr(C)]
pub(crate) struct Processor {
    /// Where this is.
    place: *const Self,
    /// Ticks since it said that things go on.
    pub(super) still: AtomicI32,
    number: u32,
    /// Interrupts of cards, and by which others have woken it.
    pub(super) alarms: AtomicU64,
    /// Where the stack ends on which it handles interrupts.
    stack_end: u64,
    /// What its controller is called.
    id: u32,
    /// Descriptors: code, data, the task's segment.
    descriptors: [u64; 5],
    /// The task's segment: 104 bytes of which only the first interrupt stack, at byte 36, matters.
    task: [u32; 26],
    /// What its counter of cycles says when this is 0, which it looks at while it waits.
    now: AtomicU64,
    /// The thread that it was given: where its stack ends, where its own data is, and, written
    /// last, where it begins.
    thread: [AtomicU64; 3],
}

// SAFETY: what it points to is itself; the rest that is changed later can be changed by several.
unsafe impl Sync for Processor {}

/// Where instructions find a processor's own figures, behind GS.
pub(super) const NUMBER: usize = offset_of!(Processor, number);
pub(super) const STILL: usize = offset_of!(Processor, still);
pub(super) const ALARMS: usize = offset_of!(Processor, alarms);

const STACK_END: usize = offset_of!(Processor, stack_end);

/// The first.
pub(super) static mut FIRST: Processor = Processor::new(0, 0, 0);

/// Those beside it that have been started, and how many of them have been given a thread.
static OTHERS: Sole<(ArrayVec<&'static Processor, MOST>, usize)> =
    Sole::new((ArrayVec::new_const(), 0));

/// What they are called, by number, once there are several; how many that is. Whoever ends
/// everything reads it, whatever else goes on.
static IDS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Who begins next.
static NEXT: AtomicPtr<Processor> = AtomicPtr::new(null_mut());

/// Not zero: the machine is about to start again, and this processor, counted from 1, sees to that
/// alone.
pub(super) static ENDING: AtomicU32 = AtomicU32::new(0);

// In 16 bits, in a page below 1 MiB, wherever that is: the same tables as the first has, and at
// once to 64 bits.
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
    // It changes no register that carries an argument.
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

/// This one.
pub(super) fn here() -> &'static Processor {
    let place: *const Processor;
    // SAFETY: it is the first thing that every processor is told, and stays where it is.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) place, options(nomem, nostack, preserves_flags));
        &*place
    }
}

/// Its number; the first is 0.
pub(crate) fn number() -> usize {
    here().number as usize
}

/// Has the processor that runs this be the first one. Runs before anything is there.
pub(super) fn be_first() {
    let first = &raw mut FIRST;
    // SAFETY: nothing else runs yet.
    unsafe {
        (&raw mut (*first).stack_end)
            .write_volatile((&raw const natgate_trap_stack_end).addr() as u64);
        be(first);
    }
}

/// Has the processor that runs this be that one. It has nothing else yet, so nothing is done here
/// that would need copying memory by a function.
///
/// # Safety
/// Nobody else uses it yet, and it stays where it is.
unsafe fn be(processor: *mut Processor) {
    const CODE: u64 = 0x00af_9a00_0000_ffff;
    const DATA: u64 = 0x00cf_9200_0000_ffff;
    const TASK: u16 = 0x18;
    const GS_BASE: u32 = 0xc000_0101;
    // SAFETY: by the caller's promise; the processor reads the tables as they are written here.
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

/// What one beside the first does until it is given a thread.
extern "C" fn wait(processor: *mut Processor) -> ! {
    const FS_BASE: u32 = 0xc000_0100;
    // SAFETY: it has just begun, and was made for it.
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
    // SAFETY: who has made the thread says where it begins and what it has. To it this is the end
    // of a call, whose result is 0.
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

/// Starts so many of the processors that are called so, beside this one.
///
/// # Errors
/// Why there are not so many.
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

/// Starts the one that is called so.
fn start_one(number: u32, id: u32, page: u8) -> Result<(), String> {
    /// As long as the processors' manuals have it, and how long it is waited for, nanoseconds.
    const AFTER_RESET: u64 = 10_000_000;
    const AFTER_BEGIN: u64 = 200_000;
    const PATIENCE: u64 = 500_000_000;
    /// So many parts of a second may two counters be apart, and how often that is looked at.
    const ALIKE: u64 = 100_000;
    const LOOKS: usize = 100;
    let stack = Vec::leak(vec![0_u128; STACK / size_of::<u128>()]).as_ptr_range().end;
    let processor = Box::leak(Box::new(Processor::new(number, id, stack.addr() as u64)));
    let place = &raw mut *processor;
    // SAFETY: it stays where it is, and this is changed by who begins.
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
    // There is one clock, which all go by. Each look is two bounds, whatever interrupts it.
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
        // It is not to begin as another.
        controller::send(id, Signal::Reset);
        return Err(format!("processor {number} {problem}; set workers.count = {number}"));
    }
    // SAFETY: from now on it is only read, or changed by several.
    OTHERS.with(|(others, _)| others.push(unsafe { &*place }));
    IDS[number as usize].store(id, Ordering::Relaxed);
    COUNT.store(number as usize + 1, Ordering::Release);
    Ok(())
}

/// The number of a page below 640 KiB that holds the first instructions; `None`: there is none
/// free.
fn prepare_page() -> Option<u8> {
    const END: u64 = 640 << 10;
    let told = system::told()?;
    let mut memory = Memory::new();
    for (start, len) in &told.memory {
        let end = start.saturating_add(*len).min(END);
        memory.give(*start, end.saturating_sub(*start));
    }
    // What is in the first page of all cannot be changed.
    for (start, len) in told.modules.into_iter().chain([(0, PAGE), told.letter]) {
        memory.withhold(start, len);
    }
    let page = memory.take(PAGE)?;
    let (start, end) = (&raw const natgate_begin, &raw const natgate_begin_end);
    // SAFETY: nobody has this page: memory below 1 MiB is not given to the program.
    unsafe { (page as *mut u8).copy_from(start, end.addr() - start.addr()) };
    u8::try_from(page / PAGE).ok()
}

/// Gives a thread to a processor that has none; returns the thread's number. `None`: there is no
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

/// Interrupts, of all of them, by cards and by others that had something for them.
pub(crate) fn alarms() -> u64 {
    let others = OTHERS.with(|(others, _)| others.clone());
    let of_others = others.iter().map(|other| other.alarms.load(Ordering::Relaxed));
    of_others.sum::<u64>() + watchdog::alarms()
}

/// What wakes a processor that sleeps.
#[derive(Debug)]
pub(crate) struct Bell(u32);

impl Bell {
    /// That of the processor of this number; `None`: it has not been started.
    pub(crate) fn of(number: usize) -> Option<Self> {
        (number < COUNT.load(Ordering::Acquire)).then(|| Self(IDS[number].load(Ordering::Relaxed)))
    }
}

impl Wake for Bell {
    fn wake(&self) {
        controller::send(self.0, Signal::Alarm);
    }
}

/// Has this processor be the only one that goes on, for the end, unless another is that already.
pub(super) fn stop_others() {
    /// As long as it may take them to notice, nanoseconds.
    const MOMENT: u64 = 1_000_000;
    let own = here().number + 1;
    match ENDING.compare_exchange(0, own, Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) if COUNT.load(Ordering::Acquire) > 1 => {
            // Others that the machine has are the firmware's, which may not know what to do with
            // that.
            for (number, id) in IDS[..COUNT.load(Ordering::Acquire)].iter().enumerate() {
                if number != here().number as usize {
                    controller::send(id.load(Ordering::Relaxed), Signal::End);
                }
            }
            clock::pause(MOMENT);
        }
        Err(other) if other != own => loop {
            // SAFETY: nothing goes on here.
            unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
        },
        _ => {}
    }
}
