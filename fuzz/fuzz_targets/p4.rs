//! Random text as a P4 program: as it is, or words of the NAT put together anew. It is compiled or
//! refused with a sentence; what is compiled takes a packet, and is a pipeline for SWX or refused
//! as such.

#![no_main]

use libfuzzer_sys::fuzz_target;
use natgate_p4::{Machine, compile};
use std::sync::LazyLock;
use std::time::Duration;

const NAT: &str = include_str!("../../p4/nat.p4");

static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut words: Vec<&str> = NAT.split_inclusive([' ', '\n', '(', ')', '.', ',', ';']).collect();
    words.extend(["{", "}", "<", ">", "128w0", "-", "_ ", "&&&", "\"", "bit<0> ", "@x "]);
    words
});

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    let text = match kind % 3 {
        0 => String::from_utf8_lossy(bytes).into_owned(),
        1 => words(bytes).concat(),
        _ => changed(bytes),
    };
    match compile("fuzz.p4", &text) {
        Ok(program) => {
            Machine::new(&program, 1).process(Duration::ZERO, 1, bytes);
            match program.swx() {
                Ok(pipeline) => assert!(!pipeline.to_string().is_empty()),
                Err(error) => assert!(!error.message().is_empty() && !error.rendered().is_empty()),
            }
        }
        Err(error) => assert!(!error.message().is_empty() && !error.rendered().is_empty()),
    }
});

/// Two bytes are a word.
fn words(bytes: &[u8]) -> Vec<&'static str> {
    let number = |two: &[u8]| usize::from(two[0]) << 8 | usize::from(two[1]);
    bytes.chunks_exact(2).map(|two| WORDS[number(two) % WORDS.len()]).collect()
}

/// The NAT with words of its own in place of others: four bytes say where and which.
fn changed(bytes: &[u8]) -> String {
    let mut all: Vec<&str> = WORDS.clone();
    for change in bytes.chunks_exact(4).take(8) {
        let place = (usize::from(change[0]) << 8 | usize::from(change[1])) % all.len();
        all[place] = words(&change[2..])[0];
    }
    all.concat()
}
