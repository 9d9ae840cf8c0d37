//! Features of TUN alone: the device is created if it does not exist, ARP is answered, and the
//! kernel itself is at the other end.

use crate::stage::{PATIENCE, enter_namespace, ip, maintain_until, receive, send};
use natgate_io::tun::{GATEWAY, STATION, TunDevice};
use natgate_io::{Change, Device, Error, Lost, wait};
use natgate_wire::arp::{Arp, Mac, Operation, Repr};
use natgate_wire::checksum;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);

#[test]
fn the_device_is_made_and_goes_with_its_user() {
    enter_namespace();
    let mut device = TunDevice::open("near").expect("it can be made");
    assert!(device.is_made() && !device.link().up, "it is nobody's business to switch it on");
    assert_eq!((device.link().mac, device.link().mtu), (GATEWAY, 1500));
    ip("link set dev near up");
    maintain_until(&mut device, |change| matches!(change, Change::Up));
    ip("link delete near");
    maintain_until(&mut device, |change| matches!(change, Change::Gone));
    maintain_until(&mut device, |change| matches!(change, Change::Back(Ok(()))));
    drop(device);
    let shown = Command::new("ip").args(["link", "show", "dev", "near"]).output();
    assert!(!shown.expect("ip can be run").status.success(), "the device is still there");
    ip("tuntap add dev near mode tun");
    assert!(!TunDevice::open("near").expect("it can be opened").is_made());
    ip("link show dev near");
}

#[test]
fn devices_of_other_kinds_and_other_peoples_are_refused() {
    enter_namespace();
    ip("link add name near type veth peer name far");
    let error = TunDevice::open("near").expect_err("it is a veth");
    assert!(matches!(&error, Error::NotTun(name) if name == "near"), "{error}");
    let _first = TunDevice::open("mine").expect("it can be made");
    let error = TunDevice::open("mine").expect_err("it is in use");
    assert!(matches!(&error, Error::TunBusy(name) if name == "mine"), "{error}");
    for name in ["", "much-too-long-a-name", "a%d", "a/b"] {
        assert!(TunDevice::open(name).is_err(), "{name:?}");
    }
}

#[test]
fn arp_is_answered_and_who_waits_is_woken() {
    enter_namespace();
    let mut device = TunDevice::open("near").expect("it can be made");
    ip("link set dev near up");
    maintain_until(&mut device, |change| matches!(change, Change::Up));
    let asked = Repr {
        operation: Operation::Request,
        sender_mac: GATEWAY,
        sender: Ipv4Addr::new(10, 9, 0, 1),
        target_mac: Mac::default(),
        target: KERNEL,
    };
    assert_eq!(send(&mut device, &asked.frame(Mac::BROADCAST)), Lost::NONE);
    let begin = Instant::now();
    wait(&[device.readiness().expect("it is there")], PATIENCE).expect("poll works");
    assert!(begin.elapsed() < PATIENCE / 2, "the answer waits for nobody");
    let reply = Arp::new_checked(receive(&mut device, 1)[0][14..].to_vec()).expect("ARP").repr();
    assert_eq!((reply.sender_mac, reply.sender, reply.target), (STATION, KERNEL, asked.sender));
    let begin = Instant::now();
    let pause = Duration::from_millis(20);
    wait(&[device.readiness().expect("it is there")], pause).expect("poll works");
    assert!(begin.elapsed() >= pause, "there is nothing more to receive");
}

#[test]
fn the_kernel_talks_by_it() {
    enter_namespace();
    let mut device = TunDevice::open("near").expect("it can be made");
    ip(&format!("addr add {KERNEL}/24 dev near"));
    ip("link set dev near up");
    maintain_until(&mut device, |change| matches!(change, Change::Up));
    let socket = UdpSocket::bind((KERNEL, 4000)).expect("the address is there");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.connect((REMOTE, 53)).expect("there is a route");
    socket.send(b"question").expect("the kernel sends");
    let mut frame = receive(&mut device, 1).remove(0);
    assert_eq!(frame[..14], [&GATEWAY.0[..], &STATION.0, &[8, 0]].concat());
    assert_eq!(frame[42..], *b"question");
    let address = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four"));
    let pseudo = checksum::pseudo_header(address(26), address(30), 17, 16);
    assert_eq!(checksum::fold(checksum::sum(&frame[34..], pseudo)), 0xffff, "finished");
    // The packet returns: addresses and ports are exchanged, so the checksums stay right.
    for (one, other, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        (0..len).for_each(|at| frame.swap(one + at, other + at));
    }
    assert_eq!(send(&mut device, &frame), Lost::NONE);
    let mut answer = [0; 16];
    assert_eq!(socket.recv(&mut answer).expect("the kernel receives"), 8);
    assert_eq!(answer[..8], *b"question");
}
