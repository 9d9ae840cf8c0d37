//! External ports in hold-down, and the times of their release.
//!
//! The table keeps no time with a held port: the port is in the list of its tick of release. So a
//! search passes over the lists, a bounded part each call. The search finds a port as long as it is
//! held. Its time is not known if its list changed meanwhile.

use super::{Cursor, Filter, Stage};
use crate::endpoint::External;
use crate::external::{Release, ReleaseSearch};
use crate::protocols::PROTOCOLS;
use crate::time::Timestamp;
use crate::{Endpoint, Engine};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// An external port without a mapping that no mapping gets until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPort {
    /// The port's protocol.
    pub protocol: u8,
    /// The external endpoint.
    pub external: Endpoint,
    /// Time of the release; `None`: not known.
    pub until: Option<Timestamp>,
}

/// Position of a search for held ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// The protocol, by its place in [`PROTOCOLS`].
    place: usize,
    release: ReleaseSearch,
}

impl Engine {
    /// Checks for each protocol if an external endpoint is in hold-down, passing over `most` other
    /// held ports at most. Returns true if the search is done. Without an external address and a
    /// port the filter selects no port. Its realm, subscriber and remote endpoint do not count,
    /// because a held port has none.
    pub fn scan_held(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        found: &mut Vec<HeldPort>,
    ) -> bool {
        let release = ReleaseSearch::after(self.present_tick());
        let mut search = match cursor.stage {
            Stage::Start => Search { place: 0, release },
            Stage::Held(search) => search,
            _ => return true,
        };
        let sought = self.sought(filter);
        let endpoint = sought.as_ref().and_then(|sought| sought.index().zip(sought.port));
        let Some((index, port)) = endpoint else {
            cursor.stage = Stage::Done;
            return true;
        };
        let mut budget = most;
        while search.place < PROTOCOLS.len() && budget > 0 && found.len() < found.capacity() {
            let protocol = PROTOCOLS[search.place];
            let is_sought = filter.protocol.is_none_or(|one| one == protocol);
            if is_sought && self.external.is_held(search.place, index, port) {
                let (place, at) = (search.place, External::new(index, port));
                let until =
                    match self.external.find_release(place, at, &mut search.release, &mut budget) {
                        Release::At(tick) => Some(Timestamp(self.time_of(tick))),
                        Release::Unknown => None,
                        Release::Unfinished => break,
                    };
                let address = Ipv4Addr::from_bits(self.external.address(index));
                found.push(HeldPort { protocol, external: Endpoint { address, port }, until });
            }
            search = Search { place: search.place + 1, release };
        }
        let is_done = search.place >= PROTOCOLS.len();
        cursor.stage = if is_done { Stage::Done } else { Stage::Held(search) };
        is_done
    }
}
