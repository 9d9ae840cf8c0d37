//! What a person can do by pressing keys, and what asks twice.

use std::time::Duration;

/// How long after booting the gateway starts by itself, if nobody presses a key.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What the keys do.
pub const HELP: &str = "\
keys: s start   c configuration   n counters each second   m mappings by pages
      r reboot   t trial of a failure, which ends in a reboot   h this help
";

/// What they do while a P4 program runs.
pub const PROGRAM_HELP: &str = "\
keys: n counters each second   h this help
      r reboot   t trial of a failure, which ends in a reboot
";

/// What can be tried.
const TRIALS: &str =
    "trial: p panic, e exception, w stand still, o another worker does; any other key: none\n";

/// What is said where there is one worker alone.
pub const ALONE: &str = "there is no other worker";

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Start the gateway.
    Start,
    /// Show the configuration and what it means.
    Configuration,
    /// Show the counters each second, or no longer.
    Counters,
    /// Show some of the mappings, the next ones each time.
    Mappings,
    /// Start the machine again.
    Reboot,
    /// Show what keys do.
    Help,
    /// Print this question, whose answer is the next key.
    Ask(&'static str),
    /// Fail on purpose.
    Fail(Failure),
}

/// A failure to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Of the program.
    Panic,
    /// Of the processor.
    Exception,
    /// Not to go on.
    StandStill,
    /// That another worker than the first does not go on.
    OtherStandsStill,
}

/// What the next key answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Reboot,
    Failure,
}

/// The menu.
#[derive(Debug, Default)]
pub struct Menu {
    asked: Option<Question>,
}

impl Menu {
    /// What a key means now; nothing, if it means nothing.
    pub fn key(&mut self, key: u8) -> Option<Wish> {
        match (self.asked.take(), key.to_ascii_lowercase()) {
            (Some(Question::Reboot), b'y') => Some(Wish::Reboot),
            (Some(Question::Failure), b'p') => Some(Wish::Fail(Failure::Panic)),
            (Some(Question::Failure), b'e') => Some(Wish::Fail(Failure::Exception)),
            (Some(Question::Failure), b'w') => Some(Wish::Fail(Failure::StandStill)),
            (Some(Question::Failure), b'o') => Some(Wish::Fail(Failure::OtherStandsStill)),
            (Some(_), _) => None,
            (None, b's') => Some(Wish::Start),
            (None, b'c') => Some(Wish::Configuration),
            (None, b'n') => Some(Wish::Counters),
            (None, b'm') => Some(Wish::Mappings),
            (None, b'h') => Some(Wish::Help),
            (None, b'r') => {
                self.asked = Some(Question::Reboot);
                Some(Wish::Ask("reboot? y: yes, any other key: no\n"))
            }
            (None, b't') => {
                self.asked = Some(Question::Failure);
                Some(Wish::Ask(TRIALS))
            }
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::COLUMNS;

    #[test]
    fn keys_mean_what_the_help_says() {
        let mut menu = Menu::default();
        let plain = [
            (b's', Wish::Start),
            (b'C', Wish::Configuration),
            (b'n', Wish::Counters),
            (b'm', Wish::Mappings),
            (b'h', Wish::Help),
        ];
        for (key, wish) in plain {
            assert_eq!(menu.key(key), Some(wish));
            assert!(HELP.contains(&format!(" {} ", char::from(key.to_ascii_lowercase()))));
        }
        assert!(HELP.lines().chain(PROGRAM_HELP.lines()).all(|line| line.len() <= COLUMNS));
        assert_eq!(menu.key(b'y'), None);
    }

    #[test]
    fn what_ends_service_is_asked_twice() {
        for (first, second, wish) in [
            (b'r', b'y', Wish::Reboot),
            (b't', b'p', Wish::Fail(Failure::Panic)),
            (b't', b'e', Wish::Fail(Failure::Exception)),
            (b't', b'w', Wish::Fail(Failure::StandStill)),
        ] {
            let mut menu = Menu::default();
            assert!(matches!(menu.key(first), Some(Wish::Ask(_))));
            assert_eq!(menu.key(second), Some(wish));
            assert!(matches!(menu.key(first), Some(Wish::Ask(_))));
            // Any other key is an answer, not a command.
            assert_eq!((menu.key(b's'), menu.key(b's')), (None, Some(Wish::Start)));
        }
    }
}
