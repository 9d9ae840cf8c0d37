//! FTP from proftpd and pure-ftpd to curl and lftp. Both servers list features, and lftp uses them:
//! pure-ftpd has PRET.

use super::proftpd::{proftpd_config, unpacked};
use super::*;

impl Offer {
    fn proftpd(&self, node: &str) -> Server {
        let file = self.network.file(&format!("proftpd-{node}.conf"));
        let [offer, own] = ["offer", "proftpd"].map(|name| self.network.file(name));
        let [offer, own] = [offer, own].map(|path| path.display().to_string());
        fs::write(&file, proftpd_config(&offer, &own)).unwrap();
        let arguments = ["-n", "-q", "-S", "0.0.0.0", "-c", file.to_str().unwrap()];
        self.unpacked(node, "proftpd", &arguments)
    }

    /// Starts pure-ftpd, which serves the home of the user `ftp`.
    fn pure_ftpd(&self, node: &str) -> Server {
        let home = self.network.file("offer");
        let users = format!(
            "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n\
             ftp:x:65534:65534::{}:/bin/false\n",
            home.display()
        );
        self.network.node(node).write_etc("passwd", &users).unwrap();
        let pid = self.network.file("pure-ftpd.pid");
        let arguments = ["-4", "-e", "-H", "-S", "0.0.0.0,21", "-g", pid.to_str().unwrap()];
        self.unpacked(node, "pure-ftpd", &arguments)
    }

    fn unpacked(&self, node: &str, name: &str, arguments: &[&str]) -> Server {
        let log = self.network.file(&format!("{name}-{node}.log"));
        let place = self.network.node(node);
        let server = Server(place.start(&unpacked(name), arguments, &log).unwrap());
        wait_for_listener(place, 21, PATIENCE)
            .unwrap_or_else(|error| panic!("{name}: {error}: {:?}", fs::read_to_string(&log)));
        server
    }
}

/// How a server starts on a node.
type Start = fn(&Offer, &str) -> Server;

const SERVERS: [Start; 2] = [Offer::proftpd, Offer::pure_ftpd];

/// Modes of lftp: active by PORT, passive by EPSV and by PASV.
const MODES: [&str; 3] = ["passive-mode off", "prefer-epsv on", "prefer-epsv off"];

#[test]
fn proftpd_and_pure_ftpd_serve_clients_in_all_modes() {
    need("lftp");
    let offer = Offer::new();
    let gateway = offer.start(&format!("{STRICT}[alg]\nftp = true\n"));
    for (number, start) in SERVERS.into_iter().enumerate() {
        let _server = start(&offer, "server1");
        for options in [EPRT, PORT, EPSV, PASV] {
            assert!(offer.fetches("sub1", options, &ftp(SERVER1)), "{number} {options:?}");
        }
        for mode in MODES {
            assert!(lftp(&offer, "sub1", mode, SERVER1), "{number} lftp, {mode}");
        }
        assert_eq!(alg_counters(&gateway)["ftp"], 3 * (number + 1), "active transfers");
        // No connection ends to be read.
        let refused = &gateway.status().unwrap()["counters"]["alg_refused"]["ftp"];
        assert_eq!(refused["not_protocol"], 0, "{number} {refused}");
    }
    assert!(gateway.stop().unwrap().success());
}

#[test]
fn proftpd_and_pure_ftpd_inside_serve_clients_in_all_modes() {
    let offer = Offer::new();
    let external = POOL[0];
    let fixed = format!(
        "[[static]]\nprotocol = \"tcp\"\ninternal = \"{SUBSCRIBER1}:21\"\n\
         external = \"{external}:21\"\n"
    );
    let gateway = offer.start(&format!("{STRICT}{fixed}[alg]\nftp = true\n"));
    for (number, start) in SERVERS.into_iter().enumerate() {
        let _server = start(&offer, "sub1");
        for options in [EPSV, PASV, EPRT, PORT] {
            assert!(offer.fetches("server1", options, &ftp(external)), "{number} {options:?}");
        }
        for mode in MODES {
            assert!(lftp(&offer, "server1", mode, external), "{number} lftp, {mode}");
        }
        assert_eq!(alg_counters(&gateway)["ftp"], 4 * (number + 1), "passive transfers");
    }
    assert!(gateway.stop().unwrap().success());
}
