//! The configuration of Snabb's lwAFTR, a relay of Lightweight 4over6 (RFC 7596).
//!
//! The file is `softwire-config`, in the text form of its YANG modules, of which there are three
//! versions. In the first, the port sets and the ends of tunnels are lists beside the softwires
//! (`psid-map`, `br-address`); later each softwire has its own. Both are read in any mixture. The
//! softwires become a file of bindings, and the rest becomes `[lw4o6]`, `[inside]` (Snabb's
//! internal interface) and `[outside]`.
//!
//! A softwire names its end of the list by `br`, which counts from 1 and is 1 if it is absent. An
//! early revision of the first version counts from 0: a file with a `br 0` is read so.

use crate::ImportError;
use crate::address::{Range, address};
use crate::jool::boolean;
use crate::plan::{Origin, Plan};
use crate::plan6::Prefix6;
use crate::softwires::{Binding, Division, is_host};
use crate::yang_text::{Statement, statements};
use std::collections::BTreeMap;

/// Lengths of the networks of Snabb's own addresses, for which the file has none.
const LENGTHS: (u8, u8) = (24, 64);

/// True if a line is one of Snabb's.
pub(crate) fn has_line(line: &str) -> bool {
    let rest = ["softwire-config", "binding-table"].iter().find_map(|key| line.strip_prefix(key));
    rest.is_some_and(|rest| rest.trim_start().starts_with('{'))
}

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let all = statements(text)?;
    let mut reader = Snabb { plan, errors: BTreeMap::new() };
    for statement in &all {
        match statement.key {
            "softwire-config" => statement.inner.iter().for_each(|one| reader.section(one)),
            _ => reader.section(statement),
        }
    }
    reader.finish();
    if plan.softwires.bindings.is_empty() && plan.remarks.is_empty() {
        return Err(ImportError::Nothing(
            "Snabb's lwAFTR has softwire-config with a binding-table and softwires",
        ));
    }
    Ok(())
}

fn origin(statement: &Statement<'_>) -> Origin {
    let text = match statement.inner.is_empty() {
        true => format!("{} {}", statement.key, statement.text()),
        false => format!("{} {{ ... }}", statement.key),
    };
    Origin::new(statement.line, &text)
}

/// A port set's division for the addresses of a list entry.
struct Shared {
    addresses: Range,
    division: Division,
}

/// The lists beside the softwires.
#[derive(Default)]
struct Lists {
    shared: BTreeMap<u32, Shared>,
    ends: Vec<Option<u128>>,
    /// The place of the first end: 0 or 1.
    first: usize,
}

impl Lists {
    /// The end at a place; without a place, the first.
    fn end(&self, place: Option<&str>) -> Option<u128> {
        let place = place.map_or(Some(self.first), |place| place.parse().ok())?;
        self.ends.get(place.checked_sub(self.first)?).copied().flatten()
    }
}

struct Snabb<'p> {
    plan: &'p mut Plan,
    /// Whether each interface sends ICMP errors.
    errors: BTreeMap<&'static str, (bool, Origin)>,
}

impl Snabb<'_> {
    fn section(&mut self, section: &Statement<'_>) {
        match section.key {
            "name" => self.plan.unneeded(&origin(section), "names Snabb's program"),
            "instance" | "instances" => self.instance(section),
            "external-interface" => {
                section.inner.iter().for_each(|one| self.external(one));
                self.networks(section);
            }
            "internal-interface" => {
                section.inner.iter().for_each(|one| self.internal(one));
                self.networks(section);
            }
            "binding-table" => self.table(section),
            "softwire-state" => self.plan.unneeded(&origin(section), "has counters, no settings"),
            _ => self.unknown(section),
        }
    }

    fn unknown(&mut self, statement: &Statement<'_>) {
        let message = format!("`{}` has no counterpart in natgate", statement.key);
        self.plan.without(&origin(statement), message);
    }

    /// Reads devices and addresses. Several instances and queues have the same interfaces.
    fn instance(&mut self, instance: &Statement<'_>) {
        let mut devices: [Option<&Statement<'_>>; 2] = [None, None];
        let mut is_first = true;
        for one in &instance.inner {
            match one.key {
                "device" => devices[0] = Some(one),
                "external-device" => devices[1] = Some(one),
                "queue" if is_first => {
                    is_first = false;
                    let outside = one.get("external-interface");
                    let device = outside.and_then(|outside| outside.get("device"));
                    devices[1] = devices[1].or(device);
                    self.queue(one);
                }
                "queue" => {
                    let message = "is a further queue: write [workers] count and cores";
                    self.plan.without(&origin(one), message);
                }
                "softwire-state" => self.plan.unneeded(&origin(one), "has counters, no settings"),
                _ => self.unknown(one),
            }
        }
        let is_known = self.plan.inside.device.is_some() && self.plan.outside.device.is_some();
        match devices {
            [Some(one), _] if is_known => {
                let message = "is not the first device of that side: write [workers], or a second \
                               gateway";
                self.plan.differs(&origin(one), message);
            }
            [Some(inside), Some(outside)] => {
                self.plan.inside.device = Some(inside.text().to_owned());
                self.plan.outside.device = Some(outside.text().to_owned());
            }
            [Some(one), None] => {
                let message = "is the device of both sides, and natgate has two: write their names";
                self.plan.differs(&origin(one), message);
            }
            [None, _] => {}
        }
    }

    fn queue(&mut self, queue: &Statement<'_>) {
        for one in &queue.inner {
            match one.key {
                "id" => {}
                "external-interface" | "internal-interface" => {
                    one.inner.iter().for_each(|leaf| self.own(leaf, one.key));
                    self.networks(one);
                }
                _ => self.unknown(one),
            }
        }
    }

    /// Reads what one interface has: everything but its addresses.
    fn own(&mut self, leaf: &Statement<'_>, side: &str) {
        match leaf.key {
            "ip" | "device" => {}
            "mac" => {
                let message = "is the device's own: the kernel's device has an address already";
                self.plan.unneeded(&origin(leaf), message);
            }
            "vlan-tag" => {
                let side = if side == "external-interface" { "outside" } else { "inside" };
                let message = format!("is a VLAN: name the VLAN's device as {side}.device");
                self.plan.differs(&origin(leaf), message);
            }
            "next-hop" => {
                for hop in &leaf.inner {
                    match hop.key {
                        "ip" | "resolved-mac" => {}
                        "mac" if leaf.get("ip").is_some() => {
                            let message = "is found by ARP or Neighbor Discovery";
                            self.plan.unneeded(&origin(hop), message);
                        }
                        "mac" => {
                            let message = "says no address of the next hop: write gateway or \
                                           gateway6 with it";
                            self.plan.without(&origin(hop), message);
                        }
                        _ => self.unknown(hop),
                    }
                }
            }
            _ => self.unknown(leaf),
        }
    }

    /// Reads the addresses of an interface and of its next hop.
    fn networks(&mut self, interface: &Statement<'_>) {
        let Some(ip) = interface.get("ip") else { return };
        let hop = interface.get("next-hop").and_then(|hop| hop.get("ip"));
        let from = origin(ip);
        let length = if interface.key == "external-interface" {
            let Some(own) = address(ip.text()) else {
                return self.plan.without(&from, "is no IPv4 address");
            };
            let hop = hop.and_then(|hop| address(hop.text()));
            let common = hop.map_or(32, |hop| (own ^ hop).leading_zeros() as u8);
            let length = common.min(LENGTHS.0).max(8);
            self.plan.outside.address = Some((own, length));
            self.plan.outside.gateway = hop;
            length
        } else {
            let host = |text: &str| Prefix6::parse(text).filter(|host| host.len == 128);
            let Some(own) = host(ip.text()).filter(|own| is_host(own.first)) else {
                return self.plan.without(&from, "is no IPv6 address of a host");
            };
            let hop = hop.and_then(|hop| host(hop.text()));
            let common = hop.map_or(128, |hop| (own.first ^ hop.first).leading_zeros() as u8);
            let length = common.min(LENGTHS.1).max(16);
            self.plan.inside.address6 = Some((own.first, length));
            self.plan.inside.gateway6 = hop.map(|hop| hop.first);
            length
        };
        let message = format!("has no length of its network: /{length} is written; edit it");
        self.plan.differs(&from, message);
    }

    fn external(&mut self, leaf: &Statement<'_>) {
        match (leaf.key, boolean(leaf.text())) {
            ("allow-incoming-icmp", Some(true)) => {}
            ("allow-incoming-icmp", Some(false)) => self.key("inbound_icmp", "false"),
            ("mtu", _) => match leaf.text().parse::<u16>() {
                Ok(mtu @ 1280..) => {
                    self.plan.outside.keys.insert("mtu", mtu.to_string());
                }
                _ => self.plan.without(&origin(leaf), "is no MTU that natgate has (from 1280)"),
            },
            ("ip" | "mac" | "next-hop" | "vlan-tag", _) => self.own(leaf, "external-interface"),
            _ => self.shared(leaf, "outside"),
        }
    }

    fn internal(&mut self, leaf: &Statement<'_>) {
        match (leaf.key, boolean(leaf.text())) {
            ("hairpinning", Some(true)) | ("allow-incoming-icmp", Some(true)) => {}
            ("hairpinning", Some(false)) => self.key("hairpinning", "false"),
            ("allow-incoming-icmp", Some(false)) => {
                let message = "drops ICMPv6 of the inside; natgate answers pings, and believes \
                               errors about its tunnels (see mtu_discovery)";
                self.plan.without(&origin(leaf), message);
            }
            ("mtu", _) => match leaf.text().parse::<u16>() {
                Ok(mtu @ 1280..) => {
                    self.plan.inside.keys.insert("mtu", mtu.to_string());
                }
                _ => self.plan.without(&origin(leaf), "is no MTU of IPv6 (from 1280)"),
            },
            ("flow-label", _) if leaf.text() == "0" => {}
            ("flow-label", _) => {
                let message = "is the flow label of all tunnels; natgate's packets have 0";
                self.plan.without(&origin(leaf), message);
            }
            ("ip" | "mac" | "next-hop" | "vlan-tag", _) => self.own(leaf, "internal-interface"),
            _ => self.shared(leaf, "inside"),
        }
    }

    /// Reads what both interfaces have.
    fn shared(&mut self, leaf: &Statement<'_>, side: &'static str) {
        match (leaf.key, boolean(leaf.text())) {
            ("generate-icmp-errors", Some(is_on)) => {
                self.errors.insert(side, (is_on, origin(leaf)));
            }
            ("mru", _) => {
                let message = "is the largest packet that is received: the device's MTU decides";
                self.plan.unneeded(&origin(leaf), message);
            }
            ("error-rate-limiting", _) => {
                let rate = |key| leaf.get(key).and_then(|one| one.text().parse::<u64>().ok());
                let period = rate("period").unwrap_or(2).max(1);
                let each = (rate("packets").unwrap_or(200) / period).clamp(1, 1_000_000_000);
                self.plan.limits.insert("icmp_errors_per_second", each.to_string());
                let message = format!("is {each} errors a second, of both sides together now");
                self.plan.differs(&origin(leaf), message);
            }
            ("reassembly", _) => leaf.inner.iter().for_each(|one| self.reassembly(one)),
            ("ingress-filter" | "egress-filter", _) => {
                let message = "drops packets that the filter does not name, and natgate has no \
                               such filter: other packets pass now";
                self.plan.lost(&origin(leaf), message);
            }
            _ => self.unknown(leaf),
        }
    }

    fn reassembly(&mut self, leaf: &Statement<'_>) {
        match (leaf.key, leaf.text().parse::<u64>()) {
            ("max-fragments-per-packet", Ok(count)) => {
                let count = count.clamp(1, 128).to_string();
                self.plan.limits.insert("fragments_per_datagram", count);
            }
            ("max-packets", _) => {
                let message = "bounds reassembly by packets; natgate bounds it by bytes \
                               (limits.fragment_memory)";
                self.plan.without(&origin(leaf), message);
            }
            _ => self.unknown(leaf),
        }
    }

    fn key(&mut self, key: &'static str, value: &str) {
        self.plan.softwires.keys.insert(key, value.to_owned());
    }

    fn table(&mut self, table: &Statement<'_>) {
        let mut lists = Lists::default();
        for one in &table.inner {
            match one.key {
                "psid-map" => self.psid_map(one, &mut lists),
                "br-address" | "br-addresses" => {
                    let end = host6(one.text());
                    // The place in the list counts: softwires name it.
                    lists.ends.push(end);
                    if end.is_none() {
                        self.plan.lost(&origin(one), "is no IPv6 address");
                    }
                }
                "softwire" => {}
                "version" => self.plan.unneeded(&origin(one), "counts changes of Snabb's table"),
                _ => self.unknown(one),
            }
        }
        let softwires = || table.inner.iter().filter(|one| one.key == "softwire");
        let zero = |softwire| Statement::get(softwire, "br").filter(|br| br.text() == "0");
        let zero = softwires().find_map(zero);
        lists.first = usize::from(zero.is_none());
        if let Some(br) = zero {
            let message = "is of an early revision of Snabb, in which br counts from 0: br 0 is \
                           the first br-address here, and later revisions count from 1";
            self.plan.differs(&origin(br), message);
        }
        softwires().for_each(|one| self.softwire(one, &lists));
    }

    fn psid_map(&mut self, entry: &Statement<'_>, lists: &mut Lists) {
        let place = |key| entry.get(key).map(|one| address(one.text()));
        let first = place("addr").flatten();
        let last = place("end-addr").unwrap_or(first);
        let division = division(entry);
        match (first.zip(last), division) {
            (Some((first, last)), Some(division)) if first <= last => {
                let shared = Shared { addresses: Range { first, last }, division };
                lists.shared.insert(first, shared);
            }
            (Some(_), None) => {
                let message =
                    "has no psid-length and shift that are 16 bits with the reserved ones";
                self.plan.lost(&origin(entry), message);
            }
            _ => self.plan.lost(&origin(entry), "has no addresses: addr, and perhaps end-addr"),
        }
    }

    fn softwire(&mut self, softwire: &Statement<'_>, lists: &Lists) {
        let text = |key| softwire.get(key).map(Statement::text);
        let shown = format!(
            "softwire {} psid {} b4-ipv6 {}",
            text("ipv4").unwrap_or("?"),
            text("psid").unwrap_or("?"),
            text("b4-ipv6").unwrap_or("?")
        );
        let from = Origin::new(softwire.line, &shown);
        for one in &softwire.inner {
            match one.key {
                "ipv4" | "psid" | "b4-ipv6" | "br-address" | "br" | "port-set" | "psid-map" => {}
                "padding" if one.text() == "0" => {}
                _ => self.unknown(one),
            }
        }
        match bound(softwire, lists, &from) {
            Ok(binding) => self.plan.binding(binding),
            Err(message) => self.plan.lost(&from, message),
        }
    }

    fn finish(&mut self) {
        let errors = std::mem::take(&mut self.errors);
        let off = |side| errors.get(side).is_some_and(|(is_on, _)| !is_on);
        if off("inside") && off("outside") {
            self.key("icmp_errors", "false");
        }
        for (side, table) in
            [("inside", &mut self.plan.inside), ("outside", &mut self.plan.outside)]
        {
            if off(side) {
                table.keys.insert("icmp_errors", "false".to_owned());
            }
        }
    }
}

fn host6(text: &str) -> Option<u128> {
    Prefix6::parse(text).filter(|host| host.len == 128).map(|host| host.first)
}

/// The division of ports that a psid-map or a port-set has.
fn division(entry: &Statement<'_>) -> Option<Division> {
    let number = |key| entry.get(key).map(|one| one.text().parse::<u64>());
    let len = number("psid-length")?.ok().filter(|len| *len <= 16)?;
    let reserved = number("reserved-ports-bit-count").transpose().ok()?;
    let shift = number("shift").transpose().ok()?;
    let reserved = match (reserved, shift) {
        (Some(reserved), Some(shift)) if reserved + shift + len != 16 => return None,
        (Some(reserved), _) => reserved,
        (None, Some(shift)) => 16_u64.checked_sub(len)?.checked_sub(shift)?,
        (None, None) => 0,
    };
    Division::new(reserved, len)
}

/// The binding of a softwire.
fn bound(softwire: &Statement<'_>, lists: &Lists, from: &Origin) -> Result<Binding, &'static str> {
    let text = |key| softwire.get(key).map_or("", Statement::text);
    let ipv4 = address(text("ipv4")).ok_or("has no IPv4 address")?;
    let b4 = host6(text("b4-ipv6")).ok_or("has no IPv6 address b4-ipv6")?;
    let psid = text("psid").parse::<u16>().map_err(|_| "has no psid from 0 to 65535")?;
    let br = match (softwire.get("br-address"), softwire.get("br").map(Statement::text)) {
        (Some(end), _) => host6(end.text()).ok_or("has a br-address that is no IPv6 address")?,
        (None, place @ Some(_)) => {
            let message = match lists.first {
                0 => "has a br that is no place in the list br-address, from 0",
                _ => "has a br that is no place in the list br-address, from 1",
            };
            lists.end(place).ok_or(message)?
        }
        (None, None) => {
            lists.end(None).ok_or("has no br-address, and none is first in the list")?
        }
    };
    let own = softwire.get("port-set").or_else(|| softwire.get("psid-map"));
    let division = match own {
        Some(own) => division(own).ok_or("has a port-set whose bits do not fit into a port")?,
        None => {
            let shared = lists.shared.range(..=ipv4).next_back().map(|(_, shared)| shared);
            let shared = shared.filter(|shared| shared.addresses.last >= ipv4);
            shared.ok_or("has no port-set, and no psid-map has its address")?.division
        }
    };
    Ok(Binding { ipv4, division, psid, b4, br, origin: from.clone() })
}
