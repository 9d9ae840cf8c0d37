//! Commands that begin and end captures: each worker has a tap for each capture.

use super::{Command, CommandError, Commander};
use crate::tap::Tap;
use std::sync::mpsc::Receiver;

impl Commander {
    /// Starts a capture on every worker, with a tap for each.
    ///
    /// # Errors
    /// [`CommandError::Stopping`], or [`CommandError::Captures`] if the limit is reached.
    pub(crate) fn begin_capture(
        &self,
        mut tap: impl FnMut() -> Box<Tap>,
    ) -> Result<(), CommandError> {
        for mouth in self.mouths() {
            let tap = tap();
            if mouth.ask(|reply| Command::Capture(tap, reply))?.is_some() {
                return Err(CommandError::Captures);
            }
        }
        Ok(())
    }

    /// Starts a capture on the workers after the first `known`; returns the receivers of their
    /// answers.
    pub(crate) fn go_on_capturing(
        &self,
        known: usize,
        mut tap: impl FnMut() -> Box<Tap>,
    ) -> Vec<Receiver<Option<Box<Tap>>>> {
        let mouths = self.mouths();
        let newcomers = mouths.iter().skip(known);
        // A worker that has ended copies nothing.
        newcomers
            .filter_map(|mouth| {
                let tap = tap();
                mouth.begin(|reply| Command::Capture(tap, reply)).ok()
            })
            .collect()
    }

    /// Ends a capture on every worker.
    pub(crate) fn end_capture(&self, number: u64) {
        for mouth in self.mouths() {
            // The tap is dropped here, or was dropped with its worker.
            let _ = mouth.ask(|reply| Command::EndCapture(number, reply));
        }
    }
}
