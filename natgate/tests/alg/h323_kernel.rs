//! H.323 through natgate and through the helper of Linux (`nf_nat_h323`): the same messages, and
//! what becomes of each endpoint in them.
//!
//! ```text
//! host 10.0.0.5 --- inside [natgate, or Linux in an emulator] outside --- other 198.51.100.2
//! ```
//!
//! The hosts are sockets of the test. Where both differ, a field below has two places, and
//! docs/alg.md says why.

// The messages of the framework's own tests.
#[path = "../../../core/payload/tests/common/h323.rs"]
#[allow(dead_code, reason = "the tests use a part")]
mod messages;

use super::*;
use Place::{Anyone, Closed, Internal, Left, Opened, Own};
use Side::{Inside, Outside};
use messages::*;
use natgate_testnet::traffic::{connect_from, listen};
use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, LinuxGuest, LinuxMachine, Network, ROUTER, Turn,
    config_with_pool,
};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::path::Path;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const STRANGER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 3);
const EXTERNAL: Ipv4Addr = POOL[0];

const RAS: u16 = 1719;
const SIGNALLING: u16 = 1720;
/// Port of the caller in its messages, of H.245 of the host, and of H.245 of the other one.
const CALLER: u16 = 40_000;
const CONTROL: u16 = 30_000;

const MODULES: [&str; 10] = [
    "virtio_pci",
    "virtio_net",
    "nf_conntrack",
    "nf_tables",
    "nft_chain_nat",
    "nft_nat",
    "nft_ct",
    "nft_objref",
    "nf_conntrack_h323",
    "nf_nat_h323",
];

/// One address for all, and the helper for what the host begins. Expected connections have it by
/// themselves.
const RULES: &str = "table ip nat { \
    ct helper ras { type \"RAS\" protocol udp; }; \
    ct helper signalling { type \"Q.931\" protocol tcp; }; \
    chain helpers { type filter hook prerouting priority filter; \
        iifname eth0 udp dport 1719 ct helper set \"ras\"; \
        iifname eth0 tcp dport 1720 ct helper set \"signalling\"; }; \
    chain out { type nat hook postrouting priority srcnat; oifname eth1 snat to EXTERNAL; }; }";

/// What stands where a message had an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The same endpoint.
    Left,
    /// The external endpoint of the connection or flow itself.
    Own,
    /// An external endpoint at which the other host reaches the host, and a stranger does not.
    Opened,
    /// An external endpoint at which both reach the host.
    Anyone,
    /// An external endpoint at which the other host does not reach the host.
    Closed,
    /// In a message from outside, the host's own endpoint in place of the external one.
    Internal,
}

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Inside,
    Outside,
}

/// The place of a field behind Linux, and behind natgate.
type Field = (&'static str, [Place; 2]);

const fn both(place: Place) -> [Place; 2] {
    [place, place]
}

const LINUX: usize = 0;
const NATGATE: usize = 1;

/// Channels between both hosts.
enum Wire {
    Stream([TcpStream; 2]),
    Datagrams([UdpSocket; 2]),
}

/// A connection, or the flow of RAS, and the external endpoint of the host.
struct Link {
    wire: Wire,
    external: SocketAddrV4,
}

impl Link {
    /// Has a host send a message; returns what the other one receives.
    fn pass(&mut self, from: Side, message: &[u8]) -> Vec<u8> {
        let mut heard = vec![0; message.len() + 100];
        let (sender, receiver) = (from as usize, 1 - from as usize);
        let len = match &mut self.wire {
            Wire::Stream(streams) => {
                streams[sender].write_all(message).unwrap();
                streams[receiver].read_exact(&mut heard[..message.len()]).unwrap();
                message.len()
            }
            Wire::Datagrams(sockets) => {
                let to = if from == Inside { end(OTHER, RAS) } else { self.external };
                sockets[sender].send_to(message, to).unwrap();
                let (len, source) = sockets[receiver].recv_from(&mut heard).unwrap();
                if from == Inside {
                    self.external = v4(source);
                }
                len
            }
        };
        heard.truncate(len);
        heard
    }
}

fn end(address: Ipv4Addr, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address, port)
}

fn v4(end: SocketAddr) -> SocketAddrV4 {
    let SocketAddr::V4(end) = end else { panic!("{end}") };
    end
}

/// Both hosts around a gateway.
struct World<'n> {
    network: &'n Network,
    /// Number of the gateway in [`Field`].
    gateway: usize,
    /// Added to the ports of each call, so that calls have ports of their own.
    shift: u16,
    /// External endpoints by internal ones.
    external: BTreeMap<SocketAddrV4, SocketAddrV4>,
    /// The last connection of H.245 to the host.
    control: Option<Link>,
    /// Fields with another place than expected.
    odd: Vec<String>,
}

impl<'n> World<'n> {
    fn new(network: &'n Network, gateway: usize) -> Self {
        let add = |node: &str, lines: &str| network.node(node).ip_batch(lines).unwrap();
        add("sub1", &format!("address add {HOST}/24 dev eth0\n"));
        add("server1", &format!("address add {OTHER}/25 dev eth0\n"));
        add("server1", &format!("address add {STRANGER}/25 dev eth0\n"));
        let external = BTreeMap::new();
        Self { network, gateway, shift: 0, external, control: None, odd: Vec::new() }
    }

    fn socket(&self, address: Ipv4Addr, port: u16) -> UdpSocket {
        let node = if address == HOST { "sub1" } else { "server1" };
        let socket = self.network.node(node).enter(|| UdpSocket::bind((address, port)));
        let socket = socket.unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Connects from one side to an endpoint. `waits` is where the other side waits.
    fn connect(
        &self,
        by: Side,
        from: SocketAddrV4,
        to: SocketAddrV4,
        waits: SocketAddrV4,
    ) -> io::Result<Link> {
        let mut nodes = ["sub1", "server1"].map(|node| self.network.node(node));
        if by == Outside {
            nodes.reverse();
        }
        let limit = Duration::from_secs(3);
        let listener = listen(nodes[1], waits, limit)?;
        let stream = connect_from(nodes[0], from, to, limit)?;
        let (accepted, seen) = listener.accept()?;
        accepted.set_read_timeout(Some(PATIENCE))?;
        accepted.set_nodelay(true)?;
        Ok(match by {
            Inside => Link { wire: Wire::Stream([stream, accepted]), external: v4(seen) },
            Outside => Link { wire: Wire::Stream([accepted, stream]), external: to },
        })
    }

    /// Connects the host to a port of the other one.
    fn open(&self, from: u16, port: u16) -> Link {
        let to = end(OTHER, port);
        self.connect(Inside, end(HOST, from), to, to).unwrap()
    }

    /// Begins a call of the host, with ports that no earlier call has.
    fn call(&mut self) -> Link {
        self.shift += 100;
        self.open(CALLER + self.shift, SIGNALLING)
    }

    /// A message with the ports of this call; both hosts change places if the other one says it.
    fn message(&self, hex: &str, change: bool) -> Vec<u8> {
        let mut message = bytes(hex);
        for (at, mut one) in endpoints(&message) {
            if change {
                one.set_ip(if *one.ip() == HOST { OTHER } else { HOST });
            }
            if ![RAS, SIGNALLING].contains(&one.port()) {
                one.set_port(one.port() + self.shift);
            }
            message[at..at + 6].copy_from_slice(&octets(&one.to_string()));
        }
        message
    }

    /// Has a host say what the messages of the framework have it say.
    fn say(&mut self, link: &mut Link, from: Side, name: &str, hex: &str, fields: &[Field]) {
        let message = self.message(hex, false);
        self.pass(link, (from, name), &message, fields);
    }

    /// Has a host say what the other one says in the messages of the framework.
    fn say_as_other(&mut self, link: &mut Link, from: Side, name: &str, hex: &str, all: &[Field]) {
        let message = self.message(hex, true);
        self.pass(link, (from, name), &message, all);
    }

    /// Passes a message, and looks at each of its endpoints.
    fn pass(
        &mut self,
        link: &mut Link,
        (from, name): (Side, &str),
        message: &[u8],
        fields: &[Field],
    ) {
        let places = endpoints(message);
        assert_eq!(places.len(), fields.len(), "{name}: {places:?}");
        let mut sent = message.to_vec();
        if from == Outside {
            // The other host knows the host by its external endpoints.
            for (at, one) in places.iter().filter(|(_, one)| *one.ip() == HOST) {
                let external = self.external.get(one).expect("an endpoint that was named before");
                sent[*at..at + 6].copy_from_slice(&octets(&external.to_string()));
            }
        }
        let mut heard = link.pass(from, &sent);
        let mut media = Vec::new();
        for ((at, one), (field, expected)) in places.into_iter().zip(fields) {
            let six = |bytes: &[u8]| endpoint(&bytes[at..at + 6]);
            let (named, found) = (six(&sent), six(&heard));
            let place = match () {
                () if found == named => Left,
                () if from == Outside && found == one => Internal,
                () if *one.ip() != HOST || *found.ip() != EXTERNAL => {
                    panic!("{name}, {field}: {named} became {found}")
                }
                () if found == link.external => Own,
                () if field.starts_with("media") => {
                    media.push([one.port(), found.port()]);
                    self.reach(one, found)
                }
                () => self.call_host(one, found),
            };
            if from == Inside && place != Left {
                self.external.insert(one, found);
            }
            if place != expected[self.gateway] {
                self.odd.push(format!("{name}, {field}: {place:?}"));
            }
            heard[at..at + 6].copy_from_slice(&sent[at..at + 6]);
        }
        assert_eq!(heard, sent, "{name}: other bytes stay");
        // RTP has an even port, and RTCP the odd one above it.
        for [internal, external] in &media {
            assert_eq!(internal % 2, external % 2, "{name}: {media:?}");
            let is_of_pair = |other: &&[u16; 2]| other[0] / 2 == internal / 2;
            let pair = media.iter().filter(is_of_pair);
            assert!(pair.map(|other| other[1] / 2).all(|two| two == external / 2), "{media:?}");
        }
    }

    /// Senders whose datagrams to an external endpoint reach the host. The stranger sends first.
    fn reach(&self, internal: SocketAddrV4, external: SocketAddrV4) -> Place {
        let host = self.socket(HOST, internal.port());
        host.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let stranger = self.socket(STRANGER, 0);
        let other = self.socket(OTHER, internal.port());
        let mut is_open = false;
        for _ in 0..3 {
            stranger.send_to(b"stranger", external).unwrap();
            other.send_to(b"media", external).unwrap();
            let mut buffer = [0; 20];
            loop {
                match host.recv_from(&mut buffer) {
                    Ok((_, from)) if from.ip() == STRANGER => is_open = true,
                    Ok(_) => return if is_open { Anyone } else { Opened },
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        Closed
    }

    /// Whether the other host connects to the host at an external endpoint.
    fn call_host(&mut self, internal: SocketAddrV4, external: SocketAddrV4) -> Place {
        match self.connect(Outside, end(OTHER, 0), external, internal) {
            Ok(link) => {
                self.control = Some(link);
                Opened
            }
            Err(_) => Closed,
        }
    }

    fn last_control(&mut self) -> Link {
        self.control.take().expect("the other host has connected")
    }
}

/// The endpoints of both hosts in a message, with their places.
fn endpoints(message: &[u8]) -> Vec<(usize, SocketAddrV4)> {
    let all = message.windows(6).map(endpoint).enumerate();
    all.filter(|(_, end)| [HOST, OTHER].contains(end.ip())).collect()
}

fn endpoint(six: &[u8]) -> SocketAddrV4 {
    end(Ipv4Addr::new(six[0], six[1], six[2], six[3]), u16::from_be_bytes([six[4], six[5]]))
}

const CHANNEL: [&str; 2] = ["mediaChannel", "mediaControlChannel"];
/// Fast connect of the other host: its channels, and the host's that it accepts.
const ACCEPTED: [Field; 4] = [
    (CHANNEL[0], both(Left)),
    (CHANNEL[1], both(Left)),
    (CHANNEL[0], [Left, Internal]),
    (CHANNEL[1], both(Left)),
];

/// Media on connections of H.245.
fn channels(world: &mut World<'_>, control: &mut Link) {
    world.say(control, Outside, "MasterSlaveDetermination", DETERMINATION, &[]);
    world.say(control, Inside, "MasterSlaveDetermination", DETERMINATION, &[]);
    let open = [(CHANNEL[1], [Opened, Anyone])];
    world.say(control, Inside, "OpenLogicalChannel", OPEN, &open);
    let pair = CHANNEL.map(|field| (field, [Opened, Anyone]));
    world.say(control, Inside, "OpenLogicalChannel of video", OPEN_VIDEO, &pair);
    world.say(control, Inside, "OpenLogicalChannelAck", OPEN_ACK, &pair);
    world.say_as_other(control, Outside, "OpenLogicalChannel", OPEN, &[(CHANNEL[1], both(Left))]);
    let pair = CHANNEL.map(|field| (field, both(Opened)));
    world.say(control, Inside, "OpenLogicalChannelAck, later", OPEN_ACK_TYPE, &pair);
}

const SETUP_FIELDS: [Field; 2] =
    [("destCallSignalAddress", both(Left)), ("sourceCallSignalAddress", both(Own))];

/// Calls of the host.
fn host_calls(world: &mut World<'_>) {
    let mut call = world.call();
    world.say(&mut call, Inside, "Setup", SETUP, &SETUP_FIELDS);
    let h245 = [("h245Address", both(Left))];
    world.say(&mut call, Outside, "Connect", CONNECT_H245, &h245);
    let mut control = world.open(CALLER + 1 + world.shift, CONTROL + world.shift);
    channels(world, &mut control);

    let mut call = world.call();
    let fields = [&[("h245Address", both(Opened))][..], &SETUP_FIELDS].concat();
    world.say(&mut call, Inside, "Setup with H.245", SETUP_H245, &fields);
    let mut control = world.last_control();
    channels(world, &mut control);
    world.say(&mut call, Outside, "Alerting", ALERTING, &h245);

    let mut call = world.call();
    let media = [CHANNEL[1], CHANNEL[0], CHANNEL[1]].map(|field| (field, [Opened, Anyone]));
    let source = [SETUP_FIELDS[0], ("sourceCallSignalAddress", [Own, Opened])];
    let fields = [&source[..], &media].concat();
    world.say(&mut call, Inside, "Setup with fast connect", SETUP_FAST, &fields);
    world.say(&mut call, Outside, "CallProceeding", PROCEEDING, &ACCEPTED);
    world.say(&mut call, Outside, "Connect", CONNECT_FAST, &ACCEPTED);
    let pair = CHANNEL.map(|field| (field, both(Opened)));
    world.say(&mut call, Inside, "empty Facility", EMPTY_TUNNEL, &pair);

    let mut call = world.call();
    let tunnel = [&SETUP_FIELDS[..], &[(CHANNEL[1], [Opened, Anyone])]].concat();
    world.say(&mut call, Inside, "Setup with a tunnel", SETUP_TUNNEL, &tunnel);
    let pair = CHANNEL.map(|field| (field, [Opened, Anyone]));
    world.say(&mut call, Inside, "empty Facility", EMPTY_TUNNEL, &pair);

    let mut call = world.call();
    world.say(&mut call, Inside, "Setup", SETUP, &SETUP_FIELDS);
    let h245 = [("h245Address", both(Opened))];
    world.say(&mut call, Inside, "Facility", FACILITY, &h245);
    let fields = [&[("alternativeAddress", [Left, Opened])][..], &h245].concat();
    world.say(&mut call, Inside, "Facility, forwarded", FACILITY_ALTERNATIVE, &fields);
    let fields = [&h245[..], &media].concat();
    world.say(&mut call, Inside, "Progress", PROGRESS, &fields);
    world.say(&mut call, Inside, "ReleaseComplete", RELEASE, &[]);
}

/// A registration of the host, and a call to it.
fn host_is_called(world: &mut World<'_>) {
    world.shift += 100;
    let sockets = [HOST, OTHER].map(|address| world.socket(address, RAS));
    let mut ras = Link { wire: Wire::Datagrams(sockets), external: end(EXTERNAL, 0) };
    let [own, registered] = [both(Own), both(Opened)];
    world.say(&mut ras, Inside, "GRQ", GATEKEEPER_REQUEST, &[("rasAddress", own)]);
    world.say(&mut ras, Outside, "GCF", GATEKEEPER_CONFIRM, &[("rasAddress", both(Left))]);
    let fields = [("callSignalAddress", registered), ("rasAddress", own)];
    world.say(&mut ras, Inside, "RRQ", REGISTRATION, &fields);
    let fields = [("callSignalAddress", both(Left))];
    world.say(&mut ras, Outside, "RCF", REGISTRATION_CONFIRM, &fields);
    world.say(&mut ras, Inside, "ARQ", ADMISSION, &[("srcCallSignalAddress", registered)]);
    let fields = [("destCallSignalAddress", registered), ("srcCallSignalAddress", both(Left))];
    world.say(&mut ras, Inside, "ARQ of a called host", ADMISSION_OF_CALLED, &fields);
    let fields = [("destCallSignalAddress", both(Left))];
    world.say(&mut ras, Outside, "ACF", ADMISSION_CONFIRM, &fields);
    let fields = [("rasAddress", own), ("callSignalAddress", registered)];
    world.say(&mut ras, Inside, "IRR", INFO_RESPONSE, &fields);
    world.say(&mut ras, Inside, "LRQ", LOCATION, &[("replyAddress", own)]);

    let (host, from) = (end(HOST, SIGNALLING), end(OTHER, CALLER + world.shift));
    let mut call = world.connect(Outside, from, world.external[&host], host).unwrap();
    let fields = [
        ("h245Address", both(Left)),
        ("destCallSignalAddress", both(Internal)),
        ("sourceCallSignalAddress", both(Left)),
    ];
    world.say_as_other(&mut call, Outside, "Setup to the host", SETUP_H245, &fields);
    let h245 = [("h245Address", both(Opened))];
    world.say_as_other(&mut call, Inside, "Alerting of the host", ALERTING, &h245);
    world.say_as_other(&mut call, Inside, "Connect of the host", CONNECT_H245, &h245);
    let mut control = world.last_control();
    channels(world, &mut control);

    // The gatekeeper names where the host has to call.
    let admitted = with(ADMISSION_CONFIRM, &[("198.51.100.2:1720", "198.51.100.2:1800")]);
    let fields = [("destCallSignalAddress", both(Left))];
    world.pass(&mut ras, (Outside, "ACF"), &admitted, &fields);
    let mut call = world.open(CALLER + world.shift, 1800);
    world.say(&mut call, Inside, "Setup to an admitted host", SETUP, &SETUP_FIELDS);

    let fields = [("callSignalAddress", both(Closed))];
    world.say(&mut ras, Inside, "URQ", UNREGISTRATION, &fields);
}

fn talk(network: &Network, gateway: usize) {
    let mut world = World::new(network, gateway);
    // Later calls name the registered port, too, and keep it.
    host_is_called(&mut world);
    host_calls(&mut world);
    assert_eq!(world.odd, [""; 0], "gateway {gateway}");
}

fn start_linux(network: &Network) -> LinuxMachine {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debian");
    let guest = LinuxGuest::unpack(&packages, &network.file("guest"), "cloud-amd64");
    let guest = guest.expect("`make guests` fetches Debian's packages");
    let load = guest.add_modules(&MODULES).unwrap();
    ["ip", "nft"].into_iter().for_each(|tool| guest.add_tool(tool).unwrap());
    let rules = RULES.replace("EXTERNAL", &EXTERNAL.to_string());
    let script = format!(
        "export PATH=/bin
busybox mount -t proc proc /proc
ip() {{ /bin/ip \"$@\"; }}
{load}ip link set lo up
ip address add {GATEWAY_INSIDE}/24 dev eth0
ip address add {GATEWAY_OUTSIDE}/24 dev eth1
ip address add {EXTERNAL}/32 dev lo
ip link set eth0 up
ip link set eth1 up
ip route add default via {ROUTER}
echo 1 >/proc/sys/net/ipv4/ip_forward
"
    );
    let mut machine = guest.start(network, "nat", &script).unwrap();
    machine.run(&format!("nft '{rules}'")).unwrap();
    machine
}

#[test]
fn linux_and_natgate_name_the_same_endpoints() {
    let turn = Turn::take(TAG);
    let network = turn.network();
    let linux = start_linux(&network);
    talk(&network, LINUX);
    drop((linux, network));

    let network = turn.network();
    let config = config_with_pool(
        &format!("addresses = [\"{EXTERNAL}\"]"),
        &format!("{STRICT}[alg]\nh323 = true\n"),
    );
    let gateway = Gateway::start(&network, Path::new(PROGRAM), &config).unwrap();
    talk(&network, NATGATE);
    let status = gateway.status().unwrap();
    assert_eq!(status["counters"]["alg_refused"]["h323"]["unread"], 0, "{status}");
    assert!(gateway.stop().unwrap().success());
}
