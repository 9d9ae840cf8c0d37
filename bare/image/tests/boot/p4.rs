//! The NAT in P4 in place of the gateway.

use super::machine::Machine;
use super::{Numbers, datagram, garbage, passes};
use natgate_p4::{Entries, Machine as Interpreter, Outcome, compile, programs};
use natgate_wire::Ipv4;
use std::time::Duration;

/// Entries with the addresses of the machine's cards and of their far ends.
const ENTRIES: &str = r#"
    entry = [
        { table = "interfaces", keys = { "istd.input_port" = 1 }, action = "inside", arguments = { mac = "52:54:00:00:00:01" } },
        { table = "interfaces", keys = { "istd.input_port" = 2 }, action = "outside", arguments = { mac = "52:54:00:00:00:02" } },
        { table = "addresses", keys = { "istd.input_port" = 1, "hdr.arp.target" = "10.0.0.1" }, action = "answer", arguments = { mac = "52:54:00:00:00:01" } },
        { table = "addresses", keys = { "istd.input_port" = 2, "hdr.arp.target" = "192.0.2.254" }, action = "answer", arguments = { mac = "52:54:00:00:00:02" } },
        { table = "subscribers", keys = { "hdr.ipv4.source" = "10.0.0.0/8" }, action = "subscriber", arguments = { index = 7, pool_index = 0 } },
        { table = "pool", keys = { "meta.pool_index" = 0 }, action = "external_address", arguments = { address = "203.0.113.1", first = 1024, last = 65535 } },
        { table = "routes", keys = { "hdr.ipv4.destination" = "10.0.0.0/8" }, action = "via", arguments = { gateway = "10.0.0.254", port = 1 } },
        { table = "routes", keys = { "hdr.ipv4.destination" = "0.0.0.0/0" }, action = "via", arguments = { gateway = "192.0.2.1", port = 2 } },
        { table = "next_hops", keys = { "meta.out_port" = 1, "meta.next_hop" = "10.0.0.254" }, action = "neighbor", arguments = { source = "52:54:00:00:00:01", destination = "02:00:00:00:09:09" } },
        { table = "next_hops", keys = { "meta.out_port" = 2, "meta.next_hop" = "192.0.2.1" }, action = "neighbor", arguments = { source = "52:54:00:00:00:02", destination = "02:00:00:00:09:09" } },
    ]
"#;

/// Enough memory for the program's tables.
const MEMORY: [&str; 2] = ["-m", "512"];

fn start(card: &str) -> Machine {
    let mut machine = Machine::boot_with("p4", card, ENTRIES, "p4=nat seed=1", &MEMORY);
    machine.wait_for("the P4 program nat is running");
    machine.connect();
    machine
}

/// The interpreter's result for a packet that comes in by a side: the output of each side.
fn expected(interpreter: &mut Interpreter<'_>, side: usize, packet: &[u8]) -> [Vec<Vec<u8>>; 2] {
    let mut frame = [0x52, 0x54, 0, 0, 0, 1 + side as u8, 2, 0, 0, 0, 9, 9, 8, 0].to_vec();
    frame.extend(packet);
    let mut output = [Vec::new(), Vec::new()];
    match interpreter.process(Duration::ZERO, 1 + side as u32, &frame) {
        Outcome::Sent { port, packet } => output[port as usize - 1].push(packet[14..].to_vec()),
        Outcome::Dropped => {}
    }
    output
}

/// Output for a packet. Some emulated cards pad short frames, so the length is cut to the packet's.
fn output(machine: &Machine, side: usize, packet: &[u8]) -> [Vec<Vec<u8>>; 2] {
    machine.send(side, packet);
    let mut output = machine.settle();
    output.iter_mut().flatten().for_each(|out| out.truncate(packet.len()));
    output
}

#[test]
fn a_p4_program_runs_in_the_gateways_place() {
    let text = programs::text("nat").expect("it is there");
    let program = compile("nat", text).unwrap_or_else(|error| panic!("{error}"));
    for card in ["e1000", "virtio-net-pci"] {
        let mut machine = start(card);
        let mut interpreter = Interpreter::new(&program, 1);
        let entries = Entries::read(&program, "entries", ENTRIES).expect("they fit");
        entries.load(&mut interpreter).expect("there is room");
        let mut forwarded = 0;
        for number in 0..60 {
            let host = (0x0a00_0005 + number % 3, 4000 + (number % 7) as u16);
            // The other packets come from an unknown host, or go to no host.
            let remote = (0xc633_6401, 53);
            let packet = datagram(if number % 10 == 9 { remote } else { host }, remote);
            let out = expected(&mut interpreter, 0, &packet);
            assert_eq!(output(&machine, 0, &packet), out, "{card}, {number}");
            let Some(left) = out[1].first() else { continue };
            let ip = Ipv4::new_checked(&left[..]).expect("it is whole");
            let port = u16::from_be_bytes([ip.payload()[0], ip.payload()[1]]);
            let answer = datagram(remote, (ip.source(), port + number as u16 % 2));
            let back = expected(&mut interpreter, 1, &answer);
            assert_eq!(output(&machine, 1, &answer), back, "{card}, {number}, back");
            forwarded += back[0].len();
        }
        assert!(forwarded > 20, "{forwarded}");
        let mut numbers = Numbers::new();
        (0..500).for_each(|_| machine.send_frame(numbers.below(2), &garbage(&mut numbers)));
        machine.settle();
        assert!(passes(&machine, (0x0a00_0005, 4000)), "{card}: nothing passes any more");
        machine.press("n");
        let line = machine.wait_for(" frames received, ");
        assert!(!line.starts_with("0 ") && !line.contains(" 0 sent"), "{line}");
        machine.press("tp");
        machine.wait_for("a panic was asked for");
        machine.wait_for(" frames received, ");
        machine.wait_for_restart();
    }
}

#[test]
fn a_p4_program_that_cannot_run_says_why() {
    let cases = [
        ("entry = 1", &MEMORY[..], "entries:1:9: "),
        ("", &MEMORY[..], "entries: there is none; have the boot loader load a file"),
        (ENTRIES, &["-m", "224"], "run it on a machine with more memory"),
    ];
    for (entries, memory, said) in cases {
        let mut machine = Machine::boot_with("p4-bad", "e1000", entries, "p4=nat", memory);
        machine.wait_for(said);
        machine.press("h");
        machine.wait_for("keys: n counters");
        machine.press("ry");
        machine.wait_for_restart();
    }
}
