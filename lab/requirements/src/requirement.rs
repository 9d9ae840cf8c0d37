//! Requirements in `requirements/rfcNNNN.toml`. The reader is strict: an unknown key, a level that
//! RFC 2119 lacks, or a repeated identifier is an error, because a misread requirement would be
//! ignored.

use crate::Error;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

/// The requirements of one RFC, in its order.
#[derive(Clone, Debug)]
pub struct Rfc {
    /// Number of the RFC.
    pub number: u16,
    /// Title.
    pub title: String,
    /// Requirements of the RFC.
    pub requirements: Vec<Requirement>,
}

/// One requirement of an RFC.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Identifier within the RFC.
    pub id: Id,
    /// Level of the requirement.
    pub level: Level,
    /// The requirement, in one sentence.
    pub text: String,
    /// Reason why natgate does not meet the requirement.
    pub exception: Option<String>,
}

/// Identifier of a requirement: `REQ-5a` or `REC-5`, or `section-2.2` if an RFC does not number its
/// requirements. Both may be followed by `-` and words that distinguish parts without letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Id(String);

impl Id {
    /// Parses an identifier; `None` if the text is none.
    pub fn new(text: &str) -> Option<Self> {
        let mut kinds = ["REQ-", "REC-", "section-"].into_iter();
        let rest = kinds.find_map(|kind| text.strip_prefix(kind))?;
        let good = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let ends_well = rest.ends_with(|c: char| c.is_ascii_alphanumeric());
        let is_id = rest.starts_with(|c: char| c.is_ascii_digit()) && ends_well;
        (is_id && rest.chars().all(good)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text).ok_or_else(|| {
            format!("{text:?} is no identifier; write one like \"REQ-5a\" or \"section-2.2-reset\"")
        })
    }
}

/// Level of a requirement (RFC 2119), for actions and for prohibitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Level {
    /// MUST, MUST NOT, SHALL, SHALL NOT, REQUIRED.
    Must,
    /// SHOULD, SHOULD NOT, RECOMMENDED, NOT RECOMMENDED.
    Should,
    /// MAY, OPTIONAL.
    May,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
        })
    }
}

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "MUST" | "MUST NOT" | "SHALL" | "SHALL NOT" | "REQUIRED" => Ok(Self::Must),
            "SHOULD" | "SHOULD NOT" | "RECOMMENDED" | "NOT RECOMMENDED" => Ok(Self::Should),
            "MAY" | "OPTIONAL" => Ok(Self::May),
            _ => Err(format!("{text:?} is no level; write one of RFC 2119's, such as \"MUST\"")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    requirement: Vec<Requirement>,
}

impl Rfc {
    /// Requirements of all files in a directory, by number.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be read or is invalid.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>, Error> {
        let read = |error| Error::Read { path: directory.to_owned(), error };
        let mut rfcs = Vec::new();
        for entry in fs::read_dir(directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let text = fs::read_to_string(&path)
                .map_err(|error| Error::Read { path: path.clone(), error })?;
            let rfc = Self::parse(&path, &text)
                .map_err(|message| Error::Requirements { path, message })?;
            rfcs.push(rfc);
        }
        rfcs.sort_by_key(|rfc| rfc.number);
        Ok(rfcs)
    }

    /// Parses one file; the error is a message without the file's name.
    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name
            .strip_prefix("rfc")
            .and_then(|name| name.strip_suffix(".toml"))
            .and_then(|number| number.parse().ok())
            .ok_or("a file of requirements is named like rfc4787.toml")?;
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = file.requirement.iter().find(|one| !seen.insert(&one.id)) {
            return Err(format!("{} is there twice; each requirement has one entry", twice.id));
        }
        Ok(Self { number, title: file.title, requirements: file.requirement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "title = \"T\"\n[[requirement]]\nid = \"REQ-1\"\nlevel = \"MUST NOT\"\n\
                        text = \"Text.\"\n";

    fn parse(name: &str, text: &str) -> Result<Rfc, String> {
        Rfc::parse(Path::new(name), text)
    }

    #[test]
    fn a_good_file_is_read() {
        let rfc = parse("requirements/rfc4787.toml", GOOD).expect("it is good");
        assert_eq!((rfc.number, rfc.title.as_str()), (4787, "T"));
        assert_eq!(rfc.requirements.len(), 1);
        assert_eq!(rfc.requirements[0].level, Level::Must);
        assert_eq!(rfc.requirements[0].exception, None);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let cases = [
            ("rfc1.toml", GOOD.replace("MUST NOT", "OUGHT"), "line 4"),
            ("rfc1.toml", GOOD.replace("MUST NOT", "OUGHT"), "such as \"MUST\""),
            ("rfc1.toml", GOOD.replace("REQ-1", "5a"), "like \"REQ-5a\""),
            ("rfc1.toml", GOOD.replace("title", "titel"), "titel"),
            ("rfc1.toml", GOOD.replace("text", "txt"), "txt"),
            ("rfc1.toml", format!("{GOOD}[[requirement]]\nid = \"REQ-2\"\n"), "level"),
            ("rfc1.toml", format!("{GOOD}{}", &GOOD[12..]), "REQ-1 is there twice"),
            ("rfc4787.tml", GOOD.to_owned(), "rfc4787.toml"),
            ("4787.toml", GOOD.to_owned(), "rfc4787.toml"),
        ];
        for (name, text, expected) in cases {
            let message = parse(name, &text).expect_err(expected);
            assert!(message.contains(expected), "{message:?} does not say {expected:?}");
        }
    }

    #[test]
    fn identifiers_are_those_of_the_rfcs() {
        for good in [
            "REQ-1",
            "REC-1",
            "REQ-5a",
            "REQ-14a",
            "REQ-4-answer",
            "section-2.2-reset",
            "section-7",
        ] {
            assert!(Id::new(good).is_some(), "{good}");
        }
        for bad in ["", "REQ-", "REQ-a", "5a", "4.3", "section-", "section-2.", "REQ-1 a", "REQ-1-"]
        {
            assert!(Id::new(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn levels_are_three_however_they_are_put() {
        let level = |text: &str| Level::try_from(text.to_owned());
        for text in ["MUST", "MUST NOT", "SHALL", "SHALL NOT", "REQUIRED"] {
            assert_eq!(level(text), Ok(Level::Must));
        }
        for text in ["SHOULD", "SHOULD NOT", "RECOMMENDED", "NOT RECOMMENDED"] {
            assert_eq!(level(text), Ok(Level::Should));
        }
        for text in ["MAY", "OPTIONAL"] {
            assert_eq!(level(text), Ok(Level::May));
        }
        assert!(level("must").is_err());
    }
}
