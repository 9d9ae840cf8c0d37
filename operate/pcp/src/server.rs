//! Requests and their answers (RFC 6887 sections 8.2, 9, 11.3, 12.3, 14.1 and 15).

use crate::message::{
    ANNOUNCE, EXTERNAL_ADDRESS, EXTERNAL_PORT, Fields, HEADER_LEN, INTERNAL_PORT, MAP, MAP_LEN,
    PEER, PEER_LEN, RESPONSE, VERSION, WantedEndpoint, mapped,
};
use crate::options::{self, Context};
use crate::request::{
    Client, Granted, Map, Operation, Peer, Policy, Read, Refusal, Request, Silence, Unmap,
};
use crate::{Answer, LONGEST, Prefix64, ResultCode, natpmp};
use core::net::{IpAddr, Ipv4Addr};

/// The server's side of the protocols.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    policy: Policy,
}

impl Server {
    /// A server with this policy.
    pub const fn new(policy: Policy) -> Self {
        Self { policy }
    }

    /// Reads the bytes of a request that came from `client`. `epoch`: seconds since mappings were
    /// lost last. NAT-PMP is for clients of IPv4 only.
    pub fn read(&self, bytes: &[u8], client: Client<'_>, epoch: u32) -> Read {
        let fields = Fields(bytes);
        //= rfc6887#section-8.2-two-octets
        if bytes.len() < 2 {
            return Read::Silence(Silence::Short);
        }
        if fields.byte(0) == natpmp::VERSION
            && self.policy.nat_pmp
            && let IpAddr::V4(client) = client.address
        {
            return natpmp::read(bytes, client, &self.policy, epoch);
        }
        //= rfc6887#section-8.2-response
        if fields.is_response() {
            return Read::Silence(Silence::Response);
        }
        let error = |code| Read::Answer(refuse(bytes, Refusal::new(code), epoch));
        //= rfc6887#section-8.2-version
        //= rfc6887#section-9-version
        if fields.byte(0) != VERSION {
            return error(ResultCode::UnsupportedVersion);
        }
        //= rfc6887#section-8.2-header
        if bytes.len() < HEADER_LEN {
            return Read::Silence(Silence::Short);
        }
        match self.read_valid(bytes, client) {
            Ok(Asked::Mapping(request)) => Read::Ask(request),
            Ok(Asked::Announcement { prefix64 }) => {
                let prefixes = if prefix64 { client.prefixes } else { &[] };
                Read::Answer(announcement(epoch, prefixes))
            }
            Err(code) => error(code),
        }
    }

    /// Reads a request of the right version.
    fn read_valid(&self, bytes: &[u8], client: Client<'_>) -> Result<Asked, ResultCode> {
        let fields = Fields(bytes);
        let opcode = fields.opcode();
        let own_len = match opcode {
            ANNOUNCE => Some(0),
            MAP => Some(MAP_LEN),
            PEER => Some(PEER_LEN),
            _ => None,
        };
        //= rfc6887#section-8.2-length
        if bytes.len() > LONGEST || !bytes.len().is_multiple_of(4) {
            return Err(ResultCode::MalformedRequest);
        }
        //= rfc6887#section-8.2-opcode
        let own_len = own_len.ok_or(ResultCode::UnsupportedOpcode)?;
        let rest = bytes.get(HEADER_LEN + own_len..).ok_or(ResultCode::MalformedRequest)?;
        //= rfc6887#section-8.2-mismatch
        //= rfc6887#section-14.1.1-mismatch
        if fields.client() != client.address {
            return Err(ResultCode::AddressMismatch);
        }
        let context = Context {
            is_map: opcode == MAP,
            is_peer: opcode == PEER,
            creates: opcode == PEER || fields.lifetime() > 0,
            client: client.address,
            may_speak_for_others: client.may_speak_for_others,
            has_prefixes: !client.prefixes.is_empty(),
            external_port: fields.external_port(),
        };
        let options = options::read(rest, context)?;
        let operation = match opcode {
            MAP => self.read_map(fields, &options)?,
            PEER => Operation::Peer(self.read_peer(fields, client.address)?),
            _ => return Ok(Asked::Announcement { prefix64: options.prefix64 }),
        };
        let host = options.third_party.unwrap_or(client.address);
        let is_third_party = options.third_party.is_some();
        Ok(Asked::Mapping(Request { host, is_third_party, operation, is_old: false }))
    }

    fn read_map(
        &self,
        fields: Fields<'_>,
        options: &options::Options,
    ) -> Result<Operation, ResultCode> {
        let (protocol, port) = (fields.protocol(), fields.internal_port());
        //= rfc6887#section-11.3-protocol-zero
        //= rfc6887#section-15.1-protocol-zero
        if protocol == 0 && port != 0 {
            return Err(ResultCode::MalformedRequest);
        }
        let nonce = fields.nonce();
        let ports = self.ports(port, options);
        if fields.lifetime() == 0 {
            return Ok(Operation::Unmap(Unmap { protocol, port, nonce, ports }));
        }
        //= rfc6887#section-11.3-wildcard
        //= rfc6887#section-11.3-dmz
        if port == 0 {
            return Err(ResultCode::UnsupportedProtocol);
        }
        let (external, external_port, is_other) = wanted(fields);
        Ok(Operation::Map(Map {
            protocol,
            port,
            nonce,
            external,
            external_port,
            prefer_failure: options.prefer_failure,
            impossible: options.prefer_failure && is_other,
            filters: options.filters.clone().unwrap_or_default(),
            ports,
            lifetime: self.lifetime(fields),
        }))
    }

    /// Number of ports that a request is about. Their parity is kept if the translator keeps it
    /// anyway.
    fn ports(&self, port: u16, options: &options::Options) -> u16 {
        let Some((size, first)) = options.port_set else { return 1 };
        // A port set that begins at another port than the mapping is ignored.
        //= rfc7753#section-4.2-range
        let most = (u16::MAX - port).saturating_add(1);
        //= rfc7753#section-6.1-configurable
        let size = if first == port { size.min(self.policy.port_set).min(most) } else { 1 };
        size.max(1)
    }

    fn read_peer(&self, fields: Fields<'_>, client: IpAddr) -> Result<Peer, ResultCode> {
        let (external, external_port, impossible) = wanted(fields);
        let (protocol, port) = (fields.protocol(), fields.internal_port());
        //= rfc6887#section-12.3-remote
        let remote = (fields.remote_address(), fields.remote_port());
        let is_foreign = remote.0.is_ipv6() && client.is_ipv4();
        if port == 0 || remote.1 == 0 || protocol == 0 || is_foreign {
            return Err(ResultCode::MalformedRequest);
        }
        let nonce = fields.nonce();
        // A request with lifetime 0 asks for the remaining lifetime of its mapping.
        let lifetime = match fields.lifetime() {
            0 => 0,
            _ => self.lifetime(fields),
        };
        Ok(Peer { protocol, port, nonce, external, external_port, impossible, remote, lifetime })
    }

    //= rfc6887#section-15-bounds
    fn lifetime(&self, fields: Fields<'_>) -> u32 {
        let (least, most) = self.policy.lifetime;
        fields.lifetime().min(most).max(least)
    }
}

/// The contents of a request.
#[allow(clippy::large_enum_variant)]
enum Asked {
    Mapping(Request),
    /// An announcement, with the prefixes of the NAT64 if `prefix64` is true.
    Announcement {
        prefix64: bool,
    },
}

/// The external address and port that a client suggests; true if the address is not of IPv4.
fn wanted(fields: Fields<'_>) -> (Option<Ipv4Addr>, u16, bool) {
    let port = fields.external_port();
    match fields.external_address() {
        WantedEndpoint::Any => (None, port, false),
        WantedEndpoint::This(address) => (Some(address), port, false),
        WantedEndpoint::Other => (None, port, true),
    }
}

impl Request {
    /// The answer to the request, whose bytes these are, after it has been carried out. `prefixes`:
    /// those of the client.
    pub fn grant(
        &self,
        bytes: &[u8],
        granted: &Granted,
        prefixes: &[Prefix64],
        epoch: u32,
    ) -> Answer {
        if self.is_old {
            return natpmp::grant(bytes, granted, epoch);
        }
        match self.try_grant(bytes, granted, prefixes, epoch) {
            Ok(answer) => answer,
            Err(code) => refuse(bytes, Refusal::new(code), epoch),
        }
    }

    fn try_grant(
        &self,
        bytes: &[u8],
        granted: &Granted,
        prefixes: &[Prefix64],
        epoch: u32,
    ) -> Result<Answer, ResultCode> {
        let mut answer = header(bytes, ResultCode::Success, granted.lifetime, epoch);
        let own_len = if Fields(bytes).opcode() == PEER { PEER_LEN } else { MAP_LEN };
        let end = HEADER_LEN + own_len;
        let (own, rest) = match bytes.split_at_checked(end) {
            Some((all, rest)) => (&all[HEADER_LEN..], rest),
            None => return Err(ResultCode::MalformedRequest),
        };
        answer.extend(own.iter().copied());
        //= rfc6887#section-11.3-copied
        //= rfc6887#section-12.3-copied
        // Bits that mean nothing are sent as zeros.
        //= rfc6887#section-11.1-reserved
        //= rfc6887#section-12.1-reserved
        answer[HEADER_LEN + 13..HEADER_LEN + 16].fill(0);
        if own_len == PEER_LEN {
            answer[62..64].fill(0);
        }
        // An answer about a removed mapping repeats the fields of the request.
        //= rfc6887#section-15.1-suggested
        if !matches!(self.operation, Operation::Unmap(_)) {
            //= rfc6887#section-11.1-assigned
            answer[EXTERNAL_PORT..][..2].copy_from_slice(&granted.external_port.to_be_bytes());
            answer[EXTERNAL_ADDRESS..][..16].copy_from_slice(&mapped(granted.external));
        }
        let asked = Fields(bytes).internal_port();
        let set = granted.port..=granted.port.saturating_add(granted.ports.saturating_sub(1));
        if matches!(self.operation, Operation::Map(_)) && !set.contains(&asked) {
            // The answer is about another mapping that the request meets (RFC 7753 section 4.4.1).
            answer[INTERNAL_PORT..][..2].copy_from_slice(&granted.port.to_be_bytes());
        }
        // A PEER request has no prefixes.
        let prefixes = if own_len == MAP_LEN { prefixes } else { &[] };
        options::write(&mut answer, rest, (granted.port, granted.ports), prefixes)?;
        Ok(answer)
    }

    /// The answer to the request, whose bytes these are, if it has not been carried out.
    pub fn refuse(&self, bytes: &[u8], refusal: Refusal, epoch: u32) -> Answer {
        match self.is_old {
            true => natpmp::refuse(bytes, refusal, epoch),
            false => refuse(bytes, refusal, epoch),
        }
    }
}

/// Announcement to a client, or to all: there is a server, and since when. To clients of a NAT64 it
/// tells the prefixes, too.
//= rfc6887#section-14.1.2-success
//= rfc6887#section-14.1.3-success
pub fn announcement(epoch: u32, prefixes: &[Prefix64]) -> Answer {
    let mut answer = header(&[VERSION, ANNOUNCE, 0, 0], ResultCode::Success, 0, epoch);
    options::write_prefixes(&mut answer, prefixes);
    answer
}

/// The header of an answer.
//= rfc6887#section-8.2-success
//= rfc6887#section-7.2-response
//= rfc6887#section-7.2-reserved
fn header(request: &[u8], code: ResultCode, lifetime: u32, epoch: u32) -> Answer {
    let mut answer = Answer::new();
    answer.extend([VERSION, Fields(request).opcode() | RESPONSE, 0, code as u8]);
    answer.extend(lifetime.to_be_bytes());
    answer.extend(epoch.to_be_bytes());
    answer.extend([0; 12]);
    answer
}

/// The answer to a request that is not carried out: a copy of it, with the reason.
//= rfc6887#section-8.2-error
//= rfc6887#section-7.3-error
fn refuse(request: &[u8], refusal: Refusal, epoch: u32) -> Answer {
    let mut answer: Answer = request.iter().copied().take(LONGEST).collect();
    while answer.len() < HEADER_LEN || !answer.len().is_multiple_of(4) {
        answer.push(0);
    }
    let head = header(request, refusal.code, refusal.lifetime, epoch);
    // The answer to a request that was not understood repeats the request's reserved bytes.
    let is_understood = !matches!(
        refusal.code,
        ResultCode::MalformedRequest | ResultCode::MalformedOption | ResultCode::UnsupportedVersion
    );
    //= rfc6887#section-7.2-unparsed
    let own = if is_understood { HEADER_LEN } else { 12 };
    answer[..own].copy_from_slice(&head[..own]);
    answer
}
