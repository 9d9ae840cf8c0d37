//! Questions about a subscriber that has hosts of NAT64 and of DS-Lite.

use super::*;

const BOTH: &str = "\
[nat]\nsubscribers = [\"192.168.0.0/16\", \"10.0.0.0/8\"]\n\
[nat64]\nsubscriber_length = 64\n\
[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\nsubscriber_length = 64\n\
[[route]]\nprefix = \"2001:db8:b4::/48\"\nvia = \"fe80::9\"\nside = \"inside\"\n\
[[static]]\ninternal = \"[2001:db8:b4::5]:80\"\nexternal = \"203.0.113.1:8064\"\n\
protocol = \"tcp\"\n\
[[static]]\nsoftwire = \"2001:db8:b4::1\"\ninternal = \"192.168.1.2:80\"\n\
external = \"203.0.113.1:8046\"\nprotocol = \"tcp\"\n";

#[test]
fn a_subscriber_of_both_kinds_is_told_apart_by_the_realm() {
    for workers in [1, 2] {
        let world = World::in_mode(&format!("both-{workers}"), workers, 4, BOTH);
        let ask = |world: &World, method: &str, list: &str, realm: &str| {
            let and = if list.contains('?') { '&' } else { '?' };
            let path = format!("/v1/{list}{and}subscriber=2001:db8:b4::/64{realm}");
            world.ask(method, &path)
        };
        let lists = ["mappings", "sessions", "subscribers", "subscribers?top=5", "blocks", "who"];
        // Before a reload and after it.
        for turn in 0..2 {
            let clear = [("POST", "clear?what=sessions")];
            for (method, list) in lists.map(|list| ("GET", list)).into_iter().chain(clear) {
                let Response { status, body } = ask(&world, method, list, "");
                let message = body["message"].as_str().unwrap_or_default();
                let said = "2001:db8:b4::/64 has hosts of [nat64] and of [dslite]; say \
                            realm=nat64 or realm=dslite";
                assert_eq!((status, message), (400, said), "{turn} {list}: {body}");
                for realm in ["nat64", "dslite"] {
                    let answer = ask(&world, method, list, &format!("&realm={realm}"));
                    assert_eq!(answer.status, 200, "{turn} {list} {realm}: {answer:?}");
                }
            }
            for (realm, port) in [("nat64", "8064"), ("dslite", "8046")] {
                let Response { body, .. } = ask(&world, "GET", "who", &format!("&realm={realm}"));
                let answers = body["answers"].as_array().expect("a list");
                assert!(!answers.is_empty(), "{turn} {realm}: {body}");
                for answer in answers {
                    assert_eq!(answer["ports"], port, "{turn} {realm}: {body}");
                    assert_eq!(answer["realm"], realm, "{turn}: {body}");
                }
            }
            let unknown = world.ask("GET", "/v1/mappings?realm=blue");
            let message = unknown.body["message"].as_str().unwrap_or_default();
            assert!(message.ends_with("there is default, nat64, dslite"), "{turn}: {message}");
            let Response { status, body } = world.ask("POST", "/v1/reload");
            assert_eq!(status, 200, "{body}");
        }
    }
}

#[test]
fn a_dry_run_names_hosts_in_place_of_their_numbers() {
    for workers in [1, 2] {
        let world = World::in_mode(&format!("dry-run-{workers}"), workers, 0, BOTH);
        let (tables, _) = BOTH.split_once("[[static]]").expect("there are some");
        let text = format!("{CONFIGURATION}{tables}[workers]\ncount = {workers}\n");
        let file = world.path.with_file_name("natgate.toml");
        std::fs::write(&file, text).expect("the file can be written");
        let body = json!({ "dry_run": true });
        let Response { status, body } =
            ask(&world.path, "POST", "/v1/reload", &body, PATIENCE).expect("an answer");
        assert_eq!(status, 200, "{body}");
        let named = body["named"].as_array().expect("a list");
        let ends = |one: &Value| {
            let word = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            [word("realm"), word("internal"), word("subscriber"), word("external")]
        };
        let named: BTreeSet<_> = named.iter().map(ends).collect();
        let expected = [
            ["nat64", "[2001:db8:b4::5]:80", "2001:db8:b4::/64", "203.0.113.1:8064"],
            ["dslite", "192.168.1.2:80", "2001:db8:b4::/64", "203.0.113.1:8046"],
        ];
        assert_eq!(named, expected.map(|one| one.map(str::to_owned)).into(), "{body}");
    }
}
