//! The structure of a Rust file, as far as citations need it: the item around a line, and the test
//! below a comment. Lines and their indentation suffice, because rustfmt formats every file. They
//! also work inside macros (proptest's), whose content is only tokens for a parser.

/// Name of the item around a line or directly below it: `take_port`, `PENDING_SYN_NANOS`, `Limits`.
pub(crate) fn enclosing(lines: &[&str], at: usize) -> Option<String> {
    let below = lines[at..].iter().find(|line| !is_prelude(line));
    if let Some(name) = below.and_then(|line| item_name(line)) {
        return Some(name);
    }
    let mut limit = indentation(lines[at]);
    for line in lines[..at].iter().rev().filter(|line| !line.trim().is_empty()) {
        let indentation = indentation(line);
        if indentation < limit
            && let Some(name) = item_name(line)
        {
            return Some(name);
        }
        // The end of a signature of several lines has the indentation of its begin.
        let ends_signature = line.trim_start().starts_with([')', '{']) || line.trim() == "where";
        if !ends_signature {
            limit = limit.min(indentation);
        }
    }
    None
}

/// Name of the test below the line, among its attributes and comments.
pub(crate) fn test_below(lines: &[&str], at: usize) -> Result<String, &'static str> {
    let start = lines[..at].iter().rposition(|line| !is_attached(line)).map_or(0, |line| line + 1);
    let end = lines[at..].iter().position(|line| !is_attached(line)).map(|lines| at + lines);
    let Some(end) = end else { return Err("nothing") };
    let Some(name) = function_name(lines[end]) else { return Err("something else") };
    let has = |attribute: &str| lines[start..end].iter().any(|line| line.trim() == attribute);
    if !has("#[test]") {
        return Err("a function without #[test]");
    }
    if lines[start..end].iter().any(|line| line.trim().starts_with("#[ignore")) {
        return Err("a test that is ignored");
    }
    Ok(name)
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns true for a comment or an attribute.
fn is_attached(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with("#[")
}

/// Returns true for lines that may lie between a citation and its item.
fn is_prelude(line: &str) -> bool {
    is_attached(line) || line.trim().is_empty()
}

/// Words that may come before the keyword of an item.
const QUALIFIERS: [&str; 4] = ["default", "async", "unsafe", "extern"];

/// Name of the item that begins on a line.
fn item_name(line: &str) -> Option<String> {
    let mut rest = without_visibility(line.trim_start());
    loop {
        let (word, after) = rest.split_once(' ')?;
        let name = || identifier(after);
        match word {
            "fn" | "static" | "struct" | "enum" | "trait" | "mod" | "type" | "macro_rules!" => {
                return name();
            }
            "const" if !after.starts_with("fn ") => return name(),
            "impl" => return implemented(after),
            word if word.starts_with("impl<") => return implemented(rest),
            "const" => {}
            word if QUALIFIERS.contains(&word) => {}
            _ => return None,
        }
        rest = after;
    }
}

fn function_name(line: &str) -> Option<String> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let only_words = before.chars().all(|c| c.is_ascii_alphanumeric() || "() ".contains(c));
    only_words.then(|| identifier(after)).flatten()
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = match rest.strip_prefix('(') {
        Some(inner) => inner.split_once(')').map_or(rest, |(_, after)| after),
        None => rest,
    };
    rest.trim_start()
}

/// Type of an `impl`.
fn implemented(text: &str) -> Option<String> {
    let text = text.split_once(" for ").map_or(text, |(_, of)| of);
    identifier(text.trim_start_matches("impl"))
}

fn identifier(text: &str) -> Option<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let name: String = text.chars().take_while(|&c| is_part(c)).collect();
    (!name.is_empty() && name != "_").then_some(name)
}

#[cfg(test)]
mod tests {
    /// Lines of a text, and the index of the marked line.
    fn marked(text: &str) -> (Vec<&str>, usize) {
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.contains("@@")).expect("a mark");
        (lines, at)
    }

    fn enclosing(text: &str) -> Option<String> {
        let (lines, at) = marked(text);
        super::enclosing(&lines, at)
    }

    fn test_below(text: &str) -> Result<String, &'static str> {
        let (lines, at) = marked(text);
        super::test_below(&lines, at)
    }

    #[test]
    fn a_line_above_an_item_is_about_it() {
        for (item, name) in [
            ("fn one() {}", "one"),
            ("pub(super) const fn two() {}", "two"),
            ("pub const SIX: u64 = 6;", "SIX"),
            ("const _: () = ();\nfn three() {}", ""),
            ("impl Display for Four {", "Four"),
            ("impl Five {", "Five"),
            ("pub enum Six {", "Six"),
            ("macro_rules! seven {", "seven"),
            ("#[inline]\npub(crate) unsafe fn eight<T>() {}", "eight"),
        ] {
            let found = enclosing(&format!("// @@\n{item}"));
            assert_eq!(found.as_deref().unwrap_or_default(), name, "{item}");
        }
    }

    #[test]
    fn a_line_within_is_about_what_is_around_it() {
        let method = r#"
fn before() {}

impl Engine {
    fn sibling() {
        let x = 1;
    }

    pub(super) fn around(
        &mut self,
    ) -> Result<(), DropReason>
    where
        T: Copy,
    {
        const Y: u8 = 1;
        if x {
            // @@
            y();
        }
    }
}"#;
        let list = "fn before() {}\n\nconst LIST: [u8; 2] = [\n    // @@\n    1,\n    2,\n];";
        let field = r#"
impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // @@
            udp: 5,
        }
    }
}"#;
        let nothing = "drop_reasons! {\n    // @@\n    One;\n}";
        for (text, name) in [(method, "around"), (list, "LIST"), (field, "default"), (nothing, "")]
        {
            assert_eq!(enclosing(text).unwrap_or_default(), name, "{text}");
        }
    }

    #[test]
    fn a_test_is_told_by_its_attribute() {
        let name = Ok("shows".to_owned());
        assert_eq!(test_below("// @@\n#[test]\nfn shows() {}"), name);
        assert_eq!(test_below("    /// Why.\n    // @@\n    #[test]\n    fn shows() {}"), name);
        assert_eq!(test_below("#[test]\n// @@\nfn shows() {}"), name);
        assert_eq!(test_below("// @@\n// more\n#[test]\n#[should_panic]\nfn shows() {}"), name);
        assert_eq!(test_below("    // @@\n    #[test]\n    fn shows(x in 0..5) {"), name);
    }

    #[test]
    fn what_is_no_test_is_refused() {
        for (text, found) in [
            ("// @@\nfn helper() {}", "a function without #[test]"),
            ("// @@\n\n#[test]\nfn far() {}", "something else"),
            ("#[test]\nfn before() {\n    // @@\n    assert!(true);\n}", "something else"),
            ("#[test]\n\n// @@\nfn helper() {}", "a function without #[test]"),
            ("// @@\n#[test]\n#[ignore = \"slow\"]\nfn ignored() {}", "a test that is ignored"),
            ("fn last() {}\n// @@", "nothing"),
        ] {
            assert_eq!(test_below(text), Err(found), "{text}");
        }
    }
}
