//! Words of a line in the vectors' notation: plain words, `name=value` pairs, quoted data, and a
//! packet in braces. A reader takes the words that it understands; remaining words are errors.

use std::collections::BTreeMap;

/// Remaining words of a packet's description.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) plain: Vec<String>,
    values: BTreeMap<String, String>,
    /// The data, from quotes.
    quoted: Option<Vec<u8>>,
    /// The packet in braces.
    pub(crate) inner: Option<Box<Words>>,
}

/// Result with an error sentence about the line.
pub(crate) type Result<T> = std::result::Result<T, String>;

impl Words {
    /// Splits a line into words; a `#` that begins a word begins a comment.
    pub(crate) fn new(line: &str) -> Result<Self> {
        let mut rest = line;
        let words = Self::read(&mut rest)?;
        match rest {
            "" => Ok(words),
            _ => Err("a } without {".into()),
        }
    }

    /// Reads up to the end or a closing brace, which stays.
    fn read(rest: &mut &str) -> Result<Self> {
        let mut words = Self::default();
        loop {
            *rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { return Ok(words) };
            match first {
                '}' => return Ok(words),
                '#' => *rest = "",
                '"' => {
                    let (text, after) = rest[1..].split_once('"').ok_or("a \" without its end")?;
                    words.quoted = Some(text.as_bytes().to_vec());
                    *rest = after;
                }
                '{' => {
                    *rest = &rest[1..];
                    words.inner = Some(Box::new(Self::read(rest)?));
                    *rest = rest.strip_prefix('}').ok_or("a { without }")?;
                }
                _ => {
                    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                    let (word, after) = rest.split_at(end);
                    match word.split_once('=') {
                        Some((name, value)) => {
                            words.values.insert(name.into(), value.into());
                        }
                        None => words.plain.push(word.into()),
                    }
                    *rest = after;
                }
            }
        }
    }

    /// Takes the next plain word.
    pub(crate) fn next(&mut self, what: &str) -> Result<String> {
        if self.plain.is_empty() {
            return Err(format!("{what} is missing"));
        }
        Ok(self.plain.remove(0))
    }

    /// Takes a plain word; returns true if it is there.
    pub(crate) fn flag(&mut self, word: &str) -> bool {
        let at = self.plain.iter().position(|plain| plain == word);
        at.map(|at| self.plain.remove(at)).is_some()
    }

    /// True if a value is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Takes a value as text.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    /// Takes a number.
    pub(crate) fn number<T: TryFrom<u64>>(&mut self, name: &str) -> Result<Option<T>> {
        self.text(name).map(|text| number(&text)).transpose()
    }

    /// Takes bytes in hexadecimal.
    pub(crate) fn hex(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        self.text(name).map(|text| hex(&text)).transpose()
    }

    /// Takes the data: in quotes, `hex=`, or `bytes=` for a number of filler bytes.
    pub(crate) fn data(&mut self) -> Result<Vec<u8>> {
        if let Some(len) = self.number::<u16>("bytes")? {
            return Ok(vec![FILLER; len.into()]);
        }
        Ok(self.hex("hex")?.or(self.quoted.take()).unwrap_or_default())
    }

    /// Fails if any word remains.
    pub(crate) fn end(&self) -> Result<()> {
        let left = self.plain.iter().chain(self.values.keys()).next();
        match left {
            Some(word) => Err(format!("nobody knows what {word} means here")),
            None if self.inner.is_some() => Err("nobody asked for a packet in braces".into()),
            None if self.quoted.is_some() => Err("data is given twice".into()),
            None => Ok(()),
        }
    }
}

/// Filler byte of `bytes=`.
pub(crate) const FILLER: u8 = b'x';

/// Parses a number, decimal or with 0x, with or without a plus.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Result<T> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let value = value.map_err(|error| format!("{text}: {error}"))?;
    T::try_from(value).map_err(|_| format!("{text} is too large"))
}

pub(crate) fn hex(text: &str) -> Result<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(format!("{text}: hexadecimal bytes have two digits each"));
    }
    let byte = |at: usize| {
        u8::from_str_radix(&text[at..at + 2], 16).map_err(|error| format!("{text}: {error}"))
    };
    (0..text.len()).step_by(2).map(byte).collect()
}
