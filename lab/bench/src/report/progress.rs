//! The progress bar of an experiment; it is drawn on standard error, and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Creates a bar of `steps` steps. Describe the current step with `set_message`, and call `inc`
/// after each step.
pub fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}")
        .expect("the template is well formed");
    ProgressBar::new(steps).with_style(style)
}
