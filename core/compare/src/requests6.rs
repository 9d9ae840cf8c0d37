//! Requests of hosts of NAT64 and DS-Lite for mappings and sessions, in translator, engine and
//! model alike.

use crate::Divergence;
use crate::changes::is_taken;
use crate::families::{Did, FamilyPair, is_known};
use crate::same::{legal, same};
use natgate_engine::{
    Endpoint, Explicit, ExplicitError, MapRequest, PeerRequest, Timestamp, WantedEndpoint,
};
use natgate_ipv6::{Requester, Translator};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A request of a host.
#[derive(Clone, Copy, Debug)]
pub struct HostRequest {
    /// The host.
    pub host: Requester,
    /// IP protocol number.
    pub protocol: u8,
    /// Internal port.
    pub port: u16,
    /// A session with this remote endpoint; `None`: a mapping for all remote endpoints.
    pub remote: Option<(IpAddr, u16)>,
    /// The suggested external endpoint.
    pub wanted: WantedEndpoint,
    /// Duration of the hold; zero: the host gives the mapping up.
    pub lifetime: Duration,
    /// Nonce of the request.
    pub nonce: [u8; 12],
}

/// The result of a request: a granted mapping, or the time that is left of one given up.
type Asked = Result<(Option<Explicit>, Duration), ExplicitError>;

impl HostRequest {
    /// The request for a mapping of a host with a number.
    fn map(&self, (realm, address): (u16, Ipv4Addr)) -> MapRequest<'static> {
        let Self { protocol, port, wanted, lifetime, nonce, .. } = *self;
        let internal = Endpoint { address, port };
        let filters = &[];
        let replaces_filters = false;
        MapRequest { protocol, realm, internal, wanted, lifetime, nonce, replaces_filters, filters }
    }

    /// The request for a session of a host with a number.
    fn peer(&self, (realm, address): (u16, Ipv4Addr), remote: Endpoint) -> PeerRequest {
        let Self { protocol, port, wanted, lifetime, nonce, .. } = *self;
        let internal = Endpoint { address, port };
        PeerRequest { protocol, realm, internal, remote, wanted, lifetime, nonce }
    }
}

/// IPv4 address of a remote host, if the translator knows it.
fn known(translator: &Translator, host: Requester, remote: IpAddr) -> Option<Ipv4Addr> {
    match remote {
        IpAddr::V4(remote) => Some(remote),
        IpAddr::V6(remote) => translator.remote_of(host.kind(), remote),
    }
}

impl FamilyPair {
    /// Gives a request of a host to both. The answers must be equal.
    ///
    /// # Errors
    /// When the results differ.
    pub fn request(&mut self, now: Timestamp, request: &HostRequest) -> Result<(), Divergence> {
        let translator = &self.translator;
        let counts = |realm, host| is_known(translator, realm, host);
        if let Some(host) = self.model.forget_hosts(counts) {
            return Err(format!("{host:x?} has a mapping, and the translator does not know it"));
        }
        let got = self.ask_translator(now, request);
        let choice = got.ok().and_then(|(granted, _)| granted).map(|granted| granted.external);
        let expected = self.ask_model(now, request, choice);
        same("what a host asked for", &got, &expected)
            .map_err(|wrong| format!("{request:?}: {wrong}"))?;
        let mut did = Did::default();
        self.drain(&mut did)?;
        self.translator.sweep(&self.engine, now);
        let engine = &self.engine;
        self.model.ipv4.limit_held_now(Some(&|protocol, end| is_taken(engine, protocol, end)));
        legal("what the engine chose", &self.model.ipv4.take_effects())
    }

    fn ask_translator(&mut self, now: Timestamp, request: &HostRequest) -> Asked {
        let Self { engine, translator, .. } = self;
        if !translator.translates_for(request.host) {
            return Err(ExplicitError::NotSubscriber);
        }
        if request.remote.is_none() && request.lifetime.is_zero() {
            let known = translator.known_requester(request.host, now);
            let known = known.map_err(|_| ExplicitError::NotSubscriber)?;
            let Some(number) = known else { return Ok((None, Duration::ZERO)) };
            let MapRequest { protocol, realm, internal, nonce, .. } = request.map(number);
            return engine.unmap(now, protocol, realm, internal, nonce).map(|left| (None, left));
        }
        let number = translator.number_requester(request.host, now);
        let number = number.map_err(|_| ExplicitError::Full)?;
        let asked = match request.remote {
            None => engine.map(now, &request.map(number)),
            Some((remote, port)) => match known(translator, request.host, remote) {
                None => Err(ExplicitError::Remote),
                Some(address) => {
                    engine.peer(now, &request.peer(number, Endpoint { address, port }))
                }
            },
        };
        match (asked, request.remote) {
            (Ok(_), Some((remote, _))) if !request.lifetime.is_zero() => {
                if let IpAddr::V6(remote) = remote {
                    translator.note_remote(number, remote);
                }
            }
            (Ok(_), None) => {}
            _ => translator.refuse_requester(number),
        }
        asked.map(|granted| (Some(granted), Duration::ZERO))
    }

    fn ask_model(
        &mut self,
        now: Timestamp,
        request: &HostRequest,
        choice: Option<Endpoint>,
    ) -> Asked {
        let (nobody, host) = ((0, Ipv4Addr::UNSPECIFIED), request.host);
        let granted = |granted| (Some(granted), Duration::ZERO);
        match request.remote {
            None if request.lifetime.is_zero() => {
                self.model.unmap(now, host, &request.map(nobody)).map(|left| (None, left))
            }
            None => self.model.map(now, host, &request.map(nobody), choice).map(granted),
            Some((remote, port)) => {
                let remote_end = Endpoint { address: Ipv4Addr::UNSPECIFIED, port };
                let peer = request.peer(nobody, remote_end);
                self.model.peer(now, (host, remote), &peer, choice).map(granted)
            }
        }
    }
}
