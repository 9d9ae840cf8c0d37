//! No input causes a panic: any text, and files of other programs with pieces lost, doubled and
//! exchanged.

use natgate_import::{Format, Hints, detect, import};
use proptest::prelude::*;

const FILES: [(&str, Format); 16] = [
    (include_str!("files/home.iptables"), Format::Iptables),
    (include_str!("files/isp.iptables"), Format::Iptables),
    (include_str!("files/ruleset.nft"), Format::Nft),
    (include_str!("files/maps.nft"), Format::Nft),
    (include_str!("files/maps.json"), Format::Nft),
    (include_str!("files/startup.vpp"), Format::Vpp),
    (include_str!("files/det44.vpp"), Format::Vpp),
    (include_str!("files/map.vpp"), Format::Vpp),
    (include_str!("files/aftr.vpp"), Format::Vpp),
    (include_str!("files/nat64.json"), Format::Jool),
    (include_str!("files/siit.json"), Format::Jool),
    (include_str!("files/jool.sh"), Format::Jool),
    (include_str!("files/pool.tayga"), Format::Tayga),
    (include_str!("files/maps.tayga"), Format::Tayga),
    (include_str!("files/lwaftr.conf"), Format::Snabb),
    (include_str!("files/lwaftr-lists.conf"), Format::Snabb),
];

const FORMATS: [Format; 6] =
    [Format::Iptables, Format::Nft, Format::Vpp, Format::Jool, Format::Tayga, Format::Snabb];

#[test]
fn every_file_is_recognised() {
    for (text, format) in FILES {
        assert_eq!(detect(text), Some(format), "{text}");
    }
    assert_eq!(detect(""), None);
    assert_eq!(detect("[inside]\ndevice = \"eth1\"\n"), None);
    assert_eq!(detect("{\"nftables\": []}"), Some(Format::Nft));
}

/// Chains that call each other, and themselves, several times: the number of rules read is bounded,
/// not only the number of results.
#[test]
fn chains_that_call_chains_come_to_an_end() {
    let calls = "-A a -j a\n-A a -j b\n-A b -j a\n-A b -j b\n".repeat(20);
    let text = format!("*nat\n:a - [0:0]\n:b - [0:0]\n-A POSTROUTING -j a\n{calls}COMMIT\n");
    // Either nothing is translated, or every line is a remark.
    if let Ok(imported) = import(&text, Some(Format::Iptables), &Hints::default()) {
        assert!(imported.remarks.len() < 100_000, "{} remarks", imported.remarks.len());
    }
}

/// Maps that many rules look up, and fields together: the number of expanded rules is bounded.
#[test]
fn maps_that_multiply_come_to_an_end() {
    let pairs: Vec<String> =
        (0..5000).map(|n| format!("10.{}.{}.0/24 : accept", n / 250, n % 250)).collect();
    let both: Vec<String> =
        (0..300).map(|n| format!("10.0.{}.{} . {}", n / 250, n % 250, n + 1)).collect();
    let rule = "ip saddr vmap @many\n".repeat(500);
    let square = "ip saddr . tcp dport @both ip daddr . udp dport @both masquerade\n".repeat(50);
    let text = format!(
        "table ip nat {{\nmap many {{\nelements = {{ {} }}\n}}\n\
         set both {{\nelements = {{ {} }}\n}}\n\
         chain post {{\ntype nat hook postrouting priority 100;\n{rule}{square}}}\n}}\n",
        pairs.join(", "),
        both.join(", ")
    );
    let imported = import(&text, Some(Format::Nft), &Hints::default()).expect("it is read");
    let beyond = imported.remarks.iter().filter(|one| one.message.contains("is beyond"));
    assert!(beyond.count() > 0);
    assert!(imported.remarks.len() < 200_000, "{} remarks", imported.remarks.len());
}

/// Words of each format, so that random lines are read far.
fn words() -> impl Strategy<Value = String> {
    let all: Vec<&'static str> =
        FILES.iter().flat_map(|(text, _)| text.split_whitespace()).collect();
    let numbers =
        ["0", "65535", "65536", "4294967295", "0.0.0.0/0", "255.255.255.255", "-", "!", "/", ":"];
    prop_oneof![
        8 => prop::sample::select(all).prop_map(str::to_owned),
        1 => prop::sample::select(numbers.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn any_text_is_read_without_panic(text in "(?s).{0,400}") {
        for format in FORMATS {
            let _ = import(&text, Some(format), &Hints::default());
        }
    }

    #[test]
    fn lines_of_known_words_are_read_without_panic(
        lines in prop::collection::vec(prop::collection::vec(words(), 0..14), 0..30),
        head in prop::sample::select(&[
            "*nat\n",
            "table ip nat {\nchain a {\ntype nat hook postrouting priority 0;\n",
            "nat44 enable\n",
            "softwire-config { binding-table {\n",
        ][..]),
    ) {
        let lines: Vec<String> = lines.iter().map(|words| words.join(" ")).collect();
        let text = format!("{head}{}\n}}\n}}\n", lines.join("\n"));
        for format in FORMATS {
            let _ = import(&text, Some(format), &Hints::default());
        }
        let appended = lines.iter().map(|line| format!("-A POSTROUTING {line}"));
        let appended: Vec<String> = appended.collect();
        let _ = import(&appended.join("\n"), Some(Format::Iptables), &Hints::default());
    }

    #[test]
    fn files_that_were_damaged_are_read_without_panic(
        file in 0..FILES.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..40, words()), 0..8),
    ) {
        let (text, format) = FILES[file];
        let mut letters: Vec<char> = text.chars().collect();
        for (place, len, word) in cuts {
            let place = place.index(letters.len());
            let end = (place + len).min(letters.len());
            letters.splice(place..end, word.chars());
        }
        let text: String = letters.into_iter().collect();
        let _ = import(&text, Some(format), &Hints::default());
    }
}
