//! A device under test and its far end, in a network namespace of the test's thread.

use natgate_io::packet::{self, PacketDevice};
use natgate_io::tun::{GATEWAY, STATION, TunDevice};
use natgate_io::xdp::{self, Mode, XdpDevice};
use natgate_io::{Batch, Change, Device, Frame, Lost, wait};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for an event: enough for any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A back end under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackEnd {
    AfPacket,
    /// Packet sockets that receive by blocks.
    AfPacketRate,
    XdpNative,
    XdpGeneric,
    /// Two queues, served by one device.
    XdpQueues,
    Tun,
}

impl BackEnd {
    /// Creates the link of the device: `near`, up, and for all but TUN the other end of the cable,
    /// `far`.
    pub(crate) fn make(self) {
        match self {
            Self::AfPacket | Self::AfPacketRate | Self::XdpNative => cable("", ""),
            Self::XdpGeneric => {
                cable("", "");
                // More queues than the near end has receive queues, so that the driver refuses.
                run("ethtool", "-L far tx 2");
            }
            Self::XdpQueues => {
                let two = "numtxqueues 2 numrxqueues 2";
                cable(two, two);
            }
            Self::Tun => {
                ip("tuntap add dev near mode tun");
                ip("link set dev near addrgenmode none up");
            }
        }
    }

    /// Deletes the link.
    pub(crate) fn unmake(self) {
        ip("link delete near");
    }

    pub(crate) fn open(self) -> Box<dyn Device> {
        match self {
            Self::AfPacket | Self::AfPacketRate => {
                let mode = match self {
                    Self::AfPacketRate => packet::Mode::Rate,
                    _ => packet::Mode::Latency,
                };
                let config = packet::Config { slots: 256, mode, ..packet::Config::default() };
                Box::new(PacketDevice::open("near", config).expect("the device can be opened"))
            }
            Self::Tun => Box::new(TunDevice::open("near").expect("the device can be opened")),
            _ => Box::new(open_xdp(self)),
        }
    }

    /// Hardware addresses, the device's first.
    fn macs(self) -> [[u8; 6]; 2] {
        match self {
            Self::Tun => [GATEWAY.0, STATION.0],
            _ => [[2, 0, 0, 0, 0, 0x0a], [2, 0, 0, 0, 0, 0x0b]],
        }
    }
}

/// Opens AF_XDP on `near`, and checks its mode.
pub(crate) fn open_xdp(kind: BackEnd) -> XdpDevice {
    let config = xdp::Config { frames: 256 };
    let device = XdpDevice::open("near", config).expect("the device can be opened");
    let mode = device.mode().expect("it is there");
    let expected = if kind == BackEnd::XdpGeneric { Mode::Generic } else { Mode::Native };
    assert_eq!(mode.mode, expected, "{mode}");
    assert_eq!(mode.queues, if kind == BackEnd::XdpQueues { 2 } else { 1 }, "{mode}");
    assert!(!mode.zero_copy, "a veth copies");
    device
}

/// A cable between `near` and `far`, with these queues.
fn cable(near: &str, far: &str) {
    ip(&format!(
        "link add name near {near} address 02:00:00:00:00:0a type veth \
         peer name far {far} address 02:00:00:00:00:0b"
    ));
    for end in ["near", "far"] {
        ip(&format!("link set dev {end} addrgenmode none up"));
    }
}

pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

pub(crate) fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {message}");
}

/// The far end: frames go into the cable there, and come out.
pub(crate) enum Far {
    Cable(Box<PacketDevice>),
    /// The kernel's side of a TUN device, without Ethernet.
    Kernel(OwnedFd),
}

impl Far {
    fn open(kind: BackEnd) -> Self {
        if kind != BackEnd::Tun {
            let config = packet::Config::default();
            let device = PacketDevice::open("far", config).expect("far can be opened");
            return Self::Cable(Box::new(device));
        }
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let socket = unsafe { libc::socket(libc::AF_PACKET, flags, protocol.into()) };
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: sockaddr_ll is plain integers, of which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        // SAFETY: the name is a string.
        address.sll_ifindex = unsafe { libc::if_nametoindex(c"near".as_ptr()) } as libc::c_int;
        let len = std::mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address outlives the call, and its length is passed.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        let one: libc::c_int = 1;
        // SAFETY: the value outlives the call, and its length is passed.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                (&raw const one).cast(),
                4,
            )
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        Self::Kernel(socket)
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        match self {
            Self::Cable(device) => assert_eq!(send(&mut **device, frame), Lost::NONE),
            Self::Kernel(socket) => {
                let packet = &frame[14..];
                let (at, len) = (packet.as_ptr().cast(), packet.len());
                // The first try may fail because the device was down in the meantime.
                let sent = (0..2).any(|_| {
                    // SAFETY: the packet outlives the call, and its length is passed.
                    let sent = unsafe { libc::send(socket.as_raw_fd(), at, len, 0) };
                    sent == len as isize
                });
                assert!(sent, "{}", io::Error::last_os_error());
            }
        }
    }

    pub(crate) fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let socket = match self {
            Self::Cable(device) => return receive(&mut **device, count),
            Self::Kernel(socket) => socket,
        };
        let begin = Instant::now();
        let mut frames = Vec::new();
        while frames.len() < count {
            assert!(begin.elapsed() < PATIENCE, "{} of {count} frames came", frames.len());
            let mut packet = vec![0; 65_536];
            let at = packet.as_mut_ptr().cast();
            // SAFETY: the memory outlives the call, and its length is passed.
            let len = unsafe { libc::recv(socket.as_raw_fd(), at, packet.len(), 0) };
            if len >= 0 {
                let [gateway, station] = BackEnd::Tun.macs();
                let packet = &packet[..len as usize];
                let kind = if packet[0] >> 4 == 6 { IPV6 } else { IPV4 };
                frames.push([&station[..], &gateway, &kind, packet].concat());
            }
        }
        frames
    }
}

/// The device, open and up, and the far end.
pub(crate) struct Stage {
    pub(crate) kind: BackEnd,
    pub(crate) device: Box<dyn Device>,
    pub(crate) far: Far,
}

impl Stage {
    pub(crate) fn new(kind: BackEnd) -> Self {
        enter_namespace();
        kind.make();
        let mut stage = Self::with(kind, kind.open());
        stage.wait_until_up();
        stage
    }

    /// Creates a stage with an open device.
    pub(crate) fn with(kind: BackEnd, device: Box<dyn Device>) -> Self {
        Self { kind, device, far: Far::open(kind) }
    }

    fn wait_until_up(&mut self) {
        if !self.device.link().up {
            maintain_until(&mut *self.device, |change| matches!(change, Change::Up));
        }
    }

    /// Reopens the far end after its device has come back.
    pub(crate) fn reopen_far(&mut self) {
        self.far = Far::open(self.kind);
        self.wait_until_up();
    }

    /// A frame of IPv4 that the far end sends; `payload` follows a header.
    pub(crate) fn inward(&self, payload: &[u8]) -> Vec<u8> {
        let [here, there] = self.kind.macs();
        [&here[..], &there, &IPV4, &HEADER, payload].concat()
    }

    /// A frame that the device sends.
    pub(crate) fn outward(&self, payload: &[u8]) -> Vec<u8> {
        let [here, there] = self.kind.macs();
        [&there[..], &here, &IPV4, &HEADER, payload].concat()
    }

    /// Frames of IPv6 that the far end and the device send; `payload` follows a header.
    pub(crate) fn of_ipv6(&self, payload: &[u8]) -> [Vec<u8>; 2] {
        let [here, there] = self.kind.macs();
        let mut header = [0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        header[6..8].copy_from_slice(&[253, 64]);
        let frame = |to: &[u8], from: &[u8]| [to, from, &IPV6, &header, payload].concat();
        [frame(&here, &there), frame(&there, &here)]
    }

    /// Sends a frame each way and checks that it arrives.
    pub(crate) fn works(&mut self, word: &[u8]) {
        let (inward, outward) = (self.inward(word), self.outward(word));
        self.far.send(&inward);
        assert_eq!(receive(&mut *self.device, 1), [inward]);
        assert_eq!(send(&mut *self.device, &outward), Lost::NONE);
        assert_eq!(self.far.receive(1), [outward]);
    }
}

/// Types of a frame.
const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// An IPv4 header with the fields that matter here.
pub(crate) const HEADER: [u8; 20] =
    [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

/// Moves this thread into a new network namespace, without the packets of IPv6.
pub(crate) fn enter_namespace() {
    // SAFETY: no pointers are passed; only this thread changes its namespace.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    let error = io::Error::last_os_error();
    assert!(result == 0, "making a network namespace failed ({error}); run this test as root");
    for scope in ["all", "default"] {
        let key = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        // A kernel without IPv6 sends none.
        let _ = std::fs::write(key, "1");
    }
}

pub(crate) fn send(device: &mut dyn Device, bytes: &[u8]) -> Lost {
    let mut bytes = bytes.to_vec();
    let end = bytes.len();
    device.split().1.transmit(&mut [Frame::of(&mut bytes, 0, end)])
}

/// Receives frames until there are `count`.
pub(crate) fn receive(device: &mut dyn Device, count: usize) -> Vec<Vec<u8>> {
    let begin = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(begin.elapsed() < PATIENCE, "{} of {count} frames came", frames.len());
        let mut batch = Batch::new();
        device.split().0.receive(&mut batch);
        if batch.is_empty() {
            drop(batch);
            let descriptor = device.readiness().expect("the device is there");
            wait(&[descriptor], Duration::from_millis(100)).expect("poll works");
            continue;
        }
        for frame in &batch {
            assert!(frame.headroom() >= natgate_io::HEADROOM);
            frames.push(frame.bytes().to_vec());
        }
    }
    frames
}

/// Maintains the device until it reports a change that `expected` accepts.
pub(crate) fn maintain_until(device: &mut dyn Device, expected: impl Fn(&Change) -> bool) {
    let begin = Instant::now();
    loop {
        match device.maintain() {
            Some(change) if expected(&change) => return,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(begin.elapsed() < PATIENCE, "the change was never reported");
    }
}
