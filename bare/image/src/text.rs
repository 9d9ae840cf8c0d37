//! Text of counters and mappings. A line has at most 80 characters, or more if it has an address of
//! IPv6.

use crate::log;
use natgate_engine::{
    Counters, Direction, DropReason, MappingInfo, Outcome, TableTotals, Timestamp,
};
use natgate_gateway::ipv6::HostName;
use natgate_io::{LinkInfo, Statistics};
use natgate_wire::protocol;
use std::fmt::{self, Write};

/// Saved figures of a running gateway, for last words. Copying them allocates nothing.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Packets.
    pub counters: Counters,
    /// Mappings and sessions.
    pub totals: TableTotals,
    /// Frames of each side, inside and outside.
    pub frames: [Statistics; 2],
    /// Number of sleeps of the processors, and number of interrupts by cards and by other
    /// processors.
    pub sleeps: [u64; 2],
    /// Sums of all event logs; `None` if there are none.
    pub logs: Option<log::Figures>,
    /// Number of workers.
    pub workers: usize,
    /// Packets handed over between workers, and packets without room in a queue.
    pub handed_over: [u64; 2],
}

/// Writes figures without allocation.
///
/// # Errors
/// The error of the writer.
pub fn figures(out: &mut dyn Write, figures: &Figures) -> fmt::Result {
    let Figures { counters, totals, frames, sleeps: [sleeps, interrupts], logs, .. } = figures;
    for direction in Direction::ALL {
        write!(out, "{:9}", direction.name())?;
        for outcome in Outcome::ALL {
            let packets = counters.packets[direction as usize][outcome as usize];
            write!(out, " {} {packets}", outcome.name())?;
        }
        writeln!(out)?;
    }
    let reasons =
        DropReason::ALL.iter().map(|reason| (reason.name(), counters.drops[*reason as usize]));
    for (name, count) in reasons.filter(|(_, count)| *count > 0) {
        writeln!(out, "dropped   {name} {count}")?;
    }
    let TableTotals { mappings, most_mappings, subscribers, further_sessions, .. } = totals;
    writeln!(
        out,
        "mappings  {mappings} of {most_mappings}, subscribers {subscribers}, \
         further sessions {further_sessions}"
    )?;
    for (name, frames) in ["inside", "outside"].iter().zip(frames) {
        let lost = frames.receive_overrun + frames.receive_oversize;
        let unsent = frames.transmit_full + frames.transmit_refused;
        let (received, sent) = (frames.received, frames.transmitted);
        writeln!(out, "{name:9} received {received} sent {sent} frames, lost {lost} and {unsent}")?;
    }
    writeln!(out, "sleeps    {sleeps}, interrupts {interrupts}")?;
    if figures.workers > 1 {
        let ([handed_over, lost], workers) = (figures.handed_over, figures.workers);
        writeln!(out, "workers   {workers}, handed over {handed_over} packets, lost {lost}")?;
    }
    if let Some(log::Figures { sent, waiting, lost, .. }) = logs {
        writeln!(out, "logs      sent {sent} waiting {waiting} lost {lost} events")?;
    }
    Ok(())
}

/// A mapping in one line.
pub fn mapping(info: &MappingInfo, host: Option<&HostName>, now: Timestamp) -> String {
    let id = &info.id;
    let endpoint = |end: natgate_engine::Endpoint| format!("{}:{}", end.address, end.port);
    let internal = host.map_or_else(|| endpoint(id.internal), |host| internal(host, id.internal));
    let expires = match info.expires {
        Some(expires) => format!("{} s", expires.since(now).as_secs()),
        None => "never ends".to_owned(),
    };
    format!(
        "{:4} {:21} {:21} {:>6} out {:>6} in {expires}",
        protocol::named(id.protocol),
        internal,
        endpoint(id.external),
        info.packets_out,
        info.packets_in,
    )
}

/// Internal endpoint of a host with a number in the engine. Before the endpoint of a host behind a
/// tunnel of DS-Lite stands the end of its tunnel.
fn internal(host: &HostName, of_number: natgate_engine::Endpoint) -> String {
    let HostName { address, prefix, len } = host;
    match (host.inner(), address) {
        (Some(inner), _) => format!("{prefix}/{len} {inner}:{}", of_number.port),
        (None, Some(address)) => format!("[{address}]:{}", of_number.port),
        (None, None) => format!("{prefix}/{len} port {}", of_number.port),
    }
}

/// Sentence about the running gateway, with the number of workers and of the machine's processors,
/// if known.
pub fn running(workers: usize, processors: usize) -> String {
    match (workers, processors) {
        (1, 0..=1) => "natgate is running".to_owned(),
        (1, _) => format!(
            "natgate is running on one of {processors} processors: workers.count says on how many"
        ),
        _ => format!("natgate is running by {workers} workers, each on a processor of its own"),
    }
}

/// A link in one line.
pub fn link(link: &LinkInfo) -> String {
    format!("{} {} {}", link.name, link.mac, if link.up { "up" } else { "down" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{Endpoint, MappingId, MappingKind};
    use std::time::Duration;

    #[test]
    fn figures_say_what_was_counted_and_nothing_else() {
        let mut counters = Counters::default();
        counters.count(Direction::Outbound, Outcome::Forwarded, 100);
        counters.count_drop(Direction::Inbound, DropReason::NoMapping, 40);
        let frames = [Statistics { received: 5, ..Default::default() }, Statistics::default()];
        let totals = TableTotals { mappings: 1, most_mappings: 9, ..Default::default() };
        let mut text = String::new();
        let logs = Some(log::Figures { sent: 7, lost: 1, ..Default::default() });
        let (sleeps, handed_over) = ([20, 3], [0, 0]);
        let mut figures =
            Figures { counters, totals, frames, sleeps, logs, workers: 1, handed_over };
        super::figures(&mut text, &figures).expect("it can be written");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "outbound  forwarded 1 replied 0 dropped 0");
        assert_eq!(
            lines[4..6],
            ["dropped   no_mapping 1", "mappings  1 of 9, subscribers 0, further sessions 0"]
        );
        assert_eq!(lines[6], "inside    received 5 sent 0 frames, lost 0 and 0");
        assert_eq!(lines[8], "sleeps    20, interrupts 3");
        assert_eq!(lines[9..], ["logs      sent 7 waiting 0 lost 1 events"]);
        (figures.workers, figures.handed_over) = (2, [5, 1]);
        let mut text = String::new();
        super::figures(&mut text, &figures).expect("it can be written");
        assert_eq!(text.lines().nth(9), Some("workers   2, handed over 5 packets, lost 1"));
    }

    #[test]
    fn a_mapping_fits_a_line() {
        let now = Timestamp(0).plus(Duration::from_secs(100));
        let mut info = MappingInfo {
            id: MappingId {
                protocol: 17,
                realm: 0,
                internal: Endpoint::new(0x0a00_0005, 4000),
                external: Endpoint::new(0xcb00_7101, 5000),
                kind: MappingKind::Dynamic,
            },
            sessions: 1,
            created: now,
            expires: Some(now.plus(Duration::from_secs(60))),
            packets_out: 3,
            packets_in: 2,
        };
        let line = mapping(&info, None, now);
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected =
            ["udp", "10.0.0.5:4000", "203.0.113.1:5000", "3", "out", "2", "in", "60", "s"];
        assert_eq!(words, expected);
        info.expires = None;
        assert!(mapping(&info, None, now).ends_with("never ends"));
        assert!(mapping(&info, None, now).len() <= 80);
        let prefix = "2001:db8:1::".parse().expect("an address");
        for (address, internal) in [
            (Some("2001:db8:1::5"), "[2001:db8:1::5]:4000"),
            (Some("::ffff:192.168.1.2"), "2001:db8:1::/64 192.168.1.2:4000"),
            (None, "2001:db8:1::/64 port 4000"),
        ] {
            let address = address.map(|text| text.parse().expect("an address"));
            let line = mapping(&info, Some(&HostName { address, prefix, len: 64 }), now);
            assert!(line.contains(&format!(" {internal} ")), "{line}");
        }
    }
}
