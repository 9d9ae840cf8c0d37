//! Requested mappings: made, kept, given up, towards all remote endpoints or one, with filters and
//! limits.

mod common;

use common::*;
use natgate_engine::{
    Allocation, Behavior, BlockConfig, Change, Config, ConfigError, DropReason, Endpoint, Explicit,
    ExplicitError, Keeper, Limits, MapRequest, MappingId, MappingKind, Nonce, PeerRequest, Pooling,
    Reconfiguration, ReconfigureError, RemoteFilter, Rule, RuleAction, Side, StaticMapping,
    WantedEndpoint,
};
use natgate_wire::protocol::{ICMP, TCP, UDP};
use std::net::Ipv4Addr;
use std::time::Duration;

const NONCE: Nonce = [7; 12];
const HOST: &str = "10.0.0.5:8080";
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn asking() -> Config {
    let base = config();
    let limits =
        Limits { explicit_mappings: 64, explicit_per_subscriber: 8, ..base.limits.clone() };
    Config { limits, filtering: Behavior::AddressAndPortDependent, ..base }
}

fn end(text: &str) -> Endpoint {
    let (address, port) = endpoint(text);
    Endpoint::new(address, port)
}

fn request(protocol: u8, internal: &str, lifetime: Duration) -> MapRequest<'static> {
    MapRequest {
        protocol,
        realm: 0,
        internal: end(internal),
        wanted: WantedEndpoint::default(),
        lifetime,
        nonce: NONCE,
        replaces_filters: false,
        filters: &[],
    }
}

fn wanted(external: &str, strict: bool) -> WantedEndpoint {
    let Endpoint { address, port } = end(external);
    WantedEndpoint { address: (!address.is_unspecified()).then_some(address), port, strict }
}

fn peer(protocol: u8, internal: &str, remote: &str, lifetime: Duration) -> PeerRequest {
    PeerRequest {
        protocol,
        realm: 0,
        internal: end(internal),
        remote: end(remote),
        wanted: WantedEndpoint::default(),
        lifetime,
        nonce: NONCE,
    }
}

trait Asks {
    fn map(&mut self, request: &MapRequest<'_>) -> Result<Explicit, ExplicitError>;
    fn mapped(&mut self, request: &MapRequest<'_>) -> String;
    fn peer(&mut self, request: &PeerRequest) -> Result<Explicit, ExplicitError>;
    fn unmap(
        &mut self,
        protocol: u8,
        internal: &str,
        nonce: Nonce,
    ) -> Result<Duration, ExplicitError>;
    fn count(&self) -> usize;
}

impl Asks for Lab {
    fn map(&mut self, request: &MapRequest<'_>) -> Result<Explicit, ExplicitError> {
        self.engine.map(self.now, request)
    }

    fn mapped(&mut self, request: &MapRequest<'_>) -> String {
        let Endpoint { address, port } = self.map(request).expect("a mapping").external;
        format!("{address}:{port}")
    }

    fn peer(&mut self, request: &PeerRequest) -> Result<Explicit, ExplicitError> {
        self.engine.peer(self.now, request)
    }

    fn unmap(
        &mut self,
        protocol: u8,
        internal: &str,
        nonce: Nonce,
    ) -> Result<Duration, ExplicitError> {
        self.engine.unmap(self.now, protocol, 0, end(internal), nonce)
    }

    fn count(&self) -> usize {
        self.engine.mappings().count()
    }
}

//= test rfc6887#section-11-independent
//= test rfc6887#section-11.3-existing-explicit
#[test]
fn anybody_gets_in_as_long_as_the_mapping_lasts() {
    for mapping in [Behavior::EndpointIndependent, Behavior::AddressAndPortDependent] {
        let mut lab = Lab::new(&Config { mapping, ..asking() });
        let external = lab.mapped(&request(UDP, HOST, 2 * MINUTE));
        let told = lab.engine.mappings().next().unwrap();
        assert_eq!((told.id.kind, told.sessions), (MappingKind::Pcp, 0));
        for remote in [REMOTE, "198.51.100.8:9"] {
            assert_eq!(ends(&lab.inward(&udp(remote, &external))).1, HOST);
            // The reply leaves with the external endpoint that the request came to.
            assert_eq!(ends(&lab.out(&udp(HOST, remote))).0, external);
        }
        // Packets that the host itself begins use the endpoint too.
        assert_eq!(ends(&lab.out(&udp(HOST, "198.51.100.9:53"))).0, external);
        assert_eq!(lab.count(), 1);
        // A repeated request gives the same mapping, whatever it suggests, and a new lifetime.
        lab.wait_s(100.0);
        let again =
            MapRequest { wanted: wanted("203.0.113.9:7", false), ..request(UDP, HOST, HOUR) };
        assert_eq!(lab.mapped(&again), external);
        lab.wait_s(3590.0);
        assert_eq!(lab.count(), 1);
        assert_eq!(ends(&lab.inward(&udp("198.51.100.10:1", &external))).1, HOST);
        // The hold is over, but a session continues.
        lab.wait_s(60.0);
        assert_eq!(lab.engine.mappings().next().unwrap().id.kind, MappingKind::Dynamic);
        lab.refused(Side::Outside, &udp("198.51.100.11:1", &external));
        lab.wait_s(1000.0);
        assert_eq!(lab.count(), 0);
        let kinds = |ids: Vec<MappingId>| ids.iter().map(|id| id.kind).collect::<Vec<_>>();
        assert_eq!(kinds(lab.created()), [MappingKind::Pcp]);
    }
}

//= test rfc6887#section-15-active
//= test rfc6886#section-3.4-expire
#[test]
fn it_goes_when_its_time_is_over() {
    let mut lab = Lab::new(&asking());
    lab.mapped(&request(TCP, HOST, MINUTE));
    lab.wait_s(59.0);
    assert_eq!(lab.count(), 1);
    lab.wait_s(2.0);
    assert_eq!(lab.count(), 0);
    assert_eq!(lab.removed()[0].kind, MappingKind::Pcp);
    // A lifetime beyond the reach of the timers.
    lab.mapped(&request(TCP, HOST, 10 * HOUR));
    lab.wait_s(35_990.0);
    assert_eq!(lab.count(), 1);
    lab.wait_s(20.0);
    assert_eq!(lab.count(), 0);
}

//= test rfc6887#section-11.3-nonce
#[test]
fn another_nonce_is_refused_and_told_how_long() {
    let mut lab = Lab::new(&asking());
    lab.mapped(&request(TCP, HOST, HOUR));
    let other = MapRequest { nonce: [8; 12], ..request(TCP, HOST, 2 * HOUR) };
    assert_eq!(lab.map(&other), Err(ExplicitError::Nonce(HOUR)));
    assert_eq!(lab.unmap(TCP, HOST, [8; 12]), Err(ExplicitError::Nonce(HOUR)));
    assert_eq!(lab.count(), 1);
    assert_eq!(lab.unmap(TCP, HOST, NONCE), Ok(Duration::ZERO));
    assert_eq!(lab.count(), 0);
    lab.map(&other).unwrap();
}

//= test rfc6887#section-15.1-none
//= test rfc6887#section-15.1-not-explicit
//= test rfc6886#section-3.4-none
//= test rfc6886#section-3.4-manual
//= test rfc6886#section-3.4-all-partly
#[test]
fn only_what_was_asked_for_can_be_given_back() {
    let statics = vec![StaticMapping {
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(80)),
        external: (Ipv4Addr::new(198, 18, 0, 80), Some(80)),
        ..StaticMapping::default()
    }];
    let mut lab = Lab::new(&Config { statics, ..asking() });
    assert_eq!(lab.unmap(TCP, HOST, NONCE), Ok(Duration::ZERO));
    lab.out(&udp(HOST, REMOTE));
    assert_eq!(lab.unmap(UDP, HOST, NONCE), Err(ExplicitError::NotExplicit));
    assert_eq!(lab.unmap(TCP, "10.0.0.80:80", NONCE), Err(ExplicitError::NotExplicit));
    // A request to give up all mappings of a host reports that not all of them could go.
    lab.mapped(&request(TCP, "10.0.0.80:81", HOUR));
    let count = lab.count();
    let host = Ipv4Addr::new(10, 0, 0, 80);
    let ended = lab.engine.unmap_all(lab.now, TCP, 0, host, NONCE);
    assert_eq!(ended, Err(ExplicitError::NotExplicit));
    assert_eq!(lab.count(), count - 1);
}

//= test rfc6887#section-11.3-static
//= test rfc6887#section-11.3-existing-static
#[test]
fn what_the_operator_has_mapped_is_told() {
    let fixed = |internal, external, port| StaticMapping {
        internal: (internal, port),
        external: (external, port),
        ..StaticMapping::default()
    };
    let [port, whole] = [Ipv4Addr::new(10, 0, 0, 80), Ipv4Addr::new(10, 0, 0, 81)];
    let statics = vec![
        fixed(port, Ipv4Addr::new(198, 18, 0, 80), Some(80)),
        fixed(whole, Ipv4Addr::new(198, 18, 0, 81), None),
    ];
    let mut lab = Lab::new(&Config { statics, ..asking() });
    for (internal, external) in
        [("10.0.0.80:80", "198.18.0.80:80"), ("10.0.0.81:5", "198.18.0.81:5")]
    {
        let told = Explicit { external: end(external), lifetime: None };
        assert_eq!(lab.map(&request(TCP, internal, HOUR)), Ok(told));
        let other =
            MapRequest { wanted: wanted("203.0.113.1:99", true), ..request(TCP, internal, HOUR) };
        assert_eq!(lab.map(&other), Err(ExplicitError::External));
        assert_eq!(lab.peer(&peer(TCP, internal, REMOTE, HOUR)), Ok(told));
    }
    assert_eq!(lab.engine.external_address(0, whole), Some(Ipv4Addr::new(198, 18, 0, 81)));
}

//= test rfc6887#section-11.3-suggested
//= test rfc6887#section-11.3-prefer-failure
//= test rfc6887#section-11.3-hint
//= test rfc6887#section-11.3-own-ports
//= test rfc6887#section-11.3-existing-prefer-failure
//= test rfc6887#section-7.4-external
//= test rfc6886#section-3.3-another
#[test]
fn a_wish_is_granted_if_it_can_be() {
    let mut lab = Lab::new(&Config {
        pools: vec![pool("203.0.113.1", "203.0.113.1", (1024, 65_535))],
        ..asking()
    });
    let ask = |lab: &mut Lab, internal: &str, external: &str, strict| {
        lab.map(&MapRequest { wanted: wanted(external, strict), ..request(UDP, internal, HOUR) })
    };
    let got = ask(&mut lab, "10.0.0.5:1", "203.0.113.1:7777", false).unwrap();
    assert_eq!(got.external, end("203.0.113.1:7777"));
    assert_eq!(ask(&mut lab, "10.0.0.5:2", "0.0.0.0:7778", true).unwrap().external.port, 7778);
    // A taken port, another host's port, an address that is not external, a port of the protocols.
    for external in [
        "203.0.113.1:7777",
        "203.0.113.1:80",
        "192.0.2.9:7000",
        "203.0.113.1:5351",
        "203.0.113.1:5350",
    ] {
        assert_eq!(ask(&mut lab, "10.0.0.6:3", external, true), Err(ExplicitError::External));
        let other = ask(&mut lab, "10.0.0.6:3", external, false).unwrap().external;
        assert_ne!(other, end(external));
        lab.unmap(UDP, "10.0.0.6:3", NONCE).unwrap();
    }
    // The present mapping keeps its endpoint.
    assert_eq!(ask(&mut lab, "10.0.0.5:1", "203.0.113.1:9000", true), Err(ExplicitError::External));
    assert_eq!(ask(&mut lab, "10.0.0.5:1", "203.0.113.1:7777", true).unwrap().external.port, 7777);
}

#[test]
fn the_protocols_own_ports_are_never_given() {
    let pools = vec![pool("203.0.113.1", "203.0.113.1", (5350, 5352))];
    for (port_parity, allocation) in [false, true]
        .into_iter()
        .flat_map(|parity| [(parity, Allocation::Random), (parity, Allocation::Preserve)])
    {
        let pools = pools.clone();
        let mut lab = Lab::new(&Config { pools, port_parity, allocation, ..asking() });
        // One of the three ports is left for requests, whatever its parity.
        let got: Vec<_> = [5351, 5350, 5352]
            .map(|port| lab.map(&request(UDP, &format!("10.0.0.5:{port}"), HOUR)))
            .into();
        assert_eq!(got[0].map(|one| one.external.port), Ok(5352));
        assert_eq!(got[1..], [Err(ExplicitError::Full); 2]);
        assert!(lab.map(&request(TCP, "10.0.0.5:1", HOUR)).is_ok());
        // Traffic may have the protocols' ports.
        lab.out(&udp("10.0.0.5:5350", REMOTE));
        lab.out(&udp("10.0.0.5:5351", REMOTE));
    }
}

//= test rfc6887#section-11.3-limit
//= test rfc6887#section-17.2
#[test]
fn limits_of_the_subscriber_hold() {
    let mut lab = Lab::new(&asking());
    for port in 1..=8 {
        lab.mapped(&request(TCP, &format!("10.0.0.5:{port}"), HOUR));
    }
    assert_eq!(lab.map(&request(TCP, "10.0.0.5:9", HOUR)), Err(ExplicitError::Quota));
    // Present mappings can be kept, other hosts may request, and a mapping that is given up makes
    // room.
    lab.mapped(&request(TCP, "10.0.0.5:8", HOUR));
    lab.mapped(&request(TCP, "10.0.0.6:9", HOUR));
    lab.unmap(TCP, "10.0.0.5:1", NONCE).unwrap();
    lab.mapped(&request(TCP, "10.0.0.5:9", HOUR));

    let limits = Limits { tcp_ports: 2, ..asking().limits };
    let mut lab = Lab::new(&Config { limits, ..asking() });
    lab.mapped(&request(TCP, "10.0.0.5:1", HOUR));
    lab.out(&tcp("10.0.0.5:2", REMOTE, "S", 1, 0));
    assert_eq!(lab.map(&request(TCP, "10.0.0.5:3", HOUR)), Err(ExplicitError::Quota));
    assert_eq!(
        lab.refused(Side::Inside, &tcp("10.0.0.5:4", REMOTE, "S", 1, 0)),
        DropReason::PortQuota
    );

    let limits = Limits { explicit_mappings: 1, ..asking().limits };
    let mut lab = Lab::new(&Config { limits, ..asking() });
    lab.mapped(&request(TCP, "10.0.0.5:1", HOUR));
    assert_eq!(lab.map(&request(TCP, "10.0.0.6:1", HOUR)), Err(ExplicitError::Full));
    // Without room no request succeeds.
    let mut lab = Lab::new(&config());
    assert_eq!(lab.map(&request(TCP, HOST, HOUR)), Err(ExplicitError::Full));
}

/// Puts other limits of requested mappings in force.
fn change_room(lab: &mut Lab, room: u32) -> Result<(), ReconfigureError> {
    let limits = Limits { explicit_mappings: room, ..asking().limits };
    let new = Config { limits, ..asking() };
    try_reload(lab, &new)
}

#[test]
fn a_reconfiguration_makes_room_once() {
    let without = Config { limits: config().limits, ..asking() };
    let mut lab = Lab::new(&without);
    lab.out(&udp("10.0.0.5:4000", REMOTE));
    assert_eq!(lab.map(&request(UDP, HOST, HOUR)), Err(ExplicitError::Full));
    change_room(&mut lab, 2).expect("there was no room");
    lab.mapped(&request(UDP, HOST, HOUR));
    lab.mapped(&request(UDP, "10.0.0.5:4000", HOUR));
    assert_eq!(lab.map(&request(TCP, HOST, HOUR)), Err(ExplicitError::Full));
    assert_eq!(change_room(&mut lab, 3), Err(ReconfigureError::Restart(vec!["pcp.mappings"])));
    // The room stays, and holds in it do.
    change_room(&mut lab, 0).expect("less room");
    lab.wait(MINUTE);
    assert_eq!(lab.map(&request(TCP, HOST, HOUR)), Err(ExplicitError::Full));
    change_room(&mut lab, 2).expect("as much room as there was");
    change_room(&mut lab, 0).expect("less room");
    let refused = change_room(&mut lab, 3);
    let Err(ReconfigureError::Config(ConfigError { message })) = refused else {
        panic!("{refused:?}");
    };
    assert!(message.starts_with("pcp.mappings: 3 are more than the 2 "), "{message}");
    lab.wait(HOUR);
    lab.mapped(&request(TCP, HOST, HOUR));
}

//= test rfc6887#section-11.3-protocol
#[test]
fn who_and_what_is_not_mapped() {
    let bypass = natgate_engine::Match::Source(
        natgate_engine::Prefix::new(Ipv4Addr::new(10, 0, 0, 9), 32),
        0,
    );
    let rules = vec![Rule::new(bypass, RuleAction::Bypass)];
    let mut lab = Lab::new(&Config { rules, ..asking() });
    assert_eq!(lab.map(&request(ICMP, HOST, HOUR)), Err(ExplicitError::Protocol));
    assert_eq!(lab.map(&request(47, HOST, HOUR)), Err(ExplicitError::Protocol));
    for host in ["198.51.100.1:1", "10.0.0.9:1", "10.0.0.1:1", "127.0.0.1:1"] {
        assert_eq!(lab.map(&request(TCP, host, HOUR)), Err(ExplicitError::NotSubscriber), "{host}");
    }
    let realm = MapRequest { realm: 3, ..request(TCP, HOST, HOUR) };
    assert_eq!(lab.map(&realm), Err(ExplicitError::NotSubscriber));
    assert_eq!(lab.count(), 0);
}

//= test rfc6887#section-13.3-filter
//= test rfc6887#section-13.3-add
//= test rfc6887#section-7.4-filters
#[test]
fn filters_let_in_whom_they_name() {
    let mut lab = Lab::new(&asking());
    let filter = |address: [u8; 4], prefix_len, port| RemoteFilter {
        address: u32::from_be_bytes(address),
        prefix_len,
        port,
    };
    let filters = [filter([198, 51, 100, 0], 24, 0), filter([192, 0, 2, 77], 32, 53)];
    let external = lab.mapped(&MapRequest { filters: &filters, ..request(UDP, HOST, HOUR) });
    lab.inward(&udp("198.51.100.200:9", &external));
    lab.inward(&udp("192.0.2.77:53", &external));
    let strangers = ["198.51.101.1:9", "192.0.2.77:54", "192.0.2.78:53"];
    for remote in strangers {
        assert_eq!(lab.refused(Side::Outside, &udp(remote, &external)), DropReason::Filtered);
    }
    // More filters are added, and the host itself may send to any remote endpoint.
    let more = [filter([198, 51, 101, 1], 32, 9)];
    lab.mapped(&MapRequest { filters: &more, ..request(UDP, HOST, HOUR) });
    lab.inward(&udp(strangers[0], &external));
    lab.out(&udp(HOST, strangers[1]));
    lab.inward(&udp(strangers[1], &external));
    lab.refused(Side::Outside, &udp(strangers[2], &external));
    let many: Vec<_> = (1..=8).map(|port| filter([198, 51, 100, 1], 32, port)).collect();
    let all = MapRequest { filters: &many, ..request(UDP, HOST, HOUR) };
    assert_eq!(lab.map(&all), Err(ExplicitError::Filters));
    lab.mapped(&MapRequest { replaces_filters: true, ..all });
    lab.refused(Side::Outside, &udp("198.51.100.3:9", &external));
    lab.mapped(&MapRequest { replaces_filters: true, ..request(UDP, HOST, HOUR) });
    lab.inward(&udp(strangers[2], &external));
}

#[test]
fn a_filter_for_one_session_admits_one() {
    let mut lab = Lab::new(&asking());
    let filter = |last| RemoteFilter {
        address: u32::from_be_bytes([198, 51, 100, last]),
        prefix_len: 32,
        port: 0,
    };
    let filters = [filter(1), filter(2), filter(3)];
    let external = lab.mapped(&MapRequest { filters: &filters, ..request(UDP, HOST, HOUR) });
    let once = |lab: &mut Lab, one| lab.engine.admit_once(UDP, 0, end(HOST), one);
    let admits = |lab: &mut Lab, one| lab.engine.admits_requested(UDP, 0, end(HOST), one).is_some();
    assert!(once(&mut lab, Some(filters[0])) && once(&mut lab, Some(filters[2])));
    assert!(!once(&mut lab, Some(filter(9))) && !once(&mut lab, None));
    lab.inward(&udp("198.51.100.1:9", &external));
    // The session goes on, and there is no other one.
    lab.inward(&udp("198.51.100.1:9", &external));
    assert_eq!(
        lab.refused(Side::Outside, &udp("198.51.100.1:10", &external)),
        DropReason::Filtered
    );
    assert_eq!(filters.map(|one| admits(&mut lab, Some(one))), [false, true, true]);
    lab.inward(&udp("198.51.100.2:9", &external));
    lab.inward(&udp("198.51.100.2:10", &external));
    lab.inward(&udp("198.51.100.3:9", &external));
    lab.refused(Side::Outside, &udp("198.51.100.3:10", &external));
    lab.inward(&udp("198.51.100.2:11", &external));
}

#[test]
fn a_hold_for_one_session_ends_when_the_session_begins() {
    let mut lab = Lab::new(&asking());
    let external = lab.mapped(&request(UDP, HOST, HOUR));
    assert_eq!(lab.engine.admits_requested(UDP, 0, end(HOST), None), Some(HOUR));
    assert!(lab.engine.admit_once(UDP, 0, end(HOST), None));
    lab.inward(&udp("198.51.100.1:9", &external));
    assert_eq!(lab.engine.admits_requested(UDP, 0, end(HOST), None), None);
    assert_eq!(lab.unmap(UDP, HOST, NONCE), Err(ExplicitError::NotExplicit));
    lab.inward(&udp("198.51.100.1:9", &external));
    // The last of several filters for one session ends the hold as well.
    let filter = RemoteFilter { address: 0xc633_6401, prefix_len: 32, port: 0 };
    let other = "10.0.0.5:7";
    let external = lab.mapped(&MapRequest { filters: &[filter], ..request(UDP, other, HOUR) });
    assert!(lab.engine.admit_once(UDP, 0, end(other), Some(filter)));
    lab.inward(&udp("198.51.100.1:9", &external));
    assert_eq!(lab.unmap(UDP, other, NONCE), Err(ExplicitError::NotExplicit));
}

#[test]
fn what_a_hold_admits_can_become_less() {
    let mut lab = Lab::new(&asking());
    let filter = |last| RemoteFilter {
        address: u32::from_be_bytes([198, 51, 100, last]),
        prefix_len: 32,
        port: 0,
    };
    let only = |lab: &mut Lab, nonce, one| lab.engine.admit_only(UDP, 0, end(HOST), nonce, one);
    assert_eq!(only(&mut lab, NONCE, filter(1)), None);
    let external = lab.mapped(&request(UDP, HOST, HOUR));
    lab.inward(&udp("198.51.100.9:9", &external));
    assert_eq!(only(&mut lab, *b"another one!", filter(1)), None);
    let made = only(&mut lab, NONCE, filter(1)).expect("a new filter");
    assert_eq!(format!("{}:{}", made.address, made.port), external);
    assert_eq!(only(&mut lab, NONCE, filter(1)), None);
    assert!(only(&mut lab, NONCE, filter(2)).is_some());
    lab.inward(&udp("198.51.100.1:9", &external));
    lab.inward(&udp("198.51.100.2:9", &external));
    lab.refused(Side::Outside, &udp("198.51.100.3:9", &external));
    assert!((3..9).all(|last| only(&mut lab, NONCE, filter(last)).is_some()));
    assert_eq!(only(&mut lab, NONCE, filter(9)), None);
    let withdraw = |lab: &mut Lab, nonce, filter| {
        let keeper = Keeper { nonce, number: 0, filter };
        lab.engine.withdraw(lab.now, (UDP, 0, end(HOST)), keeper);
    };
    withdraw(&mut lab, NONCE, filter(1));
    withdraw(&mut lab, *b"another one!", filter(2));
    lab.refused(Side::Outside, &udp("198.51.100.1:10", &external));
    lab.inward(&udp("198.51.100.2:10", &external));
    (2..9).for_each(|last| withdraw(&mut lab, NONCE, filter(last)));
    assert_eq!(lab.unmap(UDP, HOST, NONCE), Err(ExplicitError::NotExplicit));
}

#[test]
fn a_hold_for_remote_addresses_can_end_sooner_and_never_later() {
    let mut lab = Lab::new(&asking());
    let filter = |last| RemoteFilter {
        address: u32::from_be_bytes([198, 51, 100, last]),
        prefix_len: 32,
        port: 0,
    };
    let shorten = |lab: &mut Lab, nonce, last, seconds| {
        let (of, lifetime) = ((UDP, 0, end(HOST)), Duration::from_secs(seconds));
        let keeper = Keeper { nonce, number: 0, filter: filter(last) };
        lab.engine.shorten(lab.now, of, keeper, lifetime);
        let made = lab.engine.mappings().next();
        made.and_then(|made| made.expires).map(|expires| expires.since(lab.now).as_secs())
    };
    assert_eq!(shorten(&mut lab, NONCE, 1, 60), None, "nothing is made");
    let filters = [filter(1)];
    lab.map(&MapRequest { filters: &filters, ..request(UDP, HOST, HOUR) }).unwrap();
    assert_eq!(shorten(&mut lab, *b"another one!", 1, 60), Some(3600));
    assert_eq!(shorten(&mut lab, NONCE, 2, 60), Some(3600));
    assert_eq!(shorten(&mut lab, NONCE, 1, 4000), Some(3600));
    assert_eq!(shorten(&mut lab, NONCE, 1, 60), Some(60));
    assert_eq!(shorten(&mut lab, NONCE, 1, 90), Some(60));
    lab.engine.admit_only(UDP, 0, end(HOST), NONCE, filter(2));
    assert_eq!(shorten(&mut lab, NONCE, 3, 9), Some(60), "an address that is not admitted");
    assert_eq!(shorten(&mut lab, NONCE, 1, 9), Some(9));
}

//= test rfc6887#section-15-sooner
//= test rfc6887#section-15.1-closing
#[test]
fn nothing_ends_sooner_than_traffic_would_have_it() {
    let mut lab = Lab::new(&asking());
    let external = lab.mapped(&request(UDP, HOST, HOUR));
    lab.out(&udp(HOST, REMOTE));
    // The session has five minutes, so the mapping has too.
    let shorter = lab.map(&request(UDP, HOST, MINUTE)).unwrap();
    assert_eq!(shorter.lifetime, Some(5 * MINUTE));
    assert_eq!(lab.unmap(UDP, HOST, NONCE), Ok(5 * MINUTE));
    assert_eq!(ends(&lab.out(&udp(HOST, REMOTE))).0, external);
    // Without the hold the configured filter applies.
    assert_eq!(lab.refused(Side::Outside, &udp("198.51.100.9:1", &external)), DropReason::Filtered);
    lab.wait_s(301.0);
    assert_eq!(lab.count(), 0);

    // A connection that ends does not end the mapping.
    let external = lab.mapped(&request(TCP, HOST, HOUR));
    lab.inward(&tcp(REMOTE, &external, "S", 1, 0));
    lab.out(&tcp(HOST, REMOTE, "SA", 9, 2));
    lab.inward(&tcp(REMOTE, &external, "R", 2, 0));
    lab.wait_s(600.0);
    let told = lab.engine.mappings().next().unwrap();
    assert_eq!((told.sessions, told.id.kind), (0, MappingKind::Pcp));
    lab.inward(&tcp("198.51.100.9:7", &external, "S", 1, 0));
}

//= test rfc6887#section-12.3-new
//= test rfc6887#section-12.3-existing
//= test rfc6887#section-12.3-cannot
//= test rfc6887#section-12.3-nonce
//= test rfc6887#section-12.3-ended
//= test rfc6887#section-12.3-reverts
#[test]
fn a_session_is_kept_for_whom_asks() {
    for mapping in [Behavior::EndpointIndependent, Behavior::AddressAndPortDependent] {
        let mut lab = Lab::new(&Config { mapping, ..asking() });
        // A request before the host's first packet, at the endpoint from before a restart.
        let again = PeerRequest {
            wanted: wanted("203.0.113.1:3000", false),
            ..peer(UDP, HOST, REMOTE, HOUR)
        };
        let got = lab.peer(&again).unwrap();
        assert_eq!(got, Explicit { external: end("203.0.113.1:3000"), lifetime: Some(HOUR) });
        let taken = PeerRequest { internal: end("10.0.0.6:1"), ..again };
        assert_eq!(lab.peer(&taken), Err(ExplicitError::External));
        assert_eq!(ends(&lab.inward(&udp(REMOTE, "203.0.113.1:3000"))).1, HOST);
        lab.refused(Side::Outside, &udp("198.51.100.9:9", "203.0.113.1:3000"));
        let stranger = PeerRequest { nonce: [1; 12], ..again };
        assert_eq!(lab.peer(&stranger), Err(ExplicitError::Nonce(HOUR)));
        lab.wait_s(3500.0);
        assert_eq!(ends(&lab.out(&udp(HOST, REMOTE))).0, "203.0.113.1:3000");
        // From now on the mapping is like any other.
        lab.wait_s(299.0);
        assert_eq!(lab.count(), 1);
        lab.wait_s(2.0);
        assert_eq!(lab.count(), 0);

        // A request for a present mapping, with a suggestion that says nothing.
        let external = lab.external_of(&udp(HOST, REMOTE));
        let there =
            lab.peer(&PeerRequest { wanted: wanted("203.0.113.1:9", false), ..again }).unwrap();
        assert_eq!((there.external, there.lifetime), (end(&external), Some(HOUR)));
        lab.wait_s(1000.0);
        assert_eq!(lab.count(), 1);
        // A mapping that is given up stays for its promised time, because no other mapping may have
        // its port sooner.
        let left = lab.peer(&PeerRequest { lifetime: Duration::ZERO, ..again }).unwrap().lifetime;
        assert!(left.unwrap() > 2590 * Duration::from_secs(1), "{left:?}");
    }
    let mut lab = Lab::new(&asking());
    lab.peer(&peer(TCP, HOST, REMOTE, HOUR)).unwrap();
    let external = lab.external_of(&tcp(HOST, REMOTE, "S", 1, 0));
    lab.inward(&tcp(REMOTE, &external, "SA", 9, 2));
    lab.out(&tcp(HOST, REMOTE, "A", 2, 10));
    lab.out(&tcp(HOST, REMOTE, "FA", 2, 10));
    lab.inward(&tcp(REMOTE, &external, "FA", 10, 3));
    lab.wait_s(241.0);
    assert_eq!(lab.count(), 0, "a connection that has ended is not kept");
}

//= test rfc6887#section-12.3-validate
#[test]
fn nobody_can_be_there() {
    let mut lab = Lab::new(&asking());
    for remote in [
        "127.0.0.1:1",
        "224.0.0.1:1",
        "203.0.113.1:1",
        "192.0.2.254:1",
        "198.51.100.7:0",
        "0.0.0.0:9",
    ] {
        assert_eq!(
            lab.peer(&peer(TCP, HOST, remote, HOUR)),
            Err(ExplicitError::Remote),
            "{remote}"
        );
    }
    assert_eq!(lab.count(), 0);
}

#[test]
fn both_kinds_hold_one_mapping() {
    let mut lab = Lab::new(&asking());
    let external = lab.mapped(&request(UDP, HOST, MINUTE));
    let kept = lab.peer(&peer(UDP, HOST, REMOTE, HOUR)).unwrap();
    assert_eq!(kept.external, end(&external));
    lab.wait_s(600.0);
    assert_eq!(lab.engine.mappings().next().unwrap().id.kind, MappingKind::Pcp);
    lab.refused(Side::Outside, &udp("198.51.100.9:9", &external));
    lab.inward(&udp(REMOTE, &external));
    lab.wait_s(3601.0);
    assert_eq!(lab.count(), 0);
}

//= test rfc6887#section-11.3-existing-outbound
//= test rfc6886#section-3.3-existing
#[test]
fn a_mapping_that_traffic_made_is_kept_and_survives_it() {
    let mut lab = Lab::new(&asking());
    let external = lab.external_of(&udp(HOST, REMOTE));
    assert_eq!(lab.mapped(&request(UDP, HOST, HOUR)), external);
    lab.wait_s(1000.0);
    assert_eq!(ends(&lab.inward(&udp("198.51.100.9:9", &external))).1, HOST);
    assert_eq!(lab.created().len(), 1);
}

#[test]
fn blocks_and_pairs_are_respected() {
    let block = BlockConfig { size: 16, max_per_subscriber: 1, ..BlockConfig::default() };
    let allocation = Allocation::Block(block);
    let mut lab = Lab::new(&Config { allocation, port_parity: false, ..asking() });
    let first = lab.map(&request(TCP, "10.0.0.5:1", HOUR)).unwrap().external;
    assert!(lab.events.is_empty());
    let second = lab.map(&request(UDP, "10.0.0.5:2", HOUR)).unwrap().external;
    assert_eq!((first.address, first.port / 16), (second.address, second.port / 16));
    lab.wait_s(1.0);
    let assigned =
        lab.events.iter().filter(|event| matches!(event.change, Change::BlockAssigned(_)));
    assert_eq!(assigned.count(), 1);
    // A port in a block without an owner cannot be had by a suggestion.
    let elsewhere = Endpoint { port: first.port ^ 16, ..first };
    let strict =
        WantedEndpoint { address: Some(elsewhere.address), port: elsewhere.port, strict: true };
    let other = MapRequest { wanted: strict, ..request(TCP, "10.0.0.5:3", HOUR) };
    assert_eq!(lab.map(&other), Err(ExplicitError::External));
    let near = WantedEndpoint { port: first.port ^ 1, ..strict };
    let got = lab.map(&MapRequest { wanted: near, ..request(TCP, "10.0.0.5:3", HOUR) }).unwrap();
    assert_eq!(got.external.port, first.port ^ 1);

    // The address of the subscriber's other mappings, and no other address unless the pooling
    // behavior permits it.
    for pooling in [Pooling::Paired, Pooling::Arbitrary] {
        let pools = vec![pool("203.0.113.0", "203.0.113.1", (1024, 65_535))];
        let mut lab = Lab::new(&Config { pools, pooling, ..asking() });
        let first = lab.map(&request(TCP, "10.0.0.5:1", HOUR)).unwrap().external.address;
        let other = Ipv4Addr::from_bits(first.to_bits() ^ 1);
        let strict = WantedEndpoint { address: Some(other), port: 0, strict: true };
        let got = lab.map(&MapRequest { wanted: strict, ..request(TCP, "10.0.0.5:2", HOUR) });
        match pooling {
            Pooling::Paired => assert_eq!(got, Err(ExplicitError::External)),
            _ => assert_eq!(got.unwrap().external.address, other),
        }
    }
}

//= test rfc7422#section-2-pcp
#[test]
fn computed_ports_are_the_subscribers_own() {
    let subscribers = vec![natgate_engine::Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 28)];
    let plan = natgate_engine::DeterministicConfig {
        realm: 0,
        subscribers: subscribers.clone(),
        ports_per_subscriber: Some(32),
        dynamic_ports: 0,
    };
    let allocation = Allocation::Deterministic(plan);
    let pools = vec![pool("203.0.113.1", "203.0.113.1", (1024, 65_535))];
    let mut lab = Lab::new(&Config { allocation, pools, subscribers, ..asking() });
    // The sixth host's share: 32 ports from 1024 + 5 * 32 on.
    let own = 1184..1216;
    for port in 1..=4 {
        let got = lab.mapped(&request(TCP, &format!("10.0.0.5:{port}"), HOUR));
        assert!(own.contains(&port_of(&got)), "{got}");
    }
    let ask = |lab: &mut Lab, external: &str| {
        lab.map(&MapRequest { wanted: wanted(external, true), ..request(TCP, "10.0.0.5:9", HOUR) })
    };
    assert_eq!(ask(&mut lab, "203.0.113.1:1216"), Err(ExplicitError::External));
    let free = own
        .into_iter()
        .find(|port| lab.engine.mappings().all(|mapping| mapping.id.external.port != *port));
    assert!(ask(&mut lab, &format!("203.0.113.1:{}", free.unwrap())).is_ok());
    let told = lab.engine.mappings().all(|mapping| mapping.id.kind == MappingKind::Pcp);
    assert!(told && lab.created().is_empty());
}

#[test]
fn a_reload_asks_those_that_were_asked_for() {
    let config = asking();
    let mut lab = Lab::new(&config);
    lab.mapped(&request(TCP, "10.0.0.5:1", HOUR));
    lab.mapped(&request(TCP, "10.0.1.5:1", HOUR));
    let subscribers = vec![natgate_engine::Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 24)];
    let new = Config { subscribers, ..config };
    let mut change = Reconfiguration::new(lab.engine.config(), &new).unwrap();
    lab.engine.prepare_configuration(&mut change).unwrap();
    lab.engine.reconfigure(change);
    lab.wait_s(1.0);
    let left: Vec<_> = lab.engine.mappings().map(|one| one.id.internal).collect();
    assert_eq!(left, [end("10.0.0.5:1")]);
    assert_eq!(lab.engine.explicit_lost(), 1);
    lab.wait_s(3600.0);
    assert_eq!(lab.count(), 0);
    assert_eq!(lab.engine.explicit_lost(), 1);
}

#[test]
fn all_of_a_host_are_given_back() {
    let mut lab = Lab::new(&asking());
    for port in 1..4 {
        lab.mapped(&request(TCP, &format!("10.0.0.5:{port}"), HOUR));
    }
    lab.mapped(&request(UDP, "10.0.0.5:1", HOUR));
    lab.mapped(&MapRequest { nonce: [9; 12], ..request(TCP, "10.0.0.5:9", HOUR) });
    lab.mapped(&request(TCP, "10.0.0.6:1", HOUR));
    assert_eq!(lab.engine.unmap_all(lab.now, TCP, 0, Ipv4Addr::new(10, 0, 0, 5), NONCE), Ok(()));
    let mut left: Vec<_> =
        lab.engine.mappings().map(|one| (one.id.protocol, one.id.internal)).collect();
    left.sort();
    assert_eq!(
        left,
        [(TCP, end("10.0.0.5:9")), (TCP, end("10.0.0.6:1")), (UDP, end("10.0.0.5:1"))]
    );
}

/// If a rule gives the address, a suggestion does not lead to another.
#[test]
fn a_wish_does_not_lead_past_a_rule() {
    let address = Ipv4Addr::new(203, 0, 113, 1);
    let all =
        natgate_engine::Match::Source(natgate_engine::Prefix::new(Ipv4Addr::UNSPECIFIED, 0), 0);
    let rules = vec![Rule::new(all, RuleAction::SnatTo(0, address))];
    let pools = vec![pool("203.0.113.1", "203.0.113.2", (2000, 2000))];
    let mut lab = Lab::new(&Config { rules, pools, port_parity: false, ..asking() });
    let wish = |internal: &str, strict| MapRequest {
        wanted: wanted("203.0.113.1:0", strict),
        ..request(TCP, internal, HOUR)
    };
    assert_eq!(lab.mapped(&wish("10.0.0.5:1", false)), "203.0.113.1:2000");
    assert_eq!(lab.map(&wish("10.0.0.6:1", false)), Err(ExplicitError::Full));
    assert_eq!(lab.map(&wish("10.0.0.6:1", true)), Err(ExplicitError::External));
    assert_eq!(lab.count(), 1);
}

/// A full address is not reported as an exhausted pool while other addresses have ports.
#[test]
fn a_wish_for_a_full_address_exhausts_no_pool() {
    let pools = vec![pool("203.0.113.1", "203.0.113.2", (2000, 2000))];
    let mut lab = Lab::new(&Config { pools, port_parity: false, ..asking() });
    let first = lab.map(&request(TCP, "10.0.0.5:1", HOUR)).unwrap().external.address;
    let wish = WantedEndpoint { address: Some(first), port: 0, strict: true };
    let asked = PeerRequest { wanted: wish, ..peer(TCP, "10.0.0.6:1", REMOTE, HOUR) };
    assert_eq!(lab.peer(&asked), Err(ExplicitError::External));
    let hint = MapRequest {
        wanted: WantedEndpoint { strict: false, ..wish },
        ..request(TCP, "10.0.0.6:1", HOUR)
    };
    assert_ne!(lab.map(&hint).unwrap().external.address, first);
    // The other hosts are too young to give way.
    lab.wait_s(0.1);
    let told = |lab: &Lab| {
        let told =
            lab.events.iter().filter(|one| matches!(one.change, Change::PoolExhausted { .. }));
        told.count()
    };
    assert_eq!(told(&lab), 0);
    assert_eq!(lab.map(&request(TCP, "10.0.0.7:1", HOUR)), Err(ExplicitError::Full));
    lab.wait_s(1.0);
    assert_eq!(told(&lab), 1);
}

/// An error assigns no block.
#[test]
fn what_cannot_be_had_of_blocks_changes_nothing() {
    let block = BlockConfig { size: 16, max_per_subscriber: 1, ..BlockConfig::default() };
    let (allocation, pooling) = (Allocation::Block(block), Pooling::Arbitrary);
    let pools = vec![pool("203.0.113.0", "203.0.113.1", (1024, 1039))];
    let mut lab = Lab::new(&Config { allocation, pooling, pools, ..asking() });
    let first = lab.map(&request(TCP, "10.0.0.5:1", HOUR)).unwrap().external.address;
    lab.wait_s(1.0);
    lab.events.clear();
    // The one block that is left is not on the suggested address.
    let wish = WantedEndpoint { address: Some(first), port: 0, strict: true };
    let asked = PeerRequest { wanted: wish, ..peer(TCP, "10.0.0.6:1", REMOTE, HOUR) };
    assert_eq!(lab.peer(&asked), Err(ExplicitError::External));
    lab.wait_s(1.0);
    assert_eq!((lab.count(), lab.events.len()), (1, 0), "{:?}", lab.events);
}

/// A host that kept a session learns that the operator has ended it.
#[test]
fn sessions_that_the_operator_ends_are_lost() {
    let mut lab = Lab::new(&asking());
    lab.peer(&peer(UDP, HOST, REMOTE, HOUR)).unwrap();
    lab.out(&udp("10.0.0.6:1", REMOTE));
    let mut cursor = natgate_engine::Cursor::default();
    let filter = natgate_engine::Filter::default();
    assert_eq!(lab.engine.clear_sessions(&mut cursor, 1 << 20, &filter), (2, true));
    assert_eq!(lab.engine.explicit_lost(), 1);
}
