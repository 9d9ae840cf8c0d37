//! Halves of the device that a decorator wraps.
//!
//! A decorator lends out halves of its own, each of which uses one of the inner device's. The inner
//! halves are borrowed for as long as the decorator's are lent. No lifetime can express that if
//! both are in one structure. So the inner halves are kept as pointers, renewed at each `split`.
#![allow(unsafe_code)]

use crate::{Device, Receive, Transmit};
use std::mem;
use std::ptr::NonNull;

/// A pointer to one half of an inner device.
#[derive(Debug)]
pub(super) struct Half<T: ?Sized>(Option<NonNull<T>>);

/// Pointers to both halves.
pub(super) type Halves = (Half<dyn Receive>, Half<dyn Transmit>);

// SAFETY: the half belongs to a device that moves together with the pointer, and devices may move
// to another thread.
unsafe impl<T: ?Sized> Send for Half<T> {}

impl<T: ?Sized> Half<T> {
    /// A pointer without a device.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Returns the half.
    ///
    /// # Safety
    /// The pointer comes from [`split`] of a device that still exists and has not been used since.
    /// The device stays borrowed for as long as the returned reference lives.
    pub(super) unsafe fn get<'d>(&mut self) -> Option<&'d mut T> {
        // SAFETY: by the caller's promise the half exists, and no other reference to it does.
        self.0.map(|mut half| unsafe { half.as_mut() })
    }
}

/// Splits a device and forgets that it is borrowed.
pub(super) fn split(device: &mut dyn Device) -> Halves {
    let (receive, transmit) = device.split();
    let receive: NonNull<dyn Receive + '_> = receive.into();
    let transmit: NonNull<dyn Transmit + '_> = transmit.into();
    // SAFETY: the pointers differ only in the lifetime of their targets, for which the callers of
    // `get` vouch.
    unsafe {
        (
            Half(Some(mem::transmute::<NonNull<dyn Receive + '_>, NonNull<dyn Receive>>(receive))),
            Half(Some(mem::transmute::<NonNull<dyn Transmit + '_>, NonNull<dyn Transmit>>(
                transmit,
            ))),
        )
    }
}
