//! Pairs of prefixes (NPTv6) that a reload changes while packets of another pair pass.

use super::traffic::{Flow, NEXT_HOPS, datagram, six};
use super::*;

const PAIRS: &str = "\
[[nptv6]]\ninternal = \"fd00:1::/48\"\nexternal = \"2001:db8:1::/48\"\n\
[[nptv6]]\ninternal = \"fd00:2::/48\"\nexternal = \"2001:db8:2::/48\"\n";

/// Packets of hosts of the first pair, and answers to them.
fn flows() -> Vec<Flow> {
    let pair = natgate_ipv6::Nptv6::new(prefix("fd00:1::"), prefix("2001:db8:1::"));
    let pair = pair.expect("a pair");
    let both = (1..=24_u128).flat_map(|host| {
        let internal = prefix("fd00:1::").first().to_bits() | host << 64 | 5;
        let external = pair.outbound(internal.into()).expect("its prefix").expect("a host");
        let [internal, external] =
            [std::net::Ipv6Addr::from_bits(internal), external].map(|address| address.to_string());
        [(Side::Inside, internal.clone(), external.clone()), (Side::Outside, internal, external)]
    });
    let flow = |(from, internal, external): (Side, String, String)| {
        let far = "2600::7".to_owned();
        let (comes, leaves) = match from {
            Side::Inside => ((internal, far.clone()), (external, far)),
            Side::Outside => ((far.clone(), external), (far, internal)),
        };
        let packet = move |tail: &[u8]| six((&comes.0, &comes.1), 17, &datagram((4000, 53), tail));
        Flow { from, packet: Box::new(packet), leaves }
    };
    both.map(flow).collect()
}

fn prefix(address: &str) -> natgate_ipv6::Prefix6 {
    natgate_ipv6::Prefix6 { address: address.parse().expect("an address"), len: 48 }
}

#[test]
fn a_reload_changes_pairs_and_loses_no_packet_of_another_pair() {
    for workers in [1, 2] {
        let more = format!("{NEXT_HOPS}{PAIRS}");
        let world = World::in_mode(&format!("pairs-{workers}"), workers, 0, &more);
        let file = world.path.with_file_name("natgate.toml");
        let before = std::fs::read_to_string(&file).expect("the file is there");
        let reload = |text: &str, dry_run: bool| {
            std::fs::write(&file, text).expect("the file can be written");
            let body = json!({ "dry_run": dry_run });
            ask(&world.path, "POST", "/v1/reload", &body, PATIENCE).expect("an answer")
        };
        let in_force = || -> Vec<String> {
            let settings = world.reloader.settings();
            settings.ipv6.nptv6.iter().map(|one| one.pair.external().to_string()).collect()
        };
        let other = before.replace("2001:db8:2::/48", "2001:db8:22::/48");
        let more = format!(
            "{other}[[nptv6]]\ninternal = \"fd00:3::/48\"\nexternal = \"2001:db8:2::/48\"\n"
        );
        let overlapping = more.replace("fd00:3::/48", "fd00:1:0:8::/64");
        let fewer = before
            .replace("[[nptv6]]\ninternal = \"fd00:2::/48\"\nexternal = \"2001:db8:2::/48\"\n", "");
        let count = world.pass_during(&flows(), || {
            for (text, pairs) in [
                (&other, vec!["2001:db8:1::/48", "2001:db8:22::/48"]),
                (&more, vec!["2001:db8:1::/48", "2001:db8:22::/48", "2001:db8:2::/48"]),
                (&fewer, vec!["2001:db8:1::/48"]),
                (&before, vec!["2001:db8:1::/48", "2001:db8:2::/48"]),
            ] {
                for dry_run in [true, false] {
                    let held = in_force();
                    let Response { status, body } = reload(text, dry_run);
                    assert_eq!((status, &body["changed"]), (200, &json!(["nptv6"])), "{body}");
                    assert!(!dry_run || in_force() == held, "a dry run changes nothing");
                }
                assert_eq!(in_force(), pairs);
                // Pairs that overlap are refused, and change nothing.
                for dry_run in [true, false] {
                    let Response { status, body } = reload(&overlapping, dry_run);
                    assert_eq!((status, &body["ok"]), (422, &json!(false)), "{body}");
                    assert_eq!(body["errors"][0]["key"], "nptv6[2].internal", "{body}");
                    assert_eq!(in_force(), pairs);
                }
            }
        });
        world.passed(count);
    }
}
