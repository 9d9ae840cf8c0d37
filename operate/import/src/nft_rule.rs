//! Meaning of nftables' rules in either notation. `nft` prints them as text and as JSON. The
//! readers of both find the words; this module interprets them.

use crate::ImportError;
use crate::address::{Ports, Range};
use crate::netfilter::{Action, Chain, Chains, Condition, Device, Entry, Hook, lower};
use crate::nft_sets::RuleDraft;
use crate::plan::{Origin, Plan};

/// Reason why rules of such a table have no equivalent.
pub(crate) const IPV6: &str = "is about IPv6, and natgate translates IPv4 addresses";

/// Converts all chains to natgate's configuration.
pub(crate) fn finish(
    chains: &Chains,
    command: &'static str,
    plan: &mut Plan,
) -> Result<(), ImportError> {
    if chains.values().all(|chain| chain.entries.is_empty()) {
        return Err(ImportError::Nothing(command));
    }
    lower(chains, plan);
    Ok(())
}

/// Reads a chain's policy.
pub(crate) fn policy(policy: &str, origin: Origin, chain: &mut Chain, plan: &mut Plan) {
    if policy == "drop" && chain.hook == Some(Hook::Forward) {
        chain.policy = Some(origin);
    } else if policy == "drop" {
        let message = "refuses what no rule accepts: natgate is no firewall; keep one beside it";
        plan.without(&origin, message);
    }
}

pub(crate) fn hook_of(kind: &str, hook: &str, table: &str) -> Hook {
    if !table.starts_with("ip ") && !table.starts_with("inet ") {
        return Hook::Other;
    }
    match (kind, hook) {
        ("nat", "prerouting") => Hook::Prerouting,
        ("nat", "postrouting") => Hook::Postrouting,
        ("nat", _) => Hook::Local,
        ("filter", "forward") => Hook::Forward,
        _ => Hook::Other,
    }
}

/// Arguments of a statement.
#[derive(Default)]
pub(crate) struct StatementArguments {
    /// Chain that is called.
    pub(crate) chain: String,
    /// Target of a translation; `None` if an expression selects it.
    pub(crate) to: Option<Range>,
    pub(crate) ports: Option<Ports>,
    /// True if a prefix becomes another, address by address.
    pub(crate) prefix: bool,
    /// The largest maximum segment size; `None`: derived from the MTU.
    pub(crate) size: Option<u16>,
}

/// Name used here for the statement that sets TCP's maximum segment size.
pub(crate) const SEGMENT_SIZE: &str = "tcp option maxseg size set";

/// Action of a statement; nothing if it only matches.
pub(crate) fn action(
    name: &str,
    said: StatementArguments,
    table: &str,
) -> Result<Option<Action>, String> {
    Ok(Some(match name {
        "counter" | "comment" => return Ok(None),
        "accept" => Action::Accept,
        "return" => Action::Return,
        "drop" | "reject" => Action::Drop,
        "log" => Action::Nothing,
        "jump" | "goto" => Action::Jump(format!("{table} {}", said.chain)),
        "masquerade" => Action::Masquerade(said.ports),
        "redirect" => Action::Redirect,
        "snat" | "dnat" => {
            let to = said.to.ok_or(
                "chooses its target by an expression; write a [[static]] or [[rule]] for each case",
            )?;
            match name {
                _ if said.prefix => Action::Netmap(to),
                "snat" => Action::Snat(vec![to], said.ports),
                _ => Action::Dnat(to, said.ports),
            }
        }
        SEGMENT_SIZE => Action::Clamp(said.size),
        other => Action::Odd(format!("`{other}`")),
    }))
}

/// Reason why a rule cannot be read.
pub(crate) struct Unreadable {
    /// Statement at which reading ended.
    pub(crate) statement: String,
    pub(crate) message: String,
}

impl Unreadable {
    pub(crate) fn at(statement: &str) -> impl Fn(String) -> Self + use<'_> {
        move |message| Self { statement: statement.to_owned(), message }
    }
}

/// Entries of one rule, or a remark on the reason why there are none.
pub(crate) fn entries(
    origin: &Origin,
    read: Result<RuleDraft<'_>, Unreadable>,
    plan: &mut Plan,
) -> Vec<Entry> {
    let ends = match read {
        Ok(draft) if draft.ends.is_empty() => {
            plan.without(origin, "only counts or marks packets");
            return Vec::new();
        }
        Ok(draft) => draft.ends,
        Err(Unreadable { statement, message }) => {
            match &statement[..] {
                "snat" | "masquerade" => plan.lost(origin, message),
                _ => plan.without(origin, message),
            }
            return Vec::new();
        }
    };
    let mut entries = Vec::new();
    for (mut condition, action) in ends {
        let is_ipv6 = |odd: &String| {
            ["ip6 ", "icmpv6 ", "meta nfproto ipv6"].iter().any(|word| odd.starts_with(word))
        };
        if condition.odd.iter().any(is_ipv6) {
            plan.unneeded(origin, IPV6);
            continue;
        }
        // The first segment's size matters, whatever flags the rule matches.
        if matches!(action, Action::Clamp(_)) {
            condition.odd.retain(|odd| !odd.starts_with("tcp flags"));
        }
        entries.push(Entry { origin: origin.clone(), condition, action });
    }
    entries
}

/// Adds to a condition that a field has one of these values, or none of them if `negated`.
pub(crate) fn apply(field: &str, negated: bool, values: &[String], condition: &mut Condition) {
    let odd = |condition: &mut Condition| {
        let not = if negated { "not " } else { "" };
        let shown: Vec<&str> = values.iter().take(4).map(String::as_str).collect();
        condition.odd.push(format!("{field} {not}{}", shown.join(", ")));
    };
    let ranges = || values.iter().map(|value| Range::parse(value)).collect::<Option<Vec<_>>>();
    let ports = || values.iter().map(|value| Ports::parse(value, '-')).collect::<Option<Vec<_>>>();
    match (field, negated) {
        ("ip saddr", false) => match ranges() {
            Some(ranges) => condition.source = Some(ranges),
            None => odd(condition),
        },
        ("ip daddr", _) => match (ranges(), negated) {
            (Some(ranges), false) => condition.destination = Some(ranges),
            (Some(ranges), true) => condition.not_destination.extend(ranges),
            (None, _) => odd(condition),
        },
        ("ip protocol" | "meta l4proto", false) => condition.protocols = Some(values.to_vec()),
        (
            "iif" | "iifname" | "oif" | "oifname" | "meta iifname" | "meta oifname" | "meta iif"
            | "meta oif",
            _,
        ) => {
            let [name] = values else { return odd(condition) };
            let device = Some(Device { name: name.clone(), negated });
            match field.contains("iif") {
                true => condition.input = device,
                false => condition.output = device,
            }
        }
        ("tcp dport" | "udp dport" | "dccp dport" | "th dport", false) => match ports() {
            Some(ports) => {
                condition.ports = Some(ports);
                if !field.starts_with("th") {
                    let protocol = field.split(' ').next().unwrap_or_default();
                    condition.protocols = Some(vec![protocol.to_owned()]);
                }
            }
            None => odd(condition),
        },
        ("meta nfproto", false) if values == ["ipv4"] => {}
        // The destination is an address of the machine itself, as external addresses are there.
        ("fib daddr type", false) if values == ["local"] => {}
        _ => odd(condition),
    }
}
