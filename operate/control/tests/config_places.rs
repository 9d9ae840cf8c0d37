//! No two keys may name one file, folder, socket or listener: each key of the schema that names a
//! place is compared with each other one, and links do not hide that two paths lead to one file.

use natgate_control::config::{
    Argument, PLACES, PlaceKey, PlaceKind, Places, SECTIONS, parse, read, read_text,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const SIDES: &str = "[inside]\ndevice = \"a\"\naddress6 = \"2001:db8::1/64\"\n\
                     [outside]\ndevice = \"b\"\n[[pool]]\naddresses = [\"203.0.113.1\"]\n";

/// A configuration that has every place; `value` gives the value of a key.
fn file(value: impl Fn(&str, &str) -> String) -> String {
    let of = |section: &str, key: &str| {
        format!("{key} = \"{}\"\n", value(section, key).replace('\\', "\\\\"))
    };
    [
        SIDES.to_owned(),
        format!("[state]\n{}", of("state", "file")),
        format!("[lw4o6]\naddress = \"2001:db8::1\"\n{}", of("lw4o6", "bindings")),
        format!(
            "[control]\n{}{}{}",
            of("control", "socket"),
            of("control", "read_socket"),
            of("control", "listen")
        ),
        format!(
            "[control.tls]\n{}{}{}{}",
            of("control.tls", "certificate"),
            of("control.tls", "key"),
            of("control.tls", "clients"),
            of("control.tls", "revoked")
        ),
        format!("[[log]]\nkind = \"file\"\n{}", of("log", "path")),
        format!("[[log]]\nkind = \"spool\"\n{}", of("log", "folder")),
        format!(
            "[[log]]\nkind = \"syslog\"\ntransport = \"tls\"\n{}[log.tls]\n{}{}{}",
            of("log", "collector"),
            of("log.tls", "authorities"),
            of("log.tls", "certificate"),
            of("log.tls", "key")
        ),
        format!("[page]\n{}", of("page", "listen")),
        format!("[metrics]\n{}", of("metrics", "listen")),
        format!("[snmp]\n{}", of("snmp", "agentx")),
        format!(
            "[fleet]\nnode = \"a\"\n{}{}{}{}[fleet.partner]\nnode = \"b\"\n{}\
             [[slice]]\naddresses = [\"203.0.113.1\"]\nowner = \"a\"\n",
            of("fleet", "listen"),
            of("fleet", "certificate"),
            of("fleet", "key"),
            of("fleet", "authorities"),
            of("fleet.partner", "address")
        ),
    ]
    .concat()
}

/// A value for each place that no other one has.
fn apart(section: &str, key: &str) -> String {
    let number = PLACES.iter().position(|place| (place.section, place.key) == (section, key));
    let number = number.unwrap_or_else(|| panic!("{section}.{key} is not in PLACES"));
    match is_address(&PLACES[number]) {
        true => format!("192.0.2.1:{}", 7000 + number),
        false => format!("/there/is/no/such/{section}.{key}"),
    }
}

/// True if the key's value is an address with a port, or may be one.
fn is_address(place: &PlaceKey) -> bool {
    place.kind == PlaceKind::Listener || ["collector", "address"].contains(&place.key)
}

fn can_be_address(place: &PlaceKey) -> bool {
    is_address(place) || place.key == "agentx"
}

#[test]
fn places_that_differ_are_accepted() {
    let text = file(apart);
    parse(&text, "t").unwrap_or_else(|problems| panic!("{text}{problems:#?}"));
}

#[test]
fn each_pair_of_places_is_compared() {
    let mut compared = 0;
    for (at, one) in PLACES.iter().enumerate() {
        for other in &PLACES[at + 1..] {
            let values: &[&str] = match (is_address(one), is_address(other)) {
                (false, false) => &["/one/place"],
                _ if can_be_address(one) && can_be_address(other) => &["127.0.0.1:4711"],
                // An address and a path.
                _ => continue,
            };
            for value in values {
                pair(one, other, value);
                compared += 1;
            }
        }
    }
    assert!(compared > 60, "{compared} pairs");
}

/// Both keys have one value.
fn pair(one: &PlaceKey, other: &PlaceKey, same: &str) {
    let names = [one, other].map(|place| (place.section, place.key));
    let value = |section: &str, key: &str| match names.contains(&(section, key)) {
        true => same.to_owned(),
        false => apart(section, key),
    };
    let text = file(value);
    let read = parse(&text, "t");
    if !one.kind.excludes(other.kind) {
        assert!(read.is_ok(), "{names:?} may share a place: {read:?}");
        return;
    }
    let problems = read.expect_err(&format!("{names:?} share {same}"));
    assert_eq!(problems.len(), 1, "{names:?}: {problems:#?}");
    // The place of the later one, and in the sentence that of the earlier one.
    let lines: Vec<(usize, &str)> =
        (1..).zip(text.lines()).filter(|(_, line)| line.contains(same)).collect();
    let column = |line: &str| line.find('"').expect("a value") + 1;
    let [(first, earlier), (last, later)] = lines[..] else { panic!("{lines:?}") };
    let begin = format!("t:{last}:{}: ", column(later));
    let mention = format!("line {first}, column {}", column(earlier));
    assert!(problems[0].starts_with(&begin), "{begin} in {problems:?}");
    assert!(problems[0].contains(&mention), "{mention} in {problems:?}");
}

#[test]
fn each_place_is_compared_with_the_defaults() {
    let defaults = PLACES.iter().filter_map(|place| Some((place, place.default?)));
    for (spec, default) in defaults {
        let other = PLACES.iter().find(|other| {
            let is_other = (other.section, other.key) != (spec.section, spec.key);
            is_other && other.kind == PlaceKind::Listener && can_be_address(spec)
                || other.kind == PlaceKind::Written && !is_address(spec)
        });
        let other = other.expect("a place of that kind");
        let value = |section: &str, key: &str| match (section, key) {
            same if same == (other.section, other.key) => default.to_owned(),
            _ => apart(section, key),
        };
        let text = file(value);
        let own = format!("{} = \"{}\"\n", spec.key, apart(spec.section, spec.key));
        let text = text.replacen(&own, "", 1);
        let problems = parse(&text, "t").expect_err(default);
        let mention = format!("the default of {}.{} (", spec.section, spec.key);
        assert!(problems.len() == 1 && problems[0].contains(&mention), "{problems:?}");
    }
}

/// Whatever is read as a path or as a listener is in the table: the reader refuses other keys, and
/// names that sound like a place are in it too.
#[test]
fn every_key_that_is_read_as_a_place_is_listed() {
    let sounds = ["path", "file", "folder", "socket", "listen", "certificate", "authorities"];
    for (section, keys) in SECTIONS {
        for key in *keys {
            let listed = PLACES.iter().any(|place| (place.section, place.key) == (*section, key));
            let is_named_so = sounds.iter().any(|sound| key.contains(sound));
            assert!(listed || !is_named_so, "{section}.{key} is not in PLACES");
            if section.is_empty() {
                continue;
            }
            for kind in ["", "kind = \"file\"\n", "kind = \"spool\"\n", "kind = \"syslog\"\n"] {
                let array = ["log", "pool", "static", "rule", "class", "realm", "timeout", "route"];
                let open = if array.contains(section) {
                    format!("[[{section}]]")
                } else {
                    format!("[{section}]")
                };
                let text = format!("{open}\n{kind}{key} = \"x\"\n");
                let problems = read_text(&text, "t").map(|_| ()).expect_err("parts are missing");
                let place = format!("{key}: \"x\" is no a");
                let said = problems.iter().map(ToString::to_string);
                let is_place = said.filter(|one| one.contains(&place)).any(|one| {
                    one.contains("no absolute path") || one.contains("no address with a port")
                });
                assert!(
                    listed || !is_place,
                    "{section}.{key} is read as a place and is not in PLACES"
                );
            }
        }
    }
}

#[test]
fn listeners_meet_at_wildcards() {
    for (page, metrics, meets) in [
        ("127.0.0.1:9464", "0.0.0.0:9464", true),
        ("0.0.0.0:9464", "127.0.0.1:9464", true),
        ("[::]:9464", "127.0.0.1:9464", true),
        ("127.0.0.2:9464", "127.0.0.1:9464", false),
        ("127.0.0.1:9466", "0.0.0.0:9464", false),
    ] {
        let text =
            format!("{SIDES}[page]\nlisten = \"{page}\"\n[metrics]\nlisten = \"{metrics}\"\n");
        let Err(problems) = parse(&text, "t") else {
            assert!(!meets, "{page} and {metrics}");
            continue;
        };
        let said = format!(
            "t:11:10: metrics.listen: {metrics} is taken by page.listen ({page}, line 9, column \
             10) too; write another port or address"
        );
        assert!(meets && problems == [said], "{problems:?}");
    }
}

/// A folder of this test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("natgate-places-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("it can be made");
        Self(fs::canonicalize(path).expect("it is there"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn log_and_state(log: &Path, state: &Path) -> String {
    format!("{SIDES}[state]\nfile = {state:?}\n[[log]]\nkind = \"file\"\npath = {log:?}\n")
}

#[test]
fn links_do_not_hide_that_two_paths_lead_to_one_file() {
    let folder = Folder::new("links");
    let real = folder.file("real");
    fs::create_dir(&real).expect("it is ours");
    symlink(&real, folder.file("link")).expect("it is ours");
    symlink(real.join("later"), folder.file("dangling")).expect("it is ours");
    fs::write(real.join("there"), "").expect("it is ours");
    fs::hard_link(real.join("there"), folder.file("hard")).expect("it is ours");
    for (log, state) in [
        (folder.file("link/ports"), real.join("ports")),
        (folder.file("link/no/such/ports"), real.join("no/such/ports")),
        (folder.file("real/../link/./ports"), real.join("ports")),
        (folder.file("dangling"), real.join("later")),
        (folder.file("hard"), real.join("there")),
    ] {
        let problems = parse(&log_and_state(&log, &state), "t").expect_err("one file");
        assert!(
            problems.len() == 1 && problems[0].contains("is the place of state.file ("),
            "{problems:?}"
        );
        parse(&log_and_state(&log, &real.join("another")), "t").expect("two files");
    }
}

#[test]
fn folders_and_files_beside_a_path_are_compared() {
    let spool = |state: &str, folder: &str| {
        let text = format!(
            "{SIDES}[state]\nfile = \"{state}\"\n[[log]]\nkind = \"spool\"\nfolder = \"{folder}\"\n"
        );
        parse(&text, "t").map_or_else(|problems| problems.join("\n"), |_| String::new())
    };
    assert_eq!(spool("/n/spool2", "/n/spool"), "");
    assert!(spool("/n/spool/ports", "/n/spool").contains("contains the place of state.file"));
    assert!(spool("/n/ports", "/n/ports/spool").contains("is inside the place of state.file"));
    let others = ["/n/ports.1", "/n/ports.1.old", "/n/ports.63.lock", "/n/ports.123-0.new"];
    for beside in ["/n/ports.old", "/n/ports.lock", "/n/ports.lock.next"].into_iter().chain(others)
    {
        assert!(spool("/n/ports", beside).contains("that natgate makes beside state.file"));
    }
    let read_socket = |path: &str| {
        let text = format!("{SIDES}[control]\nsocket = \"/n/a\"\nread_socket = \"{path}\"\n");
        parse(&text, "t").map_or_else(|problems| problems.join("\n"), |_| String::new())
    };
    assert!(read_socket("/n/a.take-over").contains("makes beside control.socket"));
    assert_eq!(read_socket("/n/b"), "");
}

#[test]
fn the_file_itself_is_a_place() {
    let folder = Folder::new("itself");
    let path = folder.file("natgate.toml");
    fs::write(&path, format!("{SIDES}[[log]]\nkind = \"file\"\npath = {path:?}\n")).expect("ours");
    let problems = read(&path).expect_err("the log would spoil it");
    let said = problems[0].to_string();
    assert!(
        problems.len() == 1 && said.contains("is the place of the configuration file"),
        "{said}"
    );
}

#[test]
fn arguments_are_compared_with_the_file_and_with_each_other() {
    let folder = Folder::new("arguments");
    let (ports, events) = (folder.file("ports"), folder.file("events"));
    let text = log_and_state(&events, &ports);
    let places = || read_text(&text, "t").expect("it is right").places;
    let argument = |name, path| Argument { name, path: Some(path), beside: &[".new"] };
    let added = |arguments: &[Argument<'_>]| places().add_arguments(arguments);
    let other = folder.file("other");
    assert_eq!(added(&[argument("--events", &other)]), Ok(()));
    let null = Path::new("/dev/null");
    assert_eq!(added(&[argument("--events", null), argument("--tap", null)]), Ok(()));
    for (path, mention) in [(&ports, "state.file"), (&events, "log[0].path")] {
        let problems = added(&[argument("--events", path)]).expect_err(mention);
        let begin = format!("--events: {path:?} is the place of {mention} (");
        assert!(problems.len() == 1 && problems[0].starts_with(&begin), "{problems:?}");
    }
    // Opening a folder says more.
    let around = ports.parent().expect("the test's folder");
    assert_eq!(added(&[argument("--events", around)]), Ok(()));
    let both = [argument("--events", &other), argument("--tap", &other)];
    let problems = added(&both).expect_err("one file");
    assert!(problems[0].contains("is the place of --events ("), "{problems:?}");
    let mut own = Places::default();
    own.add_arguments(&[argument("--events", &other)]).expect("nothing else is there");
    assert_eq!(own.accepts(&events), Ok(()));
    assert!(own.accepts(&other).is_err_and(|said| said.contains("--events")));
}
