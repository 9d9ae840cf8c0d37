//! docs/conformance.md: the matrix for readers.

use crate::{Citation, Cited, Level, Matrix, Requirement, Rfc, Row};
use std::fmt::{self, Write};

/// Path of the page in the tree.
pub const PAGE: &str = "docs/conformance.md";

const OPENING: &str = "\
# Requirements, with their code and tests

`make requirements` writes this page from the lists in `requirements/` and from citations in the
source; do not edit it. A MUST or SHOULD needs code and a test, or an exception with its reason;
otherwise the tests fail. The requirements are in our own words; the links lead to the RFCs.
";

impl Matrix {
    /// The page, in Markdown.
    pub fn page(&self) -> String {
        let mut page = String::from(OPENING);
        self.write_page(&mut page).expect("a string takes all text");
        page
    }

    fn write_page(&self, page: &mut String) -> fmt::Result {
        page.push_str("\n| RFC | requirements | code and test | exceptions | other options |\n");
        page.push_str("|---|---|---|---|---|\n");
        for (rfc, rows) in &self.rfcs {
            write_total(page, rfc, rows)?;
        }
        for (rfc, rows) in &self.rfcs {
            let Rfc { number, title, .. } = rfc;
            writeln!(page, "\n## RFC {number}: {title}\n\n<{}>\n", address(*number))?;
            page.push_str("| requirement | level | text | code | test |\n|---|---|---|---|---|\n");
            for (requirement, row) in rfc.requirements.iter().zip(rows) {
                write_row(page, requirement, row)?;
            }
        }
        Ok(())
    }
}

fn address(number: u16) -> String {
    format!("https://www.rfc-editor.org/rfc/rfc{number}")
}

fn write_total(page: &mut String, rfc: &Rfc, rows: &[Row]) -> fmt::Result {
    let excepted = |one: &Requirement| one.exception.is_some();
    let exceptions = rfc.requirements.iter().filter(|one| excepted(one)).count();
    let pairs = || rfc.requirements.iter().zip(rows).filter(|(one, _)| !excepted(one));
    let shown = pairs().filter(|(_, row)| !row.code.is_empty() && !row.tests.is_empty()).count();
    let others = pairs().count() - shown;
    let (number, all) = (rfc.number, rfc.requirements.len());
    let anchor: String = format!("rfc {number} {}", rfc.title)
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect();
    writeln!(page, "| [{number}](#{anchor}) | {all} | {shown} | {exceptions} | {others} |")
}

fn write_row(page: &mut String, requirement: &Requirement, row: &Row) -> fmt::Result {
    let Requirement { id, level, text, exception } = requirement;
    let text = cell(text);
    let lacking = match level {
        Level::Must | Level::Should => "**lacking**",
        Level::May => "not used",
    };
    let code = match exception {
        Some(reason) => format!("Exception: {}", cell(reason)),
        None => places(&row.code).unwrap_or_else(|| lacking.to_owned()),
    };
    let none = if exception.is_some() || *level == Level::May { "" } else { lacking };
    let tests = places(&row.tests).unwrap_or_else(|| none.to_owned());
    writeln!(page, "| {id} | {level} | {text} | {code} | {tests} |")
}

/// Text escaped for a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Places of citations without repetitions; `None` if there are none.
fn places(citations: &[Citation]) -> Option<String> {
    let mut places: Vec<String> = citations.iter().map(place).collect();
    places.sort();
    places.dedup();
    (!places.is_empty()).then(|| places.join("<br>"))
}

fn place(citation: &Citation) -> String {
    let Citation { file, cited, .. } = citation;
    let link = format!("[{file}](../{file})");
    match cited {
        Cited::Code(Some(name)) | Cited::Test(name) => format!("{link} `{name}`"),
        Cited::Code(None) => link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Tree, cite, cite_test};

    const LIST: &str = r#"
title = "Behavior of A/B"
[[requirement]]
id = "REQ-1"
level = "MUST NOT"
text = "One | two."
[[requirement]]
id = "REQ-1a"
level = "SHOULD"
text = "Three."
exception = "Not here."
[[requirement]]
id = "REQ-2"
level = "MAY"
text = "Four."
[[requirement]]
id = "REQ-3"
level = "MUST"
text = "Five."
"#;

    fn page(above: &str) -> String {
        let code =
            format!("{above}fn decides() {{\n    {0}\n    x();\n    {0}\n}}\n", cite("rfc9#REQ-1"));
        let test = format!("{above}{}\n#[test]\nfn shows() {{}}\n", cite_test("rfc9#REQ-1"));
        let tree = Tree::new(&[
            ("requirements/rfc9.toml", LIST.to_owned()),
            ("core/a/src/lib.rs", code),
            ("core/a/tests/t.rs", test),
        ]);
        Matrix::trace(tree.path()).expect("the tree can be read").page()
    }

    #[test]
    fn each_requirement_has_its_row() {
        let page = page("");
        for row in [
            "| [9](#rfc-9-behavior-of-ab) | 4 | 1 | 1 | 2 |",
            "## RFC 9: Behavior of A/B",
            "| REQ-1 | MUST | One \\| two. | [core/a/src/lib.rs](../core/a/src/lib.rs) `decides` \
             | [core/a/tests/t.rs](../core/a/tests/t.rs) `shows` |",
            "| REQ-1a | SHOULD | Three. | Exception: Not here. |  |",
            "| REQ-2 | MAY | Four. | not used |  |",
            "| REQ-3 | MUST | Five. | **lacking** | **lacking** |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row:?} is not in\n{page}");
        }
    }

    #[test]
    fn moving_code_within_its_file_does_not_change_the_page() {
        assert_eq!(page(""), page("fn more() {}\n\n"));
    }
}
