//! Overloading of ports (RFC 7857 section 3): a flow without a free port gets a port in use that
//! has no session with the flow's remote endpoint (section 5.53 of the specification).
//!
//! The mappings of one port form a ring, so that the port becomes free only after the last mapping.
//! Without overloading there are no rings.

use super::Engine;
use crate::calendar::NONE;
use crate::config::Config;
use crate::endpoint::{AddressPort, External};
use crate::external::{ExternalPorts, Wish};
use crate::host::Host;
use crate::random::Generator;
use crate::table::Table;
use alloc::vec;
use alloc::vec::Vec;
use natgate_wire::protocol;

/// Ports that are looked at for one flow. This bounds the cost in a full pool, and few ports have a
/// session with any one remote endpoint.
const LOOKS: u32 = 32;

/// The next and the previous mapping of each mapping that shares its port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings {
    links: Vec<[u32; 2]>,
}

impl Rings {
    /// Room for `mappings` mappings, if the configuration overloads ports.
    pub(crate) fn new(config: &Config, mappings: usize) -> Self {
        let overloading = config.pools.iter().any(|pool| pool.overloading);
        Self { links: vec![[NONE; 2]; if overloading { mappings } else { 0 }] }
    }

    /// Bytes that `mappings` mappings take.
    pub(crate) fn memory(config: &Config, mappings: usize) -> u64 {
        let overloading = config.pools.iter().any(|pool| pool.overloading);
        if overloading { (mappings * size_of::<[u32; 2]>()) as u64 } else { 0 }
    }

    /// True if ports may be overloaded.
    pub(crate) fn are_kept(&self) -> bool {
        !self.links.is_empty()
    }

    /// Adds a mapping to the port of another.
    fn join(&mut self, owner: u32, slot: u32) {
        let next = match self.links[owner as usize] {
            [NONE, _] => owner,
            [next, _] => next,
        };
        self.links[slot as usize] = [next, owner];
        self.links[next as usize][1] = slot;
        self.links[owner as usize][0] = slot;
    }

    /// True if a mapping shares its port.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.links.get(slot as usize).is_some_and(|link| link[0] != NONE)
    }

    /// Takes a mapping off its port. Returns another mapping that still has the port.
    pub(crate) fn leave(&mut self, slot: u32) -> Option<u32> {
        let link = self.links.get_mut(slot as usize)?;
        let [next, before] = core::mem::replace(link, [NONE; 2]);
        if next == NONE {
            return None;
        }
        if next == before {
            self.links[next as usize] = [NONE; 2];
        } else {
            self.links[next as usize][1] = before;
            self.links[before as usize][0] = next;
        }
        Some(next)
    }
}

impl Engine {
    /// Puts a mapping that overloads a port beside the one that has it.
    pub(crate) fn join_port(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        slot: u32,
    ) {
        let owner = self.external.owner(protocol, index, port).expect("a port in use");
        self.rings.join(owner, slot);
    }
}

/// Finds an external endpoint in use for a subscriber's flow to share, if its pool permits sharing.
pub(super) fn find_shared(
    config: &Config,
    (table, external): (&Table, &ExternalPorts),
    (wish, subscriber): (Wish, Host),
    remote: AddressPort,
    generator: &mut Generator,
) -> Option<External> {
    //= rfc7857#section-3
    if !config.pools[wish.pool].overloading
        || !matches!(wish.protocol, protocol::TCP | protocol::UDP)
    {
        return None;
    }
    let may_share = |index: u32, port: u16| {
        let owner = external.owner(wish.protocol, index, port);
        owner.is_some_and(|slot| {
            !table.mapping(slot).is_static()
                && !table.mapping(slot).is_explicit()
                && external.may_share(wish.protocol, index, port)
                && table.find_session(slot, remote).is_none()
                && table
                    .find_shared_external(wish.protocol, External::new(index, port), remote)
                    .is_none()
        })
    };
    let mut looks = LOOKS;
    let (addresses, range) = external.everybodys(&wish);
    let shared_out = || external.shared_out(&wish, subscriber);
    let count = (addresses.len() + shared_out().count()) as u32;
    let start = generator.below(count.max(1));
    for number in (start..count).chain(0..start) {
        let number = number as usize;
        let (index, (first, last)) = match addresses.get(number) {
            Some(index) => (*index, range),
            None => shared_out().nth(number - addresses.len())?,
        };
        let from = first + generator.below(u32::from(last - first) + 1) as u16;
        for port in (from..=last).chain(first..from) {
            if looks == 0 {
                return None;
            }
            looks -= 1;
            if may_share(index, port) {
                return Some(External::new(index, port));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_leaves_the_others_stay() {
        let mut rings = Rings { links: vec![[NONE; 2]; 5] };
        assert_eq!(rings.leave(0), None);
        rings.join(0, 1);
        rings.join(0, 2);
        rings.join(2, 3);
        let mut left = vec![0, 1, 2, 3];
        for slot in [2, 0, 3] {
            left.retain(|&other| other != slot);
            let heir = rings.leave(slot).unwrap();
            assert!(left.contains(&heir));
        }
        assert_eq!((rings.leave(1), rings.leave(4)), (None, None));
        assert_eq!(Rings::default().leave(7), None);
    }
}
