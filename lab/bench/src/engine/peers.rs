//! Figures of other translators. They were measured once, on machines of this kind and not in the
//! same run: a comparison is a rough one.

use super::Figures;
use crate::report::Table;

pub(super) const TEXT: &str = "\
## Other translators

Measured once on machines of this kind, not in this run: one core, UDP frames of 64 bytes, a
million sessions at random, outbound. Of VPP the NAT's own share of the path is told, which takes
22 ns more; of Linux the whole forwarding path. natgate's new sessions and bytes are those of the
large table.";

/// A translator's nanoseconds a packet, millions of new sessions a second, and bytes a session.
const PEERS: [(&str, &str, &str, &str); 4] = [
    ("VPP nat44-ed", "280", "0.63", "612 to 670"),
    ("VPP nat44-ei", "203", "0.87", "426"),
    ("VPP det44", "125", "0.38", "24,000 a subscriber"),
    ("Linux nftables, snat", "820", "0.47", "264"),
];

/// The table of all; natgate's nanoseconds are of mixed packets with a million sessions.
pub(super) fn table(mixed_ns: f64, large: &Figures) -> Table {
    let own = [
        "natgate, mixed".to_owned(),
        format!("{mixed_ns:.0}"),
        format!("{:.1}", 1e3 / large.create_ns),
        format!("{:.0}", large.bytes_per_session),
    ];
    let header = ["translator", "ns a packet", "new sessions, M/s", "bytes a session"];
    let mut table = Table::new(header).row(own);
    for (name, ns, creates, bytes) in PEERS {
        table.push([name, ns, creates, bytes]);
    }
    table
}
