//! Faults that operators make, one configuration each, and the sentence that each gets: in which
//! line, about which key, and a part of the message that says what would be right.
//!
//! Every table of the schema has a fault here.

use natgate_control::config::{Problem, SECTIONS, read_text};
use std::collections::BTreeSet;

/// A good file, which most faults are added to: the addition begins in line 7.
const GOOD: &str = r#"[inside]
device = "eth1"
[outside]
device = "eth0"
[[pool]]
addresses = ["203.0.113.1"]
"#;

/// The edit that puts a fault into the good file.
enum Edit {
    /// These lines follow the good file.
    Add(&'static str),
    /// The first text becomes the second.
    Replace(&'static str, &'static str),
    /// This is the whole file.
    Whole(&'static str),
}

use Edit::{Add, Replace, Whole};

/// A configuration with one fault, and the problem that is wanted.
struct Fault {
    edit: Edit,
    line: usize,
    key: &'static str,
    /// A part of the message.
    says: &'static str,
}

const fn fault(edit: Edit, line: usize, key: &'static str, says: &'static str) -> Fault {
    Fault { edit, line, key, says }
}

const FAULTS: &[Fault] = &[
    // Whole addresses.
    fault(
        Add("ports = \"1024-65535\"\nallocation = \"address\"\n"),
        7,
        "pool[0].ports",
        "1024-65535 are 64512 of the 65535 ports",
    ),
    fault(
        Add("exclude_ports = [\"80\"]\nallocation = \"address\"\n"),
        7,
        "pool[0].exclude_ports[0]",
        "gives a host a whole address; remove it",
    ),
    fault(
        Add("allocation = \"address\"\noverloading = true\n"),
        5,
        "pool[0]",
        "remove overloading",
    ),
    fault(
        Add("allocation = \"address\"\n[nat]\nmapping = \"address-dependent\"\n"),
        7,
        "pool[0].allocation",
        "write nat.mapping = \"endpoint-independent\"",
    ),
    fault(
        Add("allocation = \"address\"\n[[static]]\ninternal = \"10.0.0.8:80\"\n\
             external = \"203.0.113.1:80\"\n"),
        10,
        "static[0].external",
        "takes a part of 203.0.113.1",
    ),
    // The text.
    fault(Whole(""), 1, "inside", "write [inside] with device = \"eth1\""),
    fault(Replace("\"eth1\"", "\"eth1"), 2, "", "is not TOML: invalid basic string, expected `\"`"),
    fault(Replace("\"eth1\"", "eth1"), 2, "", "write device = \"eth1\""),
    fault(Replace("[inside]", "[inside"), 1, "", "is not TOML: unclosed table, expected `]`"),
    fault(Replace("[inside]", "[insid]"), 1, "insid", "did you mean `inside`?"),
    fault(Replace("[inside]", "[[inside]]"), 1, "inside", "write one [inside]"),
    fault(Replace("[[pool]]", "[pool]"), 5, "pool", "write [[pool]]"),
    fault(
        Replace("device = \"eth1\"", "devices = \"eth1\""),
        2,
        "inside.devices",
        "did you mean `device`?",
    ),
    fault(
        Replace("device = \"eth1\"", "device = \"eth1\"\ndevice = \"eth2\""),
        3,
        "",
        "is not TOML: duplicate key",
    ),
    fault(Add("[nat]\n[nat]\n"), 8, "", "is not TOML: duplicate key"),
    fault(Add("[nat]\nudp = \"5m\"\n"), 8, "nat.udp", "it belongs in [timeouts]"),
    fault(Add("[fleet]\n"), 7, "fleet.node", "is missing"),
    fault(Add("[fleet]\nnode = \"a b\"\n"), 8, "fleet.node", "is no name"),
    fault(
        Add("[fleet]\netcd = [\"https://10.9.0.1:2379\"]\n"),
        8,
        "fleet.etcd",
        "take the key out",
    ),
    fault(Add("[fleet]\npartner = { node = \"b\" }\n"), 8, "fleet.partner.address", "is missing"),
    fault(Add("[fleet]\nhang = \"10ms\"\n"), 8, "fleet.hang", "from 1s to 1d"),
    fault(Add("[[slice]]\nowner = \"a\"\n"), 7, "slice[0]", "write [fleet] too"),
    // IPv6.
    fault(
        Add("[ipv6]\nlowest_mtu = 576\n[nat64]\n"),
        8,
        "ipv6.lowest_mtu",
        "it must be from 1280 to",
    ),
    fault(
        Add("[nat64]\nprefixes = [\"64:ff9b::/95\"]\n"),
        8,
        "nat64.prefixes[0]",
        "has 95 bits; a prefix that embeds IPv4 addresses has 32, 40, 48, 56, 64 or 96",
    ),
    fault(
        Add("[ipv6.advertise]\ninterval = \"1s\"\n"),
        8,
        "ipv6.advertise.interval",
        "it must be from 4s to 30m",
    ),
    fault(Add("[siit]\n"), 7, "siit", "write prefixes = [\"2001:db8:100::/40\"] or [[siit.map]]"),
    fault(
        Add("[[siit.map]]\nipv6 = \"2001:db8:3::/124\"\nipv4 = \"1.0.0.0/24\"\n"),
        8,
        "siit.map[0].ipv6",
        "write an IPv6 prefix of 120 bits or fewer",
    ),
    fault(
        Add("[clat]\nprefix = \"64:ff9b::/96\"\n"),
        7,
        "clat.source",
        "write source = \"2001:db8:aaaa::/96\"",
    ),
    fault(
        Add("[[nptv6]]\ninternal = \"fd00::/48\"\nexternal = \"fd00::/56\"\n"),
        9,
        "nptv6[0].external",
        "have fd00::/56 in common; write another prefix",
    ),
    fault(
        Add("[[static]]\nexternal = \"203.0.113.1:80\"\nprotocol = \"tcp\"\n\
             servers = [{ internal = \"10.0.0.8:80\" }, { internal = \"10.0.0.9:80\" }]\n\
             [static.health]\nkind = \"icmp\"\nport = 80\n"),
        13,
        "static[0].health.port",
        "has no effect with kind = \"icmp\"; leave it out",
    ),
    fault(
        Add("[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/40\"]\n"),
        7,
        "dslite",
        "the inside has none; write inside.address6 = \"2001:db8:0:1::1/64\"",
    ),
    fault(Add("[dslite]\nb4 = [\"2001:db8:b4::/40\"]\n"), 7, "dslite.address", "is missing"),
    fault(
        Add("[dslite]\naddress = \"64:ff9b::1\"\nb4 = [\"2001:db8:b4::/40\"]\n[nat64]\n\
             [[route]]\nprefix = \"::/0\"\nvia = \"fe80::9\"\nside = \"inside\"\n"),
        8,
        "dslite.address",
        "64:ff9b::1 is in 64:ff9b::/96 of nat64.prefixes",
    ),
    fault(
        Add("[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = []\n"),
        9,
        "dslite.b4",
        "has no prefix, so no B4 could send",
    ),
    fault(
        Add("[lw4o6]\naddress = \"fe80::1\"\nbindings = \"bindings.csv\"\n"),
        8,
        "lw4o6.address",
        "fe80::1 is link-local",
    ),
    fault(
        Add("[[map]]\nmode = \"encapsulation\"\nipv6 = \"2001:db8::/40\"\n\
             ipv4 = \"198.18.0.0/24\"\nea_length = 20\nbr = \"2001:db8:ffff::1\"\n"),
        11,
        "map[0].ea_length",
        "20 - (32 - 24) = 12 for the PSID",
    ),
    // The two sides.
    fault(Replace("device = \"eth1\"", "device = 1"), 2, "inside.device", "it must be a device"),
    fault(
        Replace("device = \"eth1\"", "device = \"\""),
        2,
        "inside.device",
        "write 1 to 15 bytes without space, \"/\" and \":\", such as \"eth0\"",
    ),
    fault(
        Replace("device = \"eth1\"", "device = \"a-name-too-long-for-a-device\""),
        2,
        "inside.device",
        "write 1 to 15 bytes without space, \"/\" and \":\", such as \"eth0\"",
    ),
    fault(Replace("\"eth1\"", "\"eth0\""), 4, "outside.device", "each side needs its own"),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nbackend = \"afxdp\""),
        3,
        "inside.backend",
        "did you mean \"af-xdp\"?",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\naddress = 10.0.0.1/8"),
        3,
        "",
        "write address = \"10.0.0.1/8\"",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\naddress = \"10.0.0.1\""),
        3,
        "inside.address",
        "write an address with its prefix length, such as \"192.0.2.1/24\"",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\naddress = \"10.0.0.0/8\""),
        3,
        "inside.address",
        "write a host's",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\naddress = \"10.0.0.1/33\""),
        3,
        "inside.address",
        "write an address with its prefix length, such as \"192.0.2.1/24\"",
    ),
    fault(
        Replace("\"eth0\"", "\"eth0\"\ngateway = \"192.0.2.1\"\naddress = \"198.51.100.2/24\""),
        5,
        "outside.gateway",
        "write a neighbor's address",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nmtu = \"1500\""),
        3,
        "inside.mtu",
        "it must be an integer from 68 to 65535",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nmtu = 67"),
        3,
        "inside.mtu",
        "it must be from 68 to 65535",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nmtu = -1"),
        3,
        "inside.mtu",
        "it must be from 68 to 65535",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nicmp_errors = \"no\""),
        3,
        "inside.icmp_errors",
        "it must be true or false",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nmode = \"fast\""),
        3,
        "inside.mode",
        "it must be one of \"latency\", \"rate\"",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nring = 3"),
        3,
        "inside.ring",
        "it must be from 256 to 65536",
    ),
    fault(
        Replace("\"eth1\"", "\"eth1\"\nmanagement = \"10.0.0.2\""),
        3,
        "inside.management",
        "it must be an array of addresses",
    ),
    // Pools.
    fault(
        Replace("[\"203.0.113.1\"]", "\"203.0.113.1\""),
        6,
        "pool[0].addresses",
        "it must be an array of addresses",
    ),
    fault(
        Replace("[\"203.0.113.1\"]", "[]"),
        6,
        "pool[0].addresses",
        "write one such as [\"203.0.113.1\"]",
    ),
    fault(
        Replace("203.0.113.1", "203.0.113.300"),
        6,
        "pool[0].addresses[0]",
        "write one such as \"192.0.2.1\"",
    ),
    fault(
        Replace("203.0.113.1", "203.0.113.9-203.0.113.1"),
        6,
        "pool[0].addresses[0]",
        "write \"203.0.113.1-203.0.113.9\"",
    ),
    fault(
        Replace("203.0.113.1", "2001:db8::1"),
        6,
        "pool[0].addresses[0]",
        "write one such as \"192.0.2.1\"",
    ),
    fault(Replace("203.0.113.1", "127.0.0.1"), 6, "pool[0].addresses[0]", "write unicast"),
    fault(
        Replace("203.0.113.1", "10.0.0.7"),
        6,
        "pool[0].addresses[0]",
        "set nat.subscribers to the inside prefixes only",
    ),
    fault(
        Add("ports = \"1024\"\nexclude_ports = [\"1024\"]\n"),
        8,
        "pool[0].exclude_ports[0]",
        "leave some",
    ),
    fault(Add("ports = \"2000-1000\"\n"), 7, "pool[0].ports", "write \"1000-2000\""),
    fault(
        Add("ports = 1024\n"),
        7,
        "pool[0].ports",
        "it must be a string such as \"1024-65535\" or \"5000\"",
    ),
    fault(
        Add("[[pool]]\naddresses = [\"203.0.113.1\"]\n"),
        7,
        "pool[1].name",
        "write name = \"second\"",
    ),
    fault(
        Add("[[pool]]\nname = \"b\"\naddresses = [\"203.0.113.0/30\"]\n"),
        9,
        "pool[1].addresses[0]",
        "name each address once",
    ),
    fault(Add("[pool.block]\nsize = 0\n"), 8, "pool[0].block.size", "it must be from 16 to 32768"),
    fault(Add("thresholds = [80, 101]\n"), 7, "pool[0].thresholds[1]", "it must be from 10 to 100"),
    fault(
        Add("allocation = \"deterministic\"\n"),
        1,
        "nat.subscribers",
        "name fewer subscribers or more addresses",
    ),
    // Translation, limits, classes, timeouts.
    fault(
        Add("[nat]\nmapping = \"symmetric\"\n"),
        8,
        "nat.mapping",
        "it must be one of \"endpoint-independent\", \"address-dependent\", \
         \"address-and-port-dependent\"",
    ),
    fault(
        Add("[nat]\nfiltering = \"none\"\n"),
        8,
        "nat.filtering",
        "it must be one of \"endpoint-independent\", \"address-dependent\", \
         \"address-and-port-dependent\"",
    ),
    fault(Add("[nat.block]\nsize = 100000\n"), 8, "nat.block.size", "it must be from 16 to 32768"),
    fault(Add("[limits]\nmappings = 0\n"), 8, "limits.mappings", "it must be from 1 to 1073741824"),
    fault(
        Add("[limits]\nfragment_memory = \"16 parsecs\"\n"),
        8,
        "limits.fragment_memory",
        "write one such as \"16MiB\" or \"4GiB\"",
    ),
    fault(
        Add("[limits]\nports_per_subscriber = 2000\n"),
        8,
        "limits.ports_per_subscriber",
        "it must be a table [limits.ports_per_subscriber]",
    ),
    fault(
        Add("[limits]\nports_per_subscriber = { sctp = 1 }\n"),
        8,
        "limits.ports_per_subscriber.sctp",
        "it may have `tcp`, `udp`, `icmp`",
    ),
    fault(
        Add("[[class]]\nname = \"a\"\n"),
        7,
        "class[0].subscribers",
        "write subscribers = [\"10.1.0.0/16\"]",
    ),
    fault(
        Add("[[class]]\n\
             name = \"a\"\n\
             subscribers = [\"10.0.0.0/8\"]\n\
             limits = { ports_per_subscriber = { tcp = -1 } }\n"),
        10,
        "class[0].limits.ports_per_subscriber.tcp",
        "it must be from 1 to 4294967295",
    ),
    fault(
        Add("[[class]]\n\
             name = \"a\"\n\
             subscribers = [\"10.0.0.0/8\"]\n\
             total = { ports = { udp = 0 } }\n"),
        10,
        "class[0].total.ports.udp",
        "it must be from 1 to 4294967295",
    ),
    fault(
        Add("[timeouts]\nudp = 300\n"),
        8,
        "timeouts.udp",
        "it must be a duration in quotes, such as \"2h4m\"",
    ),
    fault(
        Add("[timeouts]\nudp = \"5 minutes\"\n"),
        8,
        "timeouts.udp",
        "write numbers with d, h, m, s, ms, in this order, such as \"2h4m\"",
    ),
    fault(
        Add("[[timeout]]\nprotocol = \"udp\"\nport = 53\n"),
        7,
        "timeout[0].idle",
        "write idle = \"10s\"",
    ),
    // Realms, routes, rules, static mappings.
    fault(Add("[[realm]]\nname = \"a\"\n"), 7, "realm[0]", "write vlan = 100"),
    fault(
        Add("[[realm]]\nname = \"a\"\nvlan = 5000\n"),
        9,
        "realm[0].vlan",
        "it must be from 1 to 4094",
    ),
    fault(
        Add("[[realm]]\nname = \"a\"\nvlan = 7\npool = \"b\"\n"),
        10,
        "realm[0].pool",
        "write one of \"default\"",
    ),
    fault(
        Add("[[route]]\nprefix = \"198.51.100.0/24\"\n"),
        7,
        "route[0].via",
        "write via = \"192.0.2.254\"",
    ),
    fault(
        Add("[[route]]\nprefix = \"198.51.100.1/24\"\nvia = \"192.0.2.7\"\n"),
        8,
        "route[0].prefix",
        "write \"198.51.100.0/24\"",
    ),
    fault(
        Add("[[neighbor]]\naddress = \"10.0.0.2\"\nmac = \"02:00\"\n"),
        9,
        "neighbor[0].mac",
        "write one such as \"02:00:5e:10:00:01\"",
    ),
    fault(
        Add("[[rule]]\nkind = \"masquerade\"\nmatch = { source = \"10.0.0.0/8\" }\n"),
        8,
        "rule[0].kind",
        "it must be one of \"snat\", \"dnat\", \"bypass\", \"drop\"",
    ),
    fault(
        Add("[[rule]]\nkind = \"snat\"\nmatch = { source = \"10.0.0.0/8\" }\npool = \"b\"\n"),
        10,
        "rule[0].pool",
        "write one of \"default\"",
    ),
    fault(
        Add("[[rule]]\n\
             kind = \"drop\"\n\
             match = { source = \"10.0.0.0/8\", destination = \"192.0.2.0/24\" }\n"),
        9,
        "rule[0].match.destination",
        "keep one of the two",
    ),
    fault(
        Add("[[rule]]\n\
             kind = \"snat\"\n\
             match = { source = \"10.0.0.0/8\" }\n\
             pool = \"default\"\n\
             timeouts = { udp = \"0s\" }\n"),
        11,
        "rule[0].timeouts.udp",
        "it must be from 1s to 30d",
    ),
    fault(
        Add("[[static]]\ninternal = \"10.0.0.80:8080\"\n"),
        7,
        "static[0].external",
        "write external = \"203.0.113.1:80\"",
    ),
    fault(
        Add("[[static]]\ninternal = \"10.0.0.80:8080\"\nexternal = \"203.0.113.1\"\n"),
        9,
        "static[0].external",
        "give both a port, or neither",
    ),
    fault(
        Add("[[static]]\n\
             internal = \"10.0.0.80:80\"\n\
             external = \"203.0.113.1:80\"\n\
             protocol = \"http\"\n"),
        10,
        "static[0].protocol",
        "it must be one of \"tcp\", \"udp\", \"icmp\", \"dccp\"",
    ),
    fault(
        Add("[[static]]\n\
             external = \"203.0.113.1:80\"\n\
             protocol = \"tcp\"\n\
             servers = [{ internal = \"10.0.0.1:80\", weight = 0 }]\n"),
        10,
        "static[0].servers",
        "give one a weight of 1 or more",
    ),
    // The machine and its surroundings.
    fault(Add("[workers]\ncount = 0\n"), 8, "workers.count", "it must be from 1 to 64"),
    fault(Add("[workers]\ncores = [0, 0]\n"), 8, "workers.cores", "each worker has its own"),
    fault(
        Add("[dpdk]\neal = \"-l 1\"\n"),
        8,
        "dpdk.eal",
        "it must be an array of strings such as [\"--in-memory\"]",
    ),
    fault(
        Add("[announce]\ntable = \"main\"\n"),
        8,
        "announce.table",
        "it must be an integer from 1 to 4294967295",
    ),
    fault(
        Add("[announce]\npartner_metric = 0\n"),
        8,
        "announce.partner_metric",
        "it must be from 1 to 4294967295",
    ),
    fault(Add("[learn]\ntable = 0\n"), 8, "learn.table", "it must be from 1 to 4294967295"),
    fault(
        Add("[shutdown]\ndrain = \"soon\"\n"),
        8,
        "shutdown.drain",
        "write numbers with d, h, m, s, ms, in this order, such as \"2h4m\"",
    ),
    fault(
        Add("[state]\nfile = \"ports\"\n"),
        8,
        "state.file",
        "write one such as \"/var/lib/natgate/ports\"",
    ),
    fault(
        Add("[control]\nlisten = \"0.0.0.0:9466\"\n"),
        8,
        "control.listen",
        "needs [control.tls] with certificate, key and clients: other machines come only by \
         TLS",
    ),
    fault(
        Add("[control]\n\
             listen = \"192.0.2.1:9466\"\n\
             [control.tls]\n\
             certificate = \"server.pem\"\n"),
        10,
        "control.tls.certificate",
        "write one such as \"/etc/natgate/server.pem\"",
    ),
    fault(Add("[[log]]\n"), 7, "log[0].kind", "write kind = \"file\""),
    fault(
        Add("[[log]]\nkind = \"file\"\npath = \"events.jsonl\"\n"),
        9,
        "log[0].path",
        "write one such as \"/var/log/natgate/events.jsonl\"",
    ),
    fault(
        Add("[state]\n\
             file = \"/var/lib/natgate/ports\"\n\
             [[log]]\n\
             kind = \"file\"\n\
             path = \"/var/lib/natgate/ports\"\n"),
        11,
        "log[0].path",
        "each needs a path of its own",
    ),
    fault(
        Add("[[log]]\nkind = \"syslog\"\ncollector = \"192.0.2.10\"\n"),
        9,
        "log[0].collector",
        "write one such as \"192.0.2.10:514\", \"[2001:db8::1]:514\" or \
         \"logs.example.net:6514\"",
    ),
    fault(
        Add("[[log]]\n\
             kind = \"syslog\"\n\
             collector = \"192.0.2.10:514\"\n\
             transport = \"udp\"\n\
             [log.tls]\n\
             name = \"a\"\n"),
        11,
        "log[0].tls",
        "take it out",
    ),
    fault(
        Add("[[log]]\n\
             kind = \"spool\"\n\
             folder = \"/var/lib/natgate/log\"\n\
             max_age = \"forever\"\n"),
        10,
        "log[0].max_age",
        "write numbers with d, h, m, s, ms, in this order, such as \"2h4m\"",
    ),
    fault(
        Add("[page]\nlisten = \"9465\"\n"),
        8,
        "page.listen",
        "write one such as \"127.0.0.1:9465\", or \"off\"",
    ),
    fault(
        Add("[metrics]\nlisten = \"127.0.0.1:99999\"\n"),
        8,
        "metrics.listen",
        "write one such as \"127.0.0.1:9464\", or \"off\"",
    ),
    fault(
        Add("[page]\nlisten = \"127.0.0.1:9464\"\n"),
        8,
        "page.listen",
        "write another port or address",
    ),
    fault(
        Add("[snmp]\nagentx = \"agentx\"\n"),
        8,
        "snmp.agentx",
        "write an absolute path such as \"/var/agentx/master\", or a port such as \
         \"127.0.0.1:705\"",
    ),
    fault(Add("[pcp]\nenabled = \"yes\"\n"), 8, "pcp.enabled", "it must be true or false"),
    fault(
        Add("[pcp]\nenabled = true\nmin_lifetime = \"2h\"\nmax_lifetime = \"1h\"\n"),
        9,
        "pcp.min_lifetime",
        "exchange them",
    ),
    // Application-level gateways.
    fault(Add("[alg]\nftp = 21\n"), 8, "alg.ftp", "it must be true, or a table [alg.ftp]"),
    fault(Add("[alg]\nftp = { port = [21] }\n"), 8, "alg.ftp.port", "did you mean `ports`?"),
    fault(Add("[alg.tftp]\nports = []\n"), 8, "alg.tftp.ports", "has no port; name one"),
    fault(Add("[alg.sip]\nports = [0]\n"), 8, "alg.sip.ports[0]", "from 1 to 65535"),
    fault(Add("[alg.rtsp]\nports = 554\n"), 8, "alg.rtsp.ports", "an array of ports"),
    fault(
        Add("[alg]\nftp = true\nirc = { ports = [6667, 21] }\n"),
        9,
        "alg.irc.ports",
        "port 21 is a port of alg.ftp",
    ),
    fault(
        Add("[alg]\nirc = { ports = [7000, 7000] }\n"),
        8,
        "alg.irc.ports[1]",
        "7000 is there more than once",
    ),
    fault(
        Add("[alg.dns]\nports = [53, 53]\n"),
        8,
        "alg.dns.ports[1]",
        "53 is there more than once",
    ),
    fault(Add("[alg]\nsip = true\nflows = 63\n"), 9, "alg.flows", "from 64 to 1048576"),
    fault(Add("[alg.pptp]\nports = [0]\n"), 8, "alg.pptp.ports[0]", "from 1 to 65535"),
    fault(Add("[alg.h323]\nports = [1720, 0]\n"), 8, "alg.h323.ports[1]", "from 1 to 65535"),
];

fn text(edit: &Edit) -> String {
    match edit {
        Add(more) => format!("{GOOD}{more}"),
        Replace(old, new) => {
            assert!(GOOD.contains(old), "{old} is in the good file");
            GOOD.replacen(old, new, 1)
        }
        Whole(text) => (*text).to_owned(),
    }
}

#[test]
fn every_fault_is_told_in_its_line_with_its_key_and_what_would_be_right() {
    let mut wrong = Vec::new();
    for Fault { edit, line, key, says } in FAULTS {
        let text = text(edit);
        let problems = read_text(&text, "t.toml").err().unwrap_or_default();
        let is_wanted = |one: &Problem| {
            one.line == Some(*line) && one.key == *key && one.message.contains(says)
        };
        let shown: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let has_file = shown.iter().all(|one| one.starts_with("t.toml:"));
        if !problems.iter().any(is_wanted) || !has_file {
            wrong.push(format!("wanted {line} {key}: {says}\nfound {shown:#?}\nin\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), FAULTS.len(), wrong.join("\n"));
}

#[test]
fn every_table_has_a_fault() {
    let keys: BTreeSet<String> = FAULTS
        .iter()
        .map(|fault| {
            let name = fault.key.split('.').map(|part| part.split('[').next().unwrap_or_default());
            name.collect::<Vec<_>>().join(".")
        })
        .collect();
    for (section, _) in SECTIONS.iter().filter(|(section, _)| !section.is_empty()) {
        let is_about = |key: &String| key == section || key.starts_with(&format!("{section}."));
        assert!(keys.iter().any(is_about), "[{section}] has no fault in the table");
    }
}
