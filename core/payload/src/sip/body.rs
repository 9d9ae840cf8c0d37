//! The body of a message: a description of media, or several parts with one among them (RFC 2046
//! section 5.1, RFC 5621 section 3.1).
//!
//! If several parts are descriptions, the receiver chooses one by rules that nobody between the
//! hosts can follow. Then none is read. Parts in parts are not read either.

use super::message::{Field, Message, parameter};
use crate::text;
use alloc::vec::Vec;
use core::ops::Range;

/// The place of the description in a message. `None`: there is none, or there are several.
pub(super) fn description(message: &Message<'_>) -> Option<Range<usize>> {
    let kind = message.value(message.only(Field::ContentType)?);
    let body = message.head..message.bytes.len();
    if is_description(kind) {
        return Some(body);
    }
    let boundary = boundary(kind)?;
    let parts = parts(message.bytes, body, boundary).into_iter();
    let mut descriptions = parts.filter_map(|part| description_in(message.bytes, part));
    let first = descriptions.next()?;
    descriptions.next().is_none().then_some(first)
}

/// True for the type of a description.
fn is_description(kind: &[u8]) -> bool {
    const SDP: &[u8] = b"application/sdp";
    let is_alone = kind.get(SDP.len()).is_none_or(|byte| b"; ".contains(byte));
    is_alone && kind.get(..SDP.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(SDP))
}

/// The text that divides the parts of a body. `None`: the body has no parts.
fn boundary(kind: &[u8]) -> Option<&[u8]> {
    const MULTIPART: &[u8] = b"multipart/";
    let start = kind.get(..MULTIPART.len())?;
    let (_, value) = parameter(kind, 0..kind.len(), b"boundary")?;
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    let boundary = bare.unwrap_or(value);
    (start.eq_ignore_ascii_case(MULTIPART) && !boundary.is_empty()).then_some(boundary)
}

/// The parts of a body. The end of the line before a boundary belongs to the boundary.
fn parts(bytes: &[u8], body: Range<usize>, boundary: &[u8]) -> Vec<Range<usize>> {
    let (mut parts, mut start, mut at) = (Vec::new(), None, body.start);
    for line in bytes[body].split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii_end().strip_prefix(b"--");
        let rest = text.and_then(|text| text.strip_prefix(boundary));
        let next = at + line.len();
        if let Some(rest @ (b"" | b"--")) = rest {
            if let Some(start) = start {
                let before = bytes[start..at].strip_suffix(b"\n").unwrap_or_default();
                let part = before.strip_suffix(b"\r").unwrap_or(before);
                parts.push(start..start + part.len());
            }
            start = rest.is_empty().then_some(next);
        }
        at = next;
    }
    parts
}

/// The place of the description that is a part.
fn description_in(bytes: &[u8], part: Range<usize>) -> Option<Range<usize>> {
    // The end of the boundary's line stands where a message has its start line.
    let start = part.start.checked_sub(2)?;
    let part = &bytes[start..part.end];
    let head = text::head_len(part)?;
    let named = |name| text::headers(&part[..head]).filter(move |header| header.is(name));
    let mut kinds = named("content-type");
    let kind = kinds.next().filter(|_| kinds.next().is_none())?;
    let is_plain = named("content-transfer-encoding").all(|header| {
        let names: [&[u8]; 3] = [b"7bit", b"8bit", b"binary"];
        let value = part[header.value].trim_ascii();
        names.iter().any(|name| value.eq_ignore_ascii_case(name))
    });
    (is_plain && is_description(&part[kind.value])).then_some(start + head..start + part.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// The description that is found in a body.
    fn found<'t>(kind: &str, body: &str, text: &'t mut Vec<u8>) -> Option<&'t str> {
        *text = format!("A a SIP/2.0\r\nContent-Type: {kind}\r\n\r\n{body}").into_bytes();
        let head = text::head_len(text).expect("a head");
        let headers = super::super::message::headers(&text[..head]);
        let place = description(&Message { bytes: text, head, headers: &headers })?;
        core::str::from_utf8(&text[place]).ok()
    }

    #[test]
    fn a_description_is_the_body_or_its_only_part_of_this_type() {
        let text = &mut Vec::new();
        let sdp = "Content-Type: application/SDP;x=y\r\nContent-Disposition: session\r\n\r\nv=0";
        let other = "Content-Type: application/isup\r\n\r\nv=1\r\n";
        assert_eq!(found("application/sdp", "v=0\r\n", text), Some("v=0\r\n"));
        assert_eq!(found("application/sdpx", "v=0\r\n", text), None);
        for (kind, mark) in [
            ("multipart/mixed;boundary=b", "b"),
            ("Multipart/Mixed; BOUNDARY=\"a;b c\"; x=y", "a;b c"),
            ("multipart/alternative ; boundary = -", "-"),
        ] {
            let mut of = |parts: &[&str], last: &str| {
                let parts: Vec<_> =
                    parts.iter().map(|part| format!("--{mark} \r\n{part}\r\n")).collect();
                let body = format!("before\r\n{}--{mark}{last}", parts.concat());
                found(kind, &body, text).map(alloc::string::String::from)
            };
            assert_eq!(of(&[sdp], "--\r\nbehind").as_deref(), Some("v=0"), "{kind}");
            assert_eq!(of(&[other, sdp, other], "--").as_deref(), Some("v=0"), "{kind}");
            assert_eq!(of(&[sdp, sdp], "--"), None, "{kind}: two descriptions");
            assert_eq!(of(&[other, "\r\nv=0"], "--"), None, "{kind}: no type");
            assert_eq!(of(&[sdp], "x"), None, "{kind}: no end");
            let coded = format!("Content-Transfer-Encoding: base64\r\n{sdp}");
            assert_eq!(of(&[&coded], "--"), None, "{kind}: an encoding");
            let coded = format!("Content-Transfer-Encoding: 8BIT\r\n{sdp}");
            assert_eq!(of(&[&coded], "--").as_deref(), Some("v=0"), "{kind}");
        }
        for kind in
            ["multipart/mixed", "multipart/mixed;boundary=", "multipart/mixed;boundary=\"\""]
        {
            assert_eq!(found(kind, &format!("--\r\n{sdp}\r\n----"), text), None, "{kind}");
        }
    }
}
