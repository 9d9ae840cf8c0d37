//! Compiles each program in `programs/` to Rust, and writes the list of modules.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Generated Rust does not follow the lints for handwritten code.
const ALLOW: &str = "#[allow(dead_code, unused, unreachable_pub, missing_docs, nonstandard_style, \
    clippy::all, clippy::undocumented_unsafe_blocks)]";

fn main() {
    let folder =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("programs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let entries = fs::read_dir(&folder).expect("the programs are there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "p4"));
    paths.sort();
    let mut modules = String::new();
    for path in paths {
        let name = path.file_stem().expect("a name").to_str().expect("a name of ASCII");
        let text = fs::read_to_string(&path).expect("a program");
        let program = natgate_p4::compile(&format!("{name}.p4"), &text)
            .unwrap_or_else(|error| panic!("{}", error.rendered()));
        let made = out.join(format!("{name}.rs"));
        fs::write(&made, program.rust(name)).expect("the build's folder can be written");
        writeln!(modules, "{ALLOW}\n#[rustfmt::skip]\n#[path = {made:?}]\npub mod {name};")
            .expect("text takes text");
    }
    fs::write(out.join("programs.rs"), modules).expect("the build's folder can be written");
}
