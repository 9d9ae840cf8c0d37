//! `status` at the Unix socket beside clients that want much: searches of a long log, and clients
//! that reconnect without a pause.
//!
//! `cargo test -p natgate --test run siege -- --nocapture` prints how long answers took.

use crate::gateway::{Folder, Gateway, PROGRAM, command};
use natgate_control::socket::ask;
use natgate_engine::{Change, Endpoint, Event, MappingId, MappingKind, Timestamp};
use natgate_gateway::SpoolSettings;
use natgate_logs::{Names, Record, Sink, SpoolSink};
use serde_json::Value;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// A busy machine is slow; a client that waits for the others waits much longer.
const BOUND: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// Mappings in the log, made and removed within a day.
const MAPPINGS: u64 = 2_000_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Searches at once.
const SEARCHES: usize = 200;

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970")
}

/// Writes a log with mappings of the day before; returns its size.
fn write_spool(folder: &Path) -> u64 {
    let settings = SpoolSettings { folder: folder.into(), max_size: 1 << 40, max_age: 9 * DAY };
    let mut sink = SpoolSink::open(&settings, false).expect("the folder can be made");
    let end = since_1970();
    let names = Names::default();
    let begin = Timestamp((end - DAY).as_nanos() as u64);
    sink.connect(begin).expect("it can be written");
    let mut random = 1_u64;
    for number in 0..MAPPINGS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let time = begin.plus(DAY.mul_f64(number as f64 / MAPPINGS as f64));
        let mapping = MappingId {
            protocol: 17,
            realm: 0,
            internal: Endpoint {
                address: Ipv4Addr::from_bits(10 << 24 | (random >> 40) as u32),
                port: (random >> 24) as u16,
            },
            external: Endpoint {
                address: Ipv4Addr::new(203, 0, 113, (random >> 16) as u8),
                port: (random >> 8) as u16 | 1024,
            },
            kind: MappingKind::Dynamic,
        };
        let changes = [Change::MappingCreated(mapping), Change::MappingRemoved(mapping)];
        let records = changes.map(|change| Record::Event(Event { time, change }));
        let (written, done) = sink.write(&records, &names, time);
        done.expect("it can be written");
        assert_eq!(written, 2);
    }
    sink.close(begin.plus(DAY)).expect("it can be written");
    let files = std::fs::read_dir(folder).expect("it is there");
    files.map(|file| file.expect("a file").metadata().expect("it is there").len()).sum()
}

/// Durations of the answers to `status`, in order.
struct Latencies(Vec<Duration>);

impl Latencies {
    /// Asks again and again until it is told to stop, and at least `least` times.
    fn measure(socket: &Path, least: usize, mut go_on: impl FnMut() -> bool) -> Self {
        let mut took = Vec::new();
        while took.len() < least || go_on() {
            let began = Instant::now();
            let answer = ask(socket, "GET", "/v1/status", &Value::Null, PATIENCE);
            took.push(began.elapsed());
            assert_eq!(answer.expect("an answer").status, 200);
            thread::sleep(Duration::from_millis(5));
        }
        took.sort_unstable();
        Self(took)
    }

    fn tell(&self, beside: &str) {
        let (median, worst) = (self.0[self.0.len() / 2], self.worst());
        println!("status {beside}: {} answers, median {median:?}, worst {worst:?}", self.0.len());
    }

    fn worst(&self) -> Duration {
        *self.0.last().expect("there was an answer")
    }
}

/// Starts a search for a mapping of the day before.
fn search(socket: &Path, number: usize) -> Child {
    let at = since_1970() - DAY.mul_f64((number + 1) as f64 / (SEARCHES + 2) as f64);
    Command::new(PROGRAM)
        .args(["who", &format!("203.0.113.{}:{}", number % 256, 2000 + number)])
        .args(["--protocol", "udp", "--at", &at.as_secs().to_string(), "--socket"])
        .arg(socket)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("natgate runs")
}

#[test]
fn searches_of_a_long_log_keep_no_status_waiting() {
    let folder = Folder::new("searches");
    let (spool, socket) = (folder.file("spool"), folder.socket());
    let size = write_spool(&spool);
    println!("the log has {:.1} MB", size as f64 / 1e6);
    let log = format!("[[log]]\nkind = \"spool\"\nfolder = {spool:?}\nmax_size = \"1GiB\"");
    let _gateway = Gateway::start(command("", &folder.config(&log), &[]));
    Latencies::measure(&socket, 100, || false).tell("alone");
    let began = Instant::now();
    let mut searches: Vec<Child> = (0..SEARCHES).map(|number| search(&socket, number)).collect();
    let beside = Latencies::measure(&socket, 1, || {
        searches.iter_mut().any(|one| one.try_wait().expect("it is ours").is_none())
    });
    beside.tell(&format!("beside {SEARCHES} searches, which took {:?}", began.elapsed()));
    assert!(beside.worst() < BOUND, "{:?}", beside.worst());
    let mut refused = 0;
    for search in searches {
        let output = search.wait_with_output().expect("it is ours");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1), "{said}");
        let is_refused = said.contains("searches of the log are under way");
        assert!(is_refused || said.contains("the log covers"), "{said}");
        refused += usize::from(is_refused);
    }
    println!("{} searches were answered, {refused} refused", SEARCHES - refused);
    assert!(refused < SEARCHES, "some are answered");
}

/// Connects to a socket, sends some bytes and closes, again and again; prints the count at its end.
const RECONNECT: &str = r#"
    use Socket;
    $SIG{TERM} = sub { print "$count\n"; exit };
    $SIG{PIPE} = "IGNORE";
    while (1) {
        socket(my $stream, AF_UNIX, SOCK_STREAM, 0) or die;
        connect($stream, pack_sockaddr_un($ARGV[0])) or die;
        syswrite($stream, $ARGV[1]);
        close($stream);
        $count++;
    }
"#;

/// A process that reconnects; it ends with this.
struct Reconnecting(Child);

impl Reconnecting {
    fn start(socket: &Path, sends: &str) -> Self {
        let mut command = Command::new("perl");
        command.args(["-e", RECONNECT]).arg(socket).arg(sends).stdout(Stdio::piped());
        Self(command.spawn().expect("perl runs"))
    }

    /// Ends the client. Returns the number of its connections.
    fn ends(mut self) -> u64 {
        let terminated = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(terminated.expect("kill runs").success());
        let mut told = String::new();
        let output = self.0.stdout.as_mut().expect("it is piped");
        output.read_to_string(&mut told).expect("text");
        told.trim().parse().expect("a number")
    }
}

impl Drop for Reconnecting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn clients_that_reconnect_without_a_pause_keep_no_status_waiting() {
    let folder = Folder::new("reconnects");
    let socket = folder.socket();
    let _gateway = Gateway::start(command("", &folder.config(""), &[]));
    for sends in ["", "GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let clients = [(), ()].map(|()| Reconnecting::start(&socket, sends));
        let beside = Latencies::measure(&socket, 200, || false);
        let count: u64 = clients.map(Reconnecting::ends).iter().sum();
        beside.tell(&format!("beside {count} connections of two processes that send {sends:?}"));
        assert!(count > 1000, "they reconnected {count} times");
        assert!(beside.worst() < BOUND, "{:?}", beside.worst());
    }
}
