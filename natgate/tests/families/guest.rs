//! A Linux router is the customer, as routers in homes are: its kernel has a device for the tunnel
//! (`ip -6 tunnel add mode ipip6`), and nft keeps a home to the ports of the customer.
//!
//! ```text
//! client ---- cpe ---- home ---- [nat] ---- server
//!             tunnel   a router of the access network
//! ```
//!
//! The router runs in an emulator with Debian's kernel, because the kernel of this machine need not
//! have such devices. They put fragments of tunnel packets together, too.

use super::world::World;
use natgate_testnet::{LinuxGuest, LinuxMachine};
use std::net::IpAddr;
use std::path::Path;

const SERVER: &str = "192.0.2.1";
/// External address of DS-Lite's customers, and the one that customers of lw4o6 and MAP-E share.
const EXTERNAL: &str = "203.0.113.1";
const ADDRESS: &str = "203.0.113.9";
/// A customer's end of a tunnel by a rule of MAP-E, and its first ports.
const BY_RULE: &str = "2001:db8:8009:1200:0:cb00:7109:12";
const PORTS_BY_RULE: (u16, u16) = (1096, 1099);
/// A customer's end of a tunnel elsewhere, and its ports by the binding of lw4o6.
const B4: &str = "2001:db8:b4::1";
const PORTS: (u16, u16) = (0x1200, 0x12ff);
const GATEWAY: &str = "2001:db8:ffff::1";
/// Bytes of an IPv6 header.
const OUTER: u16 = 40;

const MODULES: [&str; 8] = [
    "virtio_pci",
    "virtio_net",
    "ip6_tunnel",
    "nf_conntrack",
    "nf_nat",
    "nf_tables",
    "nft_chain_nat",
    "nft_nat",
];

/// The running router.
struct Cpe<'w> {
    world: &'w World,
    machine: LinuxMachine,
}

fn world() -> World {
    let world = World::new(&["client", "cpe", "home", "nat", "server"]);
    world
        .host("client", "address add 192.168.1.2/24 dev eth0\nroute add default via 192.168.1.1\n");
    world.router(
        "home",
        &format!(
            "address add 2001:db8:1::5/64 dev outside nodad\n\
             address add 2001:db8:2::1/64 dev inside nodad\n\
             route add ::/0 via 2001:db8:1::1\n\
             route add {B4}/128 via 2001:db8:2::5\n\
             route add {BY_RULE}/128 via 2001:db8:2::5\n"
        ),
    );
    world.host(
        "server",
        &format!("address add {SERVER}/24 dev eth0\nroute add 203.0.113.0/24 via 192.0.2.2\n"),
    );
    world.serve("server", server());
    world
}

fn server() -> IpAddr {
    SERVER.parse().unwrap()
}

fn config(tables: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         gateway6 = \"2001:db8:1::5\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n{tables}"
    )
}

/// Script of the router: addresses without a tunnel.
fn script(load: &str) -> String {
    format!(
        "export PATH=/bin
busybox mount -t proc proc /proc
# The shell's own ip knows no tunnels over IPv6.
ip() {{ /bin/ip \"$@\"; }}
{load}ip link set lo up
ip address add 192.168.1.1/24 dev eth0
ip address add 2001:db8:2::5/64 dev eth1 nodad
ip link set eth0 up
ip link set eth1 up
ip -6 route add default via 2001:db8:2::1
echo 1 >/proc/sys/net/ipv4/ip_forward
"
    )
}

impl<'w> Cpe<'w> {
    fn start(world: &'w World) -> Self {
        let network = world.network();
        let folder = network.file("guest");
        let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debian");
        let guest = LinuxGuest::unpack(&packages, &folder, "cloud-amd64");
        let guest = guest.expect("`make guests` fetches Debian's packages");
        let load = guest.add_modules(&MODULES).unwrap();
        ["ip", "nft"].into_iter().for_each(|tool| guest.add_tool(tool).unwrap());
        let machine = guest.start(network, "cpe", &script(&load)).unwrap();
        Self { world, machine }
    }

    /// Has the router execute a command, which must succeed.
    fn run(&mut self, command: &str) {
        self.machine.run(command).unwrap();
    }

    /// Makes a tunnel from this end to the gateway, with the default route.
    fn make_tunnel(&mut self, end: &str) {
        self.run(&format!("ip address add {end}/128 dev lo nodad"));
        self.run(&format!(
            "ip -6 tunnel add wire mode ipip6 local {end} remote {GATEWAY} encaplimit none"
        ));
        self.run("ip link set wire up && ip route add default dev wire");
        self.set_width(1500);
    }

    fn remove_tunnel(&mut self) {
        self.run("ip link delete wire && nft flush ruleset");
    }

    /// Translates what leaves by the tunnel to these ports of the address.
    fn translate(&mut self, (first, last): (u16, u16)) {
        let rule = |protocol| {
            format!("oifname wire meta l4proto {protocol} snat to {ADDRESS}:{first}-{last}; ")
        };
        let rules = ["tcp", "udp", "icmp"].map(rule).concat();
        self.run(&format!(
            "nft 'table ip nat {{ chain out {{ type nat hook postrouting priority srcnat; {rules} \
             }}; }}'"
        ));
    }

    /// Sets the MTU of the link between router and access network at both ends. The gateway does
    /// not see that link. Other hosts forget what they know of the path.
    fn set_width(&mut self, width: u16) {
        let inner = width - OUTER;
        self.run(&format!("ip link set eth1 mtu {width} && ip link set wire mtu {inner}"));
        let said = self.world.run("home", &format!("ip link set inside mtu {width}"));
        assert_eq!(said, "");
        for node in ["client", "server"] {
            assert_eq!(self.world.run(node, "ip route flush cache"), "");
        }
    }

    /// Packets of all lengths pass links of several widths; hosts learn the width of the tunnel.
    fn sweep(&mut self) {
        for width in [1500, 1400, 1280] {
            self.set_width(width);
            let (world, most) = (self.world, width - OUTER);
            let lengths = (1200..most).step_by(23).chain([most]);
            // Each report about a narrow path takes one packet.
            let all: Vec<String> = lengths.map(|len| (len - 28).to_string()).collect();
            let said = world.run(
                "client",
                &format!(
                    "for len in {}; do for try in 1 2 3 4; do \
                     ping -n -q -c 1 -W 2 -M do -s $len {SERVER} >/dev/null && continue 2; done; \
                     echo $len; done",
                    all.join(" ")
                ),
            );
            assert_eq!(said, "", "payloads without an answer, width {width}");
            let longer = format!("ping -n -c 1 -W 2 -M do -s {} {SERVER}", most - 28 + 1);
            let said = world.run("client", &longer);
            assert!(said.contains(&format!("mtu = {most}")), "width {width}: {said}");
            // A packet that may be cut, and its answer.
            let cut = format!("ping -n -c 3 -i 0.2 -W 3 -M dont -s 1472 {SERVER}");
            let said = world.run("client", &cut);
            assert!(said.contains("1480 bytes from "), "width {width}: {said}");
            let _ = world.tcp("client", server());
        }
    }

    /// What a host in the home does; the server sees this address and these ports.
    fn works(&self, address: &str, (first, last): (u16, u16), datagrams: usize) {
        let world = self.world;
        world.ping("client", SERVER, "-s 1300");
        let asked = (0..datagrams).map(|_| world.udp("client", server(), 1200));
        let seen: Vec<_> = asked.chain([world.tcp("client", server())]).collect();
        let is_right = |seen: &std::net::SocketAddr| {
            seen.ip().to_string() == address && (first..=last).contains(&seen.port())
        };
        assert!(seen.iter().all(is_right), "{seen:?}");
        let counters = world.ask("nat", &["show", "counters"]);
        for reason in ["softwire_source", "no_binding"] {
            assert_eq!(counters["drops"][reason], 0, "{counters}");
        }
    }
}

#[test]
fn a_linux_router_is_the_customer_of_dslite_lw4o6_and_map_e() {
    let world = world();
    let mut cpe = Cpe::start(&world);

    let tables = format!(
        "[[pool]]\naddresses = [\"{EXTERNAL}\"]\n\
         [dslite]\naddress = \"{GATEWAY}\"\nb4 = [\"2001:db8:b4::/48\"]\n"
    );
    let gateway = world.start("nat", &config(&tables));
    cpe.make_tunnel(B4);
    cpe.works(EXTERNAL, (1024, u16::MAX), 3);
    cpe.sweep();
    let mappings = world.ask("nat", &["show", "mappings", "--subscriber", B4]);
    assert_ne!(mappings["mappings"], serde_json::json!([]), "the tunnel names the customer");
    cpe.remove_tunnel();
    assert_eq!(gateway.stop().unwrap().code(), Some(0));

    let bindings = world.file("bindings.csv");
    std::fs::write(&bindings, format!("{ADDRESS},0,8,18,{B4}\n")).unwrap();
    let tables = format!("[lw4o6]\naddress = \"{GATEWAY}\"\nbindings = {bindings:?}\n");
    let gateway = world.start("nat", &config(&tables));
    cpe.run(&format!("ip address del {B4}/128 dev lo && ip address add {ADDRESS}/32 dev lo"));
    cpe.make_tunnel(B4);
    cpe.translate(PORTS);
    cpe.works(ADDRESS, PORTS, 20);
    cpe.sweep();
    cpe.remove_tunnel();
    assert_eq!(gateway.stop().unwrap().code(), Some(0));

    let tables = format!(
        "[[map]]\nmode = \"encapsulation\"\nbr = \"{GATEWAY}\"\nipv6 = \"2001:db8:8000::/40\"\n\
         ipv4 = \"203.0.113.0/24\"\nea_length = 16\npsid_offset = 6\n"
    );
    let gateway = world.start("nat", &config(&tables));
    cpe.make_tunnel(BY_RULE);
    cpe.translate(PORTS_BY_RULE);
    cpe.works(ADDRESS, PORTS_BY_RULE, 1);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}
