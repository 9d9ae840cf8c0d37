//! The number that a host would get, for explanations: nothing changes.

use super::{Hosts, NO_INNER, NONE};
use core::net::Ipv4Addr;
use natgate_engine::DropReason;

impl Hosts {
    /// The number that [`Hosts::intern`] would give, and true if the host has none yet.
    ///
    /// # Errors
    /// As [`Hosts::intern`].
    pub(crate) fn foretell(&self, address: u128) -> Result<(Ipv4Addr, bool), DropReason> {
        self.foretell_behind(address, NO_INNER)
    }

    /// As [`Hosts::foretell`], for a host behind a tunnel.
    pub(crate) fn foretell_behind(
        &self,
        address: u128,
        inner: u32,
    ) -> Result<(Ipv4Addr, bool), DropReason> {
        if let Some(number) = self.number_behind(address, inner) {
            return Ok((number, false));
        }
        if self.used_hosts >= self.most_hosts {
            return Err(DropReason::MappingTableFull);
        }
        let (subscriber, within) = match self.find_subscriber(self.prefix_of(address)) {
            Some(subscriber) => {
                let within = self.subscribers[subscriber as usize].lowest_free(self.host_bits);
                (subscriber, within.ok_or(DropReason::PortQuota)?)
            }
            None if self.used_subscribers >= self.most_subscribers => {
                return Err(DropReason::MappingTableFull);
            }
            None if self.free_subscriber == NONE => (self.subscribers.len() as u32, 0),
            None => (self.free_subscriber, 0),
        };
        Ok((Ipv4Addr::from_bits(self.number_of(subscriber, within)), true))
    }
}
