//! Operations that requests ask for, carried out by the engine, for hosts of both families.
//!
//! The engine knows a host of NAT64 or DS-Lite by a number, and remote hosts by their IPv4
//! addresses. A host of IPv6 names remote hosts as it knows them, by addresses in a prefix of NAT64
//! (RFC 6887 section 10, figure 5); it may name an IPv4 address, too.

use natgate_engine::{
    DropReason, Endpoint, Engine, Explicit, ExplicitError, MapRequest, PeerRequest, RemoteFilter,
    Timestamp, WantedEndpoint,
};
use natgate_ipv6::{HostKind, Requester, Translator};
use natgate_pcp::{Granted, Map, Operation, Peer, Refusal, ResultCode, Unmap};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Nonce, port and lifetime of a mapping that serves only to learn a host's external address. The
/// port is that of the discard service.
const OF_ADDRESS: ([u8; 12], u16, Duration) = (*b"external add", 9, Duration::from_secs(120));

/// Remote hosts, as a host names them.
#[derive(Clone, Copy)]
enum Remotes<'t> {
    /// By IPv4 addresses only.
    Ipv4,
    /// By addresses of both families, as hosts of NAT64 do. A translator knows them.
    Both(&'t Translator),
}

/// How a host names remote hosts, and the longest lifetime that it may have, seconds.
type Bounds<'t> = (Remotes<'t>, u32);

impl Remotes<'_> {
    /// IPv4 address of a remote host; `None`: the host cannot reach it.
    fn address(self, remote: IpAddr) -> Option<Ipv4Addr> {
        match (remote, self) {
            (IpAddr::V4(remote), _) => Some(remote),
            (IpAddr::V6(remote), Self::Both(translator)) => {
                translator.remote_of(HostKind::Nat64, remote)
            }
            (IpAddr::V6(_), Self::Ipv4) => None,
        }
    }

    /// IPv4 prefix of the remote hosts in a prefix of either family.
    fn prefix(self, address: IpAddr, len: u8) -> Option<(Ipv4Addr, u8)> {
        match (address, self) {
            (IpAddr::V4(address), _) => Some((address, len)),
            (IpAddr::V6(address), Self::Both(translator)) => {
                translator.remotes_of(HostKind::Nat64, address, len)
            }
            (IpAddr::V6(_), Self::Ipv4) => None,
        }
    }
}

/// Longest lifetime that a host behind a tunnel gets while its B4 is unanswered, seconds, unless
/// the settings have a longer minimum. Nobody answers a forged B4.
const MOST_UNANSWERED: u32 = 120;

/// Carries an operation out for a host of IPv4.
pub(super) fn carry_out(
    engine: &mut Engine,
    now: Timestamp,
    host: InternalHost,
    operation: &Operation,
) -> Result<Granted, Refusal> {
    carry_out_for(engine, now, host, operation, (Remotes::Ipv4, u32::MAX))
}

/// Carries an operation out for a host of NAT64 or DS-Lite. No lifetime is shorter than `least`
/// seconds for being unproven.
pub(super) fn carry_out_for_numbered(
    engine: &mut Engine,
    translator: &mut Translator,
    now: Timestamp,
    host: Requester,
    (operation, least): (&Operation, u32),
) -> Result<Granted, Refusal> {
    if let Operation::Unmap(_) | Operation::UnmapAll { .. } = operation {
        let known = translator.known_requester(host, now).map_err(without_number)?;
        if let Some(numbered) = known {
            return carry_out_for(engine, now, numbered, operation, (Remotes::Ipv4, u32::MAX));
        }
        // A host without a number has no mapping, and a mapping that does not exist is deleted.
        let (port, ports) = match operation {
            Operation::Unmap(unmap) => (unmap.port, unmap.ports),
            _ => (0, 1),
        };
        return Ok(Granted { port, ports, ..granted_nothing() });
    }
    let numbered = translator.number_requester(host, now).map_err(without_number)?;
    let bounds = match host {
        Requester::Ipv6(_) => (Remotes::Both(translator), u32::MAX),
        Requester::Tunneled { .. } if engine.is_answered(numbered.0, numbered.1) => {
            (Remotes::Ipv4, u32::MAX)
        }
        Requester::Tunneled { .. } => (Remotes::Ipv4, least.max(MOST_UNANSWERED)),
    };
    let done = carry_out_for(engine, now, numbered, operation, bounds);
    match (&done, operation) {
        (Ok(granted), Operation::Peer(peer)) if granted.lifetime > 0 => {
            if let IpAddr::V6(remote) = peer.remote.0 {
                translator.note_remote(numbered, remote);
            }
        }
        (Ok(granted), _) if granted.lifetime > 0 => {}
        // The host may have got a mapping. It loses a number without a mapping in a sweep.
        (Ok(_), Operation::Address) => {}
        _ => translator.refuse_requester(numbered),
    }
    done
}

/// The refusal of a request whose host has no number.
fn without_number(reason: DropReason) -> Refusal {
    Refusal::new(match reason {
        DropReason::PortQuota => ResultCode::UserExceededQuota,
        DropReason::NotSubscriber | DropReason::SoftwireSource => ResultCode::NotAuthorized,
        _ => ResultCode::NoResources,
    })
}

fn carry_out_for(
    engine: &mut Engine,
    now: Timestamp,
    (realm, host): InternalHost,
    operation: &Operation,
    bounds: Bounds<'_>,
) -> Result<Granted, Refusal> {
    match operation {
        Operation::Map(map) => grant_map(engine, now, (realm, host), map, bounds),
        Operation::Unmap(unmap) => give_back(engine, now, (realm, host), unmap),
        Operation::Peer(peer) => grant_peer(engine, now, (realm, host), peer, bounds),
        Operation::UnmapAll { protocol } => {
            let ended = engine.unmap_all(now, *protocol, realm, host, [0; 12]);
            ended.map(|()| granted_nothing()).map_err(refusal)
        }
        Operation::Address => tell_address(engine, now, (realm, host)),
    }
}

fn granted_nothing() -> Granted {
    granted(Ipv4Addr::UNSPECIFIED, 0)
}

/// Realm of a host, and its address there.
pub(super) type InternalHost = (u16, Ipv4Addr);

//= rfc7753#section-4.2-fewer
fn grant_map(
    engine: &mut Engine,
    now: Timestamp,
    (realm, address): InternalHost,
    map: &Map,
    (remotes, longest): Bounds<'_>,
) -> Result<Granted, Refusal> {
    if map.impossible {
        return Err(Refusal::new(ResultCode::CannotProvideExternal));
    }
    let filter = |filter: &natgate_pcp::Filter| {
        let (address, prefix_len) = remotes.prefix(filter.address, filter.prefix_len)?;
        Some(RemoteFilter { address: address.to_bits(), prefix_len, port: filter.port })
    };
    let filters: Option<arrayvec::ArrayVec<RemoteFilter, { RemoteFilter::MOST }>> =
        map.filters.add.iter().map(filter).collect();
    let filters = filters.ok_or(Refusal::new(ResultCode::MalformedOption))?;
    let mut ask = |port, wanted| {
        let internal = Endpoint { address, port };
        engine.map(
            now,
            &MapRequest {
                protocol: map.protocol,
                realm,
                internal,
                wanted,
                lifetime: Duration::from_secs(map.lifetime.min(longest).into()),
                nonce: map.nonce,
                replaces_filters: map.filters.replace,
                filters: &filters,
            },
        )
    };
    let wanted = WantedEndpoint {
        address: map.external,
        port: map.external_port,
        strict: map.prefer_failure,
    };
    let first = ask(map.port, wanted).map_err(refusal)?;
    // The following ports are mapped while each can have the external port that follows.
    let mut ports = 1;
    while ports < map.ports {
        let Some(port) = first.external.port.checked_add(ports) else { break };
        let wanted = WantedEndpoint { address: Some(first.external.address), port, strict: true };
        if ask(map.port + ports, wanted).is_err() {
            break;
        }
        ports += 1;
    }
    Ok(Granted { port: map.port, ports, ..told(&first) })
}

fn give_back(
    engine: &mut Engine,
    now: Timestamp,
    (realm, address): InternalHost,
    unmap: &Unmap,
) -> Result<Granted, Refusal> {
    let (mut left, mut others) = (Duration::ZERO, false);
    for more in 0..unmap.ports {
        let internal = Endpoint { address, port: unmap.port.saturating_add(more) };
        match engine.unmap(now, unmap.protocol, realm, internal, unmap.nonce) {
            Ok(of_this) => left = left.max(of_this),
            // The other node of a pair has this one, or may have it.
            Err(ExplicitError::Others) => others = true,
            Err(error) if more == 0 => return Err(refusal(error)),
            // The mapping belongs to another request.
            Err(_) => {}
        }
    }
    if others {
        return Err(refusal(ExplicitError::Others));
    }
    let lifetime = seconds(left);
    Ok(Granted { lifetime, port: unmap.port, ports: unmap.ports, ..granted(address, 0) })
}

fn grant_peer(
    engine: &mut Engine,
    now: Timestamp,
    (realm, address): InternalHost,
    peer: &Peer,
    (remotes, longest): Bounds<'_>,
) -> Result<Granted, Refusal> {
    let remote = remotes.address(peer.remote.0);
    let remote = remote.ok_or(Refusal::new(ResultCode::MalformedRequest))?;
    if peer.impossible {
        return Err(Refusal::new(ResultCode::CannotProvideExternal));
    }
    let granted = engine.peer(
        now,
        &PeerRequest {
            protocol: peer.protocol,
            realm,
            internal: Endpoint { address, port: peer.port },
            remote: Endpoint { address: remote, port: peer.remote.1 },
            wanted: WantedEndpoint {
                address: peer.external,
                port: peer.external_port,
                strict: true,
            },
            lifetime: Duration::from_secs(peer.lifetime.min(longest).into()),
            nonce: peer.nonce,
        },
    );
    let granted = granted.map_err(refusal)?;
    Ok(Granted { port: peer.port, ..told(&granted) })
}

/// Returns the external address of a host. A host without one gets a mapping for a short time.
pub(super) fn tell_address(
    engine: &mut Engine,
    now: Timestamp,
    (realm, address): InternalHost,
) -> Result<Granted, Refusal> {
    if let Some(external) = engine.external_address(realm, address) {
        return Ok(granted(external, 0));
    }
    let (nonce, port, lifetime) = OF_ADDRESS;
    let map = MapRequest {
        protocol: natgate_wire::protocol::UDP,
        realm,
        internal: Endpoint { address, port },
        wanted: WantedEndpoint::default(),
        lifetime,
        nonce,
        replaces_filters: false,
        filters: &[],
    };
    let made = engine.map(now, &map).map_err(|error| match refusal(error).code {
        ResultCode::NoResources => Refusal::new(ResultCode::NetworkFailure),
        code => Refusal::new(code),
    })?;
    Ok(granted(made.external.address, 0))
}

fn told(explicit: &Explicit) -> Granted {
    let lifetime = explicit.lifetime.map_or(u32::MAX, seconds);
    Granted { lifetime, ..granted(explicit.external.address, explicit.external.port) }
}

fn granted(external: Ipv4Addr, external_port: u16) -> Granted {
    Granted { external, external_port, lifetime: 0, port: 0, ports: 1 }
}

/// Whole seconds, rounded down: no host may count on more time than there is. A timer is at most
/// one tick late and never early, so the lifetime told is the lifetime requested.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

pub(super) fn refusal(error: ExplicitError) -> Refusal {
    match error {
        ExplicitError::Nonce(left) => {
            Refusal { code: ResultCode::NotAuthorized, lifetime: seconds(left) }
        }
        ExplicitError::NotSubscriber | ExplicitError::NotExplicit => {
            Refusal::new(ResultCode::NotAuthorized)
        }
        ExplicitError::Protocol => Refusal::new(ResultCode::UnsupportedProtocol),
        ExplicitError::Quota => Refusal::new(ResultCode::UserExceededQuota),
        ExplicitError::Full => Refusal::new(ResultCode::NoResources),
        ExplicitError::External => Refusal::new(ResultCode::CannotProvideExternal),
        ExplicitError::Filters => Refusal::new(ResultCode::ExcessiveRemotePeers),
        ExplicitError::Remote => Refusal::new(ResultCode::MalformedRequest),
        ExplicitError::Others => Refusal::new(ResultCode::NetworkFailure),
    }
}
