//! The two halves of the device that a decorator is around.
//!
//! A decorator lends out halves of its own, each of which uses one of the inner device's. Those are
//! borrowed from the inner device for as long as the decorator's are lent, which no lifetime can
//! express where both lie in one structure; so they are kept as pointers, renewed at each `split`.
#![allow(unsafe_code)]

use crate::{Device, Receive, Transmit};
use std::mem;
use std::ptr::NonNull;

/// A pointer to one half of an inner device.
#[derive(Debug)]
pub(super) struct Half<T: ?Sized>(Option<NonNull<T>>);

/// Pointers to both.
pub(super) type Halves = (Half<dyn Receive>, Half<dyn Transmit>);

// SAFETY: it is the half of a device that is moved together with it, and devices may go to another
// thread.
unsafe impl<T: ?Sized> Send for Half<T> {}

impl<T: ?Sized> Half<T> {
    /// Of no device yet.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// The half.
    ///
    /// # Safety
    /// It comes from [`split`] of a device that is still there, has not been used since, and is
    /// borrowed for as long as what is returned lives.
    pub(super) unsafe fn get<'d>(&mut self) -> Option<&'d mut T> {
        // SAFETY: by the caller's promise the half is there, and nobody else uses it.
        self.0.map(|mut half| unsafe { half.as_mut() })
    }
}

/// Splits a device and forgets that it is borrowed.
pub(super) fn split(device: &mut dyn Device) -> Halves {
    let (receive, transmit) = device.split();
    let receive: NonNull<dyn Receive + '_> = receive.into();
    let transmit: NonNull<dyn Transmit + '_> = transmit.into();
    // SAFETY: pointers that differ only in how long what they point to may be used, which callers
    // of `get` vouch for.
    unsafe {
        (
            Half(Some(mem::transmute::<NonNull<dyn Receive + '_>, NonNull<dyn Receive>>(receive))),
            Half(Some(mem::transmute::<NonNull<dyn Transmit + '_>, NonNull<dyn Transmit>>(
                transmit,
            ))),
        )
    }
}
