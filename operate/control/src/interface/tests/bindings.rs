//! Bindings of lw4o6 that requests and the file change while packets of other bindings pass.

use super::traffic::{Flow, NEXT_HOPS, four, six};
use super::*;
use crate::refresh::{Look, Refresher};
use std::collections::BTreeMap;

const BR: &str = "2001:db8:ffff::2";
const REMOTE: &str = "198.51.100.7";
const LW4O6: &str = "[lw4o6]\naddress = \"2001:db8:ffff::2\"\nbindings = \"bindings.csv\"\n";

/// Lines of bindings by address and PSID.
type Lines = BTreeMap<(Ipv4Addr, u16), String>;

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

/// A binding with 64 port sets, and the last word of its B4.
fn add(lines: &mut Lines, last: u8, psid: u16, b4: u16) -> String {
    let line = format!("{},0,6,{psid},2001:db8:b4::{b4:x}", address(last));
    lines.insert((address(last), psid), line.clone());
    line
}

/// Bindings that no request and no file changes.
fn fixed() -> Lines {
    let mut lines = Lines::new();
    for last in 64..68 {
        for psid in 1..7 {
            add(&mut lines, last, psid, u16::from(last) << 8 | psid);
        }
    }
    lines
}

fn file_of(lines: &Lines) -> String {
    lines.values().map(|line| format!("{line}\n")).collect()
}

/// Packets to and from the customers of all bindings of [`fixed`].
fn flows() -> Vec<Flow> {
    let both = fixed().into_keys().flat_map(|(ipv4, psid)| {
        let b4 = format!("2001:db8:b4::{:x}", u16::from(ipv4.octets()[3]) << 8 | psid);
        let (ipv4, port) = (ipv4.to_string(), psid * 1024 + 7);
        let inner = (ipv4.clone(), b4.clone());
        let out = move |tail: &[u8]| {
            let (ipv4, b4) = (&inner.0, &inner.1);
            six((b4, BR), 4, &four((ipv4, REMOTE), (port, 53), tail))
        };
        let to = ipv4.clone();
        let back = move |tail: &[u8]| four((REMOTE, &to), (53, port), tail);
        let leaves = (BR.to_owned(), b4);
        [
            Flow { from: Side::Inside, packet: Box::new(out), leaves: (ipv4, REMOTE.to_owned()) },
            Flow { from: Side::Outside, packet: Box::new(back), leaves },
        ]
    });
    both.collect()
}

impl World {
    /// A gateway with lw4o6.
    fn with_bindings(test: &str, workers: usize, bindings: &Lines) -> Self {
        let folder = folder(test);
        let text = format!("{CONFIGURATION}{NEXT_HOPS}{LW4O6}[workers]\ncount = {workers}\n");
        let file = folder.join("natgate.toml");
        std::fs::write(&file, text).expect("the file can be written");
        std::fs::write(folder.join("bindings.csv"), file_of(bindings)).expect("it can be written");
        let settings = config::load(&file).expect("the configuration is right");
        Self::with(folder, &file, &settings, 0)
    }

    fn change(&self, body: &Value) -> Response {
        ask(&self.path, "POST", "/v1/bindings", body, PATIENCE).expect("an answer")
    }

    /// The list of bindings, as lines of the file.
    fn bindings(&self, query: &str) -> BTreeSet<String> {
        let list = self.lines(&format!("/v1/bindings{query}"));
        let entries = list.iter().filter(|one| one["ipv4"].is_string());
        let lines = entries.map(|one| {
            let word = |key: &str| one[key].to_string().trim_matches('"').to_owned();
            ["ipv4", "psid_offset", "psid_length", "psid", "b4"].map(word).join(",")
        });
        lines.collect()
    }

    /// Checks the lists of bindings and of domains.
    fn has_bindings(&self, expected: &Lines) {
        assert_eq!(self.bindings(""), expected.values().cloned().collect());
        let domains = self.get("/v1/domains");
        let relay = &domains["domains"][0];
        let said = (&relay["kind"], &relay["end"], &relay["bindings"]);
        assert_eq!(said, (&json!("lw4o6"), &json!(BR), &json!(expected.len())), "{domains}");
    }
}

#[test]
fn bindings_change_and_no_packet_of_other_bindings_is_lost() {
    for workers in [1, 2] {
        let mut lines = fixed();
        for psid in 0..20 {
            add(&mut lines, 66, 20 + psid, 0x100 + psid);
        }
        let world = World::with_bindings(&format!("bindings-{workers}"), workers, &lines);
        world.has_bindings(&lines);
        let count = world.pass_during(&flows(), || {
            for turn in 0..40_u16 {
                // Bindings of known addresses, and, at times, of a new one: that needs a new table.
                let last = if turn % 4 == 3 { 100 + (turn % 64) as u8 } else { 65 };
                let is_new =
                    |lines: &Lines, last, psid| !lines.contains_key(&(address(last), psid));
                let (mut set, mut added, mut replaced) = (Vec::new(), 0, 0);
                for (last, psid) in [(last, 30), (last, 31 + turn % 8), (66, 20 + turn % 30)] {
                    match is_new(&lines, last, psid) {
                        true => added += 1,
                        false => replaced += 1,
                    }
                    set.push(add(&mut lines, last, psid, 0x300 + turn));
                }
                let gone = (address(66), 20 + (turn + 7) % 30);
                let removed = u64::from(lines.remove(&gone).is_some());
                let remove =
                    json!([{ "ipv4": gone.0, "psid": gone.1 }, { "ipv4": "203.0.113.99" }]);
                let Response { status, body } =
                    world.change(&json!({ "set": set, "remove": remove }));
                let wanted = json!({
                    "ok": true, "added": added, "replaced": replaced, "removed": removed,
                    "absent": 2 - removed,
                });
                assert_eq!((status, &body), (200, &wanted), "turn {turn}");
                world.has_bindings(&lines);
            }
        });
        world.passed(count);
        let domains = world.get("/v1/domains");
        let relay = &domains["domains"][0];
        let number = |key: &str| relay[key].as_u64().expect("a number");
        assert_eq!(number("packets_out") + number("packets_in"), count, "{domains}");
        assert_eq!(number("spoofed"), 0);
    }
}

#[test]
fn clients_that_change_bindings_at_once_lose_no_change() {
    const CLIENTS: u8 = 4;
    let lines = fixed();
    let world = World::with_bindings("bindings-at-once", 2, &lines);
    let count = world.pass_during(&flows(), || {
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let world = &world;
                scope.spawn(move || {
                    for turn in 0..16 {
                        // An address of its own, so a new table, and one that all clients change.
                        let mut own = Lines::new();
                        let set = [
                            add(&mut own, 128 + 16 * client + turn, 1, 0x400 + u16::from(turn)),
                            add(&mut own, 64, 8 + u16::from(client), 0x400 + u16::from(turn)),
                        ];
                        let Response { status, body } = world.change(&json!({ "set": set }));
                        assert_eq!(status, 200, "{body}");
                    }
                });
            }
        });
    });
    world.passed(count);
    let mut expected = lines;
    for client in 0..CLIENTS {
        (0..16).for_each(|turn| {
            add(&mut expected, 128 + 16 * client + turn, 1, 0x400 + u16::from(turn));
        });
        add(&mut expected, 64, 8 + u16::from(client), 0x40f);
    }
    world.has_bindings(&expected);
}

#[test]
fn a_file_is_exchanged_and_no_packet_of_its_old_bindings_is_lost() {
    for workers in [1, 2] {
        let lines = fixed();
        let world = World::with_bindings(&format!("bindings-file-{workers}"), workers, &lines);
        let file = world.path.with_file_name("bindings.csv");
        let count = world.pass_during(&flows(), || {
            let mut refresher = Refresher::default();
            let mut look = || refresher.look(&world.reloader.settings());
            for turn in 1..=20_u16 {
                // A request that the file does not know of holds until the file is read.
                let set = [add(&mut Lines::new(), 65, 40, turn)];
                assert_eq!(world.change(&json!({ "set": set })).status, 200);
                let mut lines = lines.clone();
                for psid in 0..turn {
                    add(&mut lines, 70 + (turn % 5) as u8, psid, 0x500 + psid);
                }
                std::fs::write(&file, file_of(&lines)).expect("the file can be written");
                assert!(matches!(look(), Look::Same), "turn {turn}: it may be growing");
                let read = look();
                assert!(matches!(read, Look::Read(count) if count == lines.len()), "{read:?}");
                world.has_bindings(&lines);
                // A file with a fault changes nothing.
                let faulty = format!("{}203.0.113.70,0,5,1,2001:db8:b4::1\nx\n", file_of(&lines));
                std::fs::write(&file, faulty).expect("the file can be written");
                assert!(matches!(look(), Look::Same));
                assert!(matches!(look(), Look::Faulty(_)));
                world.has_bindings(&lines);
            }
        });
        world.passed(count);
    }
}

#[test]
fn a_reload_keeps_requested_bindings_while_their_file_is_the_same() {
    let lines = fixed();
    let world = World::with_bindings("bindings-reload", 1, &lines);
    let mut with = lines.clone();
    let set = [add(&mut with, 65, 40, 7)];
    assert_eq!(world.change(&json!({ "set": set })).status, 200);
    world.reloader.reload().expect("a reload");
    world.has_bindings(&with);
    std::fs::write(world.path.with_file_name("bindings.csv"), file_of(&lines)).expect("a file");
    world.reloader.reload().expect("a reload");
    world.has_bindings(&lines);
}

#[test]
fn a_wrong_change_changes_nothing_and_says_why() {
    let lines = fixed();
    let world = World::with_bindings("bindings-wrong", 1, &lines);
    let good = "203.0.113.64,0,6,9,2001:db8:b4::9";
    let remove = json!([{ "ipv4": "203.0.113.64", "psid": 1 }]);
    let set = |line: &str| json!({ "set": [good, line], "remove": remove });
    let new = ["203.0.113.90,0,6,1,2001:db8:b4::9", "203.0.113.90,0,5,2,2001:db8:b4::9"];
    for (body, status, said) in [
        (json!("x"), 400, "the body is wrong: "),
        (json!({ "add": [good] }), 400, "unknown field `add`"),
        (json!({ "set": good }), 400, "the body is wrong: "),
        (json!({ "remove": [{ "psid": 1 }] }), 400, "missing field `ipv4`"),
        (json!({ "remove": [{ "ipv4": "203.0.113.64", "psid": 65_536 }] }), 400, "65536"),
        (set("203.0.113.64,0,6"), 400, "set[1]: "),
        (set("203.0.113.64,0,6,64,2001:db8:b4::9"), 400, "64 needs 7 bits"),
        (set("203.0.113.64,0,17,1,2001:db8:b4::9"), 400, "set[1]: "),
        (set("203.0.113.300,0,6,1,2001:db8:b4::9"), 400, "is no IPv4 address"),
        (set("203.0.113.64,0,6,1,10.0.0.1"), 400, "set[1]: "),
        (set("127.0.0.1,0,6,1,2001:db8:b4::9"), 400, "no address that a host can have"),
        (set("203.0.113.5,0,6,1,2001:db8:b4::9"), 400, "203.0.113.5 is an external address"),
        (set("192.0.2.77,0,6,1,2001:db8:b4::9"), 400, "192.0.2.77 is in 192.0.2.0/24, the network"),
        (set("203.0.113.65,0,5,1,2001:db8:b4::9"), 409, "203.0.113.65 has another division"),
        (json!({ "set": new }), 409, "203.0.113.90 has another division"),
    ] {
        let answer = world.change(&body);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(answer.status == status && message.contains(said), "{body}: {answer:?}");
        world.has_bindings(&lines);
    }
    // No change is none.
    assert_eq!(world.change(&json!({})).body["added"], 0);
    // The address changes its division if no binding keeps the old one.
    let remove: Vec<_> =
        (1..7).map(|psid| json!({ "ipv4": "203.0.113.67", "psid": psid })).collect();
    let other = "203.0.113.67,4,4,1,2001:db8:b4::77";
    let done = world.change(&json!({ "set": [other], "remove": remove }));
    assert_eq!((&done.body["added"], &done.body["removed"]), (&json!(1), &json!(6)), "{done:?}");
    assert_eq!(world.bindings("?external=203.0.113.67"), BTreeSet::from([other.to_owned()]));
    // Filters, and questions that make no sense.
    let of_b4 = world.bindings("?subscriber=2001:db8:b4::4101");
    assert_eq!(of_b4, BTreeSet::from([lines[&(address(65), 1)].clone()]));
    assert_eq!(world.bindings("?external=203.0.113.66:2048").len(), 1);
    assert_eq!(world.bindings("?external=203.0.113.64/31&subscriber=2001:db8:b4::/48").len(), 12);
    assert_eq!(world.bindings("?limit=5").len(), 5);
    for (method, path, status) in [
        ("GET", "/v1/bindings?subscriber=x", 400),
        ("GET", "/v1/bindings?psid=1", 400),
        ("GET", "/v1/bindings?limit=0", 400),
        ("GET", "/v1/domains?limit=1", 400),
        ("POST", "/v1/domains", 405),
        ("DELETE", "/v1/bindings", 405),
    ] {
        assert_eq!(world.ask(method, path).status, status, "{path}");
    }
    // Without lw4o6 there are none.
    let without = World::new("bindings-none", 1, 0);
    assert_eq!(without.change(&json!({ "set": [good] })).status, 404);
    assert_eq!(without.get("/v1/bindings")["bindings"], json!([]));
    assert_eq!(without.get("/v1/domains")["domains"], json!([]));
}

#[test]
fn a_reload_tells_how_many_bindings_it_exchanges() {
    let mut lines = fixed();
    let world = World::with_bindings("bindings-reload", 1, &lines);
    let write = |name: &str, lines: &Lines| {
        std::fs::write(world.path.with_file_name(name), file_of(lines)).expect("it can be written");
    };
    let reload = |dry_run: bool| {
        let asked = json!({ "dry_run": dry_run });
        let answer = ask(&world.path, "POST", "/v1/reload", &asked, PATIENCE).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    };
    let says = |changed: Value, bindings: Value, part: &str| {
        for dry_run in [true, false] {
            let body = reload(dry_run);
            assert_eq!((&body["changed"], &body["bindings"]), (&changed, &bindings), "{body}");
            let sentence = crate::reload::sentence(&body);
            assert!(sentence.contains(part), "{sentence}");
        }
        let again = reload(false);
        assert_eq!((&again["changed"], &again["bindings"]), (&json!([]), &Value::Null));
    };
    let all = lines.len();
    says(json!([]), Value::Null, "different");
    // Another version of the file with the same bindings.
    write("bindings.csv", &lines);
    says(json!([]), Value::Null, "different");
    add(&mut lines, 70, 1, 0x500);
    write("bindings.csv", &lines);
    let exchanged = json!({ "before": all, "after": all + 1 });
    says(json!(["lw4o6"]), exchanged, &format!("other lw4o6 ({all} bindings before, 25 after)"));
    // As many bindings, one with another B4.
    add(&mut lines, 70, 1, 0x501);
    write("bindings.csv", &lines);
    let exchanged = json!({ "before": all + 1, "after": all + 1 });
    says(json!(["lw4o6"]), exchanged, "(25 bindings before, 25 after)");
    // Another file, which has not what a request added.
    let set = [add(&mut Lines::new(), 71, 1, 0x502)];
    assert_eq!(world.change(&json!({ "set": set })).status, 200);
    write("others.csv", &lines);
    let file = world.path.with_file_name("natgate.toml");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    std::fs::write(&file, text.replace("bindings.csv", "others.csv")).expect("it can be written");
    let exchanged = json!({ "before": all + 2, "after": all + 1 });
    says(json!(["lw4o6"]), exchanged, "(26 bindings before, 25 after)");
    world.has_bindings(&lines);
}

#[test]
fn a_broken_file_is_a_problem_until_it_is_mended() {
    let lines = fixed();
    let world = World::with_bindings("bindings-broken", 1, &lines);
    let file = world.path.with_file_name("bindings.csv");
    let mut refresher = Refresher::default();
    let mut written = |text: &str| {
        std::fs::write(&file, text).expect("the file can be written");
        (0..2).for_each(|_| drop(refresher.look(&world.reloader.settings())));
        let health = world.get("/v1/health");
        let alarms = health["alarms"].as_array().expect("alarms").iter();
        let own = alarms.filter(|alarm| alarm["text"].to_string().contains("bindings.csv"));
        let told = own.map(|alarm| {
            assert_eq!((&health["ok"], &alarm["severity"]), (&json!(false), &json!("warning")));
            alarm["text"].as_str().expect("a sentence").to_owned()
        });
        told.collect::<Vec<_>>()
    };
    let good = file_of(&lines);
    assert_eq!(written(&good), [""; 0]);
    let faults = written(&format!("x\ny\n{good}"));
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    let said = "the changed file of bindings is not in force, 2 problems, the first: ";
    assert!(fault.starts_with(said) && fault.contains("bindings.csv:1:"), "{fault}");
    let faults = written(&format!("{good}203.0.113.5,0,6,1,2001:db8:b4::9\n"));
    assert!(faults.len() == 1 && faults[0].contains("1 problem,"), "{faults:?}");
    assert!(faults[0].contains("203.0.113.5 is an external address"), "{faults:?}");
    world.has_bindings(&lines);
    assert_eq!(written(&good), [""; 0]);
    // A reload of a mended file ends the problem, too.
    assert_eq!(written("x").len(), 1);
    std::fs::write(&file, &good).expect("the file can be written");
    world.reloader.reload().expect("a good file");
    let health = world.get("/v1/health");
    assert!(!health["problems"].to_string().contains("bindings.csv"), "{health}");
}
