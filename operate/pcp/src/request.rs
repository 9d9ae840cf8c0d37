//! Requests to the translator, and their results.

use crate::message::Nonce;
use crate::options::Filters;
use crate::prefix64::Prefix64;
use crate::{Answer, ResultCode};
use core::net::{IpAddr, Ipv4Addr};

/// Decisions of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The shortest and the longest lifetime that mappings get, seconds.
    pub lifetime: (u32, u32),
    /// True if the server speaks NAT-PMP, too.
    pub nat_pmp: bool,
    /// Most ports that one request gets, at least 1.
    pub port_set: u16,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Client<'p> {
    /// The address that the request comes from.
    pub address: IpAddr,
    /// True if the operator trusts the client to speak for other hosts.
    pub may_speak_for_others: bool,
    /// Prefixes of the NAT64 that translates for the client; the first is the one for new addresses
    /// (RFC 7225 section 4.2). Empty: there is no NAT64.
    pub prefixes: &'p [Prefix64],
}

/// Result of reading a request's bytes. An answer lies on the stack, because nothing is allocated
/// here.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Read {
    /// The request gets no answer.
    Silence(Silence),
    /// The request is answered at once.
    Answer(Answer),
    /// The request asks for an operation of the translator.
    Ask(Request),
}

/// Reason why a request gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The request is too short to be answered.
    Short,
    /// The message is a response.
    Response,
}

/// A request to the translator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Host of the mapping: the client, or the host that the client speaks for. Both are of one
    /// family.
    pub host: IpAddr,
    /// True if the client speaks for another host.
    pub is_third_party: bool,
    /// The requested operation.
    pub operation: Operation,
    /// True for a request of NAT-PMP.
    pub(crate) is_old: bool,
}

/// An operation that a request asks of the translator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A mapping for all remote endpoints.
    Map(Map),
    /// The client gives such a mapping back.
    Unmap(Unmap),
    /// A mapping towards one remote endpoint.
    Peer(Peer),
    /// The client gives back all mappings of a protocol that were requested by NAT-PMP.
    UnmapAll {
        /// IP protocol number.
        protocol: u8,
    },
    /// The external address that the host's mappings have.
    Address,
}

/// A requested mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// IP protocol number.
    pub protocol: u8,
    /// Internal port.
    pub port: u16,
    /// Nonce that later requests about the mapping repeat.
    pub nonce: Nonce,
    /// The suggested external address; `None`: any.
    pub external: Option<Ipv4Addr>,
    /// The suggested external port; 0: any.
    pub external_port: u16,
    /// True if another external endpoint is of no use.
    pub prefer_failure: bool,
    /// True if the request cannot be granted: it accepts only an external address that is not of
    /// IPv4.
    pub impossible: bool,
    /// Filters for remote endpoints.
    pub filters: Filters,
    /// Number of ports, from `port` on, that are to be mapped to as many in a row.
    pub ports: u16,
    /// Lifetime, seconds.
    pub lifetime: u32,
}

/// A mapping that the client gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmap {
    /// IP protocol number; 0: of all.
    pub protocol: u8,
    /// Internal port; 0: all.
    pub port: u16,
    /// Nonce of the request for the mapping.
    pub nonce: Nonce,
    /// Number of ports, from `port` on.
    pub ports: u16,
}

/// A requested mapping towards a remote endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// IP protocol number.
    pub protocol: u8,
    /// Internal port.
    pub port: u16,
    /// Nonce that later requests about the mapping repeat.
    pub nonce: Nonce,
    /// The external address that the mapping must have; `None`: any.
    pub external: Option<Ipv4Addr>,
    /// The external port that the mapping must have; 0: any.
    pub external_port: u16,
    /// True if the request cannot be granted: its external address is not of IPv4.
    pub impossible: bool,
    /// The remote endpoint, as the host knows it. A host of IPv6 may name the remote host's IPv4
    /// address, too.
    pub remote: (IpAddr, u16),
    /// Lifetime, seconds.
    pub lifetime: u32,
}

/// Result of an operation that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// External address.
    pub external: Ipv4Addr,
    /// External port, the first if there are several.
    pub external_port: u16,
    /// Lifetime, seconds; all ones if it does not end.
    pub lifetime: u32,
    /// The internal port, the first if there are several.
    pub port: u16,
    /// Number of ports.
    pub ports: u16,
}

/// Reason why an operation was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Result code.
    pub code: ResultCode,
    /// Seconds for which the refusal holds.
    pub lifetime: u32,
}

impl Refusal {
    /// A refusal that lasts as long as others of its kind.
    pub const fn new(code: ResultCode) -> Self {
        Self { code, lifetime: code.lifetime() }
    }
}

impl Request {
    /// A request of NAT-PMP.
    pub(crate) fn old(host: Ipv4Addr, operation: Operation) -> Self {
        Self { host: host.into(), is_third_party: false, operation, is_old: true }
    }
}
