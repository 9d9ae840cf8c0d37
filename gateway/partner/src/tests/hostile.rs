//! Strangers, and a partner that is not to be trusted with memory.

use super::rig::{
    NOBODY, Rig, assert_views_arrive, connected, start, until, until_true, wait_for_connection,
};
use crate::limits::HANDSHAKES;
use crate::transport::{self, REPLACED};
use crate::{Link, MAX_MESSAGE, MAX_VIEW, QUEUE_BYTES};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Clients that the tests program themselves. A thread of their own keeps their connections alive.
pub(super) struct Client {
    runtime: Arc<Runtime>,
    endpoint: Endpoint,
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end.notify_one();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Client {
    fn new() -> Self {
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build().unwrap());
        let endpoint = {
            let _context = runtime.enter();
            Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap()
        };
        let end = Arc::new(Notify::new());
        let (driver, until) = (Arc::clone(&runtime), Arc::clone(&end));
        let thread = thread::spawn(move || driver.block_on(until.notified()));
        Self { runtime, endpoint, end, thread: Some(thread) }
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(super) fn dial(
        &self,
        tls: &ClientConfig,
        to: SocketAddr,
    ) -> Result<Connection, ConnectionError> {
        let _context = self.runtime.enter();
        let connecting = self.endpoint.connect_with(tls.clone(), to, "b").expect("an attempt");
        self.run(connecting)
    }

    /// Sends a stream. An error is a stream that the other side has stopped.
    fn stream(&self, connection: &Connection, bytes: &[u8]) -> bool {
        self.run(async {
            let mut stream = connection.open_uni().await.expect("a stream");
            let is_written = stream.write_all(bytes).await.is_ok();
            is_written && stream.finish().is_ok() && stream.stopped().await == Ok(None)
        })
    }
}

pub(super) fn listener() -> (Rig, Link, Client) {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    (rig, b, Client::new())
}

/// TLS of a client that has no certificate.
fn stranger(rig: &Rig) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(rig.file("b", "authority")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = transport::protocols(&transport::VERSIONS);
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

#[test]
fn a_stranger_without_a_certificate_is_refused() {
    let (rig, b, client) = listener();
    // The client's side of the handshake ends before the other side refuses it.
    if let Ok(connection) = client.dial(&stranger(&rig), b.local_address()) {
        let error = client.run(connection.closed());
        assert!(matches!(error, ConnectionError::ConnectionClosed(_)), "{error}");
    }
    let status = until("a refusal", || Some(b.status()).filter(|status| status.refused == 1));
    assert!(status.last_refusal.unwrap().contains("peer sent no certificates"));
    assert_eq!(status.connections, 0);
    let a = rig.start("a", "b", b.local_address());
    assert_views_arrive(&a, &b, b"the partner comes through");
}

#[test]
fn strangers_in_great_number_do_not_keep_the_partner_out() {
    let rig = Rig::new();
    rig.write("b", &rig.authority, 2099);
    rig.write("a", &rig.authority, 2099);
    // The partner has another address than the strangers.
    let b = start(&rig.settings("b", "a", "127.0.0.2:9".parse().unwrap()));
    let (client, tls) = (Client::new(), stranger(&rig));
    let attempt =
        || client.endpoint.connect_with(tls.clone(), b.local_address(), "b").expect("an attempt");
    let _context = client.runtime.enter();
    let mut attempts: Vec<_> = (0..4 * HANDSHAKES).map(|_| attempt()).collect();
    until_true("an attempt without a place", || b.status().turned_away > 0);
    let mut settings = rig.settings("a", "b", b.local_address());
    settings.listen = "127.0.0.2:0".parse().unwrap();
    attempts.extend((0..4 * HANDSHAKES).map(|_| attempt()));
    let a = start(&settings);
    assert_views_arrive(&a, &b, b"the partner comes through");
    assert_eq!(b.status().connections, 1);
}

#[test]
fn bytes_that_are_no_quic_have_no_effect() {
    let (_rig, [a, b]) = connected();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let seed = u64::from(std::process::id()) | 1;
    println!("seed {seed}");
    let mut random = seed;
    for number in 0..20_000_usize {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut bytes: Vec<u8> =
            (0..number % 1_500).map(|at| (random.rotate_left(at as u32) >> 3) as u8).collect();
        if let Some(head) = bytes.get_mut(..5).filter(|_| number % 2 == 0) {
            // The head of a first packet of QUIC's version 1.
            head.copy_from_slice(&[0xc0 | (random as u8 & 0x3f), 0, 0, 0, 1]);
        }
        for to in [a.local_address(), b.local_address()] {
            // A full buffer is no failure.
            let _ = socket.send_to(&bytes, to);
        }
    }
    assert_views_arrive(&a, &b, b"as before");
    assert_views_arrive(&b, &a, b"as before, too");
    for status in [a.status(), b.status()] {
        assert!(status.is_running);
        assert_eq!((status.connections, status.refused, status.malformed), (1, 0, 0));
    }
}

#[test]
fn streams_that_are_not_in_the_protocol_are_refused_and_counted() {
    let (rig, b, client) = listener();
    let connection =
        client.dial(&rig.client(&transport::VERSIONS), b.local_address()).expect("the partner");
    wait_for_connection(&b);
    let mut malformed = 0;
    let mut refused = |bytes: &[u8]| {
        client.stream(&connection, bytes);
        malformed += 1;
        until_true("a refusal", || b.status().malformed == malformed);
    };
    refused(&[]);
    refused(&[4]);
    refused(&[255, 1, 2, 3]);
    refused(&[2, 1, 2, 3]);
    refused(&[&[2; 9][..], &[0; MAX_VIEW + 1]].concat());
    refused(&[&[1][..], &vec![0; MAX_MESSAGE + 1]].concat());
    assert_eq!((b.receive(), b.heard()), (None, None));
    // The connection is still good. A view that is late does not replace a newer one.
    for (number, view) in [(9, 1), (8, 2), (9, 3)] {
        assert!(client.stream(&connection, &[2, number, 0, 0, 0, 0, 0, 0, 0, view]));
    }
    // A message without its end is none.
    client.run(async {
        let mut stream = connection.open_uni().await.expect("a stream");
        stream.write_all(&[1, 41]).await.expect("it is written");
        stream.reset(0_u32.into()).expect("it is open");
    });
    assert!(client.stream(&connection, &[1, 42]));
    until_true("a message", || b.receive() == Some(vec![42]));
    assert_eq!((b.heard(), b.heard()), (Some(vec![1]), None));
    assert_eq!((b.status().connections, b.status().malformed, b.receive()), (1, malformed, None));
}

#[test]
fn streams_that_never_end_have_bounded_memory() {
    let (rig, b, client) = listener();
    let connection =
        client.dial(&rig.client(&transport::VERSIONS), b.local_address()).expect("the partner");
    wait_for_connection(&b);
    let part = vec![1; 1 << 20];
    let parts = QUEUE_BYTES / part.len() + 8;
    let _open = client.run(async {
        let mut open = Vec::new();
        for _ in 0..parts {
            let mut stream = connection.open_uni().await.expect("a stream");
            // An error is a stream that the other side has stopped.
            let _ = stream.write_all(&part).await;
            open.push(stream);
        }
        open
    });
    until_true("an overflow", || b.status().receive_overflow > 0);
    assert!(b.status().is_running && b.receive().is_none());
    // Views have room of their own.
    assert!(client.stream(&connection, &[2, 1, 0, 0, 0, 0, 0, 0, 0, 7]));
    until_true("a view", || b.heard() == Some(vec![7]));
}

#[test]
fn the_newest_connection_is_the_one_in_use() {
    let (rig, b, client) = listener();
    let tls = rig.client(&transport::VERSIONS);
    let mut connections = Vec::new();
    for number in 1..=4 {
        connections.push(client.dial(&tls, b.local_address()).expect("the partner"));
        until_true("its use", || b.status().connections == number);
    }
    until_true("room", || b.send(b"to the newest".to_vec()));
    let newest = connections.pop().expect("four");
    let message = client.run(newest.read_datagram()).expect("a message");
    assert_eq!(&message[..], b"to the newest");
    for replaced in connections {
        let error = client.run(replaced.closed());
        assert!(
            matches!(&error, ConnectionError::ApplicationClosed(close)
                if close.error_code == REPLACED),
            "{error}"
        );
    }
    assert!(b.status().connected_since.is_some() && newest.close_reason().is_none());
}
