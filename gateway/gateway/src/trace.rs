//! Explanation of a packet's fate, asked of a running gateway and answered by the worker that owns
//! the packet. The translator explains (`natgate_engine::Explanation`), the router adds the next
//! hop; nothing is sent and nothing changes. The asker allocates the memory.

use crate::alg::{Arrived, Stage};
use crate::link::Link;
use crate::router::{Onward, Router};
use crate::settings::Settings;
use natgate_engine::{Becomes, ConfigError, Engine, Explanation, Packet, Side, Timestamp, Verdict};
use natgate_payload::Explanation as AlgExplained;
use natgate_wire::{Ipv4, protocol};
use std::net::Ipv4Addr;

/// A packet to be explained.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Link that the packet would come in by.
    pub link: Link,
    /// Bytes of the IP packet.
    pub packet: Vec<u8>,
}

/// Explanation of one worker.
#[derive(Clone, Debug)]
pub struct WorkerTrace {
    /// Number of the worker.
    pub worker: usize,
    /// Explanation of the translator.
    pub explanation: Explanation,
    /// Link and next hop of the packet, if it leaves and is not handed over.
    pub onward: Option<(Link, Onward)>,
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
        let engine = Engine::new(&settings.engine, [0; 32], now)?;
        let mut explanation = Explanation::new();
        let mut packet = probe.packet.clone();
        let (side, realm) = (probe.link.side, probe.link.realm);
        engine.explain(now, side, &Packet::new(&mut packet, 0).in_realm(realm), &mut explanation);
        let arrived = Arrived { now, from: side, realm };
        let alg = Stage::new(&settings.alg, &settings.engine, [0; 32])
            .and_then(|stage| stage.explain(&engine, arrived, &probe.packet, &explanation));
        Ok(Self { worker: 0, explanation, onward: None, alg })
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
        let explanation = Explanation::new();
        let traced = WorkerTrace { worker: 0, explanation, onward: None, alg: None };
        Self { probe, turned, traced, knows: false }
    }

    /// Asks a worker's translator, application-level gateways and router for their explanations.
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        (engine, algs): (&mut Engine, Option<&Stage>),
        router: &Router,
    ) {
        let Self { probe, turned, traced, knows } = self;
        let Probe { link, packet } = probe;
        let source = Ipv4::new_checked(&packet[..]).map(|packet| packet.source());
        *knows = match link.side {
            Side::Inside => {
                source.is_ok_and(|source| engine.knows(link.realm, Ipv4Addr::from_bits(source)))
            }
            Side::Outside => engine.expects(packet),
        };
        let (dont_fragment, len) = match Ipv4::new_checked(&packet[..]) {
            Ok(packet) => (packet.dont_fragment(), usize::from(packet.total_len())),
            Err(_) => (false, 0),
        };
        let view = Packet::new(packet, 0).in_realm(link.realm);
        match turned {
            true => engine.explain_turned(now, &view, &mut traced.explanation),
            false => engine.explain(now, link.side, &view, &mut traced.explanation),
        }
        let arrived = Arrived { now, from: link.side, realm: link.realm };
        let algs = algs.filter(|_| !*turned);
        traced.alg =
            algs.and_then(|algs| algs.explain(engine, arrived, packet, &traced.explanation));
        let leaves = match traced.explanation.verdict {
            Verdict::Forward(side) | Verdict::Reply(side) => Some(side),
            Verdict::Drop(_) | Verdict::HandOver | Verdict::Held => None,
        };
        let becomes = traced.explanation.becomes;
        traced.onward = leaves.zip(becomes).and_then(|(side, becomes)| {
            let link = Link::new(side, becomes.realm);
            let destination = becomes.destination.address?;
            Some((link, router.onward(link, destination, len, dont_fragment)))
        });
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
