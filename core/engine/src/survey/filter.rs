//! Filters: conditions for entries, in the terms of a person and in the terms of the tables.
//!
//! A prefix of one address is looked up wherever the tables have an index for it. Every other
//! prefix is compared with each entry that is passed over. A remote endpoint is a property of
//! sessions: a mapping has the endpoint if one of its sessions has it. Each session that is
//! compared counts as a slot.

use crate::Engine;
use crate::config::Prefix;
use crate::endpoint::{AddressPort, External};
use crate::host::Host;
use crate::table::SessionRef;

/// Conditions for mappings, sessions, subscribers or blocks. An entry must meet all given
/// conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The realm of the subscriber, by its number.
    pub realm: Option<u16>,
    /// A prefix of the subscriber's address.
    pub subscriber: Option<Prefix>,
    /// The internal port.
    pub internal_port: Option<u16>,
    /// A prefix of the external address.
    pub external: Option<Prefix>,
    /// The external port.
    pub external_port: Option<u16>,
    /// A prefix of the remote address. A mapping meets it by one of its sessions.
    pub remote: Option<Prefix>,
    /// The remote port, of the same session.
    pub remote_port: Option<u16>,
    /// The protocol.
    pub protocol: Option<u8>,
}

/// The external addresses that a filter accepts.
#[derive(Clone, Copy, Debug)]
enum Addresses {
    /// The address with this index.
    One(u32),
    In(Prefix),
}

/// A filter in the terms of the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought {
    realm: Option<u16>,
    subscriber: Option<Prefix>,
    internal_port: Option<u16>,
    external: Option<Addresses>,
    pub(super) port: Option<u16>,
    remote: Option<Prefix>,
    remote_port: Option<u16>,
    pub(super) protocol: Option<u8>,
}

impl Sought {
    /// The index of the external address, if the filter gives exactly one.
    pub(super) fn index(&self) -> Option<u32> {
        match self.external {
            Some(Addresses::One(index)) => Some(index),
            _ => None,
        }
    }

    /// The subscriber, if the filter gives exactly one.
    pub(super) fn host(&self) -> Option<Host> {
        Some(Host::new(self.realm?, one(self.subscriber?)?))
    }

    /// True if the filter accepts subscribers of this realm.
    pub(super) fn has_realm(&self, realm: u16) -> bool {
        self.realm.is_none_or(|one| one == realm)
    }

    /// The first and the last address of the subscribers that the filter accepts.
    pub(super) fn subscribers(&self) -> (u32, u32) {
        self.subscriber.map_or((0, u32::MAX), |prefix| (prefix.first(), prefix.last()))
    }

    /// True if the filter accepts this subscriber.
    pub(super) fn has_host(&self, host: Host) -> bool {
        self.subscriber.is_none_or(|prefix| prefix.contains(host.address()))
            && self.has_realm(host.realm())
    }
}

/// The address of a prefix of one address.
fn one(prefix: Prefix) -> Option<u32> {
    (prefix.len() == 32).then(|| prefix.first())
}

impl Engine {
    /// The realm of a filter. If there is only one realm, it is that realm.
    fn realm_meant(&self, realm: Option<u16>) -> Option<u16> {
        realm.or(self.config.realms.is_empty().then_some(0))
    }

    /// The subscriber of a filter, if it gives exactly one.
    pub(super) fn sought_host(&self, filter: &Filter) -> Option<Host> {
        Some(Host::new(self.realm_meant(filter.realm)?, one(filter.subscriber?)?))
    }

    /// The filter in the terms of the tables; `None`: no entry can meet it.
    pub(super) fn sought(&self, filter: &Filter) -> Option<Sought> {
        let external = match filter.external.map(|prefix| (one(prefix), prefix)) {
            Some((Some(address), _)) => Some(Addresses::One(self.external.index(address)?)),
            Some((None, prefix)) => {
                let (first, _) = self.external.address_from(prefix.first())?;
                prefix.contains(first).then_some(())?;
                Some(Addresses::In(prefix))
            }
            None => None,
        };
        Some(Sought {
            realm: self.realm_meant(filter.realm),
            subscriber: filter.subscriber,
            internal_port: filter.internal_port,
            external,
            port: filter.external_port,
            remote: filter.remote,
            remote_port: filter.remote_port,
            protocol: filter.protocol,
        })
    }

    /// The first and the last of the external addresses that the filter accepts.
    pub(super) fn external_sought(&self, sought: &Sought) -> (u32, u32) {
        match sought.external {
            None => (0, u32::MAX),
            Some(Addresses::One(index)) => {
                let address = self.external.address(index);
                (address, address)
            }
            Some(Addresses::In(prefix)) => (prefix.first(), prefix.last()),
        }
    }

    /// True if the filter accepts an external address, by its index.
    pub(super) fn has_external(&self, index: u32, sought: &Sought) -> bool {
        sought.external.is_none_or(|external| match external {
            Addresses::One(one) => one == index,
            Addresses::In(prefix) => prefix.contains(self.external.address(index)),
        })
    }

    /// True if the filter accepts the mapping of a slot. Sessions do not count here.
    pub(super) fn is_sought(&self, slot: u32, sought: &Sought) -> bool {
        let mapping = self.table.mapping(slot);
        let External { index, port } = mapping.external();
        self.table.is_live(slot)
            && sought.has_host(mapping.host())
            && sought.internal_port.is_none_or(|one| one == mapping.internal().port)
            && self.has_external(index, sought)
            && sought.port.is_none_or(|one| one == port)
            && sought.protocol.is_none_or(|one| one == mapping.protocol)
    }

    /// True if the filter accepts the remote endpoint of a session.
    pub(super) fn is_remote_sought(&self, session: SessionRef, sought: &Sought) -> bool {
        let session = self.table.session(session);
        sought.remote.is_none_or(|prefix| prefix.contains(session.remote().address))
            && sought.remote_port.is_none_or(|port| port == session.remote().port)
    }

    /// True if a mapping has a session with an accepted remote endpoint. One endpoint is looked up;
    /// otherwise the sessions are passed over.
    pub(super) fn has_remote(&self, slot: u32, sought: &Sought, budget: &mut usize) -> bool {
        match (sought.remote, sought.remote_port) {
            (None, None) => true,
            (Some(prefix), Some(port)) if prefix.len() == 32 => {
                *budget = budget.saturating_sub(1);
                self.table.find_session(slot, AddressPort::new(prefix.first(), port)).is_some()
            }
            _ => self.table.sessions(slot).any(|session| {
                *budget = budget.saturating_sub(1);
                self.is_remote_sought(session, sought)
            }),
        }
    }
}
