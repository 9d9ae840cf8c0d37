//! The stated meaning of a configuration: capacity, subscribers served, warnings.

use natgate_control::config::read_text;
use natgate_control::meaning::{Meaning, PerProtocol};

#[track_caller]
fn meaning(extra: &str, addresses: &str) -> Meaning {
    let text = format!(
        "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n\
         [[pool]]\naddresses = [{addresses}]\n{extra}"
    );
    let read = read_text(&text, "t.toml");
    Meaning::of(read.unwrap_or_else(|problems| panic!("{text}\n{problems:?}")))
}

#[test]
fn capacity_is_addresses_times_ports() {
    let meaning = meaning("ports = \"1024-2047\"\n", "\"203.0.113.0/28\", \"198.51.100.7\"");
    let pool = &meaning.pools[0];
    assert_eq!((pool.addresses, pool.ports, pool.default), (17, (1024, 2047), true));
    let each = 17 * 1024;
    assert_eq!(pool.mappings, PerProtocol { tcp: each, udp: each, icmp: each });
    assert_eq!(meaning.mappings, 3 * each);
    assert_eq!(meaning.sessions, 6 * each);
}

#[test]
fn control_flows_of_all_workers_are_in_the_memory() {
    let of = |extra: &str| meaning(extra, "\"203.0.113.0/28\"").memory_bytes;
    let (one, many) = ("[workers]\ncount = 1\n", "[workers]\ncount = 8\n");
    let flows =
        |workers: &str, flows: u32| of(&format!("{workers}[alg]\nsip = true\nflows = {flows}\n"));
    let added = |workers| flows(workers, 1 << 20) - flows(workers, 1 << 19);
    assert!(added(one) > 512 * 256);
    assert_eq!(added(many), 8 * added(one));
}

#[test]
fn subscribers_served_depend_on_pooling() {
    // 64,512 ports of each of two addresses: 32 whole quotas of 2,000 each, or 64 over the edge.
    let two = "\"203.0.113.0/31\"";
    assert_eq!(meaning("", two).pools[0].subscribers_at_full_quota, 64);
    let quota = "[limits]\nports_per_subscriber = { tcp = 40000 }\n";
    assert_eq!(meaning(quota, two).pools[0].subscribers_at_full_quota, 2);
    let arbitrary = format!("[nat]\npooling = \"arbitrary\"\n{quota}");
    assert_eq!(meaning(&arbitrary, two).pools[0].subscribers_at_full_quota, 3);
    let too_much = meaning("[limits]\nports_per_subscriber = { icmp = 64513 }\n", two);
    assert_eq!(too_much.pools[0].subscribers_at_full_quota, 0);
    assert_eq!(too_much.warnings.len(), 1);
}

#[test]
fn static_mappings_take_ports_from_their_pool() {
    let statics = "[[static]]\ninternal = \"10.0.0.1:80\"\nexternal = \"203.0.113.0:8080\"\n\
                   protocol = \"tcp\"\n\
                   [[static]]\ninternal = \"10.0.0.2:80\"\nexternal = \"203.0.113.0:80\"\n\
                   [[static]]\ninternal = \"10.0.0.3\"\nexternal = \"203.0.113.1\"\n";
    let meaning = meaning(statics, "\"203.0.113.0/31\"");
    // One TCP port, a port below the pool's, and a whole address.
    let all = 64_512;
    assert_eq!(meaning.pools[0].mappings, PerProtocol { tcp: all - 1, udp: all, icmp: all });
}

#[test]
fn the_table_is_bounded_unless_asked_for_more() {
    let many = "\"203.0.113.0/24\"";
    assert_eq!(meaning("", many).mappings, 1 << 20);
    let all = 256 * 64_512 * 3;
    let asked = meaning(&format!("[limits]\nmappings = {all}\nextra_sessions = 0\n"), many);
    assert_eq!((asked.mappings, asked.sessions), (all, all));
    assert!(
        meaning("", many).to_string().contains("1,048,576 mappings (limits.mappings; the pools")
    );
}

/// A deterministic pool has ports that are nobody's, for which there need be no mappings.
#[test]
fn the_table_has_room_for_the_ports_that_subscribers_can_get() {
    let shares = "allocation = \"deterministic\"\nports_per_subscriber = 96\n\
                  [nat]\nsubscribers = [\"10.0.0.0/29\"]\n";
    let said = meaning(shares, "\"203.0.113.0\"");
    assert_eq!(said.mappings, 8 * 96 * 3);
    assert!(said.to_string().contains("  in all: 2,304 mappings, "), "{said}");
    let dynamic = "allocation = \"deterministic\"\nports_per_subscriber = 96\n\
                   dynamic_ports = 100\n[nat]\nsubscribers = [\"10.0.0.0/29\"]\n";
    // 671 subscribers of 96 ports would have 64,416 ports; the rest of the address is dynamic.
    assert_eq!(meaning(dynamic, "\"203.0.113.0\"").mappings, (8 * 96 + 64_512 - 64_320) * 3);
    let more = meaning(&format!("{shares}[limits]\nmappings = 2305\n"), "\"203.0.113.0\"");
    let warned = more.warnings.iter().any(|one| one.message.contains("2305 mappings"));
    assert!(warned, "{:?}", more.warnings);
}

#[test]
fn whole_addresses_are_explained() {
    let said = meaning("allocation = \"address\"\n", "\"203.0.113.0/30\"");
    assert_eq!(said.pools[0].subscribers_at_full_quota, 4);
    assert_eq!(said.pools[0].mappings.tcp, 4 * 65_535);
    let text = said.to_string();
    for line in [
        "    whole addresses, ports unchanged: serves 4 hosts at a time",
        "    an address is free 2m after the last mapping of its host",
        "  pooling paired, ports unchanged",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn blocks_are_explained() {
    let blocks = "ports = \"1024-65535\"\nallocation = \"block\"\n\
                  [pool.block]\nsize = 512\nmax_per_subscriber = 5\nrelease_after = \"90s\"\n";
    let said = meaning(blocks, "\"203.0.113.0/31\"");
    // A quota of 2,000 is four blocks, which 126 hold 31 times.
    assert_eq!(said.pools[0].subscribers_at_full_quota, 62);
    assert_eq!(said.pools[0].mappings.tcp, 2 * 64_512);
    let text = said.to_string();
    for line in [
        "    holds 129,024 TCP, 129,024 UDP and 129,024 ICMP mappings",
        "    252 blocks of 512 ports, 126 an address, 1 to 5 a subscriber",
        "    serves 252 subscribers with 1 block, 50 with 5",
        "    an empty block is released after 1m30s",
        "    0 ports fill no block and are never used",
        "  pooling paired, ports random within a subscriber's blocks",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
    let log = "[[log]]\nkind = \"file\"\npath = \"/nonexistent/ev.jsonl\"\n";
    let logged =
        |blocks: &str| meaning(&format!("{blocks}{log}"), "\"203.0.113.0/31\"").to_string();
    let in_blocks = logged(blocks);
    assert!(in_blocks.contains("ev.jsonl: blocks of ports, limits"), "{in_blocks}");
    assert!(logged("").contains("ev.jsonl: mappings, blocks of ports, limits"));
    let uneven = "ports = \"5000-6000\"\nallocation = \"block\"\n";
    let uneven = meaning(uneven, "\"203.0.113.0/31\"");
    assert_eq!(uneven.pools[0].mappings.udp, 2 * 512);
    assert!(uneven.to_string().contains("978 ports fill no block"), "{uneven}");
}

#[test]
fn computed_shares_are_explained() {
    let shares = "allocation = \"deterministic\"\ndynamic_ports = 1024\n\
                  [[static]]\ninternal = \"10.9.0.1:80\"\nexternal = \"203.0.113.0:65000\"\n\
                  [[static]]\ninternal = \"10.9.0.2:80\"\nexternal = \"203.0.113.1:65000\"\n\
                  [nat]\nsubscribers = [\"10.0.0.0/24\", \"10.7.0.1\"]\n";
    let said = meaning(shares, "\"203.0.113.0/30\"");
    let text = said.to_string();
    // 257 subscribers on four addresses are 65 on each; 63,488 ports are 976 for each of 65.
    for line in [
        "    257 subscribers with 976 ports each, computed (RFC 7422)",
        "    65 subscribers an address (65:1) on 4 of its addresses",
        "    1,072 dynamic ports an address, 64464-65535, for more",
        "    2,928 ports are nobody's and are never used",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
    assert_eq!(said.pools[0].mappings.tcp, 257 * 976 + 4 * 1072 - 2);
    assert_eq!(said.pools[0].subscribers_at_full_quota, 257);
}

#[test]
fn the_words_name_everything() {
    let text = meaning(
        "ports = \"1024-65535\"\n\
         [nat]\nallocation = \"preserve\"\nsubscribers = [\"10.0.0.0/8\"]\n\
         [timeouts]\nudp = \"30s\"\n\
         [state]\nfile = \"/run/ports\"\n\
         [[static]]\ninternal = \"10.0.0.3\"\nexternal = \"198.51.100.1\"\n\
         [[static]]\ninternal = \"10.0.0.4:80-89\"\nexternal = \"198.51.100.2:90-99\"\n\
         direction = \"inbound\"\nprotocol = \"tcp\"\n\
         [[static]]\nexternal = \"198.51.100.3:80\"\nservers = [\
         { internal = \"10.0.0.5:80\", weight = 2 }, { internal = \"10.0.0.6:80\" },\
         { internal = \"10.0.0.7:80\", drain = true }]\n\
         [[static]]\nexternal = \"198.51.100.3:81\"\naffinity = \"none\"\nservers = [\
         { internal = \"10.0.0.5:81\" }, { internal = \"10.0.0.6:81\", backup = true }]\n\
         [static.health]\nkind = \"http\"\ntarget = \"/well\"\nport = 8080\nfailures = 1\n\
         [[rule]]\nkind = \"bypass\"\nmatch = { destination = \"10.9.0.0/16\", port = 53 }\n\
         [[rule]]\nkind = \"drop\"\nmatch = { source = \"10.8.0.0/16\" }\npriority = 2\n\
         [[rule]]\nkind = \"snat\"\nmatch = { source = \"10.7.0.0/16\" }\n\
         address = \"203.0.113.1\"\n\
         [[rule]]\nkind = \"dnat\"\nmatch = { destination = \"0.0.0.0/0\", port = 53 }\n\
         to = \"192.0.2.53:5353\"\n\
         [[rule]]\nkind = \"dnat\"\nmatch = { destination = \"172.20.0.0/16\" }\n\
         to = \"10.5.0.0/16\"\n\
         [[rule]]\nkind = \"dnat\"\nmatch = { destination = \"9.9.9.9\" }\nto = \"9.9.9.9\"\n",
        "\"203.0.113.1\"",
    )
    .to_string();
    for line in [
        "  inside: a (af-packet), address taken from the device, MTU 1500",
        "  default (used without a rule): 1 address, ports 1024-65535",
        "    203.0.113.1",
        "    holds 64,512 TCP, 64,512 UDP and 64,512 ICMP mappings",
        "    serves 32 subscribers at their full quota",
        "  subscribers: 10.0.0.0/8",
        "  pooling paired, ports preserved where free",
        "  static: 10.0.0.3 is 198.51.100.1, all protocols",
        "  static: 10.0.0.4:80-89 is 198.51.100.2:90-99, TCP, begun from outside only",
        "  service: 198.51.100.3:80, all protocols, has 3 servers, a remote address keeps its \
         server",
        "    10.0.0.5:80, weight 2, 67 % of new sessions",
        "    10.0.0.6:80, weight 1, 33 % of new sessions",
        "    10.0.0.7:80, weight 1, drains: gets no new sessions",
        "    10.0.0.5:81, weight 1, 100 % of new sessions",
        "    10.0.0.6:81, weight 1, backup: gets new sessions while no other server takes any",
        "    checked by GET /well to port 8080 every 5s, answered within 2s",
        "    down after 1 failed check, up after 2 successful ones in a row; sessions of a server \
         that is down stay",
        "  rule: destination 10.9.0.0/16 port 53 passes untranslated",
        "  rule: source 10.8.0.0/16 (priority 2) is dropped",
        "  rule: source 10.7.0.0/16 uses 203.0.113.1 of pool default",
        "  rule: destination 0.0.0.0/0 port 53 is redirected to 192.0.2.53:5353",
        "  rule: destination 172.20.0.0/16 is 10.5.0.0/16 outside, address by address, both ways",
        "  rule: destination 9.9.9.9/32 is not redirected",
        "  in all: 48,384 sessions whose destination is translated",
        "  UDP 30s, ICMP 1m, other protocols 5m",
        "  TCP opening 4m, established 2h4m, closing 4m",
        "  ports that were in use are held for 2m",
        "  ports in use are written to /run/ports every 10s and at the end",
        "warning: t.toml:12:7: timeouts.udp: 30s is below the 2m that RFC 4787 REQ-5 asks for",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
}
