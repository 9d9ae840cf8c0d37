//! The word of a guardian as it is said ([`crate::guardian`] hears it): again and again, until the
//! partner has noted it.

use crate::error::LinkError;
use crate::limits::{GUARDIAN_PAUSE, HANDSHAKE};
use crate::link::{Settings, papers};
use crate::transport::{NOTED, VERSIONS};
use quinn::{ClientConfig, ConnectionError, Endpoint};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

/// Tells the partner that the process of this node with a boot number has ended, and so have all
/// processes before. Tries until the partner has noted it, or the time is over. The caller knows
/// that the process has ended: a false word gives one port to two subscribers.
///
/// # Errors
/// [`LinkError`] names a file that cannot be used, or the partner that did not answer.
pub fn tell_end(settings: &Settings, boot: u64, limit: Duration) -> Result<(), LinkError> {
    let tls = papers(settings, VERSIONS.to_vec())?.guardian()?;
    // Another process may have the port of the link by now.
    let from = SocketAddr::new(settings.listen.ip(), 0);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(LinkError::Thread)?;
    let told = runtime.block_on(async {
        let endpoint = Endpoint::client(from).map_err(|error| LinkError::Bind(from, error))?;
        let tried = timeout(limit, async {
            while !tell(&endpoint, settings, tls.clone(), boot).await {
                sleep(GUARDIAN_PAUSE).await;
            }
        });
        tried.await.map_err(|_| LinkError::Silent(settings.address))
    });
    runtime.shutdown_background();
    told
}

/// True if the partner has noted it.
async fn tell(endpoint: &Endpoint, settings: &Settings, tls: ClientConfig, boot: u64) -> bool {
    let attempt = async {
        let connecting = endpoint.connect_with(tls, settings.address, &settings.partner).ok()?;
        let connection = connecting.await.ok()?;
        let mut stream = connection.open_uni().await.ok()?;
        stream.write_all(&boot.to_le_bytes()).await.ok()?;
        stream.finish().ok()?;
        match connection.closed().await {
            ConnectionError::ApplicationClosed(close) => Some(close.error_code == NOTED),
            _ => None,
        }
    };
    matches!(timeout(HANDSHAKE, attempt).await, Ok(Some(true)))
}
