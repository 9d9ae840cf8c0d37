//! Tests of the interface with a gateway between two devices in memory, which runs in its own
//! threads.

mod bindings;
mod both;
mod pair;
mod pairs;
mod traffic;

use super::*;
use crate::config;
use crate::socket::{Listen, Server, ask, open};
use natgate_engine::{Event, Side, Timestamp};
use natgate_gateway::{
    Clock, Controls, Device, Observer, Settings, Status, Worker, team, team_commands,
};
use natgate_io::memory::{self, Wire};
use natgate_io::{Change, LinkInfo};
use natgate_wire::Ipv4;
use natgate_wire::arp::{Mac, write_ethernet};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);

const CONFIGURATION: &str = "\
[inside]\ndevice = \"in\"\naddress = \"10.0.0.1/8\"\n\
[outside]\ndevice = \"out\"\naddress = \"192.0.2.1/24\"\ngateway = \"192.0.2.254\"\n\
[limits]\nsubscribers = 600000\nunanswered_give_way = false\n\
[[pool]]\nname = \"default\"\naddresses = [\"203.0.113.0/27\"]\n\
[[route]]\nprefix = \"10.200.0.0/16\"\nvia = \"10.0.0.9\"\nside = \"inside\"\n\
[[static]]\ninternal = \"10.0.0.80:80\"\nexternal = \"203.0.113.1:80\"\nprotocol = \"tcp\"\n\
[[rule]]\nkind = \"bypass\"\nmatch = { source = \"10.99.0.0/16\" }\n\
[[rule]]\nkind = \"snat\"\nmatch = { source = \"10.1.0.0/16\", port = 0 }\npool = \"default\"\n";

/// Counts the removed mappings that the gateway reports.
struct Removed(Arc<AtomicU64>);

impl Observer for Removed {
    fn event(&mut self, event: &Event) {
        let removed = matches!(event.change, natgate_engine::Change::MappingRemoved(_));
        self.0.fetch_add(u64::from(removed), Ordering::Relaxed);
    }

    fn link(&mut self, _: Side, _: &LinkInfo, _: &Change) {}

    fn status(&mut self, _: &Status<'_>) {}

    fn idle(&mut self) {}
}

/// An empty folder for a test.
fn folder(test: &str) -> PathBuf {
    let name = format!("natgate-interface-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder can be made");
    folder
}

/// A running gateway and its control socket.
struct World {
    /// The control socket; threads of a test share the world.
    server: Mutex<Option<Server>>,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    wakers: Vec<UnixStream>,
    threads: Vec<JoinHandle<()>>,
    inside: Wire,
    outside: Wire,
    removed: Arc<AtomicU64>,
    interface: Weak<Interface>,
    reloader: Arc<Reloader>,
}

impl World {
    /// Starts a gateway with `workers` workers and `mappings` mappings, four per host.
    fn new(test: &str, workers: usize, mappings: u32) -> Self {
        Self::in_mode(test, workers, mappings, "")
    }

    /// Starts a gateway with additional configuration.
    fn in_mode(test: &str, workers: usize, mappings: u32, more: &str) -> Self {
        let folder = folder(test);
        let count = workers.to_string();
        let text = format!("{CONFIGURATION}{more}[workers]\ncount = {count}\n");
        let file = folder.join("natgate.toml");
        std::fs::write(&file, &text).expect("the file can be written");
        let settings = config::load(&file).expect("the configuration is right");
        Self::with(folder, &file, &settings, mappings)
    }

    fn with(folder: PathBuf, file: &Path, settings: &Settings, mappings: u32) -> Self {
        Self::of_pair(folder, file, settings, mappings, None)
    }

    /// Starts a gateway that may be a node of a pair.
    fn of_pair(
        folder: PathBuf,
        file: &Path,
        settings: &Settings,
        mappings: u32,
        pair: Option<PairAsker>,
    ) -> Self {
        let (clock, count) = (Clock::new(), settings.workers.count);
        let (inside_devices, inside) = memory::group("in", INSIDE, count, |_| 0);
        let (outside_devices, outside) = memory::group("out", OUTSIDE, count, |_| 0);
        let pairs = || -> (Vec<UnixStream>, Vec<UnixStream>) {
            (0..count).map(|_| UnixStream::pair().expect("a pair of sockets")).unzip()
        };
        let (wakes, wakers) = pairs();
        let clones = |all: &[UnixStream]| -> Vec<UnixStream> {
            all.iter().map(|one| one.try_clone().expect("a clone")).collect()
        };
        let (commander, commands) = team_commands(clones(&wakers));
        let mut members: Vec<_> = match count {
            1 => vec![None],
            _ => team(settings, clones(&wakers)).into_iter().map(Some).collect(),
        };
        let devices = inside_devices.into_iter().zip(outside_devices);
        let mut all = Vec::new();
        for ((inside, outside), commands) in devices.zip(commands) {
            let devices: [Box<dyn Device>; 2] = [Box::new(inside), Box::new(outside)];
            let seed = [7; 32];
            let worker = match members.remove(0) {
                None => Worker::new(settings, seed, devices, clock.now()),
                Some(member) => Worker::of_team(settings, seed, devices, member, clock.now()),
            };
            let mut worker = worker.expect("the settings are right");
            worker.obey(commands);
            all.push(worker);
        }
        let removed = Arc::default();
        fill(&mut all, &inside, &outside, &clock, mappings, &removed);
        let loads = Arc::new(Mutex::new(all.iter().map(Worker::load).collect()));
        let stop = Arc::new(AtomicBool::new(false));
        let run = |(mut worker, wake): (Worker, UnixStream)| {
            let (stop, mut observer) = (Arc::clone(&stop), Removed(Arc::clone(&removed)));
            std::thread::spawn(move || {
                wake.set_nonblocking(true).expect("a socket can be set so");
                let status = AtomicBool::new(false);
                let controls = Controls { stop: &stop, status: &status, wake: &wake };
                natgate_gateway::run(&mut worker, &clock, &controls, &mut observer)
                    .expect("the gateway runs");
            })
        };
        let threads = all.into_iter().zip(wakes).map(run).collect();
        let (open, join) =
            (Box::new(|_: &str| Err("none".into())), Box::new(|_: &_, _: &_| Ok(())));
        let complete = settings.clone();
        let reloader = Reloader::new(file, settings.clone(), complete, commander, open, join);
        let reloader = Arc::new(reloader);
        let interface = Interface::new(Arc::clone(&reloader), loads).paired(pair);
        let interface = Arc::new(interface);
        let weak = Arc::downgrade(&interface);
        let router = Interface::complete(interface.router());
        let path = folder.join("control.sock");
        let server = Server::start(Listen::unix(&path), router).expect("the socket can be made");
        let server = Mutex::new(Some(server));
        let interface = weak;
        Self { server, path, stop, wakers, threads, inside, outside, removed, interface, reloader }
    }

    fn ask(&self, method: &str, path: &str) -> Response {
        ask(&self.path, method, path, &Value::Null, PATIENCE).expect("an answer")
    }

    fn get(&self, path: &str) -> Value {
        let Response { status, body } = self.ask("GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// The entries of a list in lines.
    fn lines(&self, path: &str) -> Vec<Value> {
        let accept = [("Accept", "application/x-ndjson")];
        let reply = open(&self.path, "GET", path, &accept, &Value::Null, PATIENCE);
        let lines = BufReader::new(reply.expect("an answer")).lines();
        let lines = lines.map(|line| line.expect("it comes whole"));
        lines.map(|line| serde_json::from_str(&line).expect("an object a line")).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wakers.iter().for_each(|mut waker| waker.write_all(&[0]).expect("it wakes"));
        // The command queues end with the workers, so no client waits for an answer.
        self.threads.drain(..).for_each(|thread| thread.join().expect("a worker ends well"));
        drop(self.server.get_mut().map(Option::take));
    }
}

/// A datagram from an internal host.
fn frame(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; ETHERNET_LEN + 28];
    let mut header = [0; ETHERNET_LEN];
    write_ethernet(&mut header, INSIDE, Mac([2, 0, 0, 0, 1, 5]), ethertype::IPV4);
    bytes[..ETHERNET_LEN].copy_from_slice(&header);
    let mut packet = Ipv4::init(&mut bytes[ETHERNET_LEN..], 20);
    packet.set_total_len(28);
    packet.set_ttl(64);
    packet.set_protocol(17);
    packet.set_source(Ipv4Addr::new(10, 0, 1, 0).to_bits() + number / 4);
    packet.set_destination(Ipv4Addr::new(198, 51, 100, 7).to_bits());
    packet.fill_checksum();
    let port = 4000 + (number % 4) as u16;
    bytes[ETHERNET_LEN + 20..][..2].copy_from_slice(&port.to_be_bytes());
    bytes[ETHERNET_LEN + 22..][..4].copy_from_slice(&[0, 53, 0, 8]);
    bytes
}

/// Lets hosts send datagrams through workers that do not run yet.
fn fill(
    workers: &mut [Worker],
    inside: &Wire,
    outside: &Wire,
    clock: &Clock,
    mappings: u32,
    removed: &Arc<AtomicU64>,
) {
    let mut observer = Removed(Arc::clone(removed));
    let turn = |workers: &mut [Worker], observer: &mut Removed, now: Timestamp| {
        for worker in &mut *workers {
            worker.turn(now, observer);
        }
        while outside.take().is_some() || inside.take().is_some() {}
    };
    for number in 0..mappings {
        if !inside.send(&frame(number)) {
            for _ in 0..16 {
                turn(workers, &mut observer, clock.now());
            }
            assert!(inside.send(&frame(number)));
        }
    }
    for _ in 0..32 {
        turn(workers, &mut observer, clock.now());
    }
}

#[test]
fn what_the_schema_describes_is_what_is_served() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let described: BTreeSet<(String, String)> = schema["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(|method| (path.clone(), method.clone()))
        })
        .collect();
    let routed = include_str!("mod.rs").lines().filter_map(|line| {
        let (path, rest) = line.trim().strip_prefix(".route(\"")?.split_once("\", ")?;
        Some((path.to_owned(), rest.split_once('(')?.0.to_owned()))
    });
    let routed: BTreeSet<(String, String)> = routed.collect();
    assert!(routed.len() > 10);
    let missing: Vec<_> = routed.difference(&described).collect();
    assert!(missing.is_empty(), "not in schema.json: {missing:?}");
    // Every path is in the documentation, too.
    let documentation = include_str!("../../../../docs/control.md");
    for (path, method) in &routed {
        let heading = format!("## {} {path}\n", method.to_uppercase());
        assert!(documentation.contains(&heading), "not in docs/control.md: {heading}");
    }
    let world = World::new("schema", 1, 0);
    assert_eq!(world.get("/v1/schema"), schema);
    // Routers of other crates are merged where all paths are served.
    for (path, method) in described.intersection(&routed) {
        let other = if method == "get" { "DELETE" } else { "GET" };
        assert_eq!(world.ask(other, path).status, 405, "{path}");
    }
    assert_eq!(world.ask("GET", "/v1/nothing").status, 404);
}

/// A forwarded port of another host, in a block that a subscriber has: the refusal names the line.
#[test]
fn a_port_in_a_subscribers_block_is_refused_at_its_line() {
    let more = "[nat]\nallocation = \"block\"\n[nat.block]\nsize = 512\n";
    for workers in [1, 2] {
        let world = World::in_mode(&format!("blocks-{workers}"), workers, 4, more);
        let blocks = world.get("/v1/blocks");
        let all = blocks["blocks"].as_array().expect("a list").clone();
        let of_guest = all.iter().find(|block| block["subscriber"] == "10.0.1.0");
        let block = of_guest.unwrap_or_else(|| panic!("{blocks}"));
        let first_of = |block: &Value| -> Option<u64> {
            block["ports"].as_str()?.split_once('-')?.0.parse().ok()
        };
        let address = block["external"].as_str().expect("an address");
        let first = first_of(block).unwrap_or_else(|| panic!("{block}"));
        let file = world.path.with_file_name("natgate.toml");
        let before = std::fs::read_to_string(&file).expect("the file is there");
        let fixed = |port: u64| {
            let end = format!("internal = \"10.0.0.81:80\"\nexternal = \"{address}:{port}\"\n");
            format!("{before}[[static]]\n{end}")
        };
        std::fs::write(&file, fixed(first + 7)).expect("the file can be written");
        let line = fixed(first + 7).lines().count();
        let message = format!(
            "{address}:{} is in block {first}-{} of {address}, which subscriber 10.0.1.0 has now; \
             use a port in no block or in a free one, reload when the block is released, or \
             restart natgate",
            first + 7,
            first + 511,
        );
        for dry_run in [true, false] {
            let body = serde_json::json!({ "dry_run": dry_run });
            let Response { status, body } =
                ask(&world.path, "POST", "/v1/reload", &body, PATIENCE).expect("an answer");
            let problem = &body["errors"][0];
            assert_eq!(status, 422, "{body}");
            assert_eq!(
                (&problem["line"], &problem["column"]),
                (&line.into(), &12.into()),
                "{body}"
            );
            assert_eq!(problem["key"], "static[1].external");
            assert_eq!(problem["message"], message);
        }
        // Larger blocks are named as such.
        let larger = before.replace("size = 512", "size = 1024");
        std::fs::write(&file, larger).expect("the file can be written");
        let body = serde_json::json!({ "dry_run": true });
        let tried = ask(&world.path, "POST", "/v1/reload", &body, PATIENCE).expect("an answer");
        assert_eq!(tried.body["changed"], serde_json::json!(["nat.block"]), "{}", tried.body);
        // A block of nobody changes hands without a restart.
        let is_free = |port: &u64| {
            let has =
                |block: &Value| block["external"] == address && first_of(block) == Some(*port);
            !all.iter().any(has)
        };
        let free = (1..100).map(|block| 1024 + 512 * block).find(is_free).expect("a block is free");
        std::fs::write(&file, fixed(free)).expect("the file can be written");
        let done = ask(&world.path, "POST", "/v1/reload", &Value::Null, PATIENCE);
        let Response { status, body } = done.expect("an answer");
        assert_eq!((status, &body["changed"]), (200, &serde_json::json!(["static"])), "{body}");
        let blocks = world.get("/v1/blocks?subscriber=10.0.0.81");
        assert_eq!(first_of(&blocks["blocks"][0]), Some(free), "{blocks}");
    }
}

#[test]
fn lists_have_what_there_is() {
    for workers in [1, 2] {
        let world = World::new(&format!("lists-{workers}"), workers, 5000);
        let all = world.lines("/v1/mappings");
        assert_eq!(all.len(), 5001, "{workers}");
        let object = world.get("/v1/mappings?limit=10000");
        assert_eq!(object["mappings"].as_array().map(Vec::len), Some(5001));
        assert_eq!(object["more"], false);
        let usual = world.get("/v1/mappings");
        assert_eq!(usual["mappings"].as_array().map(Vec::len), Some(1000));
        assert_eq!(usual["more"], true);
        assert_eq!(world.get("/v1/mappings?limit=5001")["more"], false);
        assert_eq!(world.lines("/v1/sessions").len(), 5000);
        let subscribers = world.lines("/v1/subscribers");
        assert_eq!(subscribers.len(), 1250);
        assert!(subscribers.iter().all(|one| one["mappings"]["udp"] == 4 && one["sessions"] == 4));
        // With any number of clients at once, each gets the number of entries that it asked for.
        std::thread::scope(|scope| {
            for top in 1..=8 {
                let socket = &world.path;
                scope.spawn(move || {
                    let path = format!("/v1/subscribers?top={top}");
                    let answer = ask(socket, "GET", &path, &Value::Null, PATIENCE);
                    let answer = answer.expect("an answer").body;
                    let hosts: Vec<_> =
                        answer["subscribers"].as_array().into_iter().flatten().collect();
                    assert_eq!((hosts.len(), &answer["more"]), (top, &true.into()));
                    assert_eq!(hosts[0]["subscriber"], "10.0.1.0");
                });
            }
        });
        let few = world.get("/v1/subscribers?top=1000&subscriber=10.0.1.7");
        assert_eq!(few["subscribers"].as_array().map(Vec::len), Some(1));
        assert_eq!(few["more"], false);
        let own = world.get("/v1/mappings?subscriber=10.0.1.7");
        assert_eq!(own["mappings"].as_array().map(Vec::len), Some(4));
        let one = &own["mappings"][2];
        let external = one["external"].as_str().expect("an endpoint");
        let found = world.get(&format!("/v1/mappings?external={external}&protocol=udp"));
        assert_eq!(found["mappings"].as_array().map(Vec::len), Some(1));
        assert_eq!(found["mappings"][0]["internal"], one["internal"]);
        let who = world.get(&format!("/v1/who?external={external}"));
        assert_eq!(who["answers"][0]["subscriber"], "10.0.1.7");
        let fixed = world.get("/v1/who?external=203.0.113.1:80&protocol=tcp");
        assert_eq!(fixed["answers"].as_array().map(Vec::len), Some(1));
        assert_eq!(fixed["answers"][0]["kind"], "static");
        // Without a protocol, the answer has that of the static mapping.
        let of_all = world.get("/v1/who?external=203.0.113.1:80");
        assert_eq!(of_all["answers"].as_array().map(Vec::len), Some(1), "{of_all}");
        assert_eq!(of_all["answers"][0]["protocol"], "tcp");
        let all = world.get("/v1/who?subscriber=10.0.1.7");
        assert_eq!(
            (&all["answers"].as_array().map(Vec::len), &all["more"]),
            (&Some(4), &json!(false))
        );
        let has =
            |answer: &Value| answer["internal"] == one["internal"] && answer["by"] == "mapping";
        assert!(all["answers"].as_array().is_some_and(|all| all.iter().any(has)), "{all}");
        let nobody = world.ask("GET", "/v1/who?subscriber=10.200.0.1");
        assert_eq!(nobody.status, 404);
        let nobody = world.ask("GET", "/v1/who?external=203.0.113.31:1");
        assert_eq!(nobody.status, 404);
        let message = nobody.body["message"].as_str().unwrap_or_default();
        assert!(message.ends_with("no mapping has it now"), "{message}");
    }
}

/// Clears all mappings and asks for the owner of a port of a former mapping.
fn whose_after_clearing(world: &World) -> (String, Response) {
    let external = world.get("/v1/mappings?subscriber=10.0.1.7&limit=1")["mappings"][0]["external"]
        .as_str()
        .expect("a mapping")
        .to_owned();
    let found = world.get(&format!("/v1/who?external={external}"));
    assert_eq!(found["answers"][0]["by"], "mapping", "{found}");
    assert_eq!(world.ask("POST", "/v1/clear?what=mappings").status, 200);
    let answer = world.ask("GET", &format!("/v1/who?external={external}"));
    (external, answer)
}

#[test]
fn a_port_without_a_mapping_belongs_to_the_owner_of_its_block() {
    let blocks = "[nat]\nallocation = \"block\"\n[nat.block]\nsize = 64\n";
    for workers in [1, 2] {
        let world = World::in_mode(&format!("owners-{workers}"), workers, 400, blocks);
        let owners = world.lines("/v1/blocks");
        let hosts: BTreeSet<&str> =
            owners.iter().map(|block| block["subscriber"].as_str().expect("an owner")).collect();
        assert_eq!((owners.len(), hosts.len()), (100, 100), "four mappings of each host");
        let used = |block: &Value| block["used"]["udp"].as_u64().expect("a count");
        assert!(owners.iter().all(|block| used(block) == 4 && block["kind"] == "block"));
        let (external, answer) = whose_after_clearing(&world);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let owner = &answer.body["answers"][0];
        assert_eq!((&owner["subscriber"], &owner["by"]), (&json!("10.0.1.7"), &json!("block")));
        assert_eq!(owner["held"]["udp"], 4, "{owner}");
        let rest = owner["resting"][0]["for_s"].as_f64().expect("it rests");
        assert!(owner["resting"][0]["protocol"] == "udp" && rest <= 120.5, "{owner}");
        let (address, port) = external.split_once(':').expect("an endpoint");
        let found = world.get(&format!("/v1/blocks?external={address}:{port}"));
        assert_eq!(found["blocks"][0]["subscriber"], "10.0.1.7", "{found}");
        let prefix = world.get("/v1/blocks?subscriber=10.0.1.0/30");
        assert_eq!(prefix["blocks"].as_array().map(Vec::len), Some(4), "{prefix}");
    }
}

#[test]
fn deterministic_ranges_are_listed_with_and_without_mappings() {
    let mode = "[nat]\nallocation = \"deterministic\"\n\
                subscribers = [\"10.0.0.0/23\", \"10.1.0.0/23\"]\n";
    for workers in [1, 2] {
        let world = World::in_mode(&format!("ranges-{workers}"), workers, 400, mode);
        let ranges = world.lines("/v1/blocks");
        assert_eq!(ranges.len(), 1024, "each subscriber of the pool once");
        let hosts: BTreeSet<&str> =
            ranges.iter().map(|range| range["subscriber"].as_str().expect("an owner")).collect();
        assert_eq!(hosts.len(), 1024);
        assert!(ranges.iter().all(|range| range["kind"] == "deterministic"));
        let used = |range: &&Value| range["used"]["udp"].as_u64() == Some(4);
        assert_eq!(ranges.iter().filter(used).count(), 100);
        let unused = world.get("/v1/blocks?subscriber=10.1.1.255");
        let range = &unused["blocks"][0];
        // 64,512 ports for 32 subscribers of an address: 2,016 each.
        assert_eq!(range["external"], "203.0.113.31", "{unused}");
        assert_eq!(range["ports"], "63520-65535");
        let none = json!({ "tcp": 0, "udp": 0, "icmp": 0, "dccp": 0 });
        assert_eq!((&range["used"], &range["held"], &range["age_s"]), (&none, &none, &json!(null)));
        let owner = world.get("/v1/blocks?external=203.0.113.31:65535");
        assert_eq!(owner["blocks"], unused["blocks"]);
        let part = world.get("/v1/blocks?limit=10");
        assert_eq!(part["blocks"].as_array().map(Vec::len), Some(10));
        assert_eq!(part["more"], true);
        let usual = world.get("/v1/blocks");
        assert_eq!(usual["blocks"].as_array().map(Vec::len), Some(1000));
        assert_eq!(usual["more"], true);
    }
}

#[test]
fn a_port_in_hold_down_is_said_to_rest() {
    for workers in [1, 2] {
        let world = World::new(&format!("rest-{workers}"), workers, 400);
        let (_, answer) = whose_after_clearing(&world);
        assert_eq!(answer.status, 404, "{}", answer.body);
        let message = answer.body["message"].as_str().expect("a sentence");
        assert!(message.contains("nobody has it now; it is in hold-down for udp, "), "{message}");
        let until = answer.body["resting"][0]["until"].as_f64().expect("a time");
        assert!(until > 0.0 && world.lines("/v1/blocks").is_empty());
    }
}

#[test]
fn prefixes_and_remote_endpoints_are_filters() {
    let world = World::new("prefixes", 2, 400);
    let count = |list: &str, filter: &str| world.lines(&format!("/v1/{list}?{filter}")).len();
    assert_eq!(count("mappings", "subscriber=10.0.1.0/30"), 16);
    assert_eq!(count("subscribers", "subscriber=10.0.1.0/30"), 4);
    let remote = world.lines("/v1/sessions")[0]["remote"].as_str().expect("a remote").to_owned();
    let with_remote = count("sessions", &format!("remote={remote}"));
    assert!(with_remote > 0);
    assert_eq!(count("mappings", &format!("remote={remote}")), with_remote);
    assert_eq!(count("sessions", "remote=192.0.2.240/28"), 0);
    assert_eq!(count("mappings", "external=192.0.2.0/24"), 0);
    assert_eq!(count("mappings", "external=203.0.113.0/24"), 401);
    let cleared = world.ask("POST", "/v1/clear?what=mappings&subscriber=10.0.1.0/30");
    assert_eq!(cleared.body["cleared"], 16, "{}", cleared.body);
    let cleared = world.ask("POST", "/v1/clear?what=sessions&remote=192.0.2.240/28");
    assert_eq!(cleared.body["cleared"], 0, "{}", cleared.body);
}

#[test]
fn figures_add_up() {
    for workers in [1, 2] {
        let world = World::new(&format!("figures-{workers}"), workers, 800);
        let counters = world.get("/v1/counters");
        assert_eq!(
            counters["packets"]["outbound"]["forwarded"].as_u64().map(|n| n > 0),
            Some(true)
        );
        assert!(counters["router"]["arp_asked"].as_u64() > Some(0));
        let status = world.get("/v1/status");
        assert_eq!(status["mappings"]["now"], 800);
        assert_eq!(status["subscribers"]["now"], 200);
        assert_eq!(status["workers"], workers);
        assert_eq!(status["devices"].as_array().map(Vec::len), Some(2));
        assert_eq!(status["devices"][0]["received"], 800);
        let pools = world.get("/v1/pools");
        let pool = &pools["pools"][0];
        assert_eq!((&pool["name"], &pool["addresses"]), (&json!("default"), &json!(32)));
        assert_eq!((&pool["mappings"], &pool["subscribers"]), (&json!(800), &json!(200)));
        assert_eq!(pool["taken"]["udp"], 800);
        let states = ["used", "held", "reserved"].map(|state| pool[state]["udp"].as_u64());
        assert_eq!(states, [Some(800), Some(0), Some(0)]);
        let share = 800.0 / (32.0 * 64_512.0);
        let told = pool["in_use"]["udp"].as_f64().expect("a share");
        assert!((told - share).abs() < 1e-12, "{pool}");
        assert_eq!(pool["ports"], 32 * 64_512);
        let addresses = world.get("/v1/addresses");
        let addresses = addresses["addresses"].as_array().expect("a list");
        let mappings: u64 = addresses.iter().filter_map(|one| one["mappings"].as_u64()).sum();
        assert_eq!((addresses.len(), mappings), (32, 800));
        let used: u64 = addresses.iter().filter_map(|one| one["used"]["udp"].as_u64()).sum();
        assert_eq!(used, 800);
        assert_eq!(world.get("/v1/addresses?limit=3")["more"], true);
        let neighbors = world.get("/v1/neighbors");
        assert_eq!(neighbors["neighbors"][0]["side"], "outside");
        assert_eq!(neighbors["neighbors"][0]["address"], "192.0.2.254");
        let list = world.get("/v1/workers");
        assert_eq!(list["workers"].as_array().map(Vec::len), Some(workers));
        let routes = world.get("/v1/routes");
        let origins: Vec<_> = routes["routes"].as_array().expect("a list").iter().collect();
        assert_eq!(origins.len(), 4);
        assert_eq!(origins[3]["prefix"], "10.200.0.0/16");
        let rules = world.get("/v1/rules");
        assert_eq!(rules["rules"].as_array().map(Vec::len), Some(2));
        assert_eq!(rules["rules"][0]["kind"], "bypass");
        assert_eq!(rules["rules"][1]["pool"], "default");
        assert_eq!(world.get("/v1/rules?limit=1")["more"], true);
    }
}

#[test]
fn what_is_cleared_goes_and_is_told() {
    for workers in [1, 2] {
        let world = World::new(&format!("clear-{workers}"), workers, 400);
        let cleared = world.ask("POST", "/v1/clear?what=mappings&subscriber=10.0.1.3");
        assert_eq!((cleared.status, &cleared.body["cleared"]), (200, &json!(4)));
        assert_eq!(world.lines("/v1/mappings").len(), 397);
        let all = world.ask("POST", "/v1/clear?what=sessions");
        assert_eq!(all.body["cleared"], 396);
        assert_eq!(world.lines("/v1/mappings").len(), 1);
        // The worker reports events in its next turns.
        while world.removed.load(Ordering::Relaxed) < 400 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(world.get("/v1/status")["mappings"]["now"], 0);
        // The ports have no owner, and are not assigned for a while.
        let pools = world.get("/v1/pools");
        let states = ["taken", "used", "held", "reserved"]
            .map(|state| pools["pools"][0][state]["udp"].as_u64().expect("a number"));
        assert_eq!(states, [400, 0, 400, 0]);
        // Ports in hold-down are not in use.
        assert_eq!(pools["pools"][0]["in_use"]["udp"], 0.0);
        let addresses = world.get("/v1/addresses");
        let addresses = addresses["addresses"].as_array().expect("a list");
        assert_eq!(
            addresses.iter().filter_map(|one| one["held"]["udp"].as_u64()).sum::<u64>(),
            400
        );
    }
}

#[test]
fn wrong_questions_get_a_sentence() {
    let world = World::new("wrong", 1, 1);
    for (method, path, status, said) in [
        ("GET", "/v1/mappings?subscirber=10.0.0.5", 400, "did you mean subscriber?"),
        ("GET", "/v1/mappings?realm=blue", 404, "there is no realm \"blue\""),
        ("GET", "/v1/subscribers?external=203.0.113.1:9", 400, "GET /v1/who says"),
        ("GET", "/v1/counters?limit=4", 400, "nor any other"),
        ("GET", "/v1/who?external=203.0.113.1", 400, "external=ADDRESS:PORT"),
        ("GET", "/v1/who", 400, "external=ADDRESS:PORT"),
        ("GET", "/v1/who?subscriber=10.0.0.0/24", 400, "subscriber is one address here"),
        ("GET", "/v1/who?subscriber=10.0.0.5&external=203.0.113.1:80", 400, "not both"),
        ("GET", "/v1/who?subscriber=10.0.0.5&at=now", 400, "at needs external=ADDRESS:PORT"),
        ("GET", "/v1/who?external=203.0.113.1:80&at=10m", 400, "has no sign; write -10m"),
        (
            "GET",
            "/v1/who?external=203.0.113.1:80&protocol=x",
            400,
            "tcp, udp, icmp, dccp, gre, esp, sctp or a number",
        ),
        ("POST", "/v1/clear", 400, "what=mappings or what=sessions"),
        ("POST", "/v1/clear?what=all", 400, "mappings or sessions"),
        ("POST", "/v1/clear?what=mappings&limit=3", 400, "there is no parameter \"limit\""),
        ("GET", "/v1/clear?what=mappings", 405, "does not take GET"),
        ("GET", "/v2/mappings", 404, "GET /v1/schema has the list"),
    ] {
        let answer = world.ask(method, path);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(answer.status == status && message.contains(said), "{path}: {answer:?}");
    }
    assert!(world.get("/v1/mappings?subscriber=10.77.0.1")["mappings"] == json!([]));
}

#[test]
fn a_thousand_clients_and_rubbish_between_them() {
    let world = World::new("thousand", 2, 2000);
    let clients: Vec<UnixStream> = (0..1000)
        .map(|number| {
            let mut stream = UnixStream::connect(&world.path).expect("the server listens");
            let path = ["counters", "mappings?limit=50", "who?external=203.0.113.1:80", "pools"];
            let request = match number % 5 {
                4 => "\u{0}\u{1}garbage\r\n\r\n".to_owned(),
                kind => format!(
                    "GET /v1/{} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                    path[kind]
                ),
            };
            stream.write_all(request.as_bytes()).expect("it is taken");
            stream
        })
        .collect();
    for (number, mut stream) in clients.into_iter().enumerate() {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = if number % 5 == 4 { "400" } else { "200" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{number}: {answer}");
    }
}

#[test]
fn a_slow_reader_of_a_big_table_stalls_nobody() {
    const MAPPINGS: u32 = 1_000_000;
    let world = World::new("big", 1, MAPPINGS);
    let accept = [("Accept", "application/x-ndjson")];
    let slow = open(&world.path, "GET", "/v1/mappings", &accept, &Value::Null, PATIENCE);
    let mut slow = BufReader::new(slow.expect("it begins"));
    let mut first = String::new();
    slow.read_line(&mut first).expect("a line");
    // The client stops reading. The worker translates, and answers other clients.
    let outbound = || world.get("/v1/counters")["packets"]["outbound"].clone();
    let before = outbound();
    for number in 0..100 {
        assert!(world.inside.send(&frame(number)));
    }
    let mut waker = &world.wakers[0];
    waker.write_all(&[0]).expect("it wakes");
    while outbound() == before {
        while world.outside.take().is_some() {}
        std::thread::sleep(Duration::from_millis(5));
    }
    let who = world.get("/v1/mappings?subscriber=10.0.1.7&limit=4");
    assert_eq!(who["mappings"].as_array().map(Vec::len), Some(4));
    // Afterwards the client gets the complete list.
    let lines: Result<Vec<_>, _> = slow.lines().collect();
    assert_eq!(lines.expect("lines").len() as u32 + 1, MAPPINGS + 1);
}

/// The states of one part of the health.
fn states(health: &Value, list: &str) -> Vec<String> {
    let all = health[list].as_array().expect(list);
    all.iter().map(|one| one["state"].as_str().expect("a word").to_owned()).collect()
}

#[test]
fn health_tells_links_next_hops_and_workers() {
    let world = World::new("health", 2, 4);
    let health = world.get("/v1/health");
    // No host answers for the next hop outside. After a while the router stops asking.
    let hops = states(&health, "next_hops");
    let problems = match hops[1].as_str() {
        "unresolved" => json!(["next hop 192.0.2.254 does not answer ARP"]),
        _ => json!([]),
    };
    assert_eq!((&hops[0][..], &health["problems"]), ("unasked", &problems), "{health}");
    assert_eq!(health["ok"], problems == json!([]), "{health}");
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    let alarms = health["alarms"].as_array().expect("a list");
    let texts: Vec<&Value> = alarms.iter().map(|alarm| &alarm["text"]).collect();
    assert_eq!(json!(texts), problems, "{health}");
    assert!(alarms.iter().all(|alarm| alarm["since"].is_number()), "{health}");
    assert_eq!(states(&health, "links"), ["up", "up"]);
    assert_eq!(states(&health, "workers"), ["alive", "alive"]);
    assert!(health["workers"][0]["busy"].is_number(), "{health}");
    assert_eq!(health["routes"], json!({ "announced": null, "learnt": null }));
}
