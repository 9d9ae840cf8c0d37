//! Limits of new mappings and sessions, and the choice of an external endpoint, for packets and for
//! requests of hosts.

use super::{Recorder, Silent, Step};
use crate::config::Pooling;
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::{Chosen, Wish};
use crate::host::Host;
use crate::limits::{Filled, Limit, LimitOwner, Standing};
use crate::protocols::{has_ports, quota_class};
use crate::random::Generator;
use crate::rules::Snat;
use crate::session::Way;
use crate::translate::explain::AddressChoice;
use crate::{DropReason, Engine};
use core::net::Ipv4Addr;

impl Engine {
    /// Checks that a subscriber with this record, if it has one, may have one more mapping of a
    /// protocol now; `known`: the subscriber has mappings of the pool already.
    pub(crate) fn check_limits(
        &self,
        record: Option<u32>,
        subscriber: Host,
        known: bool,
        protocol: u8,
    ) -> Result<(), DropReason> {
        self.limits_permit((record, subscriber), known, protocol, self.now, &mut Silent)
    }

    /// [`Engine::check_limits`] at a time, told a recorder.
    pub(super) fn limits_permit<R: Recorder>(
        &self,
        (record, subscriber): (Option<u32>, Host),
        known: bool,
        protocol: u8,
        now: u64,
        recorder: &mut R,
    ) -> Result<(), DropReason> {
        let kind = quota_class(protocol);
        if R::KEEPS {
            for (whose, standing) in self.standings((record, subscriber), kind, now) {
                note_standing(recorder, whose, standing);
            }
        }
        self.subscribers.check(record, subscriber, kind, now)?;
        if R::KEEPS {
            let Filled { used, most } = self.table.filled();
            note_of(recorder, LimitOwner::Gateway, Limit::Mappings, (used as u64, most as u64));
            if record.is_none() {
                let Filled { used, most } = self.subscribers.filled();
                let counts = (used as u64, most as u64);
                note_of(recorder, LimitOwner::Gateway, Limit::Subscribers, counts);
            }
        }
        //= rfc6888#REQ-11a
        if self.table.is_full(protocol) || !known && self.subscribers.is_full(record.is_none()) {
            return Err(DropReason::MappingTableFull);
        }
        Ok(())
    }

    /// The amounts that a subscriber has used of its own limits, then of the limits of its class.
    fn standings(
        &self,
        (record, subscriber): (Option<u32>, Host),
        kind: usize,
        now: u64,
    ) -> impl Iterator<Item = (LimitOwner, Standing)> {
        let (class, has) = self.subscribers.class_and_holding(record, subscriber);
        let of_class = LimitOwner::Class(usize::from(class).saturating_sub(1));
        let all = self.subscribers.classes.standings(class, &has, kind, now);
        [LimitOwner::Subscriber, of_class].into_iter().zip(all).flat_map(|(whose, standings)| {
            standings.into_iter().flatten().map(move |standing| (whose, standing))
        })
    }

    /// Checks that a mapping may have a session with one more remote endpoint; `record` is the
    /// record of the mapping's subscriber, if the mapping is dynamic.
    pub(crate) fn check_session(
        &self,
        slot: u32,
        record: Option<u32>,
        remote: AddressPort,
        way: Way,
    ) -> Result<(), DropReason> {
        self.permits_session((slot, record), remote, way, self.now, &mut Silent)
    }

    /// [`Engine::check_session`] at a time, told a recorder.
    pub(super) fn permits_session<R: Recorder>(
        &self,
        (slot, record): (u32, Option<u32>),
        remote: AddressPort,
        way: Way,
        now: u64,
        recorder: &mut R,
    ) -> Result<(), DropReason> {
        if self.table.is_ambiguous(slot, remote, way) {
            return Err(DropReason::Ambiguous);
        }
        //= rfc7857#section-7
        //= rfc7857#section-7-tcp
        let mapping = self.table.mapping(slot);
        if R::KEEPS
            && let Some(at) = record
        {
            self.note_sessions(
                at,
                (mapping.host(), mapping.protocol),
                mapping.sessions,
                now,
                recorder,
            );
        }
        //= rfc6888#REQ-5
        let permitted = match record {
            Some(at) => self.subscribers.permits_session(at, mapping.sessions, self.further_each),
            // The operator has opened this endpoint for any number of clients.
            None => mapping.sessions < u16::MAX,
        };
        if !permitted {
            return Err(DropReason::SessionLimit);
        }
        if !self.table.has_room_for_session(slot, remote, way) {
            let room = self.table.room_for_further(way) as u64;
            note_of(recorder, LimitOwner::Gateway, Limit::FurtherSessions, (room, room));
            return Err(DropReason::SessionTableFull);
        }
        Ok(())
    }

    /// Notes what limits one more session of a subscriber's mapping.
    fn note_sessions<R: Recorder>(
        &self,
        record: u32,
        (host, protocol): (Host, u8),
        of_mapping: u16,
        now: u64,
        recorder: &mut R,
    ) {
        let (class, has) = self.subscribers.class_and_holding(Some(record), host);
        let most = self.subscribers.classes.sessions_per_mapping(class);
        let further = (has.further_sessions.into(), self.further_each.into());
        let of_mapping = (of_mapping.into(), most.into());
        note_of(recorder, LimitOwner::Mapping, Limit::Sessions, of_mapping);
        note_of(recorder, LimitOwner::Subscriber, Limit::FurtherSessions, further);
        let all = self.standings((Some(record), host), quota_class(protocol), now);
        for (whose, standing) in all {
            if standing.limit == Limit::Sessions && standing.most.is_some() {
                note_standing(recorder, whose, standing);
            }
        }
    }

    // ---- external endpoints ----

    /// The request of a new mapping of a subscriber with this record, if it has one; and whether
    /// the subscriber is paired anew, with the address of this mapping.
    pub(crate) fn wish(
        &self,
        protocol: u8,
        Internal { host, port: internal_port }: Internal,
        Snat { pool, address, .. }: Snat,
        record: Option<u32>,
    ) -> Result<(Wish, bool), DropReason> {
        let last = record.and_then(|at| self.subscribers.paired(at, pool));
        let open = last.filter(|&index| self.external.is_open(index, pool));
        let fixed = match address {
            // An address that is not of its pool, or not yet, has no port.
            Some(address) => {
                let index = self.external.index(address.to_bits());
                let index = index.filter(|&index| self.external.pool_of(index) == pool);
                Some(index.ok_or(DropReason::PoolExhausted)?)
            }
            None => None,
        };
        let parts = open != last && fixed.is_none();
        let paired = self.external.pairing(pool, host, open);
        Ok((Wish { pool, protocol, internal_port, paired, fixed }, parts))
    }

    /// Chooses an external endpoint for a new mapping.
    pub(in crate::translate) fn choose_external<R: Recorder>(
        &self,
        wish: Wish,
        subscriber: Host,
        remote: AddressPort,
        generator: &mut Generator,
        recorder: &mut R,
    ) -> Result<Chosen, DropReason> {
        if !has_ports(wish.protocol) {
            if self.external.is_whole(wish.pool) {
                return self.choose_whole_portless(wish, subscriber, generator, recorder);
            }
            return self.choose_portless(wish, (subscriber, remote), generator, recorder);
        }
        if !self.external.is_shared(wish.pool) {
            return self.choose_share(wish, subscriber, generator, recorder);
        }
        let tenants = self.subscribers.tenants();
        let external = self.external.choose(wish, tenants, generator);
        let external = external.ok_or(DropReason::PoolExhausted)?;
        if R::KEEPS {
            let why = self.why(&wish, external.index, false);
            // If the pool keeps free ports, an equal port was kept, not drawn.
            let is_kept = self.external.keeps(&wish) && external.port == wish.internal_port;
            let port = (is_kept && why != AddressChoice::Drawn).then_some(external.port);
            self.note_address(why, external.index, recorder);
            recorder.note(Step::Port(port));
        }
        Ok(Chosen { external, block: None })
    }

    fn choose_portless<R: Recorder>(
        &self,
        wish: Wish,
        (host, remote): (Host, AddressPort),
        generator: &mut Generator,
        recorder: &mut R,
    ) -> Result<Chosen, DropReason> {
        let remote = AddressPort::new(remote.address, 0);
        let is_free = |index| {
            self.table.portless(wish.protocol, index, remote).is_none()
                && self.may_take_portless((wish.protocol, index, remote.address), host)
        };
        if self.external.is_looked_at_in_part(wish.pool) {
            recorder.doubt();
        }
        let index = self.external.choose_portless(&wish, generator, is_free);
        let index = index.ok_or(DropReason::Ambiguous)?;
        if R::KEEPS {
            self.note_address(self.why(&wish, index, false), index, recorder);
        }
        Ok(Chosen { external: External::new(index, 0), block: None })
    }

    /// The whole address of a host, for a mapping without a port.
    #[cold]
    fn choose_whole_portless<R: Recorder>(
        &self,
        wish: Wish,
        host: Host,
        generator: &mut Generator,
        recorder: &mut R,
    ) -> Result<Chosen, DropReason> {
        if !self.may_begin_portless() {
            return Err(DropReason::Ambiguous);
        }
        let chosen = self.external.choose_whole_portless(wish, host, generator)?;
        if R::KEEPS {
            if chosen.block.is_some() {
                recorder.note(Step::Block);
            }
            let index = chosen.external.index;
            self.note_address(self.why(&wish, index, chosen.block.is_none()), index, recorder);
        }
        Ok(chosen)
    }

    /// An external endpoint of those that a subscriber alone may have.
    fn choose_share<R: Recorder>(
        &self,
        wish: Wish,
        subscriber: Host,
        generator: &mut Generator,
        recorder: &mut R,
    ) -> Result<Chosen, DropReason> {
        if R::KEEPS && self.external.has_blocks(wish.pool) {
            let Filled { used, most } = self.external.blocks_of(wish.pool, subscriber);
            let counts = (used.into(), most.into());
            note_of(recorder, LimitOwner::Subscriber, Limit::Blocks, counts);
        }
        let chosen = self.external.choose_share(wish, subscriber, generator)?;
        if R::KEEPS {
            let index = chosen.external.index;
            let is_own = chosen.block.is_none() && self.external.is_alone(wish, subscriber, index);
            if chosen.block.is_some() {
                recorder.note(Step::Block);
            }
            self.note_address(self.why(&wish, index, is_own), index, recorder);
            recorder.note(Step::Port(None));
        }
        Ok(chosen)
    }

    /// Reason for the choice of an external address; `is_share`: the address has all ports that
    /// only this subscriber may have.
    fn why(&self, wish: &Wish, index: u32, is_share: bool) -> AddressChoice {
        // Under arbitrary pooling, the address may be the paired one by chance.
        let is_paired = self.config.pooling != Pooling::Arbitrary;
        match wish {
            Wish { fixed: Some(_), .. } => AddressChoice::Rule,
            _ if is_share => AddressChoice::Share,
            Wish { paired: Some(paired), .. } if is_paired && *paired == index => {
                AddressChoice::Paired
            }
            _ => AddressChoice::Drawn,
        }
    }

    fn note_address<R: Recorder>(&self, why: AddressChoice, index: u32, recorder: &mut R) {
        let address = Ipv4Addr::from_bits(self.external.address(index));
        let address = (why != AddressChoice::Drawn).then_some(address);
        recorder.note(Step::Address { why, address });
    }
}

pub(super) fn note_of<R: Recorder>(
    recorder: &mut R,
    whose: LimitOwner,
    limit: Limit,
    (used, most): (u64, u64),
) {
    note_standing(recorder, whose, Standing { limit, used, most: Some(most) });
}

fn note_standing<R: Recorder>(recorder: &mut R, whose: LimitOwner, standing: Standing) {
    let permits = standing.most.is_none_or(|most| standing.used < most);
    recorder.note(Step::Standing { whose, standing, permits });
}
