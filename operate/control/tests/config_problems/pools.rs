//! Pools, their blocks and shares, and the subscribers that they are for.

use crate::{SMALLEST, refused, refused_after_smallest, warned};
use natgate_control::config::read_text;

#[test]
fn addresses() {
    for (value, fragment) in [
        ("203.0.113.300", "is no IPv4 address"),
        ("2001:db8::1", "is no IPv4 address"),
        ("", "is no IPv4 address"),
        ("203.0.113.0/33", "is no IPv4 prefix"),
        ("203.0.113.0/+8", "is no IPv4 prefix"),
        ("203.0.113.0/028", "is no IPv4 prefix"),
        ("203.0.113.1/28", "has bits beyond the /28; write \"203.0.113.0/28\""),
        ("203.0.113.9-203.0.113.1", "is reversed; write \"203.0.113.1-203.0.113.9\""),
        ("203.0.113.9-", "is no IPv4 address"),
        ("0.0.0.0/8", "overlaps 0.0.0.0/8 (zero)"),
        ("127.0.0.1", "is in 127.0.0.0/8 (loopback)"),
        ("223.255.255.255-224.0.0.0", "overlaps 224.0.0.0/4 (multicast)"),
        ("255.255.255.255", "is in 240.0.0.0/4 (class E)"),
        ("192.168.1.1", "overlaps 192.168.0.0/16 of nat.subscribers; set nat.subscribers"),
        ("203.0.0.0/16", "makes 65536 external addresses"),
    ] {
        let expected = format!("6:14 pool[0].addresses[0]: …{fragment}");
        refused(&SMALLEST.replace("203.0.113.1", value), &[&expected]);
    }
}

#[test]
fn ports() {
    for (value, fragment) in [
        ("", "is no range of ports"),
        ("1024-", "is no range of ports"),
        ("1024-65536", "is no range of ports"),
        ("1024-2047-4095", "is no range of ports"),
        ("0-1023", "port 0 cannot be used"),
        ("2047-1024", "is reversed; write \"1024-2047\""),
    ] {
        let expected = format!("7:9 pool[0].ports: …{fragment}");
        refused(&format!("{SMALLEST}ports = \"{value}\"\n"), &[&expected]);
    }
}

#[test]
fn pools() {
    let second = |addresses: &str| format!("[[pool]]\nname = \"b\"\naddresses = [{addresses}]\n");
    refused_after_smallest(&[
        (
            &second("\"203.0.113.0/30\""),
            &["9:14 pool[1].addresses[0]: 203.0.113.0/30 overlaps pool[0].addresses[0] in line 6"],
        ),
        // The wide range in between must not hide the overlap with the first.
        (
            &second("\"198.51.100.0/24\", \"198.51.100.7\", \"198.51.100.200\""),
            &[
                "9:33 pool[1].addresses[1]: 198.51.100.7 overlaps pool[1].addresses[0] in line 9",
                "9:49 pool[1].addresses[2]: 198.51.100.200 overlaps pool[1].addresses[0]",
            ],
        ),
        ("[[pool]]\naddresses = [\"203.0.113.2\"]\n", &["7:1 pool[1].name: is missing"]),
        (
            "[[pool]]\nname = \"default\"\naddresses = [\"203.0.113.2\"]\n",
            &["8:8 pool[1].name: \"default\" is the name of the pool in line 5"],
        ),
        ("name = \"a b\"\n", &["7:8 pool[0].name: \"a b\" is no name"]),
    ]);
}

#[test]
fn subscribers() {
    refused_after_smallest(&[
        ("[nat]\nsubscribers = []\n", &["8:15 nat.subscribers: names nobody"]),
        (
            "[nat]\nsubscribers = [\"10.0.0.1/8\"]\n",
            &["8:16 nat.subscribers[0]: …write \"10.0.0.0/8\""],
        ),
        ("[nat]\nsubscribers = [\"0.0.0.0/0\"]\n", &["6:14 pool[0].addresses[0]: …0.0.0.0/0"]),
    ]);
    let rule =
        "[[rule]]\nkind = \"snat\"\nmatch = { source = \"10.0.0.0/8\" }\npool = \"default\"\n";
    assert!(read_text(&format!("{SMALLEST}[nat]\nsubscribers = []\n{rule}"), "t").is_ok());
}

#[test]
fn blocks_that_a_pool_has_not() {
    refused_after_smallest(&[
        (
            "ports = \"5000-5099\"\n[nat]\nallocation = \"block\"\n",
            &["9:14 nat.allocation: ports 5000-5099 are 100, too few for a block of 512; write a"],
        ),
        (
            "ports = \"5000-5099\"\nallocation = \"block\"\n[pool.block]\nsize = 128\n",
            &["10:8 pool[0].block.size: ports 5000-5099 are 100, too few for a block of 128"],
        ),
        (
            "allocation = \"block\"\n[nat.block]\nsize = 500\n",
            &["9:8 nat.block.size: 500 is no power of two; write 256 or 512"],
        ),
        ("[nat.block]\nsize = 8\n", &["8:8 nat.block.size: 8 is out of bounds; …16 to 32768"]),
        (
            "[nat.block]\nmax_per_subscriber = 129\nrelease_after = \"61m\"\n",
            &[
                "8:22 nat.block.max_per_subscriber: 129 is out of bounds; …1 to 128",
                "9:17 nat.block.release_after: 1h1m is out of bounds; …0s to 1h",
            ],
        ),
        (
            "block = { size = 64 }\n",
            &["7:9 pool[0].block: has no effect: the pool's allocation is \"random\"; only \
                 \"block\""],
        ),
    ]);
    let blocks = |ports: &str, block: &str| {
        let nat = format!("[nat]\nallocation = \"block\"\n[nat.block]\n{block}");
        format!("{SMALLEST}ports = \"{ports}\"\n{nat}")
    };
    warned(&[
        (&blocks("1024-65535", "size = 512\nmax_per_subscriber = 4\n"), &[]),
        (
            &blocks("5000-6000", "size = 256\n"),
            &["7:9 pool[0].ports: 1001 ports are 3 x 256 and 233 that fill no block; nobody gets"],
        ),
        (&format!("{}[workers]\ncount = 2\n", blocks("1024-65535", "size = 512\n")), &[]),
        (&blocks("1000-65535", "size = 512\n"), &["7:9 pool[0].ports: 64536 ports are 126 x 512"]),
        (
            &format!("{}[workers]\ncount = 2\n", blocks("1040-2063", "size = 512\n")),
            &["7:9 pool[0].ports: blocks of 512 from port 1040 on are not in line with words of \
                 64 ports, so each trade of ports between workers keeps blocks from subscribers; \
                 write ports from a multiple of 64 on"],
        ),
        (
            &blocks("1024-2047", "size = 512\nmax_per_subscriber = 4\n"),
            &["12:22 nat.block.max_per_subscriber: 4 blocks are more than the 2 of an address of"],
        ),
        (
            &format!(
                "{}[limits]\nports_per_subscriber = {{ tcp = 3000 }}\n",
                blocks("1024-65535", "size = 512\n")
            ),
            &["13:24 limits.ports_per_subscriber: the TCP quota of 3000 is more than the 2048 \
                 ports"],
        ),
    ]);
}

#[test]
fn shares_that_a_pool_has_not() {
    let second = "[[pool]]\nname = \"b\"\naddresses = [\"203.0.113.2\"]\n";
    refused_after_smallest(&[
        (
            "[nat]\nallocation = \"deterministic\"\n",
            &["7:1 nat.subscribers: 22085632 subscribers are more than the 1 x 64512 = 64512 \
                 ports"],
        ),
        (
            "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/16\"]\n",
            &["8:15 pool[0].subscribers: 65536 subscribers are more than the 1 x 64512 = 64512"],
        ),
        (
            "allocation = \"deterministic\"\nports_per_subscriber = 1000\n\
             [nat]\nsubscribers = [\"10.0.0.0/25\"]\n",
            &["8:24 pool[0].ports_per_subscriber: 64512 / 1000 = 64 subscribers an address, 64 \
               on 1, but there are 128; write less"],
        ),
        (
            "allocation = \"deterministic\"\ndynamic_ports = 64512\n\
             [nat]\nsubscribers = [\"10.0.0.0/25\"]\n",
            &["8:17 pool[0].dynamic_ports: 64512 of the 64512 ports of an address leave none"],
        ),
        (
            "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/25\", \"10.0.0.5\"]\n",
            &["8:15 pool[0].subscribers: 10.0.0.0-10.0.0.127 and 10.0.0.5-10.0.0.5 overlap"],
        ),
        (
            "allocation = \"deterministic\"\nports = \"1-65535\"\n\
             subscribers = [\"10.0.0.0/25\"]\n",
            &["8:9 pool[0].ports: 1-65535 has ports of both sides of 1024; begin at 1024"],
        ),
        (
            "subscribers = [\"10.0.0.0/25\"]\nports_per_subscriber = 5\ndynamic_ports = 5\n",
            &[
                "7:15 pool[0].subscribers: has no effect: …only \"deterministic\" has it",
                "8:24 pool[0].ports_per_subscriber: has no effect",
                "9:17 pool[0].dynamic_ports: has no effect",
            ],
        ),
        (
            &format!("allocation = \"deterministic\"\n{second}"),
            &["5:1 pool[0].subscribers: is missing: with several pools each says whose its ports"],
        ),
    ]);
    let some = "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/25\"]\n";
    for (address, expected) in [
        ("[]", "6:13 pool[0].addresses: has no address"),
        ("[\"203.0.113.300\"]", "6:14 pool[0].addresses[0]: …is no IPv4 address"),
    ] {
        let pool = SMALLEST.replace("[\"203.0.113.1\"]", address);
        refused(&format!("{pool}{some}"), &[expected]);
    }
    let nat = "[nat]\nsubscribers = [\"10.0.0.0/24\"]\n";
    warned(&[
        (&format!("{SMALLEST}{some}[nat]\nsubscribers = [\"10.0.0.0/25\"]\n"), &[]),
        (
            &format!("{SMALLEST}{some}{nat}"),
            &["8:15 pool[0].subscribers: pool.subscribers lacks 128 addresses of 10.0.0.0/24, \
                 which nat.subscribers has; they get no port of this pool"],
        ),
        (
            &format!("{SMALLEST}{some}dynamic_ports = 512\n{nat}"),
            &["8:15 pool[0].subscribers: pool.subscribers lacks 128 addresses of …; they get \
               dynamic ports only"],
        ),
    ]);
}
