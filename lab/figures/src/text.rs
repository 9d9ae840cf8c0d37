//! Figures of a text: links to values of result files.

use crate::{Error, formula, lookup};
use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A figure in a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Bytes of the link's text in the document.
    pub range: Range<usize>,
    /// Text of the link.
    pub text: String,
    /// Target of the link: a file, `#`, a path into the file.
    pub target: String,
    /// Text according to the result file.
    pub wanted: String,
}

/// A link to a value in a text.
struct Link {
    target: String,
    formula: String,
}

/// Figures of a Markdown text with links relative to `folder`, in order.
///
/// # Errors
/// A result file that cannot be read, a path without a number, an invalid formula, or a link whose
/// text does not begin with a number.
pub fn figures(markdown: &str, folder: &Path) -> Result<Vec<Figure>, Error> {
    let mut results = Results { folder: folder.into(), files: HashMap::new() };
    let mut link = None;
    let mut found = Vec::new();
    for (event, range) in Parser::new_ext(markdown, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, title, .. }) => {
                let is_figure = dest_url.contains(".json#/");
                link = is_figure
                    .then(|| Link { target: dest_url.to_string(), formula: title.to_string() });
            }
            Event::Text(text) => {
                if let Some(link) = link.take() {
                    let value = results.value(&link)?;
                    let wanted = formatted(&text, value).ok_or_else(|| Error::NoNumber {
                        text: text.to_string(),
                        target: link.target.clone(),
                    })?;
                    let text = text.to_string();
                    found.push(Figure { range, text, target: link.target, wanted });
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The text with every figure replaced by its value.
///
/// # Errors
/// The errors of [`figures`].
pub fn updated(markdown: &str, folder: &Path) -> Result<String, Error> {
    let mut text = markdown.to_owned();
    for figure in figures(markdown, folder)?.iter().rev() {
        text.replace_range(figure.range.clone(), &figure.wanted);
    }
    Ok(text)
}

/// Result files, each read once.
struct Results {
    folder: PathBuf,
    files: HashMap<PathBuf, Value>,
}

impl Results {
    fn value(&mut self, link: &Link) -> Result<f64, Error> {
        let (file, place) = link.target.split_once('#').unwrap_or((&link.target, ""));
        let path = self.folder.join(file);
        let root = self.file(&path)?;
        let missing = || Error::Missing { path: path.clone(), place: place.to_owned() };
        let x = lookup::number(root, place).ok_or_else(missing)?;
        formula::evaluate(&link.formula, x, |place| lookup::number(root, place))
            .ok_or_else(|| Error::Formula { formula: link.formula.clone() })
    }

    fn file(&mut self, path: &Path) -> Result<&Value, Error> {
        if !self.files.contains_key(path) {
            let text = std::fs::read_to_string(path)
                .map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
            let value = serde_json::from_str(&text)
                .map_err(|cause| Error::Json { path: path.to_owned(), cause })?;
            self.files.insert(path.to_owned(), value);
        }
        Ok(&self.files[path])
    }
}

/// A value in the form of the number at the begin of a text: with equal decimals and grouping of
/// thousands. The rest of the text stays. `None` if the text does not begin with a number.
fn formatted(text: &str, value: f64) -> Option<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let unsigned = text.strip_prefix(['-', '+', '−']).unwrap_or(text);
    let sign = &text[..text.len() - unsigned.len()];
    let end = unsigned.find(|c| !is_part(c)).unwrap_or(unsigned.len());
    let number = unsigned[..end].trim_end_matches(['.', ',']);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let mut plain = format!("{:.decimals$}", value.abs());
    if number.contains(',') {
        plain = grouped(&plain);
    }
    let sign = match (value < 0.0, sign) {
        (true, _) => "-",
        (false, "+") => "+",
        (false, _) => "",
    };
    Some(format!("{sign}{plain}{}", &unsigned[number.len()..]))
}

/// A number with its thousands grouped by commas.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_form_of_the_number_that_stands_there() {
        for (text, value, wanted) in [
            ("108", 112.7, "113"),
            ("9.2", 8.26, "8.3"),
            ("1,564,616", 2000.4, "2,000"),
            ("-34 %", -37.6, "-38 %"),
            ("+26 %", 4.2, "+4 %"),
            ("+26 %", -4.2, "-4 %"),
            ("5.7 M/s", 1.6, "1.6 M/s"),
        ] {
            assert_eq!(formatted(text, value).as_deref(), Some(wanted), "{text}");
        }
        assert_eq!(formatted("about 5", 1.0), None);
    }

    #[test]
    fn links_to_values_are_found_and_written() {
        let folder = std::env::temp_dir().join(format!("natgate-figures-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.json"), r#"{"ns": 50.0, "limit": 10}"#).unwrap();
        let text = "It takes [99][ns] ns, [5.0 times](a.json#/ns \"x / /limit\") the limit.\n\n\
                    | a |\n|---|\n| [1][rate] M/s, [a page](a.json) |\n\n\
                    [ns]: a.json#/ns\n[rate]: a.json#/ns \"1000 / x\"\n";
        let found = figures(text, &folder).unwrap();
        let texts: Vec<[&str; 2]> =
            found.iter().map(|figure| [&*figure.text, &*figure.wanted]).collect();
        assert_eq!(texts, [["99", "50"], ["5.0 times", "5.0 times"], ["1", "20"]]);
        let new = updated(text, &folder).unwrap();
        assert!(new.contains("[50][ns] ns") && new.contains("| [20][rate] M/s"), "{new}");
        assert_eq!(updated(&new, &folder).unwrap(), new);

        let message = |text: &str| figures(text, &folder).unwrap_err().to_string();
        assert!(message("[1](b.json#/ns)").contains("b.json: cannot be read"));
        assert!(message("[1](a.json#/none)").ends_with("has no number at /none"));
        assert!(message("[1](a.json#/ns \"x ^ 2\")").contains("\"x ^ 2\" is not of the form"));
        assert!(message("[one](a.json#/ns)").contains("begins with no number"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
