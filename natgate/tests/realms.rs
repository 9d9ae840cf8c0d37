//! Two VLANs with equal addresses behind the program. Tagged frames pass the kernel's devices,
//! which remove the tag of received frames.
//!
//! The subscribers' kernel does not know these VLANs: the test sends and receives frames there. The
//! network is that of the demonstration (`natgate-testnet`). Needs root.

use natgate_io::packet::{Config, PacketDevice};
use natgate_io::{Batch, Device, Frame, Lost};
use natgate_testnet::{
    GATEWAY_INSIDE, REFLECTOR_PORT, SERVER1, SUBSCRIBER2, TestNetwork, config, wait_for,
};
use natgate_wire::arp::{Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::{Ipv4, Udp, protocol};
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngrealm";
const PORT: u16 = 4000;
const LIMIT: Duration = Duration::from_secs(10);

const REALMS: &str = "
[[realm]]
name = \"red\"
vlan = 100
address = \"10.0.0.1/24\"
[[realm]]
name = \"blue\"
vlan = 200
address = \"10.0.0.1/24\"
";

/// Hosts with one address, one on each VLAN.
struct Hosts {
    device: PacketDevice,
    address: Ipv4Addr,
}

impl Hosts {
    fn send(&mut self, vlan: u16, frame: &[u8]) {
        let [high, low] = vlan.to_be_bytes();
        let mut frame = [&frame[..12], &[0x81, 0, high, low], &frame[12..]].concat();
        let end = frame.len();
        let lost = self.device.split().1.transmit(&mut [Frame::of(&mut frame, 0, end)]);
        assert_eq!(lost, Lost::NONE, "{frame:02x?}");
    }

    /// Returns the result of `find` for the first matching frame with this tag. Meanwhile it
    /// answers ARP requests for the host's address.
    fn receive<T>(&mut self, vlan: u16, find: impl Fn(u16, &[u8]) -> Option<T>) -> T {
        let found = wait_for("an answer on the VLAN", LIMIT, || {
            let mut batch = Batch::new();
            self.device.split().0.receive(&mut batch);
            let frames: Vec<_> = batch.iter().map(|frame| frame.bytes().to_vec()).collect();
            drop(batch);
            let mut found = None;
            for frame in frames {
                if frame[12..14] != [0x81, 0] {
                    continue;
                }
                let tag = u16::from_be_bytes([frame[14], frame[15]]);
                let kind = u16::from_be_bytes([frame[16], frame[17]]);
                let payload = &frame[ETHERNET_LEN + 4..];
                if kind == ethertype::ARP {
                    self.answer(tag, payload);
                }
                if tag == vlan {
                    found = found.or_else(|| find(kind, payload));
                }
            }
            Ok(found)
        });
        found.expect("an answer comes in time")
    }

    fn answer(&mut self, vlan: u16, request: &[u8]) {
        let Some(request) = Arp::new_checked(request).map(|message| message.repr()) else { return };
        if request.operation == Operation::Request && request.target == self.address {
            let reply = Repr {
                operation: Operation::Reply,
                sender_mac: self.device.link().mac,
                sender: self.address,
                target_mac: request.sender_mac,
                target: request.sender,
            };
            self.send(vlan, &reply.frame(request.sender_mac));
        }
    }

    /// Hardware address of the gateway on a VLAN.
    fn ask_gateway(&mut self, vlan: u16) -> Mac {
        let request = Repr {
            operation: Operation::Request,
            sender_mac: self.device.link().mac,
            sender: self.address,
            target_mac: Mac::default(),
            target: GATEWAY_INSIDE,
        };
        self.send(vlan, &request.frame(Mac::BROADCAST));
        self.receive(vlan, |kind, payload| {
            let message = Arp::new_checked(payload).filter(|_| kind == ethertype::ARP)?.repr();
            (message.operation == Operation::Reply).then_some(message.sender_mac)
        })
    }

    /// Endpoint that the reflector has seen, for a request from a VLAN.
    fn ask_reflector(&mut self, vlan: u16, gateway: Mac) -> String {
        let mut frame = [&gateway.0[..], &self.device.link().mac.0].concat();
        frame.extend(ethertype::IPV4.to_be_bytes());
        frame.extend(datagram(self.address, SERVER1));
        self.send(vlan, &frame);
        let own = self.address.to_bits();
        self.receive(vlan, |kind, payload| {
            let packet = Ipv4::new_checked(payload).ok().filter(|_| kind == ethertype::IPV4)?;
            (packet.protocol() == protocol::UDP && packet.destination() == own).then_some(())?;
            let text = &payload[28..usize::from(packet.total_len())];
            Some(String::from_utf8_lossy(text).trim().to_owned())
        })
    }
}

fn datagram(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let text = b"who?";
    let len = 28 + text.len() as u16;
    let mut bytes = vec![0; usize::from(len)];
    let mut packet = Ipv4::init(&mut bytes[..], 20);
    packet.set_total_len(len);
    packet.set_ttl(64);
    packet.set_protocol(protocol::UDP);
    packet.set_source(from.to_bits());
    packet.set_destination(to.to_bits());
    packet.fill_checksum();
    // Without a checksum, which UDP permits.
    let mut udp = Udp::new_checked(&mut bytes[20..]).expect("there is room");
    udp.set_source_port(PORT);
    udp.set_destination_port(REFLECTOR_PORT);
    udp.set_length(len - 20);
    bytes[28..].copy_from_slice(text);
    bytes
}

/// Numbers of list entries that `natgate show` finds by remote endpoints, prefixes and realms.
fn is_shown(socket: &Path) {
    let reflector = format!("--remote {SERVER1}:{REFLECTOR_PORT}");
    for (what, filters, expected) in [
        ("sessions", reflector.clone(), 2),
        ("mappings", reflector.clone(), 2),
        ("sessions", format!("{reflector} --realm blue"), 1),
        ("sessions", format!("--remote {SERVER1}"), 2),
        ("sessions", format!("--remote {SERVER1}/24"), 2),
        ("sessions", format!("--remote {SERVER1}:9"), 0),
        ("mappings", "--remote 203.0.113.0/24".to_owned(), 0),
        ("mappings", "--subscriber 10.0.0.0/24".to_owned(), 2),
        ("mappings", "--subscriber 10.0.0.0/24 --realm red".to_owned(), 1),
        ("mappings", "--subscriber 10.1.0.0/16".to_owned(), 0),
        ("subscribers", "--subscriber 10.0.0.0/8 --realm blue".to_owned(), 1),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["show", what, "--json", "--socket"]).arg(socket);
        let output = command.args(filters.split(' ')).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{what} {filters}: {error}: {}", String::from_utf8_lossy(&output.stderr))
        });
        let found = said[what].as_array().unwrap_or_else(|| panic!("{said}"));
        assert_eq!(found.len(), expected, "{what} {filters}: {said}");
    }
}

#[test]
fn hosts_with_one_address_on_two_vlans_have_sessions_of_their_own() {
    let network = TestNetwork::with_servers(TAG, 4);
    let socket = std::env::temp_dir().join(format!("{TAG}{}.sock", std::process::id()));
    let realms = format!("{REALMS}[control]\nsocket = {:?}\n", socket.display().to_string());
    let gateway = network.start(PROGRAM, &config(&realms));
    let ask = || {
        let device = PacketDevice::open("eth0", Config::default()).unwrap();
        let mut hosts = Hosts { device, address: SUBSCRIBER2 };
        [100, 200].map(|vlan| {
            let gateway = hosts.ask_gateway(vlan);
            let seen = hosts.ask_reflector(vlan, gateway);
            assert_eq!(hosts.ask_reflector(vlan, gateway), seen, "a session stays");
            seen
        })
    };
    let seen = network.node("sub1").enter(ask).unwrap();
    assert_ne!(seen[0], seen[1]);

    let status = gateway.status().unwrap();
    let internal = format!("{SUBSCRIBER2}:{PORT}");
    let external = |realm: &str| {
        let mappings = status["mappings"].as_array().unwrap().iter();
        let mut own = mappings.filter(|one| one["realm"] == realm && one["internal"] == internal);
        own.next().unwrap_or_else(|| panic!("{status}"))["external"].clone()
    };
    assert_eq!([external("red"), external("blue")], seen);
    is_shown(&socket);
    let output = Command::new(PROGRAM).args(["reload", "--json", "--socket"]).arg(&socket).output();
    let said: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    assert_eq!((&said["mappings"]["go"], &said["changed"]), (&json!(0), &json!([])), "{said}");

    // One customer is added and another removed; the third keeps its session.
    let after = realms.replace("red", "green").replace("vlan = 100", "vlan = 300");
    fs::write(network.file("natgate.toml"), config(&after)).unwrap();
    let output = Command::new(PROGRAM).args(["reload", "--json", "--socket"]).arg(&socket).output();
    let said: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    assert_eq!(said["mappings"]["by_reason"]["not_subscriber"], json!(1), "{said}");
    assert_eq!(said["changed"], json!(["realm"]), "{said}");
    let ask = || {
        let device = PacketDevice::open("eth0", Config::default()).unwrap();
        let mut hosts = Hosts { device, address: SUBSCRIBER2 };
        [300, 200].map(|vlan| {
            let gateway = hosts.ask_gateway(vlan);
            hosts.ask_reflector(vlan, gateway)
        })
    };
    let now = network.node("sub1").enter(ask).unwrap();
    assert_eq!(now[1], seen[1], "who stays keeps his session");
    assert!(!seen.contains(&now[0]), "{now:?} {seen:?}");
    assert!(gateway.stop().unwrap().success());
    assert!(!socket.exists());
}
