//! Hosts that have numbers in the gateways of a pair: an IPv6-only host (NAT64), and a host behind
//! a tunnel (DS-Lite).

use super::*;
use natgate_testnet::PAIR_SUBSCRIBER6;
use std::net::Ipv6Addr;

/// Prefix of remote hosts of NAT64.
pub(super) const PREFIX64: &str = "64:ff9b::/96";
/// Prefix of the tunnels' end, and the table of DS-Lite.
pub(super) const TUNNELS: &str = "2001:db8:ffff::1/128";
pub(super) const DSLITE: &str =
    "[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
/// Ends of the tunnel: the gateways', and the subscriber's.
const AFTR: &str = "2001:db8:ffff::1";
const B4: &str = "2001:db8:b4::1";
/// Address of the host behind the tunnel.
const INNER: &str = "10.64.1.2";

/// Two nodes that are a pair, with more tables. Both have IPv6 inside.
pub(super) fn pair6(network: &PairNetwork, remote: &[&str], more: &str) -> [PairNode; 2] {
    network.add_ipv6(remote).expect("addresses");
    let nodes = ["a", "b"].map(|node| start6(network, node, more));
    for node in &nodes {
        wait_until(node, "the pair is whole", is_whole);
    }
    nodes
}

pub(super) fn start6(network: &PairNetwork, node: &str, more: &str) -> PairNode {
    let own = PairNetwork::gateway6(node);
    let router = Ipv6Addr::from_bits(own.to_bits() + 1);
    let keys = format!("[inside]\naddress6 = \"{own}/64\"\ngateway6 = \"{router}\"\n");
    let config = network.config(node, more).replace("[inside]\n", &keys);
    network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
}

/// A flow of UDP and one of TCP from the subscriber to the server by an address.
struct Flows {
    server: SocketAddr,
    udp: UdpSocket,
    external: String,
    tcp: TcpStream,
}

impl Flows {
    fn begin(network: &PairNetwork, from: &str, server: SocketAddr) -> Self {
        serve(network);
        let sockets = || {
            let udp = UdpSocket::bind((from, 0))?;
            // The gateway has its address after its check for duplicates.
            let deadline = Instant::now() + PATIENCE;
            let tcp = loop {
                match TcpStream::connect_timeout(&server, Duration::from_secs(3)) {
                    Err(_) if Instant::now() < deadline => {}
                    other => break other?,
                }
            };
            io::Result::Ok((udp, tcp))
        };
        let made = network.node("sub").enter(sockets).expect("a thread");
        let (udp, tcp) = made.expect("sockets");
        udp.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a time");
        let external = seen_by(&udp, server);
        assert!(is_of(&external, "a"), "{external}");
        assert!(is_of(&endpoint_of(&tcp), "a"));
        let flows = Self { server, udp, external, tcp };
        flows.check();
        flows
    }

    /// Both flows live, and have their endpoints.
    fn check(&self) {
        assert!(is_alive(&self.tcp), "the connection continues");
        assert_eq!(seen_by(&self.udp, self.server), self.external, "it keeps its endpoint");
    }
}

/// The subscribers' names in the mappings of a node.
fn subscribers(network: &PairNetwork, node: &str) -> Vec<String> {
    let socket = network.file(&format!("{node}.sock"));
    let shown = Command::new(PROGRAM)
        .args(["show", "mappings", "--json", "--socket"])
        .arg(socket)
        .output()
        .expect("it runs");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let name = |mapping: &Value| mapping["subscriber"].as_str().unwrap_or_default().to_owned();
    shown["mappings"].as_array().expect("mappings").iter().map(name).collect()
}

/// The owner is killed, the partner goes on, and gives the slice back.
fn a_kill_and_the_way_back(
    network: &PairNetwork,
    [a, b]: [PairNode; 2],
    (flows, remote, more): (&Flows, &[&str], &str),
    subscriber: &str,
) {
    // Flows of UDP are copied after two seconds.
    thread::sleep(Duration::from_millis(2500));
    wait_until(&a, "the copy is complete", is_whole);
    assert_eq!(subscribers(network, "b"), [subscriber; 2]);
    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    network.prefer6(remote, "b").expect("routes");
    flows.check();
    wait_until(&b, "b takes the slice", has_first_slice);
    assert!(b.log().contains("it continues 2 mappings"), "{}", b.log());
    flows.check();

    let a = start6(network, "a", more);
    wait_until(&a, "a has the copy", is_whole);
    assert!(succeeds(&b, &["move", "0", "a"]));
    wait_until(&a, "the slice is back", has_first_slice);
    network.prefer("a").expect("routes");
    network.prefer6(remote, "a").expect("routes");
    flows.check();
    assert_eq!(subscribers(network, "a"), [subscriber; 2]);
    wait_until(&b, "the pair is whole again", is_whole);
}

fn nat64_after_a_kill(workers: &str) {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let more = &format!("[nat64]\nsubscribers = [\"2001:db8::/32\"]\n{workers}");
    let nodes = pair6(&network, &[PREFIX64], more);
    let server = Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(PAIR_SERVER.ip().to_bits()));
    let server = SocketAddr::from((server, PAIR_SERVER.port()));
    let flows = Flows::begin(&network, "::", server);
    let Ok(SocketAddr::V6(own)) = flows.tcp.local_addr() else { panic!("an IPv6 address") };
    assert_eq!(own.ip(), &PAIR_SUBSCRIBER6);
    let subscriber = "2001:db8:0:1::/64";
    a_kill_and_the_way_back(&network, nodes, (&flows, &[PREFIX64], more), subscriber);
}

#[test]
fn an_ipv6_only_hosts_flows_go_on_after_a_kill() {
    nat64_after_a_kill("");
}

#[test]
fn an_ipv6_only_hosts_flows_go_on_at_nodes_with_several_workers() {
    nat64_after_a_kill("[workers]\ncount = 2\n");
}

#[test]
fn flows_of_a_host_behind_a_tunnel_go_on_after_a_kill() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let nodes = pair6(&network, &[TUNNELS], DSLITE);
    add_tunnel(&network);
    let flows = Flows::begin(&network, INNER, PAIR_SERVER.into());
    a_kill_and_the_way_back(&network, nodes, (&flows, &[TUNNELS], DSLITE), B4);
}

/// Leads the subscriber's packets to the server through a tunnel.
pub(super) fn add_tunnel(network: &PairNetwork) {
    let sub = network.node("sub");
    sub.ip_batch(&format!(
        "address add {INNER}/32 dev lo\n\
         sr tunsrc set {B4}\n\
         route replace {}/32 src {INNER} encap seg6 mode encap.red segs {AFTR} dev eth0\n\
         route add {B4}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0\n",
        PAIR_SERVER.ip()
    ))
    .expect("a tunnel");
    let access = network.node(PairSide::Access.router());
    access.ip_batch(&format!("route add {B4}/128 via {PAIR_SUBSCRIBER6}\n")).expect("a route");
}
