//! Discovery, negotiation and setup of a device: virtio over PCI (virtio 1.2 section 4.1).

use super::{Bell, Error, Queue};
use crate::pci::{self, ConfigSpace};
use crate::registers::Registers;
use natgate_wire::arp::Mac;

/// Numbers of the queues.
pub(super) const RECEIVE: u16 = 0;
pub(super) const TRANSMIT: u16 = 1;

/// Most entries of a queue.
const MOST: u16 = 256;
/// Fewest useful entries: one batch.
const FEWEST: u16 = 64;

/// Most reads of a register while the driver waits for a change.
const PATIENCE: u32 = 100_000;

/// PCI's number for vendor-specific capabilities, and their kinds.
const OF_VENDOR: u8 = 9;
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const DEVICE: u8 = 4;

/// Offsets of the common registers.
mod common {
    pub(super) const OFFERED_SELECT: u32 = 0;
    pub(super) const OFFERED: u32 = 4;
    pub(super) const ACCEPTED_SELECT: u32 = 8;
    pub(super) const ACCEPTED: u32 = 12;
    pub(super) const STATUS: u32 = 20;
    pub(super) const QUEUE_SELECT: u32 = 22;
    pub(super) const QUEUE_SIZE: u32 = 24;
    pub(super) const QUEUE_MESSAGE: u32 = 26;
    pub(super) const QUEUE_ENABLE: u32 = 28;
    pub(super) const QUEUE_NOTIFY: u32 = 30;
    pub(super) const QUEUE_ADDRESSES: u32 = 32;
    pub(super) const LEN: u32 = 56;
}

/// Bits of the device's status.
mod status {
    pub(super) const ACKNOWLEDGED: u8 = 1;
    pub(super) const DRIVEN: u8 = 2;
    pub(super) const READY: u8 = 4;
    pub(super) const FEATURES: u8 = 8;
}

/// Feature bits of a device: of the first 32, and of the second 32.
mod feature {
    pub(super) const MAC: u32 = 1 << 5;
    pub(super) const STATUS: u32 = 1 << 16;
    pub(super) const VERSION_1: u32 = 1 << 0;
}

/// Offsets of a network card's registers.
const MAC: u32 = 0;
const LINK: u32 = 6;
const LINK_UP: u16 = 1;

/// Place of a group of registers: the number of the memory range, and offset and length in it,
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the memory range.
    pub window: u8,
    /// Offset in the range.
    pub at: u32,
    /// Length, bytes.
    pub len: u32,
}

/// A device's groups of registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places<T> {
    /// Registers of all kinds of devices.
    pub common: T,
    /// Registers for announcements.
    pub notify: T,
    /// Bytes of these registers, and bytes between two queues' registers.
    pub notify_sizes: [u32; 2],
    /// Registers of network cards.
    pub device: T,
}

impl<T> Places<T> {
    /// Converts each group.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn try_map<U, E>(self, change: impl Fn(T) -> Result<U, E>) -> Result<Places<U>, E> {
        let Self { common, notify, notify_sizes, device } = self;
        let (common, notify, device) = (change(common)?, change(notify)?, change(device)?);
        Ok(Places { common, notify, notify_sizes, device })
    }
}

/// Finds a device's groups of registers.
///
/// # Errors
/// [`Error::NotModern`] if one is missing or too short.
pub fn places(space: &mut dyn ConfigSpace, function: pci::Place) -> Result<Places<Place>, Error> {
    let (mut common, mut notify, mut device) = (None, None, None);
    for at in pci::capabilities(space, function, OF_VENDOR) {
        // A capability has 16 or 20 bytes, within the first 256.
        if at > 0xec {
            continue;
        }
        let kind = (space.read(function, at) >> 24) as u8;
        let [window, start, len, further] =
            [4, 8, 12, 16].map(|off| space.read(function, at + off));
        let place = Place { window: window as u8, at: start, len };
        match kind {
            COMMON if len >= common::LEN => common = common.or(Some(place)),
            NOTIFY if len >= 2 => notify = notify.or(Some((place, further))),
            DEVICE if len > LINK + 1 => device = device.or(Some(place)),
            _ => {}
        }
    }
    match (common, notify, device) {
        (Some(common), Some((notify, distance)), Some(device)) => {
            Ok(Places { common, notify, notify_sizes: [notify.len, distance], device })
        }
        _ => Err(Error::NotModern),
    }
}

/// Registers for the setup of a device.
#[derive(Debug)]
pub(super) struct Transport<R> {
    places: Places<R>,
    /// True if the device reports the state of its link.
    tells_link: bool,
}

impl<R: Registers> Transport<R> {
    /// Resets the device and negotiates its features.
    pub(super) fn start(mut places: Places<R>) -> Result<Self, Error> {
        use status::{ACKNOWLEDGED, DRIVEN, FEATURES};
        let common = &mut places.common;
        common.write8(common::STATUS, 0);
        (0..PATIENCE)
            .any(|_| common.read8(common::STATUS) == 0)
            .then_some(())
            .ok_or(Error::Reset)?;
        common.write8(common::STATUS, ACKNOWLEDGED | DRIVEN);
        let [low, high] = [0, 1].map(|half| {
            common.write32(common::OFFERED_SELECT, half);
            common.read32(common::OFFERED)
        });
        if high & feature::VERSION_1 == 0 {
            return Err(Error::NotModern);
        }
        if low & feature::MAC == 0 {
            return Err(Error::Lacks("a hardware address"));
        }
        let wanted = low & (feature::MAC | feature::STATUS);
        for (half, accepted) in [(0, wanted), (1, feature::VERSION_1)] {
            common.write32(common::ACCEPTED_SELECT, half);
            common.write32(common::ACCEPTED, accepted);
        }
        common.write8(common::STATUS, ACKNOWLEDGED | DRIVEN | FEATURES);
        if common.read8(common::STATUS) & FEATURES == 0 {
            return Err(Error::Refuses);
        }
        Ok(Self { places, tells_link: low & feature::STATUS != 0 })
    }

    /// Chooses the number of entries of a queue.
    pub(super) fn queue(&mut self, number: u16) -> Result<u16, Error> {
        let common = &mut self.places.common;
        common.write16(common::QUEUE_SELECT, number);
        let most = common.read16(common::QUEUE_SIZE).min(MOST);
        if most < FEWEST {
            return Err(Error::Lacks("queues of 64 entries"));
        }
        // Largest power of two up to the limit.
        Ok(1 << most.ilog2())
    }

    /// Writes the addresses of a queue to the device; returns the register for its announcements.
    pub(super) fn connect(&mut self, number: u16, queue: &Queue) -> Result<Bell<R>, Error> {
        let common = &mut self.places.common;
        common.write16(common::QUEUE_SELECT, number);
        common.write16(common::QUEUE_SIZE, queue.len() as u16);
        for (place, address) in (0..).zip(queue.addresses()) {
            let at = common::QUEUE_ADDRESSES + 8 * place;
            common.write32(at, address as u32);
            common.write32(at + 4, (address >> 32) as u32);
        }
        let offset = u32::from(common.read16(common::QUEUE_NOTIFY));
        common.write16(common::QUEUE_ENABLE, 1);
        let [len, distance] = self.places.notify_sizes;
        let at = offset.checked_mul(distance).filter(|at| at.is_multiple_of(2));
        let at = at.filter(|at| *at <= len - 2).ok_or(Error::NotModern)?;
        Ok(Bell { registers: self.places.notify.clone(), at, queue: number })
    }

    /// Connects a queue's interrupts with the card's first message; returns false if the device
    /// refuses.
    pub(super) fn arrange_interrupts(&mut self, number: u16) -> bool {
        const FIRST: u16 = 0;
        let common = &mut self.places.common;
        common.write16(common::QUEUE_SELECT, number);
        common.write16(common::QUEUE_MESSAGE, FIRST);
        common.read16(common::QUEUE_MESSAGE) == FIRST
    }

    /// Starts the device.
    pub(super) fn begin(&mut self) {
        use status::{ACKNOWLEDGED, DRIVEN, FEATURES, READY};
        self.places.common.write8(common::STATUS, ACKNOWLEDGED | DRIVEN | FEATURES | READY);
    }

    /// Hardware address of the card.
    pub(super) fn mac(&self) -> Mac {
        let byte = |place: usize| self.places.device.read8(MAC + place as u32);
        Mac(std::array::from_fn(byte))
    }

    /// Returns true if the link is up, or if the device does not report the link.
    pub(super) fn is_up(&self) -> bool {
        !self.tells_link || self.places.device.read16(LINK) & LINK_UP != 0
    }
}
