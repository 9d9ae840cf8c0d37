//! Threads that execute one NAT: the two directions of a flow come to any of them.

use super::{NEIGHBOURS, OWN, all, fill, framed, nat, udp};
use natgate_io::Device;
use natgate_io::memory::{Wire, group};
use natgate_p4::{Answer, Counts, Machine, Request, Switch, Target, Team};
use natgate_wire::arp::Mac;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 2;
/// Flows of four hosts. The same ports of all of them are wanted on one external address.
const FLOWS: u16 = 200;
const ROUNDS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// Host, port, and remote port of a flow.
fn flow(number: u16) -> (u16, u16, u16) {
    (1 + number / 50, 4000 + 8 * (number % 50), 10_000 + number)
}

fn port(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// Takes one frame of each flow from a wire; returns them by the number of the flow, which `of`
/// reads.
fn collect(wire: &Wire, of: impl Fn(&[u8]) -> u16) -> Vec<Vec<u8>> {
    let (mut frames, begun) = (vec![Vec::new(); FLOWS.into()], Instant::now());
    while frames.iter().any(Vec::is_empty) {
        assert!(begun.elapsed() < PATIENCE, "some flows are missing");
        match wire.take() {
            Some(frame) => {
                let number = usize::from(of(&frame));
                assert!(frames[number].is_empty(), "flow {number} twice");
                frames[number] = frame;
            }
            None => thread::yield_now(),
        }
    }
    frames
}

/// Sends packets of all flows out, and an answer to each.
fn round(lan: &Wire, wan: &Wire) -> BTreeSet<Vec<u8>> {
    for number in 0..FLOWS {
        let (host, port, remote) = flow(number);
        let out = format!("udp 10.0.0.{host}:{port} > 198.51.100.1:{remote} bytes=5 ttl=64");
        assert!(lan.send(&framed(OWN[0], NEIGHBOURS[0], 0x0800, &udp(&out))));
    }
    let mut external = BTreeSet::new();
    for frame in collect(wan, |frame| port(frame, 36) - 10_000) {
        assert!(external.insert([&frame[26..30], &frame[34..36]].concat()), "each has its own");
        let (source, remote) = (port(&frame, 34), port(&frame, 36));
        let back = format!("udp 198.51.100.1:{remote} > 203.0.113.1:{source} bytes=5 ttl=64");
        assert!(wan.send(&framed(OWN[1], NEIGHBOURS[1], 0x0800, &udp(&back))));
    }
    let answers = collect(lan, |frame| port(frame, 34) - 10_000);
    for (number, frame) in (0..).zip(answers) {
        let (host, own, _) = flow(number);
        assert_eq!((u16::from(frame[33]), port(&frame, 36)), (host, own), "flow {number}");
    }
    external
}

fn check(by: &str, mut machine: Machine<'_>) {
    fill(&mut machine, (1024, 65_535));
    let team = Arc::new(Team::new(vec![machine]));
    // Inside the host decides, outside the remote port, so directions of a flow differ.
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let (inside, lan) = group("inside", mac, THREADS, |frame| usize::from(frame[29]) % THREADS);
    let (outside, wan) = group("outside", mac, THREADS, |frame| usize::from(frame[35]) % THREADS);
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    let counts = thread::scope(|scope| {
        let devices = inside.into_iter().zip(outside).enumerate();
        let threads: Vec<_> = devices
            .map(|(number, (inside, outside))| {
                let devices: [Box<dyn Device>; 2] = [Box::new(inside), Box::new(outside)];
                let mut switch = Switch::of_team(&team, number, devices);
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if switch.turn(begun.elapsed()) == 0 {
                            thread::yield_now();
                        }
                    }
                    switch.counts()
                })
            })
            .collect();
        let rounds = (0..ROUNDS).map(|_| round(&lan, &wan));
        // A panic in the rounds must end the other threads.
        let rounds = scope.spawn(move || rounds.collect::<Vec<_>>());
        let same = rounds.join().unwrap_or_default();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(same.len() as u64, ROUNDS, "{by}: all rounds pass");
        assert!(same.iter().all(|ends| *ends == same[0]), "{by}: mappings stay");
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect::<Vec<_>>()
    });
    assert!(counts.iter().all(|counts| counts.sent > 0 && counts.lost == 0), "{by}: {counts:?}");
    let total: Counts = counts.into_iter().sum();
    assert_eq!((total.sent, total.dropped), (2 * ROUNDS * u64::from(FLOWS), 0), "{by}");
    let mut held = team.hold(begun.elapsed());
    let counter = Request::Counters { counter: "subscriber_out".to_owned(), from: 7, most: 1 };
    let Ok(Answer::Counters(cells)) = held.answer(&counter) else { panic!("{by}: no counters") };
    assert_eq!(cells[0].1, ROUNDS * u64::from(FLOWS), "{by}");
    for table in ["upload", "download"] {
        let rows = Request::Rows { table: table.to_owned(), after: None, most: 1000 };
        let Ok(Answer::Rows(rows)) = held.answer(&rows) else { panic!("{by}: no rows") };
        assert_eq!(rows.len(), usize::from(FLOWS), "{by}: {table}");
    }
}

#[test]
fn threads_translate_as_one() {
    let program = nat();
    let (_turn, machines) = all(&program);
    machines.into_iter().for_each(|(by, machine)| check(by, machine));
}
