//! Tests of TLS: certificates of servers and clients, and lists of revoked ones.

use super::*;

/// Certificates of a test's own, as files: of an authority, of a server and of clients.
struct Papers {
    folder: PathBuf,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Papers {
    fn new(test: &str) -> Self {
        let folder = socket(test).parent().expect("a folder").to_owned();
        fs::create_dir(&folder).expect("it can be made");
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.key_usages =
            vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = authority.self_signed(&key).unwrap();
        fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: rcgen::Issuer::new(authority, key) }
    }

    /// Writes a certificate and a key for a name.
    fn write(&self, name: &str) -> [PathBuf; 2] {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = ["pem", "key"].map(|kind| self.folder.join(format!("{name}.{kind}")));
        fs::write(&files[0], certificate.pem()).unwrap();
        fs::write(&files[1], key.serialize_pem()).unwrap();
        files
    }

    /// The files of a server that lets these names do everything.
    fn files(&self, operators: &[&str]) -> TlsFiles {
        let [certificate, key] = self.write("server");
        let clients = self.folder.join("ca.pem");
        let operators = operators.iter().map(|&name| name.to_owned()).collect();
        TlsFiles { certificate, key, clients, revoked: None, operators }
    }

    fn load(&self) -> Tls {
        Tls::load(&self.files(&["alice"])).expect("all is there")
    }

    /// Writes the authority's list of revoked certificates: those that files have.
    fn revoke(&self, certificates: &[&Path]) -> PathBuf {
        use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};
        let number = |path: &&Path| {
            let (_, pem) = parse_x509_pem(&fs::read(path).unwrap()).unwrap();
            let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
            rcgen::RevokedCertParams {
                serial_number: rcgen::SerialNumber::from_slice(certificate.raw_serial()),
                revocation_time: rcgen::date_time_ymd(2026, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }
        };
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2099, 1, 1),
            crl_number: rcgen::SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: certificates.iter().map(number).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let path = self.folder.join("crl.pem");
        fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }
}

type TlsStream =
    tokio_rustls::rustls::StreamOwned<tokio_rustls::rustls::ClientConnection, std::net::TcpStream>;

/// A connection by TLS, with the certificate of a name if one is given.
fn connect_by_tls(papers: &Papers, address: std::net::SocketAddr, name: Option<&str>) -> TlsStream {
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(papers.folder.join("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match name {
        None => config.with_no_client_auth(),
        Some(name) => {
            let file = |kind: &str| papers.folder.join(format!("{name}.{kind}"));
            let chain = vec![CertificateDer::from_pem_file(file("pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let tcp = std::net::TcpStream::connect(address).expect("the server listens");
    StreamOwned::new(connection, tcp)
}

/// Answer to a request by TLS, with the certificate of a name if one is given.
fn by_tls(
    papers: &Papers,
    address: std::net::SocketAddr,
    name: Option<&str>,
    method: &str,
) -> String {
    let mut stream = connect_by_tls(papers, address, name);
    let request = format!("{method} /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn who_has_a_certificate_may_read_and_who_is_listed_may_operate() {
    let papers = Papers::new("tls");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), papers.load());
    let server = Server::start(listen, echo()).expect("a port is free");
    let address = server.address().expect("it is TCP");
    papers.write("alice");
    papers.write("bob");
    for (name, method, status) in [
        (Some("alice"), "GET", "HTTP/1.1 200 "),
        (Some("alice"), "POST", "HTTP/1.1 200 "),
        (Some("bob"), "GET", "HTTP/1.1 200 "),
        (Some("bob"), "POST", "HTTP/1.1 403 "),
    ] {
        let answer = by_tls(&papers, address, name, method);
        assert!(answer.starts_with(status), "{name:?} {method}: {answer}");
    }
    assert_eq!(by_tls(&papers, address, None, "GET"), "");
    let stranger = Papers::new("tls-stranger");
    let [certificate, key] = stranger.write("alice");
    for (from, to) in [(certificate, "mallory.pem"), (key, "mallory.key")] {
        fs::copy(from, papers.folder.join(to)).unwrap();
    }
    assert_eq!(by_tls(&papers, address, Some("mallory"), "GET"), "");
    // Rubbish in the place of TLS ends the connection and nothing else.
    let mut plain = std::net::TcpStream::connect(address).expect("the server listens");
    plain.write_all(b"GET /v1/echo HTTP/1.1\r\n\r\n").expect("it is taken");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(by_tls(&papers, address, Some("bob"), "GET").starts_with("HTTP/1.1 200 "));
}

/// A certificate of version 1: `openssl x509 -req` makes it when no extension is asked for.
const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBFTCBuwIUThasobCCZAo+Mu9V8k8Y3kKWrNAwCgYIKoZIzj0EAwIwDDEKMAgG\n\
A1UEAwwBYTAgFw0yNjExMjIxOTE2MzJaGA8yMTI2MTAyOTE5MTYzMlowDDEKMAgG\n\
A1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABLilE7msfM9Isbr2xnDY\n\
MuXsVsjcWte5gb5yVPCAVJqWScvSz6gkpS6XPk2Cc3zlXzx72x1NsCZFz5Tg/knQ\n\
v2AwCgYIKoZIzj0EAwIDSQAwRgIhAKmMXF55/0BEaq3N8Myfbp8frPlH7NkuCw+1\n\
ATpYWWHjAiEAvBXwXshO9jqYxgwtqcWYs6PnlElFNcPW1LobnVFAMcU=\n\
-----END CERTIFICATE-----\n\
";

#[test]
fn papers_that_are_wrong_are_named() {
    let papers = Papers::new("tls-wrong");
    let [certificate, key] = papers.write("server");
    let [_, other] = papers.write("other");
    let clients = papers.folder.join("ca.pem");
    let missing = papers.folder.join("missing.pem");
    let old = papers.folder.join("old.pem");
    fs::write(&old, OF_VERSION_1).expect("it is ours");
    let load = |certificate: &Path, key: &Path, clients: &Path| {
        let files = TlsFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            clients: clients.to_owned(),
            revoked: None,
            operators: Vec::new(),
        };
        Tls::load(&files).expect_err("it is wrong").to_string()
    };
    for (error, said) in [
        (load(&missing, &key, &clients), "missing.pem cannot be read: No such file"),
        (load(&certificate, &missing, &clients), "missing.pem cannot be read: No such file"),
        (load(&certificate, &certificate, &clients), "server.pem has no private key"),
        (load(&certificate, &key, &missing), "missing.pem cannot be read: No such file"),
        (load(&certificate, &other, &clients), "cannot be used: they do not belong together"),
        (load(&key, &key, &clients), "the file has no such section"),
        (load(&old, &key, &clients), "old.pem is of X.509 version 1, and only version 3 is used"),
    ] {
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_certificate_that_has_lapsed_is_known() {
    let papers = Papers::new("tls-lapsed");
    let [certificate, _] = papers.write("server");
    assert_eq!(Tls::validity(&certificate).expect("it is there"), Validity::Now);
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    for (from, to, expected) in [
        (2020, 2021, Validity::Until("Jan  1 00:00:00 2021 +00:00".into())),
        (2090, 2091, Validity::From("Jan  1 00:00:00 2090 +00:00".into())),
    ] {
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let signed = params.signed_by(&key, &papers.issuer).unwrap();
        fs::write(&certificate, signed.pem()).unwrap();
        assert_eq!(Tls::validity(&certificate).expect("it is there"), expected);
    }
}

/// Answer to GET by TLS with the certificate of a name.
fn get_by_tls(papers: &Papers, address: std::net::SocketAddr, name: &str) -> String {
    by_tls(papers, address, Some(name), "GET")
}

#[test]
fn a_revoked_certificate_is_refused() {
    let papers = Papers::new("tls-revoked");
    let [alice, _] = papers.write("alice");
    papers.write("bob");
    let revoked = Some(papers.revoke(&[&alice]));
    let files = TlsFiles { revoked, ..papers.files(&["alice"]) };
    let tls = Tls::load(&files).expect("all is there");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), tls.clone());
    let server = Server::start(listen, echo()).expect("a port is free");
    let address = server.address().expect("it is TCP");
    assert_eq!(get_by_tls(&papers, address, "alice"), "");
    assert!(get_by_tls(&papers, address, "bob").starts_with("HTTP/1.1 200 "));

    // An authority that the file has no list of lets nobody in.
    let stranger = Papers::new("tls-revoked-elsewhere");
    let other = TlsFiles { revoked: Some(stranger.revoke(&[])), ..files.clone() };
    tls.replace(LoadedTls::read(&other).expect("it is a list"));
    assert_eq!(get_by_tls(&papers, address, "bob"), "");
    // An empty list revokes nothing.
    papers.revoke(&[]);
    tls.replace(LoadedTls::read(&files).expect("it is a list"));
    assert!(get_by_tls(&papers, address, "alice").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_file_that_is_no_list_of_revoked_certificates_is_refused() {
    let papers = Papers::new("tls-no-list");
    let files = papers.files(&[]);
    let odd = papers.folder.join("odd.pem");
    for (text, said) in [
        ("", "has no list of revoked certificates in PEM form"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "no usable list of revoked"),
    ] {
        fs::write(&odd, text).unwrap();
        let files = TlsFiles { revoked: Some(odd.clone()), ..files.clone() };
        let error = LoadedTls::read(&files).expect_err("it is no list").to_string();
        assert!(error.contains(said) && error.contains("odd.pem"), "{error}");
    }
    let missing = TlsFiles { revoked: Some(papers.folder.join("none")), ..files };
    let error = LoadedTls::read(&missing).expect_err("there is none").to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn other_files_end_the_connections_that_they_do_not_allow() {
    let papers = Papers::new("tls-replaced");
    let files = papers.files(&["alice"]);
    let tls = Tls::load(&files).expect("all is there");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), tls.clone());
    let server = Server::start(listen, echo()).expect("a port is free");
    let address = server.address().expect("it is TCP");
    let [alice, _] = papers.write("alice");
    papers.write("bob");
    let endless = |name: &str| {
        let mut stream = connect_by_tls(&papers, address, Some(name));
        let request = b"GET /v1/endless HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).expect("it is taken");
        stream.read_exact(&mut [0; 100]).expect("it begins");
        stream
    };
    let (mut of_alice, mut of_bob) = (endless("alice"), endless("bob"));
    let revoked = TlsFiles { revoked: Some(papers.revoke(&[&alice])), ..files.clone() };
    tls.replace(LoadedTls::read(&revoked).expect("all is there"));
    // The rest that lies in the sockets' buffers comes, then the end.
    let _ = of_alice.read_to_end(&mut Vec::new());
    of_bob.read_exact(&mut vec![0; 16 << 20]).expect("another client goes on");
    // Another list of operators is another role.
    let operators = TlsFiles { operators: vec!["bob".into()], ..files };
    tls.replace(LoadedTls::read(&operators).expect("all is there"));
    let _ = of_bob.read_to_end(&mut Vec::new());
    assert!(by_tls(&papers, address, Some("bob"), "POST").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_request_knows_its_client() {
    let path = socket("peers");
    let tell = async |Extension(peer): Extension<Peer>,
                      Extension(group): Extension<ClientGroup>| {
        Response::done(json!([peer.to_string(), format!("{group:?}")]))
    };
    let router = Router::new().route("/", get(tell));
    let _server = Server::start(Listen::unix(&path), router.clone()).expect("a socket");
    let answer = ask(&path, "GET", "/", &json!(null), PATIENCE).expect("an answer");
    // The effective user is whose files this process makes.
    let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&path).expect("it is there"));
    let own = format!("uid {uid}, pid {}", std::process::id());
    assert_eq!(answer.body, json!([own, "Operators"]));
    let read = path.with_file_name("read.sock");
    let listen = Listen::unix(&read).role(Role::Read);
    let _read = Server::start(listen, router.clone()).expect("a socket");
    let answer = ask(&read, "GET", "/", &json!(null), PATIENCE).expect("an answer");
    assert_eq!(answer.body[1], "Readers");

    let papers = Papers::new("peers-tls");
    papers.write("alice");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), papers.load());
    let server = Server::start(listen, router).expect("a port is free");
    let mut stream = connect_by_tls(&papers, server.address().unwrap(), Some("alice"));
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it is taken");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.contains("certificate \\\"alice\\\" from 127.0.0.1:"), "{answer}");
    assert!(answer.contains("Remote"), "{answer}");
}
