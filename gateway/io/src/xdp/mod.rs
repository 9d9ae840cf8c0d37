//! AF_XDP sockets: the kernel hands frames over before its network stack processes them.
//!
//! An XDP program sends the frames of the interface, ARP too, to sockets, one for each queue. The
//! kernel's own network stack gets only the frames that a [`KernelShare`] names. The driver's own
//! mode is tried first, then the generic one; and zero copy, then copying. [`XdpDevice::mode`]
//! tells the result. Frames lie in an area of memory that both devices of a gateway can share
//! ([`XdpDevice::open_pair`]): a frame that came in by one is then sent by the other without a
//! copy.
//!
//! The kernel tells nothing beside the frame. A checksum that the sender left to its hardware, as
//! hosts at the other end of a veth do, stays unfinished, and a VLAN tag that the hardware removed
//! is lost. So senders on the same machine must finish their checksums (`ethtool -K DEVICE tx
//! off`). Opening a device makes it leave the tags in.

mod area;
mod assembly;
mod config;
mod part;
mod program;
mod receive;
mod ring;
mod socket;
mod transmit;

pub use crate::bpf::Mode;
pub use assembly::{KernelShare, MOST_SHARED};
pub use config::Config;
pub use program::Hook;

use crate::monitor::{Look, Monitor};
use crate::packet::Outlet;
use crate::{Change, Device, Error, LinkInfo, Offload, Receive, Statistics, Transmit, interface};
use area::{Area, LARGEST_MTU};
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN};
use part::{Part, Sending};
use program::{Attachment, MOST_QUEUES};
use receive::{Queue, Receiver};
use ring::{Consumer, Producer, Shared};
use socket::Overruns;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use transmit::Sender;

/// Memory for frames that several devices of one thread share.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Area>);

/// Result of [`XdpDevice::mode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Place where the program runs.
    pub mode: Mode,
    /// Reason why the program does not run in the driver.
    pub obstacle: Option<String>,
    /// True if the driver writes frames into the area itself.
    pub zero_copy: bool,
    /// Number of queues that are served. Without any the device receives nothing, and sends by a
    /// packet socket.
    pub queues: usize,
    /// True if the hardware removes VLAN tags and cannot be told not to: frames of every VLAN look
    /// alike then.
    pub loses_vlan_tags: bool,
}

/// A device that is used through AF_XDP sockets.
#[derive(Debug)]
pub struct XdpDevice {
    link: LinkInfo,
    monitor: Monitor,
    config: Config,
    hook: Hook,
    /// Queues to serve.
    part: Part,
    memory: Memory,
    attachment: Option<Arc<Attachment>>,
    loses_vlan_tags: bool,
    receiver: ReceiveHalf,
    transmitter: TransmitHalf,
    readiness: Option<Readiness>,
    /// Frames that were lost at sockets which have been closed.
    closed: Overruns,
    link_losses: u64,
}

/// Descriptor that becomes readable when frames wait: the only socket, or one that watches all
/// sockets.
#[derive(Debug)]
enum Readiness {
    One(Arc<OwnedFd>),
    Several(OwnedFd),
}

impl Memory {
    /// Allocates enough memory for these devices.
    ///
    /// # Errors
    /// [`Error`] if one of them does not exist or its MTU is too large, or there is not enough
    /// memory.
    pub fn new(devices: &[&str], config: &Config) -> Result<Self, Error> {
        Self::of(devices, &Part::All, config)
    }

    /// Allocates one memory for each of `count` workers, enough for the worker's part of each
    /// device.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn for_workers(
        devices: &[&str],
        count: usize,
        config: &Config,
    ) -> Result<Vec<Self>, Error> {
        let part = |number| Part::Worker { number, count };
        (0..count).map(|number| Self::of(devices, &part(number), config)).collect()
    }

    fn of(devices: &[&str], part: &Part, config: &Config) -> Result<Self, Error> {
        let (mut count, mut mtu) = (0, 0);
        for name in devices {
            let link = interface::read(name)?;
            if link.mtu > LARGEST_MTU {
                return Err(too_large(&link));
            }
            mtu = mtu.max(link.mtu);
            let queues = interface::receive_queues(name)?.min(MOST_QUEUES);
            count += config.frames_of(part.most(queues));
        }
        let area = Area::new(count, mtu, devices.first().unwrap_or(&""))?;
        Ok(Self(Arc::new(area)))
    }
}

fn too_large(link: &LinkInfo) -> Error {
    Error::MtuTooLarge { device: link.name.clone(), mtu: link.mtu, most: LARGEST_MTU }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = if self.zero_copy { "zero copy" } else { "copying" };
        let s = if self.queues == 1 { "" } else { "s" };
        write!(f, "AF_XDP in {} mode, {copy}, {} queue{s}", self.mode, self.queues)?;
        if let Some(obstacle) = &self.obstacle {
            write!(f, " (not native: {obstacle})")?;
        }
        f.write_str(if self.loses_vlan_tags { ", VLAN tags are lost" } else { "" })
    }
}

impl XdpDevice {
    /// Opens a device with all its queues, with memory of its own; it may be down.
    ///
    /// # Errors
    /// [`Error`] if there is no such device, it is not Ethernet, its MTU is too large, another
    /// program has it, or the system does not permit it.
    pub fn open(name: &str, config: Config) -> Result<Self, Error> {
        let memory = Memory::new(&[name], &config)?;
        Self::open_queues(&Hook::new(name), None, &memory, config)
    }

    /// Opens an interface for several workers, one device for each, with the memory of the same
    /// index ([`Memory::for_workers`]). The queues are divided evenly. If there are fewer queues
    /// than workers, a worker without a queue only sends.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_group(
        hook: &Hook,
        memories: &[Memory],
        config: &Config,
    ) -> Result<Vec<Self>, Error> {
        let count = memories.len();
        let open = |(number, memory)| {
            let part = Part::Worker { number, count };
            Self::open_part(hook, part, memory, config.clone())
        };
        memories.iter().enumerate().map(open).collect()
    }

    /// Number of queues that the device receives from now.
    pub fn queues(&self) -> usize {
        self.receiver.open.as_ref().map_or(0, |receiver| receiver.queues.len())
    }

    /// Opens two devices that share their memory, as those of a gateway should.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_pair(names: [&str; 2], config: &Config) -> Result<[Self; 2], Error> {
        let memory = Memory::new(&names, config)?;
        let open = |name| Self::open_queues(&Hook::new(name), None, &memory, config.clone());
        Ok([open(names[0])?, open(names[1])?])
    }

    /// Opens some queues of an interface, or all. Several devices may each serve a part, with one
    /// [`Hook`] among them. Frames are sent by the first of the queues.
    ///
    /// # Errors
    /// The errors of [`Self::open`]; also if the interface has fewer queues.
    pub fn open_queues(
        hook: &Hook,
        queues: Option<Range<u32>>,
        memory: &Memory,
        config: Config,
    ) -> Result<Self, Error> {
        Self::open_part(hook, queues.map_or(Part::All, Part::Range), memory, config)
    }

    fn open_part(hook: &Hook, part: Part, memory: &Memory, config: Config) -> Result<Self, Error> {
        let monitor = Monitor::ethernet(hook.name())?;
        let link = monitor.read()?;
        let mut device = Self {
            link,
            monitor,
            config,
            hook: hook.clone(),
            part,
            memory: memory.clone(),
            attachment: None,
            loses_vlan_tags: false,
            receiver: ReceiveHalf::default(),
            transmitter: TransmitHalf::default(),
            readiness: None,
            closed: Overruns::default(),
            link_losses: 0,
        };
        device.attach()?;
        Ok(device)
    }

    /// Mode of the device; `None` while the device is gone.
    pub fn mode(&self) -> Option<Description> {
        let (attachment, receiver) = (self.attachment.as_ref()?, self.receiver.open.as_ref()?);
        Some(Description {
            mode: attachment.mode,
            obstacle: attachment.obstacle.clone(),
            zero_copy: self.transmitter.open.as_ref()?.zero_copy(),
            queues: receiver.queues.len(),
            loses_vlan_tags: self.loses_vlan_tags,
        })
    }

    /// Number of frames that were sent without a copy.
    pub fn handed_over(&self) -> u64 {
        self.transmitter.counts.handed_over
    }

    /// True if the device is a cable between parts of this machine (veth). Its senders leave
    /// checksums unfinished unless they are told not to.
    pub fn is_virtual(&self) -> bool {
        interface::is_veth(&self.link.name)
    }

    /// Switches off offloads that merge received frames beyond the MTU, like
    /// [`crate::packet::PacketDevice::stop_merging`].
    ///
    /// # Errors
    /// [`Error`] if an offload is on and cannot be switched off.
    pub fn stop_merging(&self) -> Result<Vec<Offload>, Error> {
        interface::stop_merging(&self.link.name)
    }

    fn attach(&mut self) -> Result<(), Error> {
        let (link, area) = (&self.link, &self.memory.0);
        if !area.fits(link.mtu) {
            return Err(too_large(link));
        }
        let attachment = self.hook.attach(link)?;
        // Untagged frames pass all the same if the device removes tags.
        self.loses_vlan_tags = interface::keep_vlan_tags(&link.name).is_err();
        let Some(queues) = self.part.of(attachment.queues) else {
            let (device, there) = (link.name.clone(), attachment.queues);
            let wanted = match &self.part {
                Part::Range(range) => range.end.max(1),
                Part::All | Part::Worker { .. } => 1,
            };
            return Err(Error::TooFewQueues { device, there, wanted });
        };
        let longest = longest(link);
        let (mut receiving, mut sender) = (Vec::new(), None);
        for number in queues {
            let holder = area.chunks().new_holder();
            let plan = Plan { link, area, config: &self.config, copies: attachment.mode };
            let (queue, sending) = plan.open(number, holder, sender.is_none())?;
            attachment.direct(number, queue.socket.as_fd()).map_err(|error| {
                Error::of_xdp("directing a queue's frames to a socket", &link.name, error)
            })?;
            receiving.push(queue);
            sender = sender.or(sending);
        }
        self.readiness = Readiness::of(&receiving, &link.name)?;
        self.receiver.open = Some(Receiver::new(Arc::clone(area), receiving, longest));
        self.transmitter.open = Some(match sender {
            Some(sender) => Sending::Rings(sender),
            None => Sending::Packets(Outlet::open(link)?),
        });
        self.transmitter.up = link.up;
        self.attachment = Some(attachment);
        Ok(())
    }

    fn detach(&mut self) -> Change {
        self.closed = self.overruns();
        // No frame may come in any more before its memory is free.
        (self.attachment, self.readiness) = (None, None);
        let (sender, receiver) = (self.transmitter.open.take(), self.receiver.open.take());
        // Both halves share the first queue's socket; it is closed with the second of them.
        sender.into_iter().for_each(Sending::close);
        receiver.into_iter().for_each(Receiver::close);
        self.link_losses += 1;
        self.link.up = false;
        Change::Gone
    }

    fn reattach(&mut self) -> Option<Change> {
        let attached = self.monitor.back()?.and_then(|link| {
            self.link = link;
            self.attach()
        });
        if attached.is_err() {
            self.link.up = false;
        }
        self.monitor.reopened(attached)
    }

    /// Number of frames lost at present and former sockets.
    fn overruns(&self) -> Overruns {
        let queues = self.receiver.open.iter().flat_map(|receiver| &receiver.queues);
        let live = queues.map(|queue| socket::overruns(&queue.socket));
        live.fold(self.closed, Overruns::plus)
    }

    /// True if the kernel has taken the device away from a socket.
    fn is_cut_off(&self) -> bool {
        if let Some(Sending::Packets(outlet)) = &self.transmitter.open {
            return outlet.is_cut_off();
        }
        let mut queues = self.receiver.open.iter().flat_map(|receiver| &receiver.queues);
        queues.any(|queue| socket::take_error(&queue.socket))
    }

    fn refresh(&mut self, now: LinkInfo) -> Option<Change> {
        let change = self.link.renew(now, &mut self.link_losses);
        self.transmitter.up = self.link.up;
        let most = longest(&self.link).min(self.memory.0.chunk_len() - area::KERNEL_HEADROOM);
        if let (Some(receiver), Some(sender)) =
            (&mut self.receiver.open, &mut self.transmitter.open)
        {
            receiver.longest = most;
            sender.push(most, &mut self.transmitter.counts);
        }
        change
    }
}

/// Longest frame of a link, bytes.
fn longest(link: &LinkInfo) -> usize {
    link.mtu as usize + ETHERNET_LEN + VLAN_LEN
}

/// Parameters for opening a queue.
struct Plan<'a> {
    link: &'a LinkInfo,
    area: &'a Arc<Area>,
    config: &'a Config,
    copies: Mode,
}

impl Plan<'_> {
    /// Opens a queue, with the sending rings if wanted.
    fn open(
        &self,
        number: u32,
        holder: area::Holder,
        sends: bool,
    ) -> Result<(Queue, Option<Sender>), Error> {
        let name = self.link.name.as_str();
        let size = self.config.ring_len();
        let socket = socket::open(name)?;
        socket::register(&socket, self.area, name)?;
        // The kernel requires a completion ring even if nothing is sent.
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            socket::size_ring(&socket, ring, size, name)?;
        }
        if sends {
            socket::size_ring(&socket, libc::XDP_TX_RING, size, name)?;
            socket::set_send_budget(&socket, crate::BATCH as u32);
        }
        let offsets = socket::ring_offsets(&socket, name)?;
        let place = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let fill = Producer::of(Shared::map(&socket, offsets.fr, size, place, name)?);
        let place = libc::XDP_PGOFF_RX_RING;
        let filled = Consumer::of(Shared::map(&socket, offsets.rx, size, place, name)?);
        let rings = if sends {
            let place = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
            let completed = Consumer::of(Shared::map(&socket, offsets.cr, size, place, name)?);
            let place = libc::XDP_PGOFF_TX_RING;
            let ring = Producer::of(Shared::map(&socket, offsets.tx, size, place, name)?);
            Some((ring, completed))
        } else {
            None
        };
        socket::bind(&socket, self.link, number, self.copies == Mode::Generic)?;
        let socket = Arc::new(socket);
        let sender = rings.map(|(ring, completed)| Sender {
            area: Arc::clone(self.area),
            zero_copy: socket::is_zero_copy(&socket),
            socket: Arc::clone(&socket),
            // Another number than the receiver's: each gives back its own chunks.
            holder: self.area.chunks().new_holder(),
            ring,
            completed,
            under_way: 0,
            size,
            longest: longest(self.link),
        });
        Ok((Queue { socket, holder, fill, filled, held: 0, target: size }, sender))
    }
}

impl Readiness {
    /// `None` if there are no queues.
    fn of(queues: &[Queue], device: &str) -> Result<Option<Self>, Error> {
        match queues {
            [] => Ok(None),
            [one] => Ok(Some(Self::One(Arc::clone(&one.socket)))),
            several => {
                let sockets = several.iter().map(|queue| queue.socket.as_fd());
                let watched = crate::wait::watch(sockets);
                let watched = watched.map(|watch| Some(Self::Several(watch)));
                watched.map_err(|error| Error::of_xdp("watching", device, error))
            }
        }
    }
}

impl Device for XdpDevice {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.receiver, &mut self.transmitter)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        let (receiver, transmitter) = (&self.receiver, &self.transmitter);
        let overruns = self.overruns();
        Statistics {
            received: receiver.counts.received,
            receive_oversize: receiver.counts.oversize,
            receive_unfinished: 0,
            transmitted: transmitter.counts.sent,
            transmit_full: transmitter.counts.full,
            transmit_refused: transmitter.counts.refused,
            receive_overrun: overruns.no_buffer + overruns.ring_full,
            receive_no_buffer: overruns.no_buffer,
            link_losses: self.link_losses,
        }
    }

    fn maintain(&mut self) -> Option<Change> {
        if self.receiver.open.is_none() {
            return self.reattach();
        }
        let is_cut_off = self.is_cut_off();
        match self.monitor.look() {
            Look::There(now) if now.index == self.link.index && !is_cut_off => self.refresh(now),
            Look::Unknown(change) if !is_cut_off => change,
            _ => Some(self.detach()),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match &self.readiness {
            Some(Readiness::One(socket)) => Some(socket.as_fd()),
            Some(Readiness::Several(watch)) => Some(watch.as_fd()),
            None => self.transmitter.open.as_ref().and_then(Sending::quiet_descriptor),
        }
    }
}

impl Drop for XdpDevice {
    fn drop(&mut self) {
        if self.receiver.open.is_some() {
            self.detach();
        }
    }
}

#[derive(Debug, Default)]
struct ReceiveHalf {
    open: Option<Receiver>,
    counts: receive::Counts,
}

impl Receive for ReceiveHalf {
    fn receive<'d>(&'d mut self, batch: &mut crate::Batch<'d>) {
        if let Some(receiver) = &mut self.open {
            receiver.receive(batch, &mut self.counts);
        }
    }
}

#[derive(Debug, Default)]
struct TransmitHalf {
    open: Option<Sending>,
    /// True if the link was up at the last look.
    up: bool,
    counts: transmit::Counts,
}

impl Transmit for TransmitHalf {
    fn transmit(&mut self, frames: &mut [crate::Frame<'_>]) -> crate::Lost {
        match &mut self.open {
            Some(sender) if self.up => sender.transmit(frames, &mut self.counts),
            _ => {
                self.counts.refused += frames.len() as u64;
                crate::Lost::all(frames.len())
            }
        }
    }
}
