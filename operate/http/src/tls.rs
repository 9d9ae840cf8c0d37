//! TLS with client certificates: names and roles of clients of other machines.
//!
//! A client without a certificate that a configured authority has signed gets no answer. The common
//! names of clients that may change something are listed; all others may read.

use crate::Role;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate, X509Version};

/// The files and names by which clients of other machines are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority's; PEM.
    pub certificate: PathBuf,
    /// The server's key; PEM.
    pub key: PathBuf,
    /// Certificates of the authorities that sign clients' certificates; PEM.
    pub clients: PathBuf,
    /// Lists of revoked certificates, one for each authority; PEM.
    pub revoked: Option<PathBuf>,
    /// Common names of clients that may do everything.
    pub operators: Vec<String>,
}

/// Contents of the files when they were read, ready to be put in force by [`Tls::replace`].
#[derive(Clone)]
pub struct LoadedTls {
    acceptor: TlsAcceptor,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Common names of clients that may do everything.
    operators: Arc<[String]>,
}

impl std::fmt::Debug for LoadedTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedTls").field("operators", &self.operators).finish_non_exhaustive()
    }
}

/// TLS for clients of other machines. Clones share the files in force.
#[derive(Clone, Debug)]
pub struct Tls {
    in_force: Arc<watch::Sender<LoadedTls>>,
}

/// Reason why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{0} cannot be read: {1}; name a file that the user who runs natgate may read")]
    Unreadable(PathBuf, io::Error),
    /// A file has none of what it should have.
    #[error("{0} has no {1} in PEM form: {2}")]
    File(PathBuf, &'static str, String),
    /// Certificate and key do not belong together, or are of a kind that is not used.
    #[error("the certificate in {0} and the key in {1} cannot be used: {2}")]
    Pair(PathBuf, PathBuf, String),
    /// The certificate is of a version that nobody takes any more.
    #[error(
        "the certificate in {0} is of X.509 version {1}, and only version 3 is used; have it \
         signed anew with its name as an extension (`openssl x509 -req -extfile FILE`, with \
         subjectAltName=DNS:NAME in the file)"
    )]
    Version(PathBuf, u32),
    /// The authorities' certificates cannot be used.
    #[error(
        "clients cannot be checked by {0}: {1}; it must have the certificate that signed theirs"
    )]
    Clients(PathBuf, String),
    /// The lists of revoked certificates cannot be used.
    #[error(
        "{0} has no usable list of revoked certificates: {1}; write one in PEM form for each \
         authority (`openssl ca -gencrl`)"
    )]
    Revoked(PathBuf, String),
}

/// Validity of a certificate. A certificate that is not valid now can be used all the same.
#[derive(Debug, PartialEq, Eq)]
pub enum Validity {
    /// The certificate is valid now.
    Now,
    /// The certificate was valid until this time, as its issuer writes it.
    Until(String),
    /// The certificate will be valid from this time on.
    From(String),
}

impl LoadedTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let verifier = verifier(files)?;
        let (certificate, key) = (&files.certificate, &files.key);
        let chain = certificates(certificate)?;
        if let Some((_, one)) = chain.first().and_then(|one| X509Certificate::from_der(one).ok())
            && one.version() != X509Version::V3
        {
            // The version counts from 0.
            return Err(TlsError::Version(certificate.to_owned(), one.version().0 + 1));
        }
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| unusable(key, "private key", error))?;
        let config = ServerConfig::builder()
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain, secret)
            .map_err(|error| {
                let why = match error {
                    Error::InconsistentKeys(_) => "they do not belong together".to_owned(),
                    other => other.to_string(),
                };
                TlsError::Pair(certificate.to_owned(), key.to_owned(), why)
            })?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { acceptor, verifier, operators: files.operators.clone().into() })
    }

    /// The role of a client by its name.
    fn role(&self, name: Option<&str>) -> Role {
        let is_listed = |name| self.operators.iter().any(|operator| operator == name);
        if name.is_some_and(is_listed) { Role::Operate } else { Role::Read }
    }

    /// True if a client with these certificates is still let in.
    fn admits(&self, chain: &[CertificateDer<'_>]) -> bool {
        chain.split_first().is_some_and(|(own, between)| {
            self.verifier.verify_client_cert(own, between, UnixTime::now()).is_ok()
        })
    }
}

/// Checks clients' certificates by the authorities and the lists of revoked certificates. With a
/// list, every certificate of a client's chain must be of an authority that the file has a list of.
fn verifier(files: &TlsFiles) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    let untrusted = |error: String| TlsError::Clients(files.clients.clone(), error);
    for one in certificates(&files.clients)? {
        roots.add(one).map_err(|error| untrusted(error.to_string()))?;
    }
    let mut builder = WebPkiClientVerifier::builder(Arc::new(roots));
    if let Some(path) = &files.revoked {
        let lists: Vec<CertificateRevocationListDer<'static>> =
            sections(path, "list of revoked certificates")?;
        builder = builder.with_crls(lists);
    }
    builder.build().map_err(|error| match (error, &files.revoked) {
        (VerifierBuilderError::InvalidCrl(error), Some(path)) => {
            TlsError::Revoked(path.clone(), format!("{error:?}"))
        }
        (error, _) => untrusted(error.to_string()),
    })
}

/// A client that has been greeted.
pub(crate) struct AuthenticatedClient {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) role: Role,
    /// The certificate's common name; empty if it has none or several.
    pub(crate) name: String,
    pub(crate) access: Access,
}

/// Grounds on which a client was let in. They are checked again when other files come into force.
pub(crate) struct Access {
    changes: watch::Receiver<LoadedTls>,
    chain: Vec<CertificateDer<'static>>,
    name: Option<String>,
    role: Role,
}

impl Access {
    /// Waits until the files in force do not let the client in any more, or give it another role.
    pub(crate) async fn ended(&mut self) {
        // The sender goes with the server, and connections with it.
        while self.changes.changed().await.is_ok() {
            let loaded = self.changes.borrow_and_update().clone();
            if !loaded.admits(&self.chain) || loaded.role(self.name.as_deref()) != self.role {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

impl Tls {
    /// TLS by these files, as [`LoadedTls::read`] reads them.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let in_force = Arc::new(watch::Sender::new(LoadedTls::read(files)?));
        Ok(Self { in_force })
    }

    /// Puts other files in force. Connections of clients that these do not let in, or give another
    /// role, end at once; the others go on.
    pub fn replace(&self, loaded: LoadedTls) {
        self.in_force.send_replace(loaded);
    }

    /// Validity of the server's certificate at this time; clients refuse one that is not valid.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn validity(certificate: &Path) -> Result<Validity, TlsError> {
        let chain = certificates(certificate)?;
        let Some((_, one)) = chain.first().and_then(|one| X509Certificate::from_der(one).ok())
        else {
            return Ok(Validity::Now);
        };
        let (validity, now) = (one.validity(), ASN1Time::now());
        Ok(match () {
            () if now > validity.not_after => Validity::Until(validity.not_after.to_string()),
            () if now < validity.not_before => Validity::From(validity.not_before.to_string()),
            () => Validity::Now,
        })
    }

    /// Greets a client that has come; tells its role.
    pub(crate) async fn greet(&self, stream: TcpStream) -> io::Result<AuthenticatedClient> {
        let mut changes = self.in_force.subscribe();
        let loaded = changes.borrow_and_update().clone();
        let stream = loaded.acceptor.accept(stream).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain: Vec<_> = chain.iter().cloned().map(CertificateDer::into_owned).collect();
        let name = chain.first().and_then(common_name);
        let role = loaded.role(name.as_deref());
        let shown = name.clone().unwrap_or_default();
        Ok(AuthenticatedClient {
            stream,
            role,
            name: shown,
            access: Access { changes, chain, name, role },
        })
    }
}

/// A certificate's common name, if it has exactly one.
fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut names = certificate.subject().iter_common_name();
    match (names.next().map(|name| name.as_str()), names.next()) {
        (Some(Ok(name)), None) => Some(name.to_owned()),
        _ => None,
    }
}

/// The certificates of a file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    sections(path, "certificate")
}

/// The sections of one kind that a file has, of which there is at least one.
fn sections<T: PemObject>(path: &Path, what: &'static str) -> Result<Vec<T>, TlsError> {
    let wrong = |error| unusable(path, what, error);
    let all = T::pem_file_iter(path).map_err(wrong)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(wrong)?;
    match all.is_empty() {
        true => Err(wrong(pem::Error::NoItemsFound)),
        false => Ok(all),
    }
}

fn unusable(path: &Path, what: &'static str, error: pem::Error) -> TlsError {
    match error {
        pem::Error::Io(error) => TlsError::Unreadable(path.to_owned(), error),
        pem::Error::NoItemsFound => {
            TlsError::File(path.to_owned(), what, "the file has no such section".to_owned())
        }
        other => TlsError::File(path.to_owned(), what, other.to_string()),
    }
}
