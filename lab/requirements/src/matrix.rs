//! The matrix of requirements and citations, and its problems.

use crate::search::citations;
use crate::{Citation, Cited, Error, Level, Problem, Requirement, Rfc};
use std::fmt;
use std::path::Path;

/// Code and tests of all requirements.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// RFCs by number, each with its requirements in order.
    pub rfcs: Vec<(Rfc, Vec<Row>)>,
    /// Problems.
    pub problems: Vec<Problem>,
}

/// Code and tests of one requirement.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Code that decides the requirement, by file and line.
    pub code: Vec<Citation>,
    /// Tests that show the requirement, by file and line.
    pub tests: Vec<Citation>,
}

impl Matrix {
    /// Traces the requirements of a tree.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be read, or whose requirements are invalid.
    pub fn trace(root: &Path) -> Result<Self, Error> {
        let rfcs = Rfc::read_all(&root.join("requirements"))?;
        let (citations, problems) = citations(root)?;
        Ok(Self::new(rfcs, citations, problems))
    }

    fn new(rfcs: Vec<Rfc>, citations: Vec<Citation>, problems: Vec<Problem>) -> Self {
        let empty = |rfc: Rfc| {
            let rows = vec![Row::default(); rfc.requirements.len()];
            (rfc, rows)
        };
        let mut matrix = Self { rfcs: rfcs.into_iter().map(empty).collect(), problems };
        for citation in citations {
            matrix.put(citation);
        }
        for (rfc, rows) in &matrix.rfcs {
            for (requirement, row) in rfc.requirements.iter().zip(rows) {
                matrix.problems.extend(lacking(rfc.number, requirement, row));
            }
        }
        matrix
    }

    fn put(&mut self, citation: Citation) {
        let place = self.rfcs.iter_mut().find(|(rfc, _)| rfc.number == citation.rfc).and_then(
            |(rfc, rows)| {
                let at = rfc.requirements.iter().position(|one| one.id == citation.id)?;
                Some((&rfc.requirements[at], &mut rows[at]))
            },
        );
        let Some((requirement, row)) = place else {
            self.problems.push(Problem::Unknown(citation));
            return;
        };
        match citation.cited {
            Cited::Test(_) => row.tests.push(citation),
            Cited::Code(_) if requirement.exception.is_some() => {
                self.problems.push(Problem::ExceptionCited(citation));
            }
            Cited::Code(_) => row.code.push(citation),
        }
    }
}

fn lacking(rfc: u16, requirement: &Requirement, row: &Row) -> Vec<Problem> {
    if let Some(reason) = &requirement.exception {
        let empty = reason.trim().is_empty();
        let requirement = requirement.clone();
        return empty.then_some(Problem::Unreasoned { rfc, requirement }).into_iter().collect();
    }
    if requirement.level == Level::May {
        return Vec::new();
    }
    let kinds = [(false, row.code.is_empty()), (true, row.tests.is_empty())];
    let missing = kinds.into_iter().filter(|(_, missing)| *missing);
    missing
        .map(|(test, _)| Problem::Lacking { rfc, requirement: requirement.clone(), test })
        .collect()
}

impl fmt::Display for Matrix {
    /// Text for a terminal: each requirement with its files and lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rfc, rows) in &self.rfcs {
            writeln!(f, "RFC {}: {}", rfc.number, rfc.title)?;
            for (requirement, row) in rfc.requirements.iter().zip(rows) {
                let Requirement { id, level, text, exception } = requirement;
                writeln!(f, "  {id} {level}: {text}")?;
                for citation in &row.code {
                    writeln!(f, "      code {citation}")?;
                }
                for citation in &row.tests {
                    writeln!(f, "      test {citation}")?;
                }
                if let Some(reason) = exception {
                    writeln!(f, "      exception: {reason}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Tree, cite, cite_test};

    fn requirement(level: &str, more: &str) -> String {
        format!(
            "title = \"T\"\n[[requirement]]\nid = \"REQ-1\"\nlevel = \"{level}\"\n\
             text = \"Text.\"\n{more}\n"
        )
    }

    fn code(id: &str) -> String {
        format!("{}\nfn decides() {{}}\n", cite(id))
    }

    fn test(id: &str) -> String {
        format!("{}\n#[test]\nfn shows() {{}}\n", cite_test(id))
    }

    fn trace(list: String, code: String, test: String) -> Matrix {
        let tree = Tree::new(&[
            ("requirements/rfc1.toml", list),
            ("src/lib.rs", code),
            ("tests/shows.rs", test),
        ]);
        Matrix::trace(tree.path()).expect("the tree can be read")
    }

    fn problems(list: String, code: String, test: String) -> Vec<String> {
        trace(list, code, test).problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn with_code_and_test_all_is_well() {
        for level in ["MUST", "SHOULD", "MAY"] {
            let matrix = trace(requirement(level, ""), code("rfc1#REQ-1"), test("rfc1#REQ-1"));
            assert!(matrix.problems.is_empty());
            let row = &matrix.rfcs[0].1[0];
            assert_eq!((row.code.len(), row.tests.len()), (1, 1));
            let printed = matrix.to_string();
            for part in [level, "code src/lib.rs:1 decides", "test tests/shows.rs:1 shows"] {
                assert!(printed.contains(part), "{printed} does not say {part:?}");
            }
        }
    }

    #[test]
    fn what_is_required_needs_code_and_test() {
        for level in ["MUST", "SHOULD"] {
            let list = || requirement(level, "");
            let found = problems(list(), String::new(), test("rfc1#REQ-1"));
            assert_eq!(found.len(), 1);
            assert!(found[0].contains(&format!("REQ-1 ({level}) has no code")), "{found:?}");
            let found = problems(list(), code("rfc1#REQ-1"), String::new());
            assert_eq!(found.len(), 1);
            assert!(found[0].contains("has no test; write \"//= test rfc1#REQ-1\""), "{found:?}");
            assert_eq!(problems(list(), String::new(), String::new()).len(), 2);
        }
        assert!(problems(requirement("MAY", ""), String::new(), String::new()).is_empty());
    }

    #[test]
    fn an_exception_stands_for_both() {
        let list = || requirement("MUST", "exception = \"Because.\"");
        assert!(problems(list(), String::new(), String::new()).is_empty());
        assert!(problems(list(), String::new(), test("rfc1#REQ-1")).is_empty());
        let found = problems(list(), code("rfc1#REQ-1"), String::new());
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("src/lib.rs:1: rfc1#REQ-1 is an exception"), "{found:?}");
        let found = problems(requirement("MAY", "exception = \" \""), String::new(), String::new());
        assert!(found[0].contains("the exception of REQ-1 is empty"), "{found:?}");
    }

    #[test]
    fn what_is_cited_must_be_listed() {
        for id in ["rfc1#REQ-2", "rfc2#REQ-1"] {
            let found = problems(requirement("MAY", ""), code(id), String::new());
            assert_eq!(found.len(), 1);
            assert!(
                found[0].starts_with(&format!("src/lib.rs:1: {id} is not listed")),
                "{found:?}"
            );
            assert_eq!(problems(requirement("MAY", ""), String::new(), test(id)).len(), 1);
        }
    }

    #[test]
    fn a_citation_that_cannot_be_understood_is_a_problem() {
        let found = problems(requirement("MAY", ""), code("rfc1"), String::new());
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("is no citation"), "{found:?}");
    }

    #[test]
    fn a_tree_without_requirements_cannot_be_traced() {
        let tree = Tree::new(&[("src/lib.rs", String::new())]);
        assert!(matches!(Matrix::trace(tree.path()), Err(Error::Read { .. })));
        let tree = Tree::new(&[("requirements/rfc1.toml", "title = 5".to_owned())]);
        let error = Matrix::trace(tree.path()).expect_err("a title is text").to_string();
        assert!(error.contains("requirements/rfc1.toml") && error.contains("line 1"), "{error}");
    }
}
