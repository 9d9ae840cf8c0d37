//! Services of several servers in a pair whose nodes have several workers: all servers of a service
//! are at one worker of each node, whatever worker the arithmetic gives them.

use super::workers::COUNTS;
use super::*;
use natgate_engine::{Affinity, Server, Service};

/// The servers, by the last number of their addresses. With two or three workers they have several
/// ones by arithmetic.
pub(super) const SERVERS: [u8; 3] = [3, 4, 8];

/// Their port, and the place in the ports of an address that is the service's.
pub(super) const PORT: u16 = 77;
const PLACE: u16 = 5;

impl Allotment {
    /// Services of a node.
    pub(super) fn services(self) -> Vec<Service> {
        if self != Self::Services {
            return Vec::new();
        }
        let server = |host: u8| Server {
            internal: (Ipv4Addr::new(10, 0, 0, host), PORT),
            weight: 1,
            draining: false,
            backup: false,
        };
        vec![Service {
            realm: 0,
            protocol: Some(protocol::UDP),
            external: service(),
            servers: SERVERS.map(server).to_vec(),
            affinity: Affinity::Address,
        }]
    }
}

/// The service's endpoint.
pub(super) fn service() -> External {
    (A1, Allotment::Services.wide_ports().0 + PLACE)
}

impl Process {
    /// A client outside sends a datagram to the service. Returns the last number of the server.
    fn serve(&mut self, client: u8) -> Option<u8> {
        let (to, from) = (service(), (REMOTE + 256 + u32::from(client), 5000));
        let bytes = packet(None, from, (to.0.to_bits(), to.1));
        let (_, (server, port), _) = self.pass((Side::Outside, 0), bytes)?;
        assert_eq!(port, PORT);
        Some(server.octets()[3])
    }

    /// The server of a client answers. Returns the endpoint that the client sees.
    fn reply(&mut self, server: u8, client: u8) -> Option<External> {
        let to = (REMOTE + 256 + u32::from(client), 5000);
        let bytes = packet(None, (u32::from_be_bytes([10, 0, 0, server]), PORT), to);
        self.pass((Side::Inside, 0), bytes).map(|(source, ..)| source)
    }

    /// Some servers get no new sessions.
    fn mark(&mut self, are_up: [bool; SERVERS.len()]) {
        for engine in self.engines() {
            (0..).zip(are_up).for_each(|(server, is_up)| engine.mark_server(0, server, is_up));
        }
    }
}

#[test]
fn sessions_of_a_service_go_on_at_the_partner_with_the_same_servers() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Services, workers);
        let mut sessions = BTreeMap::new();
        for client in 1..40 {
            sessions.insert(client, pair.a().serve(client).expect("it goes to a server"));
        }
        let servers: std::collections::BTreeSet<u8> = sessions.values().copied().collect();
        assert_eq!(servers.into_iter().collect::<Vec<_>>(), SERVERS, "all of them");
        // Mappings of the servers themselves.
        let flows = SERVERS.map(|server| pair.a().send((server, 9)).expect("sent"));
        pair.run(3.0);
        assert!(pair.status_is_whole(), "{workers:?}: {:?}", pair.b().status());
        pair.end_a_with_guardian();
        pair.run(1.0);
        // A new session goes to the first server alone.
        pair.b().mark([true, false, false]);
        for (client, server) in &sessions {
            assert_eq!(pair.b().serve(*client), Some(*server), "{workers:?}: {client}");
            assert_eq!(pair.b().reply(*server, *client), Some(service()), "{workers:?}");
        }
        assert!((50..60).all(|client| pair.b().serve(client) == Some(SERVERS[0])));
        for (server, flow) in SERVERS.iter().zip(flows) {
            assert_eq!(pair.b().send((*server, 9)), Some(flow), "{workers:?}");
        }
        pair.b().mark([true; 3]);
        pair.restart_a();
        pair.run(125.0);
        pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
        pair.run(2.0);
        assert_eq!(pair.a().status().slices[0].role, "owner", "{workers:?}");
        pair.a().mark([true, false, false]);
        for (client, server) in &sessions {
            assert_eq!(pair.a().serve(*client), Some(*server), "{workers:?}: {client}");
        }
        pair.check();
    }
}

/// Servers keep their worker when a reload changes other settings.
#[test]
fn servers_stay_with_their_worker_in_a_reload() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Services, workers);
        let mut plain = Pair::of(Allotment::Random, workers);
        let of = |process: &Process| {
            SERVERS.map(|server| process.worker_of((0, Ipv4Addr::new(10, 0, 0, server))))
        };
        let are_together = |of: &[usize; 3]| of.iter().all(|worker| *worker == of[0]);
        for to_a in [true, false] {
            let by_arithmetic = of(plain.either(to_a));
            let process = pair.either(to_a);
            let before = of(process);
            assert!(are_together(&before));
            assert!(process.others.is_empty() || !are_together(&by_arithmetic));
            process.reload(250);
            assert_eq!(of(process), before);
            let none = Config { services: Vec::new(), ..process.engine.config().clone() };
            let keys = natgate_engine::restart_keys(process.engine.config(), &none);
            assert_eq!(keys, ["static"], "only a restart changes services");
        }
    }
}
