//! Exclusions of a pool: excluded addresses and ports, addresses that drain, room for more.

use natgate_control::config::{Problem, read_text};
use natgate_control::meaning::Meaning;
use natgate_engine::AddressRange;

fn text(pool: &str, rest: &str) -> String {
    format!("[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n[[pool]]\n{pool}\n{rest}")
}

/// `LINE:COLUMN key: message` of each problem.
fn told(problems: &[Problem]) -> Vec<String> {
    let place = |problem: &Problem| {
        let (line, column) = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
        format!("{line}:{column} {}: {}", problem.key, problem.message)
    };
    problems.iter().map(place).collect()
}

#[track_caller]
fn refused(pool: &str, rest: &str, expected: &str) {
    let problems = told(&read_text(&text(pool, rest), "t.toml").expect_err("it is wrong"));
    assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:#?}");
}

#[track_caller]
fn warned(pool: &str, rest: &str, expected: &str) {
    let read = read_text(&text(pool, rest), "t.toml").expect("it can be run");
    let warnings = told(&read.warnings);
    assert!(warnings.iter().any(|warning| warning.starts_with(expected)), "{warnings:#?}");
}

const SIXTEEN: &str = "addresses = [\"203.0.113.0/28\"]";

#[test]
fn excluded_addresses_are_no_part_of_the_pool() {
    let pool = format!(
        "{SIXTEEN}\nexclude = [\"203.0.113.0\", \"203.0.113.5-203.0.113.7\", \"203.0.113.15\"]"
    );
    // Another pool may have the addresses that one pool excludes.
    let rest = "[[pool]]\nname = \"b\"\naddresses = [\"203.0.113.6\"]\n\
                [[rule]]\nkind = \"snat\"\nmatch = { source = \"10.1.0.0/16\" }\npool = \"b\"\n";
    let read = read_text(&text(&pool, rest), "t.toml").expect("a good configuration");
    let range = |first: u8, last: u8| AddressRange {
        first: [203, 0, 113, first].into(),
        last: [203, 0, 113, last].into(),
    };
    assert_eq!(read.settings.engine.pools[0].addresses, [range(1, 4), range(8, 14)]);
    assert_eq!(Meaning::of(read).pools[0].addresses, 11);
}

#[test]
fn exclusions_that_mean_nothing_or_leave_nothing_are_refused() {
    refused(
        &format!("{SIXTEEN}\nexclude = [\"203.0.113.16\"]"),
        "",
        "7:12 pool[0].exclude[0]: 203.0.113.16 is not among the pool's addresses",
    );
    refused(
        &format!("{SIXTEEN}\nexclude = [\"203.0.113.0/24\"]"),
        "",
        "7:12 pool[0].exclude[0]: leaves none of the pool's 16 addresses",
    );
    refused(
        &format!("{SIXTEEN}\nexclude_ports = [\"80\"]"),
        "",
        "7:18 pool[0].exclude_ports[0]: 80-80 excludes nothing: the pool's ports are 1024-65535",
    );
    refused(
        &format!("{SIXTEEN}\nexclude_ports = [\"1-5000\", \"5001-65535\"]"),
        "",
        "7:18 pool[0].exclude_ports[0]: excludes all of the 64512 ports 1024-65535",
    );
    let plan = "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/28\"]";
    // 64,512 / 1: one subscriber an address.
    refused(
        &format!("{SIXTEEN}\n{plan}\nports_per_subscriber = 100\nexclude_ports = [\"1124-1223\"]"),
        "",
        "10:18 pool[0].exclude_ports[0]: leaves whom 1124-1223 of an address are given none of the \
         100",
    );
}

#[test]
fn holes_in_blocks_and_ranges_are_told() {
    warned(
        &format!("{SIXTEEN}\nallocation = \"block\"\nexclude_ports = [\"1024-2047\", \"3000\"]"),
        "",
        "8:18 pool[0].exclude_ports[0]: of the 126 blocks an address, 1 have fewer than 512 ports \
         now and 2 have none",
    );
    let plan = "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/24\"]";
    warned(
        &format!("{SIXTEEN}\n{plan}\nexclude_ports = [\"5060\"]"),
        "[limits]\nports_per_subscriber = { tcp = 2000 }\n",
        "9:18 pool[0].exclude_ports[0]: of the 16 ranges of 4032 ports an address, 1 have fewer \
         now",
    );
}

#[test]
fn what_drains_is_the_pools_own() {
    refused(
        &format!("{SIXTEEN}\ndrain = [\"203.0.113.3\", \"198.51.100.1\"]"),
        "",
        "7:25 pool[0].drain[1]: 198.51.100.1 the pool does not have",
    );
    refused(
        &format!("{SIXTEEN}\ndrain = [\"203.0.113.8-203.0.113.17\"]"),
        "",
        "7:10 pool[0].drain[0]: 203.0.113.8-203.0.113.17 has 2 that the pool does not have",
    );
    refused(
        &format!(
            "{SIXTEEN}\nallocation = \"deterministic\"\ndrain = [\"203.0.113.3\"]\n\
             subscribers = [\"10.0.0.0/24\"]"
        ),
        "",
        "8:10 pool[0].drain[0]: is of a deterministic pool",
    );
    warned(
        &format!("{SIXTEEN}\ndrain = [\"203.0.113.0/28\"]"),
        "",
        "7:10 pool[0].drain[0]: drains all 16 addresses of pool \"default\"",
    );
}

#[test]
fn there_is_room_for_what_is_named() {
    let rest = "[limits]\nexternal_addresses = 16\n\
                [[static]]\ninternal = \"10.0.0.1\"\nexternal = \"203.0.113.99\"\n";
    refused(
        SIXTEEN,
        rest,
        "8:22 limits.external_addresses: 16 is less than the 16 addresses of pools + 1 of static \
         mappings = 17",
    );
    let read = read_text(&text(SIXTEEN, &rest.replace("= 16", "= 17")), "t.toml");
    let read = read.expect("there is room");
    assert_eq!(read.settings.engine.limits.external_addresses, Some(17));
}

#[test]
fn check_says_what_is_left() {
    let pool = format!(
        "{SIXTEEN}\nports = \"1024-2047\"\nexclude_ports = [\"1100\", \"1200-1299\"]\n\
         drain = [\"203.0.113.3\"]"
    );
    let meaning = Meaning::of(read_text(&text(&pool, ""), "t.toml").expect("it can be run"));
    let pool = &meaning.pools[0];
    assert_eq!((pool.addresses, pool.draining), (16, 1));
    assert_eq!(pool.mappings.tcp, 15 * (1024 - 101));
    let words = meaning.to_string();
    for line in
        ["without ports 1100, 1200-1299", "1 address drains, without new mappings: 203.0.113.3"]
    {
        assert!(words.contains(line), "{words}");
    }
}

#[test]
fn few_deterministic_ports_and_rules_for_others_are_unwise() {
    let pool = "addresses = [\"203.0.113.1\"]\nallocation = \"deterministic\"\n\
                subscribers = [\"10.0.0.0/18\"]";
    warned(pool, "", "7:14 pool[0].allocation: pool \"default\" leaves each subscriber 3 ports");
    let pool = "addresses = [\"203.0.113.0/28\"]\nallocation = \"deterministic\"\n\
                subscribers = [\"10.0.0.0/24\"]";
    let rule =
        "[[rule]]\nkind = \"snat\"\nmatch = { source = \"10.0.0.0/23\" }\npool = \"default\"\n";
    warned(
        pool,
        rule,
        "11:20 rule[0].match.source: 256 addresses of 10.0.0.0/23 are not among the subscribers",
    );
}
