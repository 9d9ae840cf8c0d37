//! Several workers, each on a processor of its own.

use super::machine::{Machine, PATIENCE};
use super::{CONFIGURATION, datagram, passes, status_client};
use natgate_wire::Ipv4;
use std::time::Instant;

/// Number of hosts inside: enough to give each worker some.
const HOSTS: u32 = 60;
const FIRST_HOST: u32 = 0x0a00_0105;

const REMOTE: (u32, u16) = (0xc633_6401, 53);

/// Boots with `processors` processors and `workers` workers.
fn start(name: &str, card: &str, (processors, workers): (usize, usize), more: &str) -> Machine {
    let configuration = format!("{CONFIGURATION}[workers]\ncount = {workers}\n{more}");
    let sockets = format!("cpus={processors},sockets={processors}");
    let mut machine = Machine::boot_with(name, card, &configuration, "start", &["-smp", &sockets]);
    machine.wait_until_running();
    machine
}

/// Waits for `count` packets of a side. Packets that were handed over may be late.
fn come(machine: &Machine, side: usize, count: usize) -> Vec<Vec<u8>> {
    let begin = Instant::now();
    let mut packets = Vec::new();
    while packets.len() < count {
        assert!(begin.elapsed() < PATIENCE, "{} of {count} packets have come", packets.len());
        packets.append(&mut machine.settle()[side]);
    }
    packets
}

/// Addresses and ports of a datagram: those of the sender and of the receiver.
fn ends(packet: &[u8]) -> [(u32, u16); 2] {
    let ip = Ipv4::new_checked(packet).expect("a packet");
    let port = |at: usize| u16::from_be_bytes([ip.payload()[at], ip.payload()[at + 1]]);
    [(ip.source(), port(0)), (ip.destination(), port(2))]
}

/// Sends a datagram from every host, and an answer to each. Returns the hosts' external endpoints,
/// in their order.
pub(crate) fn all_talk(machine: &Machine) -> Vec<(u32, u16)> {
    let hosts = (0..HOSTS).map(|number| (FIRST_HOST + number, 4000 + number as u16));
    // The port tells the remote host which host has sent the datagram.
    let remote = |host: (u32, u16)| (REMOTE.0, host.1);
    // The datagrams come one after the other, because each worker has to resolve the next hop.
    let send = |host| {
        machine.send(0, &datagram(host, remote(host)));
        ends(&come(machine, 1, 1)[0])
    };
    let out: Vec<_> = hosts.clone().map(send).collect();
    out.iter().for_each(|[external, remote]| machine.send(1, &datagram(*remote, *external)));
    let mut back: Vec<_> = come(machine, 0, HOSTS as usize).iter().map(|back| ends(back)).collect();
    back.sort_unstable();
    let expected: Vec<_> = hosts.clone().map(|host| [remote(host), host]).collect();
    assert_eq!(back, expected);
    let external = |host| out.iter().find(|[_, to]| *to == remote(host)).expect("it has talked")[0];
    hosts.map(external).collect()
}

#[test]
fn each_has_subscribers_and_all_of_them_talk() {
    for (card, workers) in [("e1000", 2), ("e1000e", 3), ("virtio-net-pci", 2)] {
        let mut machine = start("workers", card, (3, workers), "");
        let external = all_talk(&machine);
        assert_eq!(all_talk(&machine), external, "{card}: the same mappings again");
        // Each host sends to the next host's external address, whichever worker owns it.
        let hosts = (0..HOSTS).map(|number| (FIRST_HOST + number, 4000 + number as u16));
        let next = external.iter().cycle().skip(1);
        hosts.zip(next).for_each(|(host, next)| machine.send(0, &datagram(host, *next)));
        let turned = come(&machine, 0, HOSTS as usize);
        let mut turned: Vec<_> = turned.iter().map(|packet| ends(packet)).collect();
        turned.sort_unstable_by_key(|[_, to]| *to);
        for (number, [from, to]) in turned.into_iter().enumerate() {
            let before = (number + HOSTS as usize - 1) % HOSTS as usize;
            assert_eq!((from, to.0), (external[before], FIRST_HOST + number as u32), "{card}");
        }
        machine.press("n");
        let out = 2 * HOSTS;
        machine.wait_for(&format!("outbound  forwarded {out} replied 0 dropped 0"));
        machine.wait_for(&format!("hairpin   forwarded {HOSTS} "));
        machine.wait_for(&format!("mappings  {HOSTS} of "));
        let told = machine.wait_for("workers   ");
        let figures: Vec<u64> = told.split([' ', ',']).filter_map(|w| w.parse().ok()).collect();
        assert!(figures[0] == workers as u64 && figures[1] > 0 && figures[2] == 0, "{told}");
        machine.press("n");
        for _ in 0..HOSTS.div_ceil(20) {
            machine.press("m");
            machine.wait_for("m: further mappings");
        }
        machine.press("m");
        machine.wait_for("these are all");
        let shown = |number| {
            let host = format!(" {}:", std::net::Ipv4Addr::from_bits(FIRST_HOST + number));
            machine.printed.iter().filter(|line| line.contains(&host)).count()
        };
        assert!((0..HOSTS).all(|number| shown(number) == 1), "{}", machine.printed.join("\n"));
    }
}

#[test]
fn the_page_and_the_log_are_of_all() {
    let more = "[metrics]\nlisten = \"10.0.0.1:9464\"\n\
                [[log]]\nkind = \"syslog\"\ncollector = \"198.51.100.99:514\"\n";
    let machine = start("workers-told", "virtio-net-pci", (2, 2), more);
    let hosts = (0..HOSTS).map(|number| (FIRST_HOST + number, 4000));
    let is_told = |packet: &Vec<u8>| ends(packet)[1].1 == 514;
    let mut told = Vec::new();
    for host in hosts.clone() {
        machine.send(0, &datagram(host, REMOTE));
        told.extend(come(&machine, 1, 1).into_iter().filter(is_told));
    }
    let begin = Instant::now();
    while told.len() < HOSTS as usize {
        assert!(begin.elapsed() < PATIENCE, "{} events have been told", told.len());
        let [_, out] = machine.settle();
        told.extend(out.into_iter().filter(is_told));
    }
    let text = |packet: &Vec<u8>| String::from_utf8(packet[28..].to_vec()).expect("it is text");
    let told: Vec<String> = told.iter().map(text).collect();
    for host in hosts {
        let internal = format!(" internal=\"{}:4000\"", std::net::Ipv4Addr::from_bits(host.0));
        let count = told.iter().filter(|event| event.contains(&internal)).count();
        assert_eq!(count, 1, "{internal}: {told:?}");
    }
    // The owner of a visitor depends on its address; the page does not depend on the owner.
    let mut port = 5000;
    for host in 5..25 {
        let visitor = (0, [10, 0, 0, host].into());
        // New mappings are logged while the page is created.
        let mut more = || {
            port += 1;
            let hosts = (0..HOSTS).map(|number| (FIRST_HOST + number, port));
            hosts.for_each(|host| machine.send(0, &datagram(host, REMOTE)));
        };
        let place = ([10, 0, 0, 1].into(), 9464);
        let page = status_client::get_beside(&machine, visitor, place, "/metrics", &mut more);
        let page = page.expect("it answers");
        let counted = "natgate_packets_total{direction=\"outbound\",verdict=\"forwarded\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(counted));
        let count: u32 = line.and_then(|count| count.parse().ok()).expect("it is told");
        assert!(count >= HOSTS, "{page}");
        assert!(page.contains("natgate_worker_taken_over_packets_total{worker=\"1\"} "), "{page}");
    }
}

#[test]
fn who_sleeps_is_woken_for_what_is_handed_over() {
    let mut machine = start("workers-sleep", "virtio-net-pci", (2, 2), "");
    for _ in 0..3 {
        all_talk(&machine);
        // The workers have slept since, and sleep again.
        machine.press("n");
        let sleeps = |line: &str| -> u64 {
            line.split([' ', ',']).find_map(|word| word.parse().ok()).expect("a number")
        };
        let before = sleeps(&machine.wait_for("sleeps    "));
        while sleeps(&machine.wait_for("sleeps    ")) <= before {}
        machine.press("n");
    }
}

#[test]
fn processors_without_a_worker_are_told() {
    let three = ["-smp", "cpus=3,sockets=3"];
    let mut machine = Machine::boot_with("processors", "e1000", CONFIGURATION, "start", &three);
    machine.wait_for("natgate is running on one of 3 processors: workers.count says on how many");
    machine.connect();
    assert!(passes(&machine, (FIRST_HOST, 4000)));
    machine.press("to");
    machine.wait_for("there is no other worker");
    let mut machine = Machine::boot("processor", "e1000", CONFIGURATION, "start");
    machine.wait_for("natgate is running");
    assert!(!machine.printed.iter().any(|line| line.contains("processors")));
}

#[test]
fn when_one_fails_all_end_and_the_machine_starts_again() {
    for (key, told) in [
        ("p", "a panic was asked for"),
        ("e", "exception 6 (invalid instruction)"),
        ("o", "watchdog: the gateway has stood still for 5 seconds"),
    ] {
        // One processor has no worker.
        let mut machine = start(&format!("workers-{key}"), "e1000", (3, 2), "");
        all_talk(&machine);
        machine.press("n");
        machine.wait_for(&format!("inbound   forwarded {HOSTS} "));
        machine.press("t");
        machine.wait_for("trial: p panic");
        machine.press(key);
        machine.wait_for(told);
        if key == "o" {
            machine.wait_for("processor 1");
        }
        machine.wait_for(&format!("outbound  forwarded {HOSTS} "));
        machine.wait_for_restart();
    }
    // Events of the machine itself go to the first processor.
    let mut machine = start("workers-nmi", "e1000", (3, 2), "");
    all_talk(&machine);
    machine.command("nmi");
    machine.wait_for("exception 2 (non-maskable interrupt)");
    machine.wait_for_restart();
    let told = machine.printed.iter().filter(|line| line.starts_with("exception")).count();
    assert_eq!(told, 1, "{}", machine.printed.join("\n"));
}
