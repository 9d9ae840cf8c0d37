//! Links the image: an ordinary program of this target, in one file at fixed addresses. So a boot
//! loader only has to copy the file to its addresses.
//!
//! The compiler names shared libraries. No loader exists here, so files with the names of these
//! libraries refer to the archives.

use std::path::Path;

/// First address of the image: 16 MiB, because UEFI may use memory below it.
const BASE: &str = "0x1000000";

/// Named library, and the archive that is linked instead.
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
