//! The one kernel that needs an intrinsic: asking the processor for a cache line ahead of its use.

/// Starts fetching the cache line of `slice[index]`; does nothing when there is no such element, or
/// on processors for which nothing is known.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no effect but on caches and faults on no address; the address is
        // that of a live element, and SSE is part of every x86-64 processor.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                core::ptr::from_ref(element).cast(),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = element;
    }
}
