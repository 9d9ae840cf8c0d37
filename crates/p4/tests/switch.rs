//! A program between two devices.

mod common;

use common::{Parts, program};
use natgate_io::memory::{MemoryDevice, Wire, pair};
use natgate_p4::{Counts, Machine, Switch, compile};
use natgate_wire::arp::Mac;
use std::time::Duration;

fn port(name: &str) -> (MemoryDevice, Wire) {
    pair(name, Mac([2, 0, 0, 0, 0, 1]))
}

#[test]
fn frames_leave_by_the_port_that_the_program_names() {
    // To the port that `a` names, with one more header if `b` says so; nowhere, if `c` is set.
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
    let counts = Counts { received: 6, sent: 3, dropped: 1, elsewhere: 2, lost: 0 };
    assert_eq!(switch.counts(), counts);
    two.set_up(false);
    switch.maintain();
    assert!(one.send(&frame(2, 0, 0)));
    assert_eq!(switch.turn(Duration::ZERO), 1);
    assert_eq!(switch.counts().lost, 1, "the link is down");
    assert!(switch.counts().to_string().ends_with(" 1 lost"));
}
