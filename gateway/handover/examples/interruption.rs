//! Measures how long packets wait while a gateway with many mappings is taken over.
//!
//! Two gateways between cables in memory, in one process. The old gateway gets the given number of
//! UDP mappings, and then datagrams of all of them, over and over, while the new one takes over. So
//! every mapping can have changed since the last pass, which is the worst case.
//!
//! `cargo run --release -p natgate-handover --example interruption -- 1000000`

use natgate_engine::{AddressRange, Config, Limits, PoolConfig, Prefix, SideConfig};
use natgate_gateway::{Clock, Controls, Settings, SideSettings, Worker, commands};
use natgate_handover::{Asker, Giver, Grant, Heir, path_beside};
use natgate_io::Device;
use natgate_io::memory::{self, Wire};
use natgate_wire::Ipv4;
use natgate_wire::arp::Mac;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Mappings of one subscriber.
const EACH: u32 = 500;

fn settings(mappings: u32) -> Settings {
    let side = |address: [u8; 4], len| {
        let address = Ipv4Addr::from(address);
        let settings = SideSettings {
            address: Some((address, len)),
            ..SideSettings::new(address.to_string())
        };
        let network = Some(Prefix::new(address, len));
        (settings, SideConfig { address: Some(address), network, ..SideConfig::default() })
    };
    let (inside, of_inside) = side([10, 0, 0, 1], 8);
    let (outside, of_outside) = side([192, 0, 2, 1], 24);
    let first = Ipv4Addr::new(203, 0, 112, 0);
    let last = Ipv4Addr::from_bits(first.to_bits() + mappings / 50_000 + 1);
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![AddressRange { first, last }],
        ..PoolConfig::default()
    };
    // No host answers here, and the table is to be full.
    let limits =
        Limits { mappings: Some(mappings + 1000), unanswered_give_way: false, ..Limits::default() };
    let engine = Config {
        inside: of_inside,
        outside: of_outside,
        pools: vec![pool],
        limits,
        ..Config::default()
    };
    Settings::new(engine, inside, outside)
}

fn worker(settings: &Settings, clock: &Clock) -> (Worker, Wire) {
    let ((inside, wire), (outside, _)) =
        (memory::pair("in", INSIDE), memory::pair("out", Mac([2, 0, 0, 0, 0, 2])));
    let devices: [Box<dyn Device>; 2] = [Box::new(inside), Box::new(outside)];
    (Worker::new(settings, [7; 32], devices, clock.now()).expect("it can be"), wire)
}

/// A datagram of mapping `number`.
fn datagram(number: u32) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[..6].copy_from_slice(&INSIDE.0);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 1, 5, 8, 0]);
    let mut packet = Ipv4::init(&mut frame[14..], 20);
    packet.set_total_len(28);
    packet.set_ttl(64);
    packet.set_protocol(natgate_wire::protocol::UDP);
    packet.set_source(Ipv4Addr::new(10, 1, 0, 0).to_bits() + number / EACH);
    packet.set_destination(Ipv4Addr::new(192, 0, 2, 9).to_bits());
    packet.fill_checksum();
    frame[34..36].copy_from_slice(&(2000 + (number % EACH) as u16).to_be_bytes());
    frame[36..40].copy_from_slice(&[0, 53, 0, 8]);
    frame
}

/// Processor time of all threads so far. On a shared machine it is a better measure than the clock.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn main() {
    let mappings: u32 =
        std::env::args().nth(1).and_then(|all| all.parse().ok()).unwrap_or(1_000_000);
    let (settings, clock) = (settings(mappings), Clock::new());
    let (mut old, wire) = worker(&settings, &clock);
    for number in 0..mappings {
        while !wire.send(&datagram(number)) {
            old.turn(clock.now(), &mut ());
        }
    }
    while old.turn(clock.now(), &mut ()) > 0 {}
    let there = old.status(clock.now()).engine.count_mappings();
    println!("{there} mappings");

    let (wake, waker) = UnixStream::pair().expect("sockets");
    wake.set_nonblocking(true).expect("a socket");
    let (commander, commands) = commands(waker.try_clone().expect("a socket"));
    old.obey(commands);
    let (stop, status, done) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let path = path_beside(&std::env::temp_dir().join(format!("natgate-{}", std::process::id())));
    let config = settings.engine.clone();
    let grant = move |_: Asker| {
        let (config, handed) = (config.clone(), Box::new(|| ()));
        Ok(Grant { config, workers: 1, gates: None, handed, hold: () })
    };
    let giver = Giver::listen(&path, commander, clock, grant, || ()).expect("a socket");
    thread::scope(|scope| {
        scope.spawn(|| {
            let controls = Controls { stop: &stop, status: &status, wake: &wake };
            natgate_gateway::run(&mut old, &clock, &controls, &mut ()).expect("it waits");
        });
        scope.spawn(|| {
            for number in (0..mappings).cycle() {
                while !wire.send(&datagram(number)) {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    thread::sleep(Duration::from_micros(100));
                }
            }
        });
        let mut heir = Heir::ask(&path, 1, false).expect("it hands over");
        let (mut new, _wire) = worker(&settings, &heir.clock());
        let began = Instant::now();
        heir.fill(std::slice::from_mut(&mut new)).expect("it hands over");
        println!("filled while packets flowed in {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
        let busy = processor_time();
        let taken = heir.take(std::slice::from_mut(&mut new), |_| Ok(())).expect("it hands over");
        println!(
            "{} mappings taken over; packets waited for {:.1} ms; both sides together computed for \
             {:.1} ms",
            taken.restored.mappings,
            taken.since.elapsed().as_secs_f64() * 1e3,
            (processor_time() - busy).as_secs_f64() * 1e3
        );
        done.store(true, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        let _ = (&waker).write_all(&[0]);
    });
    drop(giver);
}
