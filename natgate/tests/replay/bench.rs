//! Common parts of the tests of `natgate replay`: a directory for files, packets, captures to write
//! and read, and a conversation with the program.

use natgate_io::pcap::{Capture, Interface, Item, LinkType, Writer};
use natgate_wire::{Ipv4, checksum, protocol};
use std::fs;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Begin of the captures: a tick of the translator's timers.
pub(crate) const START: u64 = 1_700_000_000 * SECOND;

pub(crate) const CONFIG: &str = r#"
[inside]
device = "absent-in"
address = "10.0.0.1/8"
[outside]
device = "absent-out"
address = "192.0.2.1/24"
[[pool]]
addresses = ["203.0.113.1"]
"#;

pub(crate) const SUBSCRIBER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 5), 4000);
pub(crate) const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 7), 53);
pub(crate) const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Directory of one test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Creates an empty directory with the configuration in it.
    pub(crate) fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay").join(test);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let directory = Self(path);
        directory.write("natgate.toml", CONFIG.as_bytes());
        directory
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    pub(crate) fn events(&self, name: &str) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.read(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Command `natgate replay` with the configuration, in the directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.natgate(&["replay", "-c", "natgate.toml"]);
        command.args(arguments);
        command
    }

    /// Command `natgate`, in the directory.
    pub(crate) fn natgate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_natgate"));
        command.current_dir(&self.0).args(arguments);
        command
    }

    pub(crate) fn replay(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Translates a capture and writes all outputs: `out`, `events`, `stats`.
    pub(crate) fn translate(&self, capture: &[u8]) -> Output {
        self.write("in", capture);
        self.replay(&["--in", "in", "--out", "out", "--events", "events", "--stats", "stats"])
    }

    /// Translates a capture like [`Self::translate`], and requires success; returns the output
    /// packets.
    pub(crate) fn packets(&self, capture: &[u8]) -> Vec<Packet> {
        assert_succeeded(&self.translate(capture));
        packets(&self.read("out"))
    }
}

pub(crate) fn assert_succeeded(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{}: {text}", output.status);
}

/// Sentence with which a run refused its input.
pub(crate) fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A packet in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) interface: usize,
    pub(crate) time: u64,
    pub(crate) frame: Vec<u8>,
}

/// A packet that comes in `after` nanoseconds after [`START`].
pub(crate) fn packet(interface: usize, after: u64, frame: Vec<u8>) -> Packet {
    Packet { interface, time: START + after, frame }
}

pub(crate) fn interface(link: LinkType) -> Interface {
    Interface { name: None, link, snaplen: 262_144 }
}

/// A pcapng whose interfaces have these link types.
pub(crate) fn capture(links: &[LinkType], packets: &[Packet]) -> Vec<u8> {
    let interfaces: Vec<_> = links.iter().map(|&link| interface(link)).collect();
    let mut writer = Writer::new(Vec::new(), &interfaces).unwrap();
    for Packet { interface, time, frame } in packets {
        writer.packet(*interface as u32, *time, &[], frame).unwrap();
    }
    writer.into_inner()
}

pub(crate) fn raw(packets: &[Packet]) -> Vec<u8> {
    capture(&[LinkType::RAW; 2], packets)
}

/// A classic pcap with one link type and microseconds.
pub(crate) fn classic(link: u32, packets: &[Packet]) -> Vec<u8> {
    let mut bytes =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0];
    bytes.extend(link.to_le_bytes());
    for Packet { time, frame, .. } in packets {
        let len = frame.len() as u32;
        for field in [(time / SECOND) as u32, (time % SECOND / 1000) as u32, len, len] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

pub(crate) fn packets(bytes: &[u8]) -> Vec<Packet> {
    let mut capture = Capture::new(bytes);
    let mut packets = Vec::new();
    while let Some(item) = capture.next_item().unwrap() {
        if let Item::Packet(record) = item {
            let frame = capture.frame().to_vec();
            packets.push(Packet { interface: record.interface, time: record.time, frame });
        }
    }
    packets
}

pub(crate) fn interfaces(bytes: &[u8]) -> Vec<Interface> {
    let mut capture = Capture::new(bytes);
    while capture.next_item().unwrap().is_some() {}
    capture.interfaces().to_vec()
}

/// An IPv4 packet with correct checksums around this transport header and payload. The transport's
/// checksum field is at `checksum_at`.
pub(crate) fn ipv4(
    protocol: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    transport: &[u8],
    checksum_at: usize,
) -> Vec<u8> {
    let len = 20 + transport.len();
    let mut bytes = vec![0; len];
    bytes[20..].copy_from_slice(transport);
    let (source, destination) = (source.to_bits(), destination.to_bits());
    let pseudo = match protocol {
        protocol::ICMP => 0,
        _ => checksum::pseudo_header(source, destination, protocol, transport.len() as u16),
    };
    let sum = !checksum::fold(checksum::sum(transport, pseudo));
    bytes[20 + checksum_at..][..2].copy_from_slice(&sum.to_be_bytes());
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(len as u16);
    header.set_ttl(64);
    header.set_protocol(protocol);
    header.set_source(source);
    header.set_destination(destination);
    header.fill_checksum();
    bytes
}

pub(crate) fn udp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), data: &[u8]) -> Vec<u8> {
    let ports = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
    let len = (8 + data.len() as u16).to_be_bytes();
    let transport = [&ports[..], &len, &[0; 2], data].concat();
    ipv4(protocol::UDP, source.0, destination.0, &transport, 6)
}

pub(crate) fn syn(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Vec<u8> {
    let ports = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
    let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0];
    ipv4(protocol::TCP, source.0, destination.0, &[&ports[..], &rest].concat(), 16)
}

pub(crate) fn ping(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    ipv4(protocol::ICMP, source, destination, &[8, 0, 0, 0, 0, 7, 0, 1, 1, 2, 3, 4], 2)
}

/// Splits a packet into two fragments after `at` bytes (a multiple of 8) of its payload.
pub(crate) fn fragments(packet: &[u8], at: usize) -> [Vec<u8>; 2] {
    let part = |payload: &[u8], field: u16| {
        let mut bytes = [&packet[..20], payload].concat();
        let len = bytes.len() as u16;
        let mut header = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
        header.set_total_len(len);
        header.set_identification(77);
        header.set_fragment_field(field);
        header.fill_checksum();
        bytes
    };
    let (first, second) = packet[20..].split_at(at);
    [part(first, 0x2000), part(second, at as u16 / 8)]
}

/// Endpoints of an output packet; both checksums must be correct.
pub(crate) fn endpoints(packet: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
    let header = Ipv4::new_checked(packet).unwrap();
    assert!(header.checksum_valid());
    assert_eq!(packet.len(), usize::from(header.total_len()));
    let payload = header.payload();
    let (source, destination) = (header.source(), header.destination());
    let len = payload.len() as u16;
    let pseudo = checksum::pseudo_header(source, destination, header.protocol(), len);
    assert_eq!(checksum::fold(checksum::sum(payload, pseudo)), 0xffff);
    let port = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    ((Ipv4Addr::from_bits(source), port(0)), (Ipv4Addr::from_bits(destination), port(2)))
}

/// The running program, with its standard input and output.
pub(crate) struct Conversation {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<Said>,
}

/// Output of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Interface(Interface),
    Packet(Packet),
}

impl Conversation {
    pub(crate) fn new(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut capture = Capture::new(child.stdout.take().unwrap());
        let (tell, said) = channel();
        // The reader is a thread, so a silent program fails the test and does not block it.
        std::thread::spawn(move || {
            while let Some(item) = capture.next_item().unwrap() {
                let said = match item {
                    Item::Section => continue,
                    Item::Interface(index) => Said::Interface(capture.interfaces()[index].clone()),
                    Item::Packet(record) => Said::Packet(Packet {
                        interface: record.interface,
                        time: record.time,
                        frame: capture.frame().to_vec(),
                    }),
                };
                if tell.send(said).is_err() {
                    return;
                }
            }
        });
        Self { input: child.stdin.take(), child, said }
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Writes one packet, as a block of its own.
    pub(crate) fn say_packet(&mut self, packet: Packet) {
        let head = raw(&[]).len();
        self.say(&raw(&[packet])[head..]);
    }

    pub(crate) fn hear(&self) -> Said {
        self.said.recv_timeout(Duration::from_secs(20)).expect("the program says something")
    }

    pub(crate) fn hear_packet(&self) -> Packet {
        match self.hear() {
            Said::Packet(packet) => packet,
            other => panic!("{other:?} came instead of a packet"),
        }
    }

    /// Ends the input. The program must write nothing more, and must succeed.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        assert!(self.said.recv_timeout(Duration::from_secs(20)).is_err());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rest of a stream.
pub(crate) fn rest(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}
