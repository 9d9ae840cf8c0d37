//! FTP from a client with IPv6 alone to a server with IPv4 alone (RFC 6384), and from a client
//! behind a B4: curl, lftp, tnftp and ncftp, and Debian's vsftpd and proftpd.

#[path = "../alg/proftpd.rs"]
mod proftpd;

use super::dslite;
use super::nat64::{CLIENT, world};
use super::world::World;
use proftpd::{proftpd_config, unpacked};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const URL: &str = "ftp://[64:ff9b::c633:640a]/body";
const URL4: &str = "ftp://192.0.2.1/body";
const SERVER4: &str = "192.0.2.1";

/// Modes of lftp: active, passive by EPSV, and passive by PASV, which IPv6 does not have.
const MODES: [&str; 3] = ["passive-mode off", "prefer-epsv on", "prefer-epsv off"];

fn config(more: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\ngateway = \"192.0.2.1\"\n\
         [nat]\nfiltering = \"address-and-port-dependent\"\n\
         [[pool]]\naddresses = [\"203.0.113.1\"]\n[nat64]\n{more}"
    )
}

/// Starts vsftpd, which logs commands.
fn vsftpd(world: &World) {
    let text = format!(
        "listen=YES\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\n\
         connect_from_port_20=YES\nseccomp_sandbox=NO\nanon_root={}\nsecure_chroot_dir={}\n\
         xferlog_enable=YES\nxferlog_std_format=NO\nlog_ftp_protocol=YES\n\
         vsftpd_log_file={}\n",
        world.file("offer"),
        world.file("empty"),
        world.file("protocol.log"),
    );
    let conf = world.file("vsftpd.conf");
    fs::write(&conf, text).unwrap();
    world.spawn("server", "vsftpd", &[&conf], 21);
}

fn proftpd(world: &World) {
    let conf = world.file("proftpd.conf");
    fs::write(&conf, proftpd_config(&world.file("offer"), &world.file("proftpd"))).unwrap();
    let program = unpacked("proftpd").display().to_string();
    world.spawn("server", &program, &["-n", "-q", "-S", "0.0.0.0", "-c", &conf], 21);
}

/// A network whose server offers a file by FTP.
struct Offer {
    world: World,
    url: &'static str,
    body: Vec<u8>,
}

impl Offer {
    fn new() -> Self {
        Self::on(world(), URL, vsftpd)
    }

    /// A network whose server has a program that `start` starts.
    fn on(world: World, url: &'static str, start: fn(&World)) -> Self {
        let body: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        for folder in ["offer", "empty"] {
            let folder = world.file(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let file = world.file("offer/body");
        fs::write(&file, &body).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        start(&world);
        Self { world, url, body }
    }

    /// Fetches the file on the client with options of curl. Returns false if curl fails.
    fn fetches(&self, options: &str) -> bool {
        let (file, url) = (self.fetched(), self.url);
        self.fetches_by(&format!("curl -g -sS --max-time 8 -o {file} {options} '{url}'"))
    }

    /// Fetches the file by lftp with a setting of FTP.
    fn lftp(&self, mode: &str) -> bool {
        let (file, url) = (self.fetched(), self.url);
        let limits = "set net:timeout 8; set net:max-retries 1";
        self.fetches_by(&format!("lftp -c '{limits}; set ftp:{mode}; get {url} -o {file}'"))
    }

    /// Fetches the file by tnftp: `-A` is active mode, and `-p` passive mode.
    fn tnftp(&self, mode: &str) -> bool {
        let (file, url) = (self.fetched(), self.url);
        self.fetches_by(&format!("tnftp {mode} -V -q 8 -o {file} '{url}'"))
    }

    /// Fetches the file by ncftp, which has no IPv6: `-E` is active mode, and `-F` passive mode.
    fn ncftp(&self, mode: &str) -> bool {
        let (file, server) = (self.fetched(), SERVER4);
        self.fetches_by(&format!("ncftpget {mode} -V -r 1 -t 8 -C {server} /body {file}"))
    }

    /// Path of the file that clients write.
    fn fetched(&self) -> String {
        self.world.file("fetched")
    }

    /// Has a command fetch the file on the client. Returns false if it fails.
    fn fetches_by(&self, command: &str) -> bool {
        let file = self.fetched();
        let _ = fs::remove_file(&file);
        let said = self.world.run("client", &format!("{command} && echo the command is done"));
        let is_done = said.contains("the command is done");
        assert!(!is_done || fs::read(&file).unwrap() == self.body, "other bytes: {said}");
        is_done
    }

    /// Commands that the server has got so far.
    fn commands(&self) -> String {
        fs::read_to_string(self.world.file("protocol.log")).unwrap()
    }
}

#[test]
fn a_client_with_ipv6_fetches_from_a_server_with_ipv4_in_all_modes() {
    let offer = Offer::new();
    let events = offer.world.file("events.jsonl");
    let log = format!("[[log]]\nkind = \"file\"\npath = {events:?}\n");
    let gateway = offer.world.start("nat", &config(&format!("{log}[alg]\nftp = true\n")));
    assert!(offer.fetches(""), "passive");
    let commands = offer.commands();
    assert!(commands.contains("\"PASV\"") && !commands.contains("\"EPSV\""), "{commands}");
    assert!(offer.fetches("--ftp-port -"), "active");
    let commands = offer.commands();
    assert!(commands.contains("\"PORT 203,0,113,1,"), "{commands}");
    assert!(!commands.contains("EPRT"), "{commands}");
    // A client turns the translation off and on. curl ends if a command fails.
    assert!(offer.fetches("-Q 'ALGS STATUS64'"), "the gateway answers");
    assert!(offer.fetches("-Q 'ALGS DISABLE64'"), "vsftpd knows EPSV itself");
    assert!(offer.commands().contains("\"EPSV\"") && !offer.commands().contains("ALGS"));
    assert!(!offer.fetches("-Q 'ALGS DISABLE64' --ftp-port -"), "vsftpd has no IPv6");
    let status = gateway.status().unwrap();
    assert_eq!(status["counters"]["alg_expectations"]["ftp"], 1, "{}", status["counters"]);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    let lines = fs::read_to_string(&events).unwrap();
    let mut all = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let made = all.find(|line: &serde_json::Value| line["event"] == "alg_expectation");
    let made = made.expect("an expectation");
    assert_eq!(made["subscriber"], "2001:db8:1::/64", "{made}");
    let internal = made["mapping"]["internal"].as_str().unwrap();
    assert!(internal.starts_with(&format!("[{CLIENT}]:")), "{made}");
    // Without the gateway, active mode fails.
    let gateway = offer.world.start("nat", &config(""));
    assert!(offer.fetches("") && !offer.fetches("--ftp-port -"));
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn a_client_behind_a_b4_fetches_in_all_modes() {
    let offer = Offer::on(dslite::world(), URL4, vsftpd);
    let events = offer.world.file("events.jsonl");
    let more = "[nat]\nfiltering = \"address-and-port-dependent\"\n";
    let log = format!("[[log]]\nkind = \"file\"\npath = {events:?}\n[alg]\nftp = true\n");
    let gateway = dslite::start_with(&offer.world, &format!("{more}{log}"));
    assert!(offer.fetches(""), "passive");
    assert!(offer.fetches("--ftp-port -"), "active, EPRT");
    assert!(offer.fetches("--ftp-port - --disable-eprt"), "active, PORT");
    let commands = offer.commands();
    assert!(commands.contains("\"PORT 203,0,113,1,"), "{commands}");
    assert!(commands.contains("\"EPRT |1|203.0.113.1|"), "{commands}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    let lines = fs::read_to_string(&events).unwrap();
    let mut all = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let made = all.find(|line: &serde_json::Value| line["event"] == "alg_expectation");
    let made = made.expect("an expectation");
    assert_eq!(made["subscriber"], dslite::CLIENT, "{made}");
    let internal = made["mapping"]["internal"].as_str().unwrap();
    assert!(internal.starts_with(&format!("{}:", dslite::INNER)), "{made}");
    // Without the gateway, active mode fails.
    let gateway = dslite::start_with(&offer.world, more);
    assert!(offer.fetches("") && !offer.fetches("--ftp-port -"));
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn clients_of_both_kinds_fetch_from_proftpd_in_all_modes() {
    let offer = Offer::on(world(), URL, proftpd);
    let gateway = offer.world.start("nat", &config("[alg]\nftp = true\n"));
    for options in ["", "--ftp-port -", "-Q 'ALGS STATUS64'", "-Q 'ALGS DISABLE64'"] {
        assert!(offer.fetches(options), "with IPv6, {options}");
    }
    assert_eq!(gateway.status().unwrap()["counters"]["alg_expectations"]["ftp"], 1);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    drop(offer);
    let offer = Offer::on(dslite::world(), URL4, proftpd);
    let more = "[nat]\nfiltering = \"address-and-port-dependent\"\n[alg]\nftp = true\n";
    let gateway = dslite::start_with(&offer.world, more);
    for options in ["", "--disable-epsv", "--ftp-port -", "--ftp-port - --disable-eprt"] {
        assert!(offer.fetches(options), "behind a B4, {options}");
    }
    assert_eq!(gateway.status().unwrap()["counters"]["alg_expectations"]["ftp"], 2);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn other_clients_of_both_kinds_fetch_in_all_modes() {
    let offer = Offer::on(world(), URL, vsftpd);
    let gateway = offer.world.start("nat", &config("[alg]\nftp = true\n"));
    for mode in MODES {
        assert!(offer.lftp(mode), "with IPv6, lftp, {mode}");
    }
    for mode in ["-A", "-p"] {
        assert!(offer.tnftp(mode), "with IPv6, tnftp {mode}");
    }
    assert_eq!(gateway.status().unwrap()["counters"]["alg_expectations"]["ftp"], 2);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    drop(offer);
    let offer = Offer::on(dslite::world(), URL4, vsftpd);
    let more = "[nat]\nfiltering = \"address-and-port-dependent\"\n[alg]\nftp = true\n";
    let gateway = dslite::start_with(&offer.world, more);
    for mode in MODES {
        assert!(offer.lftp(mode), "behind a B4, lftp, {mode}");
    }
    for mode in ["-A", "-p"] {
        assert!(offer.tnftp(mode), "behind a B4, tnftp {mode}");
    }
    for mode in ["-E", "-F"] {
        assert!(offer.ncftp(mode), "behind a B4, ncftp {mode}");
    }
    assert_eq!(gateway.status().unwrap()["counters"]["alg_expectations"]["ftp"], 3);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}
