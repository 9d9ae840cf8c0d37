//! Outputs of the stages for programs, checked by a person, and the Rust that is compiled with the
//! crate. NATGATE_BLESS=1 writes all of it again, for review.

use natgate_p4::{Program, compile, programs, tokens, tree};
use std::path::Path;

const SMALL: &str = include_str!("../../examples/programs/small.p4");

fn compiled(name: &str, text: &str) -> Program {
    compile(name, text).unwrap_or_else(|error| panic!("{}", error.rendered()))
}

/// Compares a text with the file of that name in the crate's directory.
fn compare(file: &str, is: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("NATGATE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, is).expect("it can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("it is there");
    for (number, (expected, is)) in expected.lines().zip(is.lines()).enumerate() {
        assert_eq!(is, expected, "{file}, line {}", number + 1);
    }
    assert_eq!(is.lines().count(), expected.lines().count(), "{file}: lines");
}

#[test]
fn the_stages_of_a_small_program() {
    let tokens = tokens("small.p4", SMALL).expect("tokens").join("\n") + "\n";
    compare("tests/golden/small.tokens", &tokens);
    compare("tests/golden/small.ast", &tree("small.p4", SMALL).expect("a tree"));
    let program = compiled("small.p4", SMALL);
    compare("tests/golden/small.ir", &program.to_string());
    compare("tests/golden/small.rs", &program.rust("small"));
}

#[test]
fn programs_for_swx() {
    let nat = include_str!("../../nat.p4");
    for (name, text) in [
        ("small", SMALL),
        ("aligned", include_str!("../../examples/programs/aligned.p4")),
        ("nat", nat),
        ("nat64", include_str!("../../nat64.p4")),
    ] {
        let made = compiled(name, text).swx();
        let pipeline = made.unwrap_or_else(|error| panic!("{}", error.rendered()));
        compare(&format!("tests/golden/{name}.spec"), &pipeline.to_string());
    }
}

#[test]
fn the_rust_that_is_compiled_with_the_crate_is_up_to_date() {
    for name in programs::names() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let text =
            std::fs::read_to_string(path.with_extension("p4")).expect("the program is there");
        let program = compiled(name, &text);
        compare(&format!("src/programs/{name}.rs"), &program.rust(name));
    }
}

#[test]
fn only_programs_that_are_compiled_are_found() {
    let nat = include_str!("../../nat.p4");
    assert!(programs::compiled(&compiled("nat.p4", nat), 0).is_some());
    assert!(programs::compiled(&compiled("small.p4", SMALL), 0).is_none());
    let other = nat.replace("const bit<8> PROTOCOL_UDP = 17;", "const bit<8> PROTOCOL_UDP = 136;");
    assert_ne!(other, nat);
    assert!(programs::compiled(&compiled("nat.p4", &other), 0).is_none());
}
