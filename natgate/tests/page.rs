//! The page of a running gateway in a browser shows the subscribers' traffic.
//!
//! The network is that of the demonstration (`natgate-testnet`); the browser is in the gateway's
//! namespace. The page's own crate tests its layout and use. Needs root and the programs that `make
//! test` installs, and fails without them.

use natgate_browser::Chromium;
use natgate_control::socket::{ask, open};
use natgate_testnet::{SERVER1, SUBSCRIBER1, TestNetwork, config};
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngpage";
const PAGE: &str = "http://127.0.0.1:9465/";
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_browser_shows_what_subscribers_do() {
    let network = TestNetwork::new(TAG);
    let nat = network.node("nat");
    nat.ip_batch("link set lo up\n").unwrap();
    let spool = network.file("spool").display().to_string();
    let with_log = config(&format!("[[log]]\nkind = \"spool\"\nfolder = {spool:?}\n"));
    let gateway = network.start(PROGRAM, &with_log);
    assert!(gateway.log().contains(&format!("the page is at {PAGE}")), "{}", gateway.log());

    let mut browser = Chromium::start_by(&["ip", "netns", "exec", nat.name()], "gateway");
    browser.open(PAGE);
    browser.wait_text("#state-text", "running for ");
    browser.wait("document.querySelectorAll('[role=gridcell]').length === 4");
    browser.wait("document.querySelectorAll('#workers tbody tr').length === 1");
    browser.wait_text("[data-part=logs]", "1 of 1 connected");

    let arguments = ["-n", "-c", "20", "-i", "0.1", &SERVER1.to_string()];
    let output = network.node("sub1").run(30, "ping", &arguments).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let subscriber = SUBSCRIBER1.to_string();
    browser.wait_text("#subscribers tbody", &subscriber);
    browser.wait(
        "Number(document.querySelector('#directions tbody').rows[0].cells[3].textContent) >= 20",
    );

    // From the subscriber to the mapping, and from its external endpoint to the subscriber.
    browser.click("#subscribers button");
    browser.wait_text(
        "#answer-body",
        &format!("{subscriber} is a subscriber's address. It has 1 mapping."),
    );
    let external = browser.text("#answer-body td:nth-of-type(2) code");
    assert!(external.starts_with("203.0.113."), "{external}");
    browser.press("/");
    browser.write(&external);
    browser.press("Enter");
    browser.wait_text("#answer-body", &format!("{external} is {subscriber}"));

    // The owner is in the log on disk within about a second, so the page asks again.
    let now = "new Date().toISOString()";
    let then = browser.value(now);
    let question = format!("{external} icmp at {}", then.as_str().unwrap());
    let until = Instant::now() + PATIENCE;
    while !browser.text("#answer-body").starts_with(&format!("{external} was {subscriber}")) {
        assert!(Instant::now() < until, "{}", browser.text("#answer-body"));
        browser.value(&format!("document.getElementById('query').value = {question:?}"));
        browser.click("#search button");
        browser.wait("!document.getElementById('answer-body').textContent.includes('Looking')");
    }
    assert_eq!(browser.text("#answer-body td:nth-of-type(1) code"), subscriber);
    browser.value(&format!(
        "document.getElementById('query').value = '{external} at 2001-01-01T00:00:00Z'"
    ));
    browser.click("#search button");
    browser.wait_text("#answer-body", "the log has nothing from before that time");

    // Commands that the page must not permit.
    let post =
        "fetch('/v1/clear?what=mappings', { method: 'POST' }).then((answer) => answer.status)";
    assert_eq!(browser.value(post), 403);

    gateway.stop().unwrap();
    browser.wait("!document.getElementById('banner').hidden");
    // There is no collector at the log's address.
    let failing =
        "[[log]]\nkind = \"syslog\"\ntransport = \"tcp\"\ncollector = \"127.0.0.1:6514\"\n";
    let gateway = network.start(PROGRAM, &config(failing));
    browser.wait("document.getElementById('banner').hidden");
    browser.wait_text("#health-level", "Needs attention");
    browser.wait_text("#health-alarms", "Critical: log syslog");
    browser.wait_text("#health-alarms", "cannot be written since ");
    browser.wait_text("[data-part=logs]", "0 of 1 connected, 1 failed");
    browser.wait_text("[data-part=links]", "2 of 2 up");
    browser.wait("document.querySelectorAll('[role=gridcell]').length === 4");
    gateway.stop().unwrap();
}

/// Number of hostile clients of the page, of each kind.
const HOSTILE: usize = 200;

/// Longest time of an answer on a busy machine. Without budgets of its own an operator would wait
/// for minutes, or be refused.
const BOUND: Duration = Duration::from_secs(5);

/// Opens connections to the page that send these requests and read no answers. They come from ten
/// addresses, because one address has a quarter of the places.
fn besiege(requests: &[u8], count: usize) -> Vec<TcpStream> {
    let connect = |number: usize| {
        let from = SocketAddr::from(([127, 0, 0, 2 + (number % 10) as u8], 0));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
        socket.bind(&from.into()).ok()?;
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], 9465)).into()).ok()?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(requests).ok()?;
        Some(stream)
    };
    (0..count).filter_map(connect).collect()
}

#[test]
fn hostile_clients_of_the_page_keep_no_operator_waiting() {
    let network = TestNetwork::new("nghost");
    let nat = network.node("nat");
    nat.ip_batch("link set lo up\n").unwrap();
    let (spool, socket) = (network.file("spool").display().to_string(), network.file("c.sock"));
    let more = format!(
        "[control]\nsocket = {:?}\n[[log]]\nkind = \"spool\"\nfolder = {spool:?}\n",
        socket.display().to_string()
    );
    let gateway = network.start(PROGRAM, &config(&more));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes();
    let then = "/v1/who?external=203.0.113.10:2000&protocol=udp&at=1";
    // Streams come first, because they last.
    let besiegers = nat.enter(|| {
        let mut all = besiege(&get("/v1/events"), 2 * 16);
        all.extend(besiege(&get(then), HOSTILE));
        all.extend(besiege(&get("/v1/subscribers?top=1000"), HOSTILE));
        all.extend(besiege(&get("/v1/mappings").repeat(50), HOSTILE));
        all.extend(besiege(b"GET / HTTP/1.1\r\nHost: ", HOSTILE));
        all
    });
    let besiegers = besiegers.unwrap();
    assert!(besiegers.len() >= 32, "{} besiege", besiegers.len());
    for (method, path) in [("GET", "/v1/status"), ("POST", "/v1/reload"), ("GET", "/v1/status")] {
        let began = Instant::now();
        let answer = ask(&socket, method, path, &serde_json::Value::Null, PATIENCE).unwrap();
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
        let took = began.elapsed();
        println!("{method} {path} beside {} hostile clients took {took:?}", besiegers.len());
        assert!(took < BOUND, "{method} {path}: {took:?}");
    }
    // Streams of the page leave places for streams of operators.
    let streams: Vec<_> = (0..16)
        .map(|_| open(&socket, "GET", "/v1/events", &[], &serde_json::Value::Null, PATIENCE))
        .collect();
    for stream in streams {
        assert_eq!(stream.unwrap().status(), 200);
    }
    drop(besiegers);
    gateway.stop().unwrap();
}
