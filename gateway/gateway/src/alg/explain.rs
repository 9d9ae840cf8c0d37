//! What the gateways would do with a packet that is traced. Nothing changes.

use super::{Arrived, Control, Ends, Stage, endpoints, seconds};
use natgate_engine::{Becomes, End, Explanation, Side, Verdict};
use natgate_payload::{ControlPacket, Endpoints, Expectation, Ports, Wanted};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Ports of an explanation: the flow's own, and port 0 for a port that would be drawn.
struct NoPorts;

impl Ports for NoPorts {
    fn expect(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4> {
        Some(match wanted.wanted {
            Wanted::EndpointOfFlow => flow.external,
            Wanted::AddressOfFlow | Wanted::Pair => SocketAddrV4::new(*flow.external.ip(), 0),
        })
    }
}

/// An end of a packet; what would be drawn is 0.
fn drawn(End { address, port }: End) -> SocketAddrV4 {
    SocketAddrV4::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED), port.unwrap_or(0))
}

impl Stage {
    /// Explains a packet that the engine would forward. `None`: it is of no control flow.
    pub(crate) fn explain(
        &self,
        Arrived { now, from, .. }: Arrived,
        packet: &[u8],
        explanation: &Explanation,
    ) -> Option<natgate_payload::Explanation> {
        let (Verdict::Forward(to), Some(becomes)) = (explanation.verdict, explanation.becomes)
        else {
            return None;
        };
        if to == from {
            return None;
        }
        let ends = Ends::read(packet)?;
        let (external, control) = match from {
            Side::Inside => self.outbound_if(ends, becomes)?,
            Side::Outside => (ends.destination, self.inbound_if(ends, becomes)?),
        };
        let Control { kind, endpoints, may_begin } = control;
        let is_server = self.servers.contains_key(&(ends.protocol, external));
        let client = if is_server { Side::Outside } else { Side::Inside };
        let packet_of = ControlPacket { kind, from, endpoints, may_begin };
        self.payloads.explain(seconds(now), (packet_of, client), packet, &mut NoPorts)
    }

    /// The external endpoint and the flow of a packet from inside.
    fn outbound_if(&self, before: Ends, becomes: Becomes) -> Option<(SocketAddrV4, Control)> {
        let (external, destination) = (drawn(becomes.source), drawn(becomes.destination));
        let after = Ends { source: external, destination, ..before };
        Some((external, self.outbound(before, after)?))
    }

    /// The flow of a packet from outside, also of one that is not known.
    fn inbound_if(&self, ends: Ends, becomes: Becomes) -> Option<Control> {
        self.inbound(ends).or_else(|| {
            let kind = self.settings.kind(ends.protocol, ends.source.port())?;
            let internal = drawn(becomes.destination);
            let endpoints = endpoints(internal, ends.destination, ends.source);
            Some(Control { kind, endpoints, may_begin: true })
        })
    }
}
