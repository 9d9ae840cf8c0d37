//! Names of hosts that have numbers in the engine: hosts of NAT64, and hosts behind the B4s of
//! DS-Lite. Lists, answers and dry runs show the names in place of the numbers.

use natgate_gateway::ipv6::HostName;
use natgate_gateway::{CommandError, Commander, Settings};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Names of hosts with numbers, by realm and number.
#[derive(Debug, Default)]
pub(crate) struct HostNames(HashMap<(u16, Ipv4Addr), HostName>);

impl HostNames {
    /// Asks the workers for the names of the hosts with numbers among some hosts, each with realm
    /// and number.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub(crate) fn ask(
        commander: &Commander,
        settings: &Settings,
        hosts: impl Iterator<Item = (u16, Ipv4Addr)>,
    ) -> Result<Self, CommandError> {
        if settings.ipv6.nat64.is_none() && settings.ipv6.dslite.is_none() {
            return Ok(Self::default());
        }
        let named = commander.hosts(hosts)?.into_iter();
        Ok(Self(named.filter_map(|(realm, number, name)| Some(((realm, number), name?))).collect()))
    }

    pub(crate) fn of(&self, realm: u16, number: Ipv4Addr) -> Option<&HostName> {
        self.0.get(&(realm, number))
    }
}
