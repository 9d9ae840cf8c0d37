//! The engine's ports for expectations: mappings that are made as if a host had requested them.
//!
//! The hold of such a mapping lasts as long as the expectation. The mapping counts against the
//! subscriber's quota, and stays as long as its sessions after the hold.

use super::calls::Calls;
use super::dns::Addresses;
use super::further::FurtherFlows;
use super::seconds;
use super::tunneled::Host;
use natgate_engine::{
    Endpoint, Engine, ExplicitError, Keeper, MapRequest, Nonce, RemoteFilter, Side, Timestamp,
    WantedEndpoint,
};
use natgate_payload::{
    CallStep, Counterpart, Endpoints, Expectation, FurtherFlow, Kind, Ports, Uses, Wanted,
};
use natgate_wire::protocol::TCP;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Owner of all mappings of this module: any control flow of a host may renew what another made.
const OWNER: Nonce = *b"natgate-alg\0";

/// Draws of a pair of ports before the framework gives up.
const DRAWS: usize = 8;

/// The ports of an engine.
pub(super) struct EnginePorts<'e> {
    pub(super) engine: &'e mut Engine,
    /// The internal host of the flow.
    pub(super) host: Host<'e>,
    pub(super) now: Timestamp,
    /// The protocol of the control flow, and its IP protocol number.
    pub(super) kind: (Kind, u8),
    pub(super) addresses: &'e Addresses,
    pub(super) calls: &'e mut Calls,
    pub(super) further: &'e mut FurtherFlows,
}

/// An endpoint to map, the control flow with its realm, and the expectation's other parts.
#[derive(Clone, Copy)]
struct Request<'r> {
    flow: &'r Endpoints,
    wanted: &'r Expectation,
    internal: SocketAddrV4,
    external: (Ipv4Addr, u16),
}

impl EnginePorts<'_> {
    fn map(&mut self, request: Request<'_>) -> Option<SocketAddrV4> {
        let Expectation { protocol, remote, lifetime, .. } = *request.wanted;
        let filter = filter(request.wanted);
        let filters = filter.as_slice();
        let map = |engine: &mut Engine, replaces_filters| {
            let (address, port) = request.external;
            let asked = MapRequest {
                protocol,
                realm: request.flow.realm,
                internal: end(request.internal),
                wanted: WantedEndpoint { address: Some(address), port, strict: true },
                lifetime: Duration::from_secs(lifetime.into()),
                nonce: OWNER,
                replaces_filters,
                filters,
            };
            engine.map_for(self.now, &asked, number(request.flow))
        };
        // Without a remote address, everybody is admitted. Old filters go if there are too many.
        let made = match map(self.engine, remote.is_none()) {
            Err(ExplicitError::Filters) => map(self.engine, true),
            made => made,
        };
        let made = made.ok()?;
        if request.wanted.uses == Uses::Once {
            // A static mapping admits everybody, and has no hold.
            let realm = request.flow.realm;
            self.engine.admit_once(protocol, realm, end(request.internal), filter);
        }
        Some(SocketAddrV4::new(made.external.address, made.external.port))
    }

    fn unmap(&mut self, Request { wanted, flow, internal, .. }: Request<'_>) {
        // A mapping that does not go now goes at the end of its hold.
        let _ = self.engine.unmap(self.now, wanted.protocol, flow.realm, end(internal), OWNER);
    }

    /// Maps two ports that follow each other to two that do.
    fn map_pair(&mut self, request: Request<'_>) -> Option<SocketAddrV4> {
        let second = request.internal.port().checked_add(1)?;
        let second = SocketAddrV4::new(*request.internal.ip(), second);
        let realm = request.flow.realm;
        for _ in 0..DRAWS {
            // A hold that is there may be another flow's, and draws the same port again.
            let is_requested =
                self.engine.is_requested(request.wanted.protocol, realm, end(request.internal));
            let first = self.map(request)?;
            let external = (request.external.0, first.port().checked_add(1)?);
            if first.port() % 2 == 0
                && self.map(Request { internal: second, external, ..request }).is_some()
            {
                return Some(first);
            }
            if is_requested {
                return None;
            }
            self.unmap(request);
        }
        None
    }
}

impl Ports for EnginePorts<'_> {
    fn expect(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4> {
        let internal = self.host.in_engine(self.engine, wanted.internal)?;
        let address = *flow.external.ip();
        let request = Request { flow, wanted, internal, external: (address, 0) };
        match wanted.wanted {
            Wanted::AddressOfFlow => self.map(request),
            Wanted::EndpointOfFlow => {
                self.map(Request { external: (address, flow.external.port()), ..request })
            }
            Wanted::Pair => self.map_pair(request),
            Wanted::CallId => {
                let (worker, _) = self.engine.place();
                let of = (worker, host_bits(self.engine, flow.realm));
                let outer = self.calls.open(self.now, of, flow, internal.port())?;
                Some(SocketAddrV4::new(address, outer))
            }
        }
    }

    fn limit(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4> {
        let first = self.host.in_engine(self.engine, wanted.internal)?;
        let filter = filter(wanted)?;
        let mut limit = |internal: SocketAddrV4| {
            self.engine.admit_only(wanted.protocol, flow.realm, end(internal), OWNER, filter)
        };
        let external = limit(first);
        if let (Wanted::Pair, Some(second)) = (wanted.wanted, first.port().checked_add(1)) {
            limit(SocketAddrV4::new(*first.ip(), second));
        }
        external.map(|external| SocketAddrV4::new(external.address, external.port))
    }

    fn shorten(&mut self, flow: &Endpoints, wanted: &Expectation) {
        let internal = self.host.in_engine(self.engine, wanted.internal);
        if let Some((internal, filter)) = internal.zip(filter(wanted)) {
            let lifetime = Duration::from_secs(wanted.lifetime.into());
            let of = (wanted.protocol, flow.realm, end(internal));
            let keeper = Keeper { nonce: OWNER, number: number(flow), filter };
            self.engine.shorten(self.now, of, keeper, lifetime);
        }
    }

    fn withdraw(&mut self, flow: &Endpoints, wanted: &Expectation) {
        let internal = self.host.in_engine(self.engine, wanted.internal);
        if let Some((internal, filter)) = internal.zip(filter(wanted)) {
            let of = (wanted.protocol, flow.realm, end(internal));
            let keeper = Keeper { nonce: OWNER, number: number(flow), filter };
            self.engine.withdraw(self.now, of, keeper);
            if wanted.protocol == TCP && !self.engine.is_requested(TCP, flow.realm, of.2) {
                self.further.end(flow, wanted.internal, seconds(self.now));
            }
        }
    }

    fn counterpart(&self, flow: &Endpoints, from: Side, address: Ipv4Addr) -> Option<Counterpart> {
        self.addresses.counterpart((&*self.engine, self.host), flow, from, address)
    }

    fn across(&self, flow: &Endpoints, address: IpAddr) -> Option<IpAddr> {
        self.host.across(flow, address)
    }

    fn call(&mut self, flow: &Endpoints, step: CallStep) -> Option<u16> {
        self.calls.step(seconds(self.now), flow, step)
    }

    fn follow(&mut self, flow: &Endpoints, further: &FurtherFlow, lifetime: u16) -> bool {
        let until = seconds(self.now) + u32::from(lifetime);
        self.further.add(self.kind, flow, further, until)
    }
}

/// Lower bits in which the hosts of one subscriber of a realm differ.
fn host_bits(engine: &Engine, realm: u16) -> u8 {
    let place = usize::from(realm).checked_sub(1);
    let config = place.and_then(|place| engine.config().realms.get(place));
    config.and_then(|config| config.host_bits).unwrap_or(0)
}

/// Number of a control flow among those of one internal host, not 0. Two numbers are equal only by
/// chance. A flow that gets another external port has another number, as the framework does not
/// know it any more.
pub(super) fn number(flow: &Endpoints) -> u32 {
    let external = u32::from(flow.external.port()) << 16 | u32::from(flow.remote.port());
    let remote = flow.remote.ip().to_bits().wrapping_mul(0x85eb_ca6b);
    (external ^ remote ^ u32::from(flow.internal.port()).wrapping_mul(0x9e37_79b1)).max(1)
}

/// The filter for an expectation's remote endpoint. `None`: any.
fn filter(wanted: &Expectation) -> Option<RemoteFilter> {
    let port = wanted.remote_port;
    wanted.remote.map(|remote| RemoteFilter { address: remote.to_bits(), prefix_len: 32, port })
}

fn end(end: SocketAddrV4) -> Endpoint {
    Endpoint { address: *end.ip(), port: end.port() }
}
