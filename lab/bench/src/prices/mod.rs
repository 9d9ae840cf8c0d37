//! S1's price table with new figures: the price of a million packets a second with edge routers,
//! with the paper's server and its translator, and with this translator on a server of a stated
//! price.
//!
//! Every number is stated in the paper, measured here, or a quotient of such numbers. The paper's
//! table has 19 routers; the figures of 17 are known here ([`routers`]).

mod routers;

use crate::report::{Axis, Plot, Report, Series, Style, Table};
use crate::thesis::{RESULT_SHARE, RESULT_SHARE_IF_OF, TARGET_MPPS, result_mpps};
use routers::ROUTERS;
use serde::Serialize;

/// The paper's typical price of its routers, dollars a million packets a second.
const ROUTER_PRICE_PER_MPPS: f64 = 15_000.0;
/// Price of the paper's server, dollars.
pub const SERVER_PRICE: f64 = 1815.0;
/// The year of that price.
pub const SERVER_YEAR: u32 = 2015;

/// Basis of natgate's row.
#[derive(Clone, Debug, Serialize)]
pub struct Basis {
    /// Nanoseconds of one packet; half of the batches go each way.
    pub mixed_ns: f64,
    /// Established sessions.
    pub sessions: u64,
    /// Source of the two figures.
    pub source: String,
    /// Cores of the server that translate.
    pub cores: u32,
    /// Price of the server, dollars.
    pub price: f64,
    /// Year of the price.
    pub year: u32,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the router or translator.
    pub name: String,
    /// Packet rate, millions a second.
    pub mpps: f64,
    /// Price, dollars.
    pub price: f64,
    /// Dollars for a million packets a second.
    pub price_per_mpps: f64,
    /// Packet rate for one dollar, millions a second.
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

/// Rows of the paper's translator on its server, and of natgate on the given server.
pub fn rows(basis: &Basis) -> [Row; 2] {
    let paper = Row::new(
        &format!("Plotnikov's design, its server ({SERVER_YEAR})"),
        result_mpps(),
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

/// Report of the command `command`.
pub fn report(basis: &Basis, command: &str) -> Report {
    #[derive(Serialize)]
    struct Data<'a> {
        basis: &'a Basis,
        rows: &'a [Row],
        routers: &'a [Row],
        routers_median_price_per_mpps: f64,
        routers_price_per_mpps: f64,
    }
    let rows = rows(basis);
    let routers: Vec<Row> = ROUTERS.iter().map(|router| router.row()).collect();
    let median = median_price_per_mpps(&routers);
    let mut report = Report::new("prices", "Packets for a dollar", command);
    report.data(&Data {
        basis,
        rows: &rows,
        routers: &routers,
        routers_median_price_per_mpps: median,
        routers_price_per_mpps: ROUTER_PRICE_PER_MPPS,
    });
    report.text(format!(
        "The paper (Plotnikov 2015) compares its translator with 19 edge routers. The figures of \
         {} of them are known here. Prices are those of the Russian market of that year. Rates \
         are with a firewall switched on, because the vendors give none for NAT. The paper calls \
         about $15,000 a million packets a second typical; the median of the {} is ${median:.0}.",
        routers.len(),
        routers.len(),
    ));
    report.table(table(&routers, &rows));
    report.plot(plot(&routers, &rows));
    report.text(arithmetic(basis, &rows));
    report
}

/// The median of the routers' prices, dollars a million packets a second.
fn median_price_per_mpps(routers: &[Row]) -> f64 {
    let mut prices: Vec<f64> = routers.iter().map(|router| router.price_per_mpps).collect();
    prices.sort_by(f64::total_cmp);
    prices[prices.len() / 2]
}

fn table(routers: &[Row], rows: &[Row]) -> Table {
    let header = ["", "Mpps", "price, $", "$ per Mpps", "packets/s per $"];
    let mut table = Table::new(header);
    for row in routers.iter().chain(rows) {
        table.push([
            row.name.clone(),
            format!("{:.2}", row.mpps),
            format!("{:.0}", row.price),
            format!("{:.2}", row.price_per_mpps),
            format!("{:.0}", row.mpps_per_dollar * 1e6),
        ]);
    }
    table
}

fn plot(routers: &[Row], rows: &[Row]) -> Plot {
    let rates = || routers.iter().map(|router| router.mpps);
    let ends = [rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max)];
    let typical = ends.map(|mpps| (mpps, mpps * ROUTER_PRICE_PER_MPPS));
    let single = routers.iter().map(|router| (router.mpps, router.price)).collect();
    let points = |row: &Row| Series::new(&row.name, Style::Points, vec![(row.mpps, row.price)]);
    Plot {
        name: String::new(),
        title: "Price and packets".into(),
        x: Axis::log("millions of packets a second"),
        y: Axis::log("dollars"),
        series: [
            Series::new("edge routers", Style::Points, single),
            Series::new("$15,000 per Mpps", Style::Dashed, typical.into()),
        ]
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
         - The paper's translator: {RESULT_SHARE} x {TARGET_MPPS} Mpps (260 % more than the \
         target; if 260 % of the target was meant, {:.1} Mpps) = {:.1} Mpps; $1,815 / {:.1} = \
         ${:.2} per Mpps, {:.0} times less than the routers. The speed was measured on a laptop's \
         processor (i5-4210U), the price is the server's.\n\
         - natgate: 1000 / {mixed_ns:.1} ns x {cores} = {:.1} Mpps with {sessions} established \
         sessions ({source}); ${price:.0} / {:.1} = ${:.2} per Mpps, {:.0} times less than the \
         routers.\n\n\
         The speed is the translator's on one core of the machine below, without network cards and \
         drivers, times the cores; the price is that of the server that is stated. They are not \
         of one machine, as they are not in the paper. Prices are of different years and not \
         corrected for inflation, and a router does more than translate.",
        1e6 / ROUTER_PRICE_PER_MPPS,
        RESULT_SHARE_IF_OF * TARGET_MPPS,
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
        assert!((paper.mpps - 19.8).abs() < 1e-9 && (paper.price_per_mpps - 91.667).abs() < 1e-3);
        assert_eq!((ours.mpps, ours.price_per_mpps), (160.0, 20.0));
        let page = report(&basis, "x").markdown();
        for wanted in [
            "| HP MSR2021 | 0.18 | 760 | 4222.22 | 237 |",
            "| 160.00 | 3200 | 20.00 | 50000 |",
            "750 times less",
        ] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
    }
}
