//! TFTP from dnsmasq: by an own port for each file, and by one port for all.

use super::*;

#[test]
fn dnsmasq_serves_files_by_tftp() {
    need("dnsmasq");
    let offer = Offer::new();
    let gateway = offer.start(&format!("{STRICT}[alg]\ntftp = true\n"));
    let url = format!("tftp://{SERVER1}/body");
    for mode in [None, Some("--tftp-single-port")] {
        let root = format!("--tftp-root={}", offer.network.file("offer").display());
        let arguments = [
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--pid-file=",
            "--log-facility=-",
            "--port=0",
            "--user=root",
            "--enable-tftp",
            &root,
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain(mode).collect();
        let log = offer.network.file("dnsmasq.log");
        let place = offer.network.node("server1");
        let _server = Server(place.start("dnsmasq".as_ref(), &arguments, &log).unwrap());
        let begun = || Ok(fs::read_to_string(&log)?.contains("TFTP root is").then_some(()));
        natgate_testnet::wait_for("dnsmasq", PATIENCE, begun).unwrap();
        let before = alg_counters(&gateway)["tftp"].as_u64();
        for options in [&[][..], &["--tftp-no-options"], &["--tftp-blksize", "1400"]] {
            assert!(offer.fetches("sub1", options, &url), "{mode:?} {options:?}");
        }
        // A request that comes again may be a further one.
        assert!(alg_counters(&gateway)["tftp"].as_u64() >= before.map(|before| before + 3));
    }
    assert!(gateway.stop().unwrap().success());
}
