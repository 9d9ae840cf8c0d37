//! One thread's work: two devices, a translator and a router, and the way of packets between them.
//!
//! A turn takes a batch from each side: sort the frames, translate the packets, find their
//! neighbours, send. What the translator and the router have to say on their own goes out between.
//! Everything happens at a time that is passed in; nothing here waits.

use crate::command::{Clerk, Commands};
use crate::counters::Origin;
use crate::links::{Header, Link};
use crate::router::{Fate, NeighborInfo, Router, RouterCounters, RouterError};
use crate::state::Keeper;
use crate::wiring::{Cables, Devices, side_of};
use crate::{Observer, SavedPorts, Settings, StateError};
use arrayvec::ArrayVec;
use natgate_engine::{ConfigError, Counters, DropReason, Engine, Packet, Side, Timestamp, Verdict};
use natgate_io::{BATCH, Batch, Change, Device, Frame, HEADROOM, LinkInfo, Statistics, Transmit};
use natgate_wire::arp;
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN, ethertype};
use std::io;
use std::time::Duration;

/// How often devices are looked after.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Most devices.
pub const MOST_DEVICES: usize = 64;

/// Where the outside's device stands among the devices.
pub(crate) const OUTSIDE: usize = 1;

/// The longest IP packet.
const LONGEST: usize = 65_535;

const _: () = assert!(BATCH <= Engine::MAX_BATCH && HEADROOM >= ETHERNET_LEN + VLAN_LEN);

/// Why a worker cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The translator refuses its configuration.
    #[error("{}", .0.message)]
    Engine(ConfigError),
    /// The router lacks something.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// A device carries less than the configuration says.
    #[error(
        "{name}.mtu is {configured}, but device {device:?} carries {actual} bytes; set \
         {name}.mtu = {actual}, or raise the device's with `ip link set dev {device} mtu {configured}`"
    )]
    Mtu {
        /// The name of the side or the realm.
        name: String,
        /// What the configuration says, bytes.
        configured: u16,
        /// The device's name.
        device: String,
        /// What the device carries, bytes.
        actual: u32,
    },
}

/// A gateway at work.
pub struct Worker {
    stages: Stages,
    devices: Devices,
    /// Where the translator writes packets of its own: headroom and the longest packet.
    scratch: Vec<u8>,
    next_maintenance: Timestamp,
    /// Remembers ports in use over a restart.
    keeper: Option<Keeper>,
    /// Does what commands ask for.
    clerk: Clerk,
}

/// A gateway's state, to show.
#[derive(Debug)]
pub struct Status<'a> {
    /// The time it is of.
    pub now: Timestamp,
    /// Mappings, sessions and pools.
    pub engine: &'a Engine,
    /// Packets, with what was lost after translation counted as dropped.
    pub counters: Counters,
    /// What the router has counted besides.
    pub router: RouterCounters,
    /// Packets of the gateway's own making that were lost.
    pub own_lost: u64,
    /// Frames that were not sent to the gateway.
    pub not_addressed: u64,
    /// Each side's link, frames and neighbours: `[inside, outside]`.
    pub sides: [SideStatus; 2],
    /// Those of the realms beside number 0, by number.
    pub realms: Vec<(u16, SideStatus)>,
}

/// One side's part of a [`Status`].
#[derive(Debug)]
pub struct SideStatus {
    /// The link.
    pub link: LinkInfo,
    /// Frames.
    pub frames: Statistics,
    /// Neighbours, in order of address.
    pub neighbors: Vec<NeighborInfo>,
}

impl Worker {
    /// A gateway between these devices, in the order of [`Settings::devices`], that starts empty at
    /// time
    /// `now`.
    ///
    /// # Errors
    /// [`WorkerError`] when the settings contradict themselves or the devices.
    ///
    /// # Panics
    /// When there are not as many devices as the settings name, or too many.
    pub fn new(
        settings: &Settings,
        seed: [u8; 32],
        devices: impl Into<Vec<Box<dyn Device>>>,
        now: Timestamp,
    ) -> Result<Self, WorkerError> {
        let devices: Vec<Box<dyn Device>> = devices.into();
        assert!(devices.len() == settings.devices().len() && devices.len() <= MOST_DEVICES);
        let cables = Cables::new(settings);
        cables.check(settings, devices.iter().map(|device| device.link()))?;
        let macs: Vec<_> = devices.iter().map(|device| device.link().mac).collect();
        let router = Router::new(settings, &macs)?;
        let mut engine = Engine::new(&settings.engine, seed, now).map_err(WorkerError::Engine)?;
        engine.populate();
        Ok(Self {
            stages: Stages { engine, router, cables, not_addressed: 0 },
            devices,
            scratch: vec![0; HEADROOM + LONGEST],
            next_maintenance: now.plus(MAINTENANCE),
            keeper: None,
            clerk: Clerk::default(),
        })
    }

    /// Holds the ports that were in use before a restart, and remembers from now on which are.
    ///
    /// # Errors
    /// [`StateError::Thread`].
    pub fn remember(&mut self, saved: SavedPorts, now: Timestamp) -> Result<(), StateError> {
        self.keeper = Some(Keeper::new(saved, &mut self.stages.engine, now)?);
        Ok(())
    }

    /// Takes commands from there from now on.
    pub fn obey(&mut self, commands: Commands) {
        self.clerk.listen(commands);
    }

    /// Ends the gateway's work: writes down a last time which ports are in use, if that is done at
    /// all.
    ///
    /// # Errors
    /// Why that was not possible.
    pub fn finish(mut self) -> io::Result<()> {
        self.keeper.take().map_or(Ok(()), |keeper| keeper.finish(&self.stages.engine))
    }

    /// Does what there is to do; returns how many frames came in.
    pub fn turn(&mut self, now: Timestamp, observer: &mut dyn Observer) -> usize {
        // Should more be due than one call does, packets do not wait for it: the next turn goes on.
        self.stages.engine.advance(now);
        self.drain(now, observer);
        let mut received = 0;
        for place in 0..self.devices.len() {
            received += self.pass(now, place);
            self.drain(now, observer);
        }
        self.stages.router.advance(now);
        self.report(now);
        self.send_queued();
        let Stages { engine, router, cables, .. } = &mut self.stages;
        if let Some(settings) = self.clerk.turn(engine, router, cables, &mut self.devices) {
            observer.reconfigured(settings);
        }
        if now >= self.next_maintenance {
            self.maintain(now, observer);
        }
        let keeper = self.keeper.as_mut();
        if let Some(result) = keeper.and_then(|keeper| keeper.turn(now, &self.stages.engine)) {
            observer.ports_written(&result);
        }
        received
    }

    /// When a turn is due even if no frame comes.
    pub fn next_deadline(&self) -> Timestamp {
        let deadlines = [
            self.stages.engine.next_deadline(),
            self.stages.router.next_deadline(),
            self.keeper.as_ref().map(Keeper::next_deadline),
            self.clerk.is_busy().then_some(Timestamp(0)),
        ];
        deadlines.into_iter().flatten().fold(self.next_maintenance, Timestamp::min)
    }

    /// Looks after the devices; to be called when waiting for one reports an error. Done once a
    /// second by turns.
    pub fn maintain(&mut self, now: Timestamp, observer: &mut dyn Observer) {
        self.next_maintenance = now.plus(MAINTENANCE);
        for (place, device) in self.devices.iter_mut().enumerate() {
            let Some(change) = device.maintain() else { continue };
            let mac = device.link().mac;
            for link in self.stages.cables.links(place) {
                if matches!(change, Change::Back(Ok(()))) || mac != self.stages.router.mac(link) {
                    self.stages.router.relink(link, mac);
                }
            }
            observer.link(side_of(place), device.link(), &change);
        }
    }

    /// The devices, in the order of [`Settings::devices`].
    pub fn devices(&self) -> &[Box<dyn Device>] {
        &self.devices
    }

    /// The state now.
    pub fn status(&mut self, now: Timestamp) -> Status<'_> {
        let mut side = |link: Link| {
            let device = &mut self.devices[self.stages.cables.device_of(link)];
            let neighbors = self.stages.router.neighbors(link);
            SideStatus { frames: device.statistics(), link: device.link().clone(), neighbors }
        };
        let sides = [Side::Inside, Side::Outside].map(|one| side(one.into()));
        let further: Vec<u16> = self.stages.cables.further().collect();
        let realms = further.into_iter().map(|realm| (realm, side(Link::inside(realm)))).collect();
        let losses = self.stages.router.losses();
        Status {
            now,
            engine: &self.stages.engine,
            counters: losses.correct(self.stages.engine.counters()),
            router: self.stages.router.counters(),
            own_lost: losses.own(),
            not_addressed: self.stages.not_addressed,
            sides,
            realms,
        }
    }

    /// Takes a batch that has come in on one device to where it belongs; returns how many frames.
    fn pass(&mut self, now: Timestamp, place: usize) -> usize {
        let Self { stages, devices, .. } = self;
        let (mut receivers, mut transmitters) =
            (ArrayVec::<_, MOST_DEVICES>::new(), ArrayVec::<_, MOST_DEVICES>::new());
        for device in devices {
            let (receive, transmit) = device.split();
            receivers.push(receive);
            transmitters.push(transmit);
        }
        let mut batch = Batch::new();
        receivers[place].receive(&mut batch);
        let received = batch.len();
        if received == 0 {
            return 0;
        }
        let from = side_of(place);
        let packets = stages.sort(now, place, batch);
        let fated = stages.translate(now, from, packets);
        let outputs = stages.route(now, from, fated);
        for (output, transmitter) in outputs.near.into_iter().zip(&mut transmitters) {
            stages.send(output, *transmitter);
        }
        for (place, output) in outputs.further {
            stages.send(output, transmitters[place]);
        }
        received
    }

    /// Reports and sends what the translator has to say on its own.
    fn drain(&mut self, now: Timestamp, observer: &mut dyn Observer) {
        while let Some(event) = self.stages.engine.poll_event() {
            observer.event(&event);
        }
        while let Some((_, side, len)) =
            self.stages.engine.poll_transmit(&mut self.scratch[HEADROOM..])
        {
            let link = Link::new(side, self.stages.engine.transmit_realm());
            let mut frame = Frame::new(&mut self.scratch, HEADROOM, HEADROOM + len);
            if self.stages.router.send(now, link, &mut frame, None) == Fate::Ready {
                let mut output = Output::default();
                output.push(frame, None);
                let place = self.stages.cables.device_of(link);
                self.stages.send(output, self.devices[place].split().1);
            }
        }
    }

    /// Tells senders that the router could not deliver their packets.
    fn report(&mut self, now: Timestamp) {
        while let Some((from, error)) = self.stages.router.poll_error() {
            let mut bytes = [vec![0; HEADROOM], error].concat();
            let end = bytes.len();
            let frame = Frame::new(&mut bytes, HEADROOM, end);
            if let Some((link, frame)) = self.stages.translate_error(now, from, frame) {
                let mut output = Output::default();
                output.push(frame, None);
                let place = self.stages.cables.device_of(link);
                self.stages.send(output, self.devices[place].split().1);
            }
        }
    }

    /// Sends what the router has to say on its own, and what has waited for neighbours.
    fn send_queued(&mut self) {
        while let Some((link, mut bytes, origin)) = self.stages.router.poll_transmit() {
            let end = bytes.len();
            let mut output = Output::default();
            output.push(Frame::new(&mut bytes, 0, end), origin);
            let place = self.stages.cables.device_of(link);
            self.stages.send(output, self.devices[place].split().1);
        }
    }
}

/// What a batch goes through, in order of the methods.
struct Stages {
    engine: Engine,
    router: Router,
    cables: Cables,
    /// Frames sent to other stations, or to everybody, that were not ARP.
    not_addressed: u64,
}

/// A packet, and the realm that it comes from if from inside.
type Arrived<'d> = (Frame<'d>, u16);

/// A packet after translation, what to do with it, and the realm that it goes to if it leaves by
/// the inside.
type Fated<'d> = (Frame<'d>, Verdict, u16);

impl Stages {
    /// Keeps the frames that carry IPv4 to us, as packets; ARP is dealt with, the rest is counted.
    fn sort<'d>(
        &mut self,
        now: Timestamp,
        place: usize,
        batch: Batch<'d>,
    ) -> ArrayVec<Arrived<'d>, BATCH> {
        let mut packets = ArrayVec::new();
        let from = side_of(place);
        for mut frame in batch {
            let Some((destination, _, kind)) = arp::read_ethernet(frame.bytes()) else {
                self.engine.count_foreign(from, 0);
                continue;
            };
            let header = self.cables.carried[place].header(frame.bytes(), kind);
            let (realm, kind, header_len) = match header {
                Header::Of(realm, kind, len) => (realm, kind, len),
                Header::Unknown(ethertype::ARP, _) => continue,
                Header::Unknown(_, len) => {
                    self.engine.count_unknown_realm(frame.len() - len);
                    continue;
                }
            };
            let link = Link::new(from, realm);
            if kind == ethertype::ARP {
                let (start, end) = frame.range();
                let tag = header_len - ETHERNET_LEN;
                let addresses = ETHERNET_LEN - size_of::<u16>();
                // What follows the addresses is then the type.
                frame.bytes_mut().copy_within(..addresses, tag);
                frame.set_range(start + tag, end);
                self.router.receive_arp(now, link, frame.bytes());
            } else if destination != self.router.mac(link) {
                // Nothing that was sent to many, or to others, is forwarded.
                //= rfc1812#section-4.3.2.7-link
                //= rfc1812#section-5.3.4-forward
                //= rfc1812#section-5.3.4-discard
                self.not_addressed += 1;
            } else if kind == ethertype::IPV4 {
                let (start, end) = frame.range();
                frame.set_range(start + header_len, end);
                if !self.router.is_for_the_kernel(link, frame.bytes()) {
                    packets.push((frame, realm));
                }
            } else {
                self.engine.count_foreign(from, frame.len() - header_len);
            }
        }
        packets
    }

    /// Translates packets in place.
    fn translate<'d>(
        &mut self,
        now: Timestamp,
        from: Side,
        mut packets: ArrayVec<Arrived<'d>, BATCH>,
    ) -> ArrayVec<Fated<'d>, BATCH> {
        let mut verdicts = [Verdict::Held; BATCH];
        let verdicts = &mut verdicts[..packets.len()];
        let mut views: ArrayVec<Packet<'_>, BATCH> = packets
            .iter_mut()
            .map(|(frame, realm)| {
                let (start, _) = frame.range();
                Packet::new(frame.buffer_mut(), start).in_realm(*realm)
            })
            .collect();
        self.engine.process(now, from, &mut views, verdicts);
        let ranges: ArrayVec<(usize, usize, u16), BATCH> =
            views.iter().map(|view| (view.start(), view.end(), view.realm())).collect();
        drop(views);
        let fated = packets.into_iter().zip(ranges).zip(verdicts);
        fated
            .map(|(((mut frame, _), (start, end, realm)), verdict)| {
                frame.set_range(start, end);
                (frame, *verdict, realm)
            })
            .collect()
    }

    /// Translates an ICMP error of the router's own, as one that came in by `from`, and finds its
    /// way. It is no input packet, so it is not counted as one.
    fn translate_error<'d>(
        &mut self,
        now: Timestamp,
        from: Link,
        error: Frame<'d>,
    ) -> Option<(Link, Frame<'d>)> {
        let before = self.engine.counters().clone();
        let arrived = std::iter::once((error, from.realm)).collect();
        let mut fated = self.translate(now, from.side, arrived);
        self.router.exclude(&before, self.engine.counters());
        let (mut frame, verdict, realm) = fated.pop()?;
        let Verdict::Forward(side) = verdict else { return None };
        let link = Link::new(side, realm);
        let fate = self.router.send_error(now, link, &mut frame);
        (fate == Fate::Ready).then_some((link, frame))
    }

    /// Finds the way of the packets that live, by device.
    fn route<'d>(
        &mut self,
        now: Timestamp,
        from: Side,
        fated: ArrayVec<Fated<'d>, BATCH>,
    ) -> Outputs<'d> {
        let mut outputs = Outputs::default();
        for (mut frame, verdict, realm) in fated {
            // Translation changes no length, and what followed the packet has been cut off.
            let len = frame.len();
            let (side, origin) = match verdict {
                Verdict::Forward(side) => (side, Origin::forwarded(from, side, len)),
                Verdict::Reply(side) => (side, Origin::replied(len)),
                Verdict::Drop(_) | Verdict::Held => continue,
            };
            let link = Link::new(side, realm);
            if frame.len() > self.router.mtu(link)
                && let Err(reason) = self.engine.identify(frame.bytes_mut())
            {
                self.router.note_loss(Some(origin), reason);
            } else if self.router.send(now, link, &mut frame, Some(origin)) == Fate::Ready {
                outputs.of(self.cables.device_of(link)).push(frame, Some(origin));
            }
        }
        outputs
    }

    /// Sends a device's frames.
    fn send(&mut self, mut output: Output<'_>, device: &mut dyn Transmit) {
        if output.frames.is_empty() {
            return;
        }
        let lost = device.transmit(&mut output.frames);
        if lost.count() == 0 {
            return;
        }
        for (number, origin) in output.origins.iter().enumerate() {
            if lost.contains(number) {
                self.router.note_loss(*origin, DropReason::TransmitFull);
            }
        }
    }
}

/// Frames that leave, by device.
#[derive(Debug, Default)]
struct Outputs<'d> {
    /// By the first two devices, which all gateways have.
    near: [Output<'d>; 2],
    further: Vec<(usize, Output<'d>)>,
}

impl<'d> Outputs<'d> {
    /// Those that leave by the device at a place.
    fn of(&mut self, place: usize) -> &mut Output<'d> {
        if let Some(near) = self.near.get_mut(place) {
            return near;
        }
        let known = self.further.iter().position(|(known, _)| *known == place);
        let at = known.unwrap_or_else(|| {
            self.further.push((place, Output::default()));
            self.further.len() - 1
        });
        &mut self.further[at].1
    }
}

/// Frames that leave by one device.
#[derive(Debug, Default)]
struct Output<'d> {
    frames: Batch<'d>,
    origins: ArrayVec<Option<Origin>, BATCH>,
}

impl<'d> Output<'d> {
    fn push(&mut self, frame: Frame<'d>, origin: Option<Origin>) {
        self.frames.push(frame);
        self.origins.push(origin);
    }
}
