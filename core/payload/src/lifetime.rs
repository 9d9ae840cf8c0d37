//! Ends of lifetimes with the low bits of seconds. They mean another time after 65,536 seconds, so
//! a flow renews them before each use.

/// Lifetime of a registration that says none, seconds (RFC 3261 section 10.2). No lifetime that is
/// kept here is longer.
pub(crate) const REGISTRATION: u16 = 3600;

/// Seconds until a time of which only the low bits are known; 0 if it has passed.
pub(crate) fn seconds_left(until: u16, now: u32) -> u16 {
    let left = until.wrapping_sub(now as u16);
    if left <= REGISTRATION { left } else { 0 }
}

/// Notes a use of times. True if the use before is so long ago that all of them have passed.
pub(crate) fn have_passed(seen: &mut u32, now: u32) -> bool {
    now.saturating_sub(core::mem::replace(seen, now)) > REGISTRATION.into()
}
