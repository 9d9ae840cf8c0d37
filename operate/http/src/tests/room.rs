//! Tests of the room for connections: of one address, of many, and beyond a limit.

use super::*;

#[test]
fn idle_connections_of_one_address_keep_out_no_other_address() {
    let (_server, address, refused) = crowded(8);
    let idle: Vec<TcpStream> = (0..20).map(|_| connect_from(1, address)).collect();
    let mut other = connect_from(2, address);
    let asked = request(&mut other, "/v1/echo");
    assert!(asked.is_ok() && is_answered(&mut other), "the other address is served");
    let closed = refused.load(Ordering::Relaxed);
    assert!((1..=20 - 8 / 4).contains(&closed), "{closed}");
    drop(idle);
}

#[test]
fn busy_connections_of_one_address_keep_out_no_other_address() {
    let (_server, address, refused) = crowded(8);
    let mut busy: Vec<TcpStream> = (0..8).map(|_| connect_from(1, address)).collect();
    let began = busy.iter_mut().map(|stream| {
        let asked = request(stream, "/v1/endless");
        asked.is_ok() && is_answered(stream)
    });
    let began: Vec<bool> = began.collect();
    let mut other = connect_from(2, address);
    let asked = request(&mut other, "/v1/echo");
    assert!(asked.is_ok() && is_answered(&mut other), "the other address is served");
    assert_eq!(began.iter().filter(|began| **began).count(), 8 / 4, "an address has a quarter");
    assert_eq!(refused.load(Ordering::Relaxed), 8 - 8 / 4);
}

#[test]
fn an_idle_connection_gives_way_and_one_that_is_answered_never() {
    let (_server, address, refused) = crowded(8);
    let mut busy: Vec<TcpStream> = (1..=4)
        .flat_map(|host| [host, host])
        .map(|host| {
            let mut stream = connect_from(host, address);
            request(&mut stream, "/v1/endless").expect("it is taken");
            assert!(is_answered(&mut stream), "127.0.0.{host} is answered");
            stream
        })
        .collect();
    let mut late = connect_from(5, address);
    assert!(request(&mut late, "/v1/echo").is_err() || !is_answered(&mut late), "no room is left");
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    // One ends; its place goes to a silent connection, which gives way to the next that comes.
    busy.pop();
    let silent = wait_for_room(5, address, &refused);
    let mut next = connect_from(6, address);
    request(&mut next, "/v1/endless").expect("it is taken");
    assert!(is_answered(&mut next), "the silent connection gave way");
    assert!(!is_answered(&mut { silent }), "the silent connection is closed");
    // In turns: a connection whose reader waits for all others would count as stalled.
    let mut part = vec![0; 1 << 16];
    for _ in 0..256 {
        for stream in &mut busy {
            stream.read_exact(&mut part).expect("the answer goes on");
        }
    }
}

/// An idle connection that has got a place: tried until the server has noticed that one is free.
fn wait_for_room(host: u8, address: SocketAddr, refused: &AtomicU64) -> TcpStream {
    for _ in 0..1000 {
        let before = refused.load(Ordering::Relaxed);
        let stream = connect_from(host, address);
        std::thread::sleep(Duration::from_millis(10));
        if refused.load(Ordering::Relaxed) == before {
            return stream;
        }
    }
    panic!("no place became free");
}

#[test]
fn connections_beyond_a_limit_are_counted_and_end() {
    let (most, more) = (8, 7);
    let (_server, address, refused) = crowded(most);
    let share = most / 4;
    let mut connections: Vec<TcpStream> =
        (0..share + more).map(|_| connect_from(1, address)).collect();
    // The longest idle connections give way at once; the latest are closed as silent after a time.
    for surplus in &mut connections {
        assert!(!is_answered(surplus));
    }
    let closed = refused.load(Ordering::Relaxed);
    assert!((1..=more as u64).contains(&closed), "{closed}");
    let mut asking = connect_from(1, address);
    request(&mut asking, "/v1/echo").expect("it is taken");
    assert!(is_answered(&mut asking));
}

#[test]
fn a_thousand_are_answered_at_once() {
    let path = socket("thousand");
    let _server = start(&path);
    // All have asked before any reads.
    let asked: Vec<UnixStream> = (0..1000)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).expect("the server listens");
            let request = b"GET /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("it is taken");
            stream
        })
        .collect();
    for mut stream in asked {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

/// Two clients that connect, send these bytes and go, again and again, until this is dropped.
struct Reconnecting {
    is_over: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Reconnecting {
    fn start(path: &Path, sends: &'static str) -> Self {
        let (is_over, connections) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let client = |_| {
            let (path, is_over, connections) =
                (path.to_owned(), is_over.clone(), connections.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = UnixStream::connect(&path) {
                        let _ = stream.write_all(sends.as_bytes());
                        connections.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let threads = (0..2).map(client).collect();
        Self { is_over, connections, threads }
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Reconnecting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn clients_that_reconnect_without_a_pause_keep_nobody_waiting() {
    let path = socket("reconnects");
    let _server = start(&path);
    for sends in ["", "GET /v1/echo HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let clients = Reconnecting::start(&path, sends);
        let ask = |_| {
            let began = std::time::Instant::now();
            assert_eq!(get_echo(&path).expect("an answer").status, 200);
            let took = began.elapsed();
            std::thread::sleep(Duration::from_millis(5));
            took
        };
        let mut took: Vec<Duration> = (0..100).map(ask).collect();
        took.sort_unstable();
        let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
        let count = clients.connections();
        println!(
            "beside {count} connections that send {sends:?}: median {median:?}, worst {worst:?}"
        );
        assert!(worst < Duration::from_secs(10), "{worst:?}");
    }
}
