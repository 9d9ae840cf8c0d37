//! The report: the results of each scheme and the hours of the day, as tables and plots.

use super::simulation::{Hour, Look};
use super::{Outcome, Plan};
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use serde::Serialize;

const INTRODUCTION: &str = "\
Sessions of a few packets each, in virtual time, the same for every scheme; everything but pool and
allocation is as by default. The traffic model, and that its figures are assumptions, is in
lab/bench/src/day/README.md.";

const LEGEND: &str = "\
*Refused*: sessions for which there was no port, by reason below. *Met it*: subscribers of whom at
least one session was refused. *In use*: ports that are used or in hold-down, of all, each port \
counting
twice, for TCP and for UDP; the mean, and at the fullest. *Bound*: those, and those that are set \
aside
for one subscriber, at the fullest. *Idle*: of those set aside, those not in use, on average. \
*Busiest
address*: how much of one protocol's ports is in use where it is most.";

const LOG: &str = "\
## The log

Lines that tell whose a port is: mappings made and removed, blocks assigned and released. Bytes are
those of the lines as `natgate` writes them, JSON, estimated from one in 256. *Alarms*: lines that
tell of quotas reached and pools exhausted, at most one a second for each subscriber and pool.";

const REASONS: &str = "\
## Refused sessions by reason

`port_quota`: the subscriber has all the mappings, blocks or ports that it may have.
`pool_exhausted`: there is none left that it could have.";

/// Writes the whole report.
pub(super) fn write(report: &mut Report, plan: &Plan, outcomes: &[Outcome]) {
    #[derive(Serialize)]
    struct Data<'a> {
        #[serde(flatten)]
        plan: &'a Plan,
        schemes: &'a [Outcome],
    }
    report.text(INTRODUCTION);
    report.text(format!(
        "{} subscribers, seed {}, for {} hour{}; one who is there all day opens {} sessions on \
         average.",
        grouped(plan.subscribers.into()),
        plan.seed,
        plan.hours,
        if plan.hours == 1 { "" } else { "s" },
        grouped(plan.sessions.into())
    ));
    if let Some(first) = outcomes.first() {
        report.text(crowd(first));
        report.plot(load(first));
    }
    report.text("## Ports");
    report.table(ports(outcomes));
    report.text(LEGEND);
    let look = |name: &str, title: &str, figure: fn(&Look) -> f64| {
        let line = |outcome: &Outcome| {
            let points = outcome.day.looks.iter().map(|look| (look.hour, 100.0 * figure(look)));
            let points: Vec<_> = points.collect();
            let some = points.iter().any(|point| point.1 > 0.0);
            some.then(|| Series::new(&outcome.scheme, Style::Line, points))
        };
        by_hour(name, title, Axis::linear("percent"), outcomes.iter().filter_map(line).collect())
    };
    report.plot(look("", "ports in use or set aside, of all", |look| look.bound));
    report.plot(look("blocks", "blocks assigned, of all", |look| look.blocks));
    report.plot(look("idle", "idle ports, of those set aside", |look| look.idle));
    report.plot(look("address", "the busiest address: ports in use, of all", |look| {
        look.busiest_address
    }));
    report.text(REASONS);
    report.table(reasons(outcomes));
    let hour = |name: &str, title: &str, unit: &str, figure: fn(&Hour) -> f64| {
        let line = |outcome: &Outcome| {
            let points = outcome.day.hours.iter().map(|hour| (f64::from(hour.hour), figure(hour)));
            Series::new(&outcome.scheme, Style::Line, points.collect())
        };
        by_hour(name, title, Axis::log(unit), outcomes.iter().map(line).collect())
    };
    let refused = |hour: &Hour| 1e6 * ratio(hour.refused.values().sum(), hour.sessions);
    report.plot(hour("refused", "refused of a million sessions", "sessions", refused));
    report.text(LOG);
    report.table(log(outcomes));
    report.plot(hour("log", "log lines in an hour", "lines", |hour| hour.log_lines as f64));
    report.data(&Data { plan, schemes: outcomes });
}

/// A plot over the hours of one day, from midnight on. Simulations of several days keep their
/// hours.
fn by_hour(name: &str, title: &str, y: Axis, mut series: Vec<Series>) -> Plot {
    let points = || series.iter().flat_map(|series| &series.points).map(|point| point.0);
    let first = points().fold(f64::MAX, f64::min);
    if points().all(|hour| hour - first < 24.0) {
        for points in series.iter_mut().map(|series| &mut series.points) {
            points.iter_mut().for_each(|point| point.0 %= 24.0);
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
    }
    let x = Axis::linear("hour of the day");
    Plot { name: name.into(), title: title.into(), x, y, series }
}

fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * share)
}

impl Outcome {
    fn sum(&self, figure: impl Fn(&Hour) -> u64) -> u64 {
        self.day.hours.iter().map(figure).sum()
    }

    fn sessions(&self) -> u64 {
        self.sum(|hour| hour.sessions)
    }

    fn mean(&self, figure: fn(&Look) -> f64) -> f64 {
        let looks = &self.day.looks;
        looks.iter().map(figure).sum::<f64>() / looks.len().max(1) as f64
    }

    fn most(&self, figure: fn(&Look) -> f64) -> f64 {
        self.day.looks.iter().map(figure).fold(0.0, f64::max)
    }
}

/// Description of the population, which is equal for all schemes.
fn crowd(outcome: &Outcome) -> String {
    let present = outcome.day.looks.iter().map(|look| look.present);
    let hours = outcome.day.hours.iter().map(|hour| hour.sessions);
    format!(
        "{} to {} of them were there at a time, {} different ones in all. They opened {} sessions, \
         {} to {} in an hour.",
        grouped(present.clone().min().unwrap_or(0)),
        grouped(present.max().unwrap_or(0)),
        grouped(outcome.day.subscribers_seen),
        grouped(outcome.sessions()),
        grouped(hours.clone().min().unwrap_or(0)),
        grouped(hours.max().unwrap_or(0)),
    )
}

fn load(outcome: &Outcome) -> Plot {
    let hours = outcome.day.hours.iter();
    let sessions = hours.map(|hour| (f64::from(hour.hour), hour.sessions as f64 / 3600.0));
    let looks = outcome.day.looks.iter();
    let present = looks.map(|look| (look.hour, look.present as f64 / 100.0));
    let series = vec![
        Series::new("sessions opened a second", Style::Line, sessions.collect()),
        Series::new("subscribers there, hundreds", Style::Line, present.collect()),
    ];
    by_hour("load", "the subscribers", Axis::linear("number"), series)
}

fn ports(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new([
        "allocation",
        "addresses",
        "refused",
        "met it",
        "in use",
        "at most",
        "bound",
        "idle",
        "busiest address",
    ]);
    for outcome in outcomes {
        let refused = outcome.sum(|hour| hour.refused.values().sum());
        let in_use = |look: &Look| (look.tcp + look.udp) / 2.0;
        let day = &outcome.day;
        table.push([
            outcome.scheme.clone(),
            grouped(outcome.addresses.into()),
            percent(ratio(refused, outcome.sessions()), 3),
            percent(ratio(day.subscribers_refused, day.subscribers_seen), 2),
            percent(outcome.mean(in_use), 1),
            percent(outcome.most(in_use), 1),
            percent(outcome.most(|look| look.bound), 1),
            percent(outcome.mean(|look| look.idle), 0),
            percent(outcome.most(|look| look.busiest_address), 0),
        ]);
    }
    table
}

fn reasons(outcomes: &[Outcome]) -> Table {
    let all = outcomes.iter().flat_map(|outcome| &outcome.day.hours);
    let mut names: Vec<&str> = all.flat_map(|hour| hour.refused.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();
    let mut table = Table::new(std::iter::once("allocation").chain(names.iter().copied()));
    for outcome in outcomes {
        let of =
            |name: &&str| grouped(outcome.sum(|hour| hour.refused.get(name).copied().unwrap_or(0)));
        table.push(std::iter::once(outcome.scheme.clone()).chain(names.iter().map(of)));
    }
    table
}

fn log(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new([
        "allocation",
        "lines an hour",
        "at most",
        "MB an hour",
        "at most",
        "lines a million sessions",
        "alarms an hour",
    ]);
    for outcome in outcomes {
        let hours = &outcome.day.hours;
        let count = hours.len().max(1) as u64;
        let lines = outcome.sum(|hour| hour.log_lines);
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        let most = |figure: fn(&Hour) -> u64| hours.iter().map(figure).max().unwrap_or(0);
        table.push([
            outcome.scheme.clone(),
            grouped(lines / count),
            grouped(most(|hour| hour.log_lines)),
            megabytes(outcome.sum(|hour| hour.log_bytes) / count),
            megabytes(most(|hour| hour.log_bytes)),
            grouped((1e6 * ratio(lines, outcome.sessions())) as u64),
            grouped(outcome.sum(|hour| hour.alarm_lines) / count),
        ]);
    }
    table
}
