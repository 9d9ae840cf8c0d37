//! Two gateways with their traffic, and what happens to them. `natgate bench pair` measures with
//! it, too.

use super::arrivals::Arrivals;
use super::flows::{Flows, Kept};
use super::streams::{self, Call, Download, Iperf};
use super::watch::{Notice, Watch};
use anyhow::{Context, ensure};
use natgate_testnet::{PairNetwork, PairNode};
use serde_json::Value;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a state of the pair with few mappings, and mappings for which it waits one
/// second more.
const PATIENCE: Duration = Duration::from_secs(60);
const COPIED_A_SECOND: u32 = 50_000;

/// Most mappings that the slices of the example have ports for, with room to spare.
const FEW: u32 = 400_000;

/// The pool and the slices of the example, and those for more mappings. Mappings do not end while
/// they are made.
const FOR_MANY: [[&str; 2]; 4] = [
    ["\"203.0.113.0/28\"", "\"203.0.113.0/24\""],
    ["\"203.0.113.0/29\"", "\"203.0.113.0/25\", \"203.0.113.128/26\""],
    ["\"203.0.113.8/29\"", "\"203.0.113.192/26\""],
    ["hold_down = \"1s\"", "hold_down = \"1s\"\nudp = \"1h\""],
];

/// Traffic before the kill, and after it.
const BEFORE: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(5);

/// A mapping of UDP is copied at this age.
const YOUNG: Duration = Duration::from_millis(2_200);

/// The pair with its traffic.
pub(crate) struct Stage {
    network: Arc<PairNetwork>,
    mappings: u32,
    notice: Notice,
    flows: Flows,
    a: Option<PairNode>,
    b: Option<PairNode>,
    traffic: Option<Traffic>,
}

struct Traffic {
    call: Call,
    download: Download,
    watch: Watch,
}

/// What the partner has been sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Time within which 99 of 100 changes were copied.
    pub(crate) lag: Duration,
}

/// The time around a kill.
pub(crate) struct Outage {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Time from the kill until both routers used the other gateway.
    pub(crate) noticed: anyhow::Result<Duration>,
    pub(crate) iperf: anyhow::Result<Iperf>,
}

impl Stage {
    /// Makes the network, and the sockets for this number of mappings. Routers learn of an end by
    /// `notice`.
    pub(crate) fn new(name: &str, mappings: u32, notice: Notice) -> anyhow::Result<Self> {
        let network = PairNetwork::build(name).context("cannot build the network")?;
        let network = Arc::new(network);
        let flows = Flows::prepare(&network, mappings).context("cannot open the sockets")?;
        Ok(Self { network, mappings, notice, flows, a: None, b: None, traffic: None })
    }

    pub(crate) fn network(&self) -> &PairNetwork {
        &self.network
    }

    fn node(&self, name: &str) -> anyhow::Result<PairNode> {
        let more = if self.notice == Notice::Routes { "[announce]\n" } else { "" };
        let mut config = self.network.config(name, more);
        if self.mappings > FEW {
            for [few, many] in FOR_MANY {
                config = config.replace(few, many);
            }
            let most = self.mappings + self.mappings / 16;
            config += &format!("[limits]\nmappings = {most}\nextra_sessions = 65536\n");
        }
        Ok(self.network.start(&crate::gateway()?, name, &config)?)
    }

    /// Longest wait for a state of the pair.
    fn patience(&self) -> Duration {
        PATIENCE + Duration::from_secs((self.mappings / COPIED_A_SECOND).into())
    }

    fn running(&self) -> anyhow::Result<[&PairNode; 2]> {
        let [a, b] = [&self.a, &self.b].map(|node| node.as_ref().context("it does not run"));
        Ok([a?, b?])
    }

    /// Starts both nodes, and waits until they are a pair.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.a = Some(self.node("a")?);
        self.b = Some(self.node("b")?);
        let nodes = self.running()?;
        Ok(nodes
            .into_iter()
            .try_for_each(|node| node.wait_until("the pair", self.patience(), is_whole))?)
    }

    /// Makes the mappings. Returns the number of subscribers.
    pub(crate) fn fill(&mut self) -> anyhow::Result<u32> {
        self.flows.begin()
    }

    /// Waits until the partner has a copy of each.
    pub(crate) fn copy(&mut self) -> anyhow::Result<Copied> {
        thread::sleep(YOUNG);
        let [a, _] = self.running()?;
        let number =
            |state: &Value, key: &str| state["slices"][0]["sent"][key].as_u64().unwrap_or_default();
        let wanted = u64::from(self.mappings);
        a.wait_until("the copy", self.patience(), |state| {
            is_whole(state) && number(state, "records") >= wanted
        })?;
        let state = a.status()?;
        let [records, bytes] = ["records", "bytes"].map(|key| number(&state, key));
        let lag = state["slices"][0]["sent"]["lag_p99_s"].as_f64().context("it tells no lag")?;
        Ok(Copied { records, bytes, lag: Duration::from_secs_f64(lag) })
    }

    /// Time for which the oldest change waits for its copy now.
    pub(crate) fn lag(&self) -> anyhow::Result<Duration> {
        let [a, _] = self.running()?;
        let lag = a.status()?["slices"][0]["lag_s"].as_f64();
        Ok(Duration::from_secs_f64(lag.context("it tells no lag")?))
    }

    /// Begins the call and the download. Returns the bytes that have come so far.
    pub(crate) fn begin_traffic(&mut self) -> anyhow::Result<u64> {
        let watch = Watch::start(&self.network, self.notice)?;
        let call = Call::start(&self.network).context("the call")?;
        let download = Download::start(&self.network).context("the download")?;
        let traffic = Traffic { call, download, watch };
        thread::sleep(YOUNG);
        let bytes = traffic.download.bytes()?;
        ensure!(bytes > 0, "nothing was downloaded");
        ensure!(traffic.watch.withdrawn().is_none(), "a router missed three answers");
        self.traffic = Some(traffic);
        Ok(bytes)
    }

    fn traffic(&self) -> anyhow::Result<&Traffic> {
        self.traffic.as_ref().context("there is no traffic")
    }

    /// Kills the active gateway while iperf3 runs.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Outage> {
        let from = Instant::now();
        let network = Arc::clone(&self.network);
        let seconds = (BEFORE + AFTER).as_secs() as u32;
        let iperf = thread::spawn(move || streams::iperf3(&network, seconds));
        thread::sleep(2 * BEFORE);
        let killed = Instant::now();
        self.a.take().context("it does not run")?.kill()?;
        thread::sleep(AFTER);
        let to = Instant::now();
        let iperf = iperf.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let withdrawn = self.traffic()?.watch.withdrawn();
        let noticed = withdrawn.context("the routers did not notice its death").and_then(|time| {
            time.checked_duration_since(killed)
                .context("a router missed three answers before the kill; the machine is too busy")
        });
        Ok(Outage { from, to, noticed, iperf })
    }

    /// Packets of the call between two times, those that were lost, and the longest silence.
    pub(crate) fn call(
        &self,
        from: Instant,
        to: Instant,
    ) -> anyhow::Result<(usize, usize, Duration)> {
        let Call { arrivals, .. } = &self.traffic()?.call;
        let (sent, lost) = self.traffic()?.call.lost(from, to);
        Ok((sent, lost, arrivals.longest_gap(from, to)))
    }

    /// Bytes of the download so far, and its longest silence between two times.
    pub(crate) fn download(&self, from: Instant, to: Instant) -> anyhow::Result<(u64, Duration)> {
        let download = &self.traffic()?.download;
        let arrivals: &Arrivals = &download.arrivals;
        Ok((download.bytes()?, arrivals.longest_gap(from, to)))
    }

    /// Sends in every mapping, and compares the endpoints with those of the first time.
    pub(crate) fn compare(&self) -> anyhow::Result<Kept> {
        self.flows.compare()
    }

    /// Starts the killed gateway. Returns the time until it has a copy of all.
    pub(crate) fn restart(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.a = Some(self.node("a")?);
        let [a, b] = self.running()?;
        b.wait_until("the take-over", self.patience(), |state| owns(state, 0))?;
        a.wait_until("the copy", self.patience(), is_whole)?;
        Ok(began.elapsed())
    }

    /// Gives the slice and the routes back. Returns the time of the move.
    pub(crate) fn move_back(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let [a, b] = self.running()?;
        b.command(&["move", "0", "a"])?;
        a.wait_until("the move", self.patience(), |state| owns(state, 0))?;
        let moved = began.elapsed();
        self.traffic()?.watch.restore()?;
        thread::sleep(Duration::from_secs(2));
        Ok(moved)
    }

    /// Ends the traffic and the nodes.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.traffic = None;
        let nodes = [self.a.take(), self.b.take()].into_iter().flatten();
        nodes.into_iter().try_for_each(|node| Ok(node.stop()?))
    }
}

fn is_whole(state: &Value) -> bool {
    state["ok"] == true
}

/// True if a node owns a slice and assigns its ports.
fn owns(state: &Value, slice: usize) -> bool {
    let slice = &state["slices"][slice];
    slice["role"] == "owner" && slice["assigns"] == true
}
