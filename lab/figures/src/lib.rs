//! Every measured figure in a text comes from a result file.
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
//! The fragment is a path into the file ([`lookup`]), the title an optional formula ([`formula`]).
//! A reader of the rendered page follows the link to the file. [`figures`] finds the links of a
//! text, [`updated`] writes the values into it, and [`bare_figures`] finds measured figures that
//! are no link. [`provenance`] says which commit each result file was measured at, and whether the
//! measured code has changed since.

mod bare;
mod formula;
mod lookup;
pub mod provenance;
mod text;

pub use bare::{Bare, bare_figures};
pub use text::{Figure, figures, updated};

use std::path::PathBuf;

/// A figure without a value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: cannot be read: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        cause: std::io::Error,
    },
    /// A result file is no JSON.
    #[error("{}: is no JSON: {cause}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        cause: serde_json::Error,
    },
    /// A result file has no number at a place.
    #[error("{}: has no number at {place}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The path into the file.
        place: String,
    },
    /// A formula cannot be read.
    #[error("the formula {formula:?} is not of the form \"A OP B\", such as \"1000 / x\"")]
    Formula {
        /// The formula.
        formula: String,
    },
    /// The text of a figure's link begins with no number.
    #[error("the link {text:?} to {target} begins with no number")]
    NoNumber {
        /// The link's text.
        text: String,
        /// The link's target.
        target: String,
    },
}
