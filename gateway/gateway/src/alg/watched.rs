//! The ports that a packet of a control flow has: one of its ports is among them.

use super::{AlgSettings, Kind, Stage, gre};
use natgate_engine::{ControlPorts, Engine, Side};
use natgate_payload::Endpoints;
use natgate_wire::{ipv6, protocol};

impl Stage {
    /// Watches the ports of all servers. While a flow of former settings lasts, the former ports
    /// and its own ports are watched, too.
    pub(super) fn watch(&mut self) {
        let Self { settings, former, servers, addresses, payloads, doubted, .. } = self;
        let has_calls = settings.has(Kind::Pptp) || former.has(Kind::Pptp);
        let of_calls = has_calls.then(gre::first_words).into_iter().flatten();
        let of_servers = servers.keys().map(|(_, end)| end.port());
        let ports = |settings: &AlgSettings| -> Vec<u16> {
            settings.iter().flat_map(|(_, ports)| ports).copied().collect()
        };
        let (named, formerly) = (ports(settings), ports(former));
        let flows = (!former.is_off()).then(|| payloads.each()).into_iter().flatten();
        let of_flows = flows.flat_map(|(_, _, flow): (_, _, Endpoints)| {
            let remote = flow.remote.port();
            let is_of_client = named.contains(&remote) || formerly.contains(&remote);
            let server = [flow.internal.port(), flow.external.port()];
            if is_of_client { [remote; 2] } else { server }
        });
        let all = named.iter().chain(&formerly).copied();
        let all = all.chain(of_servers).chain(addresses.ports()).chain(of_calls).chain(of_flows);
        doubted.set(all, has_calls);
        self.watched.copy(&self.doubted);
        self.watched.add(self.further.ports());
        self.is_told = false;
    }

    /// Says whether the engine stops at packets of control flows.
    pub(crate) fn stop_engine(&mut self, stops: bool) {
        self.is_told &= self.stops == stops;
        self.stops = stops;
    }

    /// Tells the engine which ports are watched, if they have changed.
    pub(crate) fn tell_ports(&mut self, engine: &mut Engine) {
        if !self.is_told && self.stops {
            engine.set_control_ports(&self.doubted, &self.watched);
        }
        self.is_told = true;
    }

    /// True if the engine certainly stops at a packet: the packet is of a control flow, and has a
    /// port of the settings.
    pub(crate) fn has_stop(&self, from: Side, packet: &[u8]) -> bool {
        self.doubted.may_have(packet) && self.claims(from, packet)
    }
}

/// False if a packet of IPv6 certainly has none of the ports. With extension headers it may.
#[inline]
pub(super) fn may_have_ipv6(ports: &ControlPorts, packet: &[u8]) -> bool {
    match (packet.get(ipv6::NEXT_HEADER), packet.get(ipv6::HEADER_LEN..ipv6::HEADER_LEN + 4)) {
        (Some(&(protocol::TCP | protocol::UDP)), Some(&[a, b, c, d])) => {
            ports.has_either([a, b, c, d])
        }
        (Some(&next), Some(_)) => ipv6::is_extension(next),
        _ => false,
    }
}
