//! Packet sockets against the kernel: frames through a veth pair, with the quirks of real senders.
//!
//! Each test runs in a network namespace of its own thread, which ends with the thread. Needs root
//! and iproute2, and fails without them.

use super::stage::{PATIENCE, enter_namespace, ip, maintain_until, receive, send};
use natgate_io::packet::{Config, Mode, Offload, PacketDevice, kernel_address};
use natgate_io::{Change, Device, Error, Frame, Lost};
use natgate_wire::checksum;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Moves this thread into a new network namespace that holds the pair end-a, end-b, both up.
fn veth() {
    enter_namespace();
    make_pair();
}

fn make_pair() {
    ip("link add end-a address 02:00:00:00:00:0a type veth peer name end-b");
    ip("link set end-b address 02:00:00:00:00:0b");
    for end in ["end-a", "end-b"] {
        // The kernel sends no neighbour discovery of its own between the frames of the tests.
        ip(&format!("link set {end} addrgenmode none up"));
    }
}

/// Opens a device; the kernel may take a moment to notice that both ends are up.
fn open(name: &str) -> PacketDevice {
    open_in(name, Mode::Latency)
}

fn open_in(name: &str, mode: Mode) -> PacketDevice {
    let config = Config { mode, ..Config::default() };
    let mut device = PacketDevice::open(name, config).expect("the device can be opened");
    if !device.link().up {
        maintain_until(&mut device, |change| matches!(change, Change::Up));
    }
    device
}

fn open_down(name: &str) -> PacketDevice {
    PacketDevice::open(name, Config::default()).expect("the device can be opened")
}

/// A frame from end a to end b, or the reverse.
fn frame(to: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, to ^ 1, 0x88, 0xb5];
    frame.extend(payload);
    frame
}

#[test]
fn frames_pass_both_ways_unchanged_and_in_order() {
    veth();
    let (mut a, mut b) = (open("end-a"), open("end-b"));
    assert_eq!((a.link().mtu, a.link().up), (1500, true));
    assert_eq!(a.link().mac.to_string(), "02:00:00:00:00:0a");
    // More than the ring has slots, so that every slot is used again.
    for number in 0..5000_u32 {
        let sent = frame(0x0b, &number.to_be_bytes().repeat(300));
        assert_eq!(send(&mut a, &sent), Lost::NONE);
        assert_eq!(receive(&mut b, 1), [sent]);
    }
    let sent: Vec<_> = (0..1000_u32).map(|n| frame(0x0a, &n.to_be_bytes())).collect();
    for bytes in &sent {
        assert_eq!(send(&mut b, bytes), Lost::NONE);
    }
    assert_eq!(receive(&mut a, 1000), sent);
    // Neither end receives the frames that it sent itself.
    assert_eq!((a.statistics().received, b.statistics().received), (1000, 5000));
    assert_eq!((a.statistics().transmitted, b.statistics().transmitted), (5000, 1000));
}

#[test]
fn a_batch_goes_out_and_bad_frames_do_not_stop_the_others() {
    veth();
    let (mut a, mut b) = (open("end-a"), open("end-b"));
    let (mut good, mut long, mut short) = (frame(0x0b, b"good"), frame(0x0b, &[0; 1600]), [0; 5]);
    let mut last = frame(0x0b, b"last");
    let (good_len, last_len, long_len) = (good.len(), last.len(), long.len());
    let lost = a.split().1.transmit(&mut [
        Frame::of(&mut long, 0, long_len),
        Frame::of(&mut good, 0, good_len),
        Frame::of(&mut short, 0, 5),
        Frame::of(&mut last, 0, last_len),
    ]);
    assert!(lost.contains(0) && lost.contains(2) && lost.count() == 2, "{lost:?}");
    assert_eq!(receive(&mut b, 2), [frame(0x0b, b"good"), frame(0x0b, b"last")]);
    assert_eq!(a.statistics().transmit_refused, 2);
}

#[test]
fn frames_that_find_the_ring_full_are_counted() {
    veth();
    let (mut a, mut b) = (open("end-a"), {
        let config = Config { slots: 256, ..Config::default() };
        PacketDevice::open("end-b", config).expect("the device can be opened")
    });
    for number in 0..300_u32 {
        assert_eq!(send(&mut a, &frame(0x0b, &number.to_be_bytes())), Lost::NONE);
    }
    assert_eq!(receive(&mut b, 256)[255][14..], 255_u32.to_be_bytes());
    assert_eq!(b.statistics().receive_overrun, 44);
    assert_eq!(send(&mut a, &frame(0x0b, b"room again")), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [frame(0x0b, b"room again")]);
}

#[test]
fn checksums_that_the_kernel_leaves_unfinished_are_finished() {
    veth();
    let mut b = open("end-b");
    let socket = kernel_sender();
    for payload in [&b"even"[..], b"odd", b""] {
        socket.send(payload).expect("the kernel sends");
        let received = &receive(&mut b, 1)[0];
        assert_eq!(&received[42..], payload);
        assert!(udp_checksum_valid(received), "{received:02x?}");
    }
}

#[test]
fn merged_frames_are_taken_apart() {
    for mode in [Mode::Latency, Mode::Rate] {
        veth();
        merged_frames_are_taken_apart_in(mode);
    }
}

fn merged_frames_are_taken_apart_in(mode: Mode) {
    let mut b = open_in("end-b", mode);
    let socket = kernel_sender();
    // One merged frame that fits a slot of the ring, then larger ones, more than a batch.
    for (size, len) in [(100, 1000), (1000, 10_000), (1400, 60_001), (600, 60_000)] {
        merge_datagrams(&socket, size);
        let payload: Vec<u8> = (0..len).map(|n| (n / 7) as u8).collect();
        socket.send(&payload).expect("the kernel sends several datagrams in one frame");
        let datagrams: Vec<_> = payload.chunks(size as usize).collect();
        let received = receive(&mut b, datagrams.len());
        for (received, datagram) in received.iter().zip(datagrams) {
            assert_eq!(&received[42..], datagram);
            assert!(udp_checksum_valid(received), "{received:02x?}");
        }
    }
    merge_datagrams(&socket, 0);
    socket.send(b"small").expect("the kernel sends");
    assert_eq!(receive(&mut b, 1)[0][42..], *b"small");
    assert_eq!(b.statistics().receive_oversize, 0);
}

/// Makes the kernel cut the socket's data into datagrams of this size, as late as it can; 0
/// switches that off.
fn merge_datagrams(socket: &UdpSocket, size: libc::c_int) {
    // SAFETY: the value outlives the call, and its length is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            std::mem::size_of_val(&size) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn frames_longer_than_the_mtu_are_refused_and_counted() {
    veth();
    ip("link set end-b mtu 576");
    let (mut a, mut b) = (open("end-a"), open("end-b"));
    ip("link set end-b mtu 9000");
    ip("link set end-a mtu 9000");
    maintain_until(&mut a, |change| matches!(change, Change::Altered));
    assert_eq!(send(&mut a, &frame(0x0b, &[7; 8000])), Lost::NONE);
    assert_eq!(send(&mut a, &frame(0x0b, b"small")), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [frame(0x0b, b"small")]);
    assert_eq!(b.statistics().receive_oversize, 1);
}

#[test]
fn vlan_tags_are_put_back_and_priority_tags_are_not() {
    for mode in [Mode::Latency, Mode::Rate] {
        veth();
        vlan_tags_are_put_back_in(mode);
    }
}

fn vlan_tags_are_put_back_in(mode: Mode) {
    let (mut a, mut b) = (open("end-a"), open_in("end-b", mode));
    let mut tagged = frame(0x0b, b"tagged");
    tagged.splice(12..12, [0x81, 0, 0x20, 5]);
    assert_eq!(send(&mut a, &tagged), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [tagged]);
    let mut priority = frame(0x0b, b"priority");
    priority.splice(12..12, [0x81, 0, 0x60, 0]);
    assert_eq!(send(&mut a, &priority), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [frame(0x0b, b"priority")]);
}

#[test]
fn a_link_that_flaps_is_survived() {
    veth();
    let (mut a, mut b) = (open("end-a"), open("end-b"));
    for round in 1..=3 {
        ip("link set end-b down");
        maintain_until(&mut b, |change| matches!(change, Change::Down));
        assert_eq!(send(&mut b, &frame(0x0a, b"into the void")).count(), 1);
        ip("link set end-b up");
        maintain_until(&mut b, |change| matches!(change, Change::Up));
        assert_eq!(send(&mut a, &frame(0x0b, b"again")), Lost::NONE);
        assert_eq!(receive(&mut b, 1), [frame(0x0b, b"again")]);
        assert_eq!(send(&mut b, &frame(0x0a, b"and back")), Lost::NONE);
        assert_eq!(receive(&mut a, 1), [frame(0x0a, b"and back")]);
        assert_eq!(b.statistics().link_losses, round);
    }
    assert_eq!(b.statistics().transmit_refused, 3);
}

#[test]
fn a_flap_too_short_to_be_seen_is_counted() {
    veth();
    let mut b = open("end-b");
    assert!(b.maintain().is_none());
    ip("link set end-b down");
    ip("link set end-b up");
    maintain_until(&mut b, |change| matches!(change, Change::Up));
    assert_eq!(b.statistics().link_losses, 1);
    assert!(b.maintain().is_none());
}

#[test]
fn a_device_that_goes_and_comes_back_is_taken_up_again() {
    veth();
    let mut b = open("end-b");
    ip("link delete end-b");
    maintain_until(&mut b, |change| matches!(change, Change::Gone));
    assert!(b.readiness().is_none() && b.maintain().is_none());
    assert_eq!(send(&mut b, &frame(0x0a, b"into the void")).count(), 1);
    make_pair();
    maintain_until(&mut b, |change| matches!(change, Change::Back(Ok(()))));
    let mut a = open("end-a");
    assert_eq!(send(&mut a, &frame(0x0b, b"again")), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [frame(0x0b, b"again")]);
    assert_eq!(b.statistics().link_losses, 1);
}

#[test]
fn a_device_that_is_down_can_be_opened_and_used_once_it_is_up() {
    veth();
    ip("link set end-b down");
    let mut b = open_down("end-b");
    assert!(!b.link().up);
    ip("link set end-b up");
    maintain_until(&mut b, |change| matches!(change, Change::Up));
    let mut a = open("end-a");
    assert_eq!(send(&mut a, &frame(0x0b, b"up")), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [frame(0x0b, b"up")]);
}

#[test]
fn receive_offload_is_switched_off_once() {
    veth();
    let b = open("end-b");
    assert_eq!(b.stop_merging().expect("ethtool works"), []);
    assert_eq!(generic_receive_offload("end-b", SET_GRO, 1), 1);
    assert_eq!(b.stop_merging().expect("ethtool works"), [Offload::Gro]);
    assert_eq!(generic_receive_offload("end-b", GET_GRO, 0), 0);
    assert_eq!(b.stop_merging().expect("ethtool works"), []);
}

const GET_GRO: u32 = 0x2b;
const SET_GRO: u32 = 0x2c;

/// Reads or sets a device's generic receive offload, as ethtool does.
fn generic_receive_offload(device: &str, command: u32, value: u32) -> u32 {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket to ask by");
    let mut asked = [command, value];
    // SAFETY: ifreq is integers, arrays of them and a pointer, of which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut asked).cast();
    // SAFETY: request and value outlive the call; both commands read and write two integers.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    asked[1]
}

#[test]
fn jumbo_frames_pass_when_the_mtu_lets_them() {
    veth();
    ip("link set end-a mtu 9000");
    ip("link set end-b mtu 9000");
    let (mut a, mut b) = (open("end-a"), open("end-b"));
    let sent = frame(0x0b, &[7; 9000]);
    assert_eq!(send(&mut a, &sent), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [sent]);
}

#[test]
fn the_kernels_address_is_read() {
    veth();
    assert_eq!(kernel_address("end-a").expect("end-a exists"), None);
    ip("addr add 10.9.0.1/20 dev end-a");
    let expected = (std::net::Ipv4Addr::new(10, 9, 0, 1), 20);
    assert_eq!(kernel_address("end-a").expect("end-a exists"), Some(expected));
    assert!(matches!(kernel_address("end-c"), Err(Error::NoDevice(name)) if name == "end-c"));
}

/// A socket of the kernel whose datagrams leave by end a.
fn kernel_sender() -> UdpSocket {
    ip("addr add 10.9.0.1/24 dev end-a");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:0b dev end-a");
    let socket = UdpSocket::bind("10.9.0.1:4000").expect("the address is there");
    socket.connect("10.9.0.2:53").expect("there is a route");
    socket
}

fn udp_checksum_valid(frame: &[u8]) -> bool {
    let address = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"));
    let datagram = &frame[34..];
    let pseudo = checksum::pseudo_header(address(26), address(30), 17, datagram.len() as u16);
    frame[40..42] != [0, 0] && checksum::fold(checksum::sum(datagram, pseudo)) == 0xffff
}

#[test]
fn frames_that_are_read_late_are_as_they_were_sent() {
    veth();
    ip("addr add 10.9.0.2/24 dev end-b");
    let socket = UdpSocket::bind("10.9.0.2:53").expect("the address is there");
    let bytes: libc::c_int = 16 << 20;
    // SAFETY: the value outlives the call, and its length is passed.
    let set = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE);
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const bytes).cast(), 4)
    };
    assert_eq!(set, 0);
    let mut a = open("end-a");
    // Many more datagrams than the transmit ring has slots, each with other bytes.
    let payload = |number: u32| number.to_be_bytes().repeat(100);
    let datagram = |number: u32| {
        let payload = payload(number);
        let mut bytes = vec![2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 8, 0, 0x45, 0];
        bytes.extend((28 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
        let sum = checksum::checksum(&bytes[14..]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes.extend([0x0f, 0xa0, 0, 53]);
        bytes.extend((8 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        bytes
    };
    for number in 0..3000 {
        assert_eq!(send(&mut a, &datagram(number)), Lost::NONE);
    }
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut got = [0; 2000];
    for number in 0..3000 {
        let len = socket.recv(&mut got).expect("it arrived");
        assert!(got[..len] == payload(number), "datagram {number} is another");
    }
}

#[test]
fn frames_of_a_raised_mtu_pass() {
    veth();
    let (mut a, mut b) = (open("end-a"), open("end-b"));
    let long = frame(0x0b, &[7; 8000]);
    assert_eq!(send(&mut a, &long).count(), 1);
    for end in ["end-a", "end-b"] {
        ip(&format!("link set {end} mtu 9000"));
    }
    maintain_until(&mut a, |change| matches!(change, Change::Altered));
    drop(b);
    b = open("end-b");
    assert_eq!(send(&mut a, &long), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [long]);
    let mut tagged = frame(0x0b, &[9; 9000]);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(send(&mut a, &tagged), Lost::NONE);
    assert_eq!(receive(&mut b, 1), [tagged]);
    assert_eq!(send(&mut a, &frame(0x0b, &[9; 9001])).count(), 1);
}
