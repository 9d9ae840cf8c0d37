//! Requests for a mapping towards one remote endpoint: the mapping and session that the first
//! packet would make, or has made, kept for longer than the idle timeout.

use super::{Explicit, ExplicitError, PeerRequest, WantedEndpoint, as_wanted, refusal};
use crate::Timestamp;
use crate::endpoint::{AddressPort, Internal};
use crate::engine::Engine;
use crate::event::Endpoint;
use crate::explicit::{Filters, New};
use crate::parse::{Headers, Kind, is_martian};
use crate::rules::Snat;
use crate::session::{Segment, Way};
use crate::table::SessionRef;
use crate::translate::Opening;
use core::time::Duration;
use natgate_wire::protocol::UDP;
use natgate_wire::tcp::flags::SYN;

impl Engine {
    /// Makes a mapping towards a remote endpoint at a host's request, or keeps the present mapping.
    ///
    /// # Errors
    /// [`ExplicitError`]. Nothing has changed then.
    pub fn peer(
        &mut self,
        now: Timestamp,
        request: &PeerRequest,
    ) -> Result<Explicit, ExplicitError> {
        self.reclaim(now);
        let PeerRequest { protocol, realm, wanted, .. } = *request;
        let wanted = WantedEndpoint { strict: true, ..wanted };
        let internal = self.check_host(protocol, realm, request.internal)?;
        let remote = AddressPort::new(request.remote.address.to_bits(), request.remote.port);
        self.check_remote(realm, remote)?;
        let found = self.find_internal(protocol, internal, remote);
        if let Some(external) = self.static_end(protocol, internal, found) {
            return as_wanted(wanted, Explicit { external, lifetime: None });
        }
        let snat = self.source_for(protocol, internal, remote)?;
        let other = self.rules_of(realm).destination(remote, true);
        let other = other.or_else(|| self.twice.remote((protocol, internal), remote));
        if other.is_some_and(|other| other != remote) {
            // The session would be with another remote endpoint.
            return Err(ExplicitError::Full);
        }
        let hold = found.and_then(|slot| self.holds.find(slot, Some(remote)));
        //= rfc6887#section-12.3-nonce
        self.check_nonce(hold, request.nonce)?;
        let keeps = !request.lifetime.is_zero();
        if let Some(slot) = found.filter(|&slot| self.is_of_other(slot))
            && (keeps || hold.is_some())
        {
            let told = self.told_of_other(slot, hold.filter(|_| keeps))?;
            return as_wanted(wanted, told);
        }
        if hold.is_none() && keeps {
            self.check_room(internal.host)?;
        }
        let is_shared = found.is_some_and(|slot| self.rings.has(slot));
        if is_shared && keeps {
            return Err(ExplicitError::Full);
        }
        let slot = self.slot_for(found, (internal, remote), request, (snat, wanted))?;
        let natural = self.table.find_session(slot, remote);
        let natural = natural.map_or(self.tick, |at| self.table.session(at).expires);
        let external = self.endpoint_of(slot);
        if request.lifetime.is_zero() {
            if let Some(hold) = hold {
                self.end_hold(hold, self.now);
            }
            return Ok(Explicit { external, lifetime: Some(self.time_to(natural)) });
        }
        //= rfc6887#section-15-sooner
        self.note_asking(slot);
        let until = self.until_at_least(natural, request.lifetime);
        self.table.set_permanent(slot, true);
        let (host, nonce, filters) = (internal.host, request.nonce, Filters::default());
        self.holds.put(New { slot, remote: Some(remote), host, nonce, until, filters }, self.tick);
        self.note_change(slot);
        Ok(Explicit { external, lifetime: Some(self.time_to(until)) })
    }

    fn until_at_least(&self, natural: u32, lifetime: Duration) -> u32 {
        self.deadline(self.now, crate::time::nanos(lifetime)).max(natural)
    }

    /// Checks that a host may exist at a remote endpoint.
    //= rfc6887#section-12.3-validate
    fn check_remote(
        &self,
        realm: u16,
        AddressPort { address, port }: AddressPort,
    ) -> Result<(), ExplicitError> {
        let nobody = port == 0
            || is_martian(address)
            || self.is_ours(Some(realm), address)
            || self.is_inside(realm, address)
            || self.is_routed_inside(realm, address)
            || self.is_broadcast(Some(realm), address);
        if nobody { Err(ExplicitError::Remote) } else { Ok(()) }
    }

    /// The mapping with a session towards the remote endpoint. A new one is made as for the first
    /// packet.
    fn slot_for(
        &mut self,
        found: Option<u32>,
        (internal, remote): (Internal, AddressPort),
        request: &PeerRequest,
        (snat, wanted): (Snat, WantedEndpoint),
    ) -> Result<u32, ExplicitError> {
        if let Some(slot) = found
            && self.table.find_session(slot, remote).is_some()
        {
            //= rfc6887#section-12.3-existing
            return Ok(slot);
        }
        if request.lifetime.is_zero() {
            // A request with lifetime zero keeps nothing and makes nothing.
            return Err(ExplicitError::NotExplicit);
        }
        let headers = first_packet(request.protocol, internal, remote);
        if let Some(slot) = found {
            let external: Endpoint = self.endpoint_of(slot);
            //= rfc6887#section-12.3-cannot
            as_wanted(wanted, Explicit { external, lifetime: None })?;
            let record = self.record_of(slot);
            self.check_session(slot, record, remote, Way::Out).map_err(refusal)?;
            self.add_session((slot, record), remote, Way::Out, &headers);
            self.begun(slot, remote, remote);
            return Ok(slot);
        }
        //= rfc6887#section-12.3-new
        let external = self.allot(request.protocol, internal, snat, wanted)?;
        let slot = self.open(Opening { internal, remote, external, snat }, &headers);
        self.begun(slot, remote, remote);
        Ok(slot)
    }

    /// The record of a dynamic mapping's subscriber, which is of a class now.
    fn record_of(&mut self, slot: u32) -> Option<u32> {
        let mapping = self.table.mapping(slot);
        let record = self.subscribers.find(mapping.host()).filter(|_| !mapping.is_static())?;
        self.subscribers.settle(record);
        Some(record)
    }

    /// The deadline that a session's hold gives it, if it has one that has not come, and the
    /// session has not ended.
    pub(crate) fn held_until(&self, session: SessionRef, slot: u32, tick: u32) -> Option<u32> {
        let of = self.table.session(session);
        let remote = of.remote();
        //= rfc6887#section-12.3-ended
        if of.state().is_ending() {
            return None;
        }
        let hold = self.holds.find(slot, Some(remote))?;
        Some(self.holds.get(hold).until).filter(|&until| until > tick)
    }
}

/// The headers of a host's first packet of the session.
fn first_packet(protocol: u8, Internal { host, port }: Internal, remote: AddressPort) -> Headers {
    Headers {
        source: AddressPort::new(host.address(), port),
        destination: remote,
        outside: remote,
        realm: host.realm(),
        protocol,
        ttl: 64,
        // Only packets of the connection itself tell its sequence numbers.
        kind: if protocol == UDP { Kind::Udp } else { Kind::Dccp },
        header_len: 20,
        turned: false,
        fragment: false,
        dont_fragment: false,
        total_len: 40,
        segment: Segment { flags: SYN, ..Segment::default() },
    }
}
