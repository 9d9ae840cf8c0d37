//! Explanation of a packet's fate, asked of a running gateway and answered by the worker that owns
//! the packet. The translator explains (`natgate_engine::Explanation`), the router adds the next
//! hop; nothing is sent and nothing changes. The asker allocates the memory.

use crate::alg::{Arrived, Stage};
use crate::link::Link;
use crate::router::{Onward, Router};
use crate::router6::{Onward6, Router6};
use crate::settings::Settings;
use natgate_engine::{Becomes, ConfigError, Engine, Explanation, Packet, Side, Timestamp, Verdict};
use natgate_ipv6::{FamilyBecomes, FamilyExplanation, Translator};
use natgate_payload::Explanation as AlgExplained;
use natgate_wire::{Ipv4, protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet to be explained.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Link that the packet would come in by.
    pub link: Link,
    /// Bytes of the IP packet.
    pub packet: Vec<u8>,
}

/// Explanation of one worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerTrace {
    /// Number of the worker.
    pub worker: usize,
    /// Explanation of the engine, for a packet of IPv4 alone.
    pub explanation: Explanation,
    /// Explanation of a packet that the translator of both families takes.
    pub families: Option<FamilyExplanation>,
    /// Link and next hop of the packet, if it leaves and is not handed over.
    pub onward: Option<(Link, Onward)>,
    /// Link and next hop of a packet that leaves as IPv6.
    pub onward6: Option<(Link, Onward6)>,
    /// What application-level gateways would do with the payload; `None`: the packet is of no
    /// control flow.
    pub alg: Option<AlgExplained>,
}

impl WorkerTrace {
    /// Explanation by a gateway without state that has these settings. `None` for the next hop.
    ///
    /// # Errors
    /// [`ConfigError`] if the gateway cannot run with the settings.
    pub fn without_state(
        settings: &Settings,
        probe: &Probe,
        now: Timestamp,
    ) -> Result<Self, ConfigError> {
        let mut config = settings.engine.clone();
        let ipv6 = settings.ipv6.alone(&mut config);
        let translator = Translator::new(&ipv6, &mut config, [0; 32]);
        let mut translator = translator.map_err(|message| ConfigError { message })?;
        let engine = Engine::new(&config, [0; 32], now)?;
        let mut traced = Self::default();
        traced.ask(now, (&engine, translator.as_mut()), probe);
        if traced.families.is_none() {
            let arrived = Arrived { now, from: probe.link.side, realm: probe.link.realm };
            traced.alg = Stage::new(&settings.alg, &config, [0; 32]).and_then(|stage| {
                stage.explain(&engine, arrived, &probe.packet, &traced.explanation)
            });
        }
        Ok(traced)
    }

    /// Asks the translators for their explanations.
    fn ask(
        &mut self,
        now: Timestamp,
        (engine, translator): (&Engine, Option<&mut Translator>),
        Probe { link, packet }: &Probe,
    ) {
        let mut bytes = packet.clone();
        let view = Packet::new(&mut bytes, 0).in_realm(link.realm);
        engine.explain(now, link.side, &view, &mut self.explanation);
        let Some(translator) = translator else { return };
        // Hosts of NAT64 and DS-Lite get packets from the engine.
        let to_host = self.explanation.becomes.is_some_and(|becomes| {
            let leaves = Verdict::Forward(Side::Inside) == self.explanation.verdict;
            leaves && translator.realms().has(becomes.realm)
        });
        if to_host || translator.claims(link.side, link.realm, packet) {
            let mut families = FamilyExplanation::new();
            translator.explain(engine, now, link.side, &view, &mut families);
            self.families = Some(families);
        }
    }

    /// Asks the routers for the next hop of a packet of the translator of both families.
    fn ask_routers(&mut self, side: Side, (router, router6): (&Router, &Router6)) {
        let becomes = self.families.as_ref().and_then(|families| families.becomes.as_ref());
        let Some(becomes) = becomes else { return };
        let FamilyBecomes { destination, tunnel, realm, len, cut, dont_fragment, .. } = becomes;
        let len = cut.map_or(*len, |cut| cut.min(*len));
        let end = tunnel.map(|tunnel| IpAddr::V6(Ipv6Addr::from_bits(tunnel.customer)));
        match end.or(destination.address) {
            Some(IpAddr::V6(address)) => {
                let link = Link::new(side, 0);
                self.onward6 = Some((link, router6.onward(link, address, len)));
            }
            Some(IpAddr::V4(address)) => {
                let link = Link::new(side, *realm);
                self.onward = Some((link, router.onward(link, address, len, *dont_fragment)));
            }
            None => {}
        }
    }
}

/// A probe on its way to a worker and back.
#[derive(Debug)]
pub(crate) struct Tracing {
    pub(crate) probe: Probe,
    /// True if another worker has translated the sender's endpoint (hairpin).
    pub(crate) turned: bool,
    pub(crate) traced: WorkerTrace,
    /// True if the worker knows the sender, or the packet's mapping: asked if several workers may.
    pub(crate) knows: bool,
}

impl Tracing {
    pub(crate) fn new(probe: Probe, turned: bool) -> Self {
        let traced = WorkerTrace::default();
        Self { probe, turned, traced, knows: false }
    }

    /// Asks a worker's translators, application-level gateways and routers for their explanations.
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        (engine, algs): (&mut Engine, Option<&Stage>),
        router: &Router,
        families: Option<(&mut Translator, &Router6)>,
    ) {
        let Self { probe, turned, traced, knows } = self;
        let Probe { link, packet } = &mut *probe;
        let source = Ipv4::new_checked(&packet[..]).map(|packet| packet.source());
        *knows = match link.side {
            Side::Inside => {
                source.is_ok_and(|source| engine.knows(link.realm, Ipv4Addr::from_bits(source)))
            }
            Side::Outside => {
                let search = algs.and_then(|algs| algs.search_call(packet));
                search.is_some_and(|search| search.is_here) || engine.expects(packet)
            }
        };
        let (translator, router6) = families.unzip();
        match turned {
            true => {
                let view = Packet::new(packet, 0).in_realm(link.realm);
                engine.explain_turned(now, &view, &mut traced.explanation);
            }
            false => traced.ask(now, (engine, translator), probe),
        }
        if let (Some(families), Some(router6)) = (&traced.families, router6) {
            if let Some(side) = leaves_by(families.verdict) {
                traced.ask_routers(side, (router, router6));
            }
            return;
        }
        let Probe { link, packet } = &*probe;
        let arrived = Arrived { now, from: link.side, realm: link.realm };
        let algs = algs.filter(|_| !*turned);
        match algs.and_then(|algs| algs.explain_call(engine, arrived, packet)) {
            Some((told, payload)) => (traced.explanation, traced.alg) = (told, Some(payload)),
            None => {
                let explain =
                    |algs: &Stage| algs.explain(engine, arrived, packet, &traced.explanation);
                traced.alg = algs.and_then(explain);
            }
        }
        let (dont_fragment, len) = match Ipv4::new_checked(&packet[..]) {
            Ok(packet) => (packet.dont_fragment(), usize::from(packet.total_len())),
            Err(_) => (false, 0),
        };
        let becomes = traced.explanation.becomes;
        let leaves = leaves_by(traced.explanation.verdict);
        traced.onward = leaves.zip(becomes).and_then(|(side, becomes)| {
            let link = Link::new(side, becomes.realm);
            let destination = becomes.destination.address?;
            Some((link, router.onward(link, destination, len, dont_fragment)))
        });
    }
}

/// The side that a packet leaves by.
fn leaves_by(verdict: Verdict) -> Option<Side> {
    match verdict {
        Verdict::Forward(side) | Verdict::Reply(side) => Some(side),
        Verdict::Drop(_) | Verdict::HandOver | Verdict::Held => None,
    }
}

/// The packet as it would be handed over, if its new endpoints are known.
pub(crate) fn turned(packet: &[u8], becomes: &Becomes) -> Option<Vec<u8>> {
    let mut bytes = packet.to_vec();
    let mut ip = Ipv4::new_checked(&mut bytes[..]).ok()?;
    ip.set_source(becomes.source.address?.to_bits());
    ip.set_destination(becomes.destination.address?.to_bits());
    ip.fill_checksum();
    let (number, start) = (ip.protocol(), ip.header_len());
    let places: &[(usize, Option<u16>)] = match number {
        protocol::TCP | protocol::UDP | protocol::DCCP => {
            &[(0, becomes.source.port), (2, becomes.destination.port)]
        }
        protocol::ICMP => &[(4, becomes.source.port)],
        _ => &[],
    };
    for (place, port) in places {
        let at = start + place;
        bytes.get_mut(at..at + 2)?.copy_from_slice(&(*port)?.to_be_bytes());
    }
    Some(bytes)
}
