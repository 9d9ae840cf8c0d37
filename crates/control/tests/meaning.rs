//! What a configuration is said to mean: capacity, subscribers served, warnings.

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

#[test]
fn the_words_name_everything() {
    let text = meaning(
        "ports = \"1024-65535\"\n\
         [nat]\nallocation = \"preserve\"\nsubscribers = [\"10.0.0.0/8\"]\n\
         [timeouts]\nudp = \"30s\"\n\
         [state]\nfile = \"/run/ports\"\n\
         [[static]]\ninternal = \"10.0.0.3\"\nexternal = \"198.51.100.1\"\n\
         [[rule]]\nkind = \"bypass\"\nmatch = { destination = \"10.9.0.0/16\", port = 53 }\n\
         [[rule]]\nkind = \"drop\"\nmatch = { source = \"10.8.0.0/16\" }\npriority = 2\n\
         [[rule]]\nkind = \"snat\"\nmatch = { source = \"10.7.0.0/16\" }\naddress = \"203.0.113.1\"\n",
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
        "  rule: destination 10.9.0.0/16 port 53 passes untranslated",
        "  rule: source 10.8.0.0/16 (priority 2) is dropped",
        "  rule: source 10.7.0.0/16 uses 203.0.113.1 of pool default",
        "  UDP 30s, ICMP 1m, other protocols 5m",
        "  TCP opening 4m, established 2h4m, closing 4m",
        "  ports that were in use are held for 2m",
        "  ports in use are written to /run/ports every 10s and at the end",
        "warning: t.toml:12:7: timeouts.udp: 30s is below the 2m that RFC 4787 REQ-5 asks for",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
}
