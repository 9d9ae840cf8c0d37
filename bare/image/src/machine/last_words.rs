//! Last words of a failing machine: the reason, and the counters of about a second before.

use super::console::LastWords;
use super::sole::Sole;
use super::{processors, restart};
use natgate_bare::text::{self, Figures};
use natgate_p4::Counts;
use std::fmt::Write;

/// Saved counters.
#[expect(clippy::large_enum_variant, reason = "there is only one")]
pub(crate) enum Words {
    /// Counters of the gateway.
    Gateway(Figures),
    /// Counters of a P4 program's ports.
    Program(Counts),
}

static WORDS: Sole<Option<Words>> = Sole::new(None);

/// Saves counters for a failure.
pub(crate) fn remember(words: Words) {
    WORDS.with(|place| *place = Some(words));
}

/// Makes a panic print last words and restart the machine.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        processors::stop_others();
        let mut out = LastWords::new();
        // Printing does not fail.
        let _ = writeln!(out, "\n{panic}");
        conclude(out)
    }));
}

/// Prints the counters, and restarts the machine.
pub(crate) fn conclude(mut out: LastWords) -> ! {
    WORDS.seize();
    WORDS.with(|words| {
        let _ = match words {
            Some(Words::Gateway(figures)) => text::figures(&mut out, figures),
            Some(Words::Program(counts)) => writeln!(out, "{counts}"),
            None => Ok(()),
        };
    });
    let _ = writeln!(out, "the machine starts again");
    restart::restart()
}
