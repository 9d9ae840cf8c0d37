//! Compiles the shim if pkg-config finds libdpdk, and sets `cfg(libdpdk)`. Without libdpdk the
//! crate opens no device and says why.

/// Libraries that the shim calls; drivers are plugins that libdpdk loads by itself.
const LIBRARIES: [&str; 5] = ["rte_pipeline", "rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"];

/// Oldest supported release of libdpdk.
const OLDEST: &str = "22.11";

fn main() {
    for file in ["gate.c", "gate.h", "shim.c", "swx.c"] {
        println!("cargo::rerun-if-changed=src/{file}");
    }
    println!("cargo::rerun-if-env-changed=PKG_CONFIG");
    println!("cargo::rustc-check-cfg=cfg(libdpdk)");
    let probed =
        pkg_config::Config::new().atleast_version(OLDEST).cargo_metadata(false).probe("libdpdk");
    let library = match probed {
        Ok(library) => library,
        Err(_) => {
            println!(
                "cargo::warning=libdpdk {OLDEST} or later was not found by pkg-config, so the dpdk \
                 back end will open no device; install libdpdk-dev and pkg-config"
            );
            // A file that does not exist makes cargo run this script each time: the library may be
            // installed.
            println!("cargo::rerun-if-changed=libdpdk-is-missing");
            return;
        }
    };
    println!("cargo::rustc-cfg=libdpdk");
    cc::Build::new()
        .file("src/gate.c")
        .file("src/shim.c")
        .file("src/swx.c")
        // SWX is experimental: a change of its interface shows when this is compiled.
        .define("ALLOW_EXPERIMENTAL_API", None)
        // Flag with which libdpdk's own inline functions are meant to be compiled.
        .flag("-march=corei7")
        .flag("-include")
        .flag("rte_config.h")
        .includes(&library.include_paths)
        .warnings_into_errors(false)
        .flag("-Wno-unused-parameter")
        .opt_level(3)
        .compile("natgate_dpdk_shim");
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in LIBRARIES {
        println!("cargo::rustc-link-lib={name}");
    }
}
