//! Every table and key of the configuration file, and the guess at what a misspelt one should be.
//!
//! The reader refuses to look for a key that is not listed here, and a test compares the list with
//! docs/configuration.md, so that file, reader and documentation name the same keys.

/// The tables (as written between the brackets; empty: the file itself) and their keys.
pub const SECTIONS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "inside", "outside", "route", "neighbor", "pool", "nat", "limits", "class", "timeouts",
            "timeout", "workers", "dpdk", "announce", "learn", "shutdown", "state", "pcp",
            "control", "log", "page", "metrics", "snmp", "static", "rule", "realm",
        ],
    ),
    ("inside", SIDE),
    ("outside", SIDE),
    ("announce", &["table", "protocol"]),
    ("learn", &["table"]),
    ("shutdown", &["drain"]),
    ("route", &["prefix", "via", "side", "realm"]),
    ("neighbor", &["address", "mac", "side", "realm"]),
    (
        "realm",
        &[
            "name",
            "vlan",
            "device",
            "address",
            "gateway",
            "mtu",
            "icmp_errors",
            "subscribers",
            "pool",
            "hairpin_to",
        ],
    ),
    (
        "pool",
        &[
            "name",
            "addresses",
            "exclude",
            "drain",
            "ports",
            "exclude_ports",
            "allocation",
            "block",
            "subscribers",
            "ports_per_subscriber",
            "dynamic_ports",
            "overloading",
            "thresholds",
        ],
    ),
    ("pool.block", BLOCK),
    (
        "nat",
        &[
            "subscribers",
            "mapping",
            "filtering",
            "filtering_tcp",
            "pooling",
            "allocation",
            "port_parity",
            "hairpinning",
            "hairpin_to",
            "inside_routes",
            "inbound_refresh",
            "tcp_pickup",
            "tcp_mss",
            "unsolicited_syn",
            "refusal",
            "block",
        ],
    ),
    ("nat.block", BLOCK),
    (
        "limits",
        &[
            "ports_per_subscriber",
            "sessions_per_mapping",
            "sessions_per_subscriber",
            "new_mappings_per_second",
            "icmp_errors_per_second",
            "subscribers",
            "external_addresses",
            "mappings",
            "extra_sessions",
            "extra_sessions_per_subscriber",
            "twice_sessions",
            "fragment_memory",
            "held_ports",
            "thresholds",
            "neighbors",
        ],
    ),
    ("limits.ports_per_subscriber", PORTS),
    ("class", &["name", "subscribers", "realm", "limits", "total"]),
    (
        "class.limits",
        &[
            "ports_per_subscriber",
            "sessions_per_subscriber",
            "sessions_per_mapping",
            "new_mappings_per_second",
            "thresholds",
        ],
    ),
    ("class.limits.ports_per_subscriber", PORTS),
    ("class.total", &["ports", "sessions", "new_mappings_per_second", "thresholds"]),
    ("class.total.ports", PORTS),
    (
        "timeouts",
        &[
            "udp",
            "tcp_established",
            "tcp_opening",
            "tcp_closing",
            "icmp",
            "other",
            "hold_down",
            "fragment",
        ],
    ),
    ("timeout", &["protocol", "port", "idle"]),
    ("workers", &["count", "cores"]),
    ("dpdk", &["eal"]),
    ("state", &["file", "interval"]),
    ("control", &["socket", "group", "read_socket", "read_group", "listen", "operators", "tls"]),
    ("control.tls", &["certificate", "key", "clients"]),
    (
        "log",
        &[
            "kind",
            "what",
            "remotes",
            "queue",
            "path",
            "collector",
            "transport",
            "tls",
            "facility",
            "host_name",
            "app_name",
            "enterprise",
            "domain",
            "template_interval",
            "template_messages",
            "folder",
            "max_size",
            "max_age",
        ],
    ),
    ("log.tls", &["authorities", "name", "certificate", "key"]),
    ("page", &["listen", "names"]),
    ("metrics", &["listen"]),
    (
        "snmp",
        &[
            "agentx",
            "mappings_threshold",
            "subscribers_threshold",
            "pools_low_threshold",
            "interval",
            "subscribers",
        ],
    ),
    (
        "pcp",
        &[
            "enabled",
            "min_lifetime",
            "max_lifetime",
            "mappings",
            "mappings_per_subscriber",
            "third_party",
            "nat_pmp",
            "announce",
            "port_set",
            "requests_per_second",
            "client_requests_per_second",
        ],
    ),
    ("static", &["internal", "external", "protocol", "direction", "servers", "affinity", "realm"]),
    ("static.servers", &["internal", "weight", "drain"]),
    ("rule", &["kind", "match", "priority", "pool", "address", "to", "timeouts", "realm"]),
    ("rule.match", &["source", "destination", "port"]),
    ("rule.timeouts", &["udp", "tcp_established", "tcp_opening", "tcp_closing", "icmp", "other"]),
];

const PORTS: &[&str] = &["tcp", "udp", "icmp"];

const BLOCK: &[&str] = &["size", "max_per_subscriber", "release_after"];

const SIDE: &[&str] = &[
    "device",
    "backend",
    "address",
    "gateway",
    "mtu",
    "icmp_errors",
    "mode",
    "ring",
    "management",
];

/// The keys of a table.
///
/// # Panics
/// When the table is not listed.
pub(super) fn keys(section: &str) -> &'static [&'static str] {
    let found = SECTIONS.iter().find(|(name, _)| *name == section);
    found.expect("the reader opens listed tables only").1
}

/// What to do about a key that `section` does not have.
pub(super) fn remedy(section: &str, unknown: &str) -> String {
    let known = keys(section);
    if let Some(near) = nearest(known.iter().copied(), unknown) {
        return format!("did you mean `{near}`?");
    }
    let elsewhere = |(name, keys): &&(&str, &[&str])| !name.is_empty() && keys.contains(&unknown);
    if let Some((name, _)) = SECTIONS.iter().find(elsewhere) {
        return format!("it belongs in [{name}]");
    }
    let list: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    format!("it may have {}", list.join(", "))
}

/// The candidate that is most like `text`, if one is like it at all.
pub(super) fn nearest<'a>(
    candidates: impl Iterator<Item = &'a str>,
    text: &str,
) -> Option<&'a str> {
    // Beyond two thirds of the letters in place a guess is more often right than not; long input is
    // no slip of the finger, and the comparison is quadratic.
    const ALIKE: f64 = 0.66;
    const LONGEST: usize = 64;
    if text.len() > LONGEST {
        return None;
    }
    candidates
        .map(|candidate| (strsim::normalized_damerau_levenshtein(candidate, text), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
