//! Reads `[page]`: the listener of the page for browsers, and its host names.

use super::places::Target;
use super::problem::Report;
use super::reader::{Section, Value};
use super::values::{quoted, socket_address};
use natgate_gateway::{PagePlace, PageSettings};
use std::net::SocketAddr;

/// Most host names besides addresses and `localhost`.
const MOST_NAMES: usize = 16;
/// Most letters of a host name, and of one label (RFC 1123).
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

const EXAMPLE: &str = "write one such as \"127.0.0.1:9465\", or \"off\"";

pub(super) fn read(root: &Section<'_>) -> PageSettings {
    let section = root.section("page", "page");
    let listen = section.get("listen");
    let place = listen.as_ref().and_then(|value| {
        let place = value.parsed("an address and a port in quotes, or \"off\"", place)?.value;
        if let PagePlace::At(address) = place {
            warn_if_open(section.report, value, address);
            section.registers("listen", &value.place, Target::Address(address));
        }
        Some(place)
    });
    if listen.is_none() {
        section.registers_default("listen");
    }
    let names = section.get("names").map(|value| read_names(&value)).unwrap_or_default();
    if let (Some(PagePlace::Nowhere), Some(value), false) =
        (place, section.get("names"), names.is_empty())
    {
        value.wrong("is without effect, since page.listen is \"off\"; leave one of them out");
    }
    PageSettings { place: place.unwrap_or_default(), names }
}

fn place(text: &str) -> Result<PagePlace, String> {
    if text == "off" {
        return Ok(PagePlace::Nowhere);
    }
    let address = socket_address(text, EXAMPLE)?;
    match address.port() {
        0 => Err(format!("{} has no port that one could go to; {EXAMPLE}", quoted(text))),
        _ => Ok(PagePlace::At(address)),
    }
}

/// Warns of an open listener: the page has no login.
fn warn_if_open(report: &Report<'_>, value: &Value<'_>, address: SocketAddr) {
    if !address.ip().is_loopback() {
        let message = format!(
            "lets everybody who can reach {address} see which subscriber has which address; \
             listen on 127.0.0.1 and come by `ssh -L {port}:127.0.0.1:{port}`, or through a proxy \
             that asks who comes",
            port = address.port()
        );
        report.unwise(&value.place, message);
    }
}

/// Reads an array of host names by which clients may address the server.
pub(super) fn read_names(value: &Value<'_>) -> Vec<String> {
    let items = value.items("an array of host names").unwrap_or_default();
    if items.len() > MOST_NAMES {
        value.wrong(format!("has {} names; it may have {MOST_NAMES}", items.len()));
        return Vec::new();
    }
    let read = |item: &Value<'_>| item.parsed("a host name in quotes", name).map(|name| name.value);
    items.iter().filter_map(read).collect()
}

fn name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=LONGEST_LABEL).contains(&label.len())
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = text.len() <= LONGEST_NAME && text.split('.').all(is_label);
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        let shown = quoted(text);
        format!("{shown} is no host name; write one such as \"nat1.example.net\", without a port")
    })
}
