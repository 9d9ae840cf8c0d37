//! Figures of a gateway that has one of everything, for tests.

use natgate_engine::{Direction, DropReason, Outcome};
use natgate_gateway::fleet::{
    FleetStatus, LinkStatus, ReceivedCounters, Refusal, Sent, SliceStatus, TunnelCounters,
};
use natgate_gateway::ipv6::softwire::DomainCounters;
use natgate_gateway::router6::Router6Counters;
use natgate_gateway::{AlgCounters, AlgKind, AlgReason, AnnouncedRoutes, LoadNow, TimingNow};
use natgate_io::Statistics;
use natgate_metrics::{
    DeviceFigures, DomainFigures, Figures, Filled, ListenerFigures, PoolFigures, PortFigures,
    Reloads, ServerFigures, SinkFigures, WorkerFigures,
};
use std::time::{Duration, UNIX_EPOCH};

/// Figures of which no number is what another is.
pub(crate) fn figures() -> Figures {
    let began = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let mut figures = Figures::new(began);
    let counters = &mut figures.counters;
    counters.packets[Direction::Outbound as usize][Outcome::Forwarded as usize] = 1000;
    counters.bytes[Direction::Inbound as usize][Outcome::Dropped as usize] = 300;
    counters.drops[DropReason::Filtered as usize] = 5;
    figures.mappings = Filled { used: 41, limit: 1000 };
    figures.sessions = Filled { used: 52, limit: 2000 };
    figures.router6 = Some(Router6Counters { errors_made: 15, ..Router6Counters::default() });
    let mut alg = AlgCounters { expectations: 17, ..AlgCounters::default() };
    alg.refused[AlgReason::LowPort as usize] = 19;
    figures.algs = vec![(AlgKind::Ftp, alg)];
    figures.servers = vec![ServerFigures {
        external: "203.0.113.1:80".parse().unwrap(),
        internal: "10.0.0.5:8080".parse().unwrap(),
        realm: "default".to_owned(),
        up: false,
        succeeded: 27,
        failed: 28,
    }];
    let domain = |kind, name: &str, of: u64| DomainFigures {
        kind,
        name: name.to_owned(),
        counters: DomainCounters { outbound: (of, 22), inbound: (23, 24), spoofed: of + 4 },
    };
    figures.domains =
        vec![domain("map-e", "2001:db8:8000::/40", 21), domain("dslite", "dslite", 21)];
    figures.bindings = Some(26);
    figures.subscribers = Filled { used: 3, limit: 100 };
    figures.made = [7, 80, 9];
    figures.gone = [1, 50, 4];
    let usage = |used| PortFigures { free: 60_000 - used, used, held: 11, reserved: 23 };
    figures.pools.push(PoolFigures {
        name: "default".into(),
        addresses: 1,
        ports: vec![("tcp", usage(6)), ("udp", usage(40)), ("icmp", usage(5))],
        blocks: Some(Filled { used: 4, limit: 120 }),
    });
    let device = |name: &str, side: &str| DeviceFigures {
        side: side.into(),
        name: name.into(),
        mtu: 1500,
        up: true,
        frames: Statistics { received: 77, transmit_full: 2, ..Statistics::default() },
    };
    figures.devices = vec![device("eth1", "inside"), device("eth0", "outside")];
    let load = LoadNow { busy_ns: 1_500_000_000, age_ns: 9_000_000_000, ..LoadNow::default() };
    figures.workers = vec![WorkerFigures { load, timing: TimingNow::default() }];
    // A name that has to be escaped.
    let name = "syslog \"a\"".to_owned();
    figures.sinks = vec![SinkFigures { name, written: 10, lost: 3, gaps: 1, waiting: 2, up: true }];
    figures.listeners = vec![ListenerFigures { name: "page", refused: 6 }];
    figures.announced = Some(AnnouncedRoutes { present: 12, missing: 8, restored: 14 });
    figures.fleet = Some(pair());
    let last_success = Some(began + Duration::from_secs(5));
    figures.reloads = Reloads { succeeded: 1, failed: 2, last_success };
    figures
}

/// One of two gateways, with a slice of its own and the copy of another.
fn pair() -> FleetStatus {
    let slice = |role: &'static str| SliceStatus {
        addresses: Vec::new(),
        home: "a".into(),
        owner: Some("a".into()),
        role,
        epoch: 6,
        assigns: role == "owner",
        rests: None,
        drains: false,
        moves_to: None,
        is_move_overdue: false,
        passes: false,
        is_complete: true,
        age: Some(Duration::from_millis(1500)),
        lag: Duration::from_millis(250),
        is_disputed: false,
        sent: None,
        received: None,
        refusal: Refusal::default(),
        records_without_realm: None,
        ended_to_move: 43,
    };
    let sent =
        Sent { packets: 31, records: 32, bytes: 33, lost: 34, repaired: 35, ..Sent::default() };
    let received = ReceivedCounters { gaps: 36, divergent: 37, ..ReceivedCounters::default() };
    FleetStatus {
        node: "a".into(),
        partner: "b".into(),
        boot: 1 << 32,
        partner_boot: 1 << 32,
        has_partner_ended: false,
        link: LinkStatus {
            connected: Some(Duration::ZERO),
            round_trip: Some(Duration::from_millis(2)),
            clock_lead: Some(-1_500_000_000),
            ..LinkStatus::default()
        },
        resting: 38,
        refused_views: 39,
        tunnel: TunnelCounters {
            passed: [44, 45, 46],
            full: 47,
            long: 48,
            taken: [49, 50, 51],
            foreign: 52,
            unknown: 53,
            partial: 54,
            damaged: 55,
        },
        slices: vec![
            SliceStatus { sent: Some(sent), ..slice("owner") },
            SliceStatus {
                received: Some(received),
                refusal: Refusal { without_realm: 30, without_number: 11, ..Refusal::default() },
                records_without_realm: Some(42),
                ..slice("partner")
            },
        ],
        owners: Vec::new(),
    }
}
