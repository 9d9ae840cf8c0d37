//! Commands of a document, carried out one after the other on a machine of the test.
//!
//! Commands run unchanged. The lists here name the commands with another treatment, and the reason;
//! [`unused`] finds entries that no document needs.

use crate::document::{self, Block, SHELL};
use crate::machine::Machine;
use std::process::Output;

/// A command that does not run unchanged.
pub(crate) struct Exception {
    /// Begin of the command.
    pub(crate) command: &'static str,
    pub(crate) treatment: Treatment,
    #[expect(dead_code, reason = "it is for readers")]
    reason: &'static str,
}

pub(crate) enum Treatment {
    /// The command does not run.
    NotRun,
    /// The command runs in the background until the machine ends, or until another command replaces
    /// it.
    Stays,
    /// The command ends by Ctrl-C, some seconds after its start.
    Interrupted,
    /// Another command runs. In it, `$endpoint` and `$now` are an external endpoint in use and the
    /// time, as the test has set them.
    Instead(&'static str),
    /// The command's exit code is 1.
    Fails,
}

use Treatment::{Fails, Instead, Interrupted, NotRun, Stays};

const fn exception(command: &'static str, treatment: Treatment, reason: &'static str) -> Exception {
    Exception { command, treatment, reason }
}

/// Commands that do not run unchanged.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    exception("ethtool -L inside0 combined 2", Instead("ethtool -L inside0 rx 2 tx 2"), VETH),
    exception("ethtool -L outside0 combined 2", Instead("ethtool -L outside0 rx 2 tx 2"), VETH),
    exception(
        "natgate who 203.0.113.40:2300 --at 2026-03-01T12:30:00Z",
        Instead("natgate who $endpoint --at $now"),
        "ports are drawn at random, and time goes on",
    ),
    exception(
        "natgate who 203.0.113.40:2300",
        Instead("natgate who $endpoint"),
        "ports are drawn at random",
    ),
    exception(
        "natgate who 203.0.113.1:2300",
        Instead("natgate who $endpoint"),
        "ports are drawn at random",
    ),
    exception(
        "natgate run -c /etc/natgate/natgate.toml --take-over",
        NotRun,
        "it is for gateways without a service manager; README has it, too",
    ),
    exception("git clone", NotRun, "the checkout is what is tested"),
    exception("make demo", NotRun, "tests/demo.rs runs the demonstration"),
    exception("make test", NotRun, "it runs this test"),
    exception("natgate run -c gateway.toml", Stays, "a gateway runs in the foreground"),
    exception("natgate run -c gateway6.toml", Stays, "a gateway runs in the foreground"),
    exception("natgate capture", Interrupted, "it captures until Ctrl-C"),
    exception("natgate top", NotRun, "it needs a terminal; tests/live/top.rs gives it one"),
    exception("natgate conform --inside eth1", NotRun, "tests/conform.rs runs it on live devices"),
    exception("natgate conform -c", Fails, "natgate does not meet every MUST of the 13 RFCs"),
    exception("natgate conform --lab linux", NotRun, "tests/conform.rs runs it on Linux's NAT"),
];

const VETH: &str = "a veth device has no combined queues, but queues for each direction";

/// Entries that match no command of the documents.
pub(crate) fn unused(documents: &[&str]) -> Vec<&'static str> {
    let all = documents.iter().flat_map(|name| document::blocks(name));
    let shell = all.filter(|block| block.language == SHELL);
    let commands: Vec<String> = shell.flat_map(|block| document::commands(&block)).collect();
    let used = |entry: &&Exception| !commands.iter().any(|line| line.starts_with(entry.command));
    EXCEPTIONS.iter().filter(used).map(|entry| entry.command).collect()
}

/// A document in progress on a machine.
pub(crate) struct Walk<'a> {
    machine: &'a Machine,
    blocks: std::vec::IntoIter<Block>,
    /// Variables of the replacement commands.
    pub(crate) variables: String,
    /// Output of each command, in order.
    said: Vec<(String, String)>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(machine: &'a Machine, name: &str) -> Self {
        let blocks = document::blocks(name).into_iter();
        Self { machine, blocks, variables: String::new(), said: Vec::new() }
    }

    /// Runs the blocks up to the one that contains `text`, including that block.
    pub(crate) fn up_to(&mut self, text: &str) {
        while let Some(block) = self.blocks.next() {
            self.follow(&block);
            if block.text.contains(text) {
                return;
            }
        }
        panic!("no further block of the document contains {text:?}");
    }

    /// Runs the remaining blocks.
    pub(crate) fn rest(&mut self) {
        while let Some(block) = self.blocks.next() {
            self.follow(&block);
        }
    }

    /// Output of the latest run of a command.
    pub(crate) fn said(&self, command: &str) -> &str {
        let found = self.said.iter().rev().find(|(line, _)| line.starts_with(command));
        &found.unwrap_or_else(|| panic!("{command} has not been run")).1
    }

    fn follow(&mut self, block: &Block) {
        if block.language == SHELL {
            for command in document::commands(block) {
                self.run(&command, &block.place);
            }
        } else if !block.place.is_empty() {
            let place = &block.place;
            let file = format!("cd /root/natgate; cat >{place} <<'END'\n{}END", block.text);
            self.machine.asks(&file);
        }
    }

    fn run(&mut self, command: &str, place: &str) {
        let entry = EXCEPTIONS.iter().find(|entry| command.starts_with(entry.command));
        let line = match entry.map(|entry| &entry.treatment) {
            Some(NotRun) => return,
            Some(Stays) => {
                format!("setsid -f {command} >/root/natgate/stays.log 2>&1")
            }
            Some(Interrupted) => {
                // A program without a handler for Ctrl-C ends by the signal.
                format!("timeout --preserve-status --signal INT 4 {command} || [ $? = 130 ]")
            }
            Some(Fails) => format!("! {command}"),
            Some(Instead(other)) => format!("{}{other}", self.variables),
            None => command.to_owned(),
        };
        let line = match place {
            "" => format!("cd /root/natgate\n{line}"),
            host => format!("exec ip netns exec {host} sh -ec {}", quoted(&line)),
        };
        let output: Output = self.machine.does(&line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let journal = self.machine.journal();
        assert!(output.status.success(), "{command}: {text}{errors}\njournal: {journal}");
        if matches!(entry, Some(Exception { treatment: Stays, .. })) {
            self.machine.waits_for("grep -q 'natgate: running' /root/natgate/stays.log");
        }
        self.said.push((command.to_owned(), format!("{text}{errors}")));
    }
}

/// A script as one word of a shell.
fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', "'\\''"))
}
