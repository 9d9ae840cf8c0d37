//! One thread's work: two devices, a translator and a router, and the way of packets between them.
//!
//! A turn takes a batch from each side: sort the frames, translate the packets, find their
//! neighbours, send. What the translator and the router have to say on their own goes out between.
//! Everything happens at a time that is passed in; nothing here waits.

use crate::command::{Clerk, Commands};
use crate::counters::Origin;
use crate::router::{self, Fate, NeighborInfo, Router, RouterCounters, RouterError};
use crate::state::Keeper;
use crate::{Observer, SavedPorts, Settings, StateError};
use arrayvec::ArrayVec;
use natgate_engine::{ConfigError, Counters, DropReason, Engine, Packet, Side, Timestamp, Verdict};
use natgate_io::{BATCH, Batch, Change, Device, Frame, HEADROOM, LinkInfo, Statistics, Transmit};
use natgate_wire::arp;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::io;
use std::time::Duration;

/// How often devices are looked after.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// The longest IP packet.
const LONGEST: usize = 65_535;

const _: () = assert!(BATCH <= Engine::MAX_BATCH && HEADROOM >= ETHERNET_LEN);

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
        "{side}.mtu is {configured}, but device {device:?} carries {actual} bytes; set \
         {side}.mtu = {actual}, or raise the device's with `ip link set dev {device} mtu {configured}`"
    )]
    Mtu {
        /// The side's name.
        side: &'static str,
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
    /// `[inside, outside]`.
    devices: [Box<dyn Device>; 2],
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
    /// A gateway between two devices, `[inside, outside]`, that starts empty at time `now`.
    ///
    /// # Errors
    /// [`WorkerError`] when the settings contradict themselves or the devices.
    pub fn new(
        settings: &Settings,
        seed: [u8; 32],
        devices: [Box<dyn Device>; 2],
        now: Timestamp,
    ) -> Result<Self, WorkerError> {
        for (device, side) in devices.iter().zip([Side::Inside, Side::Outside]) {
            let (configured, link) = (settings.side(side).mtu, device.link());
            //= rfc1812#section-3.3.4
            if u32::from(configured) > link.mtu {
                let (side, device, actual) = (router::name(side), link.name.clone(), link.mtu);
                return Err(WorkerError::Mtu { side, configured, device, actual });
            }
        }
        let macs = [devices[0].link().mac, devices[1].link().mac];
        let router = Router::new(settings, macs)?;
        let mut engine = Engine::new(&settings.engine, seed, now).map_err(WorkerError::Engine)?;
        engine.populate();
        Ok(Self {
            stages: Stages { engine, router, not_addressed: 0 },
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
        let inside = self.pass(now, Side::Inside);
        self.drain(now, observer);
        let outside = self.pass(now, Side::Outside);
        self.drain(now, observer);
        self.stages.router.advance(now);
        self.report(now);
        let Stages { engine, router, .. } = &mut self.stages;
        if let Some(settings) = self.clerk.turn(engine, router) {
            observer.reconfigured(settings);
        }
        self.send_queued();
        if now >= self.next_maintenance {
            self.maintain(now, observer);
        }
        let keeper = self.keeper.as_mut();
        if let Some(result) = keeper.and_then(|keeper| keeper.turn(now, &self.stages.engine)) {
            observer.ports_written(&result);
        }
        inside + outside
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
        for (device, side) in self.devices.iter_mut().zip([Side::Inside, Side::Outside]) {
            let Some(change) = device.maintain() else { continue };
            let mac = device.link().mac;
            if matches!(change, Change::Back(Ok(()))) || mac != self.stages.router.mac(side) {
                self.stages.router.relink(side, mac);
            }
            observer.link(side, device.link(), &change);
        }
    }

    /// The devices, `[inside, outside]`.
    pub fn devices(&self) -> &[Box<dyn Device>; 2] {
        &self.devices
    }

    /// The state now.
    pub fn status(&mut self, now: Timestamp) -> Status<'_> {
        let sides = [Side::Inside, Side::Outside].map(|side| {
            let device = &mut self.devices[router::index(side)];
            let neighbors = self.stages.router.neighbors(side);
            SideStatus { frames: device.statistics(), link: device.link().clone(), neighbors }
        });
        let losses = self.stages.router.losses();
        Status {
            now,
            engine: &self.stages.engine,
            counters: losses.correct(self.stages.engine.counters()),
            router: self.stages.router.counters(),
            own_lost: losses.own(),
            not_addressed: self.stages.not_addressed,
            sides,
        }
    }

    /// Takes a batch that has come in on one side to where it belongs; returns how many frames.
    fn pass(&mut self, now: Timestamp, from: Side) -> usize {
        let Self { stages, devices: [inside, outside], .. } = self;
        let (from_inside, to_inside) = inside.split();
        let (from_outside, to_outside) = outside.split();
        let mut batch = Batch::new();
        match from {
            Side::Inside => from_inside.receive(&mut batch),
            Side::Outside => from_outside.receive(&mut batch),
        }
        let received = batch.len();
        if received == 0 {
            return 0;
        }
        let packets = stages.sort(now, from, batch);
        let fated = stages.translate(now, from, packets);
        let [inside, outside] = stages.route(now, from, fated);
        stages.send(inside, to_inside);
        stages.send(outside, to_outside);
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
            let mut frame = Frame::new(&mut self.scratch, HEADROOM, HEADROOM + len);
            if self.stages.router.send(now, side, &mut frame, None) == Fate::Ready {
                let mut output = Output::default();
                output.push(frame, None);
                self.stages.send(output, self.devices[router::index(side)].split().1);
            }
        }
    }

    /// Tells senders that the router could not deliver their packets.
    fn report(&mut self, now: Timestamp) {
        while let Some((from, error)) = self.stages.router.poll_error() {
            let mut bytes = [vec![0; HEADROOM], error].concat();
            let end = bytes.len();
            let mut batch = Batch::new();
            batch.push(Frame::new(&mut bytes, HEADROOM, end));
            if let Some((side, frame)) = self.stages.translate_error(now, from, batch) {
                let mut output = Output::default();
                output.push(frame, None);
                self.stages.send(output, self.devices[router::index(side)].split().1);
            }
        }
    }

    /// Sends what the router has to say on its own, and what has waited for neighbours.
    fn send_queued(&mut self) {
        while let Some((side, mut bytes, origin)) = self.stages.router.poll_transmit() {
            let end = bytes.len();
            let mut output = Output::default();
            output.push(Frame::new(&mut bytes, 0, end), origin);
            self.stages.send(output, self.devices[router::index(side)].split().1);
        }
    }
}

/// What a batch goes through, in order of the methods.
struct Stages {
    engine: Engine,
    router: Router,
    /// Frames sent to other stations, or to everybody, that were not ARP.
    not_addressed: u64,
}

/// A packet after translation, and what to do with it.
type Fated<'d> = (Frame<'d>, Verdict);

impl Stages {
    /// Keeps the frames that carry IPv4 to us, as packets; ARP is dealt with, the rest is counted.
    fn sort<'d>(&mut self, now: Timestamp, from: Side, batch: Batch<'d>) -> Batch<'d> {
        let mut packets = Batch::new();
        for mut frame in batch {
            let Some((destination, _, kind)) = arp::read_ethernet(frame.bytes()) else {
                self.engine.count_foreign(from, 0);
                continue;
            };
            if kind == ethertype::ARP {
                self.router.receive_arp(now, from, frame.bytes());
            } else if destination != self.router.mac(from) {
                // Nothing that was sent to many, or to others, is forwarded.
                //= rfc1812#section-4.3.2.7-link
                //= rfc1812#section-5.3.4-forward
                //= rfc1812#section-5.3.4-discard
                self.not_addressed += 1;
            } else if kind == ethertype::IPV4 {
                let (start, end) = frame.range();
                frame.set_range(start + ETHERNET_LEN, end);
                packets.push(frame);
            } else {
                self.engine.count_foreign(from, frame.len() - ETHERNET_LEN);
            }
        }
        packets
    }

    /// Translates packets in place.
    fn translate<'d>(
        &mut self,
        now: Timestamp,
        from: Side,
        mut packets: Batch<'d>,
    ) -> ArrayVec<Fated<'d>, BATCH> {
        let mut verdicts = [Verdict::Held; BATCH];
        let verdicts = &mut verdicts[..packets.len()];
        let mut views: ArrayVec<Packet<'_>, BATCH> = packets
            .iter_mut()
            .map(|frame| {
                let (start, _) = frame.range();
                Packet::new(frame.buffer_mut(), start)
            })
            .collect();
        self.engine.process(now, from, &mut views, verdicts);
        let ranges: ArrayVec<(usize, usize), BATCH> =
            views.iter().map(|view| (view.start(), view.end())).collect();
        drop(views);
        let fated = packets.into_iter().zip(ranges).zip(verdicts);
        fated
            .map(|((mut frame, (start, end)), verdict)| {
                frame.set_range(start, end);
                (frame, *verdict)
            })
            .collect()
    }

    /// Translates an ICMP error of the router's own, as one that came in by `from`, and finds its
    /// way. It is no input packet, so it is not counted as one.
    fn translate_error<'d>(
        &mut self,
        now: Timestamp,
        from: Side,
        error: Batch<'d>,
    ) -> Option<(Side, Frame<'d>)> {
        let before = self.engine.counters().clone();
        let mut fated = self.translate(now, from, error);
        self.router.exclude(&before, self.engine.counters());
        let (mut frame, verdict) = fated.pop()?;
        let Verdict::Forward(side) = verdict else { return None };
        let fate = self.router.send_error(now, side, &mut frame);
        (fate == Fate::Ready).then_some((side, frame))
    }

    /// Finds the way of the packets that live, by side.
    fn route<'d>(
        &mut self,
        now: Timestamp,
        from: Side,
        fated: ArrayVec<Fated<'d>, BATCH>,
    ) -> [Output<'d>; 2] {
        let mut outputs = [Output::default(), Output::default()];
        for (mut frame, verdict) in fated {
            // Translation changes no length, and what followed the packet has been cut off.
            let len = frame.len();
            let (side, origin) = match verdict {
                Verdict::Forward(side) => (side, Origin::forwarded(from, side, len)),
                Verdict::Reply(side) => (side, Origin::replied(len)),
                Verdict::Drop(_) | Verdict::Held => continue,
            };
            if frame.len() > self.router.mtu(side)
                && let Err(reason) = self.engine.identify(frame.bytes_mut())
            {
                self.router.note_loss(Some(origin), reason);
            } else if self.router.send(now, side, &mut frame, Some(origin)) == Fate::Ready {
                outputs[router::index(side)].push(frame, Some(origin));
            }
        }
        outputs
    }

    /// Sends a side's frames.
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

/// Frames that leave by one side.
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
