//! Steps of the demonstration with IPv4, one function each, and the table of them.
//!
//! A step returns a line with the observed result, or an error with the expected result. The
//! functions that it calls bound its time.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::process::Output;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, Gateway, Network, POOL, ROUTER, SERVER1, SERVER2, traffic,
};

/// The network of the steps.
pub(crate) struct DemoNetwork {
    /// The namespaces.
    pub(crate) nodes: Network,
    /// Answer of the web server.
    pub(crate) body: Arc<[u8]>,
    /// The gateway of the tunnels, if there are any.
    pub(crate) aftr: Option<Gateway>,
}

/// One step.
pub(crate) struct Step {
    /// Name, one word.
    pub(crate) name: &'static str,
    /// Property that the step shows.
    pub(crate) what: &'static str,
    /// Function that runs the step.
    pub(crate) run: fn(&DemoNetwork) -> anyhow::Result<String>,
}

/// All steps with IPv4, in order.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "ping-gateway", what: "the gateway answers on both sides", run: ping_gateway },
    Step { name: "ping", what: "ping a server through the translator", run: ping_server },
    Step { name: "http", what: "download 16 MiB by curl, compare", run: download },
    Step { name: "traceroute", what: "every hop is seen, the gateway too", run: trace_server },
    Step { name: "udp-mapping", what: "one mapping towards two servers", run: same_mapping },
    Step { name: "udp-filtering", what: "a stranger may answer", run: stranger_answers },
    Step { name: "udp-fragments", what: "8,000 bytes in fragments, both ways", run: fragments },
    Step { name: "paired", what: "one external address a subscriber", run: paired },
    Step { name: "many", what: "500 TCP connections at once", run: many_connections },
    Step { name: "hairpin-udp", what: "subscriber to subscriber, UDP", run: hairpin_udp },
    Step { name: "hairpin-tcp", what: "subscriber to subscriber, TCP", run: hairpin_tcp },
    Step { name: "iperf3-up", what: "iperf3, subscriber to server", run: iperf3_up },
    Step { name: "iperf3-down", what: "iperf3, server to subscriber", run: iperf3_down },
];

fn ping_gateway(network: &DemoNetwork) -> anyhow::Result<String> {
    let inside = ping(network, "sub1", &GATEWAY_INSIDE.to_string())?;
    let outside = ping(network, "server1", &GATEWAY_OUTSIDE.to_string())?;
    Ok(format!("inside: {inside}; outside: {outside}"))
}

fn ping_server(network: &DemoNetwork) -> anyhow::Result<String> {
    ping(network, "sub1", &SERVER1.to_string())
}

/// Sends three echo requests; all must be answered.
pub(crate) fn ping(network: &DemoNetwork, from: &str, to: &str) -> anyhow::Result<String> {
    let arguments = ["-n", "-c", "3", "-i", "0.2", "-W", "2", to];
    let said = run(network, from, 10, "ping", &arguments)?;
    let line = said.lines().find(|line| line.contains(" received, "));
    let line = line.with_context(|| format!("ping said nothing of answers: {said}"))?;
    ensure!(line.contains(" 3 received, "), "ping {to}: {line}, not all 3");
    let times = said.lines().find_map(|line| line.strip_prefix("rtt ")?.split('/').nth(4));
    Ok(format!("3 of 3 answered, {} ms", times.unwrap_or("?")))
}

fn download(network: &DemoNetwork) -> anyhow::Result<String> {
    let began = Instant::now();
    for node in ["sub1", "sub2"] {
        let url = format!("http://{SERVER1}/");
        fetch(network, node, &[&url])?;
    }
    let megabytes = 2.0 * network.body.len() as f64 / 1e6;
    let rate = megabytes / began.elapsed().as_secs_f64();
    Ok(format!("2 x {} bytes, all equal, {rate:.0} MB/s", network.body.len()))
}

/// Downloads by curl, and compares the download with the answer of the web server.
pub(crate) fn fetch(
    network: &DemoNetwork,
    from: &str,
    arguments: &[&str],
) -> anyhow::Result<Output> {
    let arguments = [&["--silent", "--show-error", "--fail"], arguments].concat();
    let output = network.nodes.node(from).run(15, "curl", &arguments)?;
    let (got, sent) = (output.stdout.len(), network.body.len());
    ensure!(output.stdout == *network.body, "{got} bytes came that are not the {sent} sent");
    Ok(output)
}

fn trace_server(network: &DemoNetwork) -> anyhow::Result<String> {
    let wanted = [GATEWAY_INSIDE, ROUTER, SERVER1].map(|hop| hop.to_string());
    traceroute(network, "sub1", &SERVER1.to_string(), &wanted)
}

/// Traces the path to an address or a name; it must have these hops.
pub(crate) fn traceroute(
    network: &DemoNetwork,
    from: &str,
    to: &str,
    wanted: &[String],
) -> anyhow::Result<String> {
    let family = if from == "sub6" { "-6" } else { "-4" };
    let arguments = [family, "-n", "-q", "1", "-w", "2", "-m", "6", to];
    let said = run(network, from, 20, "traceroute", &arguments)?;
    let hops: Vec<_> = said.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)).collect();
    ensure!(hops == wanted, "the hops were {hops:?}, not {wanted:?}");
    Ok(hops.join(", "))
}

fn same_mapping(network: &DemoNetwork) -> anyhow::Result<String> {
    let socket = traffic::udp_socket(network.nodes.node("sub1"))?;
    let first = traffic::ask_udp(&socket, SERVER1).context("server 1")?;
    let second = traffic::ask_udp(&socket, SERVER2).context("server 2")?;
    ensure!(first == second, "one server saw {first}, the other {second}");
    ensure_external(first)?;
    Ok(format!("both servers saw {first}"))
}

fn stranger_answers(network: &DemoNetwork) -> anyhow::Result<String> {
    let socket = traffic::udp_socket(network.nodes.node("sub1"))?;
    let external = traffic::ask_udp(&socket, SERVER1)?;
    let stranger = traffic::udp_socket(network.nodes.node("server2"))?;
    stranger.send_to(b"hello", external)?;
    let mut buffer = [0; 16];
    let (length, from) = socket.recv_from(&mut buffer).context("nothing arrived")?;
    ensure!(&buffer[..length] == b"hello", "something else arrived: {:?}", &buffer[..length]);
    Ok(format!("{from} reached {external}, which had asked {SERVER1} only"))
}

fn fragments(network: &DemoNetwork) -> anyhow::Result<String> {
    let arguments = ["-n", "-c", "3", "-i", "0.2", "-W", "2", "-s", "8000", &SERVER1.to_string()];
    let said = run(network, "sub1", 10, "ping", &arguments)?;
    ensure!(said.contains(" 3 received, "), "not all 3 were answered: {said}");
    let socket = traffic::udp_socket(network.nodes.node("sub2"))?;
    let external = traffic::ask_udp_once(&socket, SERVER1, &[0x55; 8000])?;
    Ok(format!("3 of 3 large pings answered, a large datagram came from {external}"))
}

fn paired(network: &DemoNetwork) -> anyhow::Result<String> {
    let mut found = Vec::new();
    for node in ["sub1", "sub2"] {
        let mut addresses = BTreeSet::new();
        for _ in 0..20 {
            let socket = traffic::udp_socket(network.nodes.node(node))?;
            let external = traffic::ask_udp(&socket, SERVER1)?;
            ensure_external(external)?;
            addresses.insert(*external.ip());
        }
        ensure!(addresses.len() == 1, "{node} was seen under {addresses:?}, not one address");
        found.extend(addresses.first().map(|address| format!("{node} is always {address}")));
    }
    Ok(found.join(", "))
}

fn many_connections(network: &DemoNetwork) -> anyhow::Result<String> {
    let endpoints = traffic::many_connections(&network.nodes, 250)?;
    let distinct: BTreeSet<_> = endpoints.iter().collect();
    ensure!(distinct.len() == 500, "{} distinct external endpoints, not 500", distinct.len());
    Ok("all open together, each echoed 1,000 bytes".to_owned())
}

fn hairpin_udp(network: &DemoNetwork) -> anyhow::Result<String> {
    describe(traffic::hairpin_udp(&network.nodes)?)
}

fn hairpin_tcp(network: &DemoNetwork) -> anyhow::Result<String> {
    describe(traffic::hairpin_tcp(&network.nodes, 5000)?)
}

/// The called host must have seen the caller's external endpoint (RFC 4787 REQ-9a).
fn describe(meeting: traffic::Hairpin) -> anyhow::Result<String> {
    let traffic::Hairpin { called, caller, seen } = meeting;
    ensure!(seen == caller, "the one called saw {seen}, not the caller's external {caller}");
    ensure_external(called)?;
    Ok(format!("{seen} called {called}"))
}

fn iperf3_up(network: &DemoNetwork) -> anyhow::Result<String> {
    iperf3(network, &[])
}

fn iperf3_down(network: &DemoNetwork) -> anyhow::Result<String> {
    iperf3(network, &["--reverse"])
}

/// Sends as much TCP as possible for two seconds.
fn iperf3(network: &DemoNetwork, more: &[&str]) -> anyhow::Result<String> {
    let rate = traffic::iperf3(&network.nodes, 2, more)?;
    if rate < 1e6 {
        bail!("{rate} bit/s arrived, less than 1 Mbit/s");
    }
    Ok(format!("{:.2} Gbit/s", rate / 1e9))
}

fn ensure_external(endpoint: SocketAddrV4) -> anyhow::Result<()> {
    ensure!(POOL.contains(endpoint.ip()), "{endpoint} is not of the pool {POOL:?}");
    Ok(())
}

/// Runs a program in a node to its end; returns its standard output.
pub(crate) fn run(
    network: &DemoNetwork,
    node: &str,
    seconds: u32,
    program: &str,
    arguments: &[&str],
) -> anyhow::Result<String> {
    let output = network.nodes.node(node).run(seconds, program, arguments)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
