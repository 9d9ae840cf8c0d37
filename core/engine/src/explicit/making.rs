//! Makes the mapping for all remote endpoints that a host requests, and chooses its external
//! endpoint: the suggested endpoint if it is available, else an endpoint as for a packet of the
//! host, but never a port of the protocols themselves. A suggestion does no harm: unless it is
//! strict, the request succeeds whenever it would succeed without the suggestion.

use super::{ExplicitError, OWN_PORTS, WantedEndpoint, is_reserved, refusal};
use crate::config::Pooling;
use crate::endpoint::{AddressPort, External, Internal};
use crate::engine::Engine;
use crate::event::MappingKind;
use crate::external::{OwnershipSource, Wish};
use crate::host::Host;
use crate::protocols::{place_of, quota_class};
use crate::rules::Snat;
use crate::session::Session;
use crate::table::{Key, NewMapping};
use crate::{Change, DropReason};

impl Engine {
    /// Makes a mapping for all remote endpoints, without a session.
    pub(super) fn make_for_all(
        &mut self,
        protocol: u8,
        internal: Internal,
        snat: Snat,
        wanted: WantedEndpoint,
    ) -> Result<u32, ExplicitError> {
        let external = self.allot(protocol, internal, snat, wanted)?;
        let External { index, port } = external;
        let record = self.subscribers.find(internal.host);
        let of_address = self.external.count(index, place_of(protocol));
        let pair = (snat.pool, snat.address.is_none().then_some(index));
        let kind = quota_class(protocol);
        self.note_made(protocol, of_address);
        let record = self.count_mapping(record, internal.host, pair, kind);
        let new = NewMapping {
            protocol,
            internal,
            external,
            timeouts: snat.timeouts,
            is_static: false,
            permanent: true,
            flags: 0,
        };
        let hash = self.table.hash(Key { protocol, internal, remote: AddressPort::new(0, 0) });
        let created = self.present_tick();
        let slot = self.table.add(new, (Session::NONE, created), hash).expect("the table has room");
        self.external.take(protocol, index, port, slot);
        self.note_change(slot);
        if self.subscribers.is_unanswered(record) {
            self.note_unanswered(record, slot, of_address);
        }
        if self.external.told(protocol, index, port) == OwnershipSource::Mapping {
            let id = self.id_of(protocol, internal, external, MappingKind::Pcp);
            self.raise(self.now, Change::MappingCreated(id));
        }
        self.watch_new(record, protocol, index);
        Ok(slot)
    }

    /// Chooses an external endpoint for a requested mapping, within the host's limits.
    pub(super) fn allot(
        &mut self,
        protocol: u8,
        internal: Internal,
        snat: Snat,
        wanted: WantedEndpoint,
    ) -> Result<External, ExplicitError> {
        let (host, pool) = (internal.host, snat.pool);
        let record = self.subscribers.find(host);
        if let Some(at) = record {
            self.subscribers.settle(at);
        }
        let known = record.is_some_and(|at| self.subscribers.has(at, pool));
        if let Err(reason) = self.check_limits(record, host, known, protocol) {
            self.report_refusal(reason, host, pool, protocol);
            return Err(refusal(reason));
        }
        let wish = self.wish(protocol, internal, snat, record);
        let (wish, parts) = wish.map_err(|_| ExplicitError::Full)?;
        let external = self.endpoint_for(wish, host, wanted)?;
        if let Some(at) = record.filter(|_| parts) {
            self.subscribers.part(at, pool);
        }
        Ok(external)
    }

    /// The suggested external endpoint if it is available, else another one if the request allows
    /// it.
    fn endpoint_for(
        &mut self,
        wish: Wish,
        host: Host,
        wanted: WantedEndpoint,
    ) -> Result<External, ExplicitError> {
        //= rfc7422#section-2-pcp
        let place = self.wanted_address(&wish, wanted);
        let is_elsewhere = wanted.address.is_some() && place.is_none();
        if is_elsewhere && wanted.strict {
            return Err(ExplicitError::External);
        }
        //= rfc6887#section-11.3-suggested
        if wanted.port != 0
            && let Some(index) = place.or_else(|| self.likely_address(&wish))
            && self.may_take(&wish, host, External::new(index, wanted.port))
        {
            return Ok(External::new(index, wanted.port));
        }
        //= rfc6887#section-11.3-prefer-failure
        if wanted.port != 0 && wanted.strict {
            return Err(ExplicitError::External);
        }
        if let Some(place) = place.filter(|_| wanted.strict)
            && self.would_share_elsewhere(wish, host, place)
        {
            return Err(ExplicitError::External);
        }
        // A suggested address has no effect if a rule has chosen the address, or if the
        // subscriber's ports are its own.
        let here = place.filter(|_| wish.fixed.is_none() && self.external.is_shared(wish.pool));
        let mut chosen = self.other_endpoint(Wish { fixed: wish.fixed.or(here), ..wish }, host);
        if chosen.is_err() && here.is_some() && !wanted.strict {
            // The suggested address has no free port: try without the suggestion.
            //= rfc6887#section-11.3-hint
            //= rfc6886#section-3.3-another
            chosen = self.other_endpoint(wish, host);
        }
        match (chosen, place.filter(|_| wanted.strict)) {
            (Ok(External { index, .. }), Some(place)) if index != place => {
                Err(ExplicitError::External)
            }
            (Ok(chosen), _) => Ok(chosen),
            (Err(DropReason::PoolExhausted), Some(_)) => Err(ExplicitError::External),
            (Err(reason), _) => {
                self.report_refusal(reason, host, wish.pool, wish.protocol);
                Err(refusal(reason))
            }
        }
    }

    /// True if a subscriber with ports of its own would get a port of another address. No block is
    /// to be assigned for such a port.
    fn would_share_elsewhere(&self, wish: Wish, host: Host, place: u32) -> bool {
        let chosen = || self.external.choose_share(wish, host, &mut self.generator.clone());
        !self.external.is_shared(wish.pool)
            && chosen().is_ok_and(|chosen| chosen.external.index != place)
    }

    /// The index of the suggested address, if the subscriber may have the address.
    fn wanted_address(&self, wish: &Wish, wanted: WantedEndpoint) -> Option<u32> {
        let index = self.external.index(wanted.address?.to_bits())?;
        let bound = match self.config.pooling {
            Pooling::Paired => wish.fixed.or(wish.paired),
            _ => wish.fixed,
        };
        let fits = bound.is_none_or(|bound| bound == index);
        (fits && self.external.is_open(index, wish.pool)).then_some(index)
    }

    /// The address that the mapping gets for any port, if it is certain.
    fn likely_address(&self, wish: &Wish) -> Option<u32> {
        let paired = wish.paired.filter(|_| self.config.pooling != Pooling::Arbitrary);
        wish.fixed.or(paired).or_else(|| self.external.only_address(wish.pool))
    }

    /// True if a free external endpoint may be given to a subscriber.
    fn may_take(&self, wish: &Wish, host: Host, External { index, port }: External) -> bool {
        //= rfc6887#section-11.3-own-ports
        let is_whole = self.external.is_whole(wish.pool);
        !is_reserved(wish.protocol, port)
            && (!is_whole || port == wish.internal_port)
            && self.external.is_open(index, wish.pool)
            && self.external.is_free(wish.protocol, index, port)
            && self.external.allows(wish.protocol, index, port, host)
    }

    /// Chooses an external endpoint as for a packet of the host, but no port of the protocols
    /// themselves.
    fn other_endpoint(&mut self, wish: Wish, host: Host) -> Result<External, DropReason> {
        let chosen = self.take_external(wish, host)?;
        if !is_reserved(wish.protocol, chosen.port) {
            return Ok(chosen);
        }
        let (index, generator) = (chosen.index, &mut self.generator);
        let other = self.external.choose_but((wish, index), host, &OWN_PORTS, generator);
        other.map(|port| External::new(index, port)).ok_or(DropReason::PoolExhausted)
    }
}
