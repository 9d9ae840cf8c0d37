//! What the gateways would do with a packet that is traced. Nothing changes.

use super::calls::Calls;
use super::dns::Addresses;
use super::{Arrived, Control, Ends, Host, Stage, endpoints, seconds};
use natgate_engine::{Becomes, End, Engine, Explanation, Side, Verdict};
use natgate_payload::{
    CallStep, ControlPacket, Counterpart, Endpoints, Expectation, NewFlow, Ports, Wanted,
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Ports of an explanation: the flow's own, and port 0 for a port that would be drawn.
struct NoPorts<'e> {
    engine: &'e Engine,
    addresses: &'e Addresses,
    calls: &'e Calls,
}

impl Ports for NoPorts<'_> {
    fn expect(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4> {
        Some(match wanted.wanted {
            Wanted::EndpointOfFlow => flow.external,
            Wanted::AddressOfFlow | Wanted::Pair => SocketAddrV4::new(*flow.external.ip(), 0),
            Wanted::CallId => {
                let known = self.calls.external(flow, wanted.internal.port());
                SocketAddrV4::new(*flow.external.ip(), known.unwrap_or(0))
            }
        })
    }

    fn limit(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4> {
        self.expect(flow, wanted)
    }

    fn shorten(&mut self, _: &Endpoints, _: &Expectation) {}

    fn withdraw(&mut self, _: &Endpoints, _: &Expectation) {}

    fn counterpart(&self, flow: &Endpoints, from: Side, address: Ipv4Addr) -> Option<Counterpart> {
        let host = Host::without(self.engine, flow.realm);
        self.addresses.counterpart((self.engine, host), flow, from, address)
    }

    fn call(&mut self, flow: &Endpoints, step: CallStep) -> Option<u16> {
        self.calls.answer(flow, step)
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
        engine: &Engine,
        arrived: Arrived,
        packet: &[u8],
        explanation: &Explanation,
    ) -> Option<natgate_payload::Explanation> {
        let Arrived { now, from, realm } = arrived;
        let (Verdict::Forward(to), Some(becomes)) = (explanation.verdict, explanation.becomes)
        else {
            return None;
        };
        if to == from {
            return None;
        }
        let ends = Ends::read(packet)?;
        let (external, control) = match from {
            _ if self.is_message(from, ends) => {
                let (source, destination) = (drawn(becomes.source), drawn(becomes.destination));
                let after = Ends { source, destination, ..ends };
                (after.source, self.message(arrived, (ends, after), becomes.realm)?)
            }
            Side::Inside => self.outbound_if(realm, ends, becomes)?,
            Side::Outside => (ends.destination, self.inbound_if(ends, becomes)?),
        };
        let Control { kind, endpoints, new_flow, .. } =
            control.under_rules(engine, Host::Unnumbered);
        let is_server = self.servers.contains_key(&(ends.protocol, external))
            || self.further.has_server(ends.protocol, external);
        let client = if is_server { Side::Outside } else { Side::Inside };
        let mut ports = NoPorts { engine, addresses: &self.addresses, calls: &self.calls };
        let packet_of = ControlPacket { kind, from, endpoints, new_flow };
        self.payloads.explain(seconds(now), (packet_of, client), packet, &mut ports)
    }

    /// The external endpoint and the flow of a packet from inside.
    fn outbound_if(
        &self,
        realm: u16,
        before: Ends,
        becomes: Becomes,
    ) -> Option<(SocketAddrV4, Control)> {
        let (external, destination) = (drawn(becomes.source), drawn(becomes.destination));
        let after = Ends { source: external, destination, ..before };
        Some((external, self.outbound(realm, before, after)?))
    }

    /// The flow of a packet from outside, also of one that is not known.
    fn inbound_if(&self, ends: Ends, becomes: Becomes) -> Option<Control> {
        self.inbound(ends).or_else(|| {
            let kind = self.settings.kind(ends.protocol, ends.source.port())?;
            let internal = drawn(becomes.destination);
            let endpoints = endpoints(becomes.realm, internal, ends.destination, ends.source);
            Some(Control { kind, endpoints, new_flow: NewFlow::Read })
        })
    }
}
