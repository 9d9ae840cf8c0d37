//! What is said when the machine fails: why, and what had been counted about a second before.

use super::console::LastWords;
use super::sole::Sole;
use super::{clock, restart};
use natgate_bare::text::{self, Figures};
use std::fmt::Write;

static FIGURES: Sole<Option<Figures>> = Sole::new(None);

/// Remembers figures, in case something fails.
pub(crate) fn remember(figures: Figures) {
    FIGURES.with(|place| *place = Some(figures));
}

/// Has a panic told, and the machine start again.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let mut out = LastWords::new();
        // Printing does not fail.
        let _ = writeln!(out, "\n{panic}");
        conclude(out)
    }));
}

/// Tells the figures, and starts the machine again.
pub(crate) fn conclude(mut out: LastWords) -> ! {
    clock::seize();
    FIGURES.seize();
    FIGURES.with(|figures| {
        if let Some(figures) = figures {
            let _ = text::figures(&mut out, figures);
        }
    });
    let _ = writeln!(out, "the machine starts again");
    restart::restart()
}
