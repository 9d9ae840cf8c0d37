//! NAT-PMP (RFC 6886), for clients that are older than PCP: requests without options, nonces or
//! addresses.

use crate::message::{Fields, RESPONSE};
use crate::options::{Filters, NO_NONCE};
use crate::request::{Granted, Map, Operation, Policy, Read, Refusal, Request, Silence, Unmap};
use crate::{Answer, ResultCode};
use core::net::Ipv4Addr;

/// The version that is spoken here.
pub(crate) const VERSION: u8 = 0;

const ADDRESS: u8 = 0;
const MAP_UDP: u8 = 1;
const MAP_TCP: u8 = 2;
const UDP: u8 = 17;
const TCP: u8 = 6;
/// Bytes of a request for a mapping.
const MAP_LEN: usize = 12;

/// Reads a request.
pub(crate) fn read(bytes: &[u8], client: Ipv4Addr, policy: &Policy, epoch: u32) -> Read {
    let fields = Fields(bytes);
    //= rfc6886#section-3.5-response
    if fields.is_response() {
        return Read::Silence(Silence::Response);
    }
    //= rfc6886#section-3.3-source
    let request = |operation| Read::Ask(Request::old(client, operation));
    //= rfc6886#section-3.3-alone
    let protocol = match fields.opcode() {
        ADDRESS => return request(Operation::Address),
        MAP_UDP => UDP,
        MAP_TCP => TCP,
        //= rfc6886#section-3.5-opcode
        _ => return Read::Answer(unsupported(bytes, epoch)),
    };
    if bytes.len() < MAP_LEN {
        return Read::Silence(Silence::Short);
    }
    //= rfc6886#section-3.3-reserved
    let (port, wanted, lifetime) = (fields.short(4), fields.short(6), fields.long(8));
    //= rfc6886#section-3.4-delete
    if lifetime == 0 {
        return request(match port {
            //= rfc6886#section-3.4-all
            0 => Operation::UnmapAll { protocol },
            _ => Operation::Unmap(Unmap { protocol, port, nonce: NO_NONCE, ports: 1 }),
        });
    }
    if port == 0 {
        return Read::Answer(refuse(bytes, Refusal::new(ResultCode::NotAuthorized), epoch));
    }
    request(Operation::Map(Map {
        protocol,
        port,
        nonce: NO_NONCE,
        external: None,
        external_port: wanted,
        prefer_failure: false,
        impossible: false,
        filters: Filters::default(),
        ports: 1,
        //= rfc6886#section-3.3-lifetime
        lifetime: lifetime.min(policy.lifetime.1),
    }))
}

/// The answer to a request that was carried out.
pub(crate) fn grant(bytes: &[u8], granted: &Granted, epoch: u32) -> Answer {
    let mut answer = begin(bytes, ResultCode::Success, epoch);
    match Fields(bytes).opcode() {
        //= rfc6886#section-3.2
        ADDRESS => answer.extend(granted.external.octets()),
        _ => {
            // A mapping that was given back is gone for the client, even if sessions still use it.
            //= rfc6886#section-3.4-answer
            let is_deleted = Fields(bytes).long(8) == 0;
            let lifetime = if is_deleted { 0 } else { granted.lifetime };
            let external = if lifetime > 0 { granted.external_port } else { 0 };
            answer.extend(Fields(bytes).bytes::<2>(4));
            answer.extend(external.to_be_bytes());
            answer.extend(lifetime.to_be_bytes());
        }
    }
    answer
}

/// The answer to a request that was not carried out.
//= rfc6886#section-3.5-fields
pub(crate) fn refuse(bytes: &[u8], refusal: Refusal, epoch: u32) -> Answer {
    let mut answer = begin(bytes, refusal.code, epoch);
    match Fields(bytes).opcode() {
        //= rfc6886#section-3.2-error
        ADDRESS => answer.extend([0; 4]),
        _ => {
            answer.extend(Fields(bytes).bytes::<2>(4));
            answer.extend([0; 6]);
        }
    }
    answer
}

//= rfc6886#section-3.3-epoch
fn begin(bytes: &[u8], code: ResultCode, epoch: u32) -> Answer {
    let mut answer = Answer::new();
    answer.extend([VERSION, Fields(bytes).opcode() | RESPONSE]);
    answer.extend(code.in_nat_pmp().to_be_bytes());
    answer.extend(epoch.to_be_bytes());
    answer
}

/// The whole request, as the protocol has it, with the reason in its place.
fn unsupported(bytes: &[u8], _: u32) -> Answer {
    let mut answer: Answer = bytes.iter().copied().take(crate::LONGEST).collect();
    while answer.len() < 4 {
        answer.push(0);
    }
    answer[1] |= RESPONSE;
    answer[2..4].copy_from_slice(&ResultCode::UnsupportedOpcode.in_nat_pmp().to_be_bytes());
    answer
}

/// Announcement to all clients: there is a server, or it has lost its mappings.
//= rfc6886#section-3.2.1
pub fn announcement(external: Ipv4Addr, epoch: u32) -> Answer {
    let mut answer = begin(&[VERSION, ADDRESS], ResultCode::Success, epoch);
    answer.extend(external.octets());
    answer
}
