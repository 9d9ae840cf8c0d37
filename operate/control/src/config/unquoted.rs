//! Values without quotes. TOML refuses them with messages such as "invalid float", which do not
//! help with `address = 10.0.0.1`. This module looks at the line of such an error again. A value
//! that only lacks quotes gets a sentence that shows it with them.

use super::values;
use std::net::Ipv6Addr;

/// Longest value that is examined, bytes.
const LONGEST: usize = 128;

/// A value that lacks its quotes.
pub(super) struct Unquoted {
    /// Byte offset of the value in the line.
    pub(super) offset: usize,
    /// One sentence: the fault and the remedy.
    pub(super) message: String,
}

/// Finds the first value of a line that lacks its quotes.
pub(super) fn find(line: &str) -> Option<Unquoted> {
    // The header of a table has no values.
    if line.trim_start().starts_with('[') {
        return None;
    }
    let mut key = None;
    let bare = words(line);
    bare.iter().enumerate().find_map(|(at, word)| {
        let is_key = bare.get(at + 1).is_some_and(|next| next.text == "=");
        if is_key || word.text == "=" {
            key = Some(word.text).filter(|_| is_key).or(key);
            return None;
        }
        let follows_key = at > 0 && bare[at - 1].text == "=";
        let shown = word.text;
        let message = match (remedy(shown)?, key.filter(|_| follows_key && !word.in_array)) {
            (Remedy::Quotes(kind), Some(key)) => {
                format!("{shown} is {kind} without quotes; write {key} = \"{shown}\"")
            }
            (Remedy::Quotes(kind), None) => {
                format!("{shown} is {kind} without quotes; write \"{shown}\"")
            }
            (Remedy::Instead(value), _) => format!("{shown} is no value of TOML; write {value}"),
        };
        Some(Unquoted { offset: word.offset, message })
    })
}

/// A piece of a line outside quotes and comments: a key, `=`, or a value.
struct Word<'a> {
    offset: usize,
    text: &'a str,
    in_array: bool,
}

/// Splits a line into pieces.
fn words(line: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    let (mut begin, mut quote, mut in_array) = (None, None, false);
    let end_word = |words: &mut Vec<_>, begin: &mut Option<usize>, end, in_array| {
        if let Some(offset) = begin.take() {
            words.push(Word { offset, text: &line[offset..end], in_array });
        }
    };
    for (at, letter) in line.char_indices() {
        if let Some(open) = quote {
            if letter == open {
                quote = None;
            }
            continue;
        }
        match letter {
            '"' | '\'' => {
                quote = Some(letter);
                // A quote ends the piece before it.
                end_word(&mut words, &mut begin, at, in_array);
            }
            '#' => {
                end_word(&mut words, &mut begin, at, in_array);
                return words;
            }
            ' ' | '\t' | '\r' | ',' | '{' | '}' | '[' | ']' | '=' => {
                end_word(&mut words, &mut begin, at, in_array);
                match letter {
                    '=' => words.push(Word { offset: at, text: "=", in_array }),
                    '[' => in_array = true,
                    ']' => in_array = false,
                    _ => {}
                }
            }
            _ => begin = begin.or(Some(at)),
        }
    }
    end_word(&mut words, &mut begin, line.len(), in_array);
    words
}

/// The remedy for a value.
enum Remedy {
    /// Write the value in quotes; the text names its kind.
    Quotes(&'static str),
    /// Write another value.
    Instead(&'static str),
}

/// The remedy for a value without quotes. `None`: a TOML value, or an unknown one.
fn remedy(text: &str) -> Option<Remedy> {
    if text.len() > LONGEST || text.chars().any(char::is_control) {
        return None;
    }
    match text.to_ascii_lowercase().as_str() {
        "true" | "false" if text.chars().all(|letter| letter.is_ascii_lowercase()) => return None,
        "inf" | "nan" => return None,
        "true" | "yes" => return Some(Remedy::Instead("true")),
        "false" | "no" => return Some(Remedy::Instead("false")),
        _ => {}
    }
    kind(text).map(Remedy::Quotes)
}

/// The kind of value that a text would be in quotes.
fn kind(text: &str) -> Option<&'static str> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"_+-.".contains(&byte));
    if values::address(text).is_ok() {
        return Some("an address");
    }
    if text.contains('/') && values::interface_prefix(text) {
        return Some("a prefix");
    }
    if text.contains('-') && values::address_range(text).is_ok() {
        return Some("a range of addresses");
    }
    if text.contains(':') {
        return with_colons(text);
    }
    if text.contains('-') && values::ports(text).is_ok() {
        return Some("a range of ports");
    }
    if is_number {
        return None;
    }
    if values::duration(text).is_ok() {
        return Some("a duration");
    }
    let begins_with_digit = text.starts_with(|first: char| first.is_ascii_digit());
    if begins_with_digit && values::size(text).is_ok() {
        return Some("a size");
    }
    if text.starts_with('/') {
        return Some("a path");
    }
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let begins_with_letter = text.starts_with(|first: char| first.is_ascii_alphabetic());
    (begins_with_letter && text.chars().all(is_word)).then_some("a word")
}

/// The kind of a value with colons: endpoints, IPv6 and hardware addresses, PCI devices.
fn with_colons(text: &str) -> Option<&'static str> {
    let is_hexadecimal = |part: &str| part.len() == 2 && u8::from_str_radix(part, 16).is_ok();
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() == 6 && parts.iter().all(|part| is_hexadecimal(part)) {
        return Some("a hardware address");
    }
    if values::endpoint_range(text).is_ok() {
        return Some("an address with a port");
    }
    let (address, len) = text.split_once('/').unwrap_or((text, "0"));
    if address.parse::<Ipv6Addr>().is_ok() && len.parse::<u8>().is_ok_and(|len| len <= 128) {
        return Some(if text.contains('/') { "a prefix" } else { "an address" });
    }
    let (host, port) = text.rsplit_once(':')?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
    let is_host = !host.is_empty() && host.chars().all(is_name);
    (is_host && port.parse::<u16>().is_ok()).then_some("a host with a port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_lack_quotes_are_shown_with_them() {
        for (line, offset, expected) in [
            (
                "address = 10.0.0.1",
                10,
                "10.0.0.1 is an address without quotes; write address = \"10.0.0.1\"",
            ),
            (
                "  address=10.0.0.1/8 # own",
                10,
                "10.0.0.1/8 is a prefix without quotes; write address = \"10.0.0.1/8\"",
            ),
            (
                "addresses = [\"192.0.2.1\", 192.0.2.2]",
                26,
                "192.0.2.2 is an address without quotes; write \"192.0.2.2\"",
            ),
            (
                "    192.0.2.0-192.0.2.9,",
                4,
                "192.0.2.0-192.0.2.9 is a range of addresses without quotes; write \
                 \"192.0.2.0-192.0.2.9\"",
            ),
            (
                "match = { source = 10.0.0.0/8, port = 53 }",
                19,
                "10.0.0.0/8 is a prefix without quotes; write source = \"10.0.0.0/8\"",
            ),
            (
                "to = 192.0.2.1:53",
                5,
                "192.0.2.1:53 is an address with a port without quotes; write to = \
                 \"192.0.2.1:53\"",
            ),
            (
                "ports = 1024-65535",
                8,
                "1024-65535 is a range of ports without quotes; write ports = \"1024-65535\"",
            ),
            ("udp = 2h4m", 6, "2h4m is a duration without quotes; write udp = \"2h4m\""),
            ("max_size = 10GiB", 11, "10GiB is a size without quotes; write max_size = \"10GiB\""),
            (
                "file = /var/lib/natgate/ports",
                7,
                "/var/lib/natgate/ports is a path without quotes; write file = \
                 \"/var/lib/natgate/ports\"",
            ),
            ("kind = snat", 7, "snat is a word without quotes; write kind = \"snat\""),
            (
                "listen = localhost:9464",
                9,
                "localhost:9464 is a host with a port without quotes; write listen = \
                 \"localhost:9464\"",
            ),
            ("listen = ::1", 9, "::1 is an address without quotes; write listen = \"::1\""),
            (
                "mac = 02:00:00:00:00:01",
                6,
                "02:00:00:00:00:01 is a hardware address without quotes; write mac = \
                 \"02:00:00:00:00:01\"",
            ),
            ("enabled = True", 10, "True is no value of TOML; write true"),
            ("enabled = no", 10, "no is no value of TOML; write false"),
            ("a = 1 # 10.0.0.1", 0, ""),
            ("a = \"10.0.0.1\"", 0, ""),
            ("a = [1, 2.5, true, inf, 1979-05-27]", 0, ""),
            ("a = 1 = 2", 0, ""),
            ("", 0, ""),
        ] {
            let found = find(line);
            let said = found.as_ref().map_or("", |one| &one.message);
            assert_eq!(said, expected, "{line}");
            assert_eq!(found.map_or(0, |one| one.offset), offset, "{line}");
        }
    }
}
