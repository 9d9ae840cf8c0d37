//! Any text may be read: it is a program or is refused with a message, and nothing panics.

use natgate_p4::{Entries, Machine, Program, Row, compile, tree};
use proptest::prelude::*;
use std::time::Duration;

const NAT: &str = include_str!("../../nat.p4");

const ENTRIES: &str = include_str!("../../nat.toml");

thread_local!(static PROGRAM: Program = compile("nat.p4", NAT).expect("a program"));

/// Some words of the program, and some others.
fn words() -> Vec<&'static str> {
    let mut words: Vec<&str> = NAT.split_whitespace().collect();
    words.extend([
        "{", "}", "(", ")", "<", ">", ";", "128w0", "-", "_", "&&&", "\"", "bit<0>", "@x",
    ]);
    words
}

/// Two places in lists of any length.
fn two_places() -> impl Strategy<Value = (prop::sample::Index, prop::sample::Index)> {
    (any::<prop::sample::Index>(), any::<prop::sample::Index>())
}

fn read(text: &str, packet: &[u8]) {
    match compile("any.p4", text) {
        Ok(program) => {
            let mut machine = Machine::new(&program, 1);
            machine.process(Duration::ZERO, 1, packet);
            assert!(program.rust("any").contains("pub struct Any"));
            assert!(tree("any.p4", text).expect("a program has a tree").ends_with('\n'));
            match program.swx() {
                Ok(pipeline) => assert!(pipeline.to_string().contains("apply {")),
                Err(error) => assert!(!error.message().is_empty() && !error.rendered().is_empty()),
            }
        }
        Err(error) => {
            assert!(!error.message().is_empty() && error.line() > 0 && error.column() > 0);
            assert!(!error.rendered().is_empty());
            let _ = tree("any.p4", text);
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
    fn words_put_together_anew(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
    ) {
        let words = words();
        let text: Vec<_> = picks.iter().map(|pick| *pick.get(&words)).collect();
        read(&text.join(" "), &[]);
    }

    #[test]
    fn the_nat_with_some_words_changed(
        changes in prop::collection::vec(two_places(), 1..4),
        packet in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let pool = words();
        // The lines lose their comments, so that they can be joined.
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
        PROGRAM.with(|program| {
            let mut machine = Machine::new(program, 1);
            machine.process(Duration::ZERO, port, &packet);
        });
    }

    #[test]
    fn a_file_of_entries_with_some_words_changed(
        changes in prop::collection::vec(two_places(), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut words: Vec<&str> = ENTRIES.split_inclusive([' ', '\n']).collect();
        for (from, to) in &changes {
            let to = to.index(words.len());
            words[to] = words[from.index(words.len())];
        }
        words.truncate(end.index(words.len()) + 1);
        PROGRAM.with(|program| {
            let read = Entries::read(program, "any.toml", &words.concat());
            let loaded = read.and_then(|entries| entries.load(&mut Machine::new(program, 0)));
            if let Err(error) = loaded {
                assert!(!error.message().is_empty() && error.line() > 0 && error.column() > 0);
            }
        });
    }

    #[test]
    fn any_line_is_an_entry_or_not(
        table in prop::sample::select(vec!["routes", "upload", "stations", "pool", "x"]),
        keys in "[0-9a-fx.:/&_,]{0,20}",
        action in prop::sample::select(vec!["via", "to_external", "at", "on_link", "x"]),
        args in "[0-9a-fx.:/,]{0,20}",
    ) {
        PROGRAM.with(|program| {
            let read = Row::read(&program.info(), &format!("{table} {keys} {action} {args}"));
            assert!(read.err().is_none_or(|error| !error.to_string().is_empty()));
        });
    }

    #[test]
    fn any_bytes_are_the_programs_p4info_or_not(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        place in any::<prop::sample::Index>(),
    ) {
        PROGRAM.with(|program| {
            let info = program.info();
            let mut changed = info.to_bytes();
            let place = place.index(changed.len());
            changed.splice(place.., bytes.iter().copied());
            assert!(info.difference(&bytes).is_some());
            // The change may concern the types, which are not compared.
            let _ = info.difference(&changed);
        });
    }
}
