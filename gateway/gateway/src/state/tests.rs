//! State files: what was written is read again, whatever happens to the file in between, and ports
//! in use before a restart are held after it.

use super::file::{self, Replacement};
use super::format::{self, Bitmap, WORDS, Writer};
use super::*;
use natgate_engine::{
    AddressRange, Change, Config, DropReason, Engine, Packet, PoolConfig, Side, Timestamp, Verdict,
};
use natgate_wire::{Ipv4, protocol};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// A folder for one test, removed with the value.
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

    /// Temporary name of a file while a process writes it.
    fn beside(&self, file: &str, process: u32, number: u32) -> PathBuf {
        self.0.join(format!("{file}.{process}-{number}.new"))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder can be read");
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|e| e.file_name());
        let names = entries.map(|entry| name(entry).expect("an entry"));
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// True if a file is being written here.
    fn has_unfinished(&self) -> bool {
        self.names().iter().any(|name| name.ends_with(".new"))
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

/// Settings with ten addresses, more than one turn copies.
fn settings_of_ten(file: PathBuf) -> Settings {
    let mut settings = settings(file);
    settings.engine.pools[0].addresses = vec![AddressRange {
        first: Ipv4Addr::new(203, 0, 113, 0),
        last: Ipv4Addr::new(203, 0, 113, 9),
    }];
    settings
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

/// A folder with a file that names two ports and a generation before that names one.
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
    // Both generations are damaged: that is reported, and nothing is held.
    for bytes in [&newest[..20], b"", b"[inside]"] {
        fs::write(folder.file(), &newest[..30]).expect("the file can be written");
        fs::write(folder.old(), bytes).expect("the file can be written");
        let saved = open(&settings);
        assert!(saved.damage().is_some() && saved.generation_before().is_none());
        assert_eq!(saved.ports(), 0);
    }
}

/// Two files that exist and give no bytes: reading the first is an input/output error, the second
/// is a link to itself.
fn unreadable(folder: &Folder) -> [PathBuf; 2] {
    ["/proc/self/mem".into(), folder.file()]
}

#[test]
fn if_the_newest_file_cannot_be_read_the_generation_before_counts() {
    let (folder, _) = two_generations("unreadable");
    let settings = settings(folder.file());
    for (target, why) in unreadable(&folder).into_iter().zip(["Input/output", "Too many levels"]) {
        fs::remove_file(folder.file()).expect("it is there");
        symlink(target, folder.file()).expect("a link");
        let saved = open(&settings);
        let damage = saved.damage().expect("that is told");
        assert!(damage.starts_with(&format!("it cannot be read: {why}")), "{damage}");
        assert_eq!((saved.ports(), saved.generation_before()), (1, Some(folder.old())));
    }
    // Without a generation before, nothing is held, and that is reported.
    fs::remove_file(folder.old()).expect("it is there");
    let saved = open(&settings);
    assert!(saved.damage().is_some() && saved.generation_before().is_none());
    assert_eq!(saved.ports(), 0);
}

#[test]
fn a_newest_file_that_cannot_be_read_is_replaced_and_the_generation_before_stays() {
    for number in 0..2 {
        let folder = Folder::new(&format!("replaced-{number}"));
        let settings = settings(folder.file());
        let mut gateway = Gateway::start(&settings, 1, at(0));
        gateway.send(at(0), protocol::TCP, 1).expect("a port");
        gateway.pass(at(10)).expect("the file can be written");
        gateway.pass(at(20)).expect("the file can be written");
        let before = fs::read(folder.old()).expect("it is there");
        fs::remove_file(folder.file()).expect("it is there");
        symlink(&unreadable(&folder)[number], folder.file()).expect("a link");
        gateway.send(at(21), protocol::TCP, 2).expect("a port");
        gateway.pass(at(30)).expect("the file can be written");
        assert_eq!(fs::read(folder.old()).expect("it is there"), before);
        assert_eq!((open(&settings).damage(), open(&settings).ports()), (None, 2));
    }
}

#[test]
fn what_gives_no_bytes_does_not_become_the_generation_before() {
    let (folder, _) = two_generations("no-bytes");
    let before = fs::read(folder.old()).expect("it is there");
    fs::remove_file(folder.file()).expect("it is there");
    // A folder can be opened, and not read.
    fs::create_dir(folder.file()).expect("a folder");
    file::keep_generation(&folder.file()).expect("that stops nothing");
    assert_eq!(fs::read(folder.old()).expect("it is there"), before);
}

#[test]
fn a_writing_that_ends_after_any_of_its_steps_leaves_both_generations() {
    let (folder, newest) = two_generations("steps");
    let path = folder.file();
    let read = || [folder.file(), folder.old()].map(|path| fs::read(path).expect("it is there"));
    let both = read();
    let mut replacement = Replacement::begin(&path).expect("the file can be written");
    replacement.record(&record(1, 6, &[1])).expect("the file can be written");
    assert_eq!(read(), both);
    drop(replacement);
    assert_eq!((read(), folder.names()), (both, vec!["ports".into(), "ports.old".into()]));
    // This step comes before the new file gets its name. After its second run both names are of one
    // file.
    for _ in 0..2 {
        file::keep_generation(&path).expect("the file can be kept");
        assert_eq!(read(), [&newest[..], &newest]);
        assert_eq!(folder.names(), ["ports", "ports.old"]);
    }
    file::write(&path, &[record(1, 6, &[1])]).expect("the file can be written");
    assert_eq!(read(), [written(&[record(1, 6, &[1])]), newest]);
}

#[test]
fn a_file_is_kept_as_a_copy_where_it_cannot_have_two_names() {
    let (folder, newest) = two_generations("copy");
    let copy = folder.0.join("copy");
    let mut source = fs::File::open(folder.file()).expect("it is there");
    assert!(format::is_whole(&source).expect("readable"), "it has been read to its end");
    file::copy(&mut source, &copy).expect("the copy can be written");
    assert_eq!(fs::read(copy).expect("it is there"), newest);
}

#[test]
fn at_every_moment_of_many_writings_the_file_is_there_and_whole() {
    const WRITINGS: u64 = 50;
    const READINGS: u64 = 200;
    let (folder, _) = two_generations("moments");
    let path = folder.file();
    let is_enough = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (path, is_enough) = (path.clone(), Arc::clone(&is_enough));
        move || {
            let mut writings = 0_u64;
            while writings < WRITINGS || !is_enough.load(Ordering::Relaxed) {
                file::write(&path, &[record(1, 6, &[writings as u16])])?;
                writings += 1;
            }
            std::io::Result::Ok(())
        }
    });
    let mut readings = 0;
    while !writer.is_finished() {
        let bytes = fs::read(&path).expect("it is there");
        assert!(format::read(&bytes).is_ok(), "it is whole");
        readings += 1;
        is_enough.store(readings >= READINGS, Ordering::Relaxed);
    }
    writer.join().expect("it ends").expect("the file can be written");
    assert!(readings >= READINGS, "the writer ended after {readings} readings");
}

#[test]
fn a_generation_before_that_cannot_be_kept_is_told_and_the_newest_is_written() {
    let (folder, newest) = two_generations("unkept");
    fs::remove_file(folder.old()).expect("it is there");
    fs::create_dir(folder.old()).expect("a folder");
    file::write(&folder.file(), &[]).expect_err("a folder has the name");
    assert_ne!(fs::read(folder.file()).expect("it is there"), newest);
    assert_eq!(folder.names(), ["ports", "ports.old"]);
}

/// The number of a process that has ended.
fn ended_process() -> u32 {
    let mut child = std::process::Command::new("true").spawn().expect("a process");
    child.wait().expect("it ends");
    child.id()
}

#[test]
fn files_that_killed_processes_left_are_removed_at_the_start_and_no_others() {
    let folder = Folder::new("strays");
    let (ended, own) = (ended_process(), std::process::id());
    let strays = [("ports", ended, 0), ("ports.1", ended, 70), ("ports.7", ended, 1)];
    let strays = strays.map(|(file, process, number)| folder.beside(file, process, number));
    let strays = [&strays[..], &[folder.beside("ports", own, u32::MAX)]].concat();
    let live = std::os::unix::process::parent_id();
    let mut others: Vec<PathBuf> = ["ports.new", "ports.-0.new", "other", "ports.1x-0.new"]
        .into_iter()
        .chain(["ports.+7-0.new", "ports.99999999999-0.new", "ports.0-0.new", "ports.64.7-0.new"])
        .map(|name| folder.0.join(name))
        .collect();
    others.extend([folder.beside("other", ended, 0), folder.beside("ports", live, 0)]);
    for path in strays.iter().chain(&others) {
        fs::write(path, "").expect("the file can be written");
    }
    let (link, directory) = (folder.beside("ports", ended, 8), folder.beside("ports", ended, 9));
    symlink(&others[0], &link).expect("a link");
    fs::create_dir(&directory).expect("a folder");
    others.extend([link, directory]);
    if rustix::process::geteuid().is_root() {
        let foreign = folder.beside("ports", ended, 10);
        fs::write(&foreign, "").expect("the file can be written");
        chown(&foreign, Some(12_345), None).expect("root may do that");
        others.push(foreign);
    }
    // Another thread of this process writes a file.
    let path = folder.file();
    let writing = Replacement::begin(&path).expect("the file can be written");
    SavedPorts::open_team(&settings(folder.file())).expect("the file can be used");
    for stray in strays {
        assert!(fs::symlink_metadata(&stray).is_err(), "{}", stray.display());
    }
    for other in others {
        assert!(fs::symlink_metadata(&other).is_ok(), "{}", other.display());
    }
    writing.finish().expect("the file can be written");
}

#[test]
fn the_end_of_a_process_does_not_remove_what_its_heir_writes() {
    let folder = Folder::new("heir");
    let settings = settings_of_ten(folder.file());
    let mut old = Gateway::start(&settings, 1, at(0));
    old.pass(at(10)).expect("the file can be written");
    let mut heir = Gateway::start(&settings, 2, at(10));
    assert!(heir.writer.turn(at(20), &heir.engine).is_none());
    let begin = Instant::now();
    while !folder.has_unfinished() {
        assert!(begin.elapsed() < PATIENCE, "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    // After a take-over nothing is written at the end. The thread may take a moment.
    drop(old);
    std::thread::sleep(Duration::from_millis(200));
    assert!(folder.has_unfinished(), "the heir's file is gone");
    heir.pass(at(20)).expect("the file can be written");
    assert_eq!(folder.names(), ["ports", "ports.old"]);
}

#[test]
fn two_processes_that_write_beside_each_other_both_end_well() {
    let folder = Folder::new("two");
    let path = folder.file();
    let [old, heir] = [1, 2].map(|port| {
        let mut replacement = Replacement::begin(&path).expect("the file can be written");
        replacement.record(&record(1, 6, &[port])).expect("the file can be written");
        replacement
    });
    old.finish().expect("it can be finished");
    heir.finish().expect("it can be finished");
    assert_eq!(fs::read(&path).expect("it is there"), written(&[record(1, 6, &[2])]));
}

// ---- several workers ----

/// A folder with files of three workers and of a stranger. The third worker's file is damaged but
/// has a generation before.
fn three_workers(test: &str) -> (Folder, Settings) {
    let folder = Folder::new(test);
    let write = |name: &str, records: &[Record]| {
        fs::write(folder.0.join(name), written(records)).expect("the file can be written");
    };
    write("ports", &[record(0xcb00_7101, 17, &[5000])]);
    write("ports.1", &[record(0xcb00_7101, 17, &[5001]), record(0xcb00_7102, 6, &[5000])]);
    write("ports.1.old", &[record(0xcb00_7102, 17, &[5003])]);
    write("ports.2.old", &[record(0xcb00_7102, 17, &[5002])]);
    fs::write(folder.0.join("ports.2"), "NATPORTS").expect("the file can be written");
    fs::write(folder.0.join("ports.3"), "a letter").expect("the file can be written");
    let settings = settings(folder.file());
    (folder, settings)
}

fn open_team(settings: &Settings) -> SavedTeam {
    SavedPorts::open_team(settings).expect("the files can be used").expect("the settings name one")
}

#[test]
fn files_of_workers_that_are_no_more_are_merged_into_the_first_ones() {
    let (folder, settings) = three_workers("former");
    let team = open_team(&settings);
    assert_eq!((team.workers.len(), team.workers[0].ports()), (1, 4));
    let damaged: Vec<bool> = team.former.iter().map(|former| former.damage().is_some()).collect();
    assert_eq!(damaged, [false, true]);
    team.adopt().expect("the file can be written");
    assert_eq!(folder.names(), ["ports", "ports.3", "ports.old"]);
    assert_eq!(open(&settings).ports(), 4);
    assert_eq!(open(&settings).records.len(), 3, "one for each address and protocol");
    // The next start finds no such files, and writes nothing.
    let bytes = fs::read(folder.old()).expect("it is there");
    let team = open_team(&settings);
    assert!(team.former.is_empty());
    team.adopt().expect("there is nothing to do");
    assert_eq!(fs::read(folder.old()).expect("it is there"), bytes);
}

#[test]
fn files_of_former_workers_stay_until_their_ports_are_saved() {
    let (folder, settings) = three_workers("unsaved");
    let names = folder.names();
    let team = open_team(&settings);
    fs::create_dir(folder.old()).expect("a folder");
    team.adopt().expect_err("a generation cannot be kept");
    fs::remove_dir(folder.old()).expect("it is there");
    assert_eq!(folder.names(), names);
    assert_eq!(open_team(&settings).workers[0].ports(), 4);
}

#[test]
fn every_worker_holds_what_all_files_name() {
    let (folder, mut settings) = three_workers("team");
    settings.workers.count = 2;
    let team = open_team(&settings);
    let ports: Vec<u64> = team.workers.iter().map(SavedPorts::ports).collect();
    assert_eq!((ports, team.former.len()), (vec![4, 4], 1));
    team.adopt().expect("the file can be written");
    let names = folder.names();
    assert_eq!(names, ["ports", "ports.1", "ports.1.old", "ports.3", "ports.old"]);
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
    // A whole file becomes the generation before.
    gateway.send(at(11), protocol::TCP, 1).expect("a port");
    gateway.pass(at(20)).expect("the file can be written");
    assert_eq!(fs::read(folder.old()).expect("it is there"), first);
    assert_eq!(open(&settings).ports(), 2);
    // A file that was spoiled since it was written does not.
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
    for number in 0..4096 {
        symlink(&victim, folder.beside("ports", std::process::id(), number)).expect("a link");
    }
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

/// A translator and the writer of its ports.
struct Gateway {
    engine: Engine,
    writer: PortStateWriter,
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
        let writer = PortStateWriter::new(open(settings), &mut engine, now).expect("a thread");
        Self { engine, writer, host: 100 }
    }

    /// Sends a packet of an internal host; returns the mapping's external endpoint.
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

    /// Takes all free ports, each for another host.
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

    /// Turns until a pass has been written; returns its result.
    fn pass(&mut self, now: Timestamp) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(result) = self.writer.turn(now, &self.engine) {
                return result;
            }
            assert!(begin.elapsed() < PATIENCE, "no pass was written");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) {
        self.writer.finish(&self.engine).expect("the file can be written");
    }
}

/// Checks that no port in use before a restart is given out until the hold-down is over.
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
        assert!(gateway.writer.turn(at(9), &gateway.engine).is_none());
        gateway.pass(at(10)).expect("the file can be written");
        // The process is gone: no last pass is written.
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
    let settings = settings_of_ten(folder.file());
    let mut gateway = Gateway::start(&settings, 1, at(0));
    assert_eq!(gateway.writer.next_deadline(), at(10));
    // Ten addresses and the end: 4, 4, 3.
    for deadline in [at(10), at(10), at(20)] {
        gateway.writer.turn(at(10), &gateway.engine);
        assert_eq!(gateway.writer.next_deadline(), deadline);
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
        gateway.writer.turn(now, &gateway.engine);
        if gateway.writer.next_deadline() == now.plus(Duration::from_millis(1)) {
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
    assert!(gateway.writer.finish(&gateway.engine).is_err());
}
