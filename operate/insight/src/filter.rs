//! The request for a capture, from the command line or from a query.

use natgate_gateway::capture::{self, Filter};
use natgate_gateway::ipv6::Prefix6;
use natgate_wire::protocol;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Longest capture.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A request for a capture: its filter and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureRequest {
    /// Internal address or prefix; of a host behind a tunnel, or of the tunnel's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<String>,
    /// Remote address or prefix, with or without a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// External address or prefix, with or without a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// Protocol, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The port of any end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Packets after which the capture ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Seconds after which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

impl CaptureRequest {
    /// The filter.
    ///
    /// # Errors
    /// A sentence about a value that cannot be read.
    pub fn filter(&self) -> Result<Filter, String> {
        let text = |value: &Option<String>| value.clone();
        Ok(Filter {
            subscriber: text(&self.subscriber)
                .map(|text| prefix("subscriber", &text))
                .transpose()?,
            remote: text(&self.remote).map(|text| end("remote", &text)).transpose()?,
            external: text(&self.external).map(|text| end("external", &text)).transpose()?,
            protocol: text(&self.protocol).map(|text| number(&text)).transpose()?,
            port: self.port,
        })
    }

    /// The longest time that the capture may take.
    ///
    /// # Errors
    /// A sentence if the time is too long, or nothing would be captured.
    pub fn duration(&self) -> Result<Duration, String> {
        let longest = LONGEST.as_secs();
        match (self.seconds, self.count) {
            (Some(0), _) | (_, Some(0)) => {
                Err("seconds and count are at least 1; a capture of nothing is none".to_owned())
            }
            (Some(seconds), _) if seconds > longest => {
                Err(format!("seconds {seconds} is too long; a capture takes at most {longest} s"))
            }
            (seconds, _) => Ok(Duration::from_secs(seconds.unwrap_or(longest))),
        }
    }
}

fn prefix(what: &str, text: &str) -> Result<Prefix6, String> {
    let wrong = || {
        format!(
            "{what} {text} is no IP address or prefix; write {what} 10.0.0.5, 10.0.0.0/24 or \
             2001:db8:1::/64"
        )
    };
    let (address, len) = text.split_once('/').map_or((text, None), |(one, len)| (one, Some(len)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Ok(most), str::parse).ok().filter(|len| *len <= most);
    Ok(capture::prefix(address, len.ok_or_else(wrong)?))
}

/// An address or prefix, with or without a port. With a port, one of IPv6 stands in brackets.
fn end(what: &str, text: &str) -> Result<(Prefix6, Option<u16>), String> {
    let is_bare = text.matches(':').count() > 1 && !text.starts_with('[');
    let parts = if is_bare { None } else { text.rsplit_once(':') };
    let (address, port) = match parts {
        Some((address, port)) if !port.ends_with(']') => (address, Some(port)),
        _ => (text, None),
    };
    let port = port.map(|port| {
        port.parse().map_err(|_| {
            format!("{what} {text}: the port is a number from 0 to 65535, such as {address}:53")
        })
    });
    let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    Ok((prefix(what, inner.unwrap_or(address))?, port.transpose()?))
}

fn number(text: &str) -> Result<u8, String> {
    protocol::number(text)
        .ok_or_else(|| format!("protocol {text:?} is unknown; write {}", protocol::CHOICES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_looked_for() {
        let request = CaptureRequest {
            subscriber: Some("10.0.0.0/24".into()),
            remote: Some("192.0.2.1:53".into()),
            external: Some("203.0.113.1".into()),
            protocol: Some("udp".into()),
            ..CaptureRequest::default()
        };
        let address = |text: &str, len| capture::prefix(text.parse().unwrap(), len);
        let filter = Filter {
            subscriber: Some(address("10.0.0.0", 24)),
            remote: Some((address("192.0.2.1", 32), Some(53))),
            external: Some((address("203.0.113.1", 32), None)),
            protocol: Some(17),
            port: None,
        };
        assert_eq!(request.filter(), Ok(filter));
        for (text, expected, port) in [
            ("2001:db8::1", address("2001:db8::1", 128), None),
            ("[2001:db8::1]:53", address("2001:db8::1", 128), Some(53)),
            ("2001:db8::/32", address("2001:db8::", 32), None),
            ("[2001:db8::/32]:53", address("2001:db8::", 32), Some(53)),
            ("0.0.0.0/0", address("0.0.0.0", 0), None),
        ] {
            assert_eq!(end("remote", text), Ok((expected, port)), "{text}");
        }
        assert_eq!(CaptureRequest::default().duration(), Ok(LONGEST));
    }

    #[test]
    fn what_is_wrong_is_said_with_a_remedy() {
        let wrong = |change: fn(&mut CaptureRequest), part: &str| {
            let mut request = CaptureRequest::default();
            change(&mut request);
            let error = request.filter().err().or(request.duration().err()).unwrap_or_default();
            assert!(error.contains(part), "{error}");
        };
        wrong(|request| request.subscriber = Some("10.0.0".into()), "no IP address or prefix");
        wrong(|request| request.subscriber = Some("10.0.0.0/33".into()), "no IP address or prefix");
        wrong(|request| request.remote = Some("192.0.2.1:x".into()), "from 0 to 65535");
        wrong(|request| request.remote = Some("[2001:db8::1]:x".into()), "from 0 to 65535");
        wrong(|request| request.subscriber = Some("2001:db8::/129".into()), "no IP address");
        wrong(|request| request.protocol = Some("ip".into()), "is unknown");
        wrong(|request| request.seconds = Some(1 << 40), "at most 86400 s");
        wrong(|request| request.count = Some(0), "at least 1");
    }
}
