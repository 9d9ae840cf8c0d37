//! What is said when the machine fails: why, and what had been counted about a second before.

use super::console::LastWords;
use super::sole::Sole;
use super::{processors, restart};
use natgate_bare::text::{self, Figures};
use natgate_p4::Counts;
use std::fmt::Write;

/// What had been counted.
#[expect(clippy::large_enum_variant, reason = "there is only one")]
pub(crate) enum Words {
    /// By the gateway.
    Gateway(Figures),
    /// By a P4 program's ports.
    Program(Counts),
}

static WORDS: Sole<Option<Words>> = Sole::new(None);

/// Remembers what has been counted, in case something fails.
pub(crate) fn remember(words: Words) {
    WORDS.with(|place| *place = Some(words));
}

/// Has a panic told, and the machine start again.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        processors::stop_others();
        let mut out = LastWords::new();
        // Printing does not fail.
        let _ = writeln!(out, "\n{panic}");
        conclude(out)
    }));
}

/// Tells the figures, and starts the machine again.
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
