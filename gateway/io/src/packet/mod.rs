//! Linux packet sockets (AF_PACKET): they work with every Ethernet device and need no driver
//! support.
//!
//! Receiving uses a ring that is shared with the kernel, in place: TPACKET_V2, one slot a frame, so
//! that no frame waits for a block to fill; or TPACKET_V3, if throughput matters more. Sending uses
//! another ring (TX_RING), or `sendmmsg`. There are two sockets, so that the halves are
//! independent. On virtual devices the kernel leaves some work, which is done here: checksums that
//! the sender meant for its hardware, and VLAN tags that were removed. A tag of VLAN 0, which
//! carries only a priority, is left out; any other tag is put back, so that the frame is as it was
//! on the wire. Merged frames are cut into segments.
//!
//! The kernel sees every frame, too: a device used here should have no address of the kernel, or
//! both answer.

mod blocks;
mod config;
mod finish;
mod group;
mod groups;
mod outgoing;
mod ring;
mod segment;
mod sending;
mod slot;
mod slots;
mod socket;
mod transmit;

pub use crate::interface::{Offload, kernel_address, kernel_gateway};
pub use config::{Config, Mode, Sending};
pub use groups::AllGroups;

use crate::monitor::{Look, Monitor};
use crate::{Change, Device, Error, LinkInfo, Receive, Statistics, Steering, Transmit, interface};
use group::{Group, Seat};
use outgoing::Outgoing;
use ring::Ring;
pub use sending::SendingDevice;
use std::os::fd::BorrowedFd;
pub(crate) use transmit::Outlet;
use transmit::Sender;

/// A device that is used through packet sockets.
#[derive(Debug)]
pub struct PacketDevice {
    link: LinkInfo,
    monitor: Monitor,
    config: Config,
    /// Place in a group, if several devices share the link.
    seat: Option<Seat>,
    receiver: Receiver,
    transmitter: Transmitter,
    overrun: u64,
    link_losses: u64,
}

impl PacketDevice {
    /// Opens a device; it may be down.
    ///
    /// # Errors
    /// [`Error`] if there is no such device, it is not Ethernet, or the system does not permit it.
    pub fn open(name: &str, config: Config) -> Result<Self, Error> {
        Self::open_seat(name, None, config)
    }

    /// Opens a device for `count` workers, one device for each worker. Each frame comes to one of
    /// them, by the steering, or without one by the kernel's hash of flows. The devices form a
    /// group: if one is closed, its frames are scattered over the others.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_group(
        name: &str,
        count: usize,
        steering: Option<&Steering>,
        config: &Config,
    ) -> Result<Vec<Self>, Error> {
        if count == 1 {
            return Ok(vec![Self::open(name, config.clone())?]);
        }
        let seats = Group::seats(count, steering);
        seats.map(|seat| Self::open_seat(name, Some(seat), config.clone())).collect()
    }

    /// Checks that there is an Ethernet device of this name. Opens no packet socket.
    ///
    /// # Errors
    /// [`Error`] of [`Self::open`], as far as it is known beforehand.
    pub fn find(name: &str) -> Result<(), Error> {
        Monitor::ethernet(name)?.read().map(drop)
    }

    fn open_seat(name: &str, seat: Option<Seat>, config: Config) -> Result<Self, Error> {
        let monitor = Monitor::ethernet(name)?;
        let link = monitor.read()?;
        let mut device = Self {
            link,
            monitor,
            config,
            seat,
            receiver: Receiver::default(),
            transmitter: Transmitter::default(),
            overrun: 0,
            link_losses: 0,
        };
        device.attach()?;
        Ok(device)
    }

    /// Switches off offloads that merge received frames beyond the MTU (generic and large receive
    /// offload). Returns the offloads that were on.
    ///
    /// # Errors
    /// [`Error`] if an offload is on and cannot be switched off.
    pub fn stop_merging(&self) -> Result<Vec<Offload>, Error> {
        interface::stop_merging(&self.link.name)
    }

    /// Opens the sockets; returns `false` if that is not possible yet.
    fn attach(&mut self) -> Result<bool, Error> {
        let sender = Way::open(&self.link, &self.config)?;
        let ring = match &mut self.seat {
            Some(seat) => seat.take(&self.link, &self.config)?,
            None => Some(Ring::open(&self.link, &self.config)?),
        };
        let Some(ring) = ring else { return Ok(false) };
        self.receiver.ring = Some(ring);
        self.transmitter.set_sender(sender, self.link.mtu);
        Ok(true)
    }

    fn detach(&mut self, lost: bool) -> Change {
        self.collect_overruns();
        self.receiver.ring = None;
        self.transmitter.sender = None;
        self.seat.iter_mut().for_each(Seat::leave);
        if lost || self.link.up {
            self.link_losses += 1;
        }
        self.link.up = false;
        Change::Gone
    }

    fn reattach(&mut self) -> Option<Change> {
        let attached = self.monitor.back()?.and_then(|link| {
            self.link = link;
            self.attach()
        });
        if !matches!(attached, Ok(true)) {
            self.link.up = false;
        }
        match attached {
            Ok(false) => None,
            opened => self.monitor.reopened(opened.map(drop)),
        }
    }

    fn collect_overruns(&mut self) {
        self.overrun += self.receiver.ring.as_ref().map_or(0, Ring::take_overruns);
    }

    fn refresh(&mut self, now: LinkInfo, flapped: bool) -> Option<Change> {
        let before = std::mem::replace(&mut self.link, now);
        self.transmitter.follow(&self.link, &self.config);
        // A pending error reports a loss of the link that was not seen before.
        if flapped || before.up && !self.link.up {
            self.link_losses += 1;
        }
        match (before.up, self.link.up) {
            (true, false) => Some(Change::Down),
            (false, true) => Some(Change::Up),
            (true, true) if flapped => Some(Change::Up),
            _ => (before != self.link).then_some(Change::Altered),
        }
    }
}

impl Device for PacketDevice {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.receiver, &mut self.transmitter)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        self.collect_overruns();
        let (receiver, transmitter) = (&self.receiver, &self.transmitter);
        Statistics {
            received: receiver.counts.received,
            receive_oversize: receiver.counts.oversize,
            receive_unfinished: receiver.counts.unfinished,
            transmitted: transmitter.counts.sent,
            transmit_full: transmitter.counts.full,
            transmit_refused: transmitter.counts.refused,
            receive_overrun: self.overrun,
            receive_no_buffer: 0,
            link_losses: self.link_losses,
        }
    }

    fn maintain(&mut self) -> Option<Change> {
        let Some(ring) = &self.receiver.ring else {
            return self.reattach();
        };
        let flapped = ring.take_error();
        let recalled = self.seat.as_ref().is_some_and(Seat::recalled);
        let is_ours = ring.attached() && !recalled;
        match self.monitor.look() {
            Look::There(now) if now.index == self.link.index && is_ours => {
                self.refresh(now, flapped)
            }
            Look::Unknown(change) if is_ours => {
                self.link_losses += u64::from(flapped);
                change
            }
            _ => Some(self.detach(flapped)),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.receiver.ring.as_ref().map(Ring::descriptor)
    }
}

#[derive(Debug, Default)]
struct Receiver {
    ring: Option<Ring>,
    counts: ring::Counts,
}

impl Receive for Receiver {
    fn receive<'d>(&'d mut self, batch: &mut crate::Batch<'d>) {
        if let Some(ring) = &mut self.ring {
            ring.receive(batch, &mut self.counts);
        }
    }
}

/// Sender of a device that exists.
#[derive(Debug)]
enum Way {
    Calls(Sender),
    Ring(Outgoing),
}

impl Way {
    fn open(link: &LinkInfo, config: &Config) -> Result<Self, Error> {
        Ok(match config.sending {
            Sending::Calls => Self::Calls(Sender::open(link, config)?),
            Sending::Ring => Self::Ring(Outgoing::open(link, config)?),
        })
    }
}

#[derive(Debug, Default)]
struct Transmitter {
    sender: Option<Way>,
    /// MTU of the link for which the sender was opened, bytes.
    mtu: u32,
    counts: transmit::Counts,
}

impl Transmitter {
    fn set_sender(&mut self, sender: Way, mtu: u32) {
        (self.sender, self.mtu) = (Some(sender), mtu);
    }

    /// Reopens the sender if the link's MTU has changed. If that fails, the old sender stays and
    /// the next call tries again.
    fn follow(&mut self, link: &LinkInfo, config: &Config) {
        if self.mtu != link.mtu
            && let Ok(sender) = Way::open(link, config)
        {
            self.set_sender(sender, link.mtu);
        }
    }
}

impl Transmit for Transmitter {
    fn transmit(&mut self, frames: &mut [crate::Frame<'_>]) -> crate::Lost {
        match &mut self.sender {
            Some(Way::Calls(sender)) => sender.transmit(frames, &mut self.counts),
            Some(Way::Ring(outgoing)) => outgoing.transmit(frames, &mut self.counts),
            None => {
                self.counts.refused += frames.len() as u64;
                crate::Lost::all(frames.len())
            }
        }
    }
}
