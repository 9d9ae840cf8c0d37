//! `natgate demo --pair`: two gateways, of which the active one is killed and comes back.
//!
//! A call, a download, iperf3 and many mappings go through the pair meanwhile. Routers on both
//! sides find the death as BFD does ([`watch`]). Tells for how long each was interrupted, and how
//! many mappings kept their external endpoint.

mod arrivals;
mod flows;
mod stage;
mod streams;
mod watch;

use super::report::{Report, StepResult};
use anyhow::{Context, anyhow, ensure};
pub(crate) use stage::{Outage, Stage};
use std::time::{Duration, Instant};
use streams::Iperf;
pub(crate) use watch::Notice;

/// Mappings, beside the ones of the other traffic.
const MAPPINGS: u32 = 100_000;

/// Longest interruption that the demonstration passes with. Most of it is the time until routers
/// notice the death; a retransmission of TCP comes later.
const LONGEST: Duration = Duration::from_secs(3);

/// Runs the demonstration between the making of the network and its removal.
pub(super) fn hold(name: &str, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let mut stage = Stage::new(name, MAPPINGS, Notice::Requests)?;
    say(&introduction(name));
    let mut report = Report::default();
    let mut step = |name, what, work: &mut dyn FnMut() -> anyhow::Result<String>| {
        let result = StepResult::measure(name, what, work);
        say(&result.line(report.steps.len() + 1));
        let has_passed = result.has_passed();
        report.steps.push(result);
        has_passed
    };
    // Without the pair and its traffic nothing else can be shown.
    let is_ready = step("start", "two gateways become a pair", &mut || start(&mut stage))
        && step("mappings", "100,000 mappings by the active gateway", &mut || fill(&mut stage))
        && step("copy", "the partner has a copy of each", &mut || copy(&mut stage))
        && step("traffic", "a call, a download", &mut || begin_traffic(&mut stage));
    let mut outage = None;
    let is_killed = is_ready
        && step("kill", "kill -9 of the active gateway", &mut || kill(&mut stage, &mut outage));
    if is_killed && let Some(Outage { from, to, iperf, .. }) = outage {
        step("kill-call", "the call, 50 packets a second", &mut || call(&stage, from, to));
        step("kill-download", "the download", &mut || download(&stage, from, to));
        step("kill-iperf3", "iperf3", &mut || iperf3(&iperf));
        step("kill-flows", "mappings keep their endpoint", &mut || compare(&stage));
        let began = Instant::now();
        let is_back = step("restart", "the dead gateway starts again", &mut || restart(&mut stage))
            && step("move", "its slice moves back, and the routes", &mut || {
                Ok(format!("moved after {}", milliseconds(stage.move_back()?)))
            });
        if is_back {
            step("move-call", "no packet of the call is lost", &mut || no_loss(&stage, began));
            step("move-download", "the download", &mut || download(&stage, began, Instant::now()));
            step("move-flows", "mappings keep their endpoint", &mut || compare(&stage));
        }
    }
    step("stop", "SIGTERM ends both, exit code 0", &mut || stop(&mut stage));
    Ok(report)
}

fn introduction(name: &str) -> String {
    format!(
        "Network namespaces {name}-*, with the kernel's own TCP/IP at both ends:

                       +-- 10.1.0.1 [a] 192.0.2.2 --+
  sub 10.0.0.11 -- access       | replication      border -- srv 198.51.100.10
   and 1,000 others    +-- 10.2.0.1 [b] 192.0.3.2 --+
                    203.0.113.0/29 is a's slice, 203.0.113.8/29 is b's
"
    )
}

fn start(stage: &mut Stage) -> anyhow::Result<String> {
    stage.start()?;
    Ok("each owns a slice, the other has its copy".to_owned())
}

fn fill(stage: &mut Stage) -> anyhow::Result<String> {
    let subscribers = stage.fill()?;
    Ok(format!("{MAPPINGS} endpoints of {subscribers} subscribers, no two equal"))
}

fn copy(stage: &mut Stage) -> anyhow::Result<String> {
    let copied = stage.copy()?;
    Ok(format!("{} records, {} bytes each", copied.records, copied.bytes / copied.records.max(1)))
}

fn begin_traffic(stage: &mut Stage) -> anyhow::Result<String> {
    Ok(format!("{:.1} MB downloaded so far", stage.begin_traffic()? as f64 / 1e6))
}

fn kill(stage: &mut Stage, outage: &mut Option<Outage>) -> anyhow::Result<String> {
    let outage = outage.insert(stage.kill()?);
    let noticed = outage.noticed.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    Ok(format!("{} until both routers use the other", milliseconds(*noticed)))
}

fn call(stage: &Stage, from: Instant, to: Instant) -> anyhow::Result<String> {
    let (sent, lost, silence) = stage.call(from, to)?;
    let silence = bounded(silence)?;
    Ok(format!("silent for {silence}, {lost} of {sent} packets lost"))
}

fn download(stage: &Stage, from: Instant, to: Instant) -> anyhow::Result<String> {
    let (bytes, silence) = stage.download(from, to)?;
    let (silence, bytes) = (bounded(silence)?, bytes as f64 / 1e6);
    Ok(format!("silent for {silence}; {bytes:.1} MB so far, all right"))
}

fn iperf3(iperf: &anyhow::Result<Iperf>) -> anyhow::Result<String> {
    let Iperf { rate, silence } = iperf.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    let silence = bounded(*silence)?;
    Ok(format!("silent for about {silence}, {:.0} Mbit/s on average", rate / 1e6))
}

fn compare(stage: &Stage) -> anyhow::Result<String> {
    let kept = stage.compare()?;
    let least = MAPPINGS as usize - MAPPINGS as usize / 10_000;
    let said = format!(
        "{} of {MAPPINGS} the same, {} another, {} without an answer",
        kept.same, kept.other, kept.silent
    );
    ensure!(kept.same >= least, "{said}; at least {least} are right");
    Ok(said)
}

fn restart(stage: &mut Stage) -> anyhow::Result<String> {
    Ok(format!("all is copied after {}", milliseconds(stage.restart()?)))
}

fn no_loss(stage: &Stage, since: Instant) -> anyhow::Result<String> {
    // The last packets may be on their way.
    let to = Instant::now().checked_sub(Duration::from_millis(500)).context("a time")?;
    let (sent, lost, silence) = stage.call(since, to)?;
    let silence = milliseconds(silence);
    ensure!(lost == 0, "{lost} of {sent} packets lost, silent for {silence}");
    Ok(format!("0 of {sent} packets lost, silent for at most {silence}"))
}

fn stop(stage: &mut Stage) -> anyhow::Result<String> {
    stage.stop()?;
    Ok("both have ended".to_owned())
}

/// An interruption as text.
fn bounded(silence: Duration) -> anyhow::Result<String> {
    let shown = milliseconds(silence);
    ensure!(silence <= LONGEST, "silent for {shown}");
    Ok(shown)
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
