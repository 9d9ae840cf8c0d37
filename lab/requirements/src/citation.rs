//! Citations: comment lines in Rust files that name the requirement of the code or test beside
//! them.

use crate::Id;
use std::fmt;

/// A citation of a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// Number of the RFC.
    pub rfc: u16,
    /// Identifier of the requirement.
    pub id: Id,
    /// File, relative to the tree, with `/`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Cited code or test.
    pub cited: Cited,
}

/// Context of a citation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cited {
    /// Code, with the function or other item around it.
    Code(Option<String>),
    /// A test, and its name.
    Test(String),
}

impl fmt::Display for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Cited::Code(Some(name)) | Cited::Test(name)) = &self.cited else {
            return write!(f, "{}:{}", self.file, self.line);
        };
        write!(f, "{}:{} {name}", self.file, self.line)
    }
}
