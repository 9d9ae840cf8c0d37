//! The meaning of a configuration as text, printed by `natgate check`.
//!
//! Every setting, defaults included, is shown once, in units for people; long lists are cut.
//! Warnings come last, each on a line that begins with `warning:`. Programs should read the JSON:
//! the text may change.

use super::policy;
use super::{Meaning, PerProtocol, Pool, Shares, ports, statics};
use crate::config::{show_duration, show_prefix, show_range};
use natgate_engine::{
    Behavior, Match, Pooling, Prefix, Refusal, Rule, RuleAction, Side, StaticMapping,
};
use natgate_gateway::{
    AnnounceSettings, Backend, LearnSettings, ReceiveMode, Settings, SideSettings,
};
use std::fmt::{self, Display, Formatter};
use std::net::Ipv4Addr;

/// Most rules that are listed.
const MOST_RULES: usize = 20;

impl Display for Meaning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "Sides")?;
        self.side(f, Side::Inside)?;
        self.side(f, Side::Outside)?;
        self.dpdk(f)?;
        self.kernel(f)?;
        self.routes(f)?;
        self.inside_routes(f)?;
        self.neighbors(f)?;
        self.realms(f)?;
        self.ipv6(f)?;
        writeln!(f, "Pools")?;
        if self.pools.is_empty() {
            writeln!(f, "  none: only tables without state translate")?;
        }
        for (index, pool) in self.pools.iter().enumerate() {
            self.pool(f, index, pool)?;
        }
        writeln!(f, "Translation")?;
        self.translation(f)?;
        self.statics(f)?;
        self.rules(f)?;
        writeln!(f, "Limits")?;
        self.limits(f)?;
        writeln!(f, "Idle timeouts")?;
        self.timeouts(f)?;
        writeln!(f, "After a restart")?;
        self.state(f)?;
        writeln!(f, "Event logs")?;
        self.event_logs(f)?;
        writeln!(f, "Requests for mappings")?;
        self.requests(f)?;
        writeln!(f, "Application-level gateways")?;
        self.gateways(f)?;
        writeln!(f, "Access")?;
        self.access(f)?;
        self.of_pair(f)?;
        writeln!(f, "Memory")?;
        let memory = bytesize::ByteSize(self.memory_bytes).display().iec();
        writeln!(
            f,
            "  {memory}: set aside at the start, that of the mappings taken then, the rest with use"
        )?;
        writeln!(
            f,
            "  on huge pages: reserved ones of 2 MiB where enough are free, else transparent ones"
        )?;
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

impl Meaning {
    fn side(&self, f: &mut Formatter<'_>, side: Side) -> fmt::Result {
        let SideSettings { device, backend, address, gateway, mtu, mode, ring } =
            self.settings.side(side);
        let mode = match mode {
            ReceiveMode::Latency => "",
            ReceiveMode::Rate => ", for rate",
        };
        write!(f, "  {}: {device} ({}{mode}), ", side_name(side), backend.name())?;
        match address {
            Some((address, len)) => write!(f, "{address}/{len}")?,
            // On a TUN device the address is the kernel's.
            None if *backend == Backend::Tun => write!(f, "no address")?,
            None => write!(f, "address taken from the device")?,
        }
        if let Some(gateway) = gateway {
            write!(f, ", next hop {gateway}")?;
        }
        write!(f, ", MTU {mtu}")?;
        if let Some(ring) = ring {
            write!(f, ", a ring of {ring} frames")?;
        }
        let config = match side {
            Side::Inside => &self.settings.engine.inside,
            Side::Outside => &self.settings.engine.outside,
        };
        writeln!(f, "{}", if config.silent { ", no ICMP errors" } else { "" })
    }

    /// Writes the arguments of DPDK, if any.
    fn dpdk(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Settings { inside, outside, dpdk, .. } = &self.settings;
        if ![inside, outside].iter().any(|side| side.backend == Backend::Dpdk) {
            return Ok(());
        }
        match dpdk {
            Some(arguments) if arguments.is_empty() => writeln!(f, "  DPDK: no arguments"),
            Some(arguments) => writeln!(f, "  DPDK: {}", arguments.join(" ")),
            None => writeln!(f, "  DPDK: virtual devices, on huge pages where some are free"),
        }
    }

    /// Writes the settings about the kernel, if any.
    fn kernel(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kernel = &self.settings.kernel;
        for side in [Side::Inside, Side::Outside] {
            let addresses = kernel.management(side);
            if !addresses.is_empty() {
                let shown = list(addresses, |address| address.to_string());
                writeln!(f, "  the kernel's own, {}: {shown}", side_name(side))?;
            }
        }
        if let Some(AnnounceSettings { table, protocol, partner_metric }) = &kernel.announce {
            write!(f, "  external addresses are announced as routes of protocol {protocol} ")?;
            write!(f, "in the kernel's table {table}")?;
            match &self.settings.fleet {
                Some(fleet) => {
                    let partner = &fleet.partner.node;
                    writeln!(f, ", those of node {partner} with metric {partner_metric}")?;
                }
                None => writeln!(f)?,
            }
        }
        if let Some(LearnSettings { table }) = &kernel.learn {
            writeln!(f, "  routes are learnt from the kernel's table {table}")?;
        }
        let drain = kernel.drain();
        if !drain.is_zero() {
            let shown = show_duration(drain);
            writeln!(f, "  when it is told to end, it goes on for {shown}")?;
        }
        Ok(())
    }

    fn routes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const MOST: usize = 100;
        let Settings { routes, realms, .. } = &self.settings;
        let own = routes.iter().map(|route| (route, side_name(route.side).to_owned()));
        let further = realms.iter().flat_map(|realm| {
            realm.routes.iter().map(|route| (route, format!("realm {}", realm.name)))
        });
        for (route, whose) in own.chain(further).take(MOST) {
            writeln!(f, "  route: {} via {}, {whose}", show_prefix(route.prefix), route.via)?;
        }
        let all = routes.len() + realms.iter().map(|realm| realm.routes.len()).sum::<usize>();
        match all.saturating_sub(MOST) {
            0 => Ok(()),
            more => writeln!(f, "  and {} more", plural(more as u64, "route", "routes")),
        }
    }

    /// Writes the treatment of destinations behind inside routers.
    fn inside_routes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let engine = &self.settings.engine;
        for realm in engine.realm_numbers() {
            let ranges = engine.inside_routes_of(realm);
            if !ranges.is_empty() {
                let shown = list(ranges, show_range);
                let whose = match realm {
                    0 => "inside".to_owned(),
                    _ => format!("realm {}", self.settings.realm_name(realm)),
                };
                writeln!(f, "  packets from {whose} to {shown} stay there, untranslated")?;
            }
        }
        Ok(())
    }

    fn neighbors(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const MOST: usize = 100;
        let Settings { neighbors, realms, .. } = &self.settings;
        let own = neighbors.iter().map(|one| (one, side_name(one.side).to_owned()));
        let further = realms.iter().flat_map(|realm| {
            realm.neighbors.iter().map(|one| (one, format!("realm {}", realm.name)))
        });
        let all: Vec<_> = own.chain(further).collect();
        for (neighbor, whose) in all.iter().take(MOST) {
            writeln!(f, "  neighbor: {} has {}, {whose}", neighbor.address, neighbor.mac)?;
        }
        match all.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => writeln!(f, "  and {} more", plural(more as u64, "neighbor", "neighbors")),
        }
    }

    fn pool(&self, f: &mut Formatter<'_>, index: usize, pool: &Pool) -> fmt::Result {
        let used = if pool.default { " (used without a rule)" } else { "" };
        let PerProtocol { tcp, udp, icmp } = pool.mappings;
        let counted = plural(pool.addresses, "address", "addresses");
        let (first, last) = pool.ports;
        writeln!(f, "  {}{used}: {counted}, ports {first}-{last}", pool.name)?;
        writeln!(f, "    {}", list(&self.settings.engine.pools[index].addresses, show_range))?;
        let config = &self.settings.engine.pools[index];
        if !pool.excluded_ports.is_empty() {
            let show = |(first, last): (u16, u16)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            writeln!(f, "    without ports {}", list(&pool.excluded_ports, show))?;
        }
        if pool.draining > 0 {
            let shown = list(&config.draining, show_range);
            let counted = plural(pool.draining, "address drains", "addresses drain");
            writeln!(f, "    {counted}, without new mappings: {shown}")?;
        }
        let (tcp, udp, icmp) = (grouped(tcp), grouped(udp), grouped(icmp));
        writeln!(f, "    holds {tcp} TCP, {udp} UDP and {icmp} ICMP mappings")?;
        policy::thresholds("    use", &self.settings.engine.pools[index].thresholds, f)?;
        let served = plural(pool.subscribers_at_full_quota, "subscriber", "subscribers");
        if self.settings.engine.pools[index].overloading {
            writeln!(f, "    ports are overloaded towards different remotes when none is free")?;
        }
        if !matches!(pool.allocation, Shares::Random | Shares::Preserve) {
            return pool.allocation.explain(f);
        }
        writeln!(f, "    serves {served} at their full quota")
    }

    fn translation(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.pools.is_empty() {
            return writeln!(f, "  from IPv4 to IPv4: none");
        }
        let config = &self.settings.engine;
        let (pooling, allocation) = (pooling(config.pooling), self.allocation());
        writeln!(f, "  subscribers: {}", list(&config.subscribers, show_prefix))?;
        writeln!(f, "  mapping {}", behavior(config.mapping))?;
        writeln!(f, "  filtering {}", behavior(config.filtering))?;
        if let Some(filtering) = config.filtering_tcp {
            writeln!(f, "  filtering of TCP {}", behavior(filtering))?;
        }
        writeln!(f, "  pooling {pooling}, ports {allocation}")?;
        for (on, yes, no) in [
            (config.port_parity, "UDP ports keep their parity", "UDP ports of any parity"),
            (config.hairpinning, "hairpinning on", "hairpinning off"),
            (config.inbound_refresh, "inbound packets refresh", "inbound packets do not refresh"),
            (
                config.tcp_pickup,
                "any TCP packet makes a mapping",
                "only an outbound SYN makes a TCP mapping",
            ),
            (
                config.answer_unsolicited_syn,
                "an unsolicited SYN is answered after six seconds",
                "an unsolicited SYN is not answered",
            ),
        ] {
            writeln!(f, "  {}", if on { yes } else { no })?;
        }
        writeln!(f, "  who is refused a mapping gets {}", refusal(config.refusal))?;
        if let Some(size) = config.tcp_mss {
            writeln!(f, "  TCP segments of at most {} bytes", grouped(size.into()))?;
        }
        Ok(())
    }

    /// The allocations of all pools.
    fn allocation(&self) -> String {
        let of = |pool: &Pool| allocation(&pool.allocation);
        let first = self.pools.first().map_or("", of);
        if self.pools.iter().all(|pool| of(pool) == first) {
            return first.to_owned();
        }
        let each = self.pools.iter().map(|pool| format!("of {} {}", pool.name, of(pool)));
        each.collect::<Vec<_>>().join(", ")
    }

    fn statics(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let config = &self.settings.engine;
        let realms = self.settings.ipv6.host_realms(self.settings.realms.len());
        let host = |one: &StaticMapping| {
            self.settings.ipv6.static_host(realms.kind(one.realm)?, one.internal.0)
        };
        let of_realm = |realm| self.of_realm(realm);
        let services = (&config.services[..], &self.settings.health[..]);
        statics::explain(f, &config.statics, services, of_realm, host)
    }

    fn rules(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.rules_of(f, 0, &self.settings.engine.rules)?;
        for (number, realm) in (1..).zip(&self.settings.engine.realms) {
            self.rules_of(f, number, &realm.rules)?;
        }
        Ok(())
    }

    fn rules_of(&self, f: &mut Formatter<'_>, realm: u16, rules: &[Rule]) -> fmt::Result {
        let of = self.of_realm(realm);
        for Rule { matches, priority, action, timeouts, mark } in rules.iter().take(MOST_RULES) {
            let (end, prefix, port) = match *matches {
                Match::Source(prefix, port) => ("source", prefix, port),
                Match::Destination(prefix, port) => ("destination", prefix, port),
            };
            write!(f, "  rule{of}: {end} {}", show_prefix(prefix))?;
            if port != 0 {
                write!(f, " port {port}")?;
            }
            if *priority != 0 {
                write!(f, " (priority {priority})")?;
            }
            match action {
                RuleAction::Snat(pool) => {
                    write!(f, " uses pool {}", self.settings.engine.pools[*pool].name)?;
                }
                RuleAction::SnatTo(pool, address) => {
                    let pool = &self.settings.engine.pools[*pool].name;
                    write!(f, " uses {address} of pool {pool}")?;
                }
                RuleAction::Dnat(address, None) if Prefix::new(*address, 32) == prefix => {
                    write!(f, " is not redirected")?;
                }
                RuleAction::Dnat(address, port) => {
                    write!(f, " is redirected to {}", endpoint((*address, *port)))?;
                }
                RuleAction::DnatPrefix(to) if *to == prefix => {
                    write!(f, " is not redirected")?;
                }
                RuleAction::DnatPrefix(to) => {
                    let to = show_prefix(*to);
                    write!(f, " is {to} outside, address by address, both ways")?;
                }
                RuleAction::Bypass => write!(f, " passes untranslated")?,
                RuleAction::Drop => write!(f, " is dropped")?,
            }
            let timeouts = policy::rule_timeouts(&self.settings.engine, *timeouts);
            writeln!(f, "{timeouts}{}", policy::rule_algs(*mark))?;
        }
        match rules.len().saturating_sub(MOST_RULES) {
            0 => Ok(()),
            more => writeln!(f, "  and {} more{of}", plural(more as u64, "rule", "rules")),
        }
    }

    fn limits(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let limits = &self.settings.engine.limits;
        let (tcp, udp) = (grouped(limits.tcp_ports.into()), grouped(limits.udp_ports.into()));
        let icmp = grouped(limits.icmp_ports.into());
        writeln!(f, "  a subscriber: {tcp} TCP, {udp} UDP and {icmp} ICMP mappings")?;
        let rate = grouped(limits.new_mappings_per_second.into());
        writeln!(f, "  a subscriber: {rate} new mappings a second")?;
        policy::sessions_of("  a subscriber", limits.sessions_per_subscriber, f)?;
        policy::thresholds("  a subscriber", &limits.thresholds, f)?;
        writeln!(
            f,
            "  a mapping: {}",
            plural(limits.sessions_per_mapping.into(), "session", "sessions")
        )?;
        policy::classes(&self.classes, f)?;
        let (mappings, sessions) = (grouped(self.mappings), grouped(self.sessions));
        write!(f, "  in all: {mappings} mappings")?;
        let ports = ports(&self.pools);
        if self.mappings < ports {
            write!(f, " (limits.mappings; the pools have ports for {})", grouped(ports))?;
        }
        writeln!(f, ", {sessions} sessions")?;
        if self.twice_sessions > 0 {
            let sessions = grouped(self.twice_sessions);
            writeln!(f, "  in all: {sessions} sessions whose destination is translated")?;
        }
        let errors = grouped(limits.icmp_errors_per_second.into());
        writeln!(f, "  in all: {errors} ICMP errors a second of the gateway's own")?;
        let fragments = bytesize::ByteSize(limits.fragment_memory as u64).display().iec();
        let each = limits.fragments_per_datagram;
        writeln!(f, "  in all: {fragments} of fragments that wait, {each} fragments a datagram")?;
        match limits.held_ports {
            Some(ports) => writeln!(f, "  in all: {} ports in hold-down", grouped(ports.into())),
            None => Ok(()),
        }
    }

    fn timeouts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let timeouts = &self.settings.engine.timeouts;
        let show = show_duration;
        let (udp, icmp, other) = (show(timeouts.udp), show(timeouts.icmp), show(timeouts.other));
        writeln!(f, "  UDP {udp}, ICMP {icmp}, other protocols {other}")?;
        let (opening, closing) = (show(timeouts.tcp_opening), show(timeouts.tcp_closing));
        let established = show(timeouts.tcp_established);
        writeln!(f, "  TCP opening {opening}, established {established}, closing {closing}")?;
        policy::port_timeouts(&self.settings.engine, f)?;
        let (hold_down, fragment) = (show(timeouts.hold_down), show(timeouts.fragment));
        writeln!(f, "  hold-down of freed ports {hold_down}, fragments {fragment}")
    }

    fn state(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(state) = &self.settings.state else {
            return writeln!(f, "  ports that were in use may be given out at once");
        };
        let hold_down = show_duration(self.settings.engine.timeouts.hold_down);
        let (file, interval) = (state.file.display(), show_duration(state.interval));
        writeln!(f, "  ports that were in use are held for {hold_down}")?;
        writeln!(f, "  ports in use are written to {file} every {interval} and at the end")
    }
}

pub(super) fn side_name(side: Side) -> &'static str {
    match side {
        Side::Inside => "inside",
        Side::Outside => "outside",
    }
}

fn behavior(behavior: Behavior) -> &'static str {
    match behavior {
        Behavior::EndpointIndependent => "endpoint-independent",
        Behavior::AddressDependent => "address-dependent",
        Behavior::AddressAndPortDependent => "address-and-port-dependent",
    }
}

fn pooling(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Paired => "paired",
        Pooling::SoftPaired => "soft-paired",
        Pooling::Arbitrary => "arbitrary",
    }
}

fn allocation(allocation: &Shares) -> &'static str {
    match allocation {
        Shares::Random => "random",
        Shares::Preserve => "preserved where free",
        Shares::Block { .. } => "random within a subscriber's blocks",
        Shares::Address { .. } => "unchanged",
        Shares::Deterministic { .. } => "random within what a subscriber's address tells",
    }
}

fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::HostUnreachable => "ICMP 3/1, host unreachable",
        Refusal::Prohibited => "ICMP 3/13, administratively prohibited",
        Refusal::Silent => "no answer",
    }
}

pub(super) fn endpoint((address, port): (Ipv4Addr, Option<u16>)) -> String {
    match port {
        Some(port) => format!("{address}:{port}"),
        None => address.to_string(),
    }
}

/// Formats a list, cut after some entries.
pub(super) fn list<T: Copy>(items: &[T], show: impl Fn(T) -> String) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = items.iter().take(MOST).map(|item| show(*item)).collect();
    let more = items.len().saturating_sub(MOST);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Formats a number with a comma between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
