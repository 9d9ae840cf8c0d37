//! Answers to unsolicited SYNs (specification, section 4.21).

use crate::bytes::ip;
use crate::{Model, Packet};
use natgate_engine::{Endpoint, Side, Timestamp};
use natgate_wire::icmp::kind::UNREACHABLE;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Delay of the answer to an unsolicited SYN.
const SYN_DELAY: Duration = Duration::from_secs(6);
/// Most SYNs that wait.
const MOST_SYNS: usize = 1024;

/// An unsolicited SYN, or its equivalent of DCCP, that will be answered.
#[derive(Clone, Debug)]
pub(crate) struct Syn {
    pub(crate) due: Timestamp,
    pub(crate) protocol: u8,
    pub(crate) external: Endpoint,
    pub(crate) remote: Endpoint,
    pub(crate) back_to: (Side, u16),
    pub(crate) quote: Vec<u8>,
}

impl Model {
    /// 4.21: remembers a refused SYN. `external` is its destination.
    pub(crate) fn remember(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) {
        if !self.config.answer_unsolicited_syn || !packet.is_syn() {
            return;
        }
        if self.chapters.syns.len() == MOST_SYNS {
            self.counters.errors_suppressed += 1;
            return;
        }
        let (due, protocol) = (self.now.plus(SYN_DELAY), packet.protocol());
        let (back_to, quote) = ((packet.from, packet.realm), packet.received.clone());
        self.chapters.syns.push(Syn { due, protocol, external, remote, back_to, quote });
    }

    /// 4.21, to the nanosecond: answers the due SYNs whose connections have not come about.
    pub(crate) fn answer_syns(&mut self, time: Timestamp) {
        let (due, later) = self.chapters.syns.drain(..).partition(|syn: &Syn| syn.due <= time);
        self.chapters.syns = later;
        let due: Vec<Syn> = due;
        for syn in due {
            let explained = self.mappings.iter().any(|(key, mapping)| {
                key.protocol == syn.protocol
                    && mapping.external == syn.external
                    && mapping.sessions.contains_key(&syn.remote)
            });
            if !explained {
                let port_unreachable = (UNREACHABLE, 3, 0);
                let sent_to = Ipv4Addr::from_bits(ip(&syn.quote).destination());
                self.send(time, syn.back_to, sent_to, port_unreachable, &syn.quote);
            }
        }
    }
}
