//! Tests of groups of clients, each with a thread of its own.

use super::*;

#[test]
fn clients_of_one_group_delay_no_other_group() {
    let path = socket("groups");
    let slow = async || {
        let _ = blocking(|| std::thread::sleep(Duration::from_secs(3))).await;
        Response::done(json!(null))
    };
    let router = echo().route("/v1/slow", get(slow));
    let _server = Server::start(Listen::unix(&path), router.clone()).expect("a socket");
    let page = Server::start(Listen::tcp("127.0.0.1:0".parse().unwrap()), router);
    let page = page.expect("a port is free");
    let address = page.address().expect("it is TCP");
    let hostile: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(address).expect("the server listens");
            stream.write_all(b"GET /v1/slow HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    let answer = ask(&path, "GET", "/v1/wait", &json!(null), Duration::from_secs(20));
    assert_eq!(answer.expect("an answer").status, 200);
    // The others' requests take minutes one after the other.
    let took = began.elapsed();
    println!("an answer beside {} hostile clients took {took:?}", hostile.len());
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_client_with_many_requests_delays_another_by_few() {
    let (server, address, _) = crowded(1024);
    let busy: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut stream = connect_from(1, address);
            request(&mut stream, "/v1/wait").expect("it is taken");
            stream
        })
        .collect();
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    let reading = std::thread::spawn(move || {
        for mut stream in busy {
            count.fetch_add(u64::from(is_answered(&mut stream)), Ordering::Relaxed);
        }
    });
    let mut other = connect_from(2, address);
    request(&mut other, "/v1/wait").expect("it is taken");
    assert!(is_answered(&mut other));
    // Four are done at a time; those that had begun, and perhaps as many again, were before it.
    let before = answered.load(Ordering::Relaxed);
    assert!(before < 30, "{before} of 60 requests of another client were answered before");
    reading.join().expect("all are answered");
    assert_eq!(answered.load(Ordering::Relaxed), 60);
    drop(server);
}
