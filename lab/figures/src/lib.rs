//! Measured figures in a text, taken from result files.
//!
//! In README.md a figure is a Markdown link whose target is a value in a JSON file:
//!
//! ```text
//! A packet takes [108][mixed] ns, [9.2][rate] million packets a second.
//!
//! [mixed]: docs/results/engine/engine.json#/mixed_ns
//! [rate]: docs/results/engine/engine.json#/mixed_ns "1000 / x"
//! ```
//!
//! The fragment is a path into the file ([`lookup`]); the title is an optional formula
//! ([`formula`]). A reader of the rendered page can follow the link to the file. [`figures`] finds
//! the links of a text, [`updated`] writes the values into it, and [`bare_figures`] finds measured
//! figures without a link. [`provenance`] determines the commit of each result file, and the later
//! changes of the measured code.

mod bare;
mod formula;
mod lookup;
pub mod provenance;
mod text;

pub use bare::{Bare, bare_figures};
pub use text::{Figure, figures, updated};

use std::path::PathBuf;

/// Reason why a figure has no value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: cannot be read: {cause}", path.display())]
    Read {
        /// The unreadable file.
        path: PathBuf,
        /// Reason given by the operating system.
        cause: std::io::Error,
    },
    /// A result file is not JSON.
    #[error("{}: is no JSON: {cause}", path.display())]
    Json {
        /// The invalid file.
        path: PathBuf,
        /// Reason given by the parser.
        cause: serde_json::Error,
    },
    /// A result file has no number at a path.
    #[error("{}: has no number at {place}", path.display())]
    Missing {
        /// The result file.
        path: PathBuf,
        /// Path into the file.
        place: String,
    },
    /// A formula is invalid.
    #[error("the formula {formula:?} is not of the form \"A OP B\", such as \"1000 / x\"")]
    Formula {
        /// The invalid formula.
        formula: String,
    },
    /// The text of a figure's link does not begin with a number.
    #[error("the link {text:?} to {target} begins with no number")]
    NoNumber {
        /// Text of the link.
        text: String,
        /// Target of the link.
        target: String,
    },
}
