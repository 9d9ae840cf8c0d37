//! Random text as another translator's configuration: as it is, or words of such files put together
//! anew. Whatever comes in, what comes out is TOML, and can be read as natgate's configuration or
//! is refused with sentences.

#![no_main]

use libfuzzer_sys::fuzz_target;
use natgate_control::config::{parse_bindings, read_text};
use natgate_import::{Format, Hints, import};
use std::net::Ipv6Addr;
use std::sync::LazyLock;

const FILES: [&str; 14] = [
    include_str!("../../operate/import/tests/files/home.iptables"),
    include_str!("../../operate/import/tests/files/isp.iptables"),
    include_str!("../../operate/import/tests/files/ruleset.nft"),
    include_str!("../../operate/import/tests/files/startup.vpp"),
    include_str!("../../operate/import/tests/files/det44.vpp"),
    include_str!("../../operate/import/tests/files/map.vpp"),
    include_str!("../../operate/import/tests/files/aftr.vpp"),
    include_str!("../../operate/import/tests/files/nat64.json"),
    include_str!("../../operate/import/tests/files/siit.json"),
    include_str!("../../operate/import/tests/files/jool.sh"),
    include_str!("../../operate/import/tests/files/pool.tayga"),
    include_str!("../../operate/import/tests/files/maps.tayga"),
    include_str!("../../operate/import/tests/files/lwaftr.conf"),
    include_str!("../../operate/import/tests/files/lwaftr-lists.conf"),
];

const FORMATS: [Option<Format>; 7] = [
    None,
    Some(Format::Iptables),
    Some(Format::Nft),
    Some(Format::Vpp),
    Some(Format::Jool),
    Some(Format::Tayga),
    Some(Format::Snabb),
];

/// The words of all files, and ends of lines.
static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let lines = FILES.iter().flat_map(|text| text.lines());
    let mut words: Vec<&str> =
        lines.flat_map(|line| line.split_whitespace().chain(["\n"])).collect();
    words.extend(["0", "65536", "0.0.0.0/0", "255.255.255.255", "!", "\"", "{", "}", "\u{85}"]);
    words
});

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    let text = match kind / 8 % 4 {
        0 => String::from_utf8_lossy(bytes).into_owned(),
        1 => spliced(bytes),
        _ => words(bytes),
    };
    let text_or = |bit: u8, text: &str| (kind & bit != 0).then(|| text.to_owned());
    let hints = Hints {
        inside: text_or(32, "eth1"),
        outside: text_or(64, "eth0"),
        external: text_or(128, "203.0.113.1"),
        bindings: None,
    };
    for format in FORMATS {
        match import(&text, format, &hints) {
            Ok(imported) => {
                assert!(imported.config.parse::<toml::Table>().is_ok(), "{}", imported.config);
                assert!(imported.remarks.iter().all(|remark| !remark.message.is_empty()));
                let refused = read_text(&imported.config, "imported").err();
                assert!(refused.is_none_or(|problems| !problems.is_empty()));
                if let Some(bindings) = imported.bindings {
                    let table = parse_bindings(&bindings, "bindings", Ipv6Addr::LOCALHOST);
                    assert!(table.is_ok(), "{bindings}");
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});

/// Two bytes are a word.
fn words(bytes: &[u8]) -> String {
    let number = |two: &[u8]| usize::from(two[0]) << 8 | usize::from(two[1]);
    let words = bytes.chunks_exact(2).map(|two| WORDS[number(two) % WORDS.len()]);
    words.collect::<Vec<_>>().join(" ").replace(" \n ", "\n")
}

/// A file, in whose middle the bytes stand: the first two say which and where.
fn spliced(bytes: &[u8]) -> String {
    let [file, place, rest @ ..] = bytes else { return String::new() };
    let text = FILES[usize::from(*file) % FILES.len()];
    let lines: Vec<&str> = text.lines().collect();
    let (before, after) = lines.split_at(usize::from(*place) % lines.len());
    [&before.join("\n"), "\n", &String::from_utf8_lossy(rest), "\n", &after.join("\n")].concat()
}
