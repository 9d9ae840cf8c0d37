//! TLS with client certificates: who comes from another machine, and what they may do.
//!
//! Nobody without a certificate that the configured authority has signed gets a word. The common names
//! of those who may change something are listed; all others may read.

use crate::Role;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate, X509Version};

/// How others are greeted.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    /// Common names of those who may do everything.
    operators: Arc<[String]>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("operators", &self.operators).finish_non_exhaustive()
    }
}

/// Why there is no TLS.
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
    /// Nobody takes such certificates any more.
    #[error(
        "the certificate in {0} is of X.509 version {1}, and only version 3 is used; have it signed \
         anew with its name as an extension (`openssl x509 -req -extfile FILE`, with \
         subjectAltName=DNS:NAME in the file)"
    )]
    Version(PathBuf, u32),
    /// The authority is none.
    #[error(
        "clients cannot be checked by {0}: {1}; it must have the certificate that signed theirs"
    )]
    Clients(PathBuf, String),
}

/// What is wrong with a certificate that can be used all the same.
#[derive(Debug, PartialEq, Eq)]
pub enum Validity {
    /// It is valid now.
    Now,
    /// It was valid until then; as its issuer writes it.
    Until(String),
    /// It will be from then on.
    From(String),
}

impl Tls {
    /// With the server's certificate (and those between it and its authority's), its key, and the
    /// certificates of the authorities that sign clients', all in PEM files; and the common names of
    /// clients that may do everything.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn load(
        certificate: &Path,
        key: &Path,
        clients: &Path,
        operators: Vec<String>,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let untrusted = |error: String| TlsError::Clients(clients.to_owned(), error);
        for one in certificates(clients)? {
            roots.add(one).map_err(|error| untrusted(error.to_string()))?;
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
        let verifier = verifier.map_err(|error| untrusted(error.to_string()))?;
        let chain = certificates(certificate)?;
        if let Some((_, one)) = chain.first().and_then(|one| X509Certificate::from_der(one).ok())
            && one.version() != X509Version::V3
        {
            // It counts from 0.
            return Err(TlsError::Version(certificate.to_owned(), one.version().0 + 1));
        }
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| unusable(key, "private key", error))?;
        let config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, secret)
            .map_err(|error| {
                let why = match error {
                    Error::InconsistentKeys(_) => "they do not belong together".to_owned(),
                    other => other.to_string(),
                };
                TlsError::Pair(certificate.to_owned(), key.to_owned(), why)
            })?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), operators: operators.into() })
    }

    /// Whether the server's certificate is valid at this time; clients refuse one that is not.
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

    /// Greets who has come; tells what they may do.
    pub(crate) async fn greet(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Role)> {
        let stream = self.acceptor.accept(stream).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let is_operator = certificate.is_some_and(|own| self.is_operator(own));
        Ok((stream, if is_operator { Role::Operate } else { Role::Read }))
    }

    /// Whether a certificate's common name, of which it has one, is among those listed.
    fn is_operator(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let mut names = certificate.subject().iter_common_name();
        match (names.next().map(|name| name.as_str()), names.next()) {
            (Some(Ok(name)), None) => self.operators.iter().any(|operator| operator == name),
            _ => false,
        }
    }
}

/// The certificates of a file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error| unusable(path, "certificate", error);
    let all = CertificateDer::pem_file_iter(path).map_err(wrong)?;
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
