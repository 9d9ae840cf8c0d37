//! Questions about earlier times at a node of a pair.

use super::*;
use crate::partner_log::{NodeReply, PastQuestion};
use natgate_gateway::fleet::{FleetStatus, SliceOwner, SliceSettings, SliceStatus};
use natgate_logs::Span;
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
    let log = Arc::new(move |_: Vec<u8>, _: &dyn Fn() -> bool| reply.clone());
    let (owners, clock_fault) = (Arc::new(Vec::<SliceOwner>::new), Arc::new(|| None::<String>));
    let pair = PairAsker { state: Arc::new(|| None), owners, clock_fault, log };
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

#[test]
fn a_node_tells_copies_and_an_absent_partner() {
    let folder = folder("copies");
    let (file, spool) = (folder.join("natgate.toml"), folder.join("spool"));
    std::fs::write(&file, configuration(&folder, &spool)).expect("the file can be written");
    let settings = config::load(&file).unwrap_or_else(|problems| panic!("{problems:?}"));
    let state = state(&settings);
    let pair = PairAsker {
        state: Arc::new(move || Some(state.clone())),
        owners: Arc::new(Vec::new),
        clock_fault: Arc::new(|| None),
        log: Arc::new(|_: Vec<u8>, _: &dyn Fn() -> bool| Err("it is away".to_owned())),
    };
    let world = World::of_pair(folder, &file, &settings, 40, Some(pair));
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
