//! Several devices on one link, one for each worker: every frame comes to one of them, and to its
//! owner if the back end can steer. All devices survive links that come and go.

use crate::stage::{BackEnd, PATIENCE, enter_namespace, ip, maintain_until, receive, send};
use natgate_io::packet::{self, PacketDevice};
use natgate_io::tun::TunDevice;
use natgate_io::xdp::{self, Hook, Memory, XdpDevice};
use natgate_io::{Batch, By, Change, Device, Error, Lost, Share, Statistics, Steering, Stretch};
use natgate_wire::checksum;
use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

const COUNT: usize = 3;
const CONFIG: packet::Config = packet::Config {
    slots: 1024,
    send_buffer: 4 << 20,
    mode: packet::Mode::Latency,
    sending: packet::Sending::Ring,
};

fn open_far() -> PacketDevice {
    let mut far = PacketDevice::open("far", packet::Config::default()).expect("far can be opened");
    wait_until_up(&mut far);
    far
}

fn wait_until_up(device: &mut dyn Device) {
    if !device.link().up {
        maintain_until(device, |change| matches!(change, Change::Up));
    }
}

fn open_packet_group(steering: Option<&Steering>) -> Vec<PacketDevice> {
    let mut group = PacketDevice::open_group("near", COUNT, steering, &CONFIG)
        .expect("the group can be opened");
    group.iter_mut().for_each(|device| wait_until_up(device));
    group
}

/// Frames of each device, once there are `count` frames together.
fn receive_by_all<D: Device>(group: &mut [D], count: usize) -> Vec<Vec<Vec<u8>>> {
    let begin = Instant::now();
    let mut each = vec![Vec::new(); group.len()];
    while each.iter().map(Vec::len).sum::<usize>() < count {
        assert!(begin.elapsed() < PATIENCE, "{:?} of {count}", each.iter().map(Vec::len));
        for (device, frames) in group.iter_mut().zip(&mut each) {
            let mut batch = Batch::new();
            device.split().0.receive(&mut batch);
            frames.extend(batch.iter().map(|frame| frame.bytes().to_vec()));
        }
    }
    // No frame comes twice.
    std::thread::sleep(Duration::from_millis(20));
    for device in group {
        let mut batch = Batch::new();
        device.split().0.receive(&mut batch);
        assert!(batch.is_empty(), "more than {count} frames have come");
    }
    each
}

/// An IPv4 packet with this payload.
fn packet(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend([source.octets(), destination.octets()].concat());
    let sum = checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// Packets of all kinds for this address and port or identifier; their last bytes number them.
fn kinds(source: Ipv4Addr, destination: Ipv4Addr, port: u16) -> Vec<Vec<u8>> {
    let [high, low] = port.to_be_bytes();
    let udp = [&[0, 53, high, low, 0, 12, 0, 0][..], &[7; 20]].concat();
    let tcp = [&[0, 80, high, low][..], &[0; 24]].concat();
    let echo = [&[0, 0, 0, 0, high, low, 0, 1][..], &[7; 20]].concat();
    let own_udp = [&[high, low, 0, 53, 0, 12, 0, 0][..], &[7; 4]].concat();
    let own_echo = [8, 0, 0, 0, high, low, 0, 1];
    let quoted =
        [packet(17, destination, source, &own_udp), packet(1, destination, source, &own_echo)];
    let mut packets = vec![
        packet(17, source, destination, &udp),
        packet(6, source, destination, &tcp),
        packet(1, source, destination, &echo),
        packet(47, source, destination, &[0; 16]),
    ];
    packets.extend(quoted.iter().map(|quoted| {
        packet(1, source, destination, &[&[3, 1, 0, 0, 0, 0, 0, 0], &quoted[..]].concat())
    }));
    // A first fragment and a later one.
    for bits in [[0x20, 0], [0, 3]] {
        let mut fragment = packets[0].clone();
        fragment[6..8].copy_from_slice(&bits);
        packets.push(fragment);
    }
    packets
}

/// An IPv6 packet with this number in the prefix of each address.
fn ipv6(number: u32) -> Vec<u8> {
    let address = [&[0x20, 1, 0x0d, 0xb8][..], &number.to_be_bytes(), &[7; 8]].concat();
    [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &address, &address].concat()
}

fn frame(tag: &[u8], kind: u16, payload: &[u8]) -> Vec<u8> {
    let macs = [2, 0, 0, 0, 0, 0x0a, 2, 0, 0, 0, 0, 0x0b];
    [&macs[..], tag, &kind.to_be_bytes(), payload].concat()
}

/// Sends packets, untagged and with a VLAN tag, and checks that they come to the device of their
/// owner.
fn steered_rightly(group: &mut [PacketDevice], far: &mut PacketDevice, steering: &Steering) {
    let mut workers = HashSet::new();
    for number in 0..40_u32 {
        let source = Ipv4Addr::from(0x0a00_0001 + number);
        let destination = Ipv4Addr::from(0xcb00_7100 + number % 12);
        let mut packets = kinds(source, destination, 900 + 1600 * number as u16);
        packets.push(vec![0x45; 12]);
        let frames: Vec<_> = (packets.iter().map(|packet| frame(&[], 0x800, packet)))
            .chain(packets.iter().map(|packet| frame(&[0x81, 0, 0, 9], 0x800, packet)))
            .chain([frame(&[], 0x806, &packets[0]), frame(&[], 0x86dd, &ipv6(number))])
            .collect();
        for bytes in &frames {
            assert_eq!(send(far, bytes), Lost::NONE);
        }
        let each = receive_by_all(group, frames.len());
        let mut expected = vec![Vec::new(); group.len()];
        for bytes in frames {
            expected[steering.worker_of_frame(&bytes, COUNT)].push(bytes);
        }
        assert_eq!(each, expected);
        workers.extend((0..COUNT).filter(|worker| each[*worker].len() > 2));
    }
    assert_eq!(workers.len(), COUNT, "each has had some");
}

/// Steering with whole addresses, and one that is sliced.
fn by_destination() -> Steering {
    let address = |last| Ipv4Addr::new(203, 0, 113, last);
    let by = By::Destination(vec![
        Stretch { first: address(1), last: address(6), share: Share::Whole { place: 1 } },
        Stretch { first: address(7), last: address(10), share: Share::slices(1024, 65_535, COUNT) },
    ]);
    Steering { by, prefix_len: 64, exception: None }
}

/// Steering by sources.
const BY_SOURCE: Steering = Steering { by: By::Source, prefix_len: 64, exception: None };

#[test]
fn packet_sockets_get_what_their_worker_owns() {
    for steering in [BY_SOURCE, by_destination()] {
        enter_namespace();
        BackEnd::AfPacket.make();
        let mut group = open_packet_group(Some(&steering));
        let mut far = open_far();
        steered_rightly(&mut group, &mut far, &steering);
        // No device receives a frame that one of them sent.
        for device in &mut group {
            let bytes = frame(&[], 0x800, &[0x45; 40]);
            assert_eq!(send(device, &bytes), Lost::NONE);
            assert_eq!(receive(&mut far, 1), [bytes]);
        }
        receive_by_all(&mut group, 0);
        let sum = Statistics::of_group(group.iter_mut().map(PacketDevice::statistics));
        assert_eq!((sum.received, sum.transmitted), (40 * 20, COUNT as u64));
        assert_eq!(sum.receive_overrun, 0);
    }
}

#[test]
fn packet_sockets_without_steering_share_flows() {
    enter_namespace();
    BackEnd::AfPacket.make();
    let mut group = open_packet_group(None);
    let mut far = open_far();
    let frames: Vec<_> = (0..200)
        .map(|number| Ipv4Addr::from(0x0a00_0000 + number))
        .map(|source| frame(&[], 0x800, &kinds(source, source, 53)[0]))
        .collect();
    for bytes in frames.iter().chain(&frames) {
        assert_eq!(send(&mut far, bytes), Lost::NONE);
    }
    for received in receive_by_all(&mut group, 400) {
        assert!(received.len() > 30, "{} frames", received.len());
        // One device has all frames of a flow.
        let different: HashSet<_> = received.iter().collect();
        assert_eq!(different.len() * 2, received.len());
    }
}

#[test]
fn steering_stays_right_when_links_come_and_go() {
    enter_namespace();
    BackEnd::AfPacket.make();
    let steering = by_destination();
    let mut group = open_packet_group(Some(&steering));
    for round in 1..=3 {
        ip("link set dev near down");
        let gone = |change: &Change| matches!(change, Change::Down);
        group.iter_mut().for_each(|device| maintain_until(device, gone));
        ip("link set dev near up");
        // The devices may look in any order.
        group.iter_mut().rev().for_each(|device| wait_until_up(device));
        let mut far = open_far();
        steered_rightly(&mut group, &mut far, &steering);
        drop(far);
        ip("link delete near");
        let mut seen = group.iter_mut().rev().collect::<Vec<_>>();
        maintain_until(seen[0], |change| matches!(change, Change::Gone));
        BackEnd::AfPacket.make();
        // One device is back before the others have noticed the loss.
        maintain_until(seen[0], |change| matches!(change, Change::Back(Ok(()))));
        for device in &mut seen[1..] {
            maintain_until(*device, |change| matches!(change, Change::Gone));
            maintain_until(*device, |change| matches!(change, Change::Back(Ok(()))));
        }
        group.iter_mut().for_each(|device| wait_until_up(device));
        steered_rightly(&mut group, &mut open_far(), &steering);
        let sum = Statistics::of_group(group.iter_mut().map(PacketDevice::statistics));
        assert_eq!(sum.link_losses, round * 2);
    }
}

#[test]
fn a_group_can_be_opened_while_the_link_is_down() {
    enter_namespace();
    BackEnd::AfPacket.make();
    ip("link set dev near down");
    let steering = BY_SOURCE;
    let mut group = PacketDevice::open_group("near", COUNT, Some(&steering), &CONFIG)
        .expect("the group can be opened");
    ip("link set dev near up");
    group.iter_mut().for_each(|device| wait_until_up(device));
    steered_rightly(&mut group, &mut open_far(), &steering);
    let error = PacketDevice::open_group("nosuch0", COUNT, None, &CONFIG).expect_err("none");
    assert!(matches!(error, Error::NoDevice(name) if name == "nosuch0"));
}

/// Opens a group of `count` AF_XDP devices on `near`.
fn open_xdp_group(count: usize) -> Vec<XdpDevice> {
    let config = xdp::Config { frames: 256 };
    let memories = Memory::for_workers(&["near"], count, &config).expect("there is memory");
    let group = XdpDevice::open_group(&Hook::new("near"), &memories, &config);
    let mut group = group.expect("the group can be opened");
    group.iter_mut().for_each(|device| wait_until_up(device));
    group
}

#[test]
fn queues_of_af_xdp_are_shared_out_and_who_has_none_sends() {
    for (kind, queues) in [(BackEnd::XdpNative, [1, 0, 0]), (BackEnd::XdpQueues, [1, 1, 0])] {
        enter_namespace();
        kind.make();
        let mut group = open_xdp_group(COUNT);
        let served = group.iter().map(|device| device.mode().expect("it is there").queues);
        assert!(served.eq(queues));
        let mut far = open_far();
        for round in 0..3_u8 {
            for number in 0..100 {
                let bytes = frame(&[], 0x800, &[0x45, round, number, 0, 0, 0, 0, 0]);
                assert_eq!(send(&mut far, &bytes), Lost::NONE);
            }
            let each = receive_by_all(&mut group, 100);
            assert!(each.iter().zip(queues).all(|(got, queues)| queues > 0 || got.is_empty()));
            for device in &mut group {
                assert!(device.readiness().is_some());
                let bytes = frame(&[], 0x800, &[0x45, round, 9, 9, 9]);
                assert_eq!(send(device, &bytes), Lost::NONE);
                assert_eq!(receive(&mut far, 1), [bytes]);
            }
            drop(far);
            ip("link delete near");
            for device in group.iter_mut().rev() {
                maintain_until(device, |change| matches!(change, Change::Gone));
                assert_eq!(send(device, &[1; 60]).count(), 1);
            }
            kind.make();
            for device in &mut group {
                maintain_until(device, |change| matches!(change, Change::Back(Ok(()))));
                wait_until_up(device);
            }
            far = open_far();
        }
        let sum = Statistics::of_group(group.iter_mut().map(XdpDevice::statistics));
        assert_eq!((sum.received, sum.transmitted), (300, 9));
        assert_eq!((sum.transmit_refused, sum.link_losses), (9, 3));
    }
}

#[test]
fn a_tun_device_has_a_queue_for_each_worker() {
    enter_namespace();
    let mut group = TunDevice::open_group("near", COUNT).expect("it can be made");
    assert!(group[0].is_made() && !group[1].is_made());
    for round in 1..=2_u64 {
        ip("address add 10.9.0.2/24 dev near");
        ip("link set dev near up");
        for device in &mut group {
            maintain_until(device, |change| matches!(change, Change::Up));
        }
        let socket = UdpSocket::bind("10.9.0.2:4000").expect("the address is there");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        for number in 0..100_u16 {
            let sent = socket.send_to(&number.to_be_bytes(), ("10.9.0.3", 5000 + number));
            assert_eq!(sent.expect("the kernel sends"), 2);
        }
        let each = receive_by_all(&mut group, 100);
        assert!(each.iter().all(|frames| !frames.is_empty()), "the kernel spreads flows");
        for (number, device) in group.iter_mut().enumerate() {
            // An answer by each of the queues.
            let udp = [&[0x13, 0x88, 0x0f, 0xa0, 0, 9, 0, 0][..], &[number as u8]].concat();
            let answer = packet(17, Ipv4Addr::new(10, 9, 0, 3), Ipv4Addr::new(10, 9, 0, 2), &udp);
            let ends = [natgate_io::tun::STATION.0, natgate_io::tun::GATEWAY.0].concat();
            let bytes = [&ends[..], &[8, 0], &answer].concat();
            assert_eq!(send(device, &bytes), Lost::NONE);
            let mut got = [0; 10];
            assert_eq!(socket.recv(&mut got).expect("it arrives"), 1);
            assert_eq!(got[0], number as u8);
        }
        let sum = Statistics::of_group(group.iter_mut().map(TunDevice::statistics));
        assert_eq!((sum.received, sum.transmitted), (100 * round, COUNT as u64 * round));
        drop(socket);
        ip("link delete near");
        for device in &mut group {
            maintain_until(device, |change| matches!(change, Change::Gone));
        }
        for device in &mut group {
            maintain_until(device, |change| matches!(change, Change::Back(Ok(()))));
        }
    }
    drop(group);
    ip("tuntap add dev near mode tun");
    let error = TunDevice::open_group("near", 2).expect_err("it has one queue");
    assert!(error.to_string().contains("mode tun multi_queue`"), "{error}");
    assert_eq!(TunDevice::open_group("near", 1).expect("one is enough").len(), 1);
}
