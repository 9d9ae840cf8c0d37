//! A card with which several workers send and one receives. The card has one ring for each
//! direction. Frames of a burst go into the sending ring together, by one worker at a time.

use natgate_io::{Batch, Change, Device, Frame, LinkInfo, Lost, Receive, Statistics, Transmit};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sending half of a card for several workers.
#[derive(Debug)]
pub(crate) struct Shared<T: ?Sized>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    pub(crate) fn new(half: T) -> Self {
        Self(Arc::new(Mutex::new(half)))
    }
}

impl<T: ?Sized> Shared<T> {
    /// Locks the half.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // A panic restarts the machine, so a poisoned mutex is still valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Transmit + ?Sized> Transmit for Shared<T> {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        self.lock().transmit(frames)
    }
}

/// State of a card's link, as its owner has last seen it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carrier(Arc<AtomicBool>);

impl Carrier {
    pub(crate) fn set(&self, is_up: bool) {
        self.0.store(is_up, Ordering::Relaxed);
    }
}

/// Part of a card for further workers.
#[derive(Debug)]
pub struct Sharing {
    link: LinkInfo,
    carrier: Carrier,
    half: Shared<dyn Transmit + Send>,
}

impl Sharing {
    /// Creates the shared part of a card with this link.
    pub(crate) fn new<T: Transmit + Send + 'static>(
        link: &LinkInfo,
        carrier: &Carrier,
        Shared(half): &Shared<T>,
    ) -> Self {
        carrier.set(link.up);
        let half = Shared(Arc::clone(half) as Arc<Mutex<_>>);
        Self { link: link.clone(), carrier: carrier.clone(), half }
    }

    /// Device of one worker. The card's owner counts its frames.
    pub fn device(&self) -> Box<dyn Device> {
        let Self { link, carrier, half: Shared(half) } = self;
        let half = Shared(Arc::clone(half));
        let (link, carrier) = (link.clone(), carrier.clone());
        Box::new(Sending { link, carrier, link_losses: 0, nothing: Nothing, half })
    }
}

/// A device that only sends.
#[derive(Debug)]
struct Sending {
    link: LinkInfo,
    carrier: Carrier,
    link_losses: u64,
    nothing: Nothing,
    half: Shared<dyn Transmit + Send>,
}

/// A receiving half that never receives.
#[derive(Debug)]
struct Nothing;

impl Receive for Nothing {
    fn receive<'d>(&'d mut self, _: &mut Batch<'d>) {}
}

impl Device for Sending {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.nothing, &mut self.half)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        Statistics { link_losses: self.link_losses, ..Statistics::default() }
    }

    fn maintain(&mut self) -> Option<Change> {
        let is_up = self.carrier.0.load(Ordering::Relaxed);
        self.link.set_up(is_up, &mut self.link_losses)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_wire::arp::Mac;

    /// Counts frames, and accepts at most two.
    #[derive(Debug)]
    struct Counter(usize);

    impl Transmit for Counter {
        fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
            let mut lost = Lost::NONE;
            for index in 0..frames.len() {
                if self.0 == 2 {
                    lost.mark(index);
                } else {
                    self.0 += 1;
                }
            }
            lost
        }
    }

    #[test]
    fn all_send_by_one_ring_and_see_the_same_link() {
        let link = LinkInfo {
            name: "eth0".to_owned(),
            index: 1,
            mac: Mac::default(),
            mtu: 1500,
            up: true,
        };
        let (carrier, mut own) = (Carrier::default(), Shared::new(Counter(0)));
        let sharing = Sharing::new(&link, &carrier, &own);
        let mut devices = [sharing.device(), sharing.device()];
        let send = |half: &mut dyn Transmit| {
            let mut bytes = [0; 60];
            half.transmit(&mut [Frame::of(&mut bytes, 0, 60)]).count()
        };
        let [first, second] = &mut devices;
        assert_eq!([send(&mut own), send(first.split().1), send(second.split().1)], [0, 0, 1]);
        assert_eq!(own.lock().0, 2);
        carrier.set(false);
        for device in &mut devices {
            assert!(matches!(device.maintain(), Some(Change::Down)) && !device.link().up);
            assert!(device.maintain().is_none());
            assert_eq!(device.statistics().link_losses, 1);
        }
        carrier.set(true);
        assert!(matches!(devices[0].maintain(), Some(Change::Up)));
    }
}
