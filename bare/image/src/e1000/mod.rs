//! Intel's gigabit cards of the families e1000 (82540EM and similar) and e1000e (82574L).
//!
//! Each direction has one ring of legacy descriptors. Nothing is offloaded, and the card interrupts
//! only during sleep. The card's hardware address comes from its memory. The driver does not trust
//! the card's writes to descriptors: it checks lengths, and counts and drops everything except
//! single complete frames.

mod ring;
#[cfg(test)]
mod tests;

use crate::alarm::Alarm;
use crate::registers::Registers;
use crate::sharing::{Carrier, Shared, Sharing};
use natgate_io::{Change, Device, LinkInfo, Receive, Statistics, Transmit};
use natgate_wire::arp::Mac;
use ring::{Incoming, Outgoing};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// PCI number of the vendor.
pub const VENDOR: u16 = 0x8086;

/// Known cards: number and name.
pub const CARDS: [(u16, &str); 6] = [
    (0x100e, "82540EM"),
    (0x1015, "82540EM"),
    (0x100f, "82545EM"),
    (0x10d3, "82574L"),
    (0x10f6, "82574LA"),
    (0x150c, "82583V"),
];

/// Numbers of the cards of the newer family.
const LATER: [u16; 3] = [0x10d3, 0x10f6, 0x150c];

/// Length of the registers, bytes.
pub const REGISTERS_LEN: u32 = 128 << 10;

/// Largest payload of a frame, bytes.
const MTU: u32 = 1500;

/// Most reads of a register while the driver waits for a change.
const PATIENCE: u32 = 100_000;

mod register {
    pub(super) const CONTROL: u32 = 0x0000;
    pub(super) const STATUS: u32 = 0x0008;
    pub(super) const INTERRUPT_CAUSE: u32 = 0x00c0;
    pub(super) const RAISE_INTERRUPTS: u32 = 0x00c8;
    pub(super) const INTERRUPTS_ON: u32 = 0x00d0;
    pub(super) const INTERRUPTS_OFF: u32 = 0x00d8;
    pub(super) const RECEIVE_CONTROL: u32 = 0x0100;
    pub(super) const TRANSMIT_CONTROL: u32 = 0x0400;
    pub(super) const TRANSMIT_GAP: u32 = 0x0410;
    pub(super) const RECEIVE: u32 = 0x2800;
    pub(super) const TRANSMIT: u32 = 0x3800;
    pub(super) const TRANSMIT_DESCRIPTORS: u32 = 0x3828;
    pub(super) const MISSED: u32 = 0x4010;
    pub(super) const RECEIVE_CHECKSUMS: u32 = 0x5000;
    pub(super) const MULTICAST: u32 = 0x5200;
    pub(super) const ADDRESS_LOW: u32 = 0x5400;
    pub(super) const ADDRESS_HIGH: u32 = 0x5404;
    /// Registers of one direction's ring.
    pub(super) const RING_LOW: u32 = 0x00;
    pub(super) const RING_HIGH: u32 = 0x04;
    pub(super) const RING_LEN: u32 = 0x08;
    pub(super) const HEAD: u32 = 0x10;
    pub(super) const TAIL: u32 = 0x18;
}

/// Reason why a card cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The card does not complete its reset.
    #[error("the card does not come back from a reset; is it seated well?")]
    Reset,
    /// The card has no hardware address.
    #[error("the card's memory holds no hardware address; use another card")]
    NoAddress,
}

/// A card with its driver.
#[derive(Debug)]
pub struct E1000<R> {
    registers: R,
    link: LinkInfo,
    incoming: Incoming<R>,
    outgoing: Shared<Outgoing<R>>,
    carrier: Carrier,
    missed: u64,
    link_losses: u64,
}

/// Name of the card with this number; `None` if the card is unknown.
pub fn name(device: u16) -> Option<&'static str> {
    CARDS.iter().find(|(number, _)| *number == device).map(|(_, name)| *name)
}

impl<R: Registers + 'static> E1000<R> {
    /// Starts a card. `device` is its PCI number, and `name` is its name in the configuration.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(device: u16, mut registers: R, name: &str) -> Result<Self, Error> {
        reset(&mut registers)?;
        let mac = read_mac(&registers)?;
        for place in 0..128 {
            registers.write32(register::MULTICAST + 4 * place, 0);
        }
        let incoming = Incoming::start(registers.clone());
        let outgoing = Outgoing::start(registers.clone(), LATER.contains(&device));
        let (outgoing, carrier) = (Shared::new(outgoing), Carrier::default());
        let up = is_up(&registers);
        let link = LinkInfo { name: name.to_owned(), index: device.into(), mac, mtu: MTU, up };
        Ok(Self { registers, link, incoming, outgoing, carrier, missed: 0, link_losses: 0 })
    }

    /// Part of the card for further workers.
    pub fn sharing(&self) -> Sharing {
        Sharing::new(&self.link, &self.carrier, &self.outgoing)
    }

    /// Raises the card's interrupt wire, like a frame, to find its input.
    pub fn ring(&mut self) {
        self.incoming.interrupt(true);
        self.registers.write32(register::RAISE_INTERRUPTS, ring::RECEIVED);
    }

    /// Switches interrupts off, or lets `alarm` control them.
    pub fn obey(&mut self, alarm: Option<Alarm>) {
        self.incoming.interrupt(false);
        self.incoming.alarm = alarm;
    }
}

/// Resets the card. Then the card raises the link.
fn reset<R: Registers>(registers: &mut R) -> Result<(), Error> {
    const RESET: u32 = 1 << 26;
    /// Link reset, forced loss of signal and reset of the transceiver.
    const LINK_RESET: u32 = 1 << 3 | 1 << 7 | 1 << 31;
    const SET_LINK_UP: u32 = 1 << 6;
    registers.write32(register::INTERRUPTS_OFF, u32::MAX);
    let control = registers.read32(register::CONTROL);
    registers.write32(register::CONTROL, control | RESET);
    // All ones: no card responds.
    let is_reset = |control: u32| control & RESET == 0 || control == u32::MAX;
    (0..PATIENCE)
        .any(|_| is_reset(registers.read32(register::CONTROL)))
        .then_some(())
        .ok_or(Error::Reset)?;
    let control = registers.read32(register::CONTROL);
    if control == u32::MAX {
        return Err(Error::Reset);
    }
    registers.write32(register::INTERRUPTS_OFF, u32::MAX);
    registers.read32(register::INTERRUPT_CAUSE);
    registers.write32(register::CONTROL, control & !LINK_RESET | SET_LINK_UP);
    Ok(())
}

/// Hardware address that the card has read from its memory.
fn read_mac<R: Registers>(registers: &R) -> Result<Mac, Error> {
    const VALID: u32 = 1 << 31;
    let (low, high) =
        (registers.read32(register::ADDRESS_LOW), registers.read32(register::ADDRESS_HIGH));
    let ([a, b, c, d], [e, f, ..]) = (low.to_le_bytes(), high.to_le_bytes());
    let mac = Mac([a, b, c, d, e, f]);
    (high & VALID != 0 && mac.is_station()).then_some(mac).ok_or(Error::NoAddress)
}

fn is_up<R: Registers>(registers: &R) -> bool {
    const LINK_UP: u32 = 1 << 1;
    let status = registers.read32(register::STATUS);
    status != u32::MAX && status & LINK_UP != 0
}

impl<R: Registers + 'static> Device for E1000<R> {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.incoming, &mut self.outgoing)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        // A read clears the register.
        self.missed += u64::from(self.registers.read32(register::MISSED));
        let Outgoing { sent: transmitted, full: transmit_full, .. } = *self.outgoing.lock();
        Statistics {
            received: self.incoming.received,
            receive_overrun: self.missed,
            receive_oversize: self.incoming.odd,
            transmitted,
            transmit_full,
            link_losses: self.link_losses,
            ..Statistics::default()
        }
    }

    fn maintain(&mut self) -> Option<Change> {
        let up = is_up(&self.registers);
        self.carrier.set(up);
        self.link.set_up(up, &mut self.link_losses)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}
