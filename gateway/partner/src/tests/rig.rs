//! What the tests share: authorities, certificates in files, and links that wait for each other.

use crate::identity::Papers;
use crate::link::{Tuning, start_tuned};
use crate::{Link, Settings};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Something takes longer only if it never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address at which nobody listens. The node that listens needs no other.
pub(crate) const NOBODY: &str = "127.0.0.1:9";

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Two authorities of one name would be told apart by their signatures only.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate with its key, both PEM. It is valid until the end of a year.
    pub(crate) fn sign(&self, name: &str, last_year: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A folder with the files of some nodes.
pub(crate) struct Rig {
    folder: TempDir,
    pub(crate) authority: Authority,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), authority: Authority::new() }
    }

    pub(crate) fn file(&self, node: &str, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{node}.{kind}"))
    }

    /// Writes the files of a node whose certificate an authority signs.
    pub(crate) fn write(&self, node: &str, authority: &Authority, last_year: i32) {
        let (certificate, key) = authority.sign(node, last_year);
        fs::write(self.file(node, "pem"), certificate).unwrap();
        fs::write(self.file(node, "key"), key).unwrap();
        fs::write(self.file(node, "authority"), &self.authority.pem).unwrap();
    }

    /// Makes a node trust another authority.
    pub(crate) fn trust(&self, node: &str, authorities: &[&Authority]) {
        let pem: String = authorities.iter().map(|one| &one.pem[..]).collect();
        fs::write(self.file(node, "authority"), pem).unwrap();
    }

    pub(crate) fn settings(&self, node: &str, partner: &str, address: SocketAddr) -> Settings {
        Settings {
            node: node.to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            certificate: self.file(node, "pem"),
            key: self.file(node, "key"),
            authorities: self.file(node, "authority"),
            partner: partner.to_owned(),
            address,
        }
    }

    /// Writes the files of a node and starts its link.
    pub(crate) fn start(&self, node: &str, partner: &str, address: SocketAddr) -> Link {
        self.write(node, &self.authority, 2099);
        start(&self.settings(node, partner, address))
    }

    /// Two links, the second of which listens, without a connection yet.
    pub(crate) fn pair(&self) -> [Link; 2] {
        let b = self.start("b", "a", NOBODY.parse().unwrap());
        [self.start("a", "b", b.local_address()), b]
    }

    /// TLS of node `a` towards `b`, for a client that the test programs itself.
    pub(crate) fn client(&self, versions: &[u16]) -> quinn::ClientConfig {
        self.write("a", &self.authority, 2099);
        let settings = self.settings("a", "b", NOBODY.parse().unwrap());
        let papers = Papers {
            certificate: settings.certificate,
            key: settings.key,
            authorities: settings.authorities,
            node: "a".try_into().unwrap(),
            partner: "b".try_into().unwrap(),
            versions: versions.to_vec(),
        };
        papers.read().expect("usable files").client
    }
}

/// Starts a link that looks at its files often.
pub(crate) fn start(settings: &Settings) -> Link {
    let tuning = Tuning { file_check: Duration::from_millis(50), ..Tuning::default() };
    start_tuned(settings, tuning).expect("a link")
}

/// Two links with a connection.
pub(crate) fn connected() -> (Rig, [Link; 2]) {
    let rig = Rig::new();
    let links = rig.pair();
    links.iter().for_each(wait_for_connection);
    (rig, links)
}

pub(crate) fn wait_for_connection(link: &Link) {
    until("a connection", || link.status().connected_since);
}

/// Waits for a value.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: it does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn until_true(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || look().then_some(()));
}

/// Waits until a message can be queued.
pub(crate) fn send(link: &Link, message: &[u8]) {
    until_true("room for a message", || link.send(message.to_vec()));
}

pub(crate) fn receive(link: &Link) -> Vec<u8> {
    until("a message", || link.receive())
}

/// Tells views until one arrives: proof that the link works.
pub(crate) fn assert_views_arrive(from: &Link, to: &Link, view: &[u8]) {
    assert!(from.tell(view.to_vec()));
    until_true("a view", || to.heard().as_deref() == Some(view));
}

/// Ends a thread of a test, also if the test fails.
pub(crate) struct Ends<'f>(pub(crate) &'f AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
