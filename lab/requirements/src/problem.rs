//! Problems of citations and requirements, and the sentences about them.

use crate::{Citation, Requirement};
use std::fmt;

/// A problem that needs a correction.
#[derive(Clone, Debug)]
pub enum Problem {
    /// An invalid citation.
    Citation {
        /// File of the citation.
        file: String,
        /// Line number.
        line: usize,
        /// Text of the line.
        text: String,
        /// The problem and the correct form.
        wrong: String,
    },
    /// A citation of a requirement that is not listed.
    Unknown(Citation),
    /// A requirement without code or without a test.
    Lacking {
        /// Number of the RFC.
        rfc: u16,
        /// The requirement.
        requirement: Requirement,
        /// True if the test is missing, false if the code is.
        test: bool,
    },
    /// A citation of code for a listed exception.
    ExceptionCited(Citation),
    /// An exception without a reason.
    Unreasoned {
        /// Number of the RFC.
        rfc: u16,
        /// The requirement.
        requirement: Requirement,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Citation { file, line, text, wrong } => {
                write!(f, "{file}:{line}: {text:?} {wrong}")
            }
            Self::Unknown(Citation { rfc, id, file, line, .. }) => write!(
                f,
                "{file}:{line}: rfc{rfc}#{id} is not listed; list it in requirements/rfc{rfc}.toml"
            ),
            Self::Lacking { rfc, requirement: Requirement { id, level, .. }, test } => {
                let (what, mark) = if *test { ("test", "test ") } else { ("code", "") };
                write!(
                    f,
                    "requirements/rfc{rfc}.toml: {id} ({level}) has no {what}; write \
                     \"//= {mark}rfc{rfc}#{id}\" above it, or give an exception"
                )
            }
            Self::ExceptionCited(Citation { rfc, id, file, line, .. }) => write!(
                f,
                "{file}:{line}: rfc{rfc}#{id} is an exception in requirements/rfc{rfc}.toml and \
                 cited as code; remove one of the two"
            ),
            Self::Unreasoned { rfc, requirement } => write!(
                f,
                "requirements/rfc{rfc}.toml: the exception of {} is empty; write its reason",
                requirement.id
            ),
        }
    }
}
