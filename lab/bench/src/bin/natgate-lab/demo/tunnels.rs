//! Steps of two homes with one IPv4 address behind tunnels of DS-Lite. The network between the
//! homes and their gateway has IPv6 alone.

use anyhow::{Context, ensure};
use natgate_testnet::{AFTR_EXTERNAL, AFTR_ROUTER, B4S, IN_TUNNELS, INNER, SERVER1, traffic};
use serde_json::Value;

use super::steps::{DemoNetwork, Step, fetch, ping, traceroute};

/// The homes.
const HOMES: [&str; 2] = ["home1", "home2"];

/// All steps with tunnels, in order.
pub(crate) const TUNNEL_STEPS: &[Step] = &[
    Step { name: "dslite-ping", what: "DS-Lite: ping through the tunnel", run: ping_server },
    Step { name: "dslite-http", what: "DS-Lite: two downloads, compare", run: download },
    Step { name: "dslite-traceroute", what: "DS-Lite: every hop is seen", run: trace },
    Step { name: "dslite-homes", what: "DS-Lite: one inner address, two homes", run: tell_apart },
];

fn ping_server(network: &DemoNetwork) -> anyhow::Result<String> {
    let gateway = ping(network, "home1", &IN_TUNNELS.to_string())?;
    let server = ping(network, "home2", &SERVER1.to_string())?;
    Ok(format!("gateway in the tunnel: {gateway}; server: {server}"))
}

fn download(network: &DemoNetwork) -> anyhow::Result<String> {
    for home in HOMES {
        let url = format!("http://{SERVER1}/");
        fetch(network, home, &[&url]).context(home)?;
    }
    Ok(format!("2 x {} bytes in tunnels of 1,500, all equal", network.body.len()))
}

fn trace(network: &DemoNetwork) -> anyhow::Result<String> {
    let wanted = [IN_TUNNELS, AFTR_ROUTER, SERVER1].map(|hop| hop.to_string());
    traceroute(network, "home1", &SERVER1.to_string(), &wanted)
}

/// Both homes send from one endpoint; the server and the gateway tell them apart.
fn tell_apart(network: &DemoNetwork) -> anyhow::Result<String> {
    let bind = |home: &str| traffic::udp_socket_at(network.nodes.node(home), 5000);
    let sockets = [bind(HOMES[0])?, bind(HOMES[1])?];
    let ask = |number: usize| traffic::ask_udp(&sockets[number], SERVER1).context(HOMES[number]);
    let seen = [ask(0)?, ask(1)?];
    ensure!(seen.iter().all(|seen| *seen.ip() == AFTR_EXTERNAL), "the server saw {seen:?}");
    ensure!(seen[0] != seen[1], "the server saw both homes as {}", seen[0]);
    let status = network.aftr.as_ref().context("the gateway of the tunnels")?.status()?;
    let mappings = status["mappings"].as_array().context("no mappings")?;
    for (b4, seen) in B4S.iter().zip(&seen) {
        let is_named = |one: &Value| {
            one["subscriber"] == b4.to_string()
                && one["internal"] == format!("{INNER}:5000")
                && one["external"] == seen.to_string()
        };
        ensure!(mappings.iter().any(is_named), "{seen} is not a mapping of {b4}: {mappings:?}");
    }
    let [first, second] = B4S;
    Ok(format!("{INNER}:5000 of {first} is {}, of {second} is {}", seen[0], seen[1]))
}
