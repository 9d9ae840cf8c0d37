//! Every table and key of the configuration file, and suggestions for misspelt ones.
//!
//! The reader can only read keys that are listed here, and a test compares the list with
//! docs/configuration.md. So file, reader and documentation have the same keys.

/// The tables, as written between the brackets (empty: the root), and their keys.
pub const SECTIONS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "inside", "outside", "route", "neighbor", "pool", "nat", "limits", "class", "timeouts",
            "timeout", "workers", "dpdk", "announce", "learn", "shutdown", "state", "pcp",
            "control", "log", "page", "metrics", "snmp", "static", "rule", "realm", "ipv6",
            "nat64", "siit", "clat", "nptv6", "dslite", "lw4o6", "map", "alg", "fleet", "slice",
        ],
    ),
    ("inside", SIDE),
    ("outside", SIDE),
    ("announce", &["table", "protocol", "partner_metric"]),
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
            "fragments_per_datagram",
            "held_ports",
            "unanswered_give_way",
            "unanswered_kept",
            "asking_share",
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
    ("fleet", &["node", "listen", "certificate", "key", "authorities", "partner", "hang"]),
    ("fleet.partner", &["node", "address"]),
    ("slice", &["addresses", "owner"]),
    ("control", &["socket", "group", "read_socket", "read_group", "listen", "operators", "tls"]),
    ("control.tls", &["certificate", "key", "clients", "revoked"]),
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
    ("metrics", &["listen", "names"]),
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
    ("alg", &["ftp", "tftp", "sip", "rtsp", "irc", "dns", "pptp", "h323", "flows"]),
    ("alg.ftp", ALG),
    ("alg.tftp", ALG),
    ("alg.sip", ALG),
    ("alg.rtsp", ALG),
    ("alg.irc", ALG),
    ("alg.dns", ALG),
    ("alg.pptp", ALG),
    ("alg.h323", ALG),
    (
        "static",
        &[
            "internal",
            "softwire",
            "external",
            "protocol",
            "direction",
            "servers",
            "affinity",
            "health",
            "realm",
        ],
    ),
    ("static.servers", &["internal", "weight", "drain", "backup"]),
    (
        "static.health",
        &[
            "kind",
            "interval",
            "timeout",
            "failures",
            "successes",
            "port",
            "target",
            "host",
            "sessions",
        ],
    ),
    ("rule", &["kind", "match", "priority", "pool", "address", "to", "timeouts", "alg", "realm"]),
    ("rule.match", &["source", "destination", "port"]),
    ("rule.timeouts", &["udp", "tcp_established", "tcp_opening", "tcp_closing", "icmp", "other"]),
    (
        "ipv6",
        &[
            "forwarding",
            "filter",
            "lowest_mtu",
            "udp_checksum_zero",
            "traffic_class",
            "tos",
            "advertise",
        ],
    ),
    (
        "ipv6.advertise",
        &[
            "interval",
            "lifetime",
            "preferred_lifetime",
            "valid_lifetime",
            "autonomous",
            "managed",
            "other",
            "pref64",
            "dns",
        ],
    ),
    ("nat64", &["prefixes", "subscribers", "subscriber_length", "non_global"]),
    ("siit", &["prefixes", "icmp_source", "hairpin", "non_global", "map"]),
    ("siit.map", &["ipv6", "ipv4"]),
    ("clat", &["prefix", "source"]),
    ("nptv6", &["internal", "external", "icmp_errors"]),
    (
        "dslite",
        &["address", "b4", "subscriber_length", "b4_change_interval", "mtu", "mtu_discovery"],
    ),
    (
        "lw4o6",
        &[
            "address",
            "bindings",
            "hairpinning",
            "icmp_errors",
            "inbound_icmp",
            "mtu",
            "mtu_discovery",
        ],
    ),
    (
        "map",
        &[
            "mode",
            "ipv6",
            "ipv4",
            "ea_length",
            "psid_offset",
            "psid_length",
            "psid",
            "br",
            "dmr",
            "mtu",
            "mtu_discovery",
        ],
    ),
];

/// The use of a file, folder, socket or address that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// A file that natgate reads.
    Read,
    /// A file that natgate writes.
    Written,
    /// A folder whose files natgate writes and deletes.
    Folder,
    /// A Unix socket that natgate makes.
    Socket,
    /// An address and port where natgate listens.
    Listener,
    /// A socket, or an address and port, of another program, to which natgate connects.
    Remote,
}

impl PlaceKind {
    /// True if two such uses of one place conflict.
    pub fn excludes(self, other: Self) -> bool {
        let is_shared = |kind| matches!(kind, Self::Read | Self::Remote);
        !(is_shared(self) && is_shared(other))
    }
}

/// A key that names a place.
#[derive(Debug)]
pub struct PlaceKey {
    /// Name of the table in [`SECTIONS`].
    pub section: &'static str,
    /// Name of the key.
    pub key: &'static str,
    /// Use of the place.
    pub kind: PlaceKind,
    /// A valid value.
    pub example: &'static str,
    /// Default that natgate makes if the key is absent.
    pub default: Option<&'static str>,
    /// Suffixes of files that natgate makes beside a path. `.#` stands for a dot, a digit, and any
    /// further characters.
    pub beside: &'static [&'static str],
}

/// A key without a default and without files beside its path.
const fn place(
    section: &'static str,
    key: &'static str,
    kind: PlaceKind,
    example: &'static str,
) -> PlaceKey {
    PlaceKey { section, key, kind, example, default: None, beside: &[] }
}

/// Every key that names a file, folder, socket, listener or remote end. No other key is read as
/// one.
pub const PLACES: &[PlaceKey] = &[
    PlaceKey {
        beside: &[".old", ".lock", ".lock.next", ".starts", ".starts.new", ".#"],
        ..place("state", "file", PlaceKind::Written, "/var/lib/natgate/ports")
    },
    PlaceKey {
        default: Some(natgate_http::DEFAULT_PATH),
        beside: &[".take-over"],
        ..place("control", "socket", PlaceKind::Socket, "/run/natgate/control.sock")
    },
    place("lw4o6", "bindings", PlaceKind::Read, "bindings.csv"),
    place("fleet", "listen", PlaceKind::Listener, "192.0.2.10:7600"),
    place("fleet", "certificate", PlaceKind::Read, "/etc/natgate/a.pem"),
    place("fleet", "key", PlaceKind::Read, "/etc/natgate/a.key"),
    place("fleet", "authorities", PlaceKind::Read, "/etc/natgate/ca.pem"),
    place("fleet.partner", "address", PlaceKind::Remote, "192.0.2.11:7600"),
    place("control", "read_socket", PlaceKind::Socket, "/run/natgate/read.sock"),
    place("control", "listen", PlaceKind::Listener, "192.0.2.1:9466"),
    place("control.tls", "certificate", PlaceKind::Read, "/etc/natgate/server.pem"),
    place("control.tls", "key", PlaceKind::Read, "/etc/natgate/server.key"),
    place("control.tls", "clients", PlaceKind::Read, "/etc/natgate/clients.pem"),
    place("control.tls", "revoked", PlaceKind::Read, "/etc/natgate/revoked.pem"),
    place("log", "path", PlaceKind::Written, "/var/log/natgate/events.jsonl"),
    place("log", "folder", PlaceKind::Folder, "/var/lib/natgate/log"),
    place("log", "collector", PlaceKind::Remote, "192.0.2.10:514"),
    place("log.tls", "authorities", PlaceKind::Read, "/etc/natgate/ca.pem"),
    place("log.tls", "certificate", PlaceKind::Read, "/etc/natgate/natgate.pem"),
    place("log.tls", "key", PlaceKind::Read, "/etc/natgate/natgate.key"),
    PlaceKey {
        default: Some("127.0.0.1:9465"),
        ..place("page", "listen", PlaceKind::Listener, "127.0.0.1:9465")
    },
    PlaceKey {
        default: Some("127.0.0.1:9464"),
        ..place("metrics", "listen", PlaceKind::Listener, "127.0.0.1:9464")
    },
    PlaceKey {
        default: Some("/var/agentx/master"),
        ..place("snmp", "agentx", PlaceKind::Remote, "/var/agentx/master")
    },
];

/// The use of a key's place.
///
/// # Panics
/// If [`PLACES`] does not list the key.
pub(super) fn place_key(section: &str, key: &str) -> &'static PlaceKey {
    let found = PLACES.iter().find(|place| (place.section, place.key) == (section, key));
    found.unwrap_or_else(|| panic!("{section}.{key} names a place that is not listed"))
}

const PORTS: &[&str] = &["tcp", "udp", "icmp"];

const ALG: &[&str] = &["ports"];

const BLOCK: &[&str] = &["size", "max_per_subscriber", "release_after"];

const SIDE: &[&str] = &[
    "device",
    "backend",
    "address",
    "gateway",
    "address6",
    "gateway6",
    "mtu",
    "icmp_errors",
    "mode",
    "ring",
    "management",
];

/// The keys of a table.
///
/// # Panics
/// If the table is not listed.
pub(super) fn keys(section: &str) -> &'static [&'static str] {
    let found = SECTIONS.iter().find(|(name, _)| *name == section);
    found.expect("the reader opens listed tables only").1
}

/// Tables and keys of features that natgate does not have yet, and the feature of each.
const PLANNED: &[(&str, &str, &str)] = &[
    ("fleet", "etcd", "a fleet of more than two machines"),
    ("realm", "address6", "IPv6 of realms"),
    ("realm", "gateway6", "IPv6 of realms"),
];

/// The reason why `section` refuses an unknown key or table, with a remedy.
pub(super) fn refusal(section: &str, unknown: &str) -> String {
    let kind = if section.is_empty() { "table" } else { "key" };
    let planned = PLANNED.iter().find(|(table, key, _)| (*table, *key) == (section, unknown));
    match planned {
        Some((_, _, feature)) => {
            format!("is for {feature}, which is not built in yet; take the {kind} out")
        }
        None => format!("there is no such {kind}; {}", remedy(section, unknown)),
    }
}

/// The remedy for an unknown key of `section`.
fn remedy(section: &str, unknown: &str) -> String {
    let known = keys(section);
    if let Some(near) = nearest(known.iter().copied(), unknown) {
        return format!("did you mean `{near}`?");
    }
    let elsewhere = |(name, keys): &&(&str, &[&str])| !name.is_empty() && keys.contains(&unknown);
    // If several tables have the key, the outermost is the likeliest.
    let depth = |(name, _): &&(&str, &[&str])| name.matches('.').count();
    if let Some((name, _)) = SECTIONS.iter().filter(elsewhere).min_by_key(depth) {
        return format!("it belongs in [{name}]");
    }
    let list: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    format!("it may have {}", list.join(", "))
}

/// The candidate that is most similar to `text`, if any is similar.
pub(super) fn nearest<'a>(
    candidates: impl Iterator<Item = &'a str>,
    text: &str,
) -> Option<&'a str> {
    // With two thirds of the letters in place a guess is usually right. Long input is no typing
    // error, and the comparison is quadratic.
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
