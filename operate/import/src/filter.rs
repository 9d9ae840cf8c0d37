//! Conversion of the filter of forwarded packets to rules of kind drop, as far as such rules can
//! express it.
//!
//! A rule of kind drop looks at one endpoint, for all protocols and in both directions, and has no
//! exceptions. Addresses that are accepted before are therefore taken out of the dropped prefixes.
//! If that is impossible, hosts would pass that did not pass before: such a line counts as lost.

use crate::address::{Ports, Range};
use crate::netfilter::{
    Action, Condition, Device, Entry, Hook, add_rule, elsewhere, says_protocol, single_ports,
};
use crate::plan::{Kind, Origin, Plan, Side, Static, Way};

/// Most rules that accept packets before others drop: each dropping rule is compared with all of
/// them.
const MOST_ACCEPTED: usize = 1000;

/// Reason why a rule behind more of them is lost.
const TOO_MANY: &str = "follows more than 1000 rules that accept something; put prefixes together";

/// Converts the rules of one chain. `policy` is the line that makes dropping the default.
pub(crate) fn forwarded(entries: &[Entry], policy: Option<&Origin>, plan: &mut Plan) {
    find_inside(entries, plan);
    refused_statics(entries, policy, plan);
    let mut accepted: Vec<Entry> = Vec::new();
    for entry in entries {
        let direction = Direction::of(&entry.condition, plan);
        match entry.action {
            Action::Drop if entry.condition.is_open() && direction == Direction::Outbound => {
                return rest(&accepted, &entry.origin, plan);
            }
            Action::Drop => dropped(entry, direction, &accepted, plan),
            Action::Accept => {
                if direction == Direction::Outbound && !is_answer(&entry.condition) {
                    accepted.push(for_new(entry));
                }
                is_filter(entry, plan);
            }
            _ => is_filter(entry, plan),
        }
    }
    if let Some(origin) = policy {
        rest(&accepted, origin, plan);
    }
}

/// Takes the inside device from a rule about packets to the outside device, if nothing else names
/// the inside device.
fn find_inside(entries: &[Entry], plan: &mut Plan) {
    let Some(outside) = plan.outside.device.clone().filter(|_| plan.inside.device.is_none()) else {
        return;
    };
    let found = entries.iter().find_map(|entry| {
        let (input, output) = (entry.condition.input.as_ref()?, entry.condition.output.as_ref()?);
        let is_outbound = !input.negated && !output.negated && output.name == outside;
        (is_outbound && input.name != outside).then(|| input.name.clone())
    });
    plan.inside.device = found;
}

/// Remarks static mappings whose packets the filter dropped: natgate forwards them.
fn refused_statics(entries: &[Entry], policy: Option<&Origin>, plan: &mut Plan) {
    let statics = plan.statics.iter().filter(|fixed| fixed.way != Way::Outbound);
    let refused: Vec<(Origin, usize)> = statics
        .filter_map(|fixed| Some((fixed.origin.clone(), refusal(fixed, entries, policy, plan)?)))
        .collect();
    for (origin, line) in refused {
        let message = format!(
            "comes from the outside to hosts to which line {line} lets nothing or only a part \
             pass; natgate has no such filter: take the [[static]] out, or accept the difference"
        );
        plan.lost(&origin, message);
    }
}

/// The line that drops packets to a static mapping, if there is one.
fn refusal(
    fixed: &Static,
    entries: &[Entry],
    policy: Option<&Origin>,
    plan: &Plan,
) -> Option<usize> {
    let server = |(address, port, _): &(u32, u16, u16)| {
        (*address, Some(Ports { first: *port, last: *port }))
    };
    let all: Vec<(u32, Option<Ports>)> = match &fixed.servers[..] {
        [] => vec![fixed.internal],
        servers => servers.iter().map(server).collect(),
    };
    all.into_iter().find_map(|(address, ports)| {
        // First packets to the endpoint, from any source.
        let first = Condition {
            destination: Some(vec![Range::of(address)]),
            ports: ports.map(|ports| vec![ports]),
            protocols: fixed.protocol.map(|protocol| vec![protocol.to_owned()]),
            ..Condition::default()
        };
        for entry in entries.iter().filter(|entry| entry.condition.may_come_in(plan)) {
            let condition = &entry.condition;
            match entry.action {
                Action::Accept if condition.has_all(address, ports, fixed.protocol) => return None,
                Action::Drop if condition.drops_some(address, &first) => {
                    return Some(entry.origin.line);
                }
                _ => {}
            }
        }
        policy.map(|origin| origin.line)
    })
}

impl Condition {
    /// True if packets from outside may match.
    fn may_come_in(&self, plan: &Plan) -> bool {
        let excludes = |device: &Option<Device>, near: &Side, far: &Side| {
            let is = |side: &Side, name: &str| side.device.as_deref() == Some(name);
            device.as_ref().is_some_and(|device| match device.negated {
                false => is(far, &device.name),
                true => is(near, &device.name),
            })
        };
        !excludes(&self.input, &plan.outside, &plan.inside)
            && !excludes(&self.output, &plan.inside, &plan.outside)
    }

    /// True if the condition matches every first packet to an endpoint.
    fn has_all(&self, address: u32, ports: Option<Ports>, protocol: Option<&str>) -> bool {
        let is_of_new = |odd: &String| {
            let odd = odd.to_ascii_lowercase();
            odd.contains("dnat") || odd.contains("state") && odd.contains("new")
        };
        let covers = |all: &Vec<Ports>| {
            let within = |ports: Ports| {
                all.iter().any(|one| one.first <= ports.first && ports.last <= one.last)
            };
            ports.is_some_and(within)
        };
        let has_protocol =
            |all: &Vec<String>| protocol.is_some_and(|own| all.iter().any(|one| one == own));
        let own = Range::of(address);
        self.source.is_none()
            && self.not_destination.iter().all(|range| !range.overlaps(own))
            && self.odd.iter().all(is_of_new)
            && self.destination.as_ref().is_none_or(|all| all.iter().any(|one| one.contains(own)))
            && self.ports.as_ref().is_none_or(covers)
            && self.protocols.as_ref().is_none_or(has_protocol)
    }

    /// True if a rule with the condition drops some first packets to an address, whatever their
    /// source: a rule of kind drop expresses a source.
    fn drops_some(&self, address: u32, first: &Self) -> bool {
        let is_of_others = |odd: &String| {
            let odd = odd.to_ascii_lowercase();
            odd.contains("state") && !odd.contains("new")
        };
        self.source.is_none()
            && !self.odd.iter().any(is_of_others)
            && self.not_destination.iter().all(|range| !range.contains(Range::of(address)))
            && meets(self, first)
    }
}

/// Remarks that natgate is no firewall; the translation of hosts stays the same.
fn is_filter(entry: &Entry, plan: &mut Plan) {
    plan.decides = false;
    elsewhere(entry, Hook::Forward, plan);
    plan.decides = true;
}

impl Condition {
    /// True if the condition matches all packets of one direction through the devices.
    fn is_open(&self) -> bool {
        let ends = self.source.is_none() && self.destination.is_none() && self.ports.is_none();
        ends && self.protocols.is_none() && self.odd.is_empty() && self.not_destination.is_empty()
    }
}

/// True if a rule is about packets of existing connections, or to a static mapping.
fn is_answer(condition: &Condition) -> bool {
    let is_state = |odd: &String| {
        let odd = odd.to_ascii_lowercase();
        let of_state = odd.contains("state") || odd.contains("status");
        of_state
            && !odd.contains("new")
            && ["established", "related", "dnat"].iter().any(|word| odd.contains(word))
    };
    condition.odd.iter().any(is_state)
}

/// The rule for connections that subscribers begin: a rule for new connections matches all of them.
fn for_new(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    entry.condition.odd.retain(|odd| {
        let odd = odd.to_ascii_lowercase();
        !(odd.contains("state") && odd.contains("new"))
    });
    entry
}

/// Packets that a rule is about, by their devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// Packets that subscribers send; other packets may be among them.
    Outbound,
    /// Packets that come in from outside.
    Inbound,
    /// Packets of devices outside natgate.
    Elsewhere,
}

impl Direction {
    fn of(condition: &Condition, plan: &Plan) -> Self {
        let input = condition.input.as_ref();
        let output = condition.output.as_ref();
        let by_input = input.map(|device| Self::by(device, &plan.inside, &plan.outside));
        let by_output = output.map(|device| Self::by(device, &plan.outside, &plan.inside));
        match (by_input, by_output) {
            (Some(Self::Elsewhere), _) | (_, Some(Self::Elsewhere)) => Self::Elsewhere,
            (Some(Self::Inbound), _) | (_, Some(Self::Inbound)) => Self::Inbound,
            _ => Self::Outbound,
        }
    }

    /// Direction by the device at one end; `near` is the side where outbound packets have it.
    fn by(device: &Device, near: &Side, far: &Side) -> Self {
        let is = |side: &Side| side.device.as_deref() == Some(&device.name[..]);
        match (device.negated, is(near), is(far)) {
            (false, true, _) | (true, _, true) => Self::Outbound,
            (false, _, true) | (true, true, _) => Self::Inbound,
            // The file does not name the device.
            (false, ..) if near.device.is_none() => Self::Outbound,
            (false, ..) => Self::Elsewhere,
            (true, ..) => Self::Outbound,
        }
    }
}

/// Converts a rule that drops packets.
fn dropped(entry: &Entry, direction: Direction, accepted: &[Entry], plan: &mut Plan) {
    let Entry { origin, condition, .. } = entry;
    if direction == Direction::Elsewhere {
        return plan.unneeded(origin, "is about a device that natgate does not have");
    }
    if !can_be_said(entry, direction, plan) {
        return;
    }
    if accepted.len() > MOST_ACCEPTED {
        return plan.lost(origin, TOO_MANY);
    }
    let is_inbound = direction == Direction::Inbound;
    // For outbound packets the remote endpoint is the destination.
    let (is_source, ranges) = match (&condition.source, &condition.destination) {
        (Some(remote), _) if is_inbound => (false, remote.clone()),
        (Some(source), _) => (true, source.clone()),
        (None, Some(destination)) => (false, destination.clone()),
        (None, None) => (false, vec![Range::ALL]),
    };
    let Some(ranges) = without_accepted(entry, is_source, ranges, accepted, plan) else { return };
    if is_inbound {
        plan.differs(origin, "is for both directions now");
    }
    if origin.text.to_ascii_lowercase().contains("reject") {
        plan.differs(origin, "is dropped without an answer now");
    }
    says_protocol(condition, entry, plan);
    for port in single_ports(entry, plan) {
        for range in ranges.iter().flat_map(|range| range.prefixes()) {
            add_rule(plan, Kind::Drop, is_source, range, port, origin);
        }
    }
}

/// True if a rule of kind drop can express the condition; otherwise a remark says why not.
fn can_be_said(entry: &Entry, direction: Direction, plan: &mut Plan) -> bool {
    let Entry { origin, condition, .. } = entry;
    let is_inbound = direction == Direction::Inbound;
    let odd = condition.odd.join(", ");
    if odd.to_ascii_lowercase().contains("state") && odd.to_ascii_lowercase().contains("invalid") {
        plan.unneeded(origin, "drops what belongs to no connection, which natgate does by itself");
    } else if is_inbound && (condition.source.is_none() || condition.destination.is_some()) {
        let message = "is about packets that come in: natgate refuses those that belong to no \
                       mapping (nat.filtering)";
        plan.unneeded(origin, message);
    } else if !odd.is_empty() {
        let message = format!("drops by {odd}; a rule of kind drop matches one endpoint");
        plan.lost(origin, message);
    } else if !condition.not_destination.is_empty() {
        plan.lost(origin, "drops all but some destinations; a rule of kind drop has no exceptions");
    } else if condition.source.is_some()
        && (condition.destination.is_some() || condition.ports.is_some())
    {
        let message = "drops by source and destination; a rule of kind drop looks at one endpoint";
        plan.lost(origin, message);
    } else {
        return true;
    }
    false
}

/// Addresses left to drop after earlier rules accepted some; empty if that cannot be expressed.
fn without_accepted(
    entry: &Entry,
    is_source: bool,
    mut ranges: Vec<Range>,
    accepted: &[Entry],
    plan: &mut Plan,
) -> Option<Vec<Range>> {
    for earlier in accepted.iter().filter(|earlier| meets(&earlier.condition, &entry.condition)) {
        let line = earlier.origin.line;
        let exempt = match (is_source, &earlier.condition) {
            (_, condition) if condition.is_open() => {
                plan.unneeded(&entry.origin, format!("never applies: line {line} accepts all"));
                return None;
            }
            (true, condition) if condition.is_source_only() => condition.source.as_ref(),
            (false, condition) if condition.is_destination_only(&entry.condition) => {
                condition.destination.as_ref()
            }
            _ => None,
        };
        let Some(exempt) = exempt else {
            let message = format!(
                "drops what line {line} accepts in part; a rule of kind drop has no exceptions"
            );
            plan.lost(&entry.origin, message);
            return None;
        };
        ranges = left(&ranges, exempt);
    }
    if ranges.is_empty() {
        plan.unneeded(&entry.origin, "never applies: earlier rules accept all that it drops");
        return None;
    }
    Some(ranges)
}

/// Parts of `ranges` outside `exempt`.
fn left(ranges: &[Range], exempt: &[Range]) -> Vec<Range> {
    let mut left = ranges.to_vec();
    for other in exempt {
        left = left.into_iter().flat_map(|range| range.without(*other)).collect();
    }
    left
}

impl Condition {
    /// True if the source's address alone decides.
    fn is_source_only(&self) -> bool {
        let plain = Self { source: None, ..self.clone() };
        self.source.is_some() && plain.is_open()
    }

    /// True if the destination's address alone decides, for the ports of `other`.
    fn is_destination_only(&self, other: &Self) -> bool {
        let ports = self.ports.is_none() || self.ports == other.ports;
        let plain = Self { destination: None, ports: None, ..self.clone() };
        self.destination.is_some() && ports && plain.is_open()
    }
}

/// True if a packet may match both conditions.
fn meets(one: &Condition, other: &Condition) -> bool {
    let ranges = |one: &Option<Vec<Range>>, other: &Option<Vec<Range>>| match (one, other) {
        (Some(one), Some(other)) => {
            one.iter().any(|one| other.iter().any(|other| one.overlaps(*other)))
        }
        _ => true,
    };
    let ports = |one: &Option<Vec<Ports>>, other: &Option<Vec<Ports>>| match (one, other) {
        (Some(one), Some(other)) => {
            one.iter().any(|one| other.iter().any(|other| one.overlaps(*other)))
        }
        _ => true,
    };
    let protocols = match (&one.protocols, &other.protocols) {
        (Some(one), Some(other)) => one.iter().any(|one| other.contains(one)),
        _ => true,
    };
    ranges(&one.source, &other.source)
        && ranges(&one.destination, &other.destination)
        && ports(&one.ports, &other.ports)
        && protocols
}

/// Converts the policy that drops packets which no rule has accepted.
fn rest(accepted: &[Entry], origin: &Origin, plan: &mut Plan) {
    if let Some(open) = accepted.iter().find(|entry| entry.condition.is_open()) {
        let message = format!(
            "is kept for connections that begin outside, which reach static mappings only; packets \
             of subscribers pass, as line {} accepts them, and answers pass by nat.filtering",
            open.origin.line
        );
        return plan.differs(origin, message);
    }
    if accepted.is_empty() {
        let message = "drops all that is forwarded, and natgate forwards what it translates";
        return plan.lost(origin, message);
    }
    if accepted.len() > MOST_ACCEPTED {
        return plan.lost(origin, TOO_MANY);
    }
    if let Some(odd) = accepted.iter().find(|entry| !entry.condition.is_source_only()) {
        let message = format!(
            "drops all but what lines such as {} accept; rules of kind drop name what is dropped",
            odd.origin.line
        );
        return plan.lost(origin, message);
    }
    let exempt: Vec<Range> = accepted
        .iter()
        .flat_map(|entry| entry.condition.source.iter().flatten().copied())
        .collect();
    let all = match &plan.subscribers[..] {
        [] => vec![Range::ALL],
        subscribers => subscribers.to_vec(),
    };
    let ranges = left(&all, &exempt);
    if ranges.is_empty() {
        let message = "is kept: every subscriber is accepted, and connections that begin outside \
                       reach static mappings only";
        return plan.differs(origin, message);
    }
    for range in ranges.iter().flat_map(|range| range.prefixes()) {
        add_rule(plan, Kind::Drop, true, range, 0, origin);
    }
}
