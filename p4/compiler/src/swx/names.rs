//! Names for the pipeline: short, of letters and digits, unique within their kind.

use std::collections::BTreeSet;

/// Longest name before a number is appended. Names that combine two stay below 64.
const MOST: usize = 24;

/// Names in use.
#[derive(Debug, Default)]
pub(super) struct Names {
    headers: BTreeSet<String>,
    metas: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl Names {
    /// Name of a header, from the last part of its full name.
    pub(super) fn header(&mut self, full: &str) -> String {
        take(&mut self.headers, last(full))
    }

    /// Name of a piece of metadata, from its name within its control.
    pub(super) fn meta(&mut self, full: &str) -> String {
        let own = full.split_once('.').map_or(full, |(_, own)| own);
        let own = own.strip_prefix("meta.").unwrap_or(own);
        take(&mut self.metas, own)
    }

    /// Name of a table, action, array or object, from the last part of its full name.
    pub(super) fn other(&mut self, full: &str) -> String {
        take(&mut self.others, last(full))
    }

    /// Name of a header's field, unique among `before`.
    pub(super) fn field(own: &str, before: &[(String, u32)]) -> String {
        let mut taken: BTreeSet<String> = before.iter().map(|(name, _)| name.clone()).collect();
        take(&mut taken, own)
    }
}

fn last(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}

fn take(taken: &mut BTreeSet<String>, wanted: &str) -> String {
    let name: String = wanted
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .collect();
    let name = name.trim_matches('_');
    let name = &name[..name.len().min(MOST)];
    let name = if name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        format!("x{name}")
    };
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.expect("numbers do not end");
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_each_is_there_once() {
        let mut names = Names::default();
        assert_eq!(names.header("NatParser.hdr.ethernet"), "ethernet");
        assert_eq!(names.header("Other.hdr.ethernet"), "ethernet_2");
        assert_eq!(names.meta("NatMain.meta.reason"), "reason");
        assert_eq!(names.meta("Main.translate.$tmp"), "translate__tmp");
        assert_eq!(names.other("Main.0"), "x0");
        let long = names.other(&"a".repeat(80));
        assert_eq!(long.len(), MOST);
        assert_eq!(Names::field("a.b", &[("a_b".to_owned(), 8)]), "a_b_2");
    }
}
