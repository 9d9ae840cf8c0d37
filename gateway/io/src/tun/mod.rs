//! A layer 3 device of the kernel (TUN): packets that the kernel routes into it arrive here as
//! frames.
//!
//! It serves containers and tests: no second machine is needed, because the kernel itself is at the
//! other end. The kernel uses no Ethernet there, and gateways use nothing else. So the device
//! presents a link with one other station on it, [`STATION`]: received packets get a header with
//! that source, and sent frames lose their header. The device answers ARP and neighbor
//! solicitations for that station, whatever address is asked for, except for the gateway's own.
//!
//! The device is created if it does not exist, and then goes with the process. Addresses, routes
//! and the link state are left to the configuration of the kernel.

mod receive;
mod socket;
mod transmit;

use crate::monitor::{Look, Monitor};
use crate::{Change, Device, Error, LinkInfo, Receive, Statistics, Transmit};
use arrayvec::ArrayVec;
use natgate_wire::arp::Mac;
use natgate_wire::link::ETHERNET_LEN;
use natgate_wire::nd;
use receive::Receiver;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transmit::Sender;

/// Hardware address of the gateway on every such link.
pub const GATEWAY: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Hardware address of the other station, the kernel.
pub const STATION: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// A frame that the device itself has for the gateway: an answer of the station.
type Answer = ArrayVec<u8, LONGEST_ANSWER>;

/// Length of the longest answer, a neighbor advertisement, bytes.
const LONGEST_ANSWER: usize = ETHERNET_LEN + nd::PACKET_LEN;

/// Most answers that wait to be received; further requests are repeated by their sender.
const ANSWERS: usize = 64;

/// A TUN device.
#[derive(Debug)]
pub struct TunDevice {
    link: LinkInfo,
    monitor: Monitor,
    /// True if this is one of several queues.
    several: bool,
    /// True if the device was created here.
    made: bool,
    receiver: ReceiveHalf,
    transmitter: TransmitHalf,
    file: Option<Arc<OwnedFd>>,
    answers: Answers,
    link_losses: u64,
}

/// Frames that the device itself has for the gateway.
#[derive(Debug)]
struct Answers {
    frames: Arc<Mutex<ArrayVec<Answer, ANSWERS>>>,
    /// Always readable: while such frames wait, a reader does not sleep.
    ready: Arc<OwnedFd>,
}

impl Answers {
    fn waiting(&self) -> MutexGuard<'_, ArrayVec<Answer, ANSWERS>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Answers {
    fn clone(&self) -> Self {
        Self { frames: Arc::clone(&self.frames), ready: Arc::clone(&self.ready) }
    }
}

impl TunDevice {
    /// Opens the device of this name; creates it if it does not exist. It may be down.
    ///
    /// # Errors
    /// [`Error`] if the device is of another kind or in use, or the system does not permit it.
    pub fn open(name: &str) -> Result<Self, Error> {
        Self::open_queue(name, false)
    }

    /// Opens the device for `count` workers, one queue for each. The kernel keeps a flow on the
    /// queue that last sent packets of it, and distributes new flows.
    ///
    /// # Errors
    /// The errors of [`Self::open`]; also if the device was created without several queues.
    pub fn open_group(name: &str, count: usize) -> Result<Vec<Self>, Error> {
        (0..count).map(|_| Self::open_queue(name, count > 1)).collect()
    }

    fn open_queue(name: &str, several: bool) -> Result<Self, Error> {
        let ready = socket::always_readable(name)?;
        let answers = Answers { frames: Arc::default(), ready: Arc::new(ready) };
        let link = LinkInfo { name: name.to_owned(), index: 0, mac: GATEWAY, mtu: 0, up: false };
        let mut device = Self {
            link,
            monitor: Monitor::any(name)?,
            several,
            made: false,
            receiver: ReceiveHalf { open: None, answers: answers.clone(), counts: <_>::default() },
            transmitter: TransmitHalf {
                open: None,
                answers: answers.clone(),
                counts: <_>::default(),
            },
            file: None,
            answers,
            link_losses: 0,
        };
        device.attach()?;
        Ok(device)
    }

    /// True if the device did not exist and was created.
    pub fn is_made(&self) -> bool {
        self.made
    }

    fn attach(&mut self) -> Result<(), Error> {
        let made = match self.monitor.read() {
            Ok(_) => false,
            Err(Error::NoDevice(_)) => true,
            Err(error) => return Err(error),
        };
        let file = Arc::new(socket::open(&self.link.name, self.several)?);
        self.link = with_address(self.monitor.read()?);
        self.made = made;
        let mtu = self.link.mtu as usize;
        self.receiver.open = Some(Receiver::new(Arc::clone(&file), mtu));
        self.transmitter.open = Some(Sender { file: Arc::clone(&file), mtu });
        self.file = Some(file);
        Ok(())
    }

    fn detach(&mut self) -> Change {
        (self.file, self.receiver.open, self.transmitter.open) = (None, None, None);
        self.answers.waiting().clear();
        self.link_losses += 1;
        self.link.up = false;
        Change::Gone
    }

    fn refresh(&mut self, now: LinkInfo) -> Option<Change> {
        let mtu_before = self.link.mtu;
        let change = self.link.renew(now, &mut self.link_losses);
        if mtu_before != self.link.mtu
            && let (Some(file), Some(sender)) = (&self.file, &mut self.transmitter.open)
        {
            let mtu = self.link.mtu as usize;
            self.receiver.open = Some(Receiver::new(Arc::clone(file), mtu));
            sender.mtu = mtu;
        }
        change
    }
}

/// Adds the hardware address, which the device itself lacks.
fn with_address(link: LinkInfo) -> LinkInfo {
    LinkInfo { mac: GATEWAY, ..link }
}

impl Device for TunDevice {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.receiver, &mut self.transmitter)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        let (received, sent) = (&self.receiver.counts, &self.transmitter.counts);
        Statistics {
            received: received.received,
            receive_oversize: received.oversize,
            transmitted: sent.sent,
            transmit_full: sent.full,
            transmit_refused: sent.refused,
            link_losses: self.link_losses,
            // The kernel's device counts the packets that its queue drops.
            ..Statistics::default()
        }
    }

    fn maintain(&mut self) -> Option<Change> {
        let Some(file) = &self.file else {
            let opened = self.attach();
            return self.monitor.reopened(opened);
        };
        let attached = socket::is_attached(file);
        match self.monitor.look() {
            Look::There(now) if attached && now.index == self.link.index => {
                self.refresh(with_address(now))
            }
            Look::Unknown(change) if attached => change,
            _ => Some(self.detach()),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        let file = self.file.as_ref()?;
        let waits = self.answers.waiting().is_empty();
        Some(if waits { file.as_fd() } else { self.answers.ready.as_fd() })
    }
}

#[derive(Debug)]
struct ReceiveHalf {
    open: Option<Receiver>,
    answers: Answers,
    counts: receive::Counts,
}

impl Receive for ReceiveHalf {
    fn receive<'d>(&'d mut self, batch: &mut crate::Batch<'d>) {
        if let Some(receiver) = &mut self.open {
            receiver.receive(&mut self.answers.waiting(), batch, &mut self.counts);
        }
    }
}

#[derive(Debug)]
struct TransmitHalf {
    open: Option<Sender>,
    answers: Answers,
    counts: transmit::Counts,
}

impl Transmit for TransmitHalf {
    fn transmit(&mut self, frames: &mut [crate::Frame<'_>]) -> crate::Lost {
        match &self.open {
            Some(sender) => sender.transmit(frames, &self.answers, &mut self.counts),
            None => {
                self.counts.refused += frames.len() as u64;
                crate::Lost::all(frames.len())
            }
        }
    }
}
