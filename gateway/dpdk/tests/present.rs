//! Checks that libdpdk is present: without it this crate has no other tests.

#[test]
fn dpdk_was_built_in_and_starts() {
    if let Err(error) = natgate_dpdk::start(None, 1500) {
        panic!("no port can be tested: {error}");
    }
}
