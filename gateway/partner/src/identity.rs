//! The node's certificate and key, the authorities that sign the partner's, and TLS made of them.
//!
//! A partner is known by two facts: an authority of the file has signed its certificate, and the
//! certificate names the partner as a DNS name. Each side checks both. Sessions are not resumed:
//! every connection checks certificates again.

use crate::error::LinkError;
use crate::transport::{self, GUARDIAN, KNOCK};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files and names by which the nodes know each other.
#[derive(Clone, Debug)]
pub(crate) struct Papers {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) authorities: PathBuf,
    pub(crate) node: DnsName<'static>,
    pub(crate) partner: DnsName<'static>,
    /// Versions of the messages, greatest first.
    pub(crate) versions: Vec<u16>,
}

/// Authorities that are trusted, this node's chain, the authorities' certificates, the key.
type Contents = (
    Arc<RootCertStore>,
    Vec<CertificateDer<'static>>,
    Vec<CertificateDer<'static>>,
    PrivateKeyDer<'static>,
);

/// Contents of the files when they were read.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    authorities: Vec<CertificateDer<'static>>,
    /// TLS for what this node dials: the link, or knocks.
    pub(crate) client: quinn::ClientConfig,
    /// TLS for those that dial this node: the partner's guardian, and the partner with the link or
    /// with knocks.
    pub(crate) server: quinn::ServerConfig,
}

impl Papers {
    /// True if this node dials: the first by name does.
    pub(crate) fn is_dialer(&self) -> bool {
        let [node, partner] =
            [&self.node, &self.partner].map(|name| name.as_ref().to_ascii_lowercase());
        node < partner
    }

    /// Reads and checks the files.
    pub(crate) fn read(&self) -> Result<Identity, LinkError> {
        let (roots, chain, authorities, key) = self.files()?;
        let (versions, knocks) = (transport::protocols(&self.versions), vec![KNOCK.to_vec()]);
        let (dialed, mut served) = match self.is_dialer() {
            true => (versions, knocks),
            false => (knocks, versions),
        };
        served.push(GUARDIAN.to_vec());
        let client = self.client(Arc::clone(&roots), chain.clone(), key.clone_key(), dialed)?;
        let server = self.server(roots, chain.clone(), key, served)?;
        Ok(Identity { chain, authorities, client, server })
    }

    /// All faults of the files that keep a link from starting.
    pub(crate) fn faults(&self) -> Vec<LinkError> {
        let chain = certificates(&self.certificate);
        let unnamed = chain.as_ref().ok().and_then(|chain| self.check_own_name(chain).err());
        let of_files =
            [chain.err(), read_key(&self.key).err(), certificates(&self.authorities).err()];
        let faults: Vec<_> = of_files.into_iter().flatten().chain(unnamed).collect();
        match faults.is_empty() {
            true => self.read().err().into_iter().collect(),
            false => faults,
        }
    }

    /// TLS of this node's guardian towards the partner.
    pub(crate) fn guardian(&self) -> Result<quinn::ClientConfig, LinkError> {
        let (roots, chain, _, key) = self.files()?;
        self.client(roots, chain, key, vec![GUARDIAN.to_vec()])
    }

    fn files(&self) -> Result<Contents, LinkError> {
        let chain = certificates(&self.certificate)?;
        let key = read_key(&self.key)?;
        let authorities = certificates(&self.authorities)?;
        self.check_own_name(&chain)?;
        let mut roots = RootCertStore::empty();
        for one in &authorities {
            roots.add(one.clone()).map_err(|error| self.untrusted(&error))?;
        }
        Ok((Arc::new(roots), chain, authorities, key))
    }

    /// Sizes and times of the files, which differ after a change.
    pub(crate) fn stamps(&self) -> Vec<Option<[i64; 5]>> {
        let stamp = |path: &PathBuf| {
            let file = fs::metadata(path).ok()?;
            let [inode, size] = [file.ino(), file.size()].map(u64::cast_signed);
            Some([file.dev().cast_signed(), inode, size, file.mtime(), file.mtime_nsec()])
        };
        [&self.certificate, &self.key, &self.authorities].map(stamp).to_vec()
    }

    fn check_own_name(&self, chain: &[CertificateDer<'static>]) -> Result<(), LinkError> {
        let own = chain.first().expect("a file has at least one");
        let name = ServerName::DnsName(self.node.clone());
        let named =
            ParsedCertificate::try_from(own).and_then(|own| verify_server_name(&own, &name));
        named.map_err(|error| LinkError::NotNamed {
            file: self.certificate.clone(),
            node: self.node.as_ref().to_owned(),
            reason: error.to_string(),
        })
    }

    fn client(
        &self,
        roots: Arc<RootCertStore>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: Vec<Vec<u8>>,
    ) -> Result<quinn::ClientConfig, LinkError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| self.untrusted(&error))?;
        let mut tls = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| self.mismatch(&error))?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(|error| self.mismatch(&error))?;
        tls.alpn_protocols = protocols;
        tls.resumption = Resumption::disabled();
        let tls = QuicClientConfig::try_from(tls).map_err(|error| self.mismatch(&error))?;
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport::transport()));
        Ok(config)
    }

    fn server(
        &self,
        roots: Arc<RootCertStore>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: Vec<Vec<u8>>,
    ) -> Result<quinn::ServerConfig, LinkError> {
        let signed = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| self.untrusted(&error))?;
        let partner = ServerName::DnsName(self.partner.clone());
        let mut tls = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| self.mismatch(&error))?
            .with_client_cert_verifier(Arc::new(PartnerVerifier { signed, partner }))
            .with_single_cert(chain, key)
            .map_err(|error| self.mismatch(&error))?;
        tls.alpn_protocols = protocols;
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        tls.max_early_data_size = 0;
        let tls = QuicServerConfig::try_from(tls).map_err(|error| self.mismatch(&error))?;
        Ok(transport::server(Arc::new(tls)))
    }

    fn untrusted(&self, error: &dyn std::error::Error) -> LinkError {
        LinkError::Authorities(self.authorities.clone(), error.to_string())
    }

    fn mismatch(&self, error: &(dyn std::error::Error + 'static)) -> LinkError {
        let why = match error.downcast_ref() {
            Some(Error::InconsistentKeys(_)) => "they do not belong together".to_owned(),
            _ => error.to_string(),
        };
        LinkError::Pair(self.certificate.clone(), self.key.clone(), why)
    }
}

impl Identity {
    /// True if both have the same certificates. A key goes with its certificate.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.chain == other.chain && self.authorities == other.authorities
    }
}

/// Checks the certificate of a node that dials: who signed it, and its name.
#[derive(Debug)]
struct PartnerVerifier {
    signed: Arc<dyn ClientCertVerifier>,
    partner: ServerName<'static>,
}

impl ClientCertVerifier for PartnerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(own, between, now)?;
        verify_server_name(&ParsedCertificate::try_from(own)?, &self.partner)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates of a file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LinkError> {
    let wrong = |error| unusable(path, "certificate", error);
    check_kind(path)?;
    let all = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(wrong)?;
    match all.is_empty() {
        true => Err(wrong(pem::Error::NoItemsFound)),
        false => Ok(all),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, LinkError> {
    check_kind(path)?;
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, "private key", error))
}

/// Refuses what is no regular file: reading a FIFO does not end.
fn check_kind(path: &Path) -> Result<(), LinkError> {
    let refused = || io::Error::other("it is no regular file");
    fs::metadata(path)
        .and_then(|file| if file.is_file() { Ok(()) } else { Err(refused()) })
        .map_err(|error| LinkError::Unreadable(path.to_owned(), error))
}

fn unusable(path: &Path, what: &'static str, error: pem::Error) -> LinkError {
    match error {
        pem::Error::Io(error) => LinkError::Unreadable(path.to_owned(), error),
        pem::Error::NoItemsFound => {
            LinkError::File(path.to_owned(), what, "the file has no such section".to_owned())
        }
        other => LinkError::File(path.to_owned(), what, other.to_string()),
    }
}
