//! Reader of VPP's commands in its startup configuration: `nat44`, `set interface nat44`, `det44`,
//! `set nat timeout`, `map`, `dslite`, and the commands with the gateway's addresses
//! (`set interface ip address`, `ip route add`).

use crate::ImportError;
use crate::address::{Ports, Range, address};
use crate::plan::{Kind, MOST_ENTRIES, Origin, Plan, Pool, Rule, Static, Way};
use crate::plan6::Prefix6;
use crate::softwires::is_host;
use crate::vpp_map::{self, Maps};

/// Ports that VPP assigns.
const PORTS: Ports = Ports { first: 1024, last: 65_535 };

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let mut reader = Reader {
        plan,
        addresses: Vec::new(),
        addresses6: Vec::new(),
        pool: Vec::new(),
        from: None,
        maps: Maps::default(),
        any: false,
    };
    for (line, words) in text.lines().enumerate() {
        let words = words.split(['#', ';']).next().unwrap_or_default().trim();
        let origin = Origin::new(line + 1, words);
        let mut words: Vec<&str> = words.split_whitespace().collect();
        // Some versions have the plugin's variant as a separate word; the effect is the same.
        words.retain(|word| !matches!(*word, "ei" | "ed"));
        reader.line(&words, &origin);
    }
    if !reader.any {
        return Err(ImportError::Nothing(
            "VPP's lines begin with nat44, det44, map, dslite, set nat or set interface nat44",
        ));
    }
    reader.finish();
    Ok(())
}

struct Reader<'a> {
    plan: &'a mut Plan,
    /// Addresses of devices.
    addresses: Vec<(String, (u32, u8))>,
    addresses6: Vec<(String, (u128, u8))>,
    pool: Vec<Range>,
    /// First line of the pool.
    from: Option<Origin>,
    maps: Maps,
    /// True if a line was about translation.
    any: bool,
}

impl Reader<'_> {
    fn line(&mut self, words: &[&str], origin: &Origin) {
        self.any |= matches!(
            words,
            ["nat44" | "det44" | "map" | "dslite", ..] | ["set", "nat" | "nat44" | "det44", ..]
        ) || matches!(words, ["set", "interface", "nat44" | "det44", ..]);
        match words {
            [] | ["comment", ..] => {}
            ["map", rest @ ..] => self.maps.line(rest, origin, self.plan),
            [.., "del"] | [_, "del", ..] => self
                .plan
                .without(origin, "takes something away; a configuration says what is there"),
            ["set", "interface", "nat44" | "det44", rest @ ..] => self.sides(rest, origin),
            ["set", "interface", "ip", "address", device, place] => {
                self.place(device, place, origin)
            }
            ["set", "int" | "interface", "state", ..] | ["set", "int", "ip", ..] => {}
            ["ip", "route", "add", prefix, "via", hop, ..] => self.route(prefix, hop, origin),
            ["dslite", "add", "pool", "address", rest @ ..] => self.address(rest, origin),
            ["dslite", rest @ ..] => vpp_map::aftr(rest, origin, self.plan),
            ["nat44", rest @ ..] => self.nat44(rest, origin),
            ["det44", rest @ ..] => self.det44(rest, origin),
            ["set", "nat", "timeout" | "timeouts", rest @ ..]
            | ["set", "nat44" | "det44", "timeout" | "timeouts", rest @ ..] => {
                self.timeouts(rest, origin)
            }
            ["nat", "mss-clamping", size] | ["set", "nat", "mss-clamping", size] => {
                self.mss(size, origin)
            }
            ["nat", "addr-port-assignment-alg", rest @ ..]
            | ["set", "nat", "addr-port-assignment-alg", rest @ ..] => {
                self.algorithm(rest, origin);
            }
            ["set", "nat44", "session", "limit", count, ..] => {
                self.limit("mappings", count, origin)
            }
            ["nat" | "nat64" | "nat66" | "set", ..] if self.is_nat(words) => {
                self.plan.without(origin, why(words));
            }
            _ => self.plan.without(origin, "is not about translation of IPv4 addresses and ports"),
        }
    }

    fn is_nat(&self, words: &[&str]) -> bool {
        words.iter().take(2).any(|word| word.starts_with("nat"))
    }

    /// Reads `in eth1 out eth0`, `inside eth1 outside eth0`, `out eth0 output-feature`.
    fn sides(&mut self, words: &[&str], origin: &Origin) {
        for pair in words.chunks(2) {
            let side = match pair {
                ["in" | "inside", _] => &mut self.plan.inside,
                ["out" | "outside", _] => &mut self.plan.outside,
                ["output-feature", ..] => {
                    let message = "translates on output only; natgate stands between its two sides";
                    self.plan.differs(origin, message);
                    continue;
                }
                _ => {
                    self.plan.without(origin, "names no side that natgate has");
                    continue;
                }
            };
            match &side.device {
                Some(known) if known != pair[1] => {
                    let message = "is a further interface of that side: write a [[realm]] with \
                                   device = ... for it";
                    self.plan.lost(origin, message);
                }
                _ => side.device = Some(pair[1].to_owned()),
            }
        }
    }

    fn place(&mut self, device: &str, place: &str, origin: &Origin) {
        let parsed = place.split_once('/').and_then(|(host, len)| {
            Some((address(host)?, len.parse::<u8>().ok().filter(|len| (1..=32).contains(len))?))
        });
        match parsed {
            Some(parsed) if self.addresses.len() < MOST_ENTRIES => {
                self.addresses.push((device.to_owned(), parsed));
            }
            _ => self.place6(device, place, origin),
        }
    }

    fn place6(&mut self, device: &str, place: &str, origin: &Origin) {
        let host = place.split_once('/').and_then(|(host, len)| {
            let host = Prefix6::parse(host).filter(|host| is_host(host.first))?;
            Some((host.first, len.parse::<u8>().ok().filter(|len| (1..=128).contains(len))?))
        });
        match host {
            Some(host) if self.addresses6.len() < MOST_ENTRIES => {
                self.addresses6.push((device.to_owned(), host));
            }
            _ => self.plan.without(origin, "is no address with the length of its prefix"),
        }
    }

    fn route(&mut self, prefix: &str, hop: &str, origin: &Origin) {
        if let (Some(Prefix6 { len: 0, .. }), Some(hop)) =
            (Prefix6::parse(prefix), Prefix6::parse(hop).filter(|hop| hop.len == 128))
        {
            self.plan.inside.gateway6 = Some(hop.first);
            return;
        }
        match (Range::parse(prefix), address(hop)) {
            (Some(Range::ALL), Some(hop)) => self.plan.outside.gateway = Some(hop),
            _ => self.plan.without(
                origin,
                "is a route other than the default: write [[route]] with prefix, via, side",
            ),
        }
    }

    fn nat44(&mut self, words: &[&str], origin: &Origin) {
        match words {
            ["plugin", "enable", rest @ ..] | ["enable", rest @ ..] => self.enable(rest, origin),
            ["plugin", "disable"] | ["disable"] => {
                self.plan
                    .without(origin, "switches translation off, which natgate does by not running");
            }
            ["add", "address", rest @ ..] => self.address(rest, origin),
            ["add", "interface", "address", device, ..] => {
                self.plan.outside.device.get_or_insert_with(|| (*device).to_owned());
                self.from.get_or_insert_with(|| origin.clone());
                let known = self.addresses.iter().find(|(name, _)| name == device);
                match known {
                    Some((_, (address, _))) => self.pool.push(Range::of(*address)),
                    None => {
                        let own = self.plan.own_addresses(origin);
                        self.pool.extend(own);
                    }
                }
            }
            ["add", "static", "mapping", rest @ ..] => self.fixed(rest, origin),
            ["add", "identity", "mapping", rest @ ..] => self.identity(rest, origin),
            ["add", "load-balancing", "static", "mapping", rest @ ..] => {
                self.balanced(rest, origin)
            }
            ["forwarding", "enable"] => {
                let message = "forwards what nothing translates: write [[rule]] kind = \"bypass\" \
                               for those prefixes";
                self.plan.without(origin, message);
            }
            ["forwarding", "disable"] => {}
            _ => self.plan.without(origin, why(words)),
        }
    }

    /// Reads `sessions 1000000 users 1000 ...`.
    fn enable(&mut self, words: &[&str], origin: &Origin) {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "sessions" => self.limit("mappings", words.next().unwrap_or(&""), origin),
                "users" => self.limit("subscribers", words.next().unwrap_or(&""), origin),
                "user-sessions" => {
                    let count = words.next().and_then(|count| count.parse::<u32>().ok());
                    if let Some(count) = count {
                        let count = count.clamp(1, 65_535);
                        let value = format!("{{ tcp = {count}, udp = {count}, icmp = {count} }}");
                        self.plan.limits.insert("ports_per_subscriber", value);
                        let message = "counts mappings of each protocol by itself now, not all \
                                       sessions of a user";
                        self.plan.differs(origin, message);
                    }
                }
                "endpoint-dependent" => {
                    self.plan.nat.insert("mapping", "\"address-and-port-dependent\"".into());
                    self.plan.nat.insert("filtering", "\"address-and-port-dependent\"".into());
                }
                "inside-vrf" | "outside-vrf" => {
                    words.next();
                    let message = "names a table of routes: customers with networks of their own \
                                   are [[realm]] in natgate";
                    self.plan.without(origin, message);
                }
                other => {
                    self.plan.without(origin, format!("`{other}` has no counterpart in natgate"))
                }
            }
        }
    }

    fn limit(&mut self, key: &'static str, count: &str, origin: &Origin) {
        const MOST: u64 = 1 << 30;
        match count.parse::<u64>() {
            Ok(count) if (1..=MOST).contains(&count) => {
                self.plan.limits.insert(key, count.to_string());
            }
            _ => self.plan.without(origin, format!("{count:?} is no number from 1 to {MOST}")),
        }
    }

    /// Reads `203.0.113.1 - 203.0.113.9 [tenant-vrf N] [twice-nat]`.
    fn address(&mut self, words: &[&str], origin: &Origin) {
        let (range, rest) = match words {
            [first, "-", last, rest @ ..] => (Range::parse(&format!("{first}-{last}")), rest),
            [one, rest @ ..] => (Range::parse(one), rest),
            [] => (None, words),
        };
        let Some(range) = range.filter(|range| range.is_usable()) else {
            return self.plan.lost(origin, "has no address, or one that no host can have");
        };
        match rest {
            [] => {
                self.from.get_or_insert_with(|| origin.clone());
                self.pool.push(range);
            }
            ["twice-nat", ..] => {
                let message =
                    "is for twice NAT, whose addresses natgate takes from its rules of kind dnat";
                self.plan.without(origin, message);
            }
            _ => {
                let message = "is one tenant's: write a [[realm]] with pool = ... and a [[pool]] \
                               of that name";
                self.plan.lost(origin, message);
            }
        }
    }

    /// Reads `tcp local 10.0.0.3 80 external 203.0.113.1 8080 [out2in-only]`.
    fn fixed(&mut self, words: &[&str], origin: &Origin) {
        let (mut protocol, mut local, mut external, mut way) = (None, None, None, Way::Both);
        let mut words = words.iter().copied().peekable();
        while let Some(word) = words.next() {
            match word {
                "tcp" => protocol = Some("tcp"),
                "udp" => protocol = Some("udp"),
                "icmp" => protocol = Some("icmp"),
                "local" | "external" => {
                    let host = words.next().unwrap_or_default().to_owned();
                    let port = words.next_if(|next| next.parse::<u16>().is_ok());
                    let port = port.and_then(|port| Ports::parse(port, '-'));
                    let end = Some((host, port));
                    if word == "local" { local = end } else { external = end }
                }
                "out2in-only" => way = Way::Inbound,
                "self-twice-nat" => {}
                "twice-nat" => {
                    let message = "hosts inside see the real source: natgate does not translate \
                                   remote addresses here";
                    self.plan.differs(origin, message);
                }
                "vrf" => {
                    words.next();
                    self.plan.differs(origin, "is in no table of its own now: see [[realm]]");
                }
                "exact" => drop(words.next()),
                other => {
                    return self
                        .plan
                        .without(origin, format!("`{other}` has no counterpart in natgate"));
                }
            }
        }
        let Some(((host, internal_port), (outer, external_port))) = local.zip(external) else {
            return self.plan.without(origin, "lacks local or external");
        };
        let Some(internal) = Range::parse(&host).and_then(Range::single) else {
            return self.plan.without(origin, format!("{host:?} is no IPv4 address"));
        };
        if internal_port.is_some() != external_port.is_some() {
            return self
                .plan
                .without(origin, "has a port on one end only; natgate maps ports to ports");
        }
        let external = match Range::parse(&outer).and_then(Range::single) {
            Some(address) => Some(address),
            // The address of an interface: that of the outside.
            None => self.own(&outer, origin),
        };
        let usable =
            [Some(internal), external].into_iter().flatten().all(|one| Range::of(one).is_usable());
        if !usable {
            return self.plan.without(origin, "has an address that no host can have");
        }
        self.add(Static {
            internal: (internal, internal_port),
            servers: Vec::new(),
            external: (external, external_port),
            protocol,
            way,
            origin: origin.clone(),
        });
    }

    /// Address of an interface.
    fn own(&mut self, device: &str, origin: &Origin) -> Option<u32> {
        let known = self.addresses.iter().find(|(name, _)| name == device);
        known.map(|(_, (address, _))| *address).or_else(|| {
            self.plan.own_addresses(origin);
            None
        })
    }

    fn add(&mut self, fixed: Static) {
        if self.plan.has_room(&fixed.origin) {
            self.plan.statics.push(fixed);
        }
    }

    /// Reads a mapping of an address to itself.
    fn identity(&mut self, words: &[&str], origin: &Origin) {
        let host =
            words.first().and_then(|word| Range::parse(word)).filter(|host| host.is_usable());
        let Some(host) = host else {
            return self.plan.without(
                origin,
                "is for an interface's address, which natgate leaves to the kernel (management)",
            );
        };
        if words.len() > 1 {
            self.plan.differs(origin, "bypasses translation with every port and protocol now");
        }
        if self.plan.has_room(origin) {
            self.plan.rules.push(Rule {
                kind: Kind::Bypass,
                is_source: true,
                prefix: host,
                port: 0,
                priority: 0,
                place: origin.line,
                origin: origin.clone(),
            });
        }
    }

    /// Reads `protocol tcp external 203.0.113.1:80 local 10.0.0.2:80 probability 50 ...`.
    fn balanced(&mut self, words: &[&str], origin: &Origin) {
        const MOST_SERVERS: usize = 64;
        let (mut protocol, mut external, mut servers) = (None, None, Vec::new());
        let mut words = words.iter();
        let end = |text: Option<&&str>| {
            let (host, port) = text?.split_once(':')?;
            Some((address(host)?, port.parse::<u16>().ok().filter(|port| *port > 0)?))
        };
        while let Some(word) = words.next() {
            match *word {
                "protocol" => {
                    protocol = match words.next() {
                        Some(&"tcp") => Some("tcp"),
                        Some(&"udp") => Some("udp"),
                        _ => None,
                    }
                }
                "external" => external = end(words.next()),
                "local" => match end(words.next()) {
                    Some((host, port)) => servers.push((host, port, 1)),
                    None => {
                        return self
                            .plan
                            .without(origin, "has a server that is no address with a port");
                    }
                },
                "probability" => {
                    let weight = words.next().and_then(|weight| weight.parse::<u16>().ok());
                    if let Some((last, weight)) = servers.last_mut().zip(weight) {
                        last.2 = weight.max(1);
                    }
                }
                other => {
                    let message = format!("`{other}` has no counterpart in natgate");
                    self.plan.differs(origin, message);
                }
            }
        }
        let Some((address, port)) =
            external.filter(|_| (1..=MOST_SERVERS).contains(&servers.len()))
        else {
            let message = format!(
                "lacks an external address with a port, or has not 1 to {MOST_SERVERS} servers"
            );
            return self.plan.without(origin, message);
        };
        let all = servers.iter().map(|(host, ..)| *host).chain([address]);
        if !all.into_iter().all(|one| Range::of(one).is_usable()) {
            return self.plan.without(origin, "has an address that no host can have");
        }
        self.add(Static {
            internal: (0, None),
            servers,
            external: (Some(address), Some(Ports { first: port, last: port })),
            protocol,
            way: Way::Inbound,
            origin: origin.clone(),
        });
    }

    /// Reads `add in 10.0.0.0/18 out 203.0.113.0/28`, and the plugin's other lines.
    fn det44(&mut self, words: &[&str], origin: &Origin) {
        let (inner, outer) = match words {
            ["add", "in", inner, "out", outer] => (Range::parse(inner), Range::parse(outer)),
            ["plugin", "enable", ..] | ["enable", ..] => return,
            _ => return self.plan.without(origin, why(words)),
        };
        let Some((inner, outer)) = inner.zip(outer).filter(|(inner, outer)| {
            inner.is_usable() && outer.is_usable() && !inner.overlaps(*outer)
        }) else {
            return self.plan.lost(origin, "has no two networks of hosts");
        };
        // Each subscriber needs at least one port.
        if inner.count() > outer.count() * u64::from(PORTS.count()) {
            return self.plan.lost(origin, "has more subscribers than ports");
        }
        let name = format!("pool-{}", self.plan.pools.len() + 1);
        let message = "each subscriber's ports are others than VPP's (RFC 7422): `natgate who -c \
                       FILE` computes them";
        self.plan.differs(origin, message);
        self.plan.subscribers.push(inner);
        self.plan.pools.push(Pool {
            name,
            addresses: vec![outer],
            ports: None,
            subscribers: vec![inner],
            origin: origin.clone(),
        });
        if self.plan.pools.len() > 1 && self.plan.has_room(origin) {
            self.plan.rules.push(Rule {
                kind: Kind::Snat(self.plan.pools.len() - 1),
                is_source: true,
                prefix: inner,
                port: 0,
                priority: 0,
                place: origin.line,
                origin: origin.clone(),
            });
        }
    }

    /// Reads `udp 300 tcp-established 7440 tcp-transitory 240 icmp 60`, with or without colons.
    fn timeouts(&mut self, words: &[&str], origin: &Origin) {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let keys: &[&'static str] = match word.trim_end_matches(':') {
                "udp" => &["udp"],
                "icmp" => &["icmp"],
                "tcp-established" | "established" => &["tcp_established"],
                "tcp-transitory" | "transitory" => &["tcp_opening", "tcp_closing"],
                "tcp" => continue,
                "reset" => return,
                other => {
                    return self
                        .plan
                        .without(origin, format!("`{other}` has no counterpart in [timeouts]"));
                }
            };
            let time = words.next().and_then(|time| time.parse::<u32>().ok());
            match time.filter(|time| (1..=30 * 86_400).contains(time)) {
                Some(time) => keys.iter().for_each(|key| {
                    self.plan.timeouts.insert(key, format!("\"{time}s\""));
                }),
                None => {
                    return self
                        .plan
                        .without(origin, "has a timeout that is not from 1 second to 30 days");
                }
            }
        }
    }

    fn mss(&mut self, size: &str, origin: &Origin) {
        match size.parse::<u16>() {
            Ok(size @ 536..=65_495) => {
                self.plan.nat.insert("tcp_mss", size.to_string());
            }
            _ if size == "disable" => {}
            _ => self.plan.without(origin, "is no size from 536 to 65495"),
        }
    }

    fn algorithm(&mut self, words: &[&str], origin: &Origin) {
        match words {
            ["default"] => {}
            ["port-range", first, "-", last] | ["port-range", first, last] => {
                let ports = Ports::parse(&format!("{first}-{last}"), '-');
                match ports {
                    Some(ports) => self.plan.nat_ports = Some(ports),
                    None => self.plan.without(origin, "has no range of ports"),
                }
            }
            _ => {
                let message =
                    "shares ports by MAP-E; see [nat.block] and allocation = \"deterministic\"";
                self.plan.without(origin, message);
            }
        }
    }

    fn finish(self) {
        let Self { plan, addresses, addresses6, pool, from, maps, .. } = self;
        let has4 = addresses.iter().map(|(name, _)| name.as_str()).collect();
        let has6 = addresses6.iter().map(|(name, _)| name.as_str()).collect();
        maps.finish(&has4, &has6, plan);
        if plan.softwires.aftr.is_some() && plan.inside.device.is_none() {
            // Tunnels come by IPv6: if one device has it, customers are there.
            let inside = only(addresses6.iter().map(|(name, _)| name));
            let outer = addresses.iter().map(|(name, _)| name);
            let outer = only(outer.filter(|name| Some(*name) != inside));
            let known = plan.outside.device.take();
            plan.outside.device = known.or_else(|| inside.and(outer).cloned());
            plan.inside.device = inside.cloned();
        }
        for side in [&mut plan.inside, &mut plan.outside] {
            let device = side.device.as_deref();
            let place = addresses.iter().find(|(name, _)| Some(name.as_str()) == device);
            side.address = place.map(|(_, place)| *place);
            let place = addresses6.iter().find(|(name, _)| Some(name.as_str()) == device);
            side.address6 = place.map(|(_, place)| *place);
        }
        if !pool.is_empty() {
            let (ports, from) = (plan.nat_ports, from.unwrap_or_default());
            plan.pool(&pool, ports, &from);
        }
    }
}

/// The device that all these are.
fn only<'n>(mut names: impl Iterator<Item = &'n String>) -> Option<&'n String> {
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}

/// Reason why a line of VPP has no equivalent.
fn why(words: &[&str]) -> String {
    let has = |wanted: &str| words.iter().any(|word| word.contains(wanted));
    let reason = match () {
        () if has("ipfix") => "is set up where natgate's logs are: docs/logs.md",
        () if has("ha") => "is VPP's fail-over between two machines, which natgate does not have",
        () if has("log") => "is the verbosity of VPP's own log",
        () if has("worker") => "binds work to threads: write [workers] count and cores",
        () if has("frame-queue") => "sizes a queue between VPP's threads",
        () if has("virtual-reassembly") => {
            "needs no setting: fragments are followed (limits.fragment_memory)"
        }
        () if has("nat64") || has("nat66") => "is about IPv6: write [nat64] or [[nptv6]]",
        () if has("vrf") => "names a table of routes: see [[realm]]",
        () => "has no counterpart in natgate",
    };
    reason.to_owned()
}
