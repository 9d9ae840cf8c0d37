//! A call, a download and iperf3 through the pair. Each tells for how long nothing arrived.

use super::arrivals::Arrivals;
use anyhow::{Context, ensure};
use natgate_testnet::{PAIR_SERVER, PairNetwork, traffic};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval of the packets of the call.
pub(super) const CALL: Duration = Duration::from_millis(20);

/// Bytes of the download in each interval: about 50 Mbit/s.
const PIECE: usize = 64 << 10;
const PIECES: Duration = Duration::from_millis(10);

/// Longest silence of the download.
const SILENCE: Duration = Duration::from_secs(20);

/// Interval of iperf3's reports, seconds.
const REPORTS: f64 = 0.1;

/// Threads that end with this value.
#[derive(Debug, Default)]
pub(super) struct Crew {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts a thread, which ends soon after its argument has become true.
    pub(super) fn spawn(&mut self, work: impl FnOnce(&AtomicBool) + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || work(&stop)));
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread has printed the reason on standard error.
            let _ = thread.join();
        }
    }
}

/// A call: 50 packets a second, each of which the server returns.
pub(super) struct Call {
    /// For each packet: when it was sent, and whether it came back.
    packets: Arc<Mutex<Vec<(Instant, bool)>>>,
    pub(super) arrivals: Arrivals,
    _crew: Crew,
}

impl Call {
    pub(super) fn start(network: &PairNetwork) -> anyhow::Result<Self> {
        let server = SocketAddrV4::new(*PAIR_SERVER.ip(), 7002);
        let mut crew = Crew::default();
        let socket = network.node("srv").enter(|| UdpSocket::bind(server))??;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        crew.spawn(move |stop| {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                let _ = socket.send_to(&buffer[..len], from);
            }
        });
        let socket = traffic::udp_socket(network.node("sub"))?;
        socket.connect(server)?;
        let (packets, arrivals) = (Arc::default(), Arrivals::default());
        let (kept, noted) = (Arc::clone(&packets), arrivals.clone());
        crew.spawn(move |stop| {
            while !stop.load(Ordering::Relaxed) {
                call_once(&socket, &kept, &noted);
            }
        });
        Ok(Self { packets, arrivals, _crew: crew })
    }

    /// Packets that were sent between two instants, and how many of them did not come back.
    pub(super) fn lost(&self, from: Instant, to: Instant) -> (usize, usize) {
        let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        let sent: Vec<_> = packets.iter().filter(|one| (from..=to).contains(&one.0)).collect();
        (sent.len(), sent.iter().filter(|one| !one.1).count())
    }
}

/// Sends one packet, and receives until the next is due.
fn call_once(socket: &UdpSocket, packets: &Mutex<Vec<(Instant, bool)>>, arrivals: &Arrivals) {
    let now = Instant::now();
    let packets = || packets.lock().unwrap_or_else(PoisonError::into_inner);
    let number = {
        let mut packets = packets();
        packets.push((now, false));
        packets.len() - 1
    };
    // 160 bytes are 20 ms of telephone speech.
    let mut packet = [0; 160];
    packet[..8].copy_from_slice(&(number as u64).to_be_bytes());
    let _ = socket.send(&packet);
    while let Some(left) = CALL.checked_sub(now.elapsed()).filter(|left| !left.is_zero()) {
        let _ = socket.set_read_timeout(Some(left));
        if let Ok(len) = socket.recv(&mut packet)
            && len == packet.len()
            && let Some((number, _)) = packet.split_first_chunk()
        {
            arrivals.note();
            if let Some(one) = packets().get_mut(u64::from_be_bytes(*number) as usize) {
                one.1 = true;
            }
        }
    }
}

/// A download without an end, at a constant rate.
pub(super) struct Download {
    pub(super) arrivals: Arrivals,
    bytes: Arc<AtomicU64>,
    error: Arc<Mutex<Option<String>>>,
    _crew: Crew,
}

impl Download {
    pub(super) fn start(network: &PairNetwork) -> anyhow::Result<Self> {
        let server = SocketAddrV4::new(*PAIR_SERVER.ip(), 7003);
        let mut crew = Crew::default();
        let listener = traffic::listen(network.node("srv"), server, SILENCE)?;
        crew.spawn(move |stop| {
            // The client notices an error.
            let _ = serve(&listener, stop);
        });
        let mut stream = traffic::connect(network.node("sub"), 0, server)?;
        let (arrivals, bytes) = (Arrivals::default(), Arc::<AtomicU64>::default());
        let error = Arc::<Mutex<Option<String>>>::default();
        let (noted, counted, told) = (arrivals.clone(), Arc::clone(&bytes), Arc::clone(&error));
        crew.spawn(move |stop| {
            if let Err(wrong) = read(&mut stream, stop, &noted, &counted) {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{wrong:#}"));
            }
        });
        Ok(Self { arrivals, bytes, error, _crew: crew })
    }

    /// Bytes that have come, all as they were sent.
    pub(super) fn bytes(&self) -> anyhow::Result<u64> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(error.is_none(), "the download has ended: {}", error.unwrap_or_default());
        Ok(self.bytes.load(Ordering::Relaxed))
    }
}

/// The byte at a place of the download. Its period is no multiple of a packet's length.
fn byte_at(place: u64) -> u8 {
    (place % 251) as u8
}

fn serve(listener: &TcpListener, stop: &AtomicBool) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut place = 0;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let piece: Vec<u8> = (place..place + PIECE as u64).map(byte_at).collect();
        stream.write_all(&piece)?;
        place += PIECE as u64;
        thread::sleep(PIECES.saturating_sub(began.elapsed()));
    }
    Ok(())
}

fn read(
    stream: &mut TcpStream,
    stop: &AtomicBool,
    arrivals: &Arrivals,
    bytes: &AtomicU64,
) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0; PIECE];
    while !stop.load(Ordering::Relaxed) {
        let len = match stream.read(&mut buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        // The server ends when the demonstration does.
        ensure!(len > 0 || stop.load(Ordering::Relaxed), "the server closed the connection");
        arrivals.note();
        let before = bytes.fetch_add(len as u64, Ordering::Relaxed);
        let is_right = (before..).zip(&buffer[..len]).all(|(place, byte)| *byte == byte_at(place));
        ensure!(is_right, "bytes after {before} differ from those that were sent");
    }
    Ok(())
}

/// Result of iperf3.
pub(crate) struct Iperf {
    /// Received bits a second.
    pub(crate) rate: f64,
    /// The longest time without an arrival, in steps of the reports.
    pub(crate) silence: Duration,
}

/// Runs iperf3 from the server to the subscriber for some seconds.
pub(super) fn iperf3(network: &PairNetwork, seconds: u32) -> anyhow::Result<Iperf> {
    let reports = REPORTS.to_string();
    // Half of the machine's processors are busy with the rest.
    let more = ["--reverse", "--bitrate", "50M", "--interval", &reports];
    let ends = [network.node("sub"), network.node("srv")];
    let log = network.file("iperf3.log");
    let measured = traffic::iperf3_between(ends, *PAIR_SERVER.ip(), &log, seconds, &more)?;
    let rate = measured["end"]["sum_received"]["bits_per_second"].as_f64();
    let intervals = measured["intervals"].as_array().context("iperf3 told no intervals")?;
    let is_silent = |one: &Value| one["sum"]["bytes"].as_u64() == Some(0);
    let longest = intervals.chunk_by(|one, next| is_silent(one) == is_silent(next));
    let longest = longest.filter(|run| is_silent(&run[0])).map(<[_]>::len).max();
    Ok(Iperf {
        rate: rate.context("iperf3 told no rate")?,
        silence: Duration::from_secs_f64(longest.unwrap_or_default() as f64 * REPORTS),
    })
}
