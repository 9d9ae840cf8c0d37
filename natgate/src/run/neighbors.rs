//! Messages about neighbors whose address other hardware claims.
//!
//! A station can claim addresses at any rate, so each worker writes at most [`MOST_LINES`] a
//! minute. The first line of a later minute says how many were left out.

use natgate_engine::Side;
use natgate_gateway::router::{NeighborEvent, NeighborReport};
use std::time::{Duration, Instant};

/// Most lines in [`WINDOW`].
const MOST_LINES: u32 = 10;

/// The period for which lines are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The lines of one worker.
#[derive(Debug, Default)]
pub(super) struct NeighborLines {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl NeighborLines {
    /// Returns the line about a report, if one is due. `realm`: the realm's name, if the gateway
    /// has several.
    pub(super) fn line(
        &mut self,
        now: Instant,
        report: &NeighborReport,
        realm: Option<&str>,
    ) -> Option<String> {
        if self.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            (self.began, self.lines) = (Some(now), 0);
        }
        if self.lines >= MOST_LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        let left_out = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            more => format!(" ({more} earlier lines about neighbors were left out)"),
        };
        Some(format!("{}{left_out}", text(report, realm)))
    }
}

/// A report as a sentence.
fn text(report: &NeighborReport, realm: Option<&str>) -> String {
    let NeighborReport { event, link, address, mac, other } = report;
    let side = match (link.side, realm) {
        (Side::Outside, _) => "outside".to_owned(),
        (Side::Inside, None) => "inside".to_owned(),
        (Side::Inside, Some(realm)) => format!("inside, realm {realm}"),
    };
    let name = event.name();
    match event {
        NeighborEvent::Conflict => format!(
            "warning: {name}: {address} ({side}) stays at {mac}; {other} claims the address too"
        ),
        NeighborEvent::Changed => {
            format!("{name}: {address} ({side}) is at {other} now; {mac} no longer answers")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_gateway::Link;
    use natgate_wire::arp::Mac;
    use std::net::Ipv4Addr;

    #[test]
    fn lines_are_few_and_later_ones_say_how_many_were_left_out() {
        let report = NeighborReport {
            event: NeighborEvent::Conflict,
            link: Link::OUTSIDE,
            address: Ipv4Addr::new(192, 0, 2, 254),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            other: Mac([2, 0, 0, 0, 0, 2]),
        };
        let mut lines = NeighborLines::default();
        let began = Instant::now();
        let first = lines.line(began, &report, None).expect("a line");
        assert_eq!(
            first,
            "warning: neighbor_conflict: 192.0.2.254 (outside) stays at 02:00:00:00:00:01; \
             02:00:00:00:00:02 claims the address too"
        );
        let said = (0..1000).filter_map(|_| lines.line(began, &report, None)).count();
        assert_eq!(said, MOST_LINES as usize - 1);
        let changed =
            NeighborReport { event: NeighborEvent::Changed, link: Link::inside(1), ..report };
        let later = lines.line(began + WINDOW, &changed, Some("b")).expect("a line");
        assert_eq!(
            later,
            "neighbor_changed: 192.0.2.254 (inside, realm b) is at 02:00:00:00:00:02 now; \
             02:00:00:00:00:01 no longer answers (991 earlier lines about neighbors were left out)"
        );
    }
}
