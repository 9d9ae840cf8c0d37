//! The report of the experiment: tables, the plot, a comparison with the paper's target, and the
//! difference to an earlier run.

use super::bench::ROUND;
use super::{Churn, Pause, Results, Scarcity, Threads, peers};
use crate::instructions::{self, Count};
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use crate::spread::Spread;
use crate::thesis;
use serde_json::Value;

/// Figures that are compared with an earlier run.
const COMPARED: [&str; 6] =
    ["outbound_ns", "inbound_ns", "mixed_ns", "create_ns", "limit_ns", "bytes_per_session"];

/// A figure of an earlier run and of this run.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Name of the field.
    pub figure: &'static str,
    /// Value of the earlier run.
    pub before: f64,
    /// Value of this run.
    pub now: f64,
}

impl Comparison {
    /// The change, percent.
    pub fn percent(&self) -> f64 {
        (self.now / self.before - 1.0) * 100.0
    }
}

impl Results {
    /// Compares figures with an earlier run, given as its JSON.
    ///
    /// # Errors
    /// One sentence if the JSON is no report of this benchmark.
    pub fn against(&self, earlier: &Value) -> Result<Vec<Comparison>, String> {
        let ours = serde_json::to_value(self).expect("figures are JSON");
        let figures = COMPARED.map(|figure| {
            let of = |run: &Value| run[figure].as_f64();
            match (of(earlier), of(&ours)) {
                (Some(before), Some(now)) => Ok(Comparison { figure, before, now }),
                _ => Err(format!("there is no number {figure:?}; give a JSON of bench engine")),
            }
        });
        figures.into_iter().collect()
    }

    /// The figures in a few lines, for a terminal.
    pub fn summary(&self, changes: &[Comparison]) -> String {
        let mut text = self.speeds().to_string();
        let complete = self.figures.complete_percent;
        text.push_str(&format!("\n{complete:.3} % of these packets did not take the quick way\n"));
        if !changes.is_empty() {
            text.push_str(&format!("\n{}", comparison(changes)));
        }
        text.push('\n');
        text
    }

    /// Writes the report; `counts` are the counts of callgrind, if there are any.
    pub fn report(&self, mut report: Report, counts: &[Count], changes: &[Comparison]) -> Report {
        report.data(self);
        report.text(format!(
            "{} {} sessions, batches of {}. Times are processor time of the thread, medians over \
             {} rounds of {} packets at random over the sessions; the kinds of round take turns. \
             The limit is one random 64-byte line of memory read and written back, asked for ahead \
             in the same batch size, over as many lines as there are sessions.",
            grouped(self.figures.sessions),
            self.figures.protocol.to_uppercase(),
            self.figures.batch,
            self.figures.spreads.limit_ns.runs,
            grouped(ROUND as u64),
        ));
        report.table(self.speeds());
        report.text(format!(
            "Of the packets of established sessions, {:.3} % did not take the quick way.",
            self.figures.complete_percent,
        ));
        report.table(self.targets());
        if let (Some(million), Some(ratio)) =
            (self.figures.mixed_at_million_ns, self.mixed_to_million)
        {
            report.text(format!(
                "With a million sessions a mixed packet takes {million:.1} ns: the large table \
                 costs {ratio:.2} times that."
            ));
            report.text(peers::TEXT);
            report.table(peers::table(million, &self.figures));
        }
        self.roofline(&mut report, counts);
        if let Some(threads) = &self.threads {
            threads.report(&mut report);
        }
        self.churn.report(&mut report);
        self.pause.report(&mut report);
        scarcity(&self.scarcity, &mut report);
        if !changes.is_empty() {
            report.text("## Against the earlier run");
            report.table(comparison(changes));
        }
        report
    }

    fn speeds(&self) -> Table {
        let header = ["", "ns", "cycles", "of the limit", "p10 to p90, ns", "M/s"];
        let mut table = Table::new(header);
        let figures = &self.figures;
        let spreads = &figures.spreads;
        for (name, spread) in [
            ("limit: one line of memory", &spreads.limit_ns),
            ("outbound", &spreads.outbound_ns),
            ("inbound", &spreads.inbound_ns),
            ("mixed, half and half", &spreads.mixed_ns),
            ("new session", &spreads.create_ns),
        ] {
            let Spread { median, p10, p90, .. } = *spread;
            table.push([
                name.into(),
                format!("{median:.1}"),
                format!("{:.0}", median * self.cycles_per_ns),
                format!("{:.2}", median / figures.limit_ns),
                format!("{p10:.1} to {p90:.1}"),
                format!("{:.1}", 1e3 / median),
            ]);
        }
        table
    }

    /// Targets of S1.
    fn targets(&self) -> Table {
        let figures = &self.figures;
        let mpps = 1e3 / figures.mixed_ns;
        Table::new(["Plotnikov 2015", "target", "its result", "here, one core"])
            .row([
                "packet rate, Mpps",
                &thesis::TARGET_MPPS.to_string(),
                &thesis::result_text(),
                &format!("{mpps:.1}"),
            ])
            .row(["time per packet, ns", "180", "", &format!("{:.1}", figures.mixed_ns)])
            .row([
                "cycles per packet",
                "436 at 2.4 GHz",
                "",
                &format!("{:.0} of the time-stamp counter", figures.mixed_ns * self.cycles_per_ns),
            ])
            .row([
                "new sessions, M/s, while as many end",
                &thesis::TARGET_NEW_SESSIONS.to_string(),
                "",
                &format!("{:.1}", 1e3 / self.churn.each_ns),
            ])
            .row([
                "new sessions, M/s, while none ends",
                "",
                "",
                &format!("{:.1}", 1e3 / figures.create_ns),
            ])
            .row(["sessions, M", "65.5", "", &format!("{:.1}", figures.sessions as f64 / 1e6)])
            .row([
                "bytes a session",
                "",
                "20 (its record)",
                &format!("{:.1}", figures.bytes_per_session),
            ])
    }

    fn roofline(&self, report: &mut Report, counts: &[Count]) {
        report.text("## What bounds it");
        if counts.is_empty() {
            report.text("`make bench-quick` counts instructions and cold lines where valgrind is.");
            return;
        }
        report.text(
            "A packet pays for the cold lines that it touches, and for those of its instructions \
             that do not run while lines are on their way.",
        );
        report.table(instructions::table(counts));
        let mut table =
            Table::new(["path", "lines x limit, ns", "measured, ns", "instructions / ns"]);
        let figures = &self.figures;
        for (way, measured) in [
            ("outbound", figures.outbound_ns),
            ("inbound", figures.inbound_ns),
            ("create", figures.create_ns),
        ] {
            let path = format!("{way}_{}", figures.protocol);
            let Some(count) = counts.iter().find(|count| count.path == path) else { continue };
            table.push([
                way.into(),
                format!("{:.1}", count.lines * figures.limit_ns),
                format!("{measured:.1}"),
                format!("{:.2}", count.instructions / measured),
            ]);
        }
        report.table(table);
    }
}

impl Threads {
    fn report(&self, report: &mut Report) {
        report.text(format!(
            "## Threads\n\nEach has an engine of its own and {} sessions; nothing is shared. \
             Turns of one thread alone and of all together alternate. By processor time, {} \
             threads do {:.2} times the work of one ({:.1} against {:.1} Mpps); by the clock on \
             the wall, on a machine with other work, {:.2} times.",
            grouped(self.sessions_each),
            self.threads,
            self.ratio,
            self.together_mpps,
            self.alone_mpps,
            self.ratio_wall,
        ));
    }
}

impl Churn {
    fn report(&self, report: &mut Report) {
        let (each, Spread { p10, p90, .. }) = (self.each_ns, self.spread);
        report.text(format!(
            "## Coming and going\n\nOf {} sessions, {} were made anew while as many others ended \
             and as many ports became free: {each:.1} ns for the three in the mean ({p10:.1} to \
             {p90:.1}), {:.1} M a second.",
            grouped(self.sessions),
            grouped(self.renewed),
            1e3 / each,
        ));
    }
}

impl Pause {
    fn report(&self, report: &mut Report) {
        report.text(format!(
            "## The longest pause\n\n{} mappings, made within a second, expire within a second \
             while others go on. A turn lets time pass, processes a batch of {} and takes the \
             events. At most {} mappings end in a turn. The turns are repeated {} times with equal \
             packets at equal times of the engine. The time of a turn is the least of all runs, \
             because the machine interrupts other turns in each run. With these interruptions, the \
             longest turn of one run takes {:.1} us (median of the runs).",
            grouped(self.expiring),
            self.batch,
            self.most_ended,
            self.runs,
            self.longest_of_run_us,
        ));
        let us = |time: f64| format!("{time:.1}");
        report.table(
            Table::new(["turns", "median, us", "99.9 %, us", "longest, us"])
                .row([
                    "while nothing expires",
                    &us(self.quiet_median_us),
                    "",
                    &us(self.quiet_longest_us),
                ])
                .row([
                    &format!("while they expire ({})", grouped(self.batches as u64)),
                    &us(self.median_us),
                    &us(self.p999_us),
                    &us(self.longest_us),
                ]),
        );
    }
}

fn scarcity(levels: &[Scarcity], report: &mut Report) {
    report.text(
        "## When ports are scarce\n\nA new UDP session, which keeps its port's parity, when so \
         much of the pool is used.",
    );
    let mut table = Table::new(["pool used", "ns", "p10 to p90, ns"]);
    for level in levels {
        let Spread { median, p10, p90, .. } = level.spread;
        table.push([
            format!("{} %", level.used_percent),
            format!("{median:.1}"),
            format!("{p10:.1} to {p90:.1}"),
        ]);
    }
    report.table(table);
    let points = levels.iter().map(|level| (level.used_percent as f64, level.create_ns)).collect();
    report.plot(Plot {
        name: "scarcity".into(),
        title: "New sessions as the pool fills".into(),
        x: Axis::linear("pool used, %"),
        y: Axis::linear("ns a new session"),
        series: vec![Series::new("natgate, one core", Style::Line, points)],
    });
}

fn comparison(changes: &[Comparison]) -> Table {
    let mut table = Table::new(["figure", "before", "now", "change"]);
    for change in changes {
        table.push([
            change.figure.into(),
            format!("{:.2}", change.before),
            format!("{:.2}", change.now),
            format!("{:+.1} %", change.percent()),
        ]);
    }
    table
}

/// Formats a number with a comma after every thousand.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = Vec::new();
    if first > 0 {
        groups.push(&digits[..first]);
    }
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 65_536_000].map(grouped), ["0", "999", "1,000", "65,536,000"]);
    }
}
