//! Counters of the router of IPv6.

/// Counters of the router besides those of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Router6Counters {
    /// Messages of Neighbor Discovery that came in.
    pub discovery_received: u64,
    /// Messages that were not valid.
    pub discovery_invalid: u64,
    /// Neighbor solicitations that were answered.
    pub solicitations_answered: u64,
    /// Neighbor solicitations sent.
    pub solicitations_sent: u64,
    /// Messages from other hosts that use one of the gateway's addresses.
    pub address_conflicts: u64,
    /// Neighbours that did not answer.
    pub neighbors_lost: u64,
    /// Neighbours that were not asked for or not learnt, because of the limits.
    pub neighbors_refused: u64,
    /// Neighbours that got another hardware address.
    pub neighbor_changes: u64,
    /// Router solicitations that came in.
    pub router_solicitations: u64,
    /// Router advertisements sent.
    pub advertisements_sent: u64,
    /// Echo requests to link-local addresses and groups that were answered.
    pub echoes_answered: u64,
    /// Other packets to groups and to link-local addresses.
    pub packets_ignored: u64,
    /// ICMPv6 errors sent about packets that could not be delivered.
    pub errors_made: u64,
    /// ICMPv6 errors that were due and not sent: a limit was reached, a queue was full, or the side
    /// is configured to get none.
    pub errors_suppressed: u64,
}

impl Router6Counters {
    /// Names and values of the counters.
    pub fn each(&self) -> [(&'static str, u64); 14] {
        let mut counters = *self;
        counters.each_mut().map(|(name, count)| (name, *count))
    }

    /// Adds the counters of another worker's router.
    pub fn add(&mut self, other: &Self) {
        self.each_mut().into_iter().zip(other.each()).for_each(|((_, sum), (_, one))| *sum += one);
    }

    fn each_mut(&mut self) -> [(&'static str, &mut u64); 14] {
        [
            ("discovery_received", &mut self.discovery_received),
            ("discovery_invalid", &mut self.discovery_invalid),
            ("solicitations_answered", &mut self.solicitations_answered),
            ("solicitations_sent", &mut self.solicitations_sent),
            ("address_conflicts", &mut self.address_conflicts),
            ("neighbors_lost", &mut self.neighbors_lost),
            ("neighbors_refused", &mut self.neighbors_refused),
            ("neighbor_changes", &mut self.neighbor_changes),
            ("router_solicitations", &mut self.router_solicitations),
            ("advertisements_sent", &mut self.advertisements_sent),
            ("echoes_answered", &mut self.echoes_answered),
            ("packets_ignored", &mut self.packets_ignored),
            ("errors_made", &mut self.errors_made),
            ("errors_suppressed", &mut self.errors_suppressed),
        ]
    }
}
