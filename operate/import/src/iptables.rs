//! Reader of the output of `iptables-save`: tables (`*nat`), chains (`:POSTROUTING ACCEPT [0:0]`),
//! rules (`-A ...`), COMMIT.

use crate::ImportError;
use crate::address::{Ports, Range};
use crate::netfilter::{Action, Chain, Chains, Condition, Device, Entry, Hook, lower};
use crate::plan::{Origin, Plan};

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let (mut chains, mut table) = (Chains::new(), "nat".to_owned());
    for (line, words) in text.lines().enumerate() {
        let line_number = line + 1;
        let trimmed = words.trim();
        let origin = Origin::new(line_number, trimmed);
        match trimmed.chars().next() {
            None | Some('#') => {}
            Some('*') => table = trimmed[1..].to_owned(),
            Some(':') => declare(&mut chains, &table, trimmed, &origin, plan),
            Some('C') if trimmed == "COMMIT" => {}
            Some('-' | '[') => rule(&mut chains, &table, trimmed, origin, plan),
            Some(_) => {
                let message = "is no line of iptables-save: it has tables (*nat), chains (:NAME) \
                               and rules (-A)";
                let message = message.to_owned();
                return Err(ImportError::Malformed { line: line_number, message });
            }
        }
    }
    if chains.values().all(|chain| chain.entries.is_empty()) {
        return Err(ImportError::Nothing("iptables-save prints all tables, as root"));
    }
    lower(&chains, plan);
    Ok(())
}

fn hook(table: &str, chain: &str) -> Option<Hook> {
    match (table, chain) {
        ("nat", "PREROUTING") => Some(Hook::Prerouting),
        ("nat", "POSTROUTING") => Some(Hook::Postrouting),
        ("nat", "INPUT" | "OUTPUT") => Some(Hook::Local),
        ("filter", "FORWARD") => Some(Hook::Forward),
        (_, "PREROUTING" | "POSTROUTING" | "INPUT" | "OUTPUT" | "FORWARD") => Some(Hook::Other),
        _ => None,
    }
}

fn chain<'a>(chains: &'a mut Chains, table: &str, name: &str) -> &'a mut Chain {
    let chain = chains.entry(format!("{table} {name}")).or_default();
    chain.hook = hook(table, name);
    chain
}

fn declare(chains: &mut Chains, table: &str, words: &str, origin: &Origin, plan: &mut Plan) {
    let mut words = words[1..].split_whitespace();
    let (name, policy) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let declared = chain(chains, table, name);
    if policy == "DROP" && declared.hook == Some(Hook::Forward) {
        declared.policy = Some(origin.clone());
    } else if policy == "DROP" {
        plan.without(
            origin,
            "refuses what no rule accepts: natgate is no firewall; keep one beside it",
        );
    }
}

fn rule(chains: &mut Chains, table: &str, text: &str, origin: Origin, plan: &mut Plan) {
    let words = split(text);
    let mut words = words.iter().map(String::as_str).peekable();
    // Counters come first.
    words.next_if(|word| word.starts_with('['));
    let (verb, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !matches!(verb, "-A" | "--append") {
        return plan.without(&origin, "is no rule that is appended (-A CHAIN)");
    }
    let mut reader =
        Reader { table, condition: Condition::default(), target: None, rest: Vec::new() };
    let mut negated = false;
    while let Some(word) = words.next() {
        if word == "!" {
            negated = true;
            continue;
        }
        let mut values = Vec::new();
        while let Some(value) = words.next_if(|next| !next.starts_with('-') && *next != "!") {
            values.push(value);
        }
        reader.option(word, &values, negated);
        negated = false;
    }
    let entry = reader.entry(origin, plan);
    chain(chains, table, name).entries.extend(entry);
}

/// Splits text into words like a shell.
pub(crate) fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => (quoted, any) = (!quoted, true),
            '\\' if quoted => word.extend(letters.next()),
            letter if letter.is_whitespace() && !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            letter => {
                word.push(letter);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}

/// A rule that is being read.
struct Reader<'a> {
    table: &'a str,
    condition: Condition,
    target: Option<String>,
    /// Options of the target.
    rest: Vec<(String, String)>,
}

impl Reader<'_> {
    fn option(&mut self, word: &str, values: &[&str], negated: bool) {
        let value = values.first().copied().unwrap_or_default();
        let odd = |condition: &mut Condition| {
            let not = if negated { "not " } else { "" };
            condition.odd.push(format!("{not}{} {}", word, values.join(" ")).trim().to_owned());
        };
        let condition = &mut self.condition;
        match word {
            "-s" | "--source" | "--src-range" if !negated => match Range::parse(value) {
                Some(range) => condition.source = Some(vec![range]),
                None => odd(condition),
            },
            "-d" | "--destination" | "--dst-range" => match (Range::parse(value), negated) {
                (Some(range), false) => condition.destination = Some(vec![range]),
                (Some(range), true) => condition.not_destination.push(range),
                (None, _) => odd(condition),
            },
            "-i" | "--in-interface" => {
                condition.input = Some(Device { name: value.into(), negated })
            }
            "-o" | "--out-interface" => {
                condition.output = Some(Device { name: value.into(), negated })
            }
            "-p" | "--protocol" if !negated => {
                if value != "all" {
                    condition.protocols = Some(vec![value.to_owned()]);
                }
            }
            "--dport" | "--destination-port" | "--dports" | "--destination-ports" if !negated => {
                let ports = value.split(',').map(|ports| Ports::parse(ports, ':'));
                match ports.collect::<Option<Vec<_>>>() {
                    Some(ports) => condition.ports = Some(ports),
                    None => odd(condition),
                }
            }
            // An address of the machine itself, as in a rule without a destination.
            "--dst-type" if value == "LOCAL" && !negated => {}
            "-m" | "--match" | "--comment" => {}
            "-j" | "--jump" | "-g" | "--goto" => self.target = Some(value.to_owned()),
            _ if self.target.is_some() => self.rest.push((word.to_owned(), values.join(" "))),
            _ => odd(condition),
        }
    }

    fn entry(mut self, origin: Origin, plan: &mut Plan) -> Option<Entry> {
        let Some(target) = self.target.take() else {
            plan.without(&origin, "has no target (-j), so it only counts packets");
            return None;
        };
        let action = match self.action(&target) {
            Ok(action) => action,
            Err(message) => {
                match &target[..] {
                    "MASQUERADE" | "SNAT" | "NETMAP" => plan.lost(&origin, message),
                    _ => plan.without(&origin, message),
                }
                return None;
            }
        };
        if matches!(action, Action::Clamp(_)) {
            // Only SYN segments have the option.
            self.condition.odd.retain(|odd| !odd.starts_with("--tcp-flags"));
        }
        Some(Entry { origin, condition: self.condition, action })
    }

    fn value(&self, names: &[&str]) -> Option<&str> {
        let found = self.rest.iter().find(|(name, _)| names.contains(&&name[..]));
        found.map(|(_, value)| value.as_str())
    }

    fn action(&self, target: &str) -> Result<Action, String> {
        Ok(match target {
            "MASQUERADE" => {
                let ports = self.value(&["--to-ports"]).map(|text| {
                    Ports::parse(text, '-').ok_or_else(|| format!("{text:?} are no ports"))
                });
                Action::Masquerade(ports.transpose()?)
            }
            "SNAT" => {
                let text = self.value(&["--to-source", "--to"]).unwrap_or_default();
                let (range, ports) = target_of(text)?;
                Action::Snat(vec![range], ports)
            }
            "DNAT" => {
                let text = self.value(&["--to-destination", "--to"]).unwrap_or_default();
                let (range, ports) = target_of(text)?;
                Action::Dnat(range, ports)
            }
            "NETMAP" => {
                let text = self.value(&["--to"]).unwrap_or_default();
                Action::Netmap(Range::parse(text).ok_or_else(|| format!("{text:?} is no network"))?)
            }
            "ACCEPT" => Action::Accept,
            "RETURN" => Action::Return,
            "DROP" | "REJECT" => Action::Drop,
            "REDIRECT" => Action::Redirect,
            "TCPMSS" => {
                Action::Clamp(self.value(&["--set-mss"]).and_then(|text| text.parse().ok()))
            }
            "LOG" | "NFLOG" | "ULOG" | "TRACE" => Action::Nothing,
            name if name.chars().all(|one| one.is_ascii_uppercase())
                && BUILT_IN.contains(&name) =>
            {
                Action::Odd(format!("target {name}"))
            }
            name => Action::Jump(format!("{} {name}", self.table)),
        })
    }
}

/// Targets that are no chains.
const BUILT_IN: [&str; 14] = [
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CLUSTERIP",
    "CONNMARK",
    "CT",
    "DSCP",
    "MARK",
    "NFQUEUE",
    "NOTRACK",
    "QUEUE",
    "SAME",
    "TPROXY",
    "TTL",
];

/// Reads `203.0.113.1-203.0.113.9:1024-65535`; the ports may be missing.
pub(crate) fn target_of(text: &str) -> Result<(Range, Option<Ports>), String> {
    let wrong = || format!("{text:?} is no IPv4 address with ports");
    let (addresses, ports) = match text.split_once(':') {
        Some((addresses, ports)) => (addresses, Some(ports)),
        None => (text, None),
    };
    let ports = ports.map(|ports| Ports::parse(ports, '-').ok_or_else(wrong)).transpose()?;
    Ok((Range::parse(addresses).ok_or_else(wrong)?, ports))
}
