//! The gateway's two devices by one back end, and their other ends.

use natgate_io::packet::{self, Mode, PacketDevice};
use natgate_io::tun::TunDevice;
use natgate_io::xdp::{self, XdpDevice};
use natgate_io::{Batch, Device, Frame, Lost};
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

/// Hardware address of all hosts at the other end.
const EVERYBODY: Mac = Mac([2, 0, 0, 0, 9, 9]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackEnd {
    AfPacket,
    AfPacketRate,
    AfXdp,
    Tun,
    #[cfg(feature = "dpdk")]
    Dpdk,
}

impl BackEnd {
    /// True if fragments arrive unchanged. DPDK's net_af_packet makes the kernel reassemble them.
    pub(crate) fn passes_pieces(self) -> bool {
        matches!(self, Self::AfPacket | Self::AfPacketRate | Self::AfXdp | Self::Tun)
    }
}

/// Other end of a device.
pub(crate) enum Link {
    /// Other end of a cable.
    Cable { far: Box<PacketDevice>, gateway: Mac },
    /// The kernel's end of a TUN device: a socket by which packets go in and come out.
    Kernel(File),
}

/// Moves this thread into a network namespace of its own, without IPv6 and its packets.
pub(crate) fn enter_namespace() {
    // SAFETY: the call gets no pointers; only this thread changes its namespace.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "namespaces need root: {}", Error::last_os_error());
    for scope in ["all", "default"] {
        // A kernel without IPv6 sends no such packets.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {said}");
}

/// Creates and opens the devices, inside and outside, and their other ends. Former devices are
/// removed.
pub(crate) fn open(kind: BackEnd) -> (Vec<Box<dyn Device>>, [Link; 2]) {
    for name in ["inside", "outside"] {
        let _ = Command::new("ip").args(["link", "delete", name]).output();
        if kind == BackEnd::Tun {
            run("ip", &format!("tuntap add dev {name} mode tun"));
        } else {
            run("ip", &format!("link add name {name} type veth peer name {name}-far"));
            run("ip", &format!("link set {name}-far up"));
        }
        run("ip", &format!("link set {name} up"));
    }
    let mut devices = open_devices(kind);
    for device in &mut devices {
        wait_until_up(&mut **device);
    }
    let links = [0, 1].map(|side| {
        let name = ["inside", "outside"][side];
        if kind == BackEnd::Tun { kernel(name) } else { cable(name, devices[side].link().mac) }
    });
    (devices, links)
}

fn open_devices(kind: BackEnd) -> Vec<Box<dyn Device>> {
    let names = ["inside", "outside"];
    let packet = |mode| -> Vec<Box<dyn Device>> {
        let config = packet::Config { mode, ..packet::Config::default() };
        let open = |name| PacketDevice::open(name, config.clone()).expect("it can be opened");
        names.map(|name| Box::new(open(name)) as Box<dyn Device>).into()
    };
    match kind {
        BackEnd::AfPacket => packet(Mode::Latency),
        BackEnd::AfPacketRate => packet(Mode::Rate),
        BackEnd::AfXdp => {
            let pair = XdpDevice::open_pair(names, &xdp::Config::default());
            pair.expect("both can be opened").map(|device| Box::new(device) as _).into()
        }
        BackEnd::Tun => {
            let open = |name| TunDevice::open(name).expect("it can be opened");
            names.map(|name| Box::new(open(name)) as Box<dyn Device>).into()
        }
        #[cfg(feature = "dpdk")]
        BackEnd::Dpdk => {
            let eal = natgate_dpdk::start(None, 1500).expect("DPDK starts");
            let open = |(number, name)| -> Box<dyn Device> {
                let device = format!("net_af_packet{number},iface={name}");
                Box::new(eal.open(&device, 1500, 1).expect("it can be opened").remove(0))
            };
            names.into_iter().enumerate().map(open).collect()
        }
    }
}

fn wait_until_up(device: &mut dyn Device) {
    let begin = Instant::now();
    while !device.link().up {
        assert!(begin.elapsed() < PATIENCE, "{} is not up", device.link().name);
        device.maintain();
    }
}

fn cable(name: &str, gateway: Mac) -> Link {
    let far = PacketDevice::open(&format!("{name}-far"), packet::Config::default());
    let mut far = far.expect("the other end can be opened");
    wait_until_up(&mut far);
    Link::Cable { far: Box::new(far), gateway }
}

/// A packet socket on a device that receives incoming packets and not outgoing ones.
fn kernel(name: &str) -> Link {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call gets no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
    assert!(socket >= 0, "{}", Error::last_os_error());
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: sockaddr_ll has plain integers, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    let name = std::ffi::CString::new(name).expect("no zero byte");
    // SAFETY: the name is a string.
    address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as libc::c_int;
    let one: libc::c_int = 1;
    // SAFETY: address and value outlive the calls, which get their lengths.
    let results = unsafe {
        let descriptor = socket.as_raw_fd();
        let len = std::mem::size_of_val(&address) as libc::socklen_t;
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING);
        [
            libc::bind(descriptor, (&raw const address).cast(), len),
            libc::setsockopt(descriptor, level, option, (&raw const one).cast(), 4),
        ]
    };
    assert_eq!(results, [0, 0], "{}", Error::last_os_error());
    // Reading and writing a socket receives and sends packets.
    Link::Kernel(File::from(socket))
}

impl Link {
    /// Sends a packet to the gateway.
    pub(crate) fn send(&mut self, packet: &[u8]) {
        match self {
            Self::Cable { far, gateway } => {
                let mut frame = vec![0; ETHERNET_LEN];
                let header = frame.first_chunk_mut().expect("there is room");
                arp::write_ethernet(header, *gateway, EVERYBODY, ethertype::IPV4);
                frame.extend(packet);
                transmit(far, frame);
            }
            Self::Kernel(socket) => {
                assert_eq!(socket.write(packet).expect("the device takes it"), packet.len());
            }
        }
    }

    /// Takes received frames: packets, the number of ARP answers, and the number of frames.
    pub(crate) fn receive(&mut self) -> (Vec<Vec<u8>>, u64, usize) {
        match self {
            Self::Cable { far, .. } => {
                let mut batch = Batch::new();
                far.split().0.receive(&mut batch);
                let frames: Vec<_> = batch.iter().map(|frame| frame.bytes().to_vec()).collect();
                drop(batch);
                let (mut packets, mut answers) = (Vec::new(), 0);
                for frame in &frames {
                    let (_, _, kind) = arp::read_ethernet(frame).expect("a whole frame");
                    if kind == ethertype::IPV4 {
                        packets.push(frame[ETHERNET_LEN..].to_vec());
                    } else if let Some(answer) = answer(&frame[ETHERNET_LEN..]) {
                        transmit(far, answer);
                        answers += 1;
                    }
                }
                (packets, answers, frames.len())
            }
            Self::Kernel(socket) => {
                let mut packets = Vec::new();
                let mut packet = vec![0; 65_536];
                loop {
                    match socket.read(&mut packet) {
                        Ok(len) => packets.push(packet[..len].to_vec()),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let count = packets.len();
                (packets, 0, count)
            }
        }
    }

    /// True if each sent packet is received at once, both ways, so that no wait is necessary.
    pub(crate) fn is_synchronous(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// Number of received frames.
    pub(crate) fn received(&mut self) -> u64 {
        match self {
            Self::Cable { far, .. } => far.statistics().received,
            Self::Kernel(_) => 0,
        }
    }
}

fn transmit(device: &mut PacketDevice, mut frame: Vec<u8>) {
    let end = frame.len();
    let lost = device.split().1.transmit(&mut [Frame::of(&mut frame, 0, end)]);
    assert_eq!(lost, Lost::NONE);
}

/// Answers ARP for all hosts: every address except the requester's exists.
fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    let asked = Arp::new_checked(packet)?.repr();
    let own = asked.sender.is_unspecified() || asked.sender == asked.target;
    if asked.operation != Operation::Request || own {
        return None;
    }
    let answer = Repr {
        operation: Operation::Reply,
        sender_mac: EVERYBODY,
        sender: asked.target,
        target_mac: asked.sender_mac,
        target: asked.sender,
    };
    Some(answer.frame(asked.sender_mac).to_vec())
}
