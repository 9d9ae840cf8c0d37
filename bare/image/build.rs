//! Links the image: an ordinary program of this target, all of it in one file at fixed addresses,
//! so that a boot loader which only copies it to its place has done what there is to do.
//!
//! The compiler names libraries to be loaded at run time. Here nothing loads them, so files with
//! those names stand for the archives.

use std::path::Path;

/// Where the image begins: at 16 MiB, for below that UEFI may have things of its own.
const BASE: &str = "0x1000000";

/// The library that is named, and the archive that is linked instead.
const ARCHIVES: [(&str, &str); 4] = [("gcc_s", "gcc_eh"), ("gcc", "gcc"), ("c", "c"), ("m", "m")];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").expect("cargo says where");
    for (name, archive) in ARCHIVES {
        let file = Path::new(&out).join(format!("lib{name}.so"));
        std::fs::write(file, format!("INPUT(-l:lib{archive}.a)\n")).expect("it can be written");
    }
    let (base, archives) = (format!("-Wl,--image-base={BASE}"), format!("-L{out}"));
    for argument in ["-static", "-no-pie", "-Wl,--build-id=none", &base, &archives] {
        println!("cargo::rustc-link-arg-bin=natgate-bare={argument}");
    }
}
