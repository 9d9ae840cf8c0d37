//! `natgate bench pair`: what a kill of the active gateway of a pair costs.

use super::{Output, command, live, mappings};
use crate::Failure;
use crate::demo::{Notice, Outage, Stage};
use anyhow::{Context, anyhow};
use natgate_lab::bed::TAG;
use natgate_lab::copies::{self, Join, Price};
use natgate_lab::report::{Axis, Plot, Report, Series, Style, Table, progress};
use natgate_lab::spread::Spread;
use natgate_testnet::PairNetwork;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use targets::Target;

mod targets;

/// Losses on the link between the nodes, percent.
const LOSSES: [u32; 4] = [0, 1, 5, 20];

/// Looks at the lag in each run, and the pause between two of them.
const LOOKS: usize = 50;
const PAUSE: Duration = Duration::from_millis(50);

/// Rate of a measurement of the price of the copy, new mappings a second, and its time.
const PRICED: (u32, Duration) = (100_000, Duration::from_secs(5));
const PRICED_QUICK: (u32, Duration) = (10_000, Duration::from_secs(1));

/// Programs of the measurement, and their Debian packages.
const TOOLS: [(&str, &str); 1] = [("iperf3", "iperf3")];

const LEGEND: &str = "\
Kept: the smallest share of mappings that had the same external endpoint at the partner. Lag: the
time within which 99 of 100 changes were copied, rounded up by a quarter at most. Oldest change: 99
of 100 looks at the wait of the change that waited longest then.";

const AFTER_HELP: &str = "\
Each run makes two gateways in network namespaces of its own, with the mappings, a call of 50
packets a second, a download and iperf3. It kills the active gateway (kill -9), and starts it again.
Routers notice the death by three requests without an answer, 50 ms apart; in further runs they are
told, as by a routing daemon, when the guardian has removed the announced routes. Losses are on the
link between the nodes, both ways. A run takes half a minute, with 10M mappings a quarter of an
hour.

The price of the copy is measured in memory: a worker that makes 100,000 mappings a second (quick:
10,000), without a partner and with one, and the link between the two. So is a join: a partner
without mappings comes to an owner with all of them.

It needs root, ip, ethtool, setpriv, nft and iperf3.

Examples:
natgate bench pair --quick
natgate bench pair --runs 1 --mappings 1M --losses 0,5 --out /tmp/pair
natgate bench pair --runs 1 --mappings 10M --losses 0";

/// Measure what a kill of one of two gateways costs
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Runs at each loss [default: 5; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Mappings [default: 100k; quick: 10k]
    #[arg(long, value_name = "N", value_parser = few_mappings)]
    mappings: Option<u32>,
    /// Losses on the link between the nodes, percent [default: 0,1,5,20; quick: 0,5]
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(0..=90),
    )]
    losses: Vec<u32>,
    #[command(flatten)]
    output: Output,
}

/// Parses a number of mappings that the subscribers of the network can have.
fn few_mappings(text: &str) -> Result<u32, String> {
    let wrong = "a number of mappings is 1 to 10M here";
    mappings(text).ok().filter(|count| *count <= 10_000_000).ok_or(wrong.into())
}

/// Figures of all runs.
#[derive(Serialize)]
struct Results {
    mappings: u32,
    runs: Vec<Run>,
    /// Rate of the measurement of the price, new mappings a second.
    rate: u32,
    prices: Vec<Price>,
    joins: Vec<Join>,
    failed: Vec<Failed>,
    targets: Vec<Target>,
}

/// A run that did not come to its end.
#[derive(Serialize)]
struct Failed {
    loss_percent: u32,
    told: bool,
    why: String,
}

/// Figures of a run; times in milliseconds.
#[derive(Serialize)]
struct Run {
    loss_percent: u32,
    /// True if routers were told of the end by the announced routes.
    told: bool,
    /// Until both routers used the other gateway.
    noticed_ms: f64,
    /// Longest silence of the call, packets of it that were lost, and the same of the download.
    call_ms: f64,
    call_lost: usize,
    download_ms: f64,
    /// Mappings that kept their endpoint, of those of all.
    kept: usize,
    other: usize,
    silent: usize,
    /// Bytes sent to the partner for each record.
    bytes_a_record: f64,
    /// Time within which 99 of 100 changes were copied.
    lag_p99_ms: f64,
    /// Highest of 99 of 100 looks at the wait of the oldest change, while mappings were made.
    oldest_p99_ms: f64,
    /// From the start of the killed gateway until it has a copy of all.
    copied_ms: f64,
    /// Packets of the call that were lost while it came back.
    lost_on_return: usize,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    live::prepare(&TOOLS)?;
    let quick = args.output.quick;
    let runs = args.runs.unwrap_or(if quick { 1 } else { 5 });
    let mappings = args.mappings.unwrap_or(if quick { 10_000 } else { 100_000 });
    let losses = match (args.losses.is_empty(), quick) {
        (true, true) => vec![0, 5],
        (true, false) => LOSSES.to_vec(),
        (false, _) => args.losses,
    };
    let (rate, time) = if quick { PRICED_QUICK } else { PRICED };
    let mut results = Results {
        mappings,
        runs: vec![],
        rate,
        prices: vec![],
        joins: vec![],
        failed: vec![],
        targets: vec![],
    };
    let cases = losses.iter().map(|loss| (*loss, Notice::Requests)).chain([(0, Notice::Routes)]);
    let all = cases.flat_map(|case| (0..runs).map(move |_| case));
    let progress = progress(u64::from(runs) * (losses.len() as u64 + 3));
    for run in 0..runs {
        let failed = |what: &str, error: anyhow::Error| {
            let why = format!("{what}: {error:#}");
            Failed { loss_percent: 0, told: false, why }
        };
        let price = |folder: &Path| copies::measure(folder, rate, time);
        match in_memory(&name_of(format!("p{run}")), price) {
            Ok(price) => results.prices.push(price),
            Err(error) => results.failed.push(failed("the price of the copy", error)),
        }
        progress.inc(1);
        match in_memory(&name_of(format!("j{run}")), |folder| copies::join(folder, mappings)) {
            Ok(join) => results.joins.push(join),
            Err(error) => results.failed.push(failed("the join", error)),
        }
        progress.inc(1);
    }
    for (number, (loss, notice)) in all.enumerate() {
        match measure(&name_of(number.to_string()), mappings, (loss, notice)) {
            Ok(run) => results.runs.push(run),
            Err(error) => {
                let (told, why) = (notice == Notice::Routes, format!("{error:#}"));
                results.failed.push(Failed { loss_percent: loss, told, why });
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    results.targets = targets::targets(&results);
    args.output.deliver("pair", &report(&results))?;
    match &results.failed[..] {
        [] => Ok(()),
        [Failed { loss_percent, why, .. }, ..] => {
            Err(anyhow!("a run at {loss_percent} % loss: {why}").into())
        }
    }
}

/// One run.
fn measure(name: &str, mappings: u32, (loss, notice): (u32, Notice)) -> anyhow::Result<Run> {
    let mut stage = Stage::new(name, mappings, notice)?;
    lose(&stage, loss)?;
    stage.start()?;
    stage.fill()?;
    let mut lags = Vec::new();
    for _ in 0..LOOKS {
        lags.push(stage.lag()?);
        std::thread::sleep(PAUSE);
    }
    lags.sort_unstable();
    let copied = stage.copy()?;
    stage.begin_traffic()?;
    let Outage { from, to, noticed, .. } = stage.kill()?;
    let (_, call_lost, call) = stage.call(from, to)?;
    let (_, download) = stage.download(from, to)?;
    let kept = stage.compare()?;
    let began = Instant::now();
    let back = stage.restart()?;
    stage.move_back()?;
    let end = Instant::now().checked_sub(Duration::from_millis(500)).context("a time")?;
    let (_, lost_on_return, _) = stage.call(began, end)?;
    stage.stop()?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Run {
        loss_percent: loss,
        told: notice == Notice::Routes,
        noticed_ms: ms(noticed?),
        call_ms: ms(call),
        call_lost,
        download_ms: ms(download),
        kept: kept.same,
        other: kept.other,
        silent: kept.silent,
        bytes_a_record: copied.bytes as f64 / copied.records.max(1) as f64,
        lag_p99_ms: ms(copied.lag),
        oldest_p99_ms: ms(lags[(lags.len() * 99).div_ceil(100) - 1]),
        copied_ms: ms(back),
        lost_on_return,
    })
}

/// Name of a network.
fn name_of(number: String) -> String {
    format!("{TAG}{}-{number}", std::process::id())
}

/// Measures two nodes in memory. A namespace has the link, a folder the nodes' certificates.
fn in_memory<T: Send>(
    name: &str,
    measure: impl FnOnce(&Path) -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let network = PairNetwork::build(name).context("cannot build the network")?;
    network.node("a").enter(|| measure(&network.directory()))?
}

/// Loses packets of the link between the nodes, in both.
fn lose(stage: &Stage, percent: u32) -> anyhow::Result<()> {
    if percent == 0 {
        return Ok(());
    }
    for node in ["a", "b"] {
        for rule in [
            "add table ip lose".to_owned(),
            "add chain ip lose in { type filter hook input priority 0 ; }".to_owned(),
            format!("add rule ip lose in udp dport 7600 numgen random mod 100 < {percent} drop"),
        ] {
            stage.network().node(node).run(5, "nft", &[&rule])?;
        }
    }
    Ok(())
}

fn report(results: &Results) -> Report {
    let mut report = Report::new("pair", "A pair of gateways", &command());
    report.data(results);
    report.text(format!(
        "{} mappings of UDP, a call of 50 packets a second and a download; kill -9 of the active \
         gateway. Medians of the runs, with the least and the greatest in brackets. Routers notice \
         the death by three requests without an answer, 50 ms apart, or are told by the guardian's \
         removal of the announced routes. {LEGEND}",
        results.mappings
    ));
    report.table(kill_table(results));
    report.plot(plot(&results.runs));
    report.text(format!(
        "The price of the copy: processor time of a worker for each new mapping, a packet and its \
         answer, at {} new mappings a second, between devices in memory. The last column is \
         the difference of the medians with and without a partner, as a part of one worker. The \
         link has a thread of its own, which is not counted.",
        results.rate
    ));
    report.table(price_table(&results.prices, results.rate));
    report.text(
        "A join: the owner has all mappings, between devices in memory, and a partner without any \
         starts its link. Copied: the owner knows that the copy is complete. Both nodes and both \
         links share the machine's processors. Times of processors are for each mapping.",
    );
    report.table(join_table(&results.joins));
    report
        .text("## Targets\n\nOf several losses on the link, the one with the worst median counts.");
    report.table(targets::table(&results.targets));
    report
}

/// A row for each loss on the link.
fn kill_table(results: &Results) -> Table {
    let mut table = Table::new([
        "loss on the link",
        "routers by",
        "runs",
        "failed",
        "noticed, ms",
        "call silent, ms",
        "download silent, ms",
        "kept",
        "lag p99, ms",
        "oldest change p99, ms",
        "bytes a record",
        "copied again, ms",
        "lost on return",
    ]);
    let failed = results.failed.iter().map(|run| (run.told, run.loss_percent));
    let mut cases: Vec<(bool, u32)> =
        results.runs.iter().map(|run| (run.told, run.loss_percent)).chain(failed.clone()).collect();
    cases.sort_unstable();
    cases.dedup();
    for case in cases {
        let is_of = |run: &&Run| (run.told, run.loss_percent) == case;
        let runs: Vec<&Run> = results.runs.iter().filter(is_of).collect();
        let spread = |read: fn(&Run) -> f64| spread(runs.iter().map(|run| read(run)));
        let kept = runs.iter().map(|run| run.kept).min().unwrap_or_default();
        let lost: usize = runs.iter().map(|run| run.lost_on_return).sum();
        table.push([
            format!("{} %", case.1),
            if case.0 { "told" } else { "requests" }.to_owned(),
            runs.len().to_string(),
            failed.clone().filter(|other| *other == case).count().to_string(),
            spread(|run| run.noticed_ms),
            spread(|run| run.call_ms),
            spread(|run| run.download_ms),
            format!("{:.3} %", kept as f64 / f64::from(results.mappings) * 100.0),
            spread(|run| run.lag_p99_ms),
            spread(|run| run.oldest_p99_ms),
            spread(|run| run.bytes_a_record),
            spread(|run| run.copied_ms),
            lost.to_string(),
        ]);
    }
    table
}

/// Silences and lag of each run.
fn plot(runs: &[Run]) -> Plot {
    let series = |name, read: fn(&Run) -> f64| {
        let asked = runs.iter().filter(|run| !run.told);
        let points = asked.map(|run| (f64::from(run.loss_percent), read(run))).collect();
        Series::new(name, Style::Points, points)
    };
    let most = runs.iter().map(|run| run.loss_percent).max().unwrap_or_default();
    let limit = |name, value| {
        Series::new(name, Style::Dashed, vec![(0.0, value), (f64::from(most), value)])
    };
    Plot {
        name: String::new(),
        title: "A kill of the active gateway, each run".into(),
        x: Axis::linear("loss on the link between the nodes, percent"),
        y: Axis::log("milliseconds"),
        series: vec![
            series("call silent", |run| run.call_ms),
            series("download silent", |run| run.download_ms),
            series("lag, 99 of 100", |run| run.lag_p99_ms),
            series("oldest change", |run| run.oldest_p99_ms),
            series("copied again", |run| run.copied_ms),
            limit("target of silences", targets::ASKED_MS),
            limit("target of the lag", targets::LAG_MS),
        ],
    }
}

/// The part of a worker that the copy takes at a rate, percent. `None`: it was not measured.
fn part_of_a_worker(prices: &[Price], rate: u32) -> Option<f64> {
    let of = |read: fn(&Price) -> f64| median(prices.iter().map(read));
    let more = of(|price| price.active_ns)? - of(|price| price.alone_ns)?;
    Some(more * f64::from(rate) / 1e9 * 100.0)
}

fn price_table(prices: &[Price], rate: u32) -> Table {
    let of = |read: fn(&Price) -> f64| prices.iter().map(read);
    let header = [
        "runs",
        "without a partner, ns",
        "with one, ns",
        "the partner's worker, ns",
        "part of a worker",
    ];
    Table::new(header).row([
        prices.len().to_string(),
        spread(of(|price| price.alone_ns)),
        spread(of(|price| price.active_ns)),
        spread(of(|price| price.partner_ns)),
        part_of_a_worker(prices, rate).map_or("-".into(), |part| format!("{part:.1} %")),
    ])
}

fn join_table(joins: &[Join]) -> Table {
    let of = |read: fn(&Join) -> f64| spread(joins.iter().map(read));
    let header = [
        "runs",
        "mappings",
        "copied, ms",
        "the owner's worker, ns",
        "the partner's worker, ns",
        "the links, ns",
        "packets",
        "lost",
    ];
    Table::new(header).row([
        joins.len().to_string(),
        joins.first().map_or(0, |join| join.mappings).to_string(),
        of(|join| join.copied_ms),
        of(|join| join.owner_ns),
        of(|join| join.partner_ns),
        of(|join| join.links_ns),
        of(|join| join.packets as f64),
        of(|join| join.lost as f64),
    ])
}

/// The median of some values. `None`: there is none.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| Spread::of(&values).median)
}

/// Median, least and greatest.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let Spread { min, median, max, .. } = Spread::of(&values.collect::<Vec<_>>());
    format!("{median:.0} ({min:.0} to {max:.0})")
}
