//! `[page]`: what it means, and every way to write it wrong.

use natgate_control::config::{parse, read_text, reread};
use natgate_gateway::{PagePlace, PageSettings};
use std::fs;

fn file(page: &str) -> String {
    format!(
        "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n[[pool]]\n\
         addresses = [\"192.0.2.1\"]\n{page}"
    )
}

fn good(page: &str) -> PageSettings {
    parse(&file(page), "t").expect("a good file").page
}

/// The problem, without the place.
fn wrong(page: &str) -> String {
    let problems = parse(&file(&format!("[page]\n{page}\n")), "t").expect_err(page);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].split_once(": page").expect("the key").1.to_owned()
}

#[test]
fn where_the_page_is_and_under_which_names() {
    assert_eq!(good(""), PageSettings::default());
    assert_eq!(good("[page]\n").place, PagePlace::Usual);
    assert_eq!(good("[page]\nlisten = \"off\"").place, PagePlace::Nowhere);
    let given = good("[page]\nlisten = \"[::1]:80\"\nnames = [\"nat1.example.net\", \"nat1\"]");
    assert_eq!(given.place, PagePlace::At("[::1]:80".parse().unwrap()));
    assert_eq!(given.names, ["nat1.example.net", "nat1"]);
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    let example = "write one such as \"127.0.0.1:9465\", or \"off\"";
    for text in ["9465", "127.0.0.1", "localhost:9465", "127.0.0.1:99999", "", "no", "::1:80"] {
        let told = format!(".listen: \"{text}\" is no address with a port; {example}");
        assert_eq!(wrong(&format!("listen = \"{text}\"")), told);
    }
    let told = format!(".listen: \"127.0.0.1:0\" has no port that one could go to; {example}");
    assert_eq!(wrong("listen = \"127.0.0.1:0\""), told);
    let told = ".listen: is an integer; it must be an address and a port in quotes, or \"off\"";
    assert_eq!(wrong("listen = 9465"), told);
    assert_eq!(wrong("listne = \"off\""), ".listne: there is no such key; did you mean `listen`?");
    assert_eq!(wrong("names = \"a\""), ".names: is a string; it must be an array of host names");
    for text in ["", "nat1:80", "http://nat1/", "-a", "a..b", "a b", "*"] {
        let told = format!(
            ".names[0]: \"{text}\" is no host name; write one such as \"nat1.example.net\", \
             without a port"
        );
        assert_eq!(wrong(&format!("names = [\"{text}\"]")), told);
    }
    let many = vec!["\"a\""; 17].join(", ");
    assert_eq!(wrong(&format!("names = [{many}]")), ".names: has 17 names; it may have 16");
    let told = ".names: is without effect, since page.listen is \"off\"; leave one of them out";
    assert_eq!(wrong("listen = \"off\"\nnames = [\"a\"]"), told);
}

#[test]
fn a_place_that_others_reach_is_warned_of() {
    let warnings = |page: &str| read_text(&file(page), "t").expect("a good file").warnings;
    for quiet in ["", "[page]\nlisten = \"127.0.0.9:80\"", "[page]\nlisten = \"[::1]:80\""] {
        assert_eq!(warnings(quiet), [], "{quiet}");
    }
    for open in ["0.0.0.0:9465", "192.0.2.7:80", "[::]:9465"] {
        let told = warnings(&format!("[page]\nlisten = \"{open}\""));
        assert_eq!(told.len(), 1);
        let told = told[0].to_string();
        assert!(
            told.contains(&format!("everybody who can reach {open} see which subscriber")),
            "{told}"
        );
        assert!(told.contains("`ssh -L "), "{told}");
    }
}

#[test]
fn only_a_restart_moves_it() {
    let path = std::env::temp_dir().join(format!("natgate-page-{}.toml", std::process::id()));
    fs::write(&path, file("[page]\nlisten = \"off\"")).expect("the file can be written");
    let in_force = parse(&file(""), "t").expect("a good file");
    let problems = reread(&path, &in_force).expect_err("another place");
    fs::remove_file(&path).expect("the file is there");
    assert_eq!(problems.len(), 1);
    let told = problems[0].to_string();
    assert!(told.contains("page: ") && told.contains("restart"), "{told}");
}
