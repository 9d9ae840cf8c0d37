//! Any text may come in: it is a program or is refused with a sentence, and nothing panics.

use natgate_p4::{Machine, compile};
use proptest::prelude::*;
use std::time::Duration;

const NAT: &str = include_str!("../../../p4/nat.p4");

/// Some of the program's words, and some that are none of its.
fn words() -> Vec<&'static str> {
    let mut words: Vec<&str> = NAT.split_whitespace().collect();
    words.extend([
        "{", "}", "(", ")", "<", ">", ";", "128w0", "-", "_", "&&&", "\"", "bit<0>", "@x",
    ]);
    words
}

fn read(text: &str, packet: &[u8]) {
    match compile("any.p4", text) {
        Ok(program) => {
            let mut machine = Machine::new(&program, 1);
            machine.process(Duration::ZERO, 1, packet);
            assert!(program.rust("any").contains("pub struct Any"));
        }
        Err(error) => {
            assert!(!error.message().is_empty() && error.line() > 0 && error.column() > 0);
            assert!(!error.rendered().is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        read(&text, &[]);
    }

    #[test]
    fn words_put_together_anew(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..80)) {
        let words = words();
        let text: Vec<_> = picks.iter().map(|pick| *pick.get(&words)).collect();
        read(&text.join(" "), &[]);
    }

    #[test]
    fn the_nat_with_some_words_changed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4),
        packet in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let pool = words();
        // Lines keep their comments to themselves.
        let lines = NAT.lines().map(|line| line.split("//").next().unwrap_or(""));
        let text = lines.collect::<Vec<_>>().join("\n");
        let mut words: Vec<&str> = text.split(' ').collect();
        for (place, word) in &changes {
            let place = place.index(words.len());
            words[place] = pool[word.index(pool.len())];
        }
        read(&words.join(" "), &packet);
    }

    #[test]
    fn any_packet(packet in prop::collection::vec(any::<u8>(), 0..128), port in 0_u32..4) {
        thread_local!(static PROGRAM: natgate_p4::Program = compile("nat.p4", NAT).expect("a program"));
        PROGRAM.with(|program| {
            let mut machine = Machine::new(program, 1);
            machine.process(Duration::ZERO, port, &packet);
        });
    }
}
