//! Steps of a subscriber without IPv4, which reaches an IPv4 server by its name: DNS64 gives the
//! name an IPv6 address, and the gateway translates (NAT64).
//!
//! The first step gives the subscriber its address and its resolver; the others need both. They
//! are like the steps for IPv4.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use natgate_testnet::{GATEWAY_INSIDE6, NAME, PREFIX64, RESOLVER, ROUTER, ROUTER6, SERVER1};

use super::steps::{DemoNetwork, Step, fetch, ping, run, traceroute};

/// All steps with IPv6, in order.
pub(crate) const IPV6_STEPS: &[Step] = &[
    Step { name: "ipv6-advertised", what: "IPv6-only: address and DNS advertised", run: configure },
    Step { name: "dns64", what: "DNS64 gives a name an IPv6 address", run: resolve },
    Step { name: "nat64-http", what: "download by name, NAT64, compare", run: download },
    Step { name: "nat64-ping", what: "ping by name, NAT64", run: ping_name },
    Step { name: "nat64-traceroute", what: "every hop by name, NAT64", run: trace_name },
    Step { name: "ipv6-routed", what: "an IPv6 server, routed, not translated", run: routed },
];

fn configure(network: &DemoNetwork) -> anyhow::Result<String> {
    let learned = network.nodes.autoconfigure()?;
    ensure!(
        learned.dns == [RESOLVER] && learned.prefix64 == Some(PREFIX64),
        "the advertisement has DNS {:?} and NAT64 {:?}, not {RESOLVER} and {PREFIX64}",
        learned.dns,
        learned.prefix64
    );
    Ok(format!("{}, router {}, DNS {RESOLVER}", learned.address, learned.router))
}

fn resolve(network: &DemoNetwork) -> anyhow::Result<String> {
    let said = run(network, "sub6", 15, "getent", &["ahostsv6", NAME])?;
    let found = said.split_whitespace().next().unwrap_or("no address");
    let wanted = mapped(SERVER1);
    ensure!(found.parse() == Ok(wanted), "{NAME} has {found}, not {wanted}");
    Ok(format!("{NAME}, which is {SERVER1}, has {found}"))
}

fn download(network: &DemoNetwork) -> anyhow::Result<String> {
    let began = Instant::now();
    let url = format!("http://{NAME}/");
    let remote = "%{stderr}%{remote_ip}";
    let output = fetch(network, "sub6", &["--write-out", remote, &url])?;
    let sent = network.body.len();
    let remote = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(remote.trim().parse() == Ok(mapped(SERVER1)), "curl downloaded from {remote}");
    let rate = sent as f64 / 1e6 / began.elapsed().as_secs_f64();
    Ok(format!("{sent} bytes from {remote}, all equal, {rate:.0} MB/s"))
}

fn ping_name(network: &DemoNetwork) -> anyhow::Result<String> {
    ping(network, "sub6", NAME)
}

fn trace_name(network: &DemoNetwork) -> anyhow::Result<String> {
    let (router, server) = (mapped(ROUTER), mapped(SERVER1));
    let wanted = [GATEWAY_INSIDE6, router, server].map(|hop| hop.to_string());
    traceroute(network, "sub6", NAME, &wanted)?;
    Ok(format!("{GATEWAY_INSIDE6}, {router} ({ROUTER}), {server} ({SERVER1})"))
}

/// Checks the path to the IPv6 server, and that it sees the subscriber's own address.
fn routed(network: &DemoNetwork) -> anyhow::Result<String> {
    let wanted = [GATEWAY_INSIDE6, ROUTER6, RESOLVER].map(|hop| hop.to_string());
    let hops = traceroute(network, "sub6", &RESOLVER.to_string(), &wanted)?;
    let bind = |node: &str, address: Ipv6Addr| {
        network.nodes.node(node).enter(move || UdpSocket::bind((address, 0)))?
    };
    let (client, server) = (bind("sub6", Ipv6Addr::UNSPECIFIED)?, bind("server2", RESOLVER)?);
    client.connect(server.local_addr()?)?;
    client.send(b"hello")?;
    server.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (_, seen) = server.recv_from(&mut [0; 16]).context("nothing arrived at the server")?;
    let own = client.local_addr()?;
    ensure!(seen == own, "the server saw {seen}, not the subscriber's own {own}");
    Ok(format!("{hops}; it saw {}", own.ip()))
}

/// The IPv6 address that has this IPv4 address behind the prefix of NAT64 (RFC 6052).
fn mapped(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(PREFIX64) | u128::from(u32::from(address)))
}
