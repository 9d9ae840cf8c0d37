//! SIP between two telephones of the kind baresip: one inside, which registers and calls, and one
//! outside, which calls it back. Each plays a tone of its own and records what it hears.

use super::sip::registrar;
use super::*;
use natgate_testnet::Namespace;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// Pitches of the tones of the telephones inside and outside, Hz.
const ALICE: u32 = 880;
const BOB: u32 = 440;

/// A telephone says this at the end of a call.
const END: &str = "terminated (duration";

/// Samples of a recording, each second.
const RATE: usize = 8_000;

/// A telephone, with the folder of its recordings.
struct Telephone<'n> {
    node: &'n Namespace,
    folder: PathBuf,
    heard: BTreeSet<PathBuf>,
    log: PathBuf,
    _program: Killed,
}

impl<'n> Telephone<'n> {
    fn start(
        network: &'n TestNetwork,
        node: &str,
        address: Ipv4Addr,
        (pitch, account): (u32, &str),
    ) -> Self {
        let folder = network.file(node);
        fs::create_dir_all(&folder).unwrap();
        let modules = ["g711", "ausine", "aubridge", "sndfile"];
        let modules: String = modules.iter().map(|name| format!("module {name}.so\n")).collect();
        let config = format!(
            "sip_listen {address}:5060\nrtp_ports 10000-19998\n\
             audio_source ausine,{pitch}\naudio_player aubridge,sink\naudio_alert aubridge,alert\n\
             ausrc_srate 48000\nauplay_srate 48000\nausrc_channels 2\nauplay_channels 2\n\
             module_path /usr/lib/baresip/modules\n{modules}snd_path {}\n\
             module_app account.so\nmodule_app menu.so\nmodule_app ctrl_tcp.so\n\
             ctrl_tcp_listen 127.0.0.1:4444\n",
            folder.display()
        );
        for (name, text) in [("config", &*config), ("accounts", account), ("contacts", "")] {
            fs::write(folder.join(name), text).unwrap();
        }
        let log = network.file(&format!("baresip-{node}.log"));
        let node = network.node(node);
        let arguments = ["-f", folder.to_str().unwrap(), "-v"];
        let program = Killed(node.start("baresip".as_ref(), &arguments, &log).unwrap());
        wait_for_listener(node, 4444, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}: {}", said(&log)));
        Self { node, folder, heard: BTreeSet::new(), log, _program: program }
    }

    /// Gives a command, as a netstring of JSON.
    fn command(&self, command: &str, parameters: &str) {
        let connected = self.node.enter(|| TcpStream::connect(("127.0.0.1", 4444)));
        let mut stream = connected.unwrap().unwrap();
        let text = format!("{{\"command\":\"{command}\",\"params\":\"{parameters}\"}}");
        stream.write_all(format!("{}:{text},", text.len()).as_bytes()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0, "{}", said(&self.log));
    }

    /// Waits for a second of sound in a further recording. Returns its pitch, Hz.
    fn hears(&mut self) -> u32 {
        let long = || {
            let files = fs::read_dir(&self.folder)?.map(|file| file.unwrap().path());
            let is_new = |path: &PathBuf| {
                path.display().to_string().ends_with("-dec.wav") && !self.heard.contains(path)
            };
            Ok(files.filter(is_new).find(|path| samples(path).len() > RATE))
        };
        let file = natgate_testnet::wait_for("a second of sound", 2 * PATIENCE, long)
            .unwrap_or_else(|error| panic!("{error}: {}", self.all_said()));
        let samples = samples(&file);
        self.heard.insert(file);
        let silence = samples.iter().position(|sample| sample.abs() > 1_000);
        let samples = &samples[silence.expect("a tone")..];
        let is_crossing = |two: &&[i16]| (two[0] < 0) != (two[1] < 0);
        let crossings = samples.windows(2).filter(is_crossing).count();
        (crossings * RATE / 2 / samples.len()) as u32
    }
}

impl Telephone<'_> {
    /// What both telephones have said.
    fn all_said(&self) -> String {
        let logs = ["sub1", "server1"];
        logs.map(|node| said(&self.log.with_file_name(format!("baresip-{node}.log")))).join("\n")
    }
}

fn said(log: &Path) -> String {
    fs::read(log).map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
}

/// Samples of a recording of 16 bits, behind its head of 44 bytes.
fn samples(file: &Path) -> Vec<i16> {
    let bytes = fs::read(file).unwrap_or_default();
    let samples = bytes.get(44..).unwrap_or_default().chunks_exact(2);
    samples.map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}

#[test]
fn telephones_hear_each_other_whoever_calls() {
    need("baresip");
    let network = TestNetwork::new(TAG);
    let gateway = network.start(PROGRAM, &config(&format!("{STRICT}[alg]\nsip = true\n")));
    let mut registered = registrar(&network, 1);
    let account = format!(
        "<sip:alice@{SERVER1}>;regint=60;auth_user=alice;auth_pass=secret;answermode=auto\n"
    );
    let mut alice = Telephone::start(&network, "sub1", SUBSCRIBER1, (ALICE, &account));
    registered.ends(PATIENCE);
    let contacts = registered.logged();
    let [_, user, address, port] = &contacts[0][..] else { panic!("{contacts:?}") };
    let account = format!("<sip:bob@{SERVER1}>;regint=0;answermode=auto\n");
    let mut bob = Telephone::start(&network, "server1", SERVER1, (BOB, &account));
    let near = |heard: u32, pitch: u32| heard.abs_diff(pitch) < pitch / 20;
    for (ended, is_from_inside) in (1..).zip([true, false]) {
        if is_from_inside {
            alice.command("dial", &format!("sip:bob@{SERVER1}"));
        } else {
            bob.command("dial", &format!("sip:{user}@{address}:{port}"));
        }
        let heard = [alice.hears(), bob.hears()];
        let is_right = near(heard[0], BOB) && near(heard[1], ALICE);
        assert!(is_right, "from inside: {is_from_inside}, {heard:?} Hz");
        let caller = if is_from_inside { &alice } else { &bob };
        caller.command("hangup", "");
        let is_over = || Ok((said(&alice.log).matches(END).count() == ended).then_some(()));
        natgate_testnet::wait_for("the end of the call", PATIENCE, is_over).unwrap();
    }
    let refused = &gateway.status().unwrap()["counters"]["alg_refused"]["sip"];
    assert!(refused.as_object().unwrap().values().all(|count| *count == 0), "{refused}");
    assert!(gateway.stop().unwrap().success());
}
