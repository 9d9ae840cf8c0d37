//! Reasons why a link does not start, or why changed certificates are not used.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reason why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A node's name cannot be in a certificate.
    #[error(
        "{0:?} cannot be a node's name: letters, digits, hyphens and dots, as in the name of a host"
    )]
    Name(String),
    /// Both nodes have one name.
    #[error("both nodes are {0}; each gateway of a pair has a name of its own")]
    SameName(String),
    /// The partner's address has no port.
    #[error("the partner's address {0} has no port")]
    NoPort(SocketAddr),
    /// One address is IPv4, the other IPv6.
    #[error("{listen} cannot reach {address}: both must be IPv4 or both IPv6")]
    Family {
        /// The node's own address.
        listen: SocketAddr,
        /// The partner's.
        address: SocketAddr,
    },
    /// A file cannot be read.
    #[error("{0} cannot be read: {1}; name a file that the user who runs natgate may read")]
    Unreadable(PathBuf, #[source] io::Error),
    /// A file does not contain what it should.
    #[error("{0} has no {1} in PEM form: {2}")]
    File(PathBuf, &'static str, String),
    /// Certificate and key do not belong together, or are of a kind that is not used.
    #[error("the certificate in {0} and the key in {1} cannot be used: {2}")]
    Pair(PathBuf, PathBuf, String),
    /// The certificate does not name the node, so the partner would refuse it.
    #[error(
        "the certificate in {file} does not name the node {node} ({reason}); have it signed \
             with subjectAltName=DNS:{node}"
    )]
    NotNamed {
        /// The file.
        file: PathBuf,
        /// The node's name.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// The authorities' certificates cannot be used.
    #[error(
        "the partner cannot be checked by {0}: {1}; it must have the certificate that signed the \
         partner's"
    )]
    Authorities(PathBuf, String),
    /// The address cannot be used.
    #[error("the link of the pair cannot use {0}: {1}")]
    Bind(SocketAddr, #[source] io::Error),
    /// The partner does not answer a guardian.
    #[error("the partner at {0} does not answer")]
    Silent(SocketAddr),
    /// There is no thread for the link.
    #[error("the thread of the pair's link cannot start: {0}")]
    Thread(#[source] io::Error),
}
