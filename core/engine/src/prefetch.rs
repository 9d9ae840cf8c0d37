//! The kernels that need an intrinsic: asking the processor for a cache line ahead of its use, and
//! comparing many numbers at once.

/// Starts fetching the cache line of `slice[index]`; does nothing when there is no such element, or
/// on processors for which nothing is known.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(slice: &[T], index: usize) {
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

/// Starts fetching the cache line of `slice[index]`, which there is; with any other index the fetch
/// is in vain.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch_within<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `prefetch`: it faults on no address, and nothing is read.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            slice.as_ptr().wrapping_add(index).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// A cache line as numbers of 16 bits.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u16; 32]);

impl Line {
    /// Numbers of a line.
    pub(crate) const NUMBERS: usize = 32;
}

/// A bit for each of a line's first sixteen numbers that equals `wanted`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn equal(line: &Line, wanted: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: the code is made for processors that have SSE2; each load reads sixteen bytes, the
    // first or the next of the 64 that the line has, and a line is aligned to 64.
    unsafe {
        use core::arch::x86_64::{
            __m128i, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_set1_epi16,
        };
        let wanted = _mm_set1_epi16(wanted as i16);
        let numbers = line.0.as_ptr().cast::<__m128i>();
        let equal = |at: usize| _mm_cmpeq_epi16(wanted, _mm_load_si128(numbers.add(at)));
        _mm_movemask_epi8(_mm_packs_epi16(equal(0), equal(1))) as u32
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    equal_one_by_one(line, wanted)
}

/// The result of [`equal`].
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
fn equal_one_by_one(line: &Line, wanted: u16) -> u32 {
    let numbers = line.0[..16].iter().enumerate();
    numbers.map(|(at, &number)| u32::from(number == wanted) << at).sum()
}

/// A bit for each of eight numbers that is less than `wanted`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn below_i16(numbers: &[i16; 8], wanted: i16) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: as in `equal`.
    unsafe {
        use core::arch::x86_64::{
            _mm_cmpgt_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
            _mm_setzero_si128,
        };
        let numbers = _mm_loadu_si128(numbers.as_ptr().cast());
        let below = _mm_cmpgt_epi16(_mm_set1_epi16(wanted), numbers);
        _mm_movemask_epi8(_mm_packs_epi16(below, _mm_setzero_si128())) as u32
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    below_one_by_one(numbers, wanted)
}

/// A bit for each of eight numbers of 32 bits that is less than `wanted`.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn below_i32(numbers: &[i32; 8], wanted: i32) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: as in `equal`; the second load reads the second half of the 32 bytes that the array
    // has.
    unsafe {
        use core::arch::x86_64::{
            _mm_castsi128_ps, _mm_cmpgt_epi32, _mm_loadu_si128, _mm_movemask_ps, _mm_set1_epi32,
        };
        let wanted = _mm_set1_epi32(wanted);
        let half = |first: usize| {
            let numbers = _mm_loadu_si128(numbers.as_ptr().add(first).cast());
            _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(wanted, numbers))) as u32
        };
        half(0) | half(4) << 4
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    below_one_by_one(numbers, wanted)
}

/// The result of [`below_i16`] and [`below_i32`].
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
fn below_one_by_one<N: PartialOrd + Copy>(numbers: &[N; 8], wanted: N) -> u32 {
    let bits = numbers.iter().enumerate().map(|(at, &number)| u32::from(number < wanted) << at);
    bits.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sixteen_at_once_are_as_one_by_one(
            numbers in prop::array::uniform32(0_u16..3),
            wanted in 0_u16..3,
            high in any::<bool>(),
        ) {
            let up = |number: u16| if high { number | 0xfff0 } else { number };
            let line = Line(numbers.map(up));
            prop_assert_eq!(equal(&line, up(wanted)), equal_one_by_one(&line, up(wanted)));
        }

        #[test]
        fn those_below_are_found_at_once_as_one_by_one(
            numbers in prop::array::uniform8(any::<i16>()),
            wanted in any::<i16>(),
            high in any::<bool>(),
        ) {
            prop_assert_eq!(below_i16(&numbers, wanted), below_one_by_one(&numbers, wanted));
            let own = numbers[3];
            prop_assert_eq!(below_i16(&numbers, own), below_one_by_one(&numbers, own));
            let wide = |number: i16| i32::from(number) << if high { 16 } else { 0 };
            let numbers = numbers.map(wide);
            for wanted in [wide(wanted), numbers[5], i32::MIN, i32::MAX] {
                prop_assert_eq!(below_i32(&numbers, wanted), below_one_by_one(&numbers, wanted));
            }
        }
    }
}
