//! The demonstration, as people see it: with the program, and with the image that boots without an
//! operating system in an emulator. Needs root and the programs that `make test` installs, and fails
//! without them.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");

/// One at a time: the demonstration measures time.
static TURN: Mutex<()> = Mutex::new(());

/// Holds it, and returns what it printed.
fn demonstrate(more: &[&str]) -> String {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(PROGRAM).arg("demo").args(more).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {wrong}{said}", output.status);
    said
}

/// The number behind some words.
fn number_behind(words: &str, said: &str) -> u64 {
    let (_, rest) = said.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {said}"));
    let digits = rest.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{words:?}: {said}"))
}

#[test]
fn all_steps_pass_and_the_counters_are_told() {
    let said = demonstrate(&[]);
    assert!(said.contains(" 0 failed") && !said.contains("FAIL"), "{said}");
    assert!(number_behind("  outbound  forwarded", &said) > 1000, "{said}");
}

#[test]
fn all_steps_pass_with_the_image_and_its_counters_are_told() {
    let image = Path::new(PROGRAM).with_file_name("natgate-bare");
    assert!(
        image.exists(),
        "{} is not there: `cargo build -p natgate-bare` builds it, as does `make test`",
        image.display()
    );
    let said = demonstrate(&["--image", image.to_str().expect("a readable path")]);
    assert!(said.contains(" 0 failed") && !said.contains("FAIL"), "{said}");
    let (_, counters) = said.split_once("Counted by the image").expect("it shows them");
    assert!(number_behind("  outbound  forwarded", counters) > 1000, "{said}");
    assert!(number_behind("  mappings ", counters) > 0, "{said}");
    assert!(number_behind("  inside    received", counters) > 1000, "{said}");
}
