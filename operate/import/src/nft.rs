//! Reader of the output of `nft list ruleset`: tables, in them sets and chains, in chains rules,
//! one a line.

use crate::ImportError;
use crate::address::Ports;
use crate::iptables::{split, target_of};
use crate::netfilter::{Action, Chain, Chains, Entry};
use crate::nft_rule::{self, IPV6, SEGMENT_SIZE, StatementArguments, Unreadable, hook_of, policy};
use crate::nft_sets::{Element, Lookup, Pair, RuleDraft, Sets};
use crate::plan::{Origin, Plan};

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let (mut chains, mut sets) = (Chains::new(), Sets::default());
    let mut rules = Vec::new();
    let (mut table, mut block) = (String::new(), Block::None);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let number = number + 1;
        let line = match block {
            Block::None => line.trim().to_owned(),
            _ => joined(number, line, lines.by_ref().map(|(_, line)| line))?,
        };
        let words = tokens(&line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match (&block, &words[..]) {
            (_, []) => {}
            (_, [first, ..]) if first.starts_with('#') => {}
            (Block::None, ["table", family, name, "{"]) => {
                table = format!("{family} {name}");
                block = Block::Table;
            }
            (Block::None, ["table", name, "{"]) => {
                table = format!("ip {name}");
                block = Block::Table;
            }
            (Block::Table, words) => {
                block = in_table(&table, words, number, &mut chains, &mut sets)?;
            }
            (Block::Chain(_) | Block::Set(_), ["}"]) => block = Block::Table,
            (Block::Chain(name), ["type", kind, "hook", hook, ..]) => {
                let chain = chains.entry(format!("{table} {name}")).or_default();
                chain.hook = Some(hook_of(kind, hook, &table));
                if let Some(place) = words.iter().position(|word| *word == "policy") {
                    let named = words.get(place + 1).copied().unwrap_or_default();
                    policy(named, Origin::new(number, &line), chain, plan);
                }
            }
            (Block::Chain(_), _) if table.starts_with("ip6 ") => {
                plan.without(&Origin::new(number, &line), IPV6);
            }
            (Block::Chain(name), _) => {
                rules.push((table.clone(), name.clone(), Origin::new(number, &line), line.clone()));
            }
            (Block::Set(name), words) if !elements_in(words).is_empty() => {
                add_elements(&format!("{table} {name}"), elements_in(words), &mut sets);
            }
            (Block::Set(_), _) => {}
            (Block::None, _) => {
                let message =
                    "is no line of `nft list ruleset`, which begins with a table".to_owned();
                return Err(ImportError::Malformed { line: number, message });
            }
        }
    }
    finish(rules, &sets, chains, plan)
}

/// Reads a line of a table; returns the block that the next line is in.
fn in_table(
    table: &str,
    words: &[&str],
    number: usize,
    chains: &mut Chains,
    sets: &mut Sets,
) -> Result<Block, ImportError> {
    Ok(match words {
        ["chain", name, "{"] => {
            chains.entry(format!("{table} {name}")).or_default();
            Block::Chain((*name).to_owned())
        }
        ["set", name, "{"] => {
            sets.sets.entry(format!("{table} {name}")).or_default();
            Block::Set((*name).to_owned())
        }
        ["map", name, "{"] => {
            sets.maps.entry(format!("{table} {name}")).or_default();
            Block::Set((*name).to_owned())
        }
        [kind @ ("set" | "map"), name, "{", body @ .., "}"] => {
            let name = format!("{table} {name}");
            match *kind {
                "set" => drop(sets.sets.entry(name.clone()).or_default()),
                _ => drop(sets.maps.entry(name.clone()).or_default()),
            }
            add_elements(&name, elements_in(body), sets);
            Block::Table
        }
        ["chain", _, "{", .., "}"] => {
            let message = "is a whole chain in one line; load the file with nft, and import what \
                           `nft list ruleset` prints"
                .to_owned();
            return Err(ImportError::Malformed { line: number, message });
        }
        ["flowtable" | "counter" | "quota" | "limit" | "ct", .., "{"] => Block::Set(String::new()),
        ["}"] => Block::None,
        _ => Block::Table,
    })
}

/// Joins a line within a block with the lines that it continues on: elements of sets may span
/// several.
fn joined<'t>(
    number: usize,
    first: &str,
    mut lines: impl Iterator<Item = &'t str>,
) -> Result<String, ImportError> {
    let mut line = first.trim().to_owned();
    while opened(&line) > 0 && !is_head(&line) {
        let Some(more) = lines.next() else {
            let message = "ends within braces; the file is cut off".to_owned();
            return Err(ImportError::Malformed { line: number, message });
        };
        line = format!("{line} {}", more.trim());
    }
    Ok(line)
}

/// A rule that is not read yet: its table and chain, its place in the input, and its line.
type RawRule = (String, String, Origin, String);

/// Reads the rules after all sets are known.
fn finish(
    rules: Vec<RawRule>,
    sets: &Sets,
    mut chains: Chains,
    plan: &mut Plan,
) -> Result<(), ImportError> {
    for (table, chain, origin, line) in rules {
        let words = tokens(&line);
        let rule = Words { table: &table, sets, words: &words, place: 0 };
        let entries = rule.entries(&origin, plan);
        let chain: &mut Chain = chains.entry(format!("{table} {chain}")).or_default();
        chain.entries.extend(entries);
    }
    nft_rule::finish(&chains, "`nft list ruleset` prints all of them, as root", plan)
}

/// The words between the braces of `elements = { ... }`, which may stand among other statements.
fn elements_in<'w>(words: &'w [&'w str]) -> &'w [&'w str] {
    let begin = words.windows(3).position(|three| three == ["elements", "=", "{"]);
    let Some(begin) = begin else { return &[] };
    let inner = &words[begin + 3..];
    &inner[..inner.iter().position(|word| *word == "}").unwrap_or(inner.len())]
}

/// Adds elements to a set or a map.
fn add_elements(name: &str, words: &[&str], sets: &mut Sets) {
    for one in words.split(|word| *word == ",").filter(|one| !one.is_empty()) {
        match (element(one), sets.maps.get_mut(name), sets.sets.get_mut(name)) {
            ((key, Some(value)), Some(map), _) => map.push(Pair { key, value }),
            ((key, None), _, Some(set)) => set.push(key),
            _ => {}
        }
    }
}

/// Words that may follow a value in a set.
const ATTRIBUTES: [&str; 6] = ["comment", "timeout", "expires", "counter", "limit", "quota"];

/// Values of an element, and the values that it maps to in a map.
fn element(words: &[&str]) -> (Element, Option<Element>) {
    let values = |words: &[&str]| -> Element {
        let end = words.iter().position(|word| ATTRIBUTES.contains(word));
        let words = &words[..end.unwrap_or(words.len())];
        words.split(|word| *word == ".").map(|part| part.join(" ")).collect()
    };
    match words.iter().position(|word| *word == ":") {
        Some(place) => (values(&words[..place]), Some(values(&words[place + 1..]))),
        None => (values(words), None),
    }
}

enum Block {
    None,
    Table,
    Chain(String),
    Set(String),
}

/// True if a line opens a block.
fn is_head(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    line.ends_with('{')
        && matches!(
            first,
            "table" | "chain" | "set" | "map" | "flowtable" | "counter" | "quota" | "limit" | "ct"
        )
}

/// Number of braces that are open at the end of a line.
fn opened(line: &str) -> i32 {
    let count = |brace: char| line.chars().filter(|one| *one == brace).count() as i32;
    count('{') - count('}')
}

/// Splits a line into words; braces, commas between them and semicolons are words, too.
fn tokens(line: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(line.len() + 16);
    let (mut quoted, mut depth) = (false, 0_usize);
    for letter in line.chars() {
        quoted ^= letter == '"';
        match letter {
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        match letter {
            '{' | '}' | ';' if !quoted => spaced.extend([' ', letter, ' ']),
            // Outside braces a comma joins flags: `established,related`.
            ',' if !quoted && depth > 0 => spaced.extend([' ', letter, ' ']),
            letter => spaced.push(letter),
        }
    }
    split(&spaced)
}

/// First words of matches.
const MATCHES: [&str; 20] = [
    "ip",
    "meta",
    "iif",
    "iifname",
    "oif",
    "oifname",
    "tcp",
    "udp",
    "dccp",
    "sctp",
    "th",
    "ct",
    "fib",
    "ip6",
    "icmp",
    "icmpv6",
    "ether",
    "socket",
    "numgen",
    "tcp-option",
];

/// Options of `log`, each followed by a word.
const LOG: [&str; 6] = ["prefix", "group", "snaplen", "queue-threshold", "level", "flags"];

/// Options for the choice of ports, which natgate's nat.allocation and nat.pooling replace.
const FLAGS: [&str; 3] = ["random", "fully-random", "persistent"];

/// Words that may follow flags of TCP.
const STATEMENTS: [&str; 17] = [
    "tcp",
    "ip",
    "meta",
    "ct",
    "counter",
    "comment",
    "iifname",
    "oifname",
    "accept",
    "drop",
    "return",
    "jump",
    "goto",
    "snat",
    "dnat",
    "masquerade",
    "log",
];

/// Words of a rule.
struct Words<'a> {
    table: &'a str,
    sets: &'a Sets,
    words: &'a [String],
    place: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Option<&str> {
        let word = self.words.get(self.place)?;
        self.place += 1;
        Some(word)
    }

    fn peek(&self) -> &str {
        self.words.get(self.place).map_or("", String::as_str)
    }

    fn is_next(&mut self, wanted: &str) -> bool {
        let is = self.peek() == wanted;
        self.place += usize::from(is);
        is
    }

    fn entries(self, origin: &Origin, plan: &mut Plan) -> Vec<Entry> {
        nft_rule::entries(origin, self.read(), plan)
    }
    /// Reads the rule's matches and its action.
    fn read<'d>(mut self) -> Result<RuleDraft<'d>, Unreadable>
    where
        Self: 'd,
    {
        let mut draft = RuleDraft::new(self.sets, self.table);
        while let Some(word) = self.next() {
            let word = word.to_owned();
            self.statement(&word, &mut draft).map_err(Unreadable::at(&word))?;
        }
        Ok(draft)
    }

    fn statement(&mut self, word: &str, draft: &mut RuleDraft<'_>) -> Result<(), String> {
        let (mut name, mut said) = (word, StatementArguments::default());
        match word {
            "counter" => {
                for name in ["packets", "bytes"] {
                    if self.is_next(name) {
                        self.place += 1;
                    }
                }
            }
            "comment" => self.place += 1,
            "log" => {
                while LOG.contains(&self.peek()) {
                    let is_flags = self.next() == Some("flags");
                    let has_more = matches!(self.next(), Some("tcp" | "ip")) && is_flags;
                    self.place += usize::from(has_more);
                }
            }
            "tcp" if self.is_next("option") => {
                name = SEGMENT_SIZE;
                said.size = match self.segment_size() {
                    Ok(size) => size,
                    Err(what) => {
                        draft.end(&Action::Odd(what));
                        return Ok(());
                    }
                };
            }
            word if MATCHES.contains(&word) => return self.matched(word, draft),
            "masquerade" | "redirect" => said.ports = self.ports_behind_to()?,
            "snat" | "dnat" => {
                if let Some(map) = self.target(word, &mut said)? {
                    return draft.end_by(word, &said, &map);
                }
            }
            "jump" | "goto" => said.chain = self.next().unwrap_or_default().to_owned(),
            // The words that follow give the kind of the refusal.
            "reject" => self.place = self.words.len(),
            flags if flags.split(',').all(|flag| FLAGS.contains(&flag)) => return Ok(()),
            _ => {}
        }
        if let Some(action) = nft_rule::action(name, said, self.table)? {
            draft.end(&action);
            if matches!(action, Action::Odd(_)) {
                // The words that follow belong to the action.
                self.place = self.words.len();
            }
        }
        Ok(())
    }

    /// Reads `to :1024-65535`.
    fn ports_behind_to(&mut self) -> Result<Option<Ports>, String> {
        if !self.is_next("to") {
            return Ok(None);
        }
        let word = self.next().unwrap_or_default();
        let ports = Ports::parse(word.trim_start_matches(':'), '-');
        ports.map(Some).ok_or_else(|| format!("{word:?} are no ports"))
    }

    /// Reads the target of a translation; also returns the map that selects it, if there is one.
    fn target(
        &mut self,
        word: &str,
        said: &mut StatementArguments,
    ) -> Result<Option<Lookup>, String> {
        while matches!(self.peek(), "ip" | "prefix" | "interval" | "addr" | "." | "port") {
            said.prefix |= self.next() == Some("prefix");
        }
        if !self.is_next("to") {
            return Err(format!("is a {word} by what natgate does not know"));
        }
        let rest = &self.words[self.place.min(self.words.len())..];
        if let Some(map) = rest.iter().position(|one| one == "map") {
            return self.map(self.place + map).map(Some);
        }
        let to = self.next().unwrap_or_default().to_owned();
        if to.starts_with('@') || matches!(&to[..], "numgen" | "jhash" | "symhash" | "ip") {
            // The selecting expression has words of its own.
            self.place = self.words.len();
            return Ok(None);
        }
        let (range, ports) = target_of(&to)?;
        (said.to, said.ports) = (Some(range), ports);
        Ok(None)
    }

    /// Reads `tcp dport map @web`: the key fields up to the word `map`, and the map.
    fn map(&mut self, end: usize) -> Result<Lookup, String> {
        let mut fields = Vec::new();
        while self.place < end {
            let word = self.next().unwrap_or_default().to_owned();
            if matches!(&word[..], "numgen" | "jhash" | "symhash") {
                fields = vec![word];
                break;
            }
            if word != "." {
                fields.push(self.field(&word));
            }
        }
        self.place = end + 1;
        let pairs = self.pairs()?;
        match self.peek().starts_with(':') {
            true => Err("gives ports beside a map; write a [[static]] for each entry".to_owned()),
            false => Ok(Lookup { fields, pairs }),
        }
    }

    /// Reads the elements of an anonymous or a named map.
    fn pairs(&mut self) -> Result<Vec<Pair>, String> {
        if self.peek() != "{" {
            let word = self.next().unwrap_or_default().to_owned();
            return self.sets.map(self.table, word.trim_start_matches('@'));
        }
        let pairs = self.elements().into_iter();
        let pairs = pairs.filter_map(|(key, value)| Some(Pair { key, value: value? }));
        Ok(pairs.collect())
    }

    /// Reads the elements in the braces that open here.
    fn elements(&mut self) -> Vec<(Element, Option<Element>)> {
        self.place += 1;
        let rest = &self.words[self.place.min(self.words.len())..];
        let end = rest.iter().position(|word| word == "}").unwrap_or(rest.len());
        let words: Vec<&str> = rest[..end].iter().map(String::as_str).collect();
        self.place += end + 1;
        let all = words.split(|word| *word == ",").filter(|one| !one.is_empty());
        all.map(element).collect()
    }

    /// Reads the name of a field; `word` is its first word.
    fn field(&mut self, word: &str) -> String {
        match word {
            "ip" | "meta" | "ct" | "tcp" | "udp" | "dccp" | "sctp" | "th" | "ip6" | "icmp"
            | "icmpv6" | "ether" => {
                let field = self.next().unwrap_or_default();
                format!("{word} {field}")
            }
            "fib" => self.route(),
            _ => word.to_owned(),
        }
    }

    /// Reads a match.
    fn matched(&mut self, word: &str, draft: &mut RuleDraft<'_>) -> Result<(), String> {
        let mut fields = vec![self.field(word)];
        while self.is_next(".") {
            let word = self.next().unwrap_or_default().to_owned();
            fields.push(self.field(&word));
        }
        if fields == ["tcp flags"] {
            // Either `syn / syn,rst`, or `& (syn | rst) == syn`.
            let begin = self.place;
            while !self.peek().is_empty() && !STATEMENTS.contains(&self.peek()) {
                self.place += 1;
            }
            draft.odd(&format!("tcp flags {}", self.words[begin..self.place].join(" ")));
            return Ok(());
        }
        if self.is_next("vmap") {
            let pairs = self.pairs()?;
            return draft.end_by("vmap", &StatementArguments::default(), &Lookup { fields, pairs });
        }
        let negated = self.is_next("!=");
        self.is_next("==");
        let elements = self.values()?;
        draft.compare(&fields, negated, &elements)
    }

    /// Reads the key of a look-up in the routing table: `fib daddr type`, `fib saddr . iif oif`.
    fn route(&mut self) -> String {
        let mut keys = vec![self.next().unwrap_or_default().to_owned()];
        while self.is_next(".") {
            keys.push(self.next().unwrap_or_default().to_owned());
        }
        let result = self.next().unwrap_or_default();
        format!("fib {} {result}", keys.join(" . "))
    }

    /// Reads `tcp option maxseg size set rt mtu`; the error names other options.
    fn segment_size(&mut self) -> Result<Option<u16>, String> {
        let set = self.words[self.place.min(self.words.len())..].join(" ");
        self.place = self.words.len();
        match set.strip_prefix("maxseg size set ") {
            Some("rt mtu") => Ok(None),
            Some(size) => match size.parse() {
                Ok(size) => Ok(Some(size)),
                Err(_) => Err("a maximum segment size by that".into()),
            },
            None => Err("a TCP option".into()),
        }
    }

    /// Reads one value, values in braces, or a set.
    fn values(&mut self) -> Result<Vec<Element>, String> {
        if self.peek() == "{" {
            return Ok(self.elements().into_iter().map(|(key, _)| key).collect());
        }
        let mut element = vec![self.next().unwrap_or_default().to_owned()];
        if let Some(name) = element[0].strip_prefix('@') {
            let set = self.sets.set(self.table, name)?;
            return Ok(set.map_or_else(|| vec![element.clone()], <[Element]>::to_vec));
        }
        while self.is_next(".") {
            element.push(self.next().unwrap_or_default().to_owned());
        }
        Ok(vec![element])
    }
}
