//! `natgate replay` and `natgate p4 replay` from outside: input, output, times and refusals.

mod alg;
mod bench;
mod families;
mod p4;
mod realms;
mod softwires;
mod trace6;

use bench::*;
use natgate_io::pcap::LinkType;
use natgate_wire::{Icmp, Ipv4, icmp};
use std::net::Ipv4Addr;

const ETHERNET: [u8; 14] = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0];
const ETHERNET_VLANS: [u8; 22] =
    [2, 9, 9, 9, 9, 9, 2, 8, 8, 8, 8, 8, 0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0];
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn request() -> Vec<u8> {
    udp(SUBSCRIBER, SERVER, b"question")
}

// ---- refusals ----

#[test]
fn help_shows_an_example() {
    let output = Directory::new("help").replay(&["--help"]);
    assert_succeeded(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("natgate replay -c ")), "{text}");
}

#[test]
fn arguments_that_contradict_each_other() {
    let directory = Directory::new("arguments");
    directory.write("in", &raw(&[]));
    for (arguments, expected) in [
        (&["--out", "out"][..], "required"),
        (&["--inside", "in", "--out", "out"], "--outside"),
        (&["--in", "in", "--inside", "in", "--outside", "in", "--out", "out"], "cannot be used"),
        (&["--inside", "-", "--outside", "-", "--out", "out"], "cannot be both"),
        (&["--in", "in", "--out", "in"], "in: is to be written"),
        (&["--in", "in", "--out", "natgate.toml"], "natgate.toml: is to be written"),
        (&["--in", "in", "--out", "-", "--events", "-"], "-: is to be written"),
        (&["--in", "absent", "--out", "out"], "absent: cannot be opened"),
        (&["--in", ".", "--out", "out"], "is a directory"),
        (&["--in", "in", "--out", "out", "--seed", "x"], "--seed"),
    ] {
        let text = refusal(&directory.replay(arguments));
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    assert_eq!(directory.read("in"), raw(&[]));
    directory.write("natgate.toml", b"[inside]\n");
    refusal(&directory.replay(&["--in", "in", "--out", "out"]));
    assert!(!directory.path("out").exists());
}

#[test]
fn a_damaged_capture_is_translated_up_to_the_damage() {
    let directory = Directory::new("damage");
    let whole = raw(&[packet(0, 0, request()), packet(0, SECOND, request())]);
    let expected = directory.packets(&raw(&[packet(0, 0, request())]));
    let second = raw(&[packet(0, 0, request())]).len();
    for cut in [second + 1, second + 20, whole.len() - 1] {
        let text = refusal(&directory.translate(&whole[..cut]));
        assert!(text.contains(&format!("in: damaged at byte offset {second}: ")), "{text}");
        assert_eq!(packets(&directory.read("out")), expected);
        assert_eq!(directory.json("stats")["packets"]["outbound"]["forwarded"], 1);
        assert_eq!(directory.events("events").len(), 1);
    }
    let mut lost = whole.clone();
    lost[second + 8] = 9;
    let text = refusal(&directory.translate(&lost));
    assert!(text.contains(&format!("damaged at byte offset {second}: ")), "{text}");
    assert!(text.contains("interface 9"), "{text}");
}

#[test]
fn captures_that_are_none() {
    let directory = Directory::new("none");
    let three = capture(&[LinkType::RAW; 3], &[]);
    let mut foreign = raw(&[]);
    // The link type of the first interface, behind the section header.
    foreign[28 + 8] = 147;
    for (bytes, expected) in [
        (&b""[..], "in: damaged at byte offset 0: the file is empty"),
        (b"no capture", "in: damaged at byte offset 0: "),
        (&classic(1, &[]), "at byte offset 0: a classic pcap has one interface"),
        (&three, "a third interface"),
        (&foreign, "at byte offset 28: link type 147 is not supported"),
    ] {
        let text = refusal(&directory.translate(bytes));
        assert!(text.contains(expected), "{text}");
        assert!(packets(&directory.read("out")).is_empty());
        assert_eq!(directory.json("stats")["drops"]["not_ipv4"], 0);
    }
}

#[test]
fn damage_in_one_of_a_pair_is_told_with_its_name() {
    let directory = Directory::new("pair-damage");
    let inside = classic(101, &[packet(0, 0, request()), packet(0, SECOND, request())]);
    directory.write("a.pcap", &inside[..inside.len() - 1]);
    directory.write("b.pcap", &classic(101, &[]));
    let output = directory.replay(&["--inside", "a.pcap", "--outside", "b.pcap", "--out", "out"]);
    let offset = 24 + 16 + request().len();
    let text = refusal(&output);
    assert!(text.contains(&format!("a.pcap: damaged at byte offset {offset}: ")), "{text}");
    assert_eq!(packets(&directory.read("out")).len(), 1);
}

// ---- output ----

#[test]
fn translates_there_and_back() {
    let directory = Directory::new("there-and-back");
    let there = directory.packets(&raw(&[packet(0, 0, request())]));
    assert_eq!((there.len(), there[0].interface, there[0].time), (1, 1, START));
    let ((address, port), destination) = endpoints(&there[0].frame);
    assert_eq!((address, destination), (EXTERNAL, SERVER));
    assert_eq!(there[0].frame[8], 63);

    // An equal seed chooses an equal port again.
    let answer = udp(SERVER, (EXTERNAL, port), b"answer");
    let both = directory.packets(&raw(&[packet(0, 0, request()), packet(1, 5, answer)]));
    assert_eq!(both[0], there[0]);
    assert_eq!((both[1].interface, both[1].time), (0, START + 5));
    assert_eq!(endpoints(&both[1].frame), (SERVER, SUBSCRIBER));
    assert!(both[1].frame.ends_with(b"answer"));

    let events = directory.events("events");
    assert_eq!(events.len(), 1);
    assert_eq!(
        events[0],
        serde_json::json!({
            "time": 1_700_000_000.0, "event": "mapping_created", "protocol": "udp",
            "internal": "10.0.0.5:4000", "external": format!("203.0.113.1:{port}"),
            "subscriber": "10.0.0.5", "kind": "dynamic",
        })
    );
    let stats = directory.json("stats");
    assert_eq!(stats["packets"]["outbound"]["forwarded"], 1);
    assert_eq!(stats["packets"]["inbound"]["forwarded"], 1);
    assert_eq!(stats["bytes"]["outbound"]["forwarded"], request().len());
}

/// A rule translates destinations, and sources of the answers, with a port and by prefix.
#[test]
fn destinations_are_translated_there_and_back() {
    let directory = Directory::new("destinations");
    let rules = "[nat]\nallocation = \"preserve\"\n\
                 [[rule]]\nkind = \"dnat\"\nmatch = { destination = \"198.51.100.7\", port = 53 }\n\
                 to = \"192.0.2.80:8080\"\n\
                 [[rule]]\nkind = \"dnat\"\nmatch = { destination = \"172.20.0.0/16\" }\n\
                 to = \"10.5.0.0/16\"\n";
    directory.write("natgate.toml", format!("{CONFIG}{rules}").as_bytes());
    let real = (Ipv4Addr::new(192, 0, 2, 80), 8080);
    let (seen, namesake) = ((Ipv4Addr::new(172, 20, 0, 9), 7), (Ipv4Addr::new(10, 5, 0, 9), 7));
    let external = (EXTERNAL, SUBSCRIBER.1);
    let out = directory.packets(&raw(&[
        packet(0, 0, request()),
        packet(1, 1, udp(real, external, b"answer")),
        packet(0, 2, udp(SUBSCRIBER, seen, b"question")),
        packet(1, 3, udp(namesake, external, b"answer")),
        packet(0, 4, udp(SUBSCRIBER, SERVER, b"another")),
    ]));
    let ends: Vec<_> = out.iter().map(|one| (one.interface, endpoints(&one.frame))).collect();
    assert_eq!(
        ends,
        [
            (1, (external, real)),
            (0, (SERVER, SUBSCRIBER)),
            (1, (external, namesake)),
            (0, (seen, SUBSCRIBER)),
            (1, (external, real)),
        ]
    );
    // The log has one mapping.
    assert_eq!(directory.events("events").len(), 1);
}

/// The log has blocks and not mappings. Computed shares are not logged at all.
#[test]
fn shares_are_told_instead_of_mappings() {
    let directory = Directory::new("shares");
    let requests: Vec<_> = (0..40)
        .map(|i| packet(0, u64::from(i), udp((SUBSCRIBER.0, 4000 + i), SERVER, b"question")))
        .chain([packet(0, 1000 * SECOND, udp((SUBSCRIBER.0, 3999), SERVER, b"question"))])
        .collect();
    let with = |extra: &str| {
        let text = format!("{CONFIG}ports = \"2048-4095\"\n{extra}");
        directory.write("natgate.toml", text.as_bytes());
        assert_eq!(directory.packets(&raw(&requests)).len(), 41);
        directory.events("events")
    };
    let events = with("[nat]\nallocation = \"block\"\n[nat.block]\nsize = 32\n");
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let (assigned, released) = ("block_assigned", "block_released");
    assert_eq!(kinds, [assigned, assigned, released, released, assigned]);
    for event in &events {
        assert_eq!(event["subscriber"], "10.0.0.5");
        assert_eq!(event["external"], "203.0.113.1");
        let (first, last) = event["ports"].as_str().unwrap().split_once('-').unwrap();
        let (first, last): (u16, u16) = (first.parse().unwrap(), last.parse().unwrap());
        assert_eq!((first % 32, last - first), (0, 31));
    }
    // 5 minutes of silence, 2 of hold-down, 1 until an empty block is removed.
    assert_eq!(events[2]["time"].as_f64().map(f64::round), Some(1_700_000_480.0));

    let subscribers = "subscribers = [\"10.0.0.0/28\"]\n";
    let events = with(&format!("allocation = \"deterministic\"\n{subscribers}"));
    assert_eq!(events, Vec::<serde_json::Value>::new());
    let ports = packets(&directory.read("out")).into_iter().map(|one| endpoints(&one.frame).0.1);
    // 2,048 ports for 16 subscribers.
    assert!(ports.into_iter().all(|port| (2688..2816).contains(&port)));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let directory = Directory::new("seed");
    let requests: Vec<_> = (0..20)
        .map(|i| packet(0, u64::from(i), udp((SUBSCRIBER.0, 4000 + i), SERVER, b"question")))
        .collect();
    directory.write("in", &raw(&requests));
    let run = |seed: &[&str]| {
        let all = ["--in", "in", "--out", "out", "--events", "events", "--stats", "stats"];
        assert_succeeded(&directory.replay(&[&all[..], seed].concat()));
        ["out", "events", "stats"].map(|name| directory.read(name))
    };
    let zero = run(&["--seed", "0"]);
    assert_eq!(packets(&zero[0]).len(), requests.len());
    assert_eq!(run(&[]), zero);
    let one = run(&["--seed", "1"]);
    assert!(one[0] != zero[0] && one[2] == zero[2]);
}

#[test]
fn link_headers_pass_unchanged_and_trailing_bytes_go() {
    let directory = Directory::new("ethernet");
    let framed = |header: &[u8], packet: Vec<u8>| [header, &packet, b"padding"].concat();
    let links = [LinkType::ETHERNET; 2];
    for header in [&ETHERNET[..], &ETHERNET_VLANS] {
        let frame = framed(header, request());
        let found = directory.packets(&capture(&links, &[packet(0, 0, frame)]));
        let inner = found[0].frame.strip_prefix(header).expect("the header is unchanged");
        assert_eq!(endpoints(inner).1, SERVER);
        assert!(inner.ends_with(b"question"));

        // The gateway's own answer goes back to the sender of the request.
        let frame = framed(header, ping(SUBSCRIBER.0, GATEWAY));
        let found = directory.packets(&capture(&links, &[packet(0, 0, frame)]));
        assert_eq!((found.len(), found[0].interface), (1, 0));
        assert_eq!(found[0].frame[..6], header[6..12]);
        assert_eq!(found[0].frame[6..12], header[..6]);
        assert_eq!(found[0].frame[12..header.len()], header[12..]);
        let inner = Ipv4::new_checked(&found[0].frame[header.len()..]).unwrap();
        assert_eq!(inner.source(), GATEWAY.to_bits());
        assert_eq!(Icmp::new_checked(inner.payload()).unwrap().kind(), icmp::kind::ECHO_REPLY);
    }
    assert_eq!(interfaces(&directory.read("out"))[0].link, LinkType::ETHERNET);
}

#[test]
fn fragments_that_waited_leave_as_they_came() {
    let directory = Directory::new("fragments");
    let frames = fragments(&request(), 8).map(|packet| [&ETHERNET[..], &packet].concat());
    let [first, second] = frames;
    let late = [packet(0, 0, second), packet(0, 1000, first)];
    let found = directory.packets(&capture(&[LinkType::ETHERNET; 2], &late));
    assert_eq!(found.len(), 2);
    for packet in &found {
        assert_eq!((packet.interface, packet.time), (1, START + 1000));
        let inner = packet.frame.strip_prefix(&ETHERNET).expect("the header is unchanged");
        assert_eq!(Ipv4::new_checked(inner).unwrap().source(), EXTERNAL.to_bits());
    }
    assert_eq!(directory.json("stats")["packets"]["outbound"]["forwarded"], 2);
}

#[test]
fn the_two_sides_may_differ_in_their_links() {
    let directory = Directory::new("links");
    let frame = [&ETHERNET[..], &request()].concat();
    let links = [LinkType::ETHERNET, LinkType::RAW];
    let there = directory.packets(&capture(&links, &[packet(0, 0, frame.clone())]));
    let ((_, port), _) = endpoints(&there[0].frame);
    let answer = udp(SERVER, (EXTERNAL, port), b"answer");
    let both = capture(&links, &[packet(0, 0, frame), packet(1, 1, answer)]);
    let found = directory.packets(&both);
    let back: [u8; 14] = [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0];
    assert_eq!(endpoints(found[1].frame.strip_prefix(&back).unwrap()), (SERVER, SUBSCRIBER));
    let described = interfaces(&directory.read("out"));
    assert_eq!([described[0].link, described[1].link], links);
    let names = described.iter().map(|interface| interface.name.as_deref().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), [&b"inside"[..], b"outside"]);
}

#[test]
fn other_protocols_are_counted_once_and_dropped() {
    let directory = Directory::new("foreign");
    let with_type = |ethertype: [u8; 2]| [&ETHERNET[..12], &ethertype, &[0; 46]].concat();
    let frames = [
        packet(0, 0, with_type([0x08, 0x06])),
        packet(1, 1, with_type([0x86, 0xdd])),
        packet(1, 2, vec![0; 9]),
        packet(0, 3, [&ETHERNET[..], &[0x60; 40]].concat()),
    ];
    let found = directory.packets(&capture(&[LinkType::ETHERNET; 2], &frames));
    assert_eq!(found, []);
    let stats = directory.json("stats");
    assert_eq!(stats["drops"]["not_ipv4"], 4);
    assert_eq!(stats["packets"]["outbound"]["dropped"], 2);
    assert_eq!(stats["packets"]["inbound"]["dropped"], 2);
}

#[test]
fn pairs_are_merged_by_time() {
    let directory = Directory::new("pair");
    let ask = |after: u64, port| packet(0, after, udp((SUBSCRIBER.0, port), SERVER, b"?"));
    let stray = |after: u64| packet(1, after, ping(SERVER.0, Ipv4Addr::new(192, 0, 2, 1)));
    let inside = [ask(0, 1), ask(2000, 2), ask(4000, 3)];
    let outside = [stray(1000), stray(2000), stray(5000)];
    directory.write("a", &classic(101, &inside));
    directory.write("b", &raw(&[]));
    let pair = ["--inside", "a", "--outside", "b", "--out", "out"];
    let text = refusal(&directory.replay(&pair));
    assert!(text.contains("b: at byte offset ") && text.contains("second interface"), "{text}");

    directory.write(
        "b",
        &classic(
            1,
            &outside.map(|mut packet| {
                packet.frame.splice(..0, ETHERNET);
                packet
            }),
        ),
    );
    assert_succeeded(&directory.replay(&pair));
    let found = packets(&directory.read("out"));
    let times: Vec<_> = found.iter().map(|packet| packet.time - START).collect();
    assert_eq!(times, [0, 1000, 2000, 2000, 4000, 5000]);
    let protocols = found.iter().map(|packet| packet.frame[14 + 9]);
    assert_eq!(protocols.collect::<Vec<_>>(), [17, 1, 17, 1, 17, 1]);
}

// ---- time ----

#[test]
fn what_is_due_happens_at_its_own_time() {
    let directory = Directory::new("time");
    let stranger = (SERVER.0, 999);
    let found = directory.packets(&raw(&[
        packet(0, 0, request()),
        packet(1, SECOND, syn(stranger, (EXTERNAL, 7000))),
        packet(0, 1000 * SECOND, request()),
    ]));
    assert_eq!(found.len(), 3);
    let ((error, time), header) =
        ((&found[1].frame, found[1].time), Ipv4::new_checked(&found[1].frame));
    let header = header.unwrap();
    assert_eq!((found[1].interface, time), (1, START + 7 * SECOND));
    assert_eq!(header.destination(), stranger.0.to_bits());
    assert_eq!((error[20], error[21]), (icmp::kind::UNREACHABLE, 3));

    let told: Vec<_> = directory
        .events("events")
        .iter()
        .map(|event| (event["time"].as_f64().unwrap(), event["event"].as_str().unwrap().to_owned()))
        .collect();
    let at = |after: u32| 1_700_000_000.0 + f64::from(after);
    assert_eq!(
        told,
        [
            (at(0), "mapping_created".to_owned()),
            (at(300), "mapping_removed".to_owned()),
            (at(1000), "mapping_created".to_owned()),
        ]
    );
    assert_eq!(directory.json("stats")["generated"], 1);
}

#[test]
fn the_end_does_not_run_out_the_timers() {
    let directory = Directory::new("end");
    let found = directory.packets(&raw(&[
        packet(0, 0, request()),
        packet(1, SECOND, syn((SERVER.0, 999), (EXTERNAL, 7000))),
    ]));
    assert_eq!(found.len(), 1);
    assert_eq!(directory.events("events").len(), 1);
}

#[test]
fn time_that_goes_back_stands_still() {
    let directory = Directory::new("back");
    let arp = [&ETHERNET[..12], &[8, 6], &[0; 46]].concat();
    let frame =
        |after, packet_bytes: &[u8]| packet(0, after, [&ETHERNET[..], packet_bytes].concat());
    let found = directory.packets(&capture(
        &[LinkType::ETHERNET; 2],
        &[
            frame(10 * SECOND, &request()),
            frame(9 * SECOND, &request()),
            packet(0, 8 * SECOND, arp),
            frame(10 * SECOND, &request()),
            frame(11 * SECOND, &request()),
        ],
    ));
    let times: Vec<_> = found.iter().map(|packet| (packet.time - START) / SECOND).collect();
    assert_eq!(times, [10, 10, 10, 11]);
    assert_eq!(directory.json("stats")["clock_backwards"], 2);
}

// ---- conversations ----

#[test]
fn a_conversation_over_pipes() {
    let directory = Directory::new("conversation");
    let mut talk =
        Conversation::new(directory.command(&["--in", "-", "--out", "-", "--events", "events"]));
    talk.say(&raw(&[]));
    // The interfaces are there before any packet.
    for name in ["inside", "outside"] {
        let mut expected = interface(LinkType::RAW);
        expected.name = Some(name.into());
        assert_eq!(talk.hear(), Said::Interface(expected));
    }
    for round in 0..10_u16 {
        let source = (SUBSCRIBER.0, 4000 + round);
        let after = u64::from(round) * SECOND;
        talk.say_packet(packet(0, after, udp(source, SERVER, b"question")));
        let there = talk.hear_packet();
        assert_eq!((there.interface, there.time), (1, START + after));
        let (external, _) = endpoints(&there.frame);
        assert_eq!(directory.events("events").len(), usize::from(round) + 1);

        talk.say_packet(packet(1, after + 1, udp(SERVER, external, b"answer")));
        let back = talk.hear_packet();
        assert_eq!((back.interface, back.time), (0, START + after + 1));
        assert_eq!(endpoints(&back.frame), (SERVER, source));
    }
    talk.end();
}

#[test]
fn what_was_said_before_damage_is_heard() {
    let directory = Directory::new("broken-off");
    let mut command = directory.command(&["--in", "-", "--out", "-"]);
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let whole = raw(&[packet(0, 0, request()), packet(0, 1, request())]);
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &whole[..whole.len() - 4]).unwrap();
    drop(input);
    let heard = rest(child.stdout.take().unwrap());
    let text = String::from_utf8(rest(child.stderr.take().unwrap())).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_eq!(packets(&heard).len(), 1);
    let offset = raw(&[packet(0, 0, request())]).len();
    assert!(text.contains(&format!("-: damaged at byte offset {offset}: ")), "{text}");
}
