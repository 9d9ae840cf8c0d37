//! Questions about the present and about earlier times at a node of a pair.

use super::super::partner_table::{TableReply, question, read_question};
use super::*;
use crate::partner_log::{AskPartner, NodeReply, PastQuestion};
use natgate_engine::{Endpoint, MappingId, MappingKind};
use natgate_gateway::SpoolSettings;
use natgate_gateway::fleet::{FleetStatus, SliceSettings, SliceStatus};
use natgate_logs::{Record, Sink, Span, SpoolSink};
use serde_json::json;
use std::net::SocketAddrV4;

/// Configuration of node a. `spool` is where its log should be.
fn configuration(folder: &Path, spool: &Path) -> String {
    format!(
        "[inside]\ndevice = \"in\"\naddress = \"10.0.0.1/8\"\n\
         [outside]\ndevice = \"out\"\naddress = \"192.0.2.1/24\"\ngateway = \"192.0.2.254\"\n\
         [[pool]]\naddresses = [\"203.0.113.0/28\"]\n\
         [[slice]]\naddresses = [\"203.0.113.0/29\"]\nowner = \"a\"\n\
         [[slice]]\naddresses = [\"203.0.113.8/29\"]\nowner = \"b\"\n\
         [fleet]\nnode = \"a\"\nlisten = \"10.99.0.1:7600\"\ncertificate = \"/a.pem\"\n\
         key = \"/a.key\"\nauthorities = \"/ca.pem\"\n\
         partner = {{ node = \"b\", address = \"10.99.0.2:7600\" }}\n\
         [workers]\ncount = 1\n[state]\nfile = {:?}\n\
         [[log]]\nkind = \"spool\"\nfolder = {spool:?}\n",
        folder.join("ports")
    )
}

/// Node a, whose log cannot be read. The other node gives a reply, or none for a reason.
fn unreadable(name: &str, reply: Result<NodeReply, String>) -> (World, PathBuf) {
    let name = format!("natgate-interface-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder can be made");
    let (file, spool) = (folder.join("natgate.toml"), folder.join("spool"));
    std::fs::write(&file, configuration(&folder, &spool)).expect("the file can be written");
    let settings = config::load(&file).unwrap_or_else(|problems| panic!("{problems:?}"));
    // A file is in the folder's place.
    std::fs::write(&spool, "").expect("the file can be written");
    let reply = reply.map(|reply| reply.write());
    let ask = Arc::new(move |_: Vec<u8>, _: &dyn Fn() -> bool| reply.clone());
    let pair = PairAsker { state: Arc::new(|| None), ask };
    (World::of_pair(folder, &file, &settings, 0, Some(pair)), spool)
}

#[test]
fn a_log_that_cannot_be_read_does_not_say_that_nobody_had_the_endpoint() {
    let nobody = NodeReply { searched: true, ..NodeReply::default() };
    for (name, reply) in [("away", Err("it is not connected".to_owned())), ("none", Ok(nobody))] {
        let (world, spool) = unreadable(name, reply);
        let Response { status, body } =
            world.ask("GET", "/v1/who?external=203.0.113.1:2300&protocol=udp&at=5.0");
        let path = spool.to_str().expect("text");
        assert_eq!(status, 500, "{body}");
        assert!(body["message"].as_str().is_some_and(|it| it.contains(path)), "{body}");
    }
}

#[test]
fn a_node_that_cannot_read_its_log_asks_the_other_one_and_tells_it_no_path() {
    const EXTERNAL: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 1), 2300);
    let holder = json!({
        "subscriber": "10.0.0.5", "protocol": "udp", "external": "203.0.113.1", "ports": "2300",
        "since": 2.0, "until": 9.0,
    });
    let reply = NodeReply {
        searched: true,
        answers: vec![holder],
        covered: vec![Span { from: 1.0, until: 9.0 }],
        ..NodeReply::default()
    };
    let (world, spool) = unreadable("pair", Ok(reply));

    let answer = world.get("/v1/who?external=203.0.113.1:2300&protocol=udp&at=5.0");
    assert_eq!(answer["answers"][0]["subscriber"], "10.0.0.5", "{answer}");
    assert_eq!(answer["answers"][0]["node"], "b");
    assert_eq!(answer["not_asked"], json!(["a"]));
    let path = spool.to_str().expect("text");
    assert!(answer["nodes"][0]["reason"].as_str().is_some_and(|it| it.contains(path)), "{answer}");

    let question =
        PastQuestion { external: EXTERNAL, protocol: Some(17), at: Timestamp(5_000_000_000) };
    let interface = world.interface.upgrade().expect("it serves");
    let bytes = interface.answerer()(&question.write(), &|| true).expect("a reply");
    let reply = NodeReply::read(&bytes, &question).expect("a reply");
    assert!(!reply.searched && reply.answers.is_empty(), "{reply:?}");
    assert_eq!(reply.reason.as_deref(), Some("its log cannot be read"));
}

/// Writes the log of node a: a mapping since 2 s, and a start at 4 s.
fn write_log(spool: &Path) {
    let to = SpoolSettings {
        folder: spool.to_owned(),
        max_size: 1 << 20,
        max_age: Duration::from_secs(1 << 30),
    };
    let mapping = |number, port| MappingId {
        protocol: 17,
        realm: 0,
        internal: Endpoint { address: Ipv4Addr::new(10, 0, 0, number), port: 4000 },
        external: Endpoint { address: Ipv4Addr::new(203, 0, 113, 1), port },
        kind: MappingKind::Dynamic,
    };
    for (start, time, mapping) in [(1, 2, mapping(5, 2300)), (4, 6, mapping(6, 2301))] {
        let at = |seconds: u64| Timestamp(seconds * 1_000_000_000);
        let mut sink = SpoolSink::open(&to, true).expect("a spool");
        sink.connect(at(start)).expect("a start");
        let change = natgate_engine::Change::MappingCreated(mapping);
        let record = Record::Event(Event { time: at(time), change });
        let (written, result) = sink.write(&[record], &natgate_logs::Names::default(), at(time));
        assert!(written == 1 && result.is_ok());
        sink.flush(at(time)).expect("it is written");
    }
}

#[test]
fn a_mapping_that_a_stop_cut_is_a_doubt_or_was_continued() {
    let holder = json!({
        "subscriber": "10.0.0.5", "protocol": "udp", "internal": "10.0.0.5:4000",
        "external": "203.0.113.1", "ports": "2300", "since": null, "until": 9.0,
    });
    let path = "/v1/who?external=203.0.113.1:2300&protocol=udp&at=5.0";
    for (name, ended) in [("cut", vec![]), ("continued", vec![holder])] {
        let is_continued = !ended.is_empty();
        let reply = NodeReply { searched: true, ended, ..NodeReply::default() }.write();
        let world = node(name, Arc::new(move |_, _| Ok(reply.clone())));
        write_log(&world.path.with_file_name("spool"));
        let Response { status, body } = world.ask("GET", path);
        let said = "by the log of node a, 10.0.0.5 had it when the node stopped at \
            1970-01-01T00:00:02.000Z, and node b may have continued it";
        let doubts = body["doubts"].as_array().expect("a list");
        assert_eq!(doubts.contains(&json!(said)), !is_continued, "{body}");
        if is_continued {
            let answer = &body["answers"][0];
            assert_eq!((&answer["since"], &answer["until"]), (&json!(2.0), &json!(9.0)), "{body}");
            assert_eq!((&answer["subscriber"], &answer["node"]), (&json!("10.0.0.5"), &json!("a")));
        } else {
            assert!(status == 404 && body["message"].as_str().is_some_and(|it| it.contains(said)));
        }
        // As the other node gets it.
        let question = PastQuestion {
            external: (Ipv4Addr::new(203, 0, 113, 1), 2300),
            protocol: Some(17),
            at: Timestamp(5_000_000_000),
        };
        let interface = world.interface.upgrade().expect("it serves");
        let bytes = interface.answerer()(&question.write(), &|| true).expect("a reply");
        let reply = NodeReply::read(&bytes, &question).expect("a reply");
        assert_eq!((reply.answers.len(), reply.cut.len()), (0, 1), "{reply:?}");
        assert_eq!((&reply.cut[0]["cut"], &reply.cut[0]["until"]), (&json!(2.0), &Value::Null));
    }
}

/// State of node a, which owns the first of its slices.
fn state(settings: &Settings) -> FleetStatus {
    let fleet = settings.fleet.as_ref().expect("it is one of a pair");
    let slice = |slice: &SliceSettings| SliceStatus {
        addresses: slice.addresses.clone(),
        owner: Some(slice.owner.clone()),
        role: if slice.owner == "a" { "owner" } else { "partner" },
        assigns: slice.owner == "a",
        ..SliceStatus::default()
    };
    FleetStatus {
        node: fleet.node.clone(),
        partner: fleet.partner.node.clone(),
        slices: fleet.slices.iter().map(slice).collect(),
        ..FleetStatus::default()
    }
}

/// Node a with 40 mappings in slices of both nodes, of which it owns the first. `ask` asks node b.
fn node(name: &str, ask: Arc<AskPartner>) -> World {
    let folder = folder(name);
    let (file, spool) = (folder.join("natgate.toml"), folder.join("spool"));
    std::fs::write(&file, configuration(&folder, &spool)).expect("the file can be written");
    let settings = config::load(&file).unwrap_or_else(|problems| panic!("{problems:?}"));
    let state = state(&settings);
    let pair = PairAsker { state: Arc::new(move || Some(state.clone())), ask };
    World::of_pair(folder, &file, &settings, 40, Some(pair))
}

/// A mapping of the world: its external endpoint, and its subscriber.
fn mapping_in(world: &World, is_own: bool) -> (String, String) {
    let mappings = world.lines("/v1/mappings");
    let one = mappings.iter().find(|one| one["copy"] != is_own).expect("a mapping");
    let word = |key: &str| one[key].as_str().expect("a text").to_owned();
    let internal: SocketAddrV4 = word("internal").parse().expect("an endpoint");
    (word("external"), internal.ip().to_string())
}

#[test]
fn the_present_owner_is_asked_of_both_nodes() {
    let answer = |external: Ipv4Addr| {
        json!({
            "subscriber": "10.0.0.5", "external": external, "ports": "2300", "kind": "dynamic",
            "by": "mapping", "protocol": "udp", "internal": "10.0.0.5:4000", "age_s": 0.1,
        })
    };
    let ask = move |bytes: Vec<u8>, _: &dyn Fn() -> bool| -> Result<Vec<u8>, String> {
        let asked = read_question(&bytes).ok_or("it does not answer")?;
        // A subscriber's endpoint is in the other node's slice.
        let external = asked.external.map_or(0xcb00_7109, Prefix::first);
        let answers = match asked.external_port {
            None | Some(2300) => vec![answer(Ipv4Addr::from_bits(external))],
            Some(_) => Vec::new(),
        };
        Ok(TableReply { searched: true, answers, ..TableReply::default() }.write())
    };
    let world = node("present", Arc::new(ask));
    // A mapping that only the other node has.
    for query in ["external=203.0.113.9:2300&protocol=udp", "subscriber=10.0.0.5"] {
        let body = world.get(&format!("/v1/who?{query}"));
        assert_eq!(body["answers"].as_array().map(Vec::len), Some(1), "{body}");
        let answer = &body["answers"][0];
        assert_eq!((&answer["subscriber"], &answer["node"]), (&json!("10.0.0.5"), &json!("b")));
        assert_eq!((&body["doubts"], &body["not_asked"]), (&json!([]), &Value::Null));
    }
    // A mapping that only this node has.
    let (external, subscriber) = mapping_in(&world, true);
    let body = world.get(&format!("/v1/who?external={external}&protocol=udp"));
    let answer = &body["answers"][0];
    assert_eq!((&answer["subscriber"], &answer["node"]), (&json!(subscriber), &json!("a")));
    let Response { status, body } = world.ask("GET", "/v1/who?external=203.0.113.9:2301");
    assert_eq!((status, &body["answers"]), (404, &json!([])), "{body}");
}

#[test]
fn a_partner_that_does_not_answer_is_named_and_does_not_delay() {
    type Reply = fn(&dyn Fn() -> bool) -> Result<Vec<u8>, String>;
    let away: Reply = |_| Err("it is not connected".to_owned());
    let hangs: Reply = |go_on| {
        while go_on() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the question was cancelled".to_owned())
    };
    let wrong: Reply = |_| {
        let answers = vec![json!({ "subscriber": "10.0.0.5", "external": "198.51.100.1" })];
        Ok(TableReply { searched: true, answers, ..TableReply::default() }.write())
    };
    let refuses: Reply = |_| {
        let reason = Some("there is no realm".to_owned());
        Ok(TableReply { reason, ..TableReply::default() }.write())
    };
    for (name, reply, reason) in [
        ("away", away, "it is not connected"),
        ("hangs", hangs, "its answer took too long"),
        ("wrong", wrong, "its answer is malformed"),
        ("refuses", refuses, "there is no realm"),
    ] {
        let ask = move |_: Vec<u8>, go_on: &dyn Fn() -> bool| reply(go_on);
        let world = node(&format!("present-{name}"), Arc::new(ask));
        let (external, subscriber) = mapping_in(&world, true);
        let body = world.get(&format!("/v1/who?external={external}"));
        assert_eq!(body["answers"][0]["subscriber"], json!(subscriber), "{body}");
        assert_eq!(body["not_asked"], json!(["b"]));
        assert_eq!(body["nodes"][1]["reason"], reason);
        let Response { status, body } = world.ask("GET", "/v1/who?external=203.0.113.9:2301");
        assert_eq!((status, &body["not_asked"]), (404, &json!(["b"])), "{body}");
    }
}

#[test]
fn a_node_answers_the_other_one_from_its_tables() {
    let world = node("answers", Arc::new(|_, _| Err("it is not asked".to_owned())));
    let interface = world.interface.upgrade().expect("it serves");
    let ask = |query: &str| {
        let bytes = question(query);
        let asked = read_question(&bytes).expect("a question");
        let reply = interface.answerer()(&bytes, &|| true).expect("a reply");
        TableReply::read(&reply, &asked).expect("a reply")
    };
    let (external, subscriber) = mapping_in(&world, true);
    for query in [format!("external={external}"), format!("subscriber={subscriber}")] {
        let reply = ask(&query);
        assert!(reply.searched && reply.answers[0]["subscriber"] == subscriber, "{reply:?}");
    }
    let reply = ask("external=203.0.113.9:1");
    assert!(reply.searched && reply.answers.is_empty() && reply.reason.is_some(), "{reply:?}");
    let reply = ask("subscriber=10.0.0.5&realm=nowhere");
    assert!(!reply.searched && reply.reason.is_some(), "{reply:?}");
    assert_eq!(interface.answerer()(b"\x03?", &|| true), None);
}

#[test]
fn a_node_tells_copies_and_an_absent_partner() {
    let world = node("copies", Arc::new(|_, _| Err("it is away".to_owned())));
    let mappings = world.lines("/v1/mappings");
    let is_other = |mapping: &Value| {
        let external: SocketAddrV4 = mapping["external"].as_str()?.parse().ok()?;
        Some(external.ip().octets()[3] >= 8)
    };
    assert!(mappings.iter().all(|one| one["copy"].as_bool() == is_other(one)), "{mappings:?}");
    for copy in [false, true] {
        assert!(mappings.iter().any(|one| one["copy"] == copy), "{mappings:?}");
    }
    let health = world.get("/v1/health");
    assert_eq!(health["pair"]["owned"], json!([0]));
    let problems = health["problems"].as_array().expect("a list");
    let away = json!("node b is not heard; `natgate fleet status` tells more");
    assert!(problems.contains(&away), "{health}");
}
