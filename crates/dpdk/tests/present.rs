//! Whether the tests of this crate test anything.

#[test]
fn libdpdk_was_found_when_this_was_built() {
    assert!(
        natgate_dpdk::PRESENT,
        "libdpdk is missing, so no port can be tested; install libdpdk-dev and pkg-config"
    );
}
