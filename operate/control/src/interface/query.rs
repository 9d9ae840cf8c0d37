//! The query of a request: filters with the names of the command line.

use crate::socket::Response;
use natgate_engine::{Prefix, Timestamp};
use natgate_wire::protocol;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest query, bytes, and most parameters in it.
const LONGEST: usize = 4096;
const MOST: usize = 16;

/// The largest `top`.
pub(super) const MOST_TOP: usize = 1000;

/// The parameters of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableQuery {
    /// Prefix of the subscriber's address.
    pub subscriber: Option<Prefix>,
    /// The subscriber, a host or a prefix of IPv6, and the length of the prefix.
    pub subscriber6: Option<(Ipv6Addr, u8)>,
    /// Name of the subscriber's realm.
    pub realm: Option<String>,
    /// Prefix of the external address.
    pub external: Option<Prefix>,
    /// External port.
    pub external_port: Option<u16>,
    /// Prefix of the remote address.
    pub remote: Option<Prefix>,
    /// Remote port.
    pub remote_port: Option<u16>,
    /// Protocol number.
    pub protocol: Option<u8>,
    /// Most entries in the answer.
    pub limit: Option<u64>,
    /// Time that the question is about.
    pub at: Option<Timestamp>,
    /// Number of subscribers with the most mappings.
    pub top: Option<usize>,
    /// Tables to clear.
    pub what: Option<What>,
}

/// Tables that can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Dynamic mappings, with their sessions.
    Mappings,
    /// Sessions.
    Sessions,
}

impl What {
    /// Name of the table in a query.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mappings => "mappings",
            Self::Sessions => "sessions",
        }
    }
}

impl TableQuery {
    /// Parses a query. Only `keys` are allowed, each once.
    ///
    /// # Errors
    /// A sentence with status 400.
    pub fn parse(query: Option<&str>, keys: &[&str]) -> Result<Self, Response> {
        Self::read(query.unwrap_or_default(), keys)
            .map_err(|message| Response::failure(400, message))
    }

    fn read(query: &str, keys: &[&str]) -> Result<Self, String> {
        if query.len() > LONGEST {
            return Err(format!("the query has {} bytes; it may have {LONGEST}", query.len()));
        }
        let (mut asked, mut seen) = (Self::default(), Vec::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()).take(MOST) {
            let Some(known) = keys.iter().find(|known| **known == key) else {
                return Err(unknown(&key, keys));
            };
            if seen.contains(known) {
                return Err(format!("{known} is given twice; give it once"));
            }
            seen.push(known);
            asked.set(known, &value)?;
        }
        Ok(asked)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let shown = || value.chars().take(40).collect::<String>().escape_debug().to_string();
        let wrong = |right: &str| format!("{key} is \"{}\"; write {right}", shown());
        match key {
            "subscriber" => {
                let right = "an IPv4 address such as 10.0.0.5, a prefix such as 10.0.0.0/24, or an \
                    IPv6 host or subscriber such as 2001:db8:1::/64";
                match value.contains(':') {
                    true => self.subscriber6 = Some(prefix6(value).ok_or_else(|| wrong(right))?),
                    false => self.subscriber = Some(prefix(value).ok_or_else(|| wrong(right))?),
                }
            }
            "realm" => self.realm = Some(value.to_owned()),
            "external" => {
                let right = "an address or a prefix, or one with a port, such as 203.0.113.1:2300";
                let (prefix, port) = end(value).ok_or_else(|| wrong(right))?;
                (self.external, self.external_port) = (Some(prefix), port);
            }
            "remote" => {
                let right = "an address or a prefix, or one with a port, such as 198.51.100.7:443";
                let (prefix, port) = end(value).ok_or_else(|| wrong(right))?;
                (self.remote, self.remote_port) = (Some(prefix), port);
            }
            "protocol" => {
                let number = protocol::number(value);
                self.protocol = Some(number.ok_or_else(|| wrong(protocol::CHOICES))?);
            }
            "top" => {
                let number = value.parse().ok().filter(|top| (1..=MOST_TOP).contains(top));
                let right = format!("a whole number from 1 to {MOST_TOP}");
                self.top = Some(number.ok_or_else(|| wrong(&right))?);
            }
            "limit" => {
                let number = value.parse().ok().filter(|&limit: &u64| limit > 0);
                self.limit = Some(number.ok_or_else(|| wrong("a whole number from 1 on"))?);
            }
            "at" => {
                let time = natgate_logs::time(value);
                self.at = Some(time.map_err(|error| format!("at: {error}"))?);
            }
            _ => {
                self.what = Some(match value {
                    "mappings" => What::Mappings,
                    "sessions" => What::Sessions,
                    _ => return Err(wrong("mappings or sessions")),
                });
            }
        }
        Ok(())
    }
}

/// Parses an address, as a prefix of full length, or a prefix.
#[must_use]
pub fn prefix(text: &str) -> Option<Prefix> {
    let (address, len) = text.split_once('/').unwrap_or((text, "32"));
    let len = len.parse().ok().filter(|len: &u8| *len <= 32)?;
    Some(Prefix::new(address.parse::<Ipv4Addr>().ok()?, len))
}

/// Parses an IPv6 address, as a prefix of full length, or a prefix.
#[must_use]
pub fn prefix6(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (address, len) = text.split_once('/').unwrap_or((text, "128"));
    let len = len.parse().ok().filter(|len: &u8| *len <= 128)?;
    Some((address.parse().ok()?, len))
}

/// Parses an address or a prefix, with or without a port behind a colon.
#[must_use]
pub fn end(text: &str) -> Option<(Prefix, Option<u16>)> {
    match text.split_once(':') {
        Some((address, port)) => Some((prefix(address)?, Some(port.parse().ok()?))),
        None => Some((prefix(text)?, None)),
    }
}

fn unknown(key: &str, keys: &[&str]) -> String {
    let shown = key.chars().take(40).collect::<String>().escape_debug().to_string();
    let nearest = keys.iter().min_by_key(|known| strsim::osa_distance(known, key));
    match nearest.filter(|known| strsim::osa_distance(known, key) <= 2) {
        Some(known) => format!("there is no parameter \"{shown}\"; did you mean {known}?"),
        None if keys.is_empty() => format!("there is no parameter \"{shown}\", nor any other"),
        None => format!("there is no parameter \"{shown}\"; there are {}", keys.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 8] =
        ["what", "subscriber", "realm", "external", "remote", "protocol", "limit", "top"];

    #[test]
    fn filters_are_read() {
        let query = "subscriber=10.0.0.5&realm=a%20b&external=203.0.113.1%3A2300&protocol=udp\
            &limit=7&what=sessions&remote=198.51.100.0/24:443";
        let expected = TableQuery {
            subscriber: Some(Ipv4Addr::new(10, 0, 0, 5).into()),
            subscriber6: None,
            realm: Some("a b".into()),
            external: Some(Ipv4Addr::new(203, 0, 113, 1).into()),
            external_port: Some(2300),
            remote: Some(Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24)),
            remote_port: Some(443),
            protocol: Some(17),
            limit: Some(7),
            top: None,
            at: None,
            what: Some(What::Sessions),
        };
        assert_eq!(TableQuery::read(query, &KEYS), Ok(expected));
        assert_eq!(TableQuery::read("", &KEYS), Ok(TableQuery::default()));
        let of_ipv6 = TableQuery::read("subscriber=2001:db8:1::/64", &KEYS).unwrap();
        assert_eq!(of_ipv6.subscriber6, Some(("2001:db8:1::".parse().unwrap(), 64)));
        let numbered = TableQuery::read("external=203.0.113.1&protocol=99", &KEYS).unwrap();
        assert_eq!((numbered.external_port, numbered.protocol), (None, Some(99)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (query, said) in [
            ("subscirber=10.0.0.5", "did you mean subscriber?"),
            ("colour=red", "there are what, subscriber"),
            ("subscriber=10.0.0", "such as 10.0.0.5"),
            ("subscriber=10.0.0.5&subscriber=10.0.0.6", "is given twice"),
            ("subscriber=10.0.0.0/33", "a prefix such as 10.0.0.0/24"),
            ("subscriber=2001:db8::/129", "2001:db8:1::/64"),
            ("subscriber=10.0.0.0/", "a prefix such as 10.0.0.0/24"),
            ("remote=198.51.100.7:", "198.51.100.7:443"),
            ("remote=198.51.100.0/24/8", "198.51.100.7:443"),
            ("external=203.0.113.1:x", "203.0.113.1:2300"),
            ("external=203.0.113.1:65536", "203.0.113.1:2300"),
            ("protocol=tcpp", "tcp, udp, icmp, dccp, gre, esp, sctp or a number"),
            ("protocol=256", "tcp, udp, icmp, dccp, gre, esp, sctp or a number"),
            ("protocol=", "tcp, udp, icmp, dccp, gre, esp, sctp or a number"),
            ("limit=0", "a whole number from 1 on"),
            ("limit=-1", "a whole number from 1 on"),
            ("top=0", "a whole number from 1 to 1000"),
            ("top=1001", "a whole number from 1 to 1000"),
            ("what=everything", "mappings or sessions"),
            (&format!("realm={}", "a".repeat(5000)), "it may have 4096"),
            ("%ff%00=1", "there is no parameter"),
        ] {
            let error = TableQuery::read(query, &KEYS).expect_err(query);
            assert!(error.contains(said), "{query}: {error}");
        }
    }
}
