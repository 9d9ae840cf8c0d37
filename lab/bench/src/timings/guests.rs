//! Both guests in turns. Both are booted. Then one is stopped while one figure of the other is
//! measured. So disturbances of the host affect both.

use super::figures::{Figure, Samples, What};
use super::linux::Linux;
use super::{Card, Internal, Plan, Results, traffic};
use crate::bed::TAG;
use crate::report::progress;
use natgate_testnet::{Guest, Machine, Network, Servers, config};
use natgate_timings::{Fill, Size, Timing};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(super) const IMAGE: &str = "natgate image";
pub(super) const LINUX: &str = "Linux guest";

/// Bytes of the web server's page.
const PAGE: usize = 1024;

/// Both guests with cards of one kind.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pair {
    pub(super) card: Card,
    /// Kernel of the Linux guest.
    pub(super) kernel: String,
    pub(super) figures: Vec<Figure>,
}

/// Largest table of a machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Largest {
    /// Memory of the machine.
    pub(super) mebibytes: u32,
    pub(super) fill: Fill,
}

/// Measurement of one guest before the other guest's turn.
#[derive(Clone, Copy)]
enum Slice {
    RoundTrip(u16),
    Http,
    Throughput(u16),
    Packets { is_mixed: bool },
}

/// Measures the engine in both guests, and both guests as gateways.
pub(super) fn measure(plan: &Plan, image: &Path, results: &mut Results) -> io::Result<()> {
    let network = Network::build(&format!("{TAG}{}", std::process::id()))?;
    let _servers = Servers::start(&network, Arc::from([0x55; PAGE]))?;
    Machine::lay_taps(&network, 2)?;
    traffic::introduce(&network)?;
    let file = Machine::write_configuration(&network, &config(""))?;
    let slices = slices(plan);
    let steps = plan.memories.len() + 2 + plan.cards.len() * plan.rounds * (slices.len() + 1);
    let bar = progress(steps as u64);
    let image = Guest::new(image, &file, "start");
    for &mebibytes in &plan.memories {
        bar.set_message(format!("the largest table in {mebibytes} MiB"));
        let fill = fill(&network, &image, mebibytes)?;
        results.largest.push(Largest { mebibytes, fill });
        bar.inc(1);
    }
    let word = if plan.size == Size::Quick { "timings=quick" } else { "timings" };
    for (number, &card) in plan.cards.iter().enumerate() {
        let linux = Linux::prepare(&network, plan, card, word)?;
        if number == 0 {
            for (guest, place) in
                [(Guest { options: word, ..image }, IMAGE), (linux.timings(), LINUX)]
            {
                bar.set_message(format!("the engine in the {place}"));
                results.internal.push(internal(&network, &guest, place)?);
                bar.inc(1);
            }
        }
        let guests = [image, Guest { place: 1, ..linux.gateway() }];
        let guests = guests.map(|guest| Guest { card: card.device(), ..guest });
        let mut samples = Samples::default();
        for round in 1..=plan.rounds {
            bar.set_message(format!("{}, round {round}", card.device()));
            let mut turns = Turns { plan, network: &network, samples: &mut samples, round };
            if let Err(error) = turns.take(&guests, &slices, || bar.inc(1)) {
                results.failed.push(format!("{}, round {round}: {error}", card.device()));
            }
        }
        let kernel = linux.version.clone();
        results.guests.push(Pair { card, kernel, figures: samples.figures() });
    }
    bar.finish_and_clear();
    Ok(())
}

/// All slices, in their order.
fn slices(plan: &Plan) -> Vec<Slice> {
    let round_trips = plan.sizes.iter().map(|&bytes| Slice::RoundTrip(bytes));
    let throughput = plan.segments.iter().map(|&segment| Slice::Throughput(segment));
    let packets = [false, true].map(|is_mixed| Slice::Packets { is_mixed });
    round_trips.chain([Slice::Http]).chain(throughput).chain(packets).collect()
}

/// Fills the largest table of a machine with `mebibytes` of memory.
fn fill(network: &Network, image: &Guest<'_>, mebibytes: u32) -> io::Result<Fill> {
    let guest = Guest { options: "fill", memory: mebibytes, ..*image };
    let log = until_end(network, &guest)?;
    let found = log.lines().find_map(Fill::from_line);
    found.ok_or_else(|| io::Error::other(format!("no table was filled: {log}")))
}

/// Measures the engine in a guest. The guest prints lines of JSON and ends.
fn internal(network: &Network, guest: &Guest<'_>, place: &'static str) -> io::Result<Internal> {
    let log = until_end(network, guest)?;
    let timings: Vec<Timing> = log.lines().filter_map(Timing::from_line).collect();
    if timings.is_empty() {
        return Err(io::Error::other(format!("{place} tells no timings: {log}")));
    }
    Ok(Internal { place, timings })
}

/// Runs a guest to its end; returns its output.
fn until_end(network: &Network, guest: &Guest<'_>) -> io::Result<String> {
    let mut machine = Machine::boot(network, guest)?;
    let ended = machine.wait_for_end();
    let log = machine.log();
    ended.map(|_| log.clone()).map_err(|error| io::Error::other(format!("{error}: {log}")))
}

/// A round over all slices.
struct Turns<'a> {
    plan: &'a Plan,
    network: &'a Network,
    samples: &'a mut Samples,
    round: usize,
}

impl Turns<'_> {
    /// Boots the image and the Linux guest, and measures them in turns; calls `done` after each.
    fn take(
        &mut self,
        guests: &[Guest<'_>; 2],
        slices: &[Slice],
        done: impl Fn(),
    ) -> io::Result<()> {
        let ((image, image_s), (linux, linux_s)) = (self.boot(&guests[0])?, self.boot(&guests[1])?);
        self.samples.add(What::FirstPacket, &[image_s], &[linux_s]);
        done();
        let machines = [image, linux];
        for (number, slice) in slices.iter().enumerate() {
            let mut found = [Vec::new(), Vec::new()];
            let first = (number + self.round) % 2;
            for place in [first, 1 - first] {
                machines[place].go_on(self.network)?;
                // The guest may have forgotten its neighbors.
                traffic::awaken(self.network)?;
                found[place] = slice.measure(self.plan, self.network)?;
                machines[place].pause(self.network)?;
            }
            let [image, linux] = &found;
            for ((what, image), (_, linux)) in image.iter().zip(linux) {
                self.samples.add(*what, image, linux);
            }
            done();
        }
        Ok(())
    }

    /// Boots a guest and stops it; returns the time of the boot, too.
    fn boot(&self, guest: &Guest<'_>) -> io::Result<(Machine, f64)> {
        let (mut machine, seconds) = traffic::first_packet(self.network, guest)?;
        machine.wait_until_running(self.network)?;
        machine.pause(self.network)?;
        Ok((machine, seconds))
    }
}

impl Slice {
    /// Measures the running guest.
    fn measure(self, plan: &Plan, network: &Network) -> io::Result<Vec<(What, Vec<f64>)>> {
        Ok(match self {
            Self::RoundTrip(bytes) => {
                let all = traffic::round_trips(network, bytes, plan.questions)?;
                vec![(What::RoundTrip(bytes), all)]
            }
            Self::Http => {
                let all = traffic::fetch(network, plan.questions)?;
                let column = |at: usize| all.iter().map(|times| times[at]).collect();
                vec![(What::Connection, column(0)), (What::Response, column(1))]
            }
            Self::Throughput(segment) => {
                let rate = traffic::throughput(network, segment, plan.seconds)?;
                vec![(What::Throughput(segment), vec![rate])]
            }
            Self::Packets { is_mixed } => {
                let packets = traffic::packets(network, plan.seconds, is_mixed)?;
                let (rate, share) = (vec![packets.rate], vec![packets.udp_share]);
                if is_mixed {
                    vec![(What::Mixed, rate), (What::UdpShare, share)]
                } else {
                    vec![(What::Tcp, rate)]
                }
            }
        })
    }
}
