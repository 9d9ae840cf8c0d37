//! S1's price table redone: what a million packets a second cost with edge routers, with the
//! paper's server and its translator, and with this translator on a server of a stated price.
//!
//! Every number is one that the paper gives, one that was measured here, or a quotient of two of
//! them. The paper's table has 19 routers; of their figures only the ends of the ranges are known
//! here, so nothing is said of single routers.

use crate::report::{Axis, Plot, Report, Series, Style, Table};
use serde::Serialize;

/// What the paper says of its 19 routers: packets, millions a second.
const ROUTER_MPPS: [f64; 2] = [0.18, 10.0];
/// Dollars.
const ROUTER_PRICE: [f64; 2] = [760.0, 128_300.0];
/// About so many dollars a million packets a second.
const ROUTER_PRICE_PER_MPPS: f64 = 15_000.0;
/// The paper's server, dollars, and the thesis' year.
pub const SERVER_PRICE: f64 = 1815.0;
/// The year of that price.
pub const SERVER_YEAR: u32 = 2015;
/// The target, and how much of it the paper's final design reaches.
const TARGET_MPPS: f64 = 5.5;
const RESULT_SHARE: f64 = 2.6;

/// What natgate's row is computed from.
#[derive(Clone, Debug, Serialize)]
pub struct Basis {
    /// Nanoseconds a packet, half of the batches each way.
    pub mixed_ns: f64,
    /// Established sessions.
    pub sessions: u64,
    /// Where the two come from.
    pub source: String,
    /// Cores that the server is taken to give to translation.
    pub cores: u32,
    /// What the server costs, dollars.
    pub price: f64,
    /// In which year.
    pub year: u32,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// Millions of packets a second.
    pub mpps: f64,
    /// Dollars.
    pub price: f64,
    /// Dollars a million packets a second.
    pub price_per_mpps: f64,
    /// Packets a second and dollar, millions.
    pub mpps_per_dollar: f64,
}

impl Row {
    fn new(name: &str, mpps: f64, price: f64) -> Self {
        Self {
            name: name.into(),
            mpps,
            price,
            price_per_mpps: price / mpps,
            mpps_per_dollar: mpps / price,
        }
    }
}

/// The rows: the paper's translator on its server, natgate on the server given.
pub fn rows(basis: &Basis) -> [Row; 2] {
    let paper = Row::new(
        &format!("Plotnikov's design, its server ({SERVER_YEAR})"),
        TARGET_MPPS * RESULT_SHARE,
        SERVER_PRICE,
    );
    let cores = if basis.cores == 1 { "one core" } else { &format!("{} cores", basis.cores) };
    let ours = Row::new(
        &format!("natgate, {cores} of a server at ${:.0} ({})", basis.price, basis.year),
        1e3 / basis.mixed_ns * f64::from(basis.cores),
        basis.price,
    );
    [paper, ours]
}

/// The report, made by `command`.
pub fn report(basis: &Basis, command: &str) -> Report {
    #[derive(Serialize)]
    struct Data<'a> {
        basis: &'a Basis,
        rows: &'a [Row],
        routers_mpps: [f64; 2],
        routers_price: [f64; 2],
        routers_price_per_mpps: f64,
    }
    let rows = rows(basis);
    let mut report = Report::new("prices", "Packets for a dollar", command);
    report.data(&Data {
        basis,
        rows: &rows,
        routers_mpps: ROUTER_MPPS,
        routers_price: ROUTER_PRICE,
        routers_price_per_mpps: ROUTER_PRICE_PER_MPPS,
    });
    report.text(
        "What the paper (Plotnikov 2015) gives of its 19 edge routers are ranges and a typical \
         quotient; single routers are not told apart here, for their figures are not at hand.",
    );
    report.table(table(&rows));
    report.plot(plot(&rows));
    report.text(arithmetic(basis, &rows));
    report
}

fn table(rows: &[Row]) -> Table {
    let header = ["", "Mpps", "price, $", "$ per Mpps", "packets/s per $"];
    let [slow, fast] = ROUTER_MPPS;
    let [cheap, dear] = ROUTER_PRICE;
    let mut table = Table::new(header).row([
        "19 edge routers".to_owned(),
        format!("{slow} to {fast}"),
        format!("{cheap:.0} to {dear:.0}"),
        format!("about {ROUTER_PRICE_PER_MPPS:.0}"),
        format!("about {:.0}", 1e6 / ROUTER_PRICE_PER_MPPS),
    ]);
    for row in rows {
        table.push([
            row.name.clone(),
            format!("{:.1}", row.mpps),
            format!("{:.0}", row.price),
            format!("{:.2}", row.price_per_mpps),
            format!("{:.0}", row.mpps_per_dollar * 1e6),
        ]);
    }
    table
}

fn plot(rows: &[Row]) -> Plot {
    let typical = ROUTER_MPPS.map(|mpps| (mpps, mpps * ROUTER_PRICE_PER_MPPS));
    let routers = "routers: about $15,000 per Mpps";
    let points = |row: &Row| Series::new(&row.name, Style::Points, vec![(row.mpps, row.price)]);
    Plot {
        name: String::new(),
        title: "Price and packets".into(),
        x: Axis::log("millions of packets a second"),
        y: Axis::log("dollars"),
        series: [Series::new(routers, Style::Dashed, typical.into())]
            .into_iter()
            .chain(rows.iter().map(points))
            .collect(),
    }
}

fn arithmetic(basis: &Basis, [paper, ours]: &[Row; 2]) -> String {
    let Basis { mixed_ns, sessions, source, cores, price, .. } = basis;
    format!(
        "## The arithmetic\n\n\
         - Routers: $1 / $15,000 per Mpps is {:.0} packets a second for a dollar.\n\
         - The paper's translator: {RESULT_SHARE} x {TARGET_MPPS} Mpps (\"260 % of the target\") = \
         {:.1} Mpps; $1,815 / {:.1} = ${:.2} per Mpps, {:.0} times less than the routers. The \
         speed was measured on a laptop's processor (i5-4210U), the price is the server's.\n\
         - natgate: 1000 / {mixed_ns:.1} ns x {cores} = {:.1} Mpps with {sessions} established \
         sessions ({source}); ${price:.0} / {:.1} = ${:.2} per Mpps, {:.0} times less than the \
         routers.\n\n\
         The speed is the translator's on one core of the machine below, without network cards and \
         drivers, times the cores; the price is that of the server that is stated. They are not \
         of one machine, as they are not in the paper. Prices are of different years and not \
         corrected for inflation, and a router does more than translate.",
        1e6 / ROUTER_PRICE_PER_MPPS,
        paper.mpps,
        paper.mpps,
        paper.price_per_mpps,
        ROUTER_PRICE_PER_MPPS / paper.price_per_mpps,
        ours.mpps,
        ours.mpps,
        ours.price_per_mpps,
        ROUTER_PRICE_PER_MPPS / ours.price_per_mpps,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quotients_are_right() {
        let basis = Basis {
            mixed_ns: 25.0,
            sessions: 1000,
            source: "a test".into(),
            cores: 4,
            price: 3200.0,
            year: 2026,
        };
        let [paper, ours] = rows(&basis);
        assert!((paper.mpps - 14.3).abs() < 1e-9 && (paper.price_per_mpps - 126.923).abs() < 1e-3);
        assert_eq!((ours.mpps, ours.price_per_mpps), (160.0, 20.0));
        let page = report(&basis, "x").markdown();
        for wanted in ["about 15000", "| 160.0 | 3200 | 20.00 | 50000 |", "750 times less"] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
    }
}
