//! A program that several threads execute.

mod common;

use common::{Parts, program};
use natgate_io::memory::{MemoryDevice, Wire, pair};
use natgate_p4::{
    Answer, Key, MOST_REQUESTS, Machine, MachineError, Notification, Program, Request, Row, Switch,
    Target, Team, compile, request_queue,
};
use natgate_wire::arp::Mac;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

fn compiled(decls: &str, locals: &str, body: &str) -> Program {
    let text = program(Parts { decls, locals, body, ..Parts::default() });
    compile("test.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()))
}

/// A program whose packets leave nothing for later packets.
fn without_state() -> Program {
    compiled(
        "struct news_t { bit<16> b; }",
        "Counter<bit<8>, bit<16>>(2, PNA_CounterType_t.PACKETS_AND_BYTES) passed;
         Digest<news_t>() news;
         action set(bit<32> x) { hdr.words.c = x; }
         table one {
             key = { hdr.words.a : exact; }
             actions = { set; NoAction; }
             default_action = NoAction();
             size = 4;
         }",
        "one.apply(); passed.count(1, 100); if (hdr.words.b != 0) { news.pack({hdr.words.b}); }",
    )
}

/// A program that writes its number of earlier packets into each packet.
fn counting() -> Program {
    compiled(
        "",
        "Register<bit<32>, bit<16>>(1) count;",
        "hdr.words.c = count.read(0); count.write(0, hdr.words.c + 1);",
    )
}

/// A thread's switch, and the other ends of its devices.
fn member<'p>(team: &Arc<Team<'p>>, thread: usize) -> (Switch<'p>, [Wire; 2]) {
    let port = |name| -> (MemoryDevice, Wire) { pair(name, Mac([2, 0, 0, 0, 0, 1])) };
    let ((first, one), (second, two)) = (port("one"), port("two"));
    (Switch::of_team(team, thread, [Box::new(first), Box::new(second)]), [one, two])
}

/// Sends a packet through a switch; returns the word that the program wrote.
fn word(switch: &mut Switch<'_>, [one, two]: &[Wire; 2], a: u8, b: u8) -> u32 {
    assert!(one.send(&[0, a, 0, b, 0, 0, 0, 0]));
    assert_eq!(switch.turn(NOW), 1);
    let frame = two.take().expect("it leaves");
    u32::from_be_bytes(frame[4..8].try_into().expect("four bytes"))
}

fn row(value: u32) -> Row {
    Row {
        table: "one".to_owned(),
        keys: vec![Key::Exact(1)],
        priority: 0,
        action: "set".to_owned(),
        args: vec![value.into()],
    }
}

fn counters(team: &Team<'_>) -> Vec<(u32, u64, u64)> {
    let request = Request::Counters { counter: "passed".to_owned(), from: 0, most: 9 };
    match team.hold(NOW).answer(&request) {
        Ok(Answer::Counters(cells)) => cells,
        other => panic!("{other:?}"),
    }
}

#[test]
fn copies_answer_as_one_program() {
    let program = without_state();
    assert!(program.packet_state().is_empty());
    let machines = (0..2).map(|seed| Machine::new(&program, seed)).collect();
    let team = Arc::new(Team::new(machines));
    let [(mut one, to_one), (mut two, to_two)] = [member(&team, 0), member(&team, 1)];
    let ask = |request: &Request| team.hold(NOW).answer(request);

    assert_eq!(ask(&Request::Insert(row(41))), Ok(Answer::Done));
    assert!(matches!(ask(&Request::Insert(row(42))), Err(MachineError::Exists(_))));
    assert_eq!((word(&mut one, &to_one, 1, 0), word(&mut two, &to_two, 1, 0)), (41, 41));
    let rows = Request::Rows { table: "one".to_owned(), after: None, most: 9 };
    assert!(matches!(ask(&rows), Ok(Answer::Rows(all)) if all.len() == 1));
    let default =
        Request::SetDefault { table: "one".to_owned(), action: Some(("set".to_owned(), vec![7])) };
    assert_eq!(ask(&default), Ok(Answer::Done));
    assert_eq!((word(&mut one, &to_one, 2, 0), word(&mut two, &to_two, 2, 0)), (7, 7));

    // Bytes have eight bits.
    assert_eq!(counters(&team), [(0, 0, 0), (1, 4, 400 % 256)]);
    let set = |index| Request::SetCounter { counter: "passed".to_owned(), index, value: (9, 5) };
    assert_eq!(ask(&set(1)), Ok(Answer::Done));
    assert!(ask(&set(2)).is_err());
    assert_eq!(counters(&team), [(0, 0, 0), (1, 9, 5)]);
    word(&mut two, &to_two, 1, 0);
    assert_eq!(counters(&team), [(0, 0, 0), (1, 10, 105)]);

    let notifications = |most| match ask(&Request::Notifications { most }) {
        Ok(Answer::Notifications(told)) => told,
        other => panic!("{other:?}"),
    };
    assert_eq!(notifications(9), []);
    for number in 1..4 {
        word(&mut one, &to_one, 1, number);
        word(&mut two, &to_two, 1, 10 + number);
    }
    let news = |of: &[u128]| -> Vec<Notification> {
        let digest =
            |b: &u128| Notification::Digest { name: "Main.news".to_owned(), values: vec![*b] };
        of.iter().map(digest).collect()
    };
    assert_eq!(notifications(3), news(&[1, 2, 11]), "each copy has a share");
    assert_eq!(notifications(9), news(&[3, 12, 13]));

    assert_eq!(ask(&Request::Clear), Ok(Answer::Done));
    assert_eq!((word(&mut one, &to_one, 1, 0), word(&mut two, &to_two, 1, 0)), (0, 0));
    assert_eq!(counters(&team), [(0, 0, 0), (1, 2, 200)]);
}

#[test]
fn what_a_packet_leaves_is_there_for_the_next_in_any_thread() {
    const EACH: u32 = 2000;
    let program = counting();
    assert_eq!(program.packet_state(), ["Main.count"]);
    let team = Arc::new(Team::new(vec![Machine::new(&program, 0)]));
    let begin = Barrier::new(3);
    let mut found: Vec<u32> = thread::scope(|scope| {
        let run = |number| {
            let (mut switch, wires) = member(&team, number);
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                let words = (0..EACH).map(|_| word(&mut switch, &wires, 0, 0));
                let words: Vec<u32> = words.collect();
                assert!(words.is_sorted(), "each packet finds what the one before it left");
                words
            })
        };
        let threads = [0, 1, 2].map(run);
        threads.map(|thread| thread.join().expect("it ends")).concat()
    });
    found.sort_unstable();
    assert_eq!(found, (0..3 * EACH).collect::<Vec<_>>());
}

#[test]
fn a_change_reaches_all_copies_at_once_while_packets_pass() {
    const LAST: u32 = 500;
    let program = without_state();
    let machines = (0..2).map(|seed| Machine::new(&program, seed)).collect();
    let team = Arc::new(Team::new(machines));
    assert_eq!(team.hold(NOW).answer(&Request::Insert(row(0))), Ok(Answer::Done));
    // The latest value that a controller has written or a packet has shown.
    let (latest, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let passed: u64 = thread::scope(|scope| {
        let run = |number| {
            let (mut switch, wires) = member(&team, number);
            let (latest, stop) = (&latest, &stop);
            scope.spawn(move || {
                let mut passed = 0;
                while !stop.load(Ordering::SeqCst) {
                    let before = latest.load(Ordering::SeqCst);
                    let found = word(&mut switch, &wires, 1, 0);
                    assert!(found >= before, "{found} after {before}");
                    latest.fetch_max(found, Ordering::SeqCst);
                    passed += 1;
                }
                passed
            })
        };
        let threads = [0, 1].map(run);
        for value in 1..=LAST {
            let done = team.hold(NOW).answer(&Request::Modify(row(value)));
            assert_eq!(done, Ok(Answer::Done));
            latest.fetch_max(value, Ordering::SeqCst);
        }
        stop.store(true, Ordering::SeqCst);
        threads.map(|thread| thread.join().expect("it ends")).iter().sum()
    });
    let (_, packets, _) = counters(&team)[1];
    assert_eq!(packets, passed % 256);
}

#[test]
fn packets_pass_while_two_controllers_ask_without_pause() {
    const FRAMES: u32 = 2000;
    let program = without_state();
    let machines = (0..2).map(|seed| Machine::new(&program, seed)).collect();
    let team = Arc::new(Team::new(machines));
    let (controller, requests) = request_queue();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (controller, stop) = (controller.clone(), &stop);
            scope.spawn(move || {
                let rows = Request::Rows { table: "one".to_owned(), after: None, most: 9 };
                while !stop.load(Ordering::SeqCst) {
                    let answers = controller.ask_all(vec![rows.clone(); MOST_REQUESTS]);
                    assert_eq!(answers.expect("the team answers").len(), MOST_REQUESTS);
                }
            });
        }
        drop(controller);
        let workers = [0, 1].map(|number| {
            let (mut switch, wires) = member(&team, number);
            scope.spawn(move || {
                (0..FRAMES).for_each(|_| assert_eq!(word(&mut switch, &wires, 1, 0), 0))
            })
        });
        // As long as there are controllers.
        while let Some(message) = requests.wait(Duration::MAX) {
            message.answer(&mut team.hold(NOW));
            if workers.iter().all(thread::ScopedJoinHandle::is_finished) {
                stop.store(true, Ordering::SeqCst);
            }
        }
    });
}

#[test]
#[should_panic(expected = "only a program without a state of packets has copies")]
fn a_program_with_a_state_of_packets_has_no_copies() {
    let program = counting();
    Team::new((0..2).map(|seed| Machine::new(&program, seed)).collect());
}
