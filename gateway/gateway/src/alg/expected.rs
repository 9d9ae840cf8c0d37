//! Expectations as the gateway reports them.

use super::Arrived;
use natgate_engine::{Endpoint, Engine, RemoteFilter, Timestamp};
use natgate_ipv6::{HostName, Translator};
use natgate_payload::{Event, Kind, Uses, Wanted};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// An expectation that an application-level gateway has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgExpectation {
    /// Time of the message that made it.
    pub time: Timestamp,
    /// Protocol of the control flow.
    pub kind: Kind,
    /// IP protocol number of the expected flow.
    pub protocol: u8,
    /// Number of the realm that the internal endpoint is in.
    pub realm: u16,
    /// Internal endpoint of the mapping. A host of NAT64 has its number.
    pub internal: Endpoint,
    /// External endpoint of the mapping.
    pub external: Endpoint,
    /// The remote address that may begin the flow; `None`: any.
    pub remote: Option<Ipv4Addr>,
    /// The remote port that may begin the flow; 0: any.
    pub remote_port: u16,
}

impl AlgExpectation {
    /// The expectations of the framework's event: one, or two for a pair of ports. `internal` is
    /// the internal endpoint as the engine knows it.
    pub(super) fn of(
        arrived: Arrived,
        event: &Event,
        internal: Option<SocketAddrV4>,
    ) -> impl Iterator<Item = Self> + use<> {
        let Event { kind, opened, .. } = *event;
        let wanted = opened.expectation;
        let of = move |further: u16| {
            let internal = internal?;
            let external = opened.external;
            Some(Self {
                time: arrived.now,
                kind,
                protocol: wanted.protocol,
                realm: arrived.realm,
                internal: Endpoint {
                    address: *internal.ip(),
                    port: internal.port().checked_add(further)?,
                },
                external: Endpoint {
                    address: *external.ip(),
                    port: external.port().checked_add(further)?,
                },
                remote: wanted.remote,
                remote_port: wanted.remote_port,
            })
        };
        let count = if wanted.wanted == Wanted::Pair { 2 } else { 1 };
        (0..count).filter_map(of)
    }
}

/// An expectation whose flow may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenExpectation {
    /// The expectation.
    pub made: AlgExpectation,
    /// Time for which the flow may begin.
    pub left: Duration,
    /// True if the first flow uses it up.
    pub once: bool,
    /// The internal host, if it is one of NAT64.
    pub host: Option<HostName>,
}

/// Internal end of an expectation: protocol, realm and endpoint of the internal host.
type Internal = (u8, u16, Endpoint);

/// An expectation, the end of its time, and true if the first flow uses it up.
type Open = (AlgExpectation, Timestamp, bool);

/// Expectations whose time has not passed. Each internal end has a place among the engine's holds,
/// and at most as many expectations as a hold has filters, so that the limit of holds limits the
/// list.
#[derive(Debug, Default)]
pub(super) struct OpenList(HashMap<Internal, Vec<Open>>);

impl OpenList {
    /// Adds the expectations of the framework's event, or renews them. What lasts longer keeps its
    /// time.
    pub(super) fn add(&mut self, made: AlgExpectation, event: &Event) {
        let wanted = event.opened.expectation;
        let mut until = made.time.plus(Duration::from_secs(wanted.lifetime.into()));
        let AlgExpectation { protocol, realm, internal, remote, remote_port, .. } = made;
        let of_internal = self.0.entry((protocol, realm, internal)).or_default();
        of_internal.retain(|(one, end, _)| {
            let is_same = (one.remote, one.remote_port) == (remote, remote_port);
            until = if is_same { until.max(*end) } else { until };
            !is_same
        });
        if of_internal.len() >= RemoteFilter::MOST {
            of_internal.remove(0);
        }
        of_internal.push((made, until, wanted.uses == Uses::Once));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets expectations whose time has passed.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.0.retain(|_, of_internal| {
            of_internal.retain(|(_, until, _)| *until > now);
            !of_internal.is_empty()
        });
    }

    /// The expectations that the engine still admits.
    pub(super) fn list(
        &self,
        engine: &mut Engine,
        translator: Option<&Translator>,
        now: Timestamp,
    ) -> Vec<OpenExpectation> {
        let mut open = Vec::new();
        for (made, until, once) in self.0.values().flatten() {
            let AlgExpectation { protocol, realm, internal, .. } = *made;
            let admitted = engine.admits_requested(protocol, realm, internal, filter(made));
            if let Some(admitted) = admitted.filter(|_| *until > now) {
                let host = translator.and_then(|one| one.host(realm, internal.address));
                let (left, once) = (until.since(now).min(admitted), *once);
                open.push(OpenExpectation { made: *made, left, once, host });
            }
        }
        open
    }
}

fn filter(made: &AlgExpectation) -> Option<RemoteFilter> {
    let admitted = |remote: Ipv4Addr| RemoteFilter {
        address: remote.to_bits(),
        prefix_len: 32,
        port: made.remote_port,
    };
    made.remote.map(admitted)
}
