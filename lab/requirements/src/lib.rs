//! Traces requirements: for each that an RFC makes of a NAT, the code that decides it and the test
//! that shows it.
//!
//! The requirements stand in `requirements/rfcNNNN.toml` ([`Rfc`]). Source files cite them in
//! comment lines of their own ([`Citation`]):
//!
//! ```text
//!     //= rfc4787#REQ-9            above or beside what decides it
//!     //= test rfc4787#REQ-9       above a test that shows it
//! ```
//!
//! [`Matrix::trace`] puts the two together and says what is wrong ([`Problem`]): something required
//! without code or test, citations that lead nowhere, tests that are none. [`Matrix::page`] is
//! docs/conformance.md. It names functions and not lines, so that it changes only when what answers
//! for a requirement does. Whether a test is a good one, people must judge.

mod citation;
mod matrix;
mod page;
mod requirement;
#[cfg(test)]
mod sample;
mod source;

pub use citation::{Citation, Cited};
pub use matrix::{Matrix, Problem, Row};
pub use page::PAGE;
pub use requirement::{Id, Level, Requirement, Rfc};

use std::io;
use std::path::PathBuf;

/// Why a tree cannot be traced at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file of requirements is not as it should be.
    #[error("{}: {message}", path.display())]
    Requirements {
        /// Which.
        path: PathBuf,
        /// What is wrong and what would be right.
        message: String,
    },
}
