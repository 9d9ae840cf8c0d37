//! Memory for large tables: an allocator that puts them on large pages, so that a random access to
//! gigabytes needs no walk through page tables as well; and prefetch of cache lines.
//!
//! Allocations of [`LARGE`] bytes and more come straight from the kernel: from reserved huge pages
//! if there are enough, otherwise from ordinary memory that begins at a huge page's boundary and
//! for which transparent huge pages are requested. The system allocator serves all other
//! allocations, and those that the kernel refuses. Memory is taken when it is first touched, except
//! for reserved huge pages, which the kernel sets aside at once.
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
    MAP_PRIVATE, PROT_READ, PROT_WRITE, madvise, mmap, munmap,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Size of a huge page, bytes.
pub const HUGE_PAGE: usize = 2 << 20;

/// Size from which allocations are put on large pages, bytes.
pub const LARGE: usize = 2 * HUGE_PAGE;

/// The allocator; a program selects it with `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargePages;

/// Called with the size of an allocation that failed, bytes, before the program learns of it.
static EXHAUSTED: OnceLock<fn(usize)> = OnceLock::new();

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

// SAFETY: a block belongs to the system allocator, or is a private mapping that is at least as long
// as asked for, aligned to a huge page, zero, and unmapped exactly once, by `dealloc`. The layout
// alone decides which of the two it is.
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
}

/// Creates a zeroed mapping at a huge page's boundary; null if there is no such memory.
fn map(size: usize) -> *mut u8 {
    let Some(size) = rounded(size) else { return null_mut() };
    let reserved = map_anonymous(size, MAP_HUGETLB | MAP_HUGE_2MB);
    if !reserved.is_null() {
        return reserved;
    }
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
