//! NATV2-MIB as managers see it: net-snmp's snmpd is the master, snmpget and snmpwalk ask it, and a
//! socket receives what it notifies.

mod sample;

use natgate_engine::{
    AddressRange, Config, Endpoint, MappingId, MappingInfo, MappingKind, PoolConfig, RealmConfig,
    SubscriberInfo, Timestamp,
};
use natgate_gateway::{MappingPlace, Page, SubscriberPlace};
use natgate_metrics::Figures;
use natgate_metrics::snmp::{Agent, Master, Rows, SnmpSettings, Sources, View};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// natv2MIB and what is looked for there.
const MIB: &str = ".1.3.6.1.2.1.234";
const MAPPINGS: &str = ".1.3.6.1.2.1.234.2.1.1.8.1";

/// Time limit for steps that take a moment on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// An SNMP agent of the test's own.
struct Snmpd {
    folder: PathBuf,
    port: u16,
    traps: UdpSocket,
    child: Child,
}

impl Snmpd {
    fn start(test: &str) -> Self {
        let folder = env::temp_dir().join(format!("natgate-snmp-{test}-{}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder can be made");
        let traps = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let probe = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let port = probe.local_addr().expect("it has one").port();
        drop(probe);
        let sink = traps.local_addr().expect("it has one").port();
        let child = Self::run(&folder, port, sink);
        Self { folder, port, traps, child }
    }

    fn run(folder: &Path, port: u16, sink: u16) -> Child {
        let configuration = format!(
            "agentAddress udp:127.0.0.1:{port}\nrocommunity public 127.0.0.1\n\
             rwcommunity private 127.0.0.1\nmaster agentx\nagentXSocket {}\n\
             trap2sink 127.0.0.1:{sink} public\n",
            folder.join("master").display()
        );
        fs::write(folder.join("snmpd.conf"), configuration).expect("it can be written");
        Command::new("snmpd")
            .args(["-f", "-C", "-Lf"])
            .arg(folder.join("log"))
            .arg("-c")
            .arg(folder.join("snmpd.conf"))
            .arg("-p")
            .arg(folder.join("pid"))
            .env("SNMP_PERSISTENT_DIR", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("snmpd is there (Debian package snmpd; make test installs it)")
    }

    fn restart(&mut self) {
        self.end();
        let sink = self.traps.local_addr().expect("it has one").port();
        self.child = Self::run(&self.folder, self.port, sink);
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(self.folder.join("master"));
    }

    /// The output of a client of net-snmp, and true if it succeeded.
    fn ask(&self, client: &str, community: &str, further: &[&str]) -> (bool, String) {
        let output = Command::new(client)
            .args(["-v2c", "-t", "10", "-r", "1", "-On", "-m", "", "-c", community])
            .arg(format!("127.0.0.1:{}", self.port))
            .args(further)
            .output()
            .expect("the client is there (Debian package snmp; make test installs it)");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Waits until an object is shown.
    fn await_object(&self, name: &str, expected: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let (_, said) = self.ask("snmpget", "public", &[name]);
            if said.contains(expected) {
                return;
            }
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "{said}\n{log}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Snmpd {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Mappings of UDP: so many ports of each address from 203.0.112.0 on, from 1024.
const MAPPINGS_OF: (u32, u32) = (2_000_000, 60_000);

/// Subscribers of the first realm, every seventh address from 10.0.0.0 on, and of another.
const SUBSCRIBERS: [u32; 2] = [90_000, 3];

/// A gateway with more mappings than anybody would collect.
struct Many;

fn first_external() -> u32 {
    Ipv4Addr::new(203, 0, 112, 0).to_bits()
}

fn first_internal() -> u32 {
    Ipv4Addr::new(10, 0, 0, 0).to_bits()
}

impl Rows for Many {
    fn mappings_from(
        &self,
        (protocol, address, port): MappingPlace,
        most: usize,
    ) -> Result<Page<MappingInfo>, String> {
        assert!(most <= 1024, "{most} at once");
        let (all, each) = MAPPINGS_OF;
        let first = match protocol {
            0..17 => 0,
            17 => {
                let place = address.to_bits().saturating_sub(first_external()) * each;
                let port = u32::from(port).clamp(1024, 1024 + each) - 1024;
                if address.to_bits() < first_external() { 0 } else { place + port }
            }
            _ => all,
        };
        let until = all.min(first.saturating_add(most as u32));
        let entry = |number: u32| MappingInfo {
            id: MappingId {
                protocol: 17,
                realm: 0,
                internal: Endpoint::new(first_internal() + number % 9, 4000),
                external: Endpoint::new(
                    first_external() + number / each,
                    (1024 + number % each) as u16,
                ),
                kind: MappingKind::Dynamic,
            },
            sessions: 1,
            created: Timestamp(0),
            expires: None,
            packets_out: 1,
            packets_in: 1,
        };
        Ok(Page { entries: (first..until).map(entry).collect(), is_last: until == all })
    }

    fn subscribers_from(
        &self,
        rank: &dyn Fn(&SubscriberInfo) -> Option<u16>,
        from: SubscriberPlace,
        most: usize,
    ) -> Result<Page<SubscriberInfo>, String> {
        let all = (0..2_u16).flat_map(|realm| {
            (0..SUBSCRIBERS[usize::from(realm)]).filter_map(move |number| subscriber(realm, number))
        });
        let places = all.filter_map(|info| Some(((rank(&info)?, info.address), info)));
        let mut entries: Vec<_> = places.filter(|(place, _)| *place >= from).collect();
        entries.sort_by_key(|(place, _)| *place);
        let is_last = entries.len() <= most;
        Ok(Page {
            entries: entries.into_iter().take(most).map(|(_, info)| info).collect(),
            is_last,
        })
    }

    fn subscriber(&self, realm: u16, address: Ipv4Addr) -> Result<Option<SubscriberInfo>, String> {
        let number = address.to_bits().checked_sub(first_internal());
        Ok(number.filter(|number| number % 7 == 0).and_then(|number| subscriber(realm, number / 7)))
    }
}

fn subscriber(realm: u16, number: u32) -> Option<SubscriberInfo> {
    (number < SUBSCRIBERS[usize::from(realm)]).then(|| SubscriberInfo {
        realm,
        address: Ipv4Addr::from_bits(first_internal() + 7 * number),
        mappings: [1, number, 2],
        sessions: 9,
        is_unanswered: false,
        external: Some(Ipv4Addr::from_bits(first_external() + number % 5)),
    })
}

/// A gateway whose figures change.
fn agent(snmpd: &Snmpd, figures: &Arc<Mutex<Figures>>) -> Agent {
    agent_that_shows(snmpd, figures, false)
}

/// A gateway with or without tables of subscribers.
fn agent_that_shows(snmpd: &Snmpd, figures: &Arc<Mutex<Figures>>, subscribers: bool) -> Agent {
    let address = |last| Ipv4Addr::new(203, 0, 113, last);
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![AddressRange { first: address(1), last: address(200) }],
        thresholds: vec![50],
        ..PoolConfig::default()
    };
    let many = PoolConfig {
        name: "many".into(),
        addresses: vec![AddressRange {
            first: Ipv4Addr::from_bits(first_external()),
            last: Ipv4Addr::new(203, 0, 112, 255),
        }],
        ..PoolConfig::default()
    };
    let realms = if subscribers { vec![realm("blue")] } else { Vec::new() };
    let config = Arc::new(Config { pools: vec![pool, many], realms, ..Config::default() });
    let figures = Arc::clone(figures);
    let source = move || {
        let figures = figures.lock().expect("nobody panics").clone();
        Ok(View { config: Arc::clone(&config), figures })
    };
    let settings = SnmpSettings {
        master: Master::Unix(snmpd.folder.join("master")),
        mappings_threshold: Some(90),
        subscribers_threshold: Some(90),
        pools_low_threshold: Some(5),
        interval: 1,
        subscribers,
    };
    let mut reached = vec![(0, Ipv4Addr::from_bits(first_internal() + 7 * 200))];
    let sources = Sources {
        view: Box::new(source),
        rows: Box::new(Many),
        reached: Box::new(move || std::mem::take(&mut reached)),
    };
    Agent::start(settings, sources, drop).expect("a thread can be made")
}

fn realm(name: &str) -> RealmConfig {
    RealmConfig { name: name.to_owned(), ..RealmConfig::default() }
}

//= test rfc6888#REQ-10
//= test rfc7659#section-3.3.5-protocols
//= test rfc7659#section-3.4-instance
//= test rfc7659#section-4-instance-index
#[test]
fn managers_read_the_tables_and_cannot_write_them() {
    let snmpd = Snmpd::start("tables");
    let figures = Arc::new(Mutex::new(sample::figures()));
    let agent = agent(&snmpd, &figures);
    snmpd.await_object(MAPPINGS, "Gauge32: 41");
    let (_, walked) = snmpd.ask("snmpwalk", "public", &[MIB]);
    for line in [
        ".1.3.6.1.2.1.234.2.1.1.2.1 = STRING: \"natgate\"",
        ".1.3.6.1.2.1.234.2.1.1.3.1 = INTEGER: 0",
        ".1.3.6.1.2.1.234.2.1.1.9.1 = Counter64: 1000",
        ".1.3.6.1.2.1.234.2.1.1.21.1 = INTEGER: 900",
        ".1.3.6.1.2.1.234.2.2.1.5.1.1 = Counter64: 9",
        ".1.3.6.1.2.1.234.2.2.1.5.1.6 = Counter64: 7",
        ".1.3.6.1.2.1.234.2.2.1.5.1.17 = Counter64: 80",
        ".1.3.6.1.2.1.234.2.3.1.8.1.1 = Gauge32: 51",
        ".1.3.6.1.2.1.234.2.3.1.15.1.1 = INTEGER: 50",
        ".1.3.6.1.2.1.234.2.4.1.4.1.1.1 = Hex-STRING: CB 00 71 01 ",
        ".1.3.6.1.2.1.234.2.4.1.5.1.1.1 = Hex-STRING: CB 00 71 C8 ",
    ] {
        assert!(walked.lines().any(|one| one == line), "no {line} in\n{walked}");
    }
    // The walk in larger steps, and one by one.
    assert_eq!(snmpd.ask("snmpbulkwalk", "public", &[MIB]).1, walked);
    assert_eq!(snmpd.ask("snmpwalk", "public", &["-Cc", MIB]).1, walked);
    let (_, missing) = snmpd.ask("snmpget", "public", &[".1.3.6.1.2.1.234.2.1.1.8.9"]);
    assert!(missing.contains("No Such Instance"), "{missing}");
    let set = [".1.3.6.1.2.1.234.2.1.1.22.1", "u", "5"];
    let (done, refused) = snmpd.ask("snmpset", "private", &set);
    assert!(!done && refused.contains("notWritable"), "{refused}");
    drop(agent);
    let (_, gone) = snmpd.ask("snmpget", "public", &[MAPPINGS]);
    assert!(gone.contains("No Such"), "{gone}");
}

//= test rfc7659#section-4-notify-basic
//= test rfc7659#section-4-notify-pooled
#[test]
fn managers_are_told_of_thresholds() {
    let snmpd = Snmpd::start("traps");
    let figures = Arc::new(Mutex::new(sample::figures()));
    let _agent = agent(&snmpd, &figures);
    snmpd.await_object(MAPPINGS, "Gauge32: 41");
    {
        let mut figures = figures.lock().expect("nobody panics");
        figures.mappings.used = 950;
        figures.subscribers.used = 95;
        figures.pools[0].ports[1].1.used = 80_000;
    }
    // natv2NotificationPoolUsageHigh, natv2NotificationInstanceAddressMapEntriesHigh and
    // natv2NotificationInstancePortMapEntriesHigh.
    await_notifications(&snmpd, &[2, 3, 4]);
    // When use has become low, natv2NotificationPoolUsageLow.
    for (_, usage) in &mut figures.lock().expect("nobody panics").pools[0].ports {
        usage.used = 5;
    }
    await_notifications(&snmpd, &[1]);
}

/// Waits for the MIB's notifications with these numbers, in any order.
fn await_notifications(snmpd: &Snmpd, numbers: &[u8]) {
    // The names in BER.
    let name = |number: &u8| [0x2b, 6, 1, 2, 1, 0x81, 0x6a, 0, *number];
    let mut awaited: Vec<[u8; 9]> = numbers.iter().map(name).collect();
    snmpd.traps.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut datagram = [0; 2048];
    while !awaited.is_empty() {
        let length = snmpd.traps.recv(&mut datagram).expect("a notification comes");
        let has = |name: &[u8; 9]| datagram[..length].windows(name.len()).any(|one| one == name);
        awaited.retain(|name| !has(name));
    }
}

#[test]
fn a_master_that_comes_back_is_found_again() {
    let mut snmpd = Snmpd::start("again");
    let figures = Arc::new(Mutex::new(sample::figures()));
    let _agent = agent(&snmpd, &figures);
    snmpd.await_object(MAPPINGS, "Gauge32: 41");
    snmpd.restart();
    figures.lock().expect("nobody panics").mappings.used = 42;
    snmpd.await_object(MAPPINGS, "Gauge32: 42");
}

/// The tables of subscribers, address maps and port maps, and what the names of port maps go on
/// with.
const SUBSCRIBER: &str = ".1.3.6.1.2.1.234.1.1.1";
const ADDRESS_MAP: &str = ".1.3.6.1.2.1.234.2.5.1";
const PORT_MAP: &str = ".1.3.6.1.2.1.234.2.6.1";
const OUTSIDE: &str = "7.111.117.116.115.105.100.101";

//= test rfc7659#section-3.3.3-subscribers
//= test rfc7659#section-3.3.9-port-map
//= test rfc7659#section-3.4-realms
//= test rfc7659#section-4-subscriber-index
//= test rfc7659#section-4-realm-same
//= test rfc7659#section-4-notify-subscriber
#[test]
fn tables_of_millions_of_rows_are_read_wherever_one_begins() {
    let snmpd = Snmpd::start("many");
    let figures = Arc::new(Mutex::new(sample::figures()));
    let _agent = agent_that_shows(&snmpd, &figures, true);
    snmpd.await_object(MAPPINGS, "Gauge32: 41");
    let get = |name: &str| snmpd.ask("snmpget", "public", &[name]).1.trim().to_owned();
    let next = |name: &str| snmpd.ask("snmpgetnext", "public", &[name]).1.trim().to_owned();

    // A mapping by its external endpoint, as an abuse desk would ask for 203.0.112.20:31024.
    let row = format!("1.17.{OUTSIDE}.1.4.203.0.112.20.31024");
    for (column, value) in [
        (7, "STRING: \"default\""),
        (8, "INTEGER: 1"),
        (9, "Hex-STRING: 0A 00 00 06 "),
        (12, "Gauge32: 4000"),
        (13, "Gauge32: 2"),
        (14, "Gauge32: 167772166"),
    ] {
        let name = format!("{PORT_MAP}.{column}.{row}");
        assert_eq!(format!("{} ", get(&name)).trim(), format!("{name} = {value}").trim());
    }
    let missing = get(&format!("{PORT_MAP}.12.1.6.{OUTSIDE}.1.4.203.0.112.20.31024"));
    assert!(missing.contains("No Such Instance"), "{missing}");
    assert!(get(&format!("{PORT_MAP}.99.{row}")).contains("No Such Object"));
    // The next port, the next address, the next column, the end.
    let after = |from: &str, to: &str| {
        let found = next(&format!("{PORT_MAP}.{from}"));
        assert!(found.starts_with(&format!("{PORT_MAP}.{to} = ")), "{from}: {found}");
    };
    let at = |column: u32, end: &str| format!("{column}.1.17.{OUTSIDE}.1.4.203.0.{end}");
    after(&at(12, "112.20.31024"), &at(12, "112.20.31025"));
    after(&at(12, "112.20.61023"), &at(12, "112.21.1024"));
    after("12.1.6", &at(12, "112.0.1024"));
    // 2,000,000 are 33 addresses and 20,000 ports.
    after(&at(12, "112.33.21023"), &at(13, "112.0.1024"));
    let end = next(&format!("{PORT_MAP}.14.1.18"));
    assert!(end.contains("No more variables") || !end.contains(PORT_MAP), "{end}");

    // In bulk, over the ends of pages.
    let (_, walked) = snmpd.ask(
        "snmpbulkwalk",
        "public",
        &["-Cr400", &format!("{PORT_MAP}.12.1.17.{OUTSIDE}.1.4.203.0.112.33")],
    );
    assert_eq!(walked.lines().count(), 20_000);
    let place = |line: &str| -> u32 {
        let name = line.split(' ').next().and_then(|name| name.rsplit('.').next());
        name.and_then(|port| port.parse().ok()).expect("a port")
    };
    assert!(walked.lines().map(place).eq(1024..21_024));

    // Subscribers by their addresses, over the ends of pages too.
    let index = |number: u32| first_internal() + 7 * number;
    let name = format!("{SUBSCRIBER}.7.{}", index(41));
    assert_eq!(get(&name), format!("{name} = Gauge32: 44"));
    for number in [0, 65_535, 65_536, 89_998] {
        let found = next(&format!("{SUBSCRIBER}.4.{}", index(number)));
        let expected = format!("{SUBSCRIBER}.4.{} = Hex-STRING: ", index(number + 1));
        assert!(found.starts_with(&expected), "{found}");
    }
    let found = next(&format!("{SUBSCRIBER}.4.{}", index(89_999)));
    assert!(found.starts_with(&format!("{SUBSCRIBER}.5.{} = Gauge32: 32", index(0))), "{found}");
    assert!(get(&format!("{SUBSCRIBER}.4.{}", index(0) + 1)).contains("No Such Instance"));

    // Addresses are by realm, so those of another are there, too.
    let name = format!("{ADDRESS_MAP}.10.1.4.98.108.117.101.1.4.10.0.0.14.1");
    assert_eq!(get(&name), format!("{name} = Hex-STRING: CB 00 70 02"));
    let found = next(&name);
    let default = "1.7.100.101.102.97.117.108.116.1.4.10.0.0.0.1";
    assert!(found.starts_with(&format!("{ADDRESS_MAP}.10.{default} = ")), "{found}");
    assert!(get(&format!("{ADDRESS_MAP}.12.1.4.98.108.117.101.1.4.10.0.0.14.1")).ends_with(" 0"));
    let found = get(&format!("{ADDRESS_MAP}.12.{default}"));
    assert!(found.ends_with(&format!("Gauge32: {}", index(0))), "{found}");

    // A manager is told of a subscriber that has as much as it may.
    await_notifications(&snmpd, &[5]);
}

#[test]
fn subscribers_are_not_shown_unless_that_is_said() {
    let snmpd = Snmpd::start("private");
    let figures = Arc::new(Mutex::new(sample::figures()));
    let _agent = agent(&snmpd, &figures);
    snmpd.await_object(MAPPINGS, "Gauge32: 41");
    let (_, walked) = snmpd.ask("snmpwalk", "public", &[MIB]);
    assert!(walked.lines().count() > 40);
    for table in [SUBSCRIBER, ADDRESS_MAP, PORT_MAP] {
        assert!(!walked.contains(table), "{walked}");
    }
    let name = format!("{PORT_MAP}.12.1.17.{OUTSIDE}.1.4.203.0.112.20.31024");
    let (_, said) = snmpd.ask("snmpget", "public", &[&name]);
    assert!(said.contains("No Such Object"), "{said}");
}
