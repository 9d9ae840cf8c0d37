//! Lines to standard error: for people with the program's name, for journald with their priority.
//!
//! journald takes `<N>` at the beginning of a line as its priority (sd-daemon(3)) and adds the name by itself.
//! JOURNAL_STREAM names the device and the inode of what it reads: who has sent standard error elsewhere
//! since then has inherited the variable, and gets lines for people.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::LazyLock;

/// How grave a line is, as syslog numbers it (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The program ends, or did not do what was asked.
    Error = 3,
    /// It goes on, and somebody should look.
    Warning = 4,
    /// Ordinary, and worth knowing.
    Notice = 5,
    /// Ordinary.
    Info = 6,
}

/// Whether standard error is read by journald.
static JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let file = rustix::fs::fstat(rustix::stdio::stderr());
    file.is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
});

/// Tells the operator something; how grave it is, its first word says.
pub fn say(message: &str) {
    write(priority_of(message), message);
}

/// Tells the operator why something failed.
pub fn complain(message: &str) {
    write(Priority::Error, message);
}

/// How grave a message is that begins like that.
pub fn priority_of(message: &str) -> Priority {
    match message.split(':').next() {
        Some("warning") => Priority::Warning,
        Some("note") => Priority::Notice,
        _ => Priority::Info,
    }
}

fn write(priority: Priority, message: &str) {
    let text = match *JOURNAL {
        true => prefixed(priority, message),
        false => format!("natgate: {message}\n"),
    };
    // There is nobody left to tell when standard error is gone; packets still flow. One call writes
    // it, so that lines of several threads do not mix.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// A message as journald reads it: each of its lines has the priority.
pub fn prefixed(priority: Priority, message: &str) -> String {
    message.lines().fold(String::new(), |mut text, line| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "<{}>{line}", priority as u8);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_says_how_grave_it_is() {
        assert_eq!(priority_of("warning: the disk is full"), Priority::Warning);
        assert_eq!(priority_of("note: two workers share a processor"), Priority::Notice);
        assert_eq!(priority_of("running, inside eth1"), Priority::Info);
        assert_eq!(priority_of("a warning: not the first word"), Priority::Info);
    }

    #[test]
    fn every_line_has_the_priority() {
        assert_eq!(prefixed(Priority::Error, "one\ntwo"), "<3>one\n<3>two\n");
        assert_eq!(prefixed(Priority::Info, "one"), "<6>one\n");
    }
}
