//! SIP by SIPp: many telephones register with passwords, call out, and are called, each time many
//! at once, with RTP in both directions.
//!
//! Each telephone is a subscriber of its own, and all have the same ports: their addresses are
//! local to one node. SIPp speaks for them; their media are sockets of the test. The server outside
//! plays RTP to the endpoint of the description that it gets, and returns what a telephone sends.
//!
//! `NATGATE_SIP_PHONES` is their number. A tenth of them has calls at once.

use super::*;
use natgate_testnet::{Namespace, config_with_pool, raise_open_files, wait_for};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Telephones without another number, and how many of them there are for each call.
const PHONES: usize = 1_000;
const PHONES_A_CALL: usize = 10;

/// Registrations, or calls, that begin in a second.
const RATE: usize = 500;

/// Least room for control flows that a configuration may have.
const FLOWS: usize = 64;

/// Ports of SIP, of the media of telephones, and of those of the server. RTCP has the port above.
const SIP: u16 = 5060;
const MEDIA: u16 = 20_000;
const SERVER_MEDIA: u16 = 30_000;

/// Packets of its own that a telephone sends.
const OWN: usize = 5;

/// A running SIPp.
pub(crate) struct Sipp {
    program: Server,
    scenario: &'static str,
    /// What the scenario logs, its errors, and its screen.
    files: [PathBuf; 3],
}

impl Sipp {
    /// Starts a scenario for a number of calls on a node. It has at most `sockets` sockets.
    fn start(
        network: &TestNetwork,
        node: &str,
        scenario: &'static str,
        (calls, sockets): (usize, usize),
        more: &[&str],
    ) -> Self {
        let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alg/sipp");
        let file = format!("{scenarios}/{scenario}.xml");
        let files = ["log", "errors", "screen"].map(|kind| {
            let file = network.file(&format!("{scenario}.{kind}"));
            let _ = fs::remove_file(&file);
            file
        });
        let [log, errors, _] = files.each_ref().map(|file| file.to_str().unwrap());
        let (calls, sockets) = (calls.to_string(), (sockets + 100).to_string());
        let arguments = [
            &["-sf", &file, "-m", &calls, "-max_socket", &sockets, "-p", "5060", "-nostdin"][..],
            &["-trace_logs", "-log_file", log, "-trace_err", "-error_file", errors],
            // Delays of a busy machine do not end it.
            &["-watchdog_minor_maxtriggers", "10000", "-watchdog_major_maxtriggers", "10000"],
            more,
        ]
        .concat();
        let program = network.node(node).start("sipp".as_ref(), &arguments, &files[2]);
        Self { program: Server(program.unwrap()), scenario, files }
    }

    /// Starts a scenario that waits for calls.
    fn serve(
        network: &TestNetwork,
        node: &str,
        scenario: &'static str,
        counts: (usize, usize),
        more: &[&str],
    ) -> Self {
        let sipp = Self::start(network, node, scenario, counts, more);
        let is_bound = || is_bound(network.node(node), SIP);
        wait_for("a socket of SIPp", PATIENCE, || Ok(is_bound()?.then_some(())))
            .unwrap_or_else(|error| panic!("{error}: {}", sipp.said()));
        sipp
    }

    /// Waits for the end. All calls must have succeeded.
    pub(crate) fn ends(&mut self, limit: Duration) {
        let end = wait_for(self.scenario, limit, || self.program.0.try_wait());
        let is_success = end.as_ref().is_ok_and(|status| status.success());
        assert!(is_success, "{}: {end:?}: {}", self.scenario, self.said());
    }

    /// The starts of its errors and its screen.
    fn said(&self) -> String {
        let [_, errors, screen] = self.files.each_ref().map(|file| {
            let text = fs::read(file).unwrap_or_default();
            String::from_utf8_lossy(&text[..text.len().min(3_000)]).into_owned()
        });
        format!("{errors}\n{screen}")
    }

    /// The words of each line that the scenario has logged.
    pub(crate) fn logged(&self) -> Vec<Vec<String>> {
        let text = fs::read_to_string(&self.files[0]).unwrap_or_default();
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    /// Most calls that were there at once.
    fn peak(&self) -> usize {
        let screen = fs::read(&self.files[2]).unwrap();
        let screen = String::from_utf8_lossy(&screen);
        let counts = screen.split("Peak was ").skip(1);
        let counts = counts.filter_map(|text| text.split(' ').next()?.parse().ok());
        counts.max().unwrap_or(0)
    }
}

/// Starts a registrar on the first server, for a number of registrations.
pub(crate) fn registrar(network: &TestNetwork, count: usize) -> Sipp {
    need("sipp");
    let address = SERVER1.to_string();
    Sipp::serve(network, "server1", "registrar", (count, 0), &["-i", &address])
}

/// True if a program in a node has a UDP socket with a port.
fn is_bound(node: &Namespace, port: u16) -> std::io::Result<bool> {
    let table = node.enter(|| fs::read_to_string("/proc/thread-self/net/udp"))??;
    let end = format!(":{port:04X}");
    let local = |line: &str| Some(line.split_whitespace().nth(1)?.ends_with(&end));
    Ok(table.lines().any(|line| local(line) == Some(true)))
}

/// The address of a telephone.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, (number / 250) as u8, (number % 250 + 1) as u8)
}

/// What one telephone has got: packets of the recording, of its own that came back, and of RTCP.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    played: usize,
    returned: usize,
    control: usize,
}

/// The media of telephones.
struct Media {
    stop: Arc<AtomicBool>,
    /// Packets of RTCP so far.
    controls: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<Heard>>,
}

impl Media {
    fn start(node: &Namespace, count: usize) -> Self {
        // Two sockets of each telephone.
        raise_open_files().unwrap();
        let sockets = node.enter(|| {
            let ends = (0..count).flat_map(|phone| [MEDIA, MEDIA + 1].map(|port| (phone, port)));
            ends.map(|(phone, port)| UdpSocket::bind((address(phone), port)).unwrap()).collect()
        });
        let (sockets, stop): (Vec<UdpSocket>, _) = (sockets.unwrap(), Arc::default());
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let controls = Arc::default();
        let shared = (Arc::clone(&stop), Arc::clone(&controls));
        let thread = thread::spawn(move || listen(&sockets, &shared.0, &shared.1));
        Self { stop, controls, thread }
    }

    fn end(self) -> Vec<Heard> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Reads the sockets of all telephones, two of each, until the end. The first packet of the
/// recording has a telephone send packets of its own.
fn listen(sockets: &[UdpSocket], stop: &AtomicBool, controls: &AtomicUsize) -> Vec<Heard> {
    let mut all = vec![Heard::default(); sockets.len() / 2];
    let mut polled: Vec<_> =
        sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    let short = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let mut buffer = [0; 2_000];
    while !stop.load(Ordering::Relaxed) {
        let _ = poll(&mut polled, Some(&short));
        let ready = polled.iter().enumerate().filter(|(_, one)| !one.revents().is_empty());
        for at in ready.map(|(at, _)| at) {
            let Ok((len, from)) = sockets[at].recv_from(&mut buffer) else { continue };
            let heard = &mut all[at / 2];
            let own = format!("own media of {}", at / 2);
            if at % 2 == 1 {
                heard.control += 1;
                controls.fetch_add(1, Ordering::Relaxed);
            } else if buffer.starts_with(b"own ") {
                assert_eq!(String::from_utf8_lossy(&buffer[..len]), own, "of another telephone");
                heard.returned += 1;
            } else {
                heard.played += 1;
                for _ in 0..if heard.played == 1 { OWN } else { 0 } {
                    sockets[at].send_to(own.as_bytes(), from).unwrap();
                }
            }
        }
    }
    all
}

/// The network with a gateway, and telephones in its first node.
struct Telephones {
    network: TestNetwork,
    count: usize,
    calls: usize,
    users: String,
    limit: Duration,
}

impl Telephones {
    fn new() -> Self {
        let count = std::env::var("NATGATE_SIP_PHONES").map_or(PHONES, |text| {
            text.parse().expect("NATGATE_SIP_PHONES is a number of telephones")
        });
        let network = TestNetwork::new(TAG);
        network.node("sub1").ip_batch("route add local 10.1.0.0/16 dev lo\n").unwrap();
        let lines = (0..count).map(|phone| {
            let credentials = format!("[authentication username=u{phone} password=secret]");
            format!("{};u{phone};{credentials}\n", address(phone))
        });
        let users = network.file("users.csv");
        fs::write(&users, format!("SEQUENTIAL\n{}", lines.collect::<String>())).unwrap();
        let (calls, users) = ((count / PHONES_A_CALL).max(1), users.display().to_string());
        let limit = PATIENCE + Duration::from_secs((4 * count / RATE) as u64 + 20);
        Self { network, count, calls, users, limit }
    }

    fn start_gateway(&self) -> Gateway {
        // The workers may share the telephones unequally.
        let flows = self.count.max(FLOWS);
        let more = format!(
            "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"{SUBSCRIBER1}\"\nside = \"inside\"\n\
             {STRICT}[workers]\ncount = 2\n[alg]\nsip = true\nflows = {flows}\n"
        );
        // A mapping at a port of PCP could not be kept (RFC 6887 section 11.3).
        let [first, .., last] = POOL;
        let pool = format!("addresses = [\"{first}-{last}\"]\nports = \"6000-65535\"");
        self.network.start(PROGRAM, &config_with_pool(&pool, &more))
    }

    /// How SIPp speaks for the telephones.
    fn of_telephones(&self) -> [&str; 8] {
        ["-t", "ui", "-inf", &self.users, "-ip_field", "0", "-i", "10.0.0.11"]
    }

    /// How SIPp speaks for the server outside: with its media, and with the duration of a call, ms,
    /// which is longer than all calls take to begin.
    fn of_server(&self) -> [String; 9] {
        let (address, media) = (SERVER1.to_string(), SERVER_MEDIA.to_string());
        let duration = 2_500 + 2_000 * self.calls / RATE;
        let texts = ["-i", &address, "-mi", &address, "-mp", &media, "-rtp_echo", "-d"];
        let [a, b, c, d, e, f, g, h] = texts.map(str::to_owned);
        [a, b, c, d, e, f, g, h, duration.to_string()]
    }

    /// Has all telephones register. Returns user, address and port of each, as they are outside, in
    /// the order of the telephones.
    fn register(&self) -> Vec<Vec<String>> {
        let mut registrar = registrar(&self.network, self.count);
        let (rate, server) = (RATE.to_string(), format!("{SERVER1}:{SIP}"));
        let more = [&self.of_telephones()[..], &["-r", &rate, &server]].concat();
        let counts = (self.count, self.count);
        let mut phones = Sipp::start(&self.network, "sub1", "register", counts, &more);
        phones.ends(self.limit);
        registrar.ends(PATIENCE);
        let contacts = registrar.logged();
        let ends: HashSet<_> = contacts.iter().map(|words| &words[2..]).collect();
        assert_eq!((contacts.len(), ends.len()), (self.count, self.count), "each has its own");
        let number = |words: &Vec<String>| words[0][1..].parse::<usize>().unwrap();
        let mut contacts: Vec<_> = contacts.iter().map(|words| words[1..].to_vec()).collect();
        contacts.sort_by_key(number);
        contacts
    }

    /// Has calls at once, between one scenario of SIPp that waits for them and another one. Checks
    /// the media, each with one packet of RTCP at the end.
    fn call(&self, gateway: &Gateway, [waiting, calling]: [(&str, &'static str, &[&str]); 2]) {
        let media = Media::start(self.network.node("sub1"), self.calls);
        let (counts, calls) = ((self.calls, self.count), self.calls.to_string());
        let (node, scenario, more) = waiting;
        let mut waiting = Sipp::serve(&self.network, node, scenario, counts, more);
        let (node, scenario, more) = calling;
        let rate = RATE.min(self.calls).to_string();
        let more = [&["-r", &rate, "-l", &calls], more].concat();
        let mut calling = Sipp::start(&self.network, node, scenario, counts, &more);
        calling.ends(self.limit);
        waiting.ends(PATIENCE);
        assert_eq!(calling.peak(), self.calls, "calls at once");
        let logged = [waiting.logged(), calling.logged()].concat();
        let end = |words: &Vec<String>| (words[1].parse().unwrap(), words[2].parse().unwrap());
        let ends: HashSet<(Ipv4Addr, u16)> = logged.iter().map(end).collect();
        assert_eq!((logged.len(), ends.len()), (self.calls, self.calls), "each has its own");
        self.send_control(&ends);
        let have_come = || Ok((media.controls.load(Ordering::Relaxed) == self.calls).then_some(()));
        let come = wait_for("RTCP", PATIENCE, have_come);
        let all = media.end();
        let gateway = gateway.status().unwrap();
        assert!(come.is_ok(), "{come:?}, {}: media {all:?}", gateway["counters"]);
        let is_complete =
            |heard: &&Heard| heard.played > 0 && heard.returned > 0 && heard.control == 1;
        let complete = all.iter().filter(is_complete).count();
        assert_eq!(complete, self.calls, "media of {all:?}");
    }

    /// Sends a packet of RTCP from the server to each telephone: to the port above that of RTP.
    fn send_control(&self, ends: &HashSet<(Ipv4Addr, u16)>) {
        let bind = || UdpSocket::bind((SERVER1, SERVER_MEDIA + 1));
        let socket = self.network.node("server1").enter(bind).unwrap().unwrap();
        for (number, (address, port)) in ends.iter().enumerate() {
            socket.send_to(b"RTCP", (*address, port + 1)).unwrap();
            if number % 50 == 49 {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn many_telephones_register_call_and_are_called_at_once() {
    let telephones = Telephones::new();
    let gateway = telephones.start_gateway();
    let contacts = telephones.register();
    let outside = telephones.of_server();
    let outside: Vec<&str> = outside.iter().map(String::as_str).collect();
    let inside = telephones.of_telephones();
    let server = format!("{SERVER1}:{SIP}");
    let calling = [&inside[..], &[&server]].concat();
    telephones
        .call(&gateway, [("server1", "called_outside", &outside), ("sub1", "call_out", &calling)]);
    // The registrar calls telephones that have registered.
    let lines = contacts.iter().take(telephones.calls).map(|words| words.join(";") + "\n");
    let file = telephones.network.file("contacts.csv");
    fs::write(&file, format!("SEQUENTIAL\n{}", lines.collect::<String>())).unwrap();
    let first = format!("{}:{SIP}", POOL[0]);
    let calling = [&outside[..], &["-inf", file.to_str().unwrap(), &first]].concat();
    telephones
        .call(&gateway, [("sub1", "called_inside", &inside), ("server1", "call_in", &calling)]);
    let counters = gateway.status().unwrap()["counters"].clone();
    let least = telephones.count + 2 * telephones.calls;
    assert!(counters["alg_expectations"]["sip"].as_u64() >= Some(least as u64), "{counters}");
    let refused = &counters["alg_refused"]["sip"];
    assert!(refused.as_object().unwrap().values().all(|count| *count == 0), "{refused}");
    assert!(gateway.stop().unwrap().success());
}
