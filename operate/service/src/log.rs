//! Lines to standard error: for people with the program's name, for journald with their priority.
//!
//! journald takes `<N>` at the beginning of a line as its priority (sd-daemon(3)) and adds the name
//! by itself. JOURNAL_STREAM names the device and the inode that journald reads. If standard error
//! is another file, the variable was inherited, and lines are written for people.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::LazyLock;

/// The severity of a line, as syslog numbers it (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The program ends, or a command failed.
    Error = 3,
    /// The program goes on, and an operator should look.
    Warning = 4,
    /// Ordinary, and worth knowing.
    Notice = 5,
    /// Ordinary.
    Info = 6,
}

/// True if journald reads standard error.
static JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let file = rustix::fs::fstat(rustix::stdio::stderr());
    file.is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
});

/// Writes a line for the operator, with the severity that its first word names.
pub fn say(message: &str) {
    write(priority_of(message), message);
}

/// Writes the reason of a failure for the operator.
pub fn complain(message: &str) {
    write(Priority::Error, message);
}

/// The severity that the first word of a message names.
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
    // If standard error is gone, the line is lost and packets still flow. One call writes the line,
    // so that lines of several threads do not mix.
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
