//! One thread's gateway: devices, a translator, a router, and the path of packets between them.
//!
//! A turn takes a batch from each device: sort the frames, translate the packets, find their
//! neighbours, send. Packets that other workers have handed over fill the batches up. Between
//! batches it sends the packets that the translator and the router make. The caller passes the time
//! in; nothing here waits.

mod algs;
mod checked;
mod families;
mod leaving;
mod legacy;
mod newcomers;
mod own;
mod pair;
mod parts;
mod serve;
mod stages;
mod tell;
mod together;
mod tunnel;

use crate::alg::{Algs, Aside};
use crate::command::{CommandRunner, Commands};
use crate::fleet::{Fleet, SliceChange};
use crate::health::Health;
use crate::limits::{LONGEST, MOST_DEVICES};
use crate::link::Link;
use crate::load::Load;
use crate::local_tcp_port::LocalTcpPort;
use crate::observer::{Observer, SideStatus, Status};
use crate::pcp::PcpService;
use crate::router::{Fate, Router};
use crate::settings::Settings;
use crate::single_writer::add;
use crate::state::PortStateWriter;
use crate::state::{SavedPorts, StateError};
use crate::tap::Captures;
use crate::team::Member;
use crate::wiring::{Devices, LinkMap, side_of};
use crate::worker_error::{NarrowDevice, WorkerError};
use arrayvec::ArrayVec;
use families::{Families, input_counters};
use natgate_engine::{Engine, Side, Timestamp, Verdict};
use natgate_io::{BATCH, Change, Device, Frame, HEADROOM};
use natgate_ipv6::Share;
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN};
use stages::{Output, Packets, Stages, transmitters};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use together::Handed;

/// Interval at which devices are maintained.
const MAINTENANCE: Duration = Duration::from_secs(1);

const _: () = assert!(BATCH <= Engine::MAX_BATCH && HEADROOM >= ETHERNET_LEN + VLAN_LEN);

/// One worker of a gateway.
pub struct Worker {
    stages: Stages,
    devices: Devices,
    /// Buffer for the translator's own packets: headroom and the longest packet.
    scratch: Vec<u8>,
    next_maintenance: Timestamp,
    /// Saves the ports in use, for a restart.
    writer: Option<PortStateWriter>,
    /// Executes commands.
    clerk: CommandRunner,
    /// The part of one of a pair.
    fleet: Option<Box<Fleet>>,
    /// Packets that other workers have handed over.
    handed: Handed,
    began: Timestamp,
    /// A secret of the worker.
    seed: [u8; 32],
    /// Mappings made until the last turn in which packets came.
    made: u64,
    /// Events that found no room in the translator and have been reported as lost.
    events_lost: u64,
}

impl Worker {
    /// Creates a worker with no mappings at time `now`. `devices` are in the order of
    /// [`Settings::devices`].
    ///
    /// # Errors
    /// [`WorkerError`] if the settings contradict themselves or the devices.
    ///
    /// # Panics
    /// If there are not as many devices as the settings name, or too many.
    pub fn new(
        settings: &Settings,
        seed: [u8; 32],
        devices: impl Into<Vec<Box<dyn Device>>>,
        now: Timestamp,
    ) -> Result<Self, WorkerError> {
        let devices: Vec<Box<dyn Device>> = devices.into();
        assert!(devices.len() == settings.devices().len() && devices.len() <= MOST_DEVICES);
        let cables = LinkMap::new(settings);
        let macs: Vec<_> = devices.iter().map(|device| device.link().mac).collect();
        let router = Router::new(settings, &macs)?;
        let mut config = settings.engine.clone();
        let families = Families::new(settings, &mut config, seed, &macs)?;
        let checked = (&settings.engine.services[..], &settings.health[..]);
        let mut engine = Engine::new(&config, seed, now).map_err(WorkerError::Engine)?;
        engine.populate();
        engine.guard_newcomers();
        let mut pcp = PcpService::new(&settings.pcp, &settings.engine, now);
        if let Some(families) = &families {
            let b4s = settings.ipv6.dslite.as_ref().map_or(&[][..], |dslite| &dslite.b4);
            pcp.serve_nat64(families.translator.nat64_prefixes(), b4s);
        }
        let mut algs = Algs::new(&settings.alg, &config, seed);
        if let Some(algs) = &mut algs {
            algs.stage.stop_engine(families.is_none());
            algs.stage.tell_ports(&mut engine);
        }
        let mut worker = Self {
            stages: Stages {
                engine,
                router,
                cables,
                not_addressed: 0,
                team: None,
                load: Arc::default(),
                captures: Captures::default(),
                pcp,
                local_tcp: LocalTcpPort::default(),
                families,
                algs,
                algs_aside: Aside::new(seed),
                health: Health::new(checked, seed, now),
                tunnel: None,
            },
            devices,
            scratch: vec![0; HEADROOM + LONGEST],
            next_maintenance: now.plus(MAINTENANCE),
            writer: None,
            clerk: CommandRunner::default(),
            fleet: None,
            handed: Handed::new(),
            began: now,
            seed,
            made: 0,
            events_lost: 0,
        };
        worker.follow_mtus_anew();
        Ok(worker)
    }

    /// Creates one of several workers that form one gateway. All of them get the same settings, and
    /// each has its own devices; otherwise like [`Worker::new`].
    ///
    /// # Errors
    /// As [`Worker::new`].
    ///
    /// # Panics
    /// As [`Worker::new`].
    pub fn of_team(
        settings: &Settings,
        seed: [u8; 32],
        devices: impl Into<Vec<Box<dyn Device>>>,
        mut member: Member,
        now: Timestamp,
    ) -> Result<Self, WorkerError> {
        let engine = settings.engine.share(member.workers() as u32);
        let mut own = Settings { engine, ..settings.clone() };
        own.ipv6.share = Share { place: member.number() as u16, of: member.workers() as u16 };
        let mut worker = Self::new(&own, seed, devices, now)?;
        member.divide(&mut worker.stages.engine);
        if member.number() != 0 {
            worker.stages.pcp.be_silent();
            if let Some(families) = &mut worker.stages.families {
                families.router.be_silent();
            }
        }
        worker.stages.team = Some(member);
        Ok(worker)
    }

    /// Load counters of the worker, readable by any thread.
    pub fn load(&self) -> Arc<Load> {
        Arc::clone(&self.stages.load)
    }

    /// Holds the ports that were in use before a restart, and saves the ports in use from now on.
    ///
    /// # Errors
    /// [`StateError::Thread`].
    pub fn remember(&mut self, saved: SavedPorts, now: Timestamp) -> Result<(), StateError> {
        self.writer = Some(PortStateWriter::new(saved, &mut self.stages.engine, now)?);
        Ok(())
    }

    /// Reports the events of commands and of work that was due, which no later turn may report: the
    /// worker sleeps or ends.
    pub(crate) fn report_events(&mut self, now: Timestamp, observer: &mut dyn Observer) {
        if !self.is_halted() {
            self.drain(now, observer);
        }
    }

    /// Tells neighbours that the gateway ends, unless another process goes on in its place.
    pub(crate) fn take_leave(&mut self, now: Timestamp) {
        if !self.is_halted() {
            self.stages.take_leave(now, &mut transmitters(&mut self.devices));
        }
    }

    /// Sets the source of commands.
    pub fn obey(&mut self, commands: Commands) {
        self.clerk.listen(commands);
    }

    /// Ends the worker; saves the ports in use a last time, if [`Worker::remember`] was called.
    ///
    /// # Errors
    /// The error of the write.
    pub fn finish(mut self) -> io::Result<()> {
        self.writer.take().map_or(Ok(()), |writer| writer.finish(&self.stages.engine))
    }

    /// Does one turn's work; returns the number of frames that came in.
    pub fn turn(&mut self, now: Timestamp, observer: &mut dyn Observer) -> usize {
        if self.clerk.is_halted() {
            self.stand_still(now);
            return 0;
        }
        if let Some(fleet) = &mut self.fleet {
            fleet.wake(now, &mut self.stages.engine);
        }
        // If more is due than one call does, packets do not wait: the next call continues.
        self.stages.engine.advance(now);
        self.drain(now, observer);
        let mut received = self.take_handed(now);
        let mut frames_in = 0;
        for place in 0..self.devices.len() {
            let frames = self.pass(now, place);
            if frames > 0 {
                // One call for each batch keeps pace with the deadlines that batches set.
                self.stages.engine.advance(now);
            }
            frames_in += frames;
            self.drain(now, observer);
        }
        add(&self.stages.load.frames, frames_in as u64);
        received += frames_in;
        if self.stages.team.is_some() {
            self.cooperate(now);
            self.drain(now, observer);
        }
        self.stages.router.advance(now);
        self.report(now);
        self.serve(now);
        self.check_servers(now);
        self.mark_servers(observer);
        self.send_queued();
        self.stages.attend_ipv6(now, &mut transmitters(&mut self.devices));
        let mut parts = self.stages.command_parts(now, &mut self.devices);
        let change = self.clerk.turn(&mut parts);
        if let Some((settings, partition)) = change {
            if let Some((team, partition)) = self.stages.team.as_mut().zip(partition) {
                team.set_partition(partition, &mut self.stages.engine);
            }
            self.stages.renew_ipv6(&settings);
            self.stages.pcp.renew(&settings.pcp, self.stages.engine.config(), now);
            self.renew_checks(&settings, now);
            self.follow_mtus_anew();
            self.renew_fleet(now);
            observer.reconfigured(settings);
        }
        received += self.attend_fleet(now);
        if self.clerk.is_asked() {
            self.answer(now);
        }
        if now >= self.next_maintenance {
            self.maintain(now, observer);
        }
        let writer = self.writer.as_mut();
        if let Some(result) = writer.and_then(|writer| writer.turn(now, &self.stages.engine)) {
            observer.ports_written(&result);
        }
        if let Some(team) = &mut self.stages.team {
            add(&self.stages.load.handed_over, team.flush());
        }
        received
    }

    /// Records the duration of a turn with `frames` frames.
    pub fn note_turn(&mut self, began: Timestamp, ended: Timestamp, frames: usize) {
        let load = &self.stages.load;
        load.age_ns.store(ended.since(self.began).as_nanos() as u64, Ordering::Relaxed);
        if frames > 0 {
            let took = ended.since(began).as_nanos() as u64;
            add(&load.busy_ns, took);
            add(&load.bursts, 1);
            let made = self.stages.engine.mappings_made();
            load.timing.note(took, frames as u64, made - self.made);
            self.made = made;
            let largest = load.largest_burst.load(Ordering::Relaxed).max(frames as u64);
            load.largest_burst.store(largest, Ordering::Relaxed);
        }
    }

    /// Records a sleep.
    pub fn note_sleep(&mut self, began: Timestamp, ended: Timestamp) {
        add(&self.stages.load.asleep_ns, ended.since(began).as_nanos() as u64);
    }

    /// Announces that the worker is about to sleep. Returns `false` if it must not: another worker
    /// has handed something over.
    pub fn falls_asleep(&self) -> bool {
        self.stages.team.as_ref().is_none_or(Member::falls_asleep)
    }

    /// Announces that the worker is awake.
    pub fn wakes_up(&self) {
        if let Some(team) = &self.stages.team {
            team.wakes_up();
        }
    }

    /// Time of the next turn that is due without a frame.
    pub fn next_deadline(&self) -> Timestamp {
        let deadlines = [
            self.stages.engine.next_deadline(),
            self.stages.router.next_deadline(),
            self.writer.as_ref().map(PortStateWriter::next_deadline),
            self.stages.team.as_ref().and_then(Member::next_deadline),
            self.stages.pcp.next_deadline(),
            self.stages.health.as_ref().map(|health| health.next_deadline()),
            self.stages.families.as_ref().and_then(|families| families.router.next_deadline()),
            self.clerk.is_busy().then_some(Timestamp(0)),
            self.fleet.as_ref().map(|fleet| fleet.next_deadline()),
        ];
        deadlines.into_iter().flatten().fold(self.next_maintenance, Timestamp::min)
    }

    /// Maintains the devices. [`Worker::turn`] does so once a second; call it also after an error
    /// of waiting for a device.
    pub fn maintain(&mut self, now: Timestamp, observer: &mut dyn Observer) {
        self.next_maintenance = now.plus(MAINTENANCE);
        observer.passed(now);
        if let Some(team) = &self.stages.team {
            team.tidy(&self.stages.engine);
        }
        self.stages.sweep_algs(now);
        self.stages.load.mappings.store(self.stages.engine.count_mappings(), Ordering::Relaxed);
        for (place, device) in self.devices.iter_mut().enumerate() {
            let Some(change) = device.maintain() else { continue };
            let mac = device.link().mac;
            for link in self.stages.cables.links(place) {
                if matches!(change, Change::Back(Ok(()))) || mac != self.stages.router.mac(link) {
                    self.stages.router.relink(link, mac);
                    if let Some(families) = &mut self.stages.families {
                        families.router.relink(link, mac);
                    }
                }
            }
            observer.link(side_of(place), device.link(), &change);
        }
        if self.follow_mtus() {
            self.stages.set_engine_mtus();
        }
    }

    /// Adapts the router's MTUs to the devices; returns true if a link's MTU has changed.
    fn follow_mtus(&mut self) -> bool {
        let Stages { router, cables, families, .. } = &mut self.stages;
        let mut is_other = false;
        for (place, device) in self.devices.iter().enumerate() {
            for link in cables.links(place) {
                let mtu = device.link().mtu;
                is_other |= router.follow_mtu(link, mtu);
                if let Some(families) = families.as_mut().filter(|_| link.realm == 0) {
                    is_other |= families.router.follow_mtu(link, mtu);
                }
            }
        }
        is_other
    }

    /// Adapts the MTUs of router and translator to new devices, or after a configuration has set
    /// them to its own values.
    pub(crate) fn follow_mtus_anew(&mut self) {
        self.follow_mtus();
        if self.stages.router.is_narrowed() || self.stages.families.is_some() {
            self.stages.set_engine_mtus();
        }
    }

    /// Devices that carry less than `settings` require. The worker uses the lesser values.
    pub fn narrow_devices(&self, settings: &Settings) -> Vec<NarrowDevice> {
        let devices = self.devices.iter().map(|device| device.link());
        self.stages.cables.narrow(settings, devices).collect()
    }

    /// The devices, in the order of [`Settings::devices`].
    pub fn devices(&self) -> &[Box<dyn Device>] {
        &self.devices
    }

    /// The worker's state at time `now`.
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
        let Stages { engine, router, families, .. } = &self.stages;
        Status {
            now,
            engine: &self.stages.engine,
            counters: input_counters(engine, router, families.as_deref()),
            router: self.stages.router.counters(),
            own_lost: losses.own(),
            not_addressed: self.stages.not_addressed,
            sides,
            realms,
            load: self.stages.load.now(),
            pcp: self.stages.pcp.counters,
            ipv6: families.as_deref().map(Families::status),
            algs: self.stages.algs.iter().flat_map(|algs| algs.counters()).collect(),
            member: self.stages.team.as_ref(),
        }
    }

    /// Processes a batch of one device, filled up with packets from other workers; returns the
    /// number of the device's frames.
    fn pass(&mut self, now: Timestamp, place: usize) -> usize {
        let Self { stages, devices, handed, .. } = self;
        let (mut receivers, mut transmitters) =
            (ArrayVec::<_, MOST_DEVICES>::new(), ArrayVec::<_, MOST_DEVICES>::new());
        for device in devices {
            let (receive, transmit) = device.split();
            receivers.push(receive);
            transmitters.push(transmit);
        }
        let mut packets = Packets::new();
        receivers[place].receive(&mut packets.frames);
        let received = packets.len();
        if received == 0 {
            return 0;
        }
        stages.sort(now, place, &mut packets);
        let side = side_of(place);
        let joined = stages.join(now, &mut packets, handed.of(side));
        stages.carry(now, side, &mut packets, &mut transmitters);
        drop(packets);
        if let Some(team) = stages.team.as_mut().filter(|_| joined > 0) {
            team.give_back(handed.of(side).drain(..joined));
        }
        received
    }

    /// Takes packets that other workers have handed over; returns their number. What workers tell
    /// each other is read at once.
    fn take_handed(&mut self, now: Timestamp) -> usize {
        let Self { stages, devices, handed, .. } = self;
        let Some(team) = &mut stages.team else { return 0 };
        let taken = handed.take_from(team);
        add(&stages.load.taken_over, taken as u64);
        if !handed.told.is_empty() {
            stages.unpack(now, &mut handed.told, &mut transmitters(devices));
            if let Some(team) = &mut stages.team {
                team.give_back(handed.told.drain(..));
            }
        }
        taken
    }

    /// Processes the packets from other workers that fitted no batch, and answers the workers'
    /// requests.
    fn cooperate(&mut self, now: Timestamp) {
        let Self { stages, devices, handed, .. } = self;
        for parcels in handed.all() {
            if !parcels.is_empty() {
                stages.unpack(now, parcels, &mut transmitters(devices));
            }
            if let Some(team) = &mut stages.team {
                team.give_back(parcels.drain(..));
            }
        }
        stages.follow_fragments(now, devices);
        if let Some(team) = &mut stages.team {
            let (borrowed, lent) = team.trade(now, &mut stages.engine);
            add(&stages.load.ports_borrowed, borrowed);
            add(&stages.load.ports_lent, lent);
        }
    }

    /// Reports the events of the translator and the router, and sends the translator's own packets.
    fn drain(&mut self, now: Timestamp, observer: &mut dyn Observer) {
        while let Some(report) = self.stages.router.poll_report() {
            observer.neighbor(&report);
        }
        let mut last = None;
        for (event, name) in self.stages.told() {
            observer.event_of(&event, name.as_ref());
            last = Some(event.time);
        }
        while let Some(event) = self.stages.engine.poll_event() {
            observer.event_of(&event, self.stages.host_name(&event).as_ref());
            last = Some(event.time);
        }
        for (expectation, name) in self.stages.expectations_made() {
            observer.expectation(&expectation, name.as_ref());
        }
        for change in self.fleet.iter_mut().flat_map(|fleet| fleet.new_owners()) {
            observer.slice(&SliceChange { time: now, ..change });
        }
        // Events were lost while the queue was full, so after all events that were in it.
        let lost = self.stages.engine.counters().events_lost;
        if lost != self.events_lost {
            observer.events_lost(lost - self.events_lost, last.unwrap_or(now), now);
            self.events_lost = lost;
        }
        while let Some((_, side, len)) =
            self.stages.engine.poll_transmit(&mut self.scratch[HEADROOM..])
        {
            let realm = self.stages.engine.transmit_realm();
            let link = Link::new(side, realm);
            let mut frame = Frame::of(&mut self.scratch, HEADROOM, HEADROOM + len);
            if self.stages.engine.transmit_turns() {
                if let Some((frame, verdict, realm)) = self.stages.turn_over(now, frame, realm) {
                    if let Verdict::Forward(side) = verdict
                        && self.stages.is_of_hosts(side, realm)
                    {
                        let transmitters = &mut transmitters(&mut self.devices);
                        let own = (realm, frame.bytes());
                        self.stages.send_made_to_host(now, own, transmitters);
                        continue;
                    }
                    let mut packets = Packets::one(frame, realm);
                    let verdicts = [verdict; BATCH];
                    let transmitters = &mut transmitters(&mut self.devices);
                    let packets = (&mut packets, &verdicts);
                    self.stages.deliver(now, Side::Inside, packets, transmitters);
                }
                continue;
            }
            if self.stages.captures.is_on() {
                self.stages.captures.leaving(now, side, frame.bytes());
            }
            if self.stages.is_of_hosts(side, realm) {
                let transmitters = &mut transmitters(&mut self.devices);
                self.stages.send_made_to_host(now, (realm, frame.bytes()), transmitters);
                continue;
            }
            if self.stages.router.send(now, link, &mut frame, None) == Fate::Ready {
                let mut output = Output::default();
                output.push(frame, None);
                let place = self.stages.cables.device_of(link);
                self.stages.send(&mut output, self.devices[place].split().1);
            }
        }
    }

    /// Sends ICMP errors about packets that the router could not deliver.
    fn report(&mut self, now: Timestamp) {
        while let Some((from, error)) = self.stages.router.poll_error() {
            let mut bytes = [vec![0; HEADROOM], error].concat();
            let end = bytes.len();
            let frame = Frame::of(&mut bytes, HEADROOM, end);
            let Some((link, frame)) = self.stages.translate_error(now, from, frame) else {
                continue;
            };
            if self.stages.is_of_hosts(link.side, link.realm) {
                let transmitters = &mut transmitters(&mut self.devices);
                let error = (link.realm, frame.bytes());
                self.stages.send_error_to_host(now, error, transmitters);
            } else {
                let mut output = Output::default();
                output.push(frame, None);
                let place = self.stages.cables.device_of(link);
                self.stages.send(&mut output, self.devices[place].split().1);
            }
        }
    }

    /// Sends the router's own frames, and packets that waited for neighbours.
    fn send_queued(&mut self) {
        while let Some((link, mut bytes, origin)) = self.stages.router.poll_transmit() {
            let end = bytes.len();
            let mut output = Output::default();
            output.push(Frame::of(&mut bytes, 0, end), origin);
            let place = self.stages.cables.device_of(link);
            self.stages.send(&mut output, self.devices[place].split().1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::router::settings_of_tests as settings;
    use crate::run::{Controls, run};
    use natgate_engine::{Event, Packet, Verdict};
    use natgate_io::{LinkInfo, memory};
    use natgate_wire::arp::Mac;
    use natgate_wire::{Ipv4, protocol};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;

    /// Events that were reported, and losses: how many, and after how many events.
    #[derive(Default)]
    struct RecordingObserver {
        events: Vec<Event>,
        lost: Vec<(u64, usize)>,
    }

    impl Observer for RecordingObserver {
        fn event(&mut self, event: &Event) {
            self.events.push(*event);
        }

        fn events_lost(&mut self, count: u64, from: Timestamp, to: Timestamp) {
            assert!(from <= to && self.events.last().is_some_and(|last| last.time == from));
            self.lost.push((count, self.events.len()));
        }

        fn link(&mut self, _: Side, _: &LinkInfo, _: &Change) {}

        fn status(&mut self, _: &Status<'_>) {}

        fn idle(&mut self) {}
    }

    fn worker(now: Timestamp) -> Worker {
        let devices: [Box<dyn Device>; 2] = [1, 2].map(|last| -> Box<dyn Device> {
            Box::new(memory::pair("device", Mac([2, 0, 0, 0, 0, last])).0)
        });
        Worker::new(&settings(), [7; 32], devices, now).expect("the settings are right")
    }

    /// Makes a mapping for each host.
    fn begin(engine: &mut Engine, now: Timestamp, hosts: std::ops::Range<u32>) {
        for host in hosts {
            let mut bytes = [0; 28];
            let mut header = Ipv4::init(&mut bytes[..], 20);
            header.set_total_len(28);
            header.set_ttl(64);
            header.set_protocol(protocol::UDP);
            header.set_source(0x0a01_0000 + host);
            header.set_destination(0xc633_6401);
            header.fill_checksum();
            bytes[20..26].copy_from_slice(&[0x0f, 0xa0, 0, 53, 0, 8]);
            let mut verdict = [Verdict::Held];
            engine.process(now, Side::Inside, &mut [Packet::new(&mut bytes, 0)], &mut verdict);
            assert_eq!(verdict, [Verdict::Forward(Side::Outside)]);
        }
    }

    #[test]
    fn a_stop_loses_no_event() {
        let clock = Clock::new();
        let (stop, status) = (AtomicBool::new(true), AtomicBool::new(false));
        let (wake, _waker) = UnixStream::pair().unwrap();
        wake.set_nonblocking(true).unwrap();
        let controls = Controls { stop: &stop, status: &status, wake: &wake };
        let mut worker = worker(clock.now());
        begin(&mut worker.stages.engine, clock.now(), 0..5);
        let mut observer = RecordingObserver::default();
        run(&mut worker, &clock, &controls, &mut observer).unwrap();
        assert_eq!(observer.events.len(), 5);
    }

    #[test]
    fn events_that_found_no_room_are_told_in_their_place() {
        let now = Timestamp(1_000_000_000_000);
        let mut worker = worker(now);
        let mut observer = RecordingObserver::default();
        // One mapping each; more events than the translator's queue holds.
        let many = 5000_u32;
        begin(&mut worker.stages.engine, now, 0..many);
        worker.turn(now, &mut observer);
        let first = observer.events.len();
        assert!(first > 0, "some were told");
        assert_eq!(observer.lost, [(u64::from(many) - first as u64, first)]);
        begin(&mut worker.stages.engine, now, many..many + 5);
        worker.turn(now.plus(Duration::from_millis(1)), &mut observer);
        assert_eq!((observer.events.len(), observer.lost.len()), (first + 5, 1), "it is told once");
    }
}
