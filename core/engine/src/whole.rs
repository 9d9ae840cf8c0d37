//! Static mappings of whole addresses. Mappings of their ports are made when packets come.

use crate::config::{Begun, Config, StaticMapping};
use crate::external::ExternalPorts;
use crate::host::Host;
use crate::limits::Filled;
use crate::statics::WHOLE_MAPPINGS;
use crate::table::{OUTBOUND_ONLY, SHARED_INTERNAL};
use alloc::vec::Vec;

/// A static mapping of a whole address. Mappings of its ports are made when packets come.
#[derive(Clone, Debug)]
struct Whole {
    internal: Host,
    /// Index of the external address.
    index: u32,
    /// The protocol of the mapping; `None`: all.
    protocol: Option<u8>,
    begun: Begun,
    /// Number of present mappings.
    mappings: u32,
}

/// The static mappings of whole addresses.
#[derive(Clone, Debug)]
pub(crate) struct WholeStatics {
    /// Sorted by internal address.
    entries: Vec<Whole>,
    /// Places in `entries`, sorted by the external address.
    by_index: Vec<usize>,
}

impl WholeStatics {
    pub(crate) fn new(config: &Config, external: &ExternalPorts) -> Self {
        let whole = config.statics.iter().filter(|mapping| mapping.external.1.is_none());
        let mut entries: Vec<Whole> = whole
            .filter_map(|mapping| {
                let index = external.index(mapping.external.0.to_bits())?;
                let internal = Host::new(mapping.realm, mapping.internal.0.to_bits());
                let StaticMapping { protocol, begun, .. } = *mapping;
                Some(Whole { internal, index, protocol, begun, mappings: 0 })
            })
            .collect();
        entries.sort_by_key(|whole| whole.internal);
        let mut by_index: Vec<usize> = (0..entries.len()).collect();
        by_index.sort_by_key(|&at| entries[at].index);
        Self { entries, by_index }
    }

    /// Takes over the mapping counts of static mappings that stay the same.
    pub(crate) fn go_on(&mut self, others: &Self) {
        for one in &mut self.entries {
            let start = others.entries.partition_point(|whole| whole.internal < one.internal);
            let same = others.entries[start..]
                .iter()
                .take_while(|other| other.internal == one.internal)
                .find(|other| (other.index, other.protocol) == (one.index, one.protocol));
            one.mappings = same.map_or(0, |same| same.mappings);
        }
    }

    /// The index of the external address for sessions that a host begins, and the side that may
    /// begin sessions of that static mapping.
    pub(crate) fn external(&self, internal: Host, protocol: u8) -> Option<(u32, Begun)> {
        let start = self.entries.partition_point(|whole| whole.internal < internal);
        let entries = self.entries[start..].iter().take_while(|whole| whole.internal == internal);
        let mut entries = entries.filter(|whole| whole.begun != Begun::Outside);
        entries
            .find(|whole| whole.protocol.is_none_or(|only| only == protocol))
            .map(|whole| (whole.index, whole.begun))
    }

    /// The place of the static mapping of an external address, for a protocol.
    fn place(&self, index: u32, protocol: u8) -> Option<usize> {
        let start = self.by_index.partition_point(|&at| self.entries[at].index < index);
        let entries = self.by_index[start..].iter().copied();
        entries
            .take_while(|&at| self.entries[at].index == index)
            .find(|&at| self.entries[at].protocol.is_none_or(|only| only == protocol))
    }

    /// The host behind an external address, and the side that may begin its sessions.
    pub(crate) fn internal(&self, index: u32, protocol: u8) -> Option<(Host, Begun)> {
        let whole = &self.entries[self.place(index, protocol)?];
        Some((whole.internal, whole.begun))
    }

    /// Counts a new mapping of an external address. Returns `false` if the limit is reached.
    pub(crate) fn count(&mut self, index: u32, protocol: u8) -> bool {
        let place = self.place(index, protocol).expect("the address is mapped as a whole");
        let mappings = &mut self.entries[place].mappings;
        let room = *mappings < WHOLE_MAPPINGS;
        *mappings += u32::from(room);
        room
    }

    /// Number of mappings of a whole mapped external address, and its limit.
    pub(crate) fn filled(&self, index: u32, protocol: u8) -> Filled<u32> {
        let place = self.place(index, protocol);
        let used = place.map_or(0, |place| self.entries[place].mappings);
        Filled { used, most: WHOLE_MAPPINGS }
    }

    /// Counts the removal of a mapping. A mapping may remain from an earlier configuration of the
    /// address.
    pub(crate) fn release(&mut self, index: u32, protocol: u8) {
        if let Some(place) = self.place(index, protocol) {
            let mappings = &mut self.entries[place].mappings;
            *mappings = mappings.saturating_sub(1);
        }
    }
}

/// The flags of a static mapping whose sessions may begin on this side.
pub(crate) fn flags_of(begun: Begun) -> u8 {
    match begun {
        Begun::Anywhere => 0,
        Begun::Outside => SHARED_INTERNAL,
        Begun::Inside => OUTBOUND_ONLY,
    }
}
