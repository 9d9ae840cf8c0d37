//! What is written is read again, whatever happens to the file in between; what was in use before a
//! restart is not given out after it.

use super::format::{self, Bitmap, WORDS, Writer};
use super::*;
use natgate_engine::{
    AddressRange, Change, Config, DropReason, Engine, Packet, PoolConfig, Side, Timestamp, Verdict,
};
use natgate_wire::{Ipv4, protocol};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::{Duration, Instant};

const HOLD_DOWN: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(10);
const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

// ---- the form ----

fn record(address: u32, protocol: u8, ports: &[u16]) -> Record {
    let mut words: Bitmap = Box::new([0; WORDS]);
    for port in ports {
        words[usize::from(port / 64)] |= 1 << (port % 64);
    }
    Record { address: Ipv4Addr::from_bits(address), protocol, ports: words }
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory takes everything");
    for record in records {
        writer.record(record).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything")
}

#[test]
fn records_come_back_as_they_were() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for records in [
        Vec::new(),
        vec![record(1, 6, &[0])],
        vec![record(0xcb00_7101, 17, &[1024, 1087, 1088, 65_535]), record(0, 1, &[])],
        vec![record(u32::MAX, 33, &all), record(5, 6, &[63, 64, 4095, 4096])],
    ] {
        assert_eq!(format::read(&written(&records)), Ok(records));
    }
}

#[test]
fn few_ports_take_few_bytes() {
    assert_eq!(written(&[]).len(), 14);
    assert_eq!(written(&[record(1, 6, &[80, 81])]).len(), 14 + 133 + 8);
}

#[test]
fn no_cut_and_no_changed_bit_goes_unnoticed() {
    let bytes = written(&[record(0xcb00_7101, 17, &[1024, 2000]), record(7, 6, &[443])]);
    for end in 0..bytes.len() {
        assert!(matches!(format::read(&bytes[..end]), Err(FormatError::Damaged(_))), "{end}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = format::read(&changed).expect_err("a changed bit");
        let expected = match bit / 8 {
            0..8 => matches!(error, FormatError::Foreign),
            8..10 => matches!(error, FormatError::Version(_)),
            _ => matches!(error, FormatError::Damaged(_)),
        };
        assert!(expected, "bit {bit}: {error:?}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(format::read(&longer), Err(FormatError::Damaged(_))));
}

#[test]
fn the_bytes_are_those_that_are_documented() {
    let bytes = written(&[record(0xcb00_7101, 17, &[64, 65_535])]);
    let mut expected = b"NATPORTS\x00\x01\xcb\x00\x71\x01\x11".to_vec();
    let mut present = [0; 128];
    (present[0], present[127]) = (0x40, 0x01);
    expected.extend(present);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[..bytes.len() - 4], expected);
    assert_eq!(bytes[bytes.len() - 4..], crc32fast::hash(&expected).to_be_bytes());
}

// ---- the file ----

/// A folder of a test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("natgate-state-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the folder can be made");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("ports")
    }

    fn old(&self) -> PathBuf {
        self.0.join("ports.old")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder can be read");
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|e| e.file_name());
        let names = entries.map(|entry| name(entry).expect("an entry"));
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Settings of a gateway with two external addresses of four ports each.
fn settings(file: PathBuf) -> Settings {
    let range =
        AddressRange { first: Ipv4Addr::new(203, 0, 113, 1), last: Ipv4Addr::new(203, 0, 113, 2) };
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![range],
        ports: (5000, 5003),
        ..PoolConfig::default()
    };
    let mut engine = Config { pools: vec![pool], port_parity: false, ..Config::default() };
    engine.timeouts.hold_down = HOLD_DOWN;
    let state = Some(StateSettings { file, interval: INTERVAL });
    Settings {
        state,
        ..Settings::new(engine, crate::SideSettings::new("in"), crate::SideSettings::new("out"))
    }
}

fn open(settings: &Settings) -> SavedPorts {
    SavedPorts::open(settings).expect("the file can be used").expect("the settings name one")
}

fn refusal(settings: &Settings) -> String {
    SavedPorts::open(settings).expect_err("the file cannot be used").to_string()
}

#[test]
fn without_settings_or_hold_down_nothing_is_remembered() {
    let mut settings = settings("/nonexistent/ports".into());
    settings.engine.timeouts.hold_down = Duration::ZERO;
    assert!(SavedPorts::open(&settings).expect("not looked at").is_none());
    settings.engine.timeouts.hold_down = HOLD_DOWN;
    settings.state = None;
    assert!(SavedPorts::open(&settings).expect("not looked at").is_none());
}

#[test]
fn files_that_cannot_be_used_are_refused_by_name_and_left_alone() {
    let settings_for = |file: &str| settings(file.into());
    let said = refusal(&settings_for("/nonexistent/ports"));
    assert!(said.starts_with("state.file /nonexistent/ports cannot be written: No such"), "{said}");
    let said = refusal(&settings_for("/"));
    assert!(said.starts_with("state.file / cannot be read: Is a directory"), "{said}");

    let folder = Folder::new("refused");
    let foreign = b"[inside]\ndevice = \"eth1\"\n";
    let mut later = written(&[]);
    later[9] = 2;
    for (bytes, expected) in [
        (&foreign[..], "was not written by natgate; name another, or remove it"),
        (&later, "is of version 2, this natgate reads version 1"),
    ] {
        fs::write(folder.file(), bytes).expect("the file can be written");
        let said = refusal(&settings(folder.file()));
        assert!(said.contains(expected), "{said}");
        assert_eq!(fs::read(folder.file()).expect("it is there"), bytes);
    }
    assert_eq!(folder.names(), ["ports"]);
}

#[test]
fn a_damaged_file_is_told_and_not_used() {
    let folder = Folder::new("damaged");
    let mut bytes = written(&[record(0xcb00_7101, 17, &[5000])]);
    fs::write(folder.file(), &bytes).expect("the file can be written");
    let saved = open(&settings(folder.file()));
    assert_eq!((saved.damage(), saved.ports()), (None, 1));
    bytes[20] ^= 1;
    for (bytes, what) in [(&bytes[..], "its checksum is wrong"), (b"", "it ends too early")] {
        fs::write(folder.file(), bytes).expect("the file can be written");
        let saved = open(&settings(folder.file()));
        assert_eq!((saved.damage(), saved.ports()), (Some(what), 0));
    }
}

/// A folder whose file names two ports, and the generation before one.
fn two_generations(test: &str) -> (Folder, Vec<u8>) {
    let folder = Folder::new(test);
    let before = written(&[record(0xcb00_7101, 17, &[5000])]);
    let newest = written(&[record(0xcb00_7101, 17, &[5000, 5001])]);
    fs::write(folder.file(), &newest).expect("the file can be written");
    fs::write(folder.old(), before).expect("the file can be written");
    (folder, newest)
}

#[test]
fn wherever_the_newest_file_is_cut_or_changed_the_generation_before_counts() {
    let (folder, newest) = two_generations("generations");
    let settings = settings(folder.file());
    let saved = open(&settings);
    assert_eq!((saved.damage(), saved.ports(), saved.generation_before()), (None, 2, None));
    let cuts = (0..newest.len()).map(|end| newest[..end].to_vec());
    let flips = (0..newest.len()).map(|at| {
        let mut changed = newest.clone();
        changed[at] ^= 0x41;
        changed
    });
    for (number, bytes) in cuts.chain(flips).enumerate() {
        fs::write(folder.file(), &bytes).expect("the file can be written");
        let saved = open(&settings);
        assert!(saved.damage().is_some(), "case {number}");
        assert_eq!((saved.ports(), saved.generation_before()), (1, Some(folder.old())));
    }
    fs::remove_file(folder.file()).expect("it is there");
    let saved = open(&settings);
    assert_eq!((saved.damage(), saved.ports()), (Some("it is not there"), 1));
    // Both are of no use: that is told, and nothing is held.
    for bytes in [&newest[..20], b"", b"[inside]"] {
        fs::write(folder.file(), &newest[..30]).expect("the file can be written");
        fs::write(folder.old(), bytes).expect("the file can be written");
        let saved = open(&settings);
        assert!(saved.damage().is_some() && saved.generation_before().is_none());
        assert_eq!(saved.ports(), 0);
    }
}

#[test]
fn a_file_of_another_version_is_refused_though_there_is_a_generation_before() {
    let (folder, mut newest) = two_generations("version");
    let end = newest.len() - 4;
    newest[9] = 2;
    let sum = crc32fast::hash(&newest[..end]).to_be_bytes();
    newest[end..].copy_from_slice(&sum);
    fs::write(folder.file(), newest).expect("the file can be written");
    assert!(refusal(&settings(folder.file())).contains("is of version 2"));
}

#[test]
fn a_damaged_file_does_not_become_the_generation_before() {
    let (folder, newest) = two_generations("replaced");
    let settings = settings(folder.file());
    fs::write(folder.file(), &newest[..newest.len() - 1]).expect("the file can be written");
    let before = fs::read(folder.old()).expect("it is there");
    let mut gateway = Gateway::start(&settings, 1, at(0));
    gateway.pass(at(10)).expect("the file can be written");
    assert_eq!(fs::read(folder.old()).expect("it is there"), before);
    let first = fs::read(folder.file()).expect("it is there");
    assert_eq!(open(&settings).ports(), 1);
    // A whole one does.
    gateway.send(at(11), protocol::TCP, 1).expect("a port");
    gateway.pass(at(20)).expect("the file can be written");
    assert_eq!(fs::read(folder.old()).expect("it is there"), first);
    assert_eq!(open(&settings).ports(), 2);
    // One that was spoiled since it was written does not.
    fs::write(folder.file(), b"NATPORTS").expect("the file can be written");
    gateway.stop();
    assert_eq!(fs::read(folder.old()).expect("it is there"), first);
    assert_eq!((open(&settings).damage(), open(&settings).ports()), (None, 2));
}

#[test]
fn new_files_belong_to_the_owner_of_their_folder() {
    const OTHER: u32 = 12_345;
    let folder = Folder::new("owner");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&folder.0, Some(OTHER), Some(OTHER)).expect("root may do that");
    }
    let settings = settings(folder.file());
    Gateway::start(&settings, 1, at(0)).stop();
    let file = fs::metadata(folder.file()).expect("it is there");
    let expected = if is_root { OTHER } else { rustix::process::geteuid().as_raw() };
    assert_eq!((file.uid(), file.mode() & 0o777), (expected, 0o600));
}

#[test]
fn a_link_in_the_place_of_the_next_file_is_not_followed() {
    let folder = Folder::new("link");
    let victim = folder.0.join("victim");
    fs::write(&victim, b"dear").expect("the file can be written");
    std::os::unix::fs::symlink(&victim, folder.0.join("ports.new")).expect("a link");
    Gateway::start(&settings(folder.file()), 1, at(0)).stop();
    assert_eq!(fs::read(&victim).expect("it is there"), b"dear");
    assert_eq!(open(&settings(folder.file())).damage(), None);
}

#[test]
fn a_file_of_another_user_is_told_with_the_command_that_mends_it() {
    let path = PathBuf::from("/var/lib/natgate/ports");
    let error = io::Error::from(ErrorKind::PermissionDenied);
    let said = StateError::Unreadable { path, error }.to_string();
    let command = "`chown --reference=/var/lib/natgate /var/lib/natgate/ports*` as root";
    assert!(said.ends_with(command), "{said}");
}

// ---- restarts ----

fn packet(protocol: u8, host: u8) -> Vec<u8> {
    let payload = match protocol {
        protocol::TCP => {
            [&[0x0f, 0xa0, 0, 80][..], &[0; 8], &[0x50, 0x02, 4, 0, 0, 0, 0, 0]].concat()
        }
        protocol::UDP => vec![0x0f, 0xa0, 0, 53, 0, 8, 0, 0],
        _ => vec![8, 0, 0, 0, 0x0f, 0xa0, 0, 1],
    };
    let mut bytes = [&[0; 20], &payload[..]].concat();
    let len = bytes.len() as u16;
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(len);
    header.set_ttl(64);
    header.set_protocol(protocol);
    header.set_source(Ipv4Addr::new(10, 0, 0, host).to_bits());
    header.set_destination(REMOTE.to_bits());
    bytes[20..].copy_from_slice(&payload);
    Ipv4::new_checked(&mut bytes[..]).expect("a packet").fill_checksum();
    bytes
}

/// A translator and what remembers its ports.
struct Gateway {
    engine: Engine,
    keeper: PortStateWriter,
    /// The next host that has sent nothing yet.
    host: u8,
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(1_000_000_000_000).plus(Duration::from_secs(seconds))
}

impl Gateway {
    fn start(settings: &Settings, seed: u8, now: Timestamp) -> Self {
        let mut engine =
            Engine::new(&settings.engine, [seed; 32], now).expect("the settings are right");
        let keeper = PortStateWriter::new(open(settings), &mut engine, now).expect("a thread");
        Self { engine, keeper, host: 100 }
    }

    /// Has a host of the inside send a packet; returns the mapping's external end.
    fn send(&mut self, now: Timestamp, protocol: u8, host: u8) -> Result<String, DropReason> {
        let mut bytes = packet(protocol, host);
        let mut verdicts = [Verdict::Held];
        self.engine.process(now, Side::Inside, &mut [Packet::new(&mut bytes, 0)], &mut verdicts);
        match verdicts[0] {
            Verdict::Drop(reason) => Err(reason),
            _ => match self.engine.poll_event().expect("an event").change {
                Change::MappingCreated(mapping) => {
                    Ok(format!("{protocol} {}:{}", mapping.external.address, mapping.external.port))
                }
                other => panic!("{other:?}"),
            },
        }
    }

    /// Takes all ports that can be had, each for another host.
    fn exhaust(&mut self, now: Timestamp, protocol: u8) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            self.host += 1;
            match self.send(now, protocol, self.host) {
                Ok(port) => taken.push(port),
                Err(reason) => {
                    assert_eq!(reason, DropReason::PoolExhausted);
                    while self.engine.poll_event().is_some() {}
                    return taken;
                }
            }
        }
    }

    fn advance(&mut self, now: Timestamp) {
        while self.engine.advance(now) {
            while self.engine.poll_event().is_some() {}
        }
        while self.engine.poll_event().is_some() {}
    }

    /// Turns until a pass has been written; returns how it ended.
    fn pass(&mut self, now: Timestamp) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(result) = self.keeper.turn(now, &self.engine) {
                return result;
            }
            assert!(begin.elapsed() < PATIENCE, "no pass was written");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) {
        self.keeper.finish(&self.engine).expect("the file can be written");
    }
}

/// After a restart nobody gets a port that was in use before, until the hold-down is over.
fn held_after_restart(folder: &str, stop: impl FnOnce(Gateway)) {
    let folder = Folder::new(folder);
    let settings = settings(folder.file());
    let protocols = [protocol::TCP, protocol::UDP, protocol::ICMP];
    let mut gateway = Gateway::start(&settings, 1, at(0));
    let mut used = Vec::new();
    for protocol in protocols {
        used.extend((1..=3).map(|host| gateway.send(at(1), protocol, host).expect("a port")));
    }
    stop(gateway);
    assert_eq!(folder.names(), ["ports"]);

    let mut gateway = Gateway::start(&settings, 2, at(50));
    for protocol in protocols {
        let given = gateway.exhaust(at(51), protocol);
        assert!(given.iter().all(|port| !used.contains(port)), "{given:?} of {used:?}");
        assert_eq!(given.len(), 8 - 3);
    }
    gateway.advance(at(169));
    let refused = protocols.map(|protocol| gateway.send(at(169), protocol, 9));
    assert!(refused.iter().all(|fate| *fate == Err(DropReason::PoolExhausted)), "{refused:?}");
    while gateway.engine.poll_event().is_some() {}
    gateway.advance(at(171));
    for protocol in protocols {
        let given = gateway.exhaust(at(171), protocol);
        assert!(given.len() >= 3 && used.iter().filter(|port| given.contains(port)).count() == 3);
    }
}

//= test rfc6888#REQ-8-restart
#[test]
fn ports_in_use_at_a_stop_are_held_after_it() {
    held_after_restart("stop", Gateway::stop);
}

//= test rfc6888#REQ-8-restart
#[test]
fn ports_in_use_at_the_last_writing_are_held_after_a_crash() {
    held_after_restart("crash", |mut gateway| {
        assert!(gateway.keeper.turn(at(9), &gateway.engine).is_none());
        gateway.pass(at(10)).expect("the file can be written");
        // Nothing is written at the end: the process is gone.
        std::mem::forget(gateway);
    });
}

#[test]
fn ports_that_were_held_are_held_again() {
    let folder = Folder::new("again");
    let settings = settings(folder.file());
    let mut gateway = Gateway::start(&settings, 1, at(0));
    let used = gateway.send(at(0), protocol::UDP, 1).expect("a port");
    gateway.stop();
    Gateway::start(&settings, 2, at(60)).stop();
    let mut gateway = Gateway::start(&settings, 3, at(100));
    gateway.advance(at(219));
    assert!(!gateway.exhaust(at(219), protocol::UDP).contains(&used));
    gateway.advance(at(221));
    assert_eq!(gateway.exhaust(at(221), protocol::UDP), [used]);
}

#[test]
fn addresses_that_are_no_longer_there_are_ignored() {
    let folder = Folder::new("moved");
    let mut settings = settings(folder.file());
    let mut gateway = Gateway::start(&settings, 1, at(0));
    assert_eq!(gateway.exhaust(at(0), protocol::UDP).len(), 8);
    gateway.stop();
    let other = Ipv4Addr::new(203, 0, 113, 2);
    settings.engine.pools[0].addresses[0] =
        AddressRange { first: other, last: Ipv4Addr::new(203, 0, 113, 3) };
    settings.engine.pools[0].ports = (5002, 5005);
    let mut gateway = Gateway::start(&settings, 2, at(1));
    // Ports 5002 and 5003 of the one address that stayed.
    assert_eq!(gateway.exhaust(at(1), protocol::UDP).len(), 8 - 2);
}

#[test]
fn what_is_free_again_is_not_remembered() {
    let folder = Folder::new("freed");
    let settings = settings(folder.file());
    let mut gateway = Gateway::start(&settings, 1, at(0));
    gateway.send(at(0), protocol::UDP, 1).expect("a port");
    gateway.pass(at(10)).expect("the file can be written");
    assert_eq!(open(&settings).ports(), 1);
    // Five minutes of silence, two of hold-down.
    gateway.advance(at(421));
    gateway.pass(at(421)).expect("the file can be written");
    assert_eq!(open(&settings).ports(), 0);
    gateway.stop();
}

#[test]
fn a_pass_takes_a_few_addresses_a_turn() {
    let folder = Folder::new("turns");
    let mut settings = settings(folder.file());
    settings.engine.pools[0].addresses = vec![AddressRange {
        first: Ipv4Addr::new(203, 0, 113, 0),
        last: Ipv4Addr::new(203, 0, 113, 9),
    }];
    let mut gateway = Gateway::start(&settings, 1, at(0));
    assert_eq!(gateway.keeper.next_deadline(), at(10));
    // Ten addresses and the end: 4, 4, 3.
    for deadline in [at(10), at(10), at(20)] {
        gateway.keeper.turn(at(10), &gateway.engine);
        assert_eq!(gateway.keeper.next_deadline(), deadline);
    }
    gateway.stop();
}

#[test]
fn a_slow_disk_makes_the_pass_wait() {
    let folder = Folder::new("slow");
    let settings = settings(folder.file());
    let mut gateway = Gateway::start(&settings, 1, at(0));
    // Passes one after the other: sooner or later the other thread has no room.
    let mut waited = false;
    for number in 1..100_000 {
        let now = at(10 * number);
        gateway.keeper.turn(now, &gateway.engine);
        if gateway.keeper.next_deadline() == now.plus(Duration::from_millis(1)) {
            waited = true;
            break;
        }
    }
    assert!(waited, "the channel has no bound");
    gateway.stop();
    assert_eq!(open(&settings).damage(), None);
}

#[test]
fn a_file_that_cannot_be_written_any_more_is_told_and_tried_again() {
    let folder = Folder::new("gone");
    let settings = settings(folder.file());
    let mut gateway = Gateway::start(&settings, 1, at(0));
    gateway.send(at(0), protocol::TCP, 1).expect("a port");
    fs::remove_dir_all(&folder.0).expect("the folder can be removed");
    assert_eq!(gateway.pass(at(10)).expect_err("no folder").kind(), io::ErrorKind::NotFound);
    fs::create_dir(&folder.0).expect("the folder can be made");
    gateway.pass(at(20)).expect("the file can be written");
    assert_eq!(open(&settings).ports(), 1);
    let mode = fs::metadata(folder.file()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::remove_dir_all(&folder.0).expect("the folder can be removed");
    assert!(gateway.keeper.finish(&gateway.engine).is_err());
}
