//! The core alone: this file replaces all chapters.

use crate::points::DecisionPoints;
use crate::{Key, Model, has_ports};
use natgate_engine::{Config, Endpoint, MappingKind, Side, Timestamp};
use std::net::Ipv4Addr;

/// State of chapters: none.
#[derive(Clone, Debug)]
pub(crate) struct State {}

/// State of chapters in a mapping: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct MappingMarks {}

/// State of chapters in a session: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionMarks {}

impl State {
    pub(crate) fn new(_: &Config, _: Timestamp) -> Self {
        Self {}
    }
}

impl MappingMarks {
    pub(crate) fn kind_of(&self, kind: MappingKind) -> MappingKind {
        kind
    }

    pub(crate) fn held_until(&self) -> Option<Timestamp> {
        None
    }

    pub(crate) fn is_permanent(&self) -> bool {
        false
    }

    pub(crate) fn forget_sessions(&mut self) {}
}

impl DecisionPoints for Model {
    fn pool_with(&self, address: u32) -> Option<usize> {
        self.config.pools.iter().position(|pool| pool.has(address.into()))
    }

    fn is_open(&self, address: Ipv4Addr, pool: usize) -> bool {
        self.pool_with(address.to_bits()) == Some(pool)
    }

    fn mtu_of_hairpin(&self, realm: u16) -> u16 {
        self.mtu(Side::Inside, realm)
    }

    fn mapping_behind(
        &mut self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<Key> {
        self.only_mapping(protocol, external, remote)
    }
}

impl Model {
    /// 4.8, without features: the only mapping with an external endpoint. For protocols without
    /// ports, the remote endpoint must match too.
    fn only_mapping(&self, protocol: u8, end: Endpoint, remote: Endpoint) -> Option<Key> {
        let mut all = self.mappings.iter();
        let key = all.find(|(key, mapping)| {
            key.protocol == protocol
                && mapping.external == end
                && (has_ports(protocol) || key.remote == Some(remote))
        });
        key.map(|(key, _)| *key)
    }
}
