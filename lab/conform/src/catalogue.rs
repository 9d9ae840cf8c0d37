//! Requirements of the RFCs: the project's own lists, one for each document, in `requirements/`.

use serde::Deserialize;
use std::sync::LazyLock;

/// The lists, with the documents' names.
const LISTS: [(&str, &str); 13] = [
    ("rfc4787", include_str!("../../../requirements/rfc4787.toml")),
    ("rfc5382", include_str!("../../../requirements/rfc5382.toml")),
    ("rfc5508", include_str!("../../../requirements/rfc5508.toml")),
    ("rfc5597", include_str!("../../../requirements/rfc5597.toml")),
    ("rfc7857", include_str!("../../../requirements/rfc7857.toml")),
    ("rfc6888", include_str!("../../../requirements/rfc6888.toml")),
    ("rfc6056", include_str!("../../../requirements/rfc6056.toml")),
    ("rfc6864", include_str!("../../../requirements/rfc6864.toml")),
    ("rfc1812", include_str!("../../../requirements/rfc1812.toml")),
    ("rfc4884", include_str!("../../../requirements/rfc4884.toml")),
    ("rfc6146", include_str!("../../../requirements/rfc6146.toml")),
    ("rfc7915", include_str!("../../../requirements/rfc7915.toml")),
    ("rfc7757", include_str!("../../../requirements/rfc7757.toml")),
];

/// A requirement, without a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Requirement {
    /// Name: `rfc4787#REQ-1`.
    pub id: String,
    /// Level in the RFC's word.
    pub level: String,
    /// Requirement, in one sentence.
    pub text: String,
}

#[derive(Deserialize)]
struct List {
    title: String,
    requirement: Vec<Requirement>,
}

static READ: LazyLock<Vec<(&'static str, List)>> = LazyLock::new(|| {
    let read = |(rfc, text): (&'static str, &str)| {
        let mut list: List = toml::from_str(text).expect("a test reads every list");
        for requirement in &mut list.requirement {
            requirement.id.insert_str(0, &format!("{rfc}#"));
        }
        (rfc, list)
    };
    LISTS.map(read).into()
});

/// Every requirement, in order.
pub fn requirements() -> impl Iterator<Item = &'static Requirement> {
    READ.iter().flat_map(|(_, list)| &list.requirement)
}

/// Finds a requirement by its name.
pub(crate) fn find(id: &str) -> Option<&'static Requirement> {
    requirements().find(|requirement| requirement.id == id)
}

/// Place of a requirement in reports; unknown ones come last.
pub(crate) fn rank(id: &str) -> usize {
    requirements().position(|requirement| requirement.id == id).unwrap_or(usize::MAX)
}

/// Title of a document.
pub(crate) fn title(rfc: &str) -> &'static str {
    READ.iter().find(|(name, _)| *name == rfc).map_or("", |(_, list)| &list.title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_their_order_is_kept() {
        assert!(requirements().count() > 200);
        assert!(rank("rfc4787#REQ-9") < rank("rfc4787#REQ-10"));
        assert!(rank("rfc4787#REQ-14a") < rank("rfc5382#REQ-1"));
        assert_eq!(rank("rfc0#REQ-1"), usize::MAX);
        assert!(title("rfc4787").contains("UDP"));
        assert!(requirements().all(|one| !one.level.is_empty() && one.text.ends_with('.')));
    }
}
