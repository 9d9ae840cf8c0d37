//! Two gateways in one process, between cables in memory: a take-over, and failures of one.

use crate::message::Message;
use crate::{Asker, Gates, Giver, Grant, HandoverError, Heir, path_beside};
use natgate_engine::{
    AddressRange, Config, MappingInfo, PoolConfig, Prefix, SideConfig, Timestamp,
};
use natgate_gateway::ipv6::{CarriedHost, CarriedPath, Prefix6};
use natgate_gateway::{
    Clock, Commander, Controls, Division, Legacy, Settings, SideSettings, Worker, WorkerSettings,
    team, team_commands,
};
use natgate_io::Device;
use natgate_io::memory::{self, Wire};
use natgate_wire::Ipv4;
use natgate_wire::arp::Mac;
use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PATIENCE: Duration = Duration::from_secs(20);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn settings(workers: usize) -> Settings {
    let side = |address: [u8; 4], len| {
        let address = Ipv4Addr::from(address);
        let settings = SideSettings {
            address: Some((address, len)),
            ..SideSettings::new(address.to_string())
        };
        let network = Some(Prefix::new(address, len));
        (settings, SideConfig { address: Some(address), network, ..SideConfig::default() })
    };
    let ((inside, of_inside), (outside, of_outside)) =
        (side([10, 0, 0, 1], 8), side([192, 0, 2, 1], 24));
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![AddressRange { first: EXTERNAL, last: EXTERNAL }],
        ..PoolConfig::default()
    };
    let engine =
        Config { inside: of_inside, outside: of_outside, pools: vec![pool], ..Config::default() };
    Settings {
        workers: WorkerSettings { count: workers, cores: Vec::new() },
        ..Settings::new(engine, inside, outside)
    }
}

/// Workers with cables in memory; for each the stream that it waits for and the one that wakes it.
fn workers(
    settings: &Settings,
    clock: &Clock,
) -> (Vec<Worker>, Vec<Wire>, Vec<(UnixStream, UnixStream)>) {
    let ends = || {
        let (wake, waker) = UnixStream::pair().unwrap();
        wake.set_nonblocking(true).unwrap();
        (wake, waker)
    };
    let count = settings.workers.count;
    let ends: Vec<_> = (0..count).map(|_| ends()).collect();
    let (devices, wires): (Vec<_>, Vec<_>) = (0..count).map(|_| devices()).unzip();
    if count == 1 {
        let devices = devices.into_iter().next().unwrap();
        return (vec![Worker::new(settings, [7; 32], devices, clock.now()).unwrap()], wires, ends);
    }
    let wakers = ends.iter().map(|(_, waker)| waker.try_clone().unwrap()).collect();
    let members = team(settings, wakers).into_iter().zip(devices);
    let worker = |(member, devices)| {
        Worker::of_team(settings, [7; 32], devices, member, clock.now()).unwrap()
    };
    (members.map(worker).collect(), wires, ends)
}

/// Devices of a worker, and the other end of the inside's cable.
fn devices() -> (Vec<Box<dyn Device>>, Wire) {
    let ((inside, wire), (outside, _)) = (memory::pair("in", INSIDE), memory::pair("out", OUTSIDE));
    (vec![Box::new(inside), Box::new(outside)], wire)
}

/// A gateway at work that can be taken over.
struct Old {
    /// Inside cable of the first worker; replaced when its devices have been opened again.
    wire: Arc<Mutex<Wire>>,
    wakers: Vec<UnixStream>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Worker>>,
    commander: Commander,
    clock: Clock,
    giver: Giver,
    path: PathBuf,
    gone: Arc<AtomicBool>,
    /// Refusal that the gateway answers, if any.
    refusal: Arc<Mutex<Option<&'static str>>>,
    /// Number of times that the devices were closed, and opened again.
    closed: Arc<AtomicU32>,
    opened: Arc<AtomicU32>,
}

impl Old {
    fn start() -> Self {
        Self::with(1, false)
    }

    /// Starts a gateway of `count` workers. `closes` says that it closes its devices first.
    fn with(count: usize, closes: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("natgate-handover-{}-{number}.sock", std::process::id());
        let path = path_beside(&std::env::temp_dir().join(name));
        let (settings, clock) = (settings(count), Clock::new());
        let (mut workers, wires, ends) = workers(&settings, &clock);
        let (wakes, wakers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let told = wakers.iter().map(|waker| waker.try_clone().unwrap()).collect();
        let (commander, commands) = team_commands(told);
        workers.iter_mut().zip(commands).for_each(|(worker, commands)| worker.obey(commands));
        let stop = Arc::new(AtomicBool::new(false));
        let run = |(mut worker, wake): (Worker, UnixStream)| {
            let stops = Arc::clone(&stop);
            thread::spawn(move || {
                let status = AtomicBool::new(false);
                let controls = Controls { stop: &stops, status: &status, wake: &wake };
                natgate_gateway::run(&mut worker, &clock, &controls, &mut ()).unwrap();
                worker
            })
        };
        let threads = workers.into_iter().zip(wakes).map(run).collect();
        let wire = Arc::new(Mutex::new(wires.into_iter().next().unwrap()));
        let (gone, refusal) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (closed, opened) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (went, refuses) = (Arc::clone(&gone), Arc::clone(&refusal));
        let gates = {
            let (wire, closed, opened) =
                (Arc::clone(&wire), Arc::clone(&closed), Arc::clone(&opened));
            move || {
                let (wire, closed, opened) =
                    (Arc::clone(&wire), Arc::clone(&closed), Arc::clone(&opened));
                let stand_in = move || {
                    closed.fetch_add(1, Ordering::Relaxed);
                    Ok((0..count).map(|_| devices().0).collect())
                };
                let open = move || {
                    opened.fetch_add(1, Ordering::Relaxed);
                    let (devices, wires): (Vec<_>, Vec<_>) = (0..count).map(|_| devices()).unzip();
                    *wire.lock().unwrap() = wires.into_iter().next().unwrap();
                    devices
                };
                Gates { stand_in: Box::new(stand_in), open: Box::new(open) }
            }
        };
        let config = match count {
            1 => settings.engine.clone(),
            count => settings.engine.share(count as u32),
        };
        let handed = Arc::new(AtomicBool::new(false));
        let hands = Arc::clone(&handed);
        let grant = move |asker: Asker| {
            assert_eq!(asker.process, std::process::id());
            if let Some(sentence) = *refuses.lock().unwrap() {
                return Err(String::from(sentence));
            }
            let hands = Arc::clone(&hands);
            Ok(Grant {
                config: config.clone(),
                workers: count,
                gates: (closes || asker.closes).then(&gates),
                handed: Box::new(move || hands.store(true, Ordering::Release)),
                hold: (),
            })
        };
        // The outside learns of the hand-over before the heir does.
        let gone_is = move || went.store(handed.load(Ordering::Acquire), Ordering::Release);
        let giver = Giver::listen(&path, commander.clone(), clock, grant, gone_is).unwrap();
        Self {
            wire,
            wakers,
            stop,
            threads,
            commander,
            clock,
            giver,
            path,
            gone,
            refusal,
            closed,
            opened,
        }
    }

    /// Sends a datagram of a subscriber from a port.
    fn send(&self, port: u16) {
        self.send_from(5, port);
    }

    fn send_from(&self, host: u8, port: u16) {
        assert!(self.wire.lock().unwrap().send(&datagram(host, port)));
        (&self.wakers[0]).write_all(&[0]).unwrap();
    }

    /// Waits until the gateway has this number of mappings.
    fn has(&self, mappings: u64) {
        let there = || -> u64 {
            let figures = self.commander.figures().unwrap();
            figures.iter().map(|one| one.totals.mappings).sum()
        };
        let began = Instant::now();
        while there() < mappings {
            assert!(began.elapsed() < PATIENCE, "{} of {mappings} mappings", there());
            thread::yield_now();
        }
    }

    /// Numbers of closings and openings of the devices.
    fn times(&self) -> (u32, u32) {
        (self.closed.load(Ordering::Relaxed), self.opened.load(Ordering::Relaxed))
    }

    /// Waits until the gateway has taken the sent frames: it looks at its devices between two
    /// answers.
    fn settle(&self) {
        (0..2).for_each(|_| drop(self.commander.numbered().unwrap()));
    }

    /// Stops the gateway; returns the mappings of each worker.
    fn end(self) -> Vec<Vec<MappingInfo>> {
        self.stop.store(true, Ordering::Relaxed);
        for mut waker in self.wakers {
            waker.write_all(&[0]).unwrap();
        }
        drop(self.giver);
        let ended = self.threads.into_iter().map(|thread| thread.join().unwrap());
        ended.map(|mut worker| mappings(&mut worker, &self.clock)).collect()
    }

    /// Stops a gateway of one worker after it has taken the sent frames; returns its mappings.
    fn mappings(self) -> Vec<MappingInfo> {
        self.settle();
        self.end().remove(0)
    }
}

fn datagram(host: u8, port: u16) -> Vec<u8> {
    let mut frame = vec![0; 14 + 28];
    frame[..6].copy_from_slice(&INSIDE.0);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 1, 5, 8, 0]);
    let mut packet = Ipv4::init(&mut frame[14..], 20);
    packet.set_total_len(28);
    packet.set_ttl(64);
    packet.set_protocol(natgate_wire::protocol::UDP);
    packet.set_source(Ipv4Addr::new(10, 0, 0, host).to_bits());
    packet.set_destination(Ipv4Addr::new(192, 0, 2, 9).to_bits());
    packet.fill_checksum();
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..40].copy_from_slice(&[0, 53, 0, 8]);
    frame
}

fn mappings(worker: &mut Worker, clock: &Clock) -> Vec<MappingInfo> {
    let mut all: Vec<_> = worker.status(clock.now()).engine.mappings().collect();
    all.sort_by_key(|mapping| (mapping.id.internal.address, mapping.id.internal.port));
    all
}

fn nothing_to_open(_: &mut [Worker]) -> Result<(), String> {
    Err("devices are there already".to_owned())
}

#[test]
fn a_new_process_has_what_the_old_one_had_and_the_old_one_lets_go() {
    let old = Old::start();
    (4000..4100).for_each(|port| old.send(port));
    old.settle();
    let mut heir = Heir::ask(&old.path, 1, false).unwrap();
    let (mut new, ..) = workers(&settings(1), &heir.clock());
    heir.fill(&mut new).unwrap();
    // Packets flow meanwhile.
    (4100..4120).for_each(|port| old.send(port));
    old.settle();
    let taken = heir.take(&mut new, nothing_to_open).unwrap();
    assert_eq!(taken.restored.left_out, [0; 4]);
    assert!(!heir.closes());
    let there = mappings(&mut new[0], &old.clock);
    // The old gateway does not take packets that come now.
    old.send(5000);
    let before = old.mappings();
    assert_eq!(before, there);
    assert_eq!(before.len(), 120);
}

#[test]
fn each_of_several_workers_goes_on_as_one_did() {
    let old = Old::with(2, false);
    (2..60).for_each(|host| old.send_from(host, 4000));
    old.has(58);
    let mut heir = Heir::ask(&old.path, 2, false).unwrap();
    let (mut new, ..) = workers(&settings(2), &heir.clock());
    heir.fill(&mut new).unwrap();
    (2..60).for_each(|host| old.send_from(host, 5000));
    old.has(116);
    let taken = heir.take(&mut new, nothing_to_open).unwrap();
    assert_eq!((taken.restored.mappings, taken.restored.left_out), (116, [0; 4]));
    let there: Vec<_> = new.iter_mut().map(|worker| mappings(worker, &old.clock)).collect();
    let before = old.end();
    assert_eq!(before, there);
    assert!(before.iter().all(|own| !own.is_empty()));
}

#[test]
fn devices_that_two_processes_cannot_have_are_closed_before_others_are_opened() {
    let old = Old::with(1, true);
    old.send(4000);
    old.has(1);
    // The new process cannot open its devices: the old one opens its own, and continues.
    let mut heir = Heir::ask(&old.path, 1, false).unwrap();
    assert!(heir.closes());
    let (mut new, ..) = workers(&settings(1), &heir.clock());
    heir.fill(&mut new).unwrap();
    let error = heir.take(&mut new, |_| Err("no such device".to_owned())).unwrap_err();
    drop(heir);
    assert!(error.to_string().starts_with("no such device; the natgate that runs"), "{error}");
    // When the giver serves the next heir, the last attempt is over.
    let mut heir = Heir::ask(&old.path, 1, true).unwrap();
    assert_eq!(old.times(), (1, 1));
    old.send(4001);
    old.has(2);
    let (mut new, ..) = workers(&settings(1), &heir.clock());
    heir.fill(&mut new).unwrap();
    let mut is_open = false;
    let open = |workers: &mut [Worker]| {
        let (devices, _) = devices();
        workers[0].set_devices(devices);
        is_open = true;
        Ok(())
    };
    let taken = heir.take(&mut new, open).unwrap();
    assert_eq!((taken.restored.mappings, is_open), (2, true));
    assert_eq!(old.times(), (2, 1));
    drop(old.end());
}

#[test]
fn whoever_breaks_off_leaves_the_old_one_at_work() {
    let old = Old::start();
    old.send(4000);
    // The heir breaks off at once, after having read everything, after the stop, and instead of the
    // last message.
    drop(Heir::ask(&old.path, 1, false).unwrap());
    let mut heir = Heir::ask(&old.path, 1, false).unwrap();
    let (mut new, ..) = workers(&settings(1), &heir.clock());
    heir.fill(&mut new).unwrap();
    drop(heir);
    for last in [None, Some(Message::More)] {
        let stream = UnixStream::connect(&old.path).unwrap();
        Message::hello(1, false).send(&stream).unwrap();
        assert!(matches!(Message::receive(&stream).unwrap(), Message::Welcome { .. }));
        Message::Stop.send(&stream).unwrap();
        assert!(matches!(Message::receive(&stream).unwrap(), Message::Halted(_)));
        while !matches!(Message::receive(&stream).unwrap(), Message::Over(_)) {}
        if let Some(last) = last {
            last.send(&stream).unwrap();
            // The giver closes the connection.
            assert!(matches!(Message::receive(&stream), Err(HandoverError::Lost(_))));
        }
    }
    // Bytes that are no message.
    let mut stream = UnixStream::connect(&old.path).unwrap();
    stream.write_all(&[7; 64]).unwrap();
    let ended = stream.read(&mut [0; 8]);
    assert!(
        matches!(&ended, Ok(0))
            || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    );
    // Heirs are served one after the other: when this one is, all attempts before are over.
    drop(Heir::ask(&old.path, 1, false).unwrap());
    old.send(4001);
    assert!(!old.gone.load(Ordering::Acquire));
    assert_eq!(old.mappings().len(), 2);
}

#[test]
fn a_refusal_says_why_and_an_absent_process_is_named() {
    let old = Old::start();
    *old.refusal.lock().unwrap() = Some("it has 2 workers, the new one 1");
    let error = Heir::ask(&old.path, 1, false).unwrap_err();
    let said = "the natgate that runs does not hand over: it has 2 workers, the new one 1";
    assert_eq!(error.to_string(), said);
    let path = old.path.clone();
    assert_eq!(old.mappings().len(), 0);
    let error = Heir::ask(&path, 1, false).unwrap_err().to_string();
    assert!(error.starts_with("no natgate hands over at "), "{error}");
}

#[test]
fn another_version_is_refused() {
    let old = Old::start();
    let stream = UnixStream::connect(&old.path).unwrap();
    Message::Hello { version: u16::MAX, workers: 1, process: 1, closes: false }
        .send(&stream)
        .unwrap();
    let Message::Refused(sentence) = Message::receive(&stream).unwrap() else { panic!("refused") };
    assert!(sentence.contains("the new one reads version 65535"), "{sentence}");
    assert!(sentence.contains("restart natgate instead"), "{sentence}");
    drop(old.mappings());
}

#[test]
fn messages_come_through_and_damaged_ones_do_not() {
    let known = natgate_gateway::KnownNeighbor {
        link: natgate_gateway::Link::OUTSIDE,
        address: EXTERNAL,
        mac: OUTSIDE,
    };
    let all = [
        Message::hello(3, true),
        Message::Welcome { time: 5, steady: 7, closes: false },
        Message::Refused("no".into()),
        Message::More,
        Message::Stop,
        Message::Halted(Legacy { known: vec![known], ..Legacy::default() }),
        Message::Halted(Legacy {
            known: Vec::new(),
            epochs: vec![Timestamp(9), Timestamp(8)],
            addresses: vec![AddressRange { first: EXTERNAL, last: EXTERNAL }],
            division: Some(Division {
                buckets: vec![(1, 2), (0, 0)],
                addresses: vec![(3, vec![(1000, 0), (24, 1)])],
            }),
            ..Legacy::default()
        }),
        Message::Hosts {
            worker: 1,
            hosts: vec![CarriedHost { address: 5 << 64 | 7, inner: 9, number: 11 }],
        },
        Message::Paths {
            worker: 1,
            paths: vec![CarriedPath {
                host: "2001:db8::5".parse().unwrap(),
                remote: EXTERNAL,
                prefix: Prefix6 { address: "2001:db8:64::".parse().unwrap(), len: 96 },
            }],
        },
        Message::Flows { worker: 2, flows: vec![vec![], vec![4, 5, 6]] },
        Message::Records { worker: 1, records: vec![1, 2, 3] },
        Message::Over(9),
        Message::Close,
        Message::Closed,
        Message::Taken,
        Message::Yours,
    ];
    for message in all {
        let mut bytes = Vec::new();
        message.send(&mut bytes).unwrap();
        assert_eq!(Message::receive(&bytes[..]).unwrap(), message);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x41;
            assert!(Message::receive(&other[..]).is_err(), "{message:?} with byte {at} changed");
            assert!(Message::receive(&bytes[..at]).is_err());
        }
    }
}
