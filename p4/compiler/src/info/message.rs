//! Writing of protocol-buffer messages: fields by number and name, as text and as bytes from one
//! tree.
//!
//! As in proto3, zero and empty fields are not written. Keys and numbers are coded by prost. Its
//! derived types do not serve here, because they know no names of fields.

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use std::fmt::Write;

#[derive(Clone, Debug)]
enum Value {
    Message(Message),
    Text(String),
    Number(u64),
    /// A member of an enum: its number and name.
    Choice(u64, &'static str),
    Flag,
}

/// A message: its fields in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<(u32, &'static str, Value)>);

impl Message {
    fn with(mut self, number: u32, name: &'static str, value: Value) -> Self {
        debug_assert!(self.0.last().is_none_or(|last| last.0 <= number), "{name}");
        self.0.push((number, name, value));
        self
    }

    pub(super) fn message(self, number: u32, name: &'static str, value: Self) -> Self {
        self.with(number, name, Value::Message(value))
    }

    pub(super) fn messages(
        self,
        number: u32,
        name: &'static str,
        values: impl IntoIterator<Item = Self>,
    ) -> Self {
        values.into_iter().fold(self, |all, value| all.message(number, name, value))
    }

    pub(super) fn text(self, number: u32, name: &'static str, value: &str) -> Self {
        match value {
            "" => self,
            value => self.with(number, name, Value::Text(value.to_owned())),
        }
    }

    pub(super) fn number(self, number: u32, name: &'static str, value: impl Into<u64>) -> Self {
        match value.into() {
            0 => self,
            value => self.with(number, name, Value::Number(value)),
        }
    }

    pub(super) fn choice(self, number: u32, name: &'static str, of: (u64, &'static str)) -> Self {
        match of {
            (0, _) => self,
            (value, member) => self.with(number, name, Value::Choice(value, member)),
        }
    }

    pub(super) fn flag(self, number: u32, name: &'static str, value: bool) -> Self {
        match value {
            true => self.with(number, name, Value::Flag),
            false => self,
        }
    }

    /// The text format.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text, 0);
        text
    }

    fn write_text(&self, text: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        for (_, name, value) in &self.0 {
            let written = match value {
                Value::Message(message) => {
                    let _ = writeln!(text, "{indent}{name} {{");
                    message.write_text(text, depth + 1);
                    writeln!(text, "{indent}}}")
                }
                Value::Text(value) => writeln!(text, "{indent}{name}: \"{}\"", escaped(value)),
                Value::Number(value) => writeln!(text, "{indent}{name}: {value}"),
                Value::Choice(_, member) => writeln!(text, "{indent}{name}: {member}"),
                Value::Flag => writeln!(text, "{indent}{name}: true"),
            };
            debug_assert!(written.is_ok(), "a string takes all");
        }
    }

    /// The binary format.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, _, value) in &self.0 {
            let mut put = |kind: WireType, head: u64, tail: &[u8]| {
                encode_key(*number, kind, &mut bytes);
                encode_varint(head, &mut bytes);
                bytes.extend_from_slice(tail);
            };
            let mut put_bytes =
                |tail: &[u8]| put(WireType::LengthDelimited, tail.len() as u64, tail);
            match value {
                Value::Message(message) => put_bytes(&message.to_bytes()),
                Value::Text(text) => put_bytes(text.as_bytes()),
                Value::Number(value) | Value::Choice(value, _) => {
                    put(WireType::Varint, *value, &[]);
                }
                Value::Flag => put(WireType::Varint, 1, &[]),
            }
        }
        bytes
    }

    /// First difference to another message of the same type, given as bytes. Fields in `ignored`
    /// are skipped. Fields with different numbers may come in any order.
    pub(super) fn difference(&self, bytes: &[u8], path: &str, ignored: &[u32]) -> Option<String> {
        let Some(mut theirs) = fields(bytes) else {
            return Some(format!("`{path}` is no protocol-buffer message"));
        };
        theirs.retain(|(number, _)| !ignored.contains(number));
        theirs.sort_by_key(|(number, _)| *number);
        let mut theirs = theirs.into_iter();
        for (number, name, value) in self.0.iter().filter(|field| !ignored.contains(&field.0)) {
            let path = format!("{path}.{name}");
            let is_same = match (value, theirs.next().filter(|(theirs, _)| theirs == number)) {
                (Value::Message(message), Some((_, Field::Bytes(bytes)))) => {
                    match message.difference(bytes, &path, &[]) {
                        Some(difference) => return Some(difference),
                        None => true,
                    }
                }
                (Value::Text(text), Some((_, Field::Bytes(bytes)))) => text.as_bytes() == bytes,
                (
                    Value::Number(ours) | Value::Choice(ours, _),
                    Some((_, Field::Number(theirs))),
                ) => *ours == theirs,
                (Value::Flag, Some((_, Field::Number(theirs)))) => theirs == 1,
                _ => false,
            };
            if !is_same {
                return Some(format!("`{path}` is another"));
            }
        }
        theirs.next().map(|(number, _)| format!("`{path}` has a field {number} that is not there"))
    }
}

/// Characters of a string, with special ones escaped.
fn escaped(text: &str) -> String {
    let escape = |one: char| match one {
        '"' | '\\' => format!("\\{one}"),
        one if one.is_ascii_control() => format!("\\{:03o}", one as u32),
        one => one.to_string(),
    };
    text.chars().map(escape).collect()
}

/// A received field.
enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// Fields of a message; `None` if the bytes are no message.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u32, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (number, kind) = decode_key(&mut bytes).ok()?;
        let value = decode_varint(&mut bytes).ok()?;
        let field = match kind {
            WireType::Varint => Field::Number(value),
            WireType::LengthDelimited => {
                let (taken, rest) = bytes.split_at_checked(usize::try_from(value).ok()?)?;
                bytes = rest;
                Field::Bytes(taken)
            }
            _ => return None,
        };
        fields.push((number, field));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: u64) -> Message {
        let inner = Message::default().number(1, "id", 300_u64).text(2, "name", "x.y");
        let outer = Message::default().message(1, "preamble", inner).flag(10, "is_const", true);
        outer.number(100, "size", size).text(101, "nothing", "").choice(102, "kind", (2, "EXACT"))
    }

    #[test]
    fn text_and_bytes_are_those_of_the_format() {
        assert_eq!(
            message(0).to_text(),
            "preamble {\n  id: 300\n  name: \"x.y\"\n}\nis_const: true\nkind: EXACT\n"
        );
        let bytes = [0x0a, 8, 0x08, 0xac, 0x02, 0x12, 3, b'x', b'.', b'y', 0x50, 1, 0xb0, 0x06, 2];
        assert_eq!(message(0).to_bytes(), bytes);
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(escaped("a\"b\\c\n\u{e9}"), "a\\\"b\\\\c\\012\u{e9}");
    }

    #[test]
    fn differences_are_told_by_their_place() {
        let ours = message(7);
        let difference = |bytes: &[u8]| ours.difference(bytes, "t", &[]);
        assert_eq!(difference(&ours.to_bytes()), None);
        assert_eq!(difference(&message(8).to_bytes()).as_deref(), Some("`t.size` is another"));
        assert_eq!(ours.difference(&message(8).to_bytes(), "t", &[100]), None);
        let other = Message::default().message(1, "preamble", Message::default());
        assert_eq!(difference(&other.to_bytes()).as_deref(), Some("`t.preamble.id` is another"));
        // The fields come in another order, and with more in it.
        let mut turned = ours.to_bytes();
        turned.rotate_left(10);
        assert_eq!(difference(&turned), None);
        turned.extend([0xf8, 0x07, 1]);
        let more = "`t` has a field 127 that is not there";
        assert_eq!(difference(&turned).as_deref(), Some(more));
        assert_eq!(difference(&[0x0a, 200]).as_deref(), Some("`t` is no protocol-buffer message"));
    }
}
