//! Application-level gateways between real programs: Debian's vsftpd and tftpd, and curl, lftp,
//! ncftp and tnftp. Further programs have a file each.
//!
//! Needs root and the programs that `make test` installs, and fails without them. One test runs at
//! a time, because the tests share two cores with the gateway.

#[path = "alg/baresip.rs"]
mod baresip;
#[path = "alg/ftp_servers.rs"]
mod ftp_servers;
#[path = "alg/h323_kernel.rs"]
mod h323_kernel;
#[path = "alg/irc.rs"]
mod irc;
#[path = "alg/pptp.rs"]
mod pptp;
#[path = "alg/pptp_programs.rs"]
mod pptp_programs;
#[path = "alg/proftpd.rs"]
mod proftpd;
#[path = "alg/rtsp.rs"]
mod rtsp;
#[path = "alg/sip.rs"]
mod sip;
#[path = "alg/tftp.rs"]
mod tftp;

use natgate_testnet::{
    Gateway, POOL, SERVER1, SUBSCRIBER1, TestNetwork, config, terminate, wait_for_listener,
};
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngalg";
const PATIENCE: Duration = Duration::from_secs(10);

/// Allows only remote endpoints that a host has sent to: without its gateway a protocol fails.
const STRICT: &str = "[nat]\nfiltering = \"address-and-port-dependent\"\n";

/// Fails if a program is missing.
fn need(program: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(is_there, "{program} is missing: `make test` installs it");
}

/// A network with a folder that its servers offer.
struct Offer {
    network: TestNetwork,
    body: Vec<u8>,
}

/// A program that runs; ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = terminate(&self.0);
            let _ = self.0.wait();
        }
    }
}

/// A program that runs; killed when dropped. Asked to end, it would wait for other hosts.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Offer {
    fn new() -> Self {
        let network = TestNetwork::new(TAG);
        let body: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        let folder = network.file("offer");
        for folder in [network.directory(), folder.clone(), network.file("empty")] {
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(folder.join("body"), &body).unwrap();
        fs::set_permissions(folder.join("body"), fs::Permissions::from_mode(0o644)).unwrap();
        Self { network, body }
    }

    /// Starts vsftpd on a node. It connects to an address in PORT only if it is the client's.
    fn vsftpd(&self, node: &str) -> Server {
        let file = self.network.file(&format!("vsftpd-{node}.conf"));
        let [root, empty] = ["offer", "empty"].map(|name| self.network.file(name));
        let text = format!(
            "listen=YES\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\n\
             connect_from_port_20=YES\nanon_root={}\n\
             secure_chroot_dir={}\nseccomp_sandbox=NO\n",
            root.display(),
            empty.display()
        );
        fs::write(&file, text).unwrap();
        let log = self.network.file(&format!("vsftpd-{node}.log"));
        let place = self.network.node(node);
        let child = place.start("vsftpd".as_ref(), &[file.to_str().unwrap()], &log).unwrap();
        wait_for_listener(place, 21, PATIENCE).unwrap();
        Server(child)
    }

    /// Fetches the file on a node. Returns false if curl fails.
    fn fetches(&self, node: &str, options: &[&str], url: &str) -> bool {
        let file = self.fetched();
        let arguments = ["-sS", "--max-time", "8", "-o", file.to_str().unwrap()];
        self.fetches_by(node, "curl", &[&arguments[..], options, &[url]].concat())
    }

    /// The file that clients write; it is not there.
    fn fetched(&self) -> PathBuf {
        let file = self.network.file("fetched");
        let _ = fs::remove_file(&file);
        file
    }

    /// Has a program fetch the file on a node. Returns false if it fails.
    fn fetches_by(&self, node: &str, program: &str, arguments: &[&str]) -> bool {
        let done = self.network.node(node).run(20, program, arguments);
        if done.is_ok() {
            let bytes = fs::read(self.network.file("fetched")).unwrap();
            assert!(bytes == self.body, "{program} {arguments:?}: other bytes");
        }
        done.is_ok()
    }

    fn start(&self, more: &str) -> Gateway {
        self.network.start(PROGRAM, &config(more))
    }
}

/// Options of curl for active mode with EPRT, and with PORT.
const EPRT: &[&str] = &["--ftp-port", "-"];
const PORT: &[&str] = &["--ftp-port", "-", "--disable-eprt"];
/// Options for passive mode with EPSV, and with PASV and the address of its reply.
const EPSV: &[&str] = &[];
const PASV: &[&str] = &["--disable-epsv", "--no-ftp-skip-pasv-ip"];

fn ftp(server: Ipv4Addr) -> String {
    format!("ftp://{server}/body")
}

/// Has lftp fetch the file on a node, with a setting of FTP.
fn lftp(offer: &Offer, node: &str, mode: &str, server: Ipv4Addr) -> bool {
    let limits = "set net:timeout 8; set net:max-retries 1";
    let (url, fetched) = (ftp(server), offer.fetched().display().to_string());
    let script = format!("{limits}; set ftp:{mode}; get {url} -o {fetched}");
    offer.fetches_by(node, "lftp", &["-c", &script])
}

fn alg_counters(gateway: &Gateway) -> Value {
    gateway.status().unwrap()["counters"]["alg_expectations"].clone()
}

#[test]
fn clients_of_ftp_fetch_files_in_all_modes() {
    let offer = Offer::new();
    let _server = offer.vsftpd("server1");
    let gateway = offer.start(&format!("{STRICT}[alg]\nftp = true\n"));
    for options in [EPRT, PORT, EPSV, PASV] {
        assert!(offer.fetches("sub1", options, &ftp(SERVER1)), "{options:?}");
    }
    assert_eq!(alg_counters(&gateway)["ftp"], 2);
    assert!(gateway.stop().unwrap().success());
    // Without the gateway, active mode fails and passive mode works.
    let gateway = offer.start(STRICT);
    assert!(!offer.fetches("sub1", PORT, &ftp(SERVER1)));
    assert!(offer.fetches("sub1", PASV, &ftp(SERVER1)));
    assert_eq!(alg_counters(&gateway), Value::Null);
}

#[test]
fn other_clients_of_ftp_fetch_files_in_all_modes() {
    let offer = Offer::new();
    let _server = offer.vsftpd("server1");
    let gateway = offer.start(&format!("{STRICT}[alg]\nftp = true\n"));
    let (server, url) = (SERVER1.to_string(), ftp(SERVER1));
    let fetched = offer.fetched().display().to_string();
    for mode in ["passive-mode off", "prefer-epsv on", "prefer-epsv off"] {
        assert!(lftp(&offer, "sub1", mode, SERVER1), "lftp, {mode}");
    }
    for mode in ["-E", "-F"] {
        offer.fetched();
        let arguments = [mode, "-V", "-r", "1", "-t", "8", "-C", &server, "/body", &fetched];
        assert!(offer.fetches_by("sub1", "ncftpget", &arguments), "ncftpget {mode}");
    }
    for mode in ["-A", "-p"] {
        offer.fetched();
        let arguments = [mode, "-V", "-q", "8", "-o", &fetched, &url];
        assert!(offer.fetches_by("sub1", "tnftp", &arguments), "tnftp {mode}");
    }
    // Each active mode has expected one flow.
    assert_eq!(alg_counters(&gateway)["ftp"], 3);
    assert!(gateway.stop().unwrap().success());
}

#[test]
fn a_reload_turns_the_gateway_on_and_off() {
    let offer = Offer::new();
    let _server = offer.vsftpd("server1");
    for workers in [1, 2] {
        let without = format!("{STRICT}[workers]\ncount = {workers}\n");
        let with = format!("{without}[alg]\nftp = true\n");
        let gateway = offer.start(&without);
        let reload = |more: &str| {
            fs::write(offer.network.file("natgate.toml"), config(more)).unwrap();
            gateway.reload().unwrap();
        };
        assert!(!offer.fetches("sub1", PORT, &ftp(SERVER1)));
        reload(&with);
        assert!(offer.fetches("sub1", PORT, &ftp(SERVER1)), "{workers} workers");
        assert_eq!(alg_counters(&gateway)["ftp"], 1);
        // Both files of this client come over one control connection. The gateway is turned off
        // during the first one.
        let url = ftp(SERVER1);
        let slow = ["-sS", "--ftp-port", "-", "--limit-rate", "100K", "--max-time", "20"];
        let slow = [&slow[..], &["-o", "/dev/null", &url, "-o", "/dev/null", &url]].concat();
        let client = offer.network.node("sub1");
        let log = offer.network.file("slow.log");
        let mut client = client.start("curl".as_ref(), &slow, &log).unwrap();
        let begun = || Ok((alg_counters(&gateway)["ftp"] == 2).then_some(()));
        natgate_testnet::wait_for("the first file", PATIENCE, begun).unwrap();
        reload(&without);
        assert!(!offer.fetches("sub2", PORT, &url), "new connections are not read");
        assert!(client.wait().unwrap().success(), "{}", fs::read_to_string(&log).unwrap());
        assert_eq!(alg_counters(&gateway)["ftp"], 3);
        assert!(!offer.fetches("sub1", PORT, &url));
        assert!(gateway.stop().unwrap().success());
    }
}

#[test]
fn several_workers_serve_clients_of_ftp() {
    let offer = Offer::new();
    let _server = offer.vsftpd("server1");
    let more = format!("{STRICT}[alg]\nftp = true\n[workers]\ncount = 2\n");
    let gateway = offer.start(&more);
    thread::scope(|scope| {
        for node in ["sub1", "sub2"] {
            let arguments = ["-sS", "--max-time", "8", "--ftp-port", "-", "-o", "/dev/null"];
            let (offer, url) = (&offer, ftp(SERVER1));
            scope.spawn(move || {
                for _ in 0..5 {
                    let arguments = [&arguments[..], &[&*url]].concat();
                    offer.network.node(node).run(20, "curl", &arguments).unwrap();
                }
            });
        }
    });
    assert_eq!(alg_counters(&gateway)["ftp"], 10);
}

#[test]
fn a_server_of_ftp_inside_serves_clients_in_all_modes() {
    let offer = Offer::new();
    let _server = offer.vsftpd("sub1");
    let external = POOL[0];
    let fixed = format!(
        "[[static]]\nprotocol = \"tcp\"\ninternal = \"{SUBSCRIBER1}:21\"\n\
         external = \"{external}:21\"\n"
    );
    let gateway = offer.start(&format!("{STRICT}{fixed}[alg]\nftp = true\n"));
    for options in [EPSV, PASV, EPRT, PORT] {
        assert!(offer.fetches("server1", options, &ftp(external)), "{options:?}");
    }
    assert_eq!(alg_counters(&gateway)["ftp"], 2);
}

#[test]
fn clients_of_tftp_fetch_files() {
    let offer = Offer::new();
    let folder = offer.network.file("offer");
    let log = offer.network.file("tftpd.log");
    let arguments = ["-L", "-a", "0.0.0.0:69", "-u", "nobody", "-s", folder.to_str().unwrap()];
    let place = offer.network.node("server1");
    let _server = Server(place.start("in.tftpd".as_ref(), &arguments, &log).unwrap());
    let url = format!("tftp://{SERVER1}/body");
    let gateway = offer.start(&format!("{STRICT}[alg]\ntftp = true\n"));
    assert!(offer.fetches("sub1", &[], &url));
    assert!(offer.fetches("sub1", &["--tftp-no-options"], &url));
    assert!(alg_counters(&gateway)["tftp"].as_u64() >= Some(2));
    assert!(gateway.stop().unwrap().success());
    let _gateway = offer.start(STRICT);
    assert!(!offer.fetches("sub1", &[], &url));
}

#[test]
fn a_reload_leaves_a_protocol_out_by_a_rule() {
    let offer = Offer::new();
    let _server = offer.vsftpd("server1");
    let with = format!("{STRICT}[alg]\nftp = true\n");
    let rule = "[[rule]]\nkind = \"snat\"\npool = \"default\"\nalg = []\n\
                match = { source = \"0.0.0.0/0\" }\n";
    let gateway = offer.start(&with);
    assert!(offer.fetches("sub1", PORT, &ftp(SERVER1)));
    fs::write(offer.network.file("natgate.toml"), config(&format!("{with}{rule}"))).unwrap();
    gateway.reload().unwrap();
    assert!(!offer.fetches("sub1", PORT, &ftp(SERVER1)));
    assert!(offer.fetches("sub1", PASV, &ftp(SERVER1)));
    assert_eq!(alg_counters(&gateway)["ftp"], 1);
    assert_eq!(gateway.status().unwrap()["counters"]["alg_refused"]["ftp"]["rule"], 2);
}

/// A message of DNS: an answer with an address, or a question.
fn dns(address: Option<Ipv4Addr>) -> Vec<u8> {
    let flags = if address.is_some() { 128 } else { 1 };
    let mut message = vec![0, 7, flags, 0, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0];
    message.extend([3, b'w', b'w', b'w', 0, 0, 1, 0, 1]);
    if let Some(address) = address {
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4]);
        message.extend(address.octets());
    }
    message
}

#[test]
fn answers_of_dns_hold_the_addresses_that_the_client_sees() {
    let network = TestNetwork::new(TAG);
    let (inside, outside) = (Ipv4Addr::new(10, 0, 0, 80), Ipv4Addr::new(203, 0, 113, 200));
    for workers in [1, 2] {
        let without = format!(
            "[workers]\ncount = {workers}\n[[static]]\ninternal = \"{inside}\"\n\
             external = \"{outside}\"\n"
        );
        let with = format!("{without}[alg]\ndns = true\n");
        let gateway = network.start(PROGRAM, &config(&with));
        let server = natgate_testnet::traffic::udp_socket_at(network.node("server1"), 53).unwrap();
        let asks = |node: &str| {
            let client = natgate_testnet::traffic::udp_socket(network.node(node)).unwrap();
            let mut buffer = [0; 100];
            let mut ask = || {
                client.send_to(&dns(None), (SERVER1, 53))?;
                server.recv_from(&mut buffer)
            };
            let (len, from) = ask().or_else(|_| ask()).or_else(|_| ask()).unwrap();
            assert_eq!(buffer[..len], dns(None));
            server.send_to(&dns(Some(outside)), from).unwrap();
            let len = client.recv(&mut buffer).unwrap();
            buffer[..len].to_vec()
        };
        assert_eq!(asks("sub1"), dns(Some(inside)), "{workers} workers");
        assert_eq!(asks("sub2"), dns(Some(inside)), "{workers} workers");
        fs::write(network.file("natgate.toml"), config(&without)).unwrap();
        gateway.reload().unwrap();
        assert_eq!(asks("sub1"), dns(Some(outside)), "DNS is off");
        assert!(gateway.stop().unwrap().success());
    }
}
