//! IPv6: the vectors of the translations between families, neighbors that ask a group, and hosts of
//! NAT64 in the list of mappings, in the log and with several workers.

use super::machine::{Machine, PATIENCE};
use super::{capture, cases_agree, live};
use natgate_wire::{Ipv4, icmpv6, nd};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Fast cases of every table of IPv6.
const CASES: [&str; 8] =
    ["dslite", "map-e", "map-t", "nat64", "nat64-fragments", "nat64-icmp-errors", "nptv6", "siit"];

/// Longer than the gateway asks whether somebody else has its addresses.
const DETECTION: Duration = Duration::from_secs(3);

/// The gateway's own address, and a host with the address of a server of IPv4.
const OWN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);
const SERVER: (Ipv6Addr, Ipv4Addr) =
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0xc633, 0x6407), Ipv4Addr::new(198, 51, 100, 7));

const CONFIGURATION: &str = "\
    [inside]\ndevice = \"eth0\"\naddress = \"10.0.0.1/16\"\naddress6 = \"2001:db8:1::1/64\"\n\
    [outside]\ndevice = \"eth1\"\naddress = \"192.0.2.254/24\"\ngateway = \"192.0.2.1\"\n\
    [[pool]]\naddresses = [\"203.0.113.0/30\"]\n[nat64]\n";

#[test]
fn vectors_of_ipv6_by_e1000() {
    all_cases("e1000");
}

#[test]
fn vectors_of_ipv6_by_virtio() {
    all_cases("virtio-net-pci");
}

fn all_cases(card: &str) {
    cases_agree(&CASES, 20, |name, configuration, input| {
        let machine = Machine::start(name, card, &for_image(configuration), "seed=0");
        wait_for_addresses(&machine);
        live(&machine, input)
    });
}

/// The configuration of a vector with next hops, and with the addresses of IPv4 by which the test
/// asks the gateway whether it is done.
fn for_image(configuration: &str) -> String {
    let (inside, outside) = configuration.split_once("[outside]").expect("it has both sides");
    let inside = inside
        .replace("\"inside0\"", "\"eth0\"\naddress = \"10.0.0.1/16\"\ngateway6 = \"fe80::9\"");
    let own = match outside.contains("address = ") {
        true => "",
        false => "address = \"192.0.2.254/24\"\ngateway6 = \"fe80::9\"\n",
    };
    let gateway = match outside.contains("198.51.100.254") {
        true => "198.51.100.1",
        false => "192.0.2.1",
    };
    let outside =
        outside.replace("\"outside0\"", &format!("\"eth1\"\n{own}gateway = \"{gateway}\""));
    format!("{inside}[outside]{outside}")
}

/// Waits until the gateway has its addresses of IPv6.
fn wait_for_addresses(machine: &Machine) {
    let begin = Instant::now();
    while begin.elapsed() < DETECTION {
        let [inside, outside] = machine.settle();
        assert!(inside.is_empty() && outside.is_empty(), "{inside:?} {outside:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A packet inside, as the vectors write it.
fn packet(text: &str) -> Vec<u8> {
    let capture = capture::from_text(&format!("0.000 inside {text}\n")).expect("a line");
    capture::frames(&capture, None)[0].packet().to_vec()
}

/// Waits for one packet of a side.
fn comes(machine: &Machine, side: usize) -> Vec<u8> {
    let begin = Instant::now();
    loop {
        if let Some(packet) = machine.settle()[side].pop() {
            return packet;
        }
        assert!(begin.elapsed() < PATIENCE, "no packet comes");
    }
}

#[test]
fn neighbors_find_the_gateway_by_its_group() {
    for card in ["e1000", "e1000e", "virtio-net-pci"] {
        let machine = Machine::start("groups", card, CONFIGURATION, "");
        wait_for_addresses(&machine);
        machine.solicit(0, HOST, OWN);
        let answer = nd::read(&comes(&machine, 0));
        let Ok(nd::Message::NeighborAdvertisement(advertisement)) = answer else {
            panic!("{card}: {answer:?}");
        };
        assert_eq!(advertisement.target, OWN, "{card}");
        assert!(advertisement.mac.is_some() && advertisement.router, "{card}");
    }
}

#[test]
fn hosts_of_nat64_have_their_names_in_the_list_and_in_the_log() {
    let log = "[[log]]\nkind = \"syslog\"\ncollector = \"198.51.100.99:514\"\n";
    let workers = "[workers]\ncount = 2\n";
    let configuration = format!("{CONFIGURATION}{log}{workers}");
    let two = ["-smp", "cpus=2,sockets=2"];
    let mut machine = Machine::boot_with("nat64", "virtio-net-pci", &configuration, "start", &two);
    machine.wait_until_running();
    wait_for_addresses(&machine);
    let (hosts, mut told) = (8_u16, Vec::new());
    for number in 0..hosts {
        // Each host has a prefix of its own, and so any worker.
        let prefix = HOST.to_bits() + (u128::from(number) << 64);
        let host = format!("[{}]:{}", Ipv6Addr::from_bits(prefix), 4000 + number);
        machine.send(0, &packet(&format!("udp {host} > [{}]:53 \"question\"", SERVER.0)));
        let begin = Instant::now();
        let mut out = Vec::new();
        while out.is_empty() {
            let [_, came] = machine.settle();
            let is_log = |packet: &Vec<u8>| packet[22..24] == 514_u16.to_be_bytes();
            let (logs, packets): (Vec<_>, Vec<_>) = came.into_iter().partition(is_log);
            told.extend(logs);
            out.extend(packets);
            assert!(begin.elapsed() < PATIENCE, "no packet comes");
        }
        let header = Ipv4::new_checked(&out[0][..]).expect("a packet of IPv4");
        assert_eq!(header.destination(), SERVER.1.to_bits());
        assert!(header.source() & !3 == 0xcb00_7100, "{:x}", header.source());
    }
    let begin = Instant::now();
    while told.len() < usize::from(hosts) {
        assert!(begin.elapsed() < PATIENCE, "{} events have been told", told.len());
        told.append(&mut machine.settle()[1]);
    }
    let text = |packet: &Vec<u8>| String::from_utf8_lossy(&packet[28..]).into_owned();
    let told: Vec<String> = told.iter().map(text).collect();
    machine.press("m");
    machine.wait_for("these are all");
    for number in 0..hosts {
        let address = Ipv6Addr::from_bits(HOST.to_bits() + (u128::from(number) << 64));
        let host = format!(" [{address}]:{} ", 4000 + number);
        let shown = machine.printed.iter().filter(|line| line.contains(&host)).count();
        assert_eq!(shown, 1, "{host}: {}", machine.printed.join("\n"));
        let events = told.iter().filter(|event| event.contains(&format!("[{address}]"))).count();
        assert_eq!(events, 1, "{host}: {told:?}");
    }
}

#[test]
fn an_echo_of_ipv6_is_answered() {
    let machine = Machine::start("echo6", "e1000", CONFIGURATION, "");
    wait_for_addresses(&machine);
    machine.send(0, &packet(&format!("icmp6 [{HOST}] > [{OWN}] echo ident=7 n=1 \"ping\"")));
    let answer = comes(&machine, 0);
    assert_eq!(answer[40], icmpv6::kind::ECHO_REPLY);
}
