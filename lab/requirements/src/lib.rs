//! Traces the requirements of the RFCs on a NAT: for each requirement the code that decides it and
//! the test that shows it.
//!
//! The files `requirements/rfcNNNN.toml` ([`Rfc`]) list the requirements. Source files cite them in
//! comment lines of their own ([`Citation`]):
//!
//! ```text
//!     //= rfc4787#REQ-9            above or beside the deciding code
//!     //= test rfc4787#REQ-9       above a test of the requirement
//! ```
//!
//! [`Matrix::trace`] combines both and reports problems ([`Problem`]): requirements without code or
//! test, citations of unknown requirements, and citations of tests above other code.
//! [`Matrix::page`] is docs/conformance.md. It names functions and not lines, so it changes only
//! with the cited items. People have to judge the quality of the tests.

mod citation;
mod matrix;
mod page;
mod problem;
mod requirement;
#[cfg(test)]
mod sample;
mod search;
mod source;

pub use citation::{Citation, Cited};
pub use matrix::{Matrix, Row};
pub use page::PAGE;
pub use problem::Problem;
pub use requirement::{Id, Level, Requirement, Rfc};

use std::io;
use std::path::PathBuf;

/// Reason why a tree cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
    /// A file of requirements is invalid.
    #[error("{}: {message}", path.display())]
    Requirements {
        /// The file.
        path: PathBuf,
        /// The problem and the correct form.
        message: String,
    },
}
