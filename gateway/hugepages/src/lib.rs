//! Memory for large tables: an allocator that puts them on large pages, so that a random access to
//! gigabytes needs no walk through page tables as well; and prefetch of cache lines.
//!
//! Allocations of [`LARGE`] bytes and more come straight from the kernel: from reserved huge pages
//! if there are enough, otherwise from ordinary memory that begins at a huge page's boundary and
//! for which transparent huge pages are requested. The system allocator serves all other
//! allocations, and those that the kernel refuses. Memory is taken when it is first touched, except
//! for reserved huge pages, which the kernel sets aside at once.
//!
//! A large allocation that grows is moved to its new place, not copied, unless the program has
//! reserved huge pages: the kernel does not extend these.
//!
//! ```
//! use natgate_hugepages::{HUGE_PAGE, LARGE, LargePages, prefetch};
//!
//! #[global_allocator]
//! static ALLOCATOR: LargePages = LargePages;
//!
//! let table = vec![0_u64; LARGE / 8];
//! assert!(table.as_ptr().addr().is_multiple_of(HUGE_PAGE));
//! prefetch(&table, 4096);
//! assert_eq!(table[4096], 0);
//! ```

use libc::{
    MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_FAILED, MAP_HUGE_2MB, MAP_HUGETLB, MAP_NORESERVE,
    MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE, madvise, mmap, mremap,
    munmap,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of a huge page, bytes.
pub const HUGE_PAGE: usize = 2 << 20;

/// Size from which allocations are put on large pages, bytes.
pub const LARGE: usize = 2 * HUGE_PAGE;

/// The allocator; a program selects it with `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargePages;

/// Called with the size of an allocation that failed, bytes, before the program learns of it.
static EXHAUSTED: OnceLock<fn(usize)> = OnceLock::new();

/// True if a block has reserved huge pages.
static HAS_RESERVED: AtomicBool = AtomicBool::new(false);

/// Sets the function that is called when an allocation fails, with its size in bytes. The function
/// may end the process; it must not allocate. Further calls change nothing.
pub fn on_exhaustion(call: fn(usize)) {
    let _ = EXHAUSTED.set(call);
}

/// Returns the block; calls the function for failed allocations if it is null.
fn checked(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() {
        exhausted(layout.size());
    }
    block
}

#[cold]
fn exhausted(size: usize) {
    if let Some(call) = EXHAUSTED.get() {
        call(size);
    }
}

/// True if this allocator serves an allocation itself. That depends on the layout alone, so that
/// `dealloc` decides like `alloc`.
fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= HUGE_PAGE
}

/// Starts fetching the cache line of `slice[index]`. Does nothing if there is no such element, or
/// on unknown processors.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no effect but on caches and faults on no address; SSE is part of
        // every x86-64 processor.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(element).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = element;
    }
}

/// Starts fetching a line that will be written, like [`prefetch`]: no other processor has it
/// afterwards.
#[inline(always)]
pub fn prefetch_to_write<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above; a processor without this instruction treats it as a no-operation.
        unsafe {
            let address = core::ptr::from_ref(element);
            core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = element;
    }
}

fn rounded(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(HUGE_PAGE)
}

// SAFETY: a block belongs to the system allocator, or is one private mapping that is at least as
// long as asked for, aligned to a huge page, and zero where it was never written. `dealloc` unmaps
// it; `realloc` cuts or moves it. The layout alone decides which of the two it is.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return checked(map(layout.size()), layout);
        }
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { System.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return checked(map(layout.size()), layout);
        }
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { System.alloc_zeroed(layout) }, layout)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            let size = rounded(layout.size()).expect("it was allocated");
            // SAFETY: the block is a mapping of this size that is not used any more.
            unsafe { munmap(block.cast(), size) };
            return;
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size, rounded up to the alignment, is no overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's promises are passed on. A block that is moved or cut is a mapping of
        // this size, and the caller does not use its former address any more.
        unsafe {
            let moved = match (is_large(layout), is_large(new)) {
                (false, false) => return checked(System.realloc(block, layout, size), new),
                (true, true) => resize(block, layout.size(), size),
                _ => null_mut(),
            };
            if moved.is_null() { self.copy(block, layout, new) } else { moved }
        }
    }
}

impl LargePages {
    /// Copies a block to one of another size.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    unsafe fn copy(&self, block: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: the new block is another one, and both are as long as the shorter of them.
        unsafe {
            let other = self.alloc(new);
            if !other.is_null() {
                other.copy_from_nonoverlapping(block, layout.size().min(new.size()));
                self.dealloc(block, layout);
            }
            other
        }
    }
}

/// Gives a mapping another size: cuts it, or moves its pages to a place where it can be longer.
/// What is new is zero. Returns its address; null, with the block as before, if the kernel refuses.
///
/// # Safety
/// The block is a mapping of [`map`] with the former size, and nobody uses its address afterwards.
unsafe fn resize(block: *mut u8, former: usize, size: usize) -> *mut u8 {
    let former = rounded(former).expect("it was allocated");
    let Some(size) = rounded(size) else { return null_mut() };
    if size <= former {
        if size < former {
            // SAFETY: what is cut off lies within the mapping.
            unsafe { munmap(block.add(size).cast(), former - size) };
        }
        return block;
    }
    if HAS_RESERVED.load(Ordering::Relaxed) {
        return null_mut();
    }
    let place = map_ordinary(size);
    if place.is_null() {
        return place;
    }
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    // SAFETY: the target is a mapping of this size that nobody else has.
    let moved = unsafe { mremap(block.cast(), former, size, flags, place) };
    // If it fails, the kernel may have unmapped the target, and another thread may have got the
    // addresses. So the target is left: it is no memory, because nobody has touched it.
    if moved == MAP_FAILED { null_mut() } else { place }
}

/// Creates a zeroed mapping at a huge page's boundary; null if there is no such memory.
fn map(size: usize) -> *mut u8 {
    let Some(size) = rounded(size) else { return null_mut() };
    let reserved = map_anonymous(size, MAP_HUGETLB | MAP_HUGE_2MB);
    if !reserved.is_null() {
        HAS_RESERVED.store(true, Ordering::Relaxed);
        return reserved;
    }
    map_ordinary(size)
}

/// As [`map`], without reserved huge pages, for a multiple of a huge page's size.
fn map_ordinary(size: usize) -> *mut u8 {
    let Some(longer) = size.checked_add(HUGE_PAGE) else { return null_mut() };
    let start = map_anonymous(longer, MAP_NORESERVE);
    if start.is_null() {
        return start;
    }
    let before = start.align_offset(HUGE_PAGE);
    // SAFETY: both ends lie within the mapping, and no reference to them exists yet.
    unsafe {
        let block = start.add(before);
        if before > 0 {
            munmap(start.cast(), before);
        }
        if before < HUGE_PAGE {
            munmap(block.add(size).cast(), HUGE_PAGE - before);
        }
        // On a kernel without transparent huge pages this call fails, and ordinary pages remain.
        madvise(block.cast(), size, MADV_HUGEPAGE);
        block
    }
}

fn map_anonymous(size: usize, flags: i32) -> *mut u8 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | flags;
    // SAFETY: a new private mapping touches nothing that is there.
    let start = unsafe { mmap(null_mut(), size, PROT_READ | PROT_WRITE, flags, -1, 0) };
    if start == MAP_FAILED { null_mut() } else { start.cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 64).unwrap()
    }

    #[test]
    fn blocks_are_aligned_zero_and_usable_to_the_end() {
        for size in [1, 4096, LARGE - 1, LARGE, LARGE + 1, 5 * HUGE_PAGE + 12345] {
            let layout = layout(size);
            // SAFETY: the size is not zero; the block is written within and freed once.
            unsafe {
                let block = LargePages.alloc_zeroed(layout);
                assert!(!block.is_null());
                assert_eq!(block as usize % if size >= LARGE { HUGE_PAGE } else { 64 }, 0);
                assert_eq!((*block, *block.add(size - 1)), (0, 0));
                block.write_bytes(7, size);
                LargePages.dealloc(block, layout);
            }
        }
    }

    #[test]
    fn growing_keeps_what_is_there() {
        let (old, new) = (LARGE - 8, LARGE + 8);
        // SAFETY: as above; the block is reallocated with the layout that it has.
        unsafe {
            let block = LargePages.alloc(layout(old));
            block.write_bytes(9, old);
            let grown = LargePages.realloc(block, layout(old), new);
            assert!((0..old).step_by(4096).all(|at| *grown.add(at) == 9));
            LargePages.dealloc(grown, layout(new));
        }
    }

    /// Page faults of this thread so far that read nothing from a disk.
    fn faults() -> i64 {
        // SAFETY: the structure is plain numbers, and the call fills it.
        unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_minflt
        }
    }

    /// A copy would touch each page of the new block.
    #[test]
    fn a_large_block_is_moved_when_it_grows() {
        let sizes = [16, 17, 64, 63, 20, 128].map(|pages| pages * HUGE_PAGE + 12345);
        let mut size = sizes[0];
        // SAFETY: as above; the block is written within.
        unsafe {
            let mut block = LargePages.alloc(layout(size));
            block.write_bytes(9, size);
            let mut written = size;
            for new in sizes {
                let before = faults();
                block = LargePages.realloc(block, layout(size), new);
                assert!(faults() - before < 8, "{size} to {new}");
                (size, written) = (new, written.min(new));
                assert_eq!(block.addr() % HUGE_PAGE, 0);
                assert!((0..written).step_by(4096).all(|at| *block.add(at) == 9));
                block.add(written).write_bytes(9, size - written);
                written = size;
            }
            LargePages.dealloc(block, layout(size));
        }
    }

    #[test]
    fn a_block_keeps_its_bytes_on_its_way_from_small_to_large_and_back() {
        let sizes = [100, 1 << 20, LARGE, LARGE + HUGE_PAGE, 5000, 3 * LARGE, LARGE - 1, 10];
        let mut vector: Vec<u8> = vec![7; 10];
        // SAFETY: as above.
        unsafe {
            let mut block = LargePages.alloc(layout(10));
            block.copy_from_nonoverlapping(vector.as_ptr(), 10);
            let mut size = 10;
            for (mark, new) in (1..).zip(sizes) {
                block = LargePages.realloc(block, layout(size), new);
                vector.resize(new, mark);
                if new > size {
                    block.add(size).write_bytes(mark, new - size);
                }
                size = new;
                assert!(std::slice::from_raw_parts(block, size) == vector, "{size}");
            }
            LargePages.dealloc(block, layout(size));
        }
    }

    #[test]
    fn what_cannot_be_is_null() {
        // SAFETY: a null block is not used.
        let block = unsafe { LargePages.alloc(layout(isize::MAX as usize - (1 << 30))) };
        assert!(block.is_null());
    }

    /// Resident bytes of the mapping with this address; memory of other tests does not count.
    fn resident(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines();
        let has_address = |line: &str| {
            let (first, rest) = line.split_once('-')?;
            let last = rest.split(' ').next()?;
            let [first, last] = [first, last].map(|end| usize::from_str_radix(end, 16).ok());
            Some((first?..last?).contains(&address))
        };
        lines.find(|line| has_address(line) == Some(true)).expect("it is mapped");
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).expect("it has a size");
        resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn memory_is_taken_when_it_is_touched() {
        let layout = layout(1 << 33);
        // SAFETY: as above.
        unsafe {
            let block = LargePages.alloc_zeroed(layout);
            *block.add(1 << 32) = 1;
            assert!((1..1 << 26).contains(&resident(block.add(1 << 32) as usize)));
            LargePages.dealloc(block, layout);
        }
    }
}
