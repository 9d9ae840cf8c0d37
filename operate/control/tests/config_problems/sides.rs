//! Devices, addresses, back ends and routes that cannot be.

use crate::{SMALLEST, refused, refused_after_smallest};

#[test]
fn what_cannot_be_the_kernels() {
    let head = |side: &str, backend: &str, management: &str| {
        let with = |name: &str| match name == side {
            true => format!("backend = \"{backend}\"\nmanagement = {management}\n"),
            false => String::new(),
        };
        format!(
            "[inside]\ndevice = \"eth1\"\naddress = \"10.0.0.1/8\"\n{}\
             [outside]\ndevice = \"eth0\"\naddress = \"192.0.2.1/24\"\n{}\
             [[pool]]\naddresses = [\"203.0.113.0/28\"]\n\
             [[static]]\ninternal = \"10.0.0.9\"\nexternal = \"198.51.100.9\"\n",
            with("inside"),
            with("outside")
        )
    };
    let many = format!("{:?}", vec!["10.0.0.2"; 33]);
    for (side, backend, management, expected) in [
        (
            "inside",
            "af-xdp",
            "[\"10.0.0.1\"]",
            "5:15 inside.management[0]: 10.0.0.1 is inside.address",
        ),
        (
            "outside",
            "af-packet",
            "[\"203.0.113.7\"]",
            "8:15 outside.management[0]: 203.0.113.7 is an address of pool \"default\"",
        ),
        (
            "outside",
            "af-packet",
            "[\"198.51.100.9\"]",
            "8:15 outside.management[0]: 198.51.100.9 is the external address of a static",
        ),
        (
            "outside",
            "tun",
            "[]",
            "8:14 outside.management: has no effect, because the kernel itself is",
        ),
        (
            "inside",
            "dpdk",
            "[\"10.0.0.2\"]",
            "5:14 inside.management: has no effect, because the kernel does not see",
        ),
        ("inside", "af-xdp", "[\"127.0.0.1\"]", "5:15 inside.management[0]: 127.0.0.1 is in"),
        ("inside", "af-xdp", &many, "5:14 inside.management: has 33 addresses; it may have 32"),
        ("inside", "af-xdp", "\"10.0.0.2\"", "5:14 inside.management: "),
    ] {
        refused(&head(side, backend, management), &[expected]);
    }
    refused_after_smallest(&[
        ("[announce]\ntable = 0", &["8:9 announce.table: "]),
        ("[announce]\ntable = 255", &["8:9 announce.table: is the table of the kernel's own"]),
        ("[announce]\nprotocol = 4", &["8:12 announce.protocol: "]),
        ("[announce]\nprotocol = 256", &["8:12 announce.protocol: "]),
        ("[learn]", &["7:1 learn.table: is missing; write table = 100"]),
        ("[learn]\ntable = -1", &["8:9 learn.table: "]),
        ("[shutdown]\ndrain = \"11m\"", &["8:9 shutdown.drain: 11m is out of bounds"]),
        ("[shutdown]\ndrain = 5", &["8:9 shutdown.drain: "]),
        ("[learn]\ntable = 100\nprotocol = 5", &["9:1 learn.protocol: "]),
    ]);
}

#[test]
fn dpdk_ports_and_what_dpdk_is_started_with() {
    let with = |device: &str, more: &str| {
        let side = format!("\"{device}\"\nbackend = \"dpdk\"\naddress = \"10.0.0.1/8\"");
        format!("{}{more}", SMALLEST.replace("\"eth1\"", &side))
    };
    for (text, expected) in [
        (with("net memif0", ""), "2:10 inside.device: \"net memif0\" names no DPDK port; "),
        (
            with("net_null0", "[dpdk]\neal = [\"-m\", \"256\", \"--help\"]\n"),
            "10:21 dpdk.eal[2]: \"--help\" ends the program; take it out",
        ),
        (
            with("net_null0", "[dpdk]\neal = [\"-l\", \"1\"]\n"),
            "10:8 dpdk.eal[0]: \"-l\" chooses cores, which natgate does by itself; take it out",
        ),
        (with("net_null0", "[dpdk]\neal = \"-m\"\n"), "10:7 dpdk.eal: …an array of strings"),
        (
            with("net_null0", &format!("[dpdk]\neal = [{}]\n", "\"-m\",".repeat(65))),
            "10:7 dpdk.eal: has 65 arguments; it may have 64",
        ),
    ] {
        refused(&text, &[expected]);
    }
    refused(
        &SMALLEST.replace("\"eth1\"", "\"net_null0\"\nbackend = \"dpdk\""),
        &["1:1 inside.address: is missing, and a DPDK port has none of the kernel's; write \
             address"],
    );
    refused_after_smallest(&[(
        "[dpdk]\neal = []\n",
        &["8:7 dpdk.eal: has no effect, because no side has backend = \"dpdk\"; take it out"],
    )]);
    let outside = "\"net_null0,size=1\"\nbackend = \"dpdk\"\naddress = \"192.0.2.1/24\"";
    refused(
        &with("net_null0,size=2", "").replace("\"eth0\"", outside),
        &["6:10 outside.device: \"net_null0,size=1\" is the inside's device too"],
    );
    // Whatever the back ends.
    refused(
        &SMALLEST.replace("\"eth0\"", "\"eth1\"\nbackend = \"af-xdp\""),
        &["4:10 outside.device: \"eth1\" is the inside's device too"],
    );
}

#[test]
fn rings_and_what_matters_more() {
    let with = |more: &str| SMALLEST.replace("\"eth1\"", &format!("\"eth1\"\n{more}"));
    for (more, expected) in [
        (
            "mode = \"fast\"",
            "3:8 inside.mode: \"fast\" is unknown; it must be one of \"latency\", \"rate\"",
        ),
        (
            "mode = \"rate\"\nbackend = \"tun\"",
            "3:8 inside.mode: \"rate\" is for backend = \"af-packet\", and this side has \"tun\"; \
             take it out",
        ),
        ("ring = 128", "3:8 inside.ring: 128 is out of bounds; it must be from 256 to 65536"),
        ("ring = 5000", "3:8 inside.ring: 5000 is no power of two; write 4096 or 8192"),
        (
            "ring = 65536\nbackend = \"af-xdp\"",
            "3:8 inside.ring: 65536 is out of bounds; it must be from 256 to 16384",
        ),
        (
            "ring = 256\nbackend = \"tun\"",
            "3:8 inside.ring: is for \"af-packet\" and \"af-xdp\", and this side has backend = \
             \"tun\"; take",
        ),
    ] {
        refused(&with(more), &[expected]);
    }
}

#[test]
fn sides() {
    let sides = |inside: &str, outside: &str| {
        format!(
            "[inside]\n{inside}\n[outside]\n{outside}\n[[pool]]\naddresses = [\"203.0.113.1\"]\n"
        )
    };
    let in_one = "device = \"a\"\naddress = \"10.0.0.1/8\"";
    for (inside, outside, expected) in [
        (in_one, "device = \"a\"", "5:10 outside.device: \"a\" is the inside's device too"),
        (in_one, "device = \"\"", "5:10 outside.device: \"\" names no device"),
        (in_one, "device = \"a/b\"", "5:10 outside.device: \"a/b\" names no device"),
        (
            in_one,
            "device = \"b\"\naddress = \"10.9.0.1/8\"",
            "6:11 outside.address: is in one network",
        ),
        (in_one, "device = \"b\"\naddress = \"192.0.2.1\"", "6:11 outside.address: …no interface"),
        (
            in_one,
            "device = \"b\"\naddress = \"192.0.2.0/24\"",
            "6:11 outside.address: …network address",
        ),
        (in_one, "device = \"b\"\naddress = \"192.0.2.3/30\"", "6:11 outside.address: …broadcast"),
        (
            in_one,
            "device = \"b\"\naddress = \"192.0.2.3/0\"",
            "6:11 outside.address: …every address",
        ),
        (in_one, "device = \"b\"\naddress = \"127.0.0.1/8\"", "6:11 outside.address: …loopback"),
        (in_one, "device = \"b\"\ngateway = \"192.0.2\"", "6:11 outside.gateway: …no IPv4 address"),
    ] {
        refused(&sides(inside, outside), &[expected]);
    }
    let gateway = format!("{in_one}\ngateway = ");
    let other = "device = \"b\"";
    refused(
        &sides(&format!("{gateway}\"192.0.2.1\""), other),
        &["4:11 inside.gateway: 192.0.2.1 is not in 10.0.0.0/8"],
    );
    refused(
        &sides(&format!("{gateway}\"10.0.0.1\""), other),
        &["4:11 inside.gateway: is inside.add"],
    );
    let pool =
        sides(in_one, "device = \"b\"\naddress = \"203.0.113.2/24\"\ngateway = \"203.0.113.1\"");
    refused(&pool, &["9:14 pool[0].addresses[0]: 203.0.113.1 contains outside.gateway"]);
}

#[test]
fn routes() {
    let base = SMALLEST
        .replace("\"eth0\"\n", "\"eth0\"\naddress = \"192.0.2.1/24\"\ngateway = \"192.0.2.254\"\n");
    for (extra, expected) in [
        ("prefix = \"198.51.100.0/24\"", "9:1 route[0].via: is missing"),
        ("via = \"192.0.2.254\"", "9:1 route[0].prefix: is missing"),
        ("prefix = \"8.8.8.8/8\"\nvia = \"192.0.2.2\"", "10:10 route[0].prefix: …beyond the /8"),
        (
            "prefix = \"8.0.0.0/8\"\nvia = \"192.0.3.2\"",
            "11:7 route[0].via: …is not in 192.0.2.0/24",
        ),
        ("prefix = \"8.0.0.0/8\"\nvia = \"192.0.2.1\"", "11:7 route[0].via: is outside.address"),
        ("prefix = \"0.0.0.0/0\"\nvia = \"192.0.2.2\"", "10:10 route[0].prefix: …outside.gateway"),
        ("prefix = \"192.0.2.0/24\"\nvia = \"192.0.2.2\"", "10:10 route[0].prefix: …goes first"),
        (
            "prefix = \"8.0.0.0/8\"\nvia = \"192.0.2.2\"\nside = \"in\"",
            "12:8 route[0].side: \"in\" is",
        ),
    ] {
        refused(&format!("{base}[[route]]\n{extra}\n"), &[expected]);
    }
    let route = "[[route]]\nprefix = \"8.0.0.0/8\"\nvia = \"192.0.2.2\"\n";
    refused(
        &format!("{base}{route}{route}"),
        &["13:10 route[1].prefix: 8.0.0.0/8 has a route in line 10 already"],
    );
}
