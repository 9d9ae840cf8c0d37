//! The stages of a small program, as they were looked at and found right. NATGATE_BLESS=1 writes them anew, to be
//! read before they are believed.

use std::path::Path;

#[test]
fn the_stages_of_a_small_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let text = include_str!("golden/small.p4");
    let tokens = natgate_p4::tokens("small.p4", text).expect("tokens").join("\n") + "\n";
    let form = natgate_p4::compile("small.p4", text).expect("a program").to_string();
    for (file, is) in [("small.tokens", tokens), ("small.ir", form)] {
        let path = folder.join(file);
        if std::env::var_os("NATGATE_BLESS").is_some_and(|value| value == "1") {
            std::fs::write(&path, &is).expect("it can be written");
        }
        let expected = std::fs::read_to_string(&path).expect("it is there");
        for (number, (expected, is)) in expected.lines().zip(is.lines()).enumerate() {
            assert_eq!(is, expected, "{file}, line {}", number + 1);
        }
        assert_eq!(is.lines().count(), expected.lines().count(), "{file}: lines");
    }
}
