//! Both guests in turns: each boots, is measured, and is switched off.

use super::linux::Linux;
use super::{Internal, Plan, Results, RoundTrip, Row, Throughput, traffic};
use crate::bed::TAG;
use crate::report::progress;
use crate::spread::Spread;
use natgate_testnet::{Guest, Machine, Network, Servers};
use natgate_timings::{Size, Timing};
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(super) const IMAGE: &str = "natgate image";
pub(super) const LINUX: &str = "Linux guest";

/// What the web server's page has, bytes.
const PAGE: usize = 1024;

/// What a guest has been measured at so far.
#[derive(Default)]
struct Samples {
    first_packet: Vec<f64>,
    tcp: Vec<f64>,
    mixed: Vec<f64>,
    udp_share: Vec<f64>,
    /// By size.
    round_trips: Vec<Vec<f64>>,
    connections: Vec<f64>,
    responses: Vec<f64>,
    /// By segment.
    throughput: Vec<Vec<f64>>,
}

/// Measures the engine in both guests, and both as gateways.
pub(super) fn measure(plan: &Plan, image: &Path, results: &mut Results) -> io::Result<()> {
    let network = Network::build(&format!("{TAG}{}", std::process::id()))?;
    let _servers = Servers::start(&network, Arc::from([0x55; PAGE]))?;
    Machine::lay_taps(&network)?;
    traffic::introduce(&network)?;
    let word = if plan.size == Size::Quick { "timings=quick" } else { "timings" };
    let linux = Linux::prepare(&network, plan, word)?;
    results.kernel.clone_from(&linux.version);
    let bar = progress(2 + 2 * plan.rounds as u64);
    let file = Machine::write_configuration(&network)?;
    bar.set_message("the engine in the image");
    let guest = Guest { kernel: image, file: &file, options: word };
    results.internal.push(internal(&network, &guest, IMAGE)?);
    bar.inc(1);
    bar.set_message("the engine in the Linux guest");
    results.internal.push(internal(&network, &linux.timings(), LINUX)?);
    bar.inc(1);
    let image = Guest { options: "start", ..guest };
    let guests = [(IMAGE, image), (LINUX, linux.gateway())];
    let mut samples = [Samples::new(plan), Samples::new(plan)];
    for round in 1..=plan.rounds {
        for ((name, guest), samples) in guests.iter().zip(&mut samples) {
            bar.set_message(*name);
            if let Err(error) = samples.take_turn(plan, &network, guest) {
                results.failed.push(format!("{name}, round {round}: {error}"));
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows = guests.iter().zip(&samples).map(|((name, _), samples)| samples.row(name, plan));
    results.guests.extend(rows);
    Ok(())
}

/// What the engine takes in a guest that says so in lines of JSON and ends.
fn internal(network: &Network, guest: &Guest<'_>, place: &'static str) -> io::Result<Internal> {
    let mut machine = Machine::boot(network, guest)?;
    let ended = machine.wait_for_end();
    let log = machine.log();
    let timings: Vec<Timing> = log.lines().filter_map(Timing::from_line).collect();
    if ended.is_err() || timings.is_empty() {
        return Err(io::Error::other(format!("{place} tells no timings: {log}")));
    }
    Ok(Internal { place, timings })
}

impl Samples {
    fn new(plan: &Plan) -> Self {
        Self {
            round_trips: vec![Vec::new(); plan.sizes.len()],
            throughput: vec![Vec::new(); plan.segments.len()],
            ..Self::default()
        }
    }

    /// Boots a guest and measures everything once.
    fn take_turn(&mut self, plan: &Plan, network: &Network, guest: &Guest<'_>) -> io::Result<()> {
        let (mut machine, seconds) = traffic::first_packet(network, guest)?;
        self.first_packet.push(seconds);
        machine.wait_until_running(network)?;
        for (&bytes, all) in plan.sizes.iter().zip(&mut self.round_trips) {
            all.extend(traffic::round_trips(network, bytes, plan.questions)?);
        }
        for [connection, response] in traffic::fetch(network, plan.questions)? {
            self.connections.push(connection);
            self.responses.push(response);
        }
        for (&segment, all) in plan.segments.iter().zip(&mut self.throughput) {
            all.push(traffic::throughput(network, segment, plan.seconds)?);
        }
        self.tcp.push(traffic::packets(network, plan.seconds, false)?.rate);
        let mixed = traffic::packets(network, plan.seconds, true)?;
        self.mixed.push(mixed.rate);
        self.udp_share.push(mixed.udp_share);
        machine.stop().map(drop)
    }

    fn row(&self, guest: &'static str, plan: &Plan) -> Row {
        let round_trips = plan.sizes.iter().zip(&self.round_trips);
        let throughput = plan.segments.iter().zip(&self.throughput);
        Row {
            guest,
            first_packet_s: Spread::of(&self.first_packet),
            tcp_pps: Spread::of(&self.tcp),
            mixed_pps: Spread::of(&self.mixed),
            udp_share: Spread::of(&self.udp_share).median,
            round_trips: round_trips
                .map(|(&bytes, us)| RoundTrip { bytes, us: Spread::of(us) })
                .collect(),
            connection_us: Spread::of(&self.connections),
            response_us: Spread::of(&self.responses),
            throughput: throughput
                .map(|(&segment, rates)| Throughput { segment, mbit_s: Spread::of(rates) })
                .collect(),
        }
    }
}
