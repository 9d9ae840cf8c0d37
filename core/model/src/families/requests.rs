//! Requests of hosts of NAT64 and DS-Lite for mappings (specification, 19.38 and 20.26): the
//! request of the place of the host, in the realm.

use super::Families;
use super::hosts::Host;
use super::nat64::{extracted, host_of};
use natgate_engine::{Endpoint, Explicit, ExplicitError, MapRequest, PeerRequest, Timestamp};
use natgate_ipv6::Requester;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

type Asked<T> = Result<T, ExplicitError>;

impl Families {
    /// A request of a host for a mapping for all remote endpoints; realm and address in the request
    /// are not used. `choice` is the engine's external endpoint, if it made a mapping.
    ///
    /// # Errors
    /// The errors of the same method of [`natgate_engine::Engine`].
    pub fn map(
        &mut self,
        now: Timestamp,
        host: Requester,
        request: &MapRequest<'_>,
        choice: Option<Endpoint>,
    ) -> Asked<Explicit> {
        let (realm, address) = self.requester(now, host)?;
        let internal = Endpoint { address: address.into(), ..request.internal };
        self.ipv4.map(now, &MapRequest { realm, internal, ..*request }, choice)
    }

    /// Gives up a requested mapping of a host.
    ///
    /// # Errors
    /// The errors of the same method of [`natgate_engine::Engine`].
    pub fn unmap(
        &mut self,
        now: Timestamp,
        host: Requester,
        request: &MapRequest<'_>,
    ) -> Asked<Duration> {
        let (realm, address) = self.known_requester(now, host)?;
        let internal = Endpoint { address: address.into(), ..request.internal };
        self.ipv4.unmap(now, request.protocol, realm, internal, request.nonce)
    }

    /// A request of a host for a session with a remote host, which a host of NAT64 may know by an
    /// address of IPv6; realm and addresses in the request are not used.
    ///
    /// # Errors
    /// The errors of the same method of [`natgate_engine::Engine`].
    pub fn peer(
        &mut self,
        now: Timestamp,
        (host, remote): (Requester, IpAddr),
        request: &PeerRequest,
        choice: Option<Endpoint>,
    ) -> Asked<Explicit> {
        let (realm, address) = self.requester(now, host)?;
        let (prefix, remote) = match (remote, host, &self.settings.nat64) {
            (IpAddr::V4(remote), ..) => (None, remote.to_bits()),
            (IpAddr::V6(remote), Requester::Ipv6(_), Some(nat64)) => {
                let found = extracted(nat64, remote.to_bits());
                let (prefix, remote) = found.map_err(|_| ExplicitError::Remote)?;
                (Some(prefix), remote)
            }
            (IpAddr::V6(_), ..) => return Err(ExplicitError::Remote),
        };
        let internal = Endpoint { address: address.into(), ..request.internal };
        let remote_end = Endpoint { address: remote.into(), ..request.remote };
        let request = PeerRequest { realm, internal, remote: remote_end, ..*request };
        let granted = self.ipv4.peer(now, &request, choice)?;
        if let Some(prefix) = prefix.filter(|_| !request.lifetime.is_zero()) {
            self.prefixes.insert((address, remote), prefix); // 19.14
        }
        Ok(granted)
    }

    /// The realm, and the address that stands for a host there. Room for hosts of NAT64 is left
    /// open.
    fn requester(&mut self, now: Timestamp, host: Requester) -> Asked<(u16, u32)> {
        let Requester::Tunneled { b4, inner } = host else {
            return self.known_requester(now, host);
        };
        let realm = self.dslite_realm().ok_or(ExplicitError::NotSubscriber)?;
        let host = self.requester_behind(b4.to_bits(), inner)?;
        let place = self.place_behind(now, b4.to_bits(), host);
        Ok((realm, place.map_err(|_| ExplicitError::Full)?))
    }

    /// As `requester`, for a host that ends a hold: a B4 does not move by this.
    fn known_requester(&mut self, now: Timestamp, host: Requester) -> Asked<(u16, u32)> {
        match host {
            Requester::Ipv6(host) => {
                let realm = self.nat64_realm().ok_or(ExplicitError::NotSubscriber)?;
                let host = self.requester_of_nat64(host)?;
                Ok((realm, self.hosts.place_or_new(host)))
            }
            Requester::Tunneled { b4, inner } => {
                let realm = self.dslite_realm().ok_or(ExplicitError::NotSubscriber)?;
                let host = self.requester_behind(b4.to_bits(), inner)?;
                let may_ask = self.may_send_from(now, b4.to_bits());
                may_ask.then_some(()).ok_or(ExplicitError::NotSubscriber)?;
                Ok((realm, self.tunneled.place_or_new(host)))
            }
        }
    }

    fn requester_of_nat64(&self, host: Ipv6Addr) -> Asked<Host> {
        let is_strange = host.is_multicast()
            || host.is_unspecified()
            || host.is_loopback()
            || host.is_unicast_link_local()
            || host.to_ipv4_mapped().is_some()
            || self.is_own_ipv6(host.to_bits())
            || self.nat64_claims(host.to_bits());
        let nat64 = self.settings.nat64.as_ref().ok_or(ExplicitError::NotSubscriber)?;
        let is_of = |prefix: &natgate_ipv6::Prefix6| prefix.contains(host);
        let is_subscriber = nat64.subscribers.is_empty() || nat64.subscribers.iter().any(is_of);
        if is_strange || !is_subscriber {
            return Err(ExplicitError::NotSubscriber);
        }
        Ok(host_of(nat64, host.to_bits()))
    }
}
