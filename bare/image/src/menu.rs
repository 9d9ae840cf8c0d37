//! Commands by keys, and commands with a second question.

use std::time::Duration;

/// Time after booting until the gateway starts by itself, if no key is pressed.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Help on the keys.
pub const HELP: &str = "\
keys: s start   c configuration   n counters each second   m mappings by pages
      r reboot   t trial of a failure, which ends in a reboot   h this help
";

/// Help on the keys while a P4 program runs.
pub const PROGRAM_HELP: &str = "\
keys: n counters each second   h this help
      r reboot   t trial of a failure, which ends in a reboot
";

/// Trials of failures.
const TRIALS: &str =
    "trial: p panic, e exception, w stand still, o another worker does; any other key: none\n";

/// Message if there is only one worker.
pub const ALONE: &str = "there is no other worker";

/// Command of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Start the gateway.
    Start,
    /// Show the configuration and what it means.
    Configuration,
    /// Show the counters each second, or stop.
    Counters,
    /// Show some of the mappings, each time the next ones.
    Mappings,
    /// Restart the machine.
    Reboot,
    /// Show the help on the keys.
    Help,
    /// Print this question; the next key is the answer.
    Ask(&'static str),
    /// Fail on purpose.
    Fail(Failure),
}

/// A failure for a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A panic of the program.
    Panic,
    /// An exception of the processor.
    Exception,
    /// A loop without progress.
    StandStill,
    /// A worker beside the first that makes no progress.
    OtherStandsStill,
}

/// Question that the next key answers.
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
    /// Meaning of a key; `None` if it has none.
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
