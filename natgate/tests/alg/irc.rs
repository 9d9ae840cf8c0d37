//! IRC: irssi of a subscriber sends a file to irssi outside by DCC, over a server of ngircd, and
//! gets one from a sender that has the receiver listen.

use super::*;

/// Sends a file once the client is connected.
const SENDS: &str = "use Irssi;\n\
    my $is_sent = 0;\n\
    Irssi::timeout_add(200, sub {\n\
        my $server = Irssi::active_server() or return;\n\
        return if $is_sent || !$server->{connected};\n\
        $is_sent = 1;\n\
        $server->command(\"DCC SEND $ENV{SENDS}\");\n\
    }, undef);\n";

impl Offer {
    /// Starts ngircd on a node.
    fn ngircd(&self, node: &str) -> Server {
        let file = self.network.file("ngircd.conf");
        let text = "[Global]\nName = irc.example.net\nInfo = test\nListen = 0.0.0.0\n\
            Ports = 6667\nMotdPhrase = hello\nPidFile =\nServerUID = 65534\nServerGID = 65534\n\
            [Limits]\nMaxConnectionsIP = 0\nMaxPenaltyTime = 0\n\
            [Options]\nDNS = no\nIdent = no\nPAM = no\nScrubCTCP = no\n";
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let log = self.network.file("ngircd.log");
        let place = self.network.node(node);
        let arguments = ["-n", "-f", file.to_str().unwrap()];
        let server = Server(place.start("ngircd".as_ref(), &arguments, &log).unwrap());
        wait_for_listener(place, 6667, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}: {:?}", fs::read_to_string(&log)));
        server
    }

    /// Starts irssi on a node, in a terminal. It accepts files, and may send the file: to a nick,
    /// which may have options before it.
    fn irssi(&self, node: &str, nick: &str, to: Option<&str>) -> Killed {
        let home = self.network.file(nick);
        let scripts = home.join("scripts/autorun");
        fs::create_dir_all(&scripts).unwrap();
        let config = format!(
            "servers = (\n\
             {{ address = \"{SERVER1}\"; port = \"6667\"; autoconnect = \"yes\"; }}\n);\n\
             settings = {{\n\
             \"irc/core\" = {{ cmd_queue_speed = \"1msec\"; cmds_max_at_once = \"100\"; }};\n\
             core = {{ real_name = \"{nick}\"; user_name = \"{nick}\"; nick = \"{nick}\"; }};\n\
             \"irc/dcc\" = {{\n\
             dcc_autoget = \"yes\"; dcc_autoaccept_lowports = \"yes\";\n\
             dcc_download_path = \"{}\";\n}};\n}};\n",
            home.display()
        );
        fs::write(home.join("config"), config).unwrap();
        if to.is_some() {
            fs::write(scripts.join("send.pl"), SENDS).unwrap();
        }
        let file = self.network.file("offer/body");
        let sends = format!("SENDS={} {}", to.unwrap_or_default(), file.display());
        let irssi = format!("irssi --home={}", home.display());
        let arguments = ["TERM=xterm", &sends, "script", "-qfc", &irssi, "/dev/null"];
        let log = self.network.file(&format!("{nick}.log"));
        Killed(self.network.node(node).start("env".as_ref(), &arguments, &log).unwrap())
    }
}

#[test]
fn a_subscriber_sends_and_gets_files_by_dcc() {
    for program in ["ngircd", "irssi", "script"] {
        need(program);
    }
    let offer = Offer::new();
    let _server = offer.ngircd("server1");
    let gateway = offer.start(&format!("{STRICT}[alg]\nirc = true\n"));
    let said = |nick: &str| {
        let log = fs::read(offer.network.file(&format!("{nick}.log"))).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    };
    let waits = |what: &str, is_there: &dyn Fn() -> bool| {
        let attempt = || Ok(is_there().then_some(()));
        natgate_testnet::wait_for(what, 2 * PATIENCE, attempt).unwrap_or_else(|error| {
            panic!("{error}: {}", ["alice", "bob", "carol"].map(said).concat())
        });
    };
    let is_known = |nick: &str| {
        let log = fs::read_to_string(offer.network.file("ngircd.log")).unwrap_or_default();
        log.contains(&format!("User \"{nick}!"))
    };
    let is_complete = |nick: &str| {
        fs::read(offer.network.file(nick).join("body")).is_ok_and(|body| body == offer.body)
    };
    let _bob = offer.irssi("server2", "bob", None);
    waits("bob", &|| is_known("bob"));
    let _alice = offer.irssi("sub1", "alice", Some("bob"));
    waits("the file of alice", &|| is_complete("bob"));
    assert_eq!(alg_counters(&gateway)["irc"], 1);
    let _carol = offer.irssi("server2", "carol", Some("-passive alice"));
    waits("the file of carol", &|| is_complete("alice"));
    assert_eq!(alg_counters(&gateway)["irc"], 2);
    assert!(gateway.stop().unwrap().success());
}
