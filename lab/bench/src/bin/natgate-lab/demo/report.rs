//! Output of the demonstration: lines for people, or one JSON object.
//!
//! The object: `passed` (true if every step did), `seconds`, `steps` (each `name`, `what`,
//! `passed`, `detail`, `seconds`), `skipped` (the reason why the steps with IPv6 were not run, or
//! null), `skipped_tunnels` (that of the steps of DS-Lite alone), `status` (as `natgate run` writes
//! it: mappings, counters), `console` (the image's).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use natgate_testnet::{AFTR, AFTR_EXTERNAL, GATEWAY_INSIDE6, NAME, RESOLVER};
use serde_json::{Map, Value, json};

use super::steps::{DemoNetwork, Step};

/// Printed mappings of each protocol; the others are only counted.
const SHOWN: usize = 4;

/// Result of one step.
pub(crate) struct StepResult {
    name: &'static str,
    what: &'static str,
    outcome: Result<String, String>,
    seconds: f64,
}

/// Results of the demonstration.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) steps: Vec<StepResult>,
    /// Reason why the steps with IPv6 were not run.
    pub(crate) skipped: Option<&'static str>,
    /// Reason why the steps of DS-Lite alone were not run.
    pub(crate) skipped_tunnels: Option<&'static str>,
    /// The gateway's own status.
    pub(crate) status: Value,
    /// Counters on the image's console.
    pub(crate) console: String,
    pub(crate) seconds: f64,
}

impl StepResult {
    /// Runs a step.
    pub(crate) fn of(step: &Step, network: &DemoNetwork) -> Self {
        Self::measure(step.name, step.what, || (step.run)(network))
    }

    /// Runs `work` and measures its time.
    pub(crate) fn measure(
        name: &'static str,
        what: &'static str,
        work: impl FnOnce() -> anyhow::Result<String>,
    ) -> Self {
        let began = Instant::now();
        let outcome = work().map_err(|error| format!("{error:#}"));
        Self { name, what, outcome, seconds: began.elapsed().as_secs_f64() }
    }

    /// True if the step has passed.
    pub(crate) fn has_passed(&self) -> bool {
        self.outcome.is_ok()
    }

    /// Line for people.
    pub(crate) fn line(&self, number: usize) -> String {
        let (mark, detail) = match &self.outcome {
            Ok(detail) => ("pass", detail),
            Err(error) => ("FAIL", error),
        };
        format!("{number:3} {mark}  {:39} {:4.1} s  {detail}", self.what, self.seconds)
    }

    fn to_json(&self) -> Value {
        let (passed, detail) = match &self.outcome {
            Ok(detail) => (true, detail),
            Err(error) => (false, error),
        };
        json!({
            "name": self.name,
            "what": self.what,
            "passed": passed,
            "detail": detail,
            "seconds": self.seconds,
        })
    }
}

impl Report {
    /// Returns true if all steps passed.
    pub(crate) fn passed(&self) -> bool {
        self.steps.iter().all(StepResult::has_passed)
    }

    /// One sentence with the names of the failed steps.
    pub(crate) fn failures(&self) -> String {
        let failed: Vec<_> =
            self.steps.iter().filter(|step| step.outcome.is_err()).map(|step| step.name).collect();
        format!("{} of {} steps failed: {}", failed.len(), self.steps.len(), failed.join(", "))
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "passed": self.passed(),
            "seconds": self.seconds,
            "steps": self.steps.iter().map(StepResult::to_json).collect::<Vec<_>>(),
            "skipped": self.skipped,
            "skipped_tunnels": self.skipped_tunnels,
            "status": self.status,
            "console": self.console.lines().collect::<Vec<_>>(),
        })
    }

    /// Prints the gateway's own status: its mappings and counters.
    pub(crate) fn print_status(&self) {
        // The image prints its counters on its console.
        if self.status.is_null() {
            if !self.console.is_empty() {
                println!("\nCounted by the image\n  {}", self.console.replace('\n', "\n  "));
            }
            return;
        }
        print!("{}", mappings(&self.status["mappings"]));
        print!("{}", counters(&self.status["counters"]));
    }

    pub(crate) fn print_end(&self) {
        let passed = self.steps.iter().filter(|step| step.has_passed()).count();
        let failed = self.steps.len() - passed;
        println!("\n{passed} passed, {failed} failed, {:.1} s", self.seconds);
    }
}

/// Line about steps that are not run.
pub(crate) fn skip_line(what: &str, reason: &str) -> String {
    format!("  - skip  {what:39}         {reason}")
}

/// Description of the network.
pub(crate) fn introduction(name: &str, with_ipv6: bool, with_tunnels: bool) -> String {
    let ipv6 = if with_ipv6 {
        format!(
            "\n  sub6 IPv6 only --+      {:33}    {RESOLVER}, DNS64",
            format!("{GATEWAY_INSIDE6}, NAT64")
        )
    } else {
        String::new()
    };
    let tunnels = if with_tunnels {
        format!(
            "
  home1 192.168.1.2 == tunnel ==+
                                {AFTR} [aftr] 203.0.113.202 -- router
  home2 192.168.1.2 == tunnel ==+                pool {AFTR_EXTERNAL}"
        )
    } else {
        String::new()
    };
    format!(
        "Network namespaces {name}-*, with the kernel's own TCP/IP at every end:

  sub1 10.0.0.11 --+                                       +-- server1 198.51.100.10
                switch -- 10.0.0.1 [nat] 192.0.2.2 -- router
  sub2 10.0.0.12 --+      pool 203.0.113.1 to .4           +-- server2 198.51.100.130{ipv6}{tunnels}
"
    )
}

/// Commands to enter a network that is being kept.
pub(crate) fn ways_in(name: &str, with_ipv6: bool) -> String {
    let ipv6 = if with_ipv6 {
        format!("  ip netns exec {name}-sub6 curl -o /dev/null http://{NAME}/\n")
    } else {
        String::new()
    };
    format!(
        "
The network stays until you press Enter. In another terminal, for instance:

  ip netns exec {name}-sub1 curl -o /dev/null http://198.51.100.10/
{ipv6}  ip netns exec {name}-sub1 bash
  ip netns exec {name}-nat tcpdump -n -i outside
"
    )
}

fn mappings(mappings: &Value) -> String {
    let mut by_protocol: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for mapping in mappings.as_array().into_iter().flatten() {
        by_protocol.entry(plain(&mapping["protocol"])).or_default().push(mapping);
    }
    let count: usize = by_protocol.values().map(Vec::len).sum();
    let mut text = format!("\n{count} mappings\n");
    let columns = ["protocol", "internal", "external", "sessions", "packets_out", "packets_in"];
    // Internal endpoints of IPv6 are longer than those of IPv4.
    let lengths = by_protocol.values().flatten().map(|one| plain(&one["internal"]).len());
    let width = lengths.max().unwrap_or_default().max(21);
    row(&mut text, width, columns.map(str::to_owned));
    for (protocol, mut mappings) in by_protocol {
        // A reader recognizes the mappings with most packets.
        mappings.sort_by_key(|mapping| Reverse(mapping["packets_out"].as_u64()));
        for mapping in mappings.iter().take(SHOWN) {
            row(&mut text, width, columns.map(|column| plain(&mapping[column])));
        }
        if let Some(rest @ 1..) = mappings.len().checked_sub(SHOWN) {
            let _ = writeln!(text, "  {protocol:8} and {rest} more");
        }
    }
    text
}

fn row(text: &mut String, width: usize, cells: [String; 6]) {
    let [protocol, internal, external, sessions, out, inn] = cells;
    let _ = writeln!(
        text,
        "  {protocol:8} {internal:width$} {external:21} {sessions:>8} {out:>11} {inn:>10}"
    );
}

fn counters(counters: &Value) -> String {
    let mut text = "\nPackets counted by the gateway\n".to_owned();
    let empty = Map::new();
    for (direction, verdicts) in counters["packets"].as_object().unwrap_or(&empty) {
        for (verdict, count) in verdicts.as_object().unwrap_or(&empty) {
            let bytes = plain(&counters["bytes"][direction][verdict]);
            let count = plain(count);
            if count != "0" {
                let _ =
                    writeln!(text, "  {direction:9} {verdict:10} {count:>10}  {bytes:>12} bytes");
            }
        }
    }
    for (reason, count) in counters["drops"].as_object().unwrap_or(&empty) {
        if count.as_u64() != Some(0) {
            let _ = writeln!(text, "  dropped: {reason} {}", plain(count));
        }
    }
    text
}

/// A value without the quotes of a string.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
