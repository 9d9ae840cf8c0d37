//! A foreign controller: P4Runtime's own client library (Python, from PyPI) fills the tables of
//! p4/nat.p4, packets go through them, and the controller reads the results and receives the
//! programs' messages.

use natgate_http::Server;
use natgate_p4::{
    CONTROLLER_PORT, Machine, Outcome, Program, RequestQueue, compile, request_queue,
};
use natgate_p4runtime::{Device, serve};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Packages from PyPI: the client, and the library versions of its time, which it needs.
const CLIENT: [&str; 3] =
    ["p4runtime==1.4.1", "protobuf==3.20.3", "googleapis-common-protos==1.56.4"];

/// Longest time for the whole client.
const PATIENCE: Duration = Duration::from_secs(300);

/// Lock for the creation of the Python environment.
static MADE: Mutex<()> = Mutex::new(());

/// A Python environment with the client library, created once.
fn python() -> PathBuf {
    let _one = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(CLIENT[0]);
    let python = folder.join("bin/python");
    let has_client = || {
        let mut command = Command::new(&python);
        command
            .args(["-c", "import google.rpc.status_pb2, p4.v1.p4runtime_pb2_grpc"])
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !has_client() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(CLIENT));
        assert!(has_client(), "{CLIENT:?} is installed and cannot be used");
    }
    python
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}");
}

/// A program with a P4Runtime service.
struct Served {
    program: Program,
    file: PathBuf,
    /// File with its P4Info, as text.
    info: PathBuf,
    requests: RequestQueue,
    server: Server,
}

impl Served {
    /// Serves the program in a file of this crate.
    fn new(file: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let name = file.file_name().expect("a name").to_string_lossy();
        let text = std::fs::read_to_string(&file).expect("the program is there");
        let program = compile(&name, &text).unwrap_or_else(|error| panic!("{}", error.rendered()));
        let info = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}info.txtpb"));
        std::fs::write(&info, program.info().to_text()).expect("it can be written");
        let (controller, requests) = request_queue();
        let device = Device { id: 3, info: program.info(), program: text.into_bytes() };
        let any = "127.0.0.1:0".parse().expect("an address");
        let server = serve(any, device, controller).expect("a port is free");
        Self { program, file, info, requests, server }
    }

    /// Runs a phase of the client; the program answers it between calls of `turn`.
    fn converse(
        &self,
        phase: &str,
        machine: &mut Machine<'_>,
        mut turn: impl FnMut(&mut Machine<'_>),
    ) {
        let address = self.server.address().expect("a port").to_string();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.py");
        let mut command = Command::new(python());
        command.arg(script).arg(address).args([&self.info, &self.file]).arg(phase);
        let mut client = command.spawn().expect("it starts");
        let started = Instant::now();
        let status = loop {
            match client.try_wait().expect("it can be waited for") {
                Some(status) => break status,
                None if started.elapsed() > PATIENCE => {
                    let _ = client.kill();
                    panic!("the client does not end");
                }
                None => turn(machine),
            }
            if !self.requests.serve(machine) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        assert!(status.success(), "{phase}");
    }
}

/// An Ethernet frame with a UDP datagram that has no checksum and no payload.
fn udp(destination: u8, from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&from.0);
    header[16..].copy_from_slice(&to.0);
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let ethernet = [2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, 0x11, 8, 0];
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes(), 8_u16.to_be_bytes(), [0, 0]].concat();
    [&ethernet[..], &header, &ports].concat()
}

#[test]
fn a_controller_from_elsewhere_fills_and_reads_tables() {
    let served = Served::new("../nat.p4");
    let mut machine = Machine::new(&served.program, 0);
    served.converse("fill", &mut machine, |_| {});
    let (host, remote, pool) = ([10, 0, 0, 5], [198, 51, 100, 7], [203, 0, 113, 1]);
    let out = machine.process(Duration::ZERO, 1, &udp(1, (host, 4000), (remote, 53)));
    let Outcome::Sent { port: 2, packet } = out else { panic!("it goes out: {out:?}") };
    assert_eq!((&packet[26..30], &packet[34..36]), (&pool[..], &4000_u16.to_be_bytes()[..]));
    let unasked = machine.process(Duration::ZERO, 2, &udp(2, (remote, 53), (pool, 9)));
    assert_eq!(unasked, Outcome::Dropped);
    served.converse("read", &mut machine, |_| {});
}

#[test]
fn a_controller_from_elsewhere_hears_what_the_program_tells() {
    let served = Served::new("../examples/programs/digests.p4");
    let mut machine = Machine::new(&served.program, 0);
    // Frames that differ in one number go to controllers, with a digest each; each digest comes
    // three times.
    let (begun, mut count) = (Instant::now(), 0_u32);
    served.converse("hear", &mut machine, |machine| {
        let now = begun.elapsed();
        if now < Duration::from_millis(2) * count {
            return;
        }
        let number = (count / 3 % 3) as u8 + 1;
        count += 1;
        match machine.process(now, 1, &[0, number, 0, 0, 0, 0, 0, 0]) {
            Outcome::Sent { port: CONTROLLER_PORT, packet } => drop(machine.tell(&packet)),
            other => panic!("it goes to controllers: {other:?}"),
        }
    });
}
