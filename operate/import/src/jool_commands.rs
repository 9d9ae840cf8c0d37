//! Commands of Jool in a script: `jool instance add`, `jool pool4 add`, `jool_siit eamt add`,
//! `jool global update` and the like. Other lines of the script are passed over.

use crate::ImportError;
use crate::jool::{Jool, Kind, Pool4};
use crate::plan::{Origin, Plan};

/// Modes that a command of Jool can have.
const MODES: [&str; 10] = [
    "instance",
    "global",
    "pool4",
    "bib",
    "eamt",
    "denylist4",
    "blacklist4",
    "file",
    "pool6",
    "pool6791",
];

/// Flags with a value.
const WITH_VALUE: [&str; 5] = ["--mark", "-m", "--max-iterations", "--pool6", "-6"];

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let mut jool = Jool::new(plan);
    let mut any = false;
    for (line, command) in commands(text) {
        let origin = Origin::new(line, &command);
        let words: Vec<&str> = words(&command);
        if let Some((kind, words)) = of_jool(&words) {
            any = true;
            jool.is(kind);
            run(kind, words, &origin, &mut jool);
        } else if let Some(prefix) = module(&words) {
            any = true;
            let is_siit = words.contains(&"jool_siit");
            let kind = if is_siit { Kind::Siit } else { Kind::Nat64 };
            jool.is(kind);
            jool.pool6(Some(kind), prefix, &origin);
        }
    }
    if !any {
        return Err(ImportError::Nothing(
            "commands of Jool begin with jool or jool_siit, such as jool pool4 add",
        ));
    }
    jool.finish();
    Ok(())
}

/// True if a line has a command of Jool.
pub(crate) fn has_command(line: &str) -> bool {
    commands(line).iter().any(|(_, command)| of_jool(&words(command)).is_some())
}

/// The commands of a script, each with the number of its line. A backslash joins lines.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let (start, mut whole) = open.take().unwrap_or((number + 1, String::new()));
        match line.strip_suffix('\\') {
            Some(part) if !line.starts_with('#') => {
                whole.push_str(part);
                whole.push(' ');
                open = Some((start, whole));
            }
            _ => {
                whole.push_str(line);
                all.push((start, whole));
            }
        }
    }
    all.extend(open);
    let apart = |(number, line): (usize, String)| {
        let line = line.split(" #").next().unwrap_or_default().to_owned();
        let parts = match line.starts_with('#') {
            true => Vec::new(),
            false => line.split([';', '&', '|']).map(|part| part.trim().to_owned()).collect(),
        };
        parts.into_iter().filter(|part| !part.is_empty()).map(move |part| (number, part))
    };
    all.into_iter().flat_map(apart).collect()
}

/// The words of a command, without quotes.
fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect()
}

/// The variant of Jool that a command is for, and the words from its mode on.
fn of_jool<'a>(words: &'a [&'a str]) -> Option<(Kind, &'a [&'a str])> {
    let name = |word: &str| match word.rsplit('/').next() {
        Some("jool") => Some(Kind::Nat64),
        Some("jool_siit") => Some(Kind::Siit),
        _ => None,
    };
    let (at, kind) = words.iter().enumerate().find_map(|(at, word)| Some((at, name(word)?)))?;
    let mut rest = &words[at + 1..];
    while let [first, others @ ..] = rest {
        match *first {
            "-i" | "--instance" | "-f" | "--file" => rest = others.get(1..).unwrap_or_default(),
            flag if flag.starts_with("--instance=") || flag.starts_with("--file=") => rest = others,
            mode if MODES.contains(&mode) => return Some((kind, rest)),
            _ => return None,
        }
    }
    None
}

/// The prefix that the module gets as it is loaded; Jool 3 has it so.
fn module<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_load = words.iter().any(|word| matches!(*word, "modprobe" | "insmod"));
    let is_jool = words.iter().any(|word| matches!(*word, "jool" | "jool_siit"));
    let prefix = words.iter().find_map(|word| word.strip_prefix("pool6="));
    prefix.filter(|_| is_load && is_jool)
}

/// A command's words apart from its flags, and its flags with their values.
struct Arguments<'a> {
    positional: Vec<&'a str>,
    flags: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    fn of(words: &'a [&'a str]) -> Self {
        let (mut positional, mut flags) = (Vec::new(), Vec::new());
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word.split_once('=') {
                _ if !word.starts_with('-') => positional.push(word),
                Some(flag) => flags.push(flag),
                None if WITH_VALUE.contains(&word) => {
                    flags.push((word, words.next().unwrap_or_default()));
                }
                None => flags.push((word, "")),
            }
        }
        Self { positional, flags }
    }

    fn flag(&self, names: &[&str]) -> Option<&'a str> {
        self.flags.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| *value)
    }
}

fn run(kind: Kind, words: &[&str], origin: &Origin, jool: &mut Jool<'_>) {
    let [mode, rest @ ..] = words else { return };
    let (operation, rest) = match rest {
        [operation, rest @ ..] => (*operation, rest),
        [] => return,
    };
    if matches!(operation, "display" | "-h" | "--help" | "query") {
        return;
    }
    if rest.iter().any(|word| word.contains(['$', '`'])) {
        let message = "has a variable: write its value in the script and convert it again";
        return jool.plan.lost(origin, message);
    }
    let arguments = Arguments::of(rest);
    match (*mode, operation, &arguments.positional[..]) {
        ("instance", "add", _) => instance(kind, &arguments, origin, jool),
        ("instance", ..) => {
            let message = "takes something away; a configuration says what is there";
            jool.plan.unneeded(origin, message);
        }
        ("pool4", "add", [prefix, ports @ ..]) => {
            let pool = Pool4 {
                prefix,
                ports: ports.first().copied(),
                is_marked: arguments.flag(&["--mark", "-m"]).is_some_and(|mark| mark != "0"),
                has_iterations: arguments.flag(&["--max-iterations"]).is_some(),
            };
            jool.pool4(pool, origin);
        }
        ("bib", "add", _) => jool.bib(origin),
        ("eamt", "add", [one, other]) => jool.eam(one, other, origin),
        ("denylist4" | "blacklist4", "add", _) => jool.deny(origin),
        ("global", "update", [key, values @ ..]) => {
            jool.global(Some(kind), key, &values.join(" "), origin);
        }
        ("pool6", "add" | "--add" | "-a", [prefix]) => jool.pool6(Some(kind), prefix, origin),
        ("file", "handle", _) => {
            let message = "reads another file: convert that file, too, with natgate import";
            jool.plan.lost(origin, message);
        }
        (_, "remove" | "flush", _) => {
            let message = "takes entries away: write a script of what is left, as jool ... display \
                           shows it";
            jool.plan.lost(origin, message);
        }
        _ => jool.plan.lost(origin, "is no command that is known of Jool 4"),
    }
}

fn instance(kind: Kind, arguments: &Arguments<'_>, origin: &Origin, jool: &mut Jool<'_>) {
    if arguments.flag(&["--iptables"]).is_some() {
        jool.framework("iptables", origin);
    }
    if let Some(prefix) = arguments.flag(&["--pool6", "-6"]) {
        jool.pool6(Some(kind), prefix, origin);
    }
}
