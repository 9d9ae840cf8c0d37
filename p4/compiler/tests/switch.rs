//! A program between two devices.

mod common;

use common::{Parts, program};
use natgate_io::memory::{MemoryDevice, Wire, pair};
use natgate_p4::{Answer, Counts, Machine, Notification, Request, Switch, compile, request_queue};
use natgate_wire::arp::Mac;
use std::time::Duration;

fn port(name: &str) -> (MemoryDevice, Wire) {
    pair(name, Mac([2, 0, 0, 0, 0, 1]))
}

#[test]
fn frames_leave_by_the_port_that_the_program_names() {
    // Sends to the port that `a` names, with one more header if `b` is 1; drops if `c` is set.
    let body = "
        send_to_port((PortId_t) (PortIdUint_t) (bit<32>) hdr.words.a);
        if (hdr.words.b == 1) { hdr.other = {7, 8, 9}; }
        if (hdr.words.c != 0) { drop_packet(); }";
    let text = program(Parts { body, ..Parts::default() });
    let program = compile("test.p4", &text).expect("a program");
    let ((first, one), (second, two)) = (port("one"), port("two"));
    let machine = Machine::new(&program, 0);
    let mut switch = Switch::new(machine, [Box::new(first), Box::new(second)]);
    let frame = |a: u8, b: u8, c: u8| vec![0, a, 0, b, 0, 0, 0, c, 0xaa];
    for (wire, frame) in [
        (&one, frame(2, 0, 0)),
        (&one, frame(1, 1, 0)),
        (&one, frame(3, 0, 0)),
        (&one, frame(0, 0, 0)),
        (&two, frame(1, 0, 0)),
        (&two, frame(1, 0, 1)),
    ] {
        assert!(wire.send(&frame));
    }
    assert_eq!((switch.turn(Duration::ZERO), switch.turn(Duration::ZERO)), (6, 0));
    assert_eq!((two.take(), two.take()), (Some(frame(2, 0, 0)), None));
    let longer = [&frame(1, 1, 0)[..8], &[0, 7, 0, 8, 0, 0, 0, 9, 0xaa]].concat();
    assert_eq!((one.take(), one.take(), one.take()), (Some(longer), Some(frame(1, 0, 0)), None));
    let counts = Counts { received: 6, sent: 3, dropped: 1, told: 0, elsewhere: 2, lost: 0 };
    assert_eq!(switch.counts(), counts);
    two.set_up(false);
    switch.maintain();
    assert!(one.send(&frame(2, 0, 0)));
    assert_eq!(switch.turn(Duration::ZERO), 1);
    assert_eq!(switch.counts().lost, 1, "the link is down");
    assert!(switch.counts().to_string().ends_with(" 1 lost"));
}

#[test]
fn controllers_that_listen_get_their_frames_and_digests() {
    let decls = "struct news_t { bit<16> a; }";
    let locals = "Digest<news_t>() news;";
    let body = "send_to_port((PortId_t) 0xfffffffd); news.pack({hdr.words.a});";
    let text = program(Parts { decls, locals, body, ..Parts::default() });
    let program = compile("test.p4", &text).expect("a program");
    let ((first, one), (second, _two)) = (port("one"), port("two"));
    let mut switch = Switch::new(Machine::new(&program, 0), [Box::new(first), Box::new(second)]);
    let (controller, requests) = request_queue();
    let frame = |a: u8| vec![0, a, 0, 0, 0, 0, 0, 0];
    let digest = |a| Notification::Digest { name: "Main.news".to_owned(), values: vec![a] };
    // A frame comes, then a controller asks.
    let mut after = |a: u8, millis, most| {
        assert!(one.send(&frame(a)));
        let now = Duration::from_millis(millis);
        assert_eq!(switch.turn(now), 1);
        let answer = std::thread::scope(|scope| {
            let asks = scope.spawn(|| controller.ask(Request::Notifications { most }));
            while !switch.answer(now, &requests) {
                std::thread::yield_now();
            }
            asks.join().expect("it ends").expect("an answer")
        });
        let Answer::Notifications(told) = answer else { panic!("{answer:?}") };
        (told, switch.counts().told)
    };
    assert_eq!(after(1, 0, 9), (vec![], 0), "nobody had asked yet");
    assert_eq!(after(2, 1, 9), (vec![Notification::Packet(frame(2)), digest(2)], 1));
    assert_eq!(after(3, 2, 1), (vec![Notification::Packet(frame(3))], 2));
    assert_eq!(after(4, 3, 9), (vec![Notification::Packet(frame(4)), digest(3), digest(4)], 3));
    assert_eq!(after(5, 2000, 9), (vec![], 3), "nobody had asked for long");
}

#[test]
fn frames_of_several_groups_leave_in_their_order() {
    let body = "send_to_port((PortId_t) (PortIdUint_t) (bit<32>) hdr.words.a);";
    let text = program(Parts { body, ..Parts::default() });
    let program = compile("test.p4", &text).expect("a program");
    let ((first, one), (second, two)) = (port("one"), port("two"));
    let machine = Machine::new(&program, 0);
    let mut switch = Switch::new(machine, [Box::new(first), Box::new(second)]);
    let frame = |number: u8| vec![0, 2 - number % 2, 0, number, 0, 0, 0, 0, number];
    assert!((0..40).all(|number| one.send(&frame(number))));
    while switch.turn(Duration::ZERO) > 0 {}
    for number in 0..40 {
        let wire = if number % 2 == 0 { &two } else { &one };
        assert_eq!(wire.take(), Some(frame(number)), "{number}");
    }
    assert_eq!((one.take(), two.take()), (None, None));
}
