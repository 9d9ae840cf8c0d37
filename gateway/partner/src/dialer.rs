//! The node that dials: tries again after pauses, and opens a new connection beside the present one
//! when certificates have changed.

use crate::inbound;
use crate::limits::{HANDSHAKE, LASTED, REDIAL, RENEWAL_GAP};
use crate::shared::{Active, Shared};
use crate::transport::{NO_VERSION, version};
use quinn::{ClientConfig, ConnectionError, Endpoint};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Address and name of the partner.
pub(crate) struct Destination {
    pub(crate) address: SocketAddr,
    pub(crate) name: String,
}

/// Dials until the thread ends.
pub(crate) async fn dial(
    shared: Arc<Shared>,
    endpoint: Endpoint,
    destination: Destination,
    mut tls: watch::Receiver<ClientConfig>,
) {
    let mut pause = REDIAL.0;
    loop {
        let config = tls.borrow_and_update().clone();
        let dialed = timeout(HANDSHAKE, connect(&shared, &endpoint, &destination, config)).await;
        match dialed {
            Ok(Some(active)) => {
                let began = Instant::now();
                let is_renewal = wait(&shared, &active, &mut tls).await;
                if is_renewal || began.elapsed() >= LASTED {
                    pause = REDIAL.0;
                }
                if is_renewal {
                    continue;
                }
            }
            // The reason is in the report.
            Ok(None) => {}
            Err(_) => shared.failed_because(&format!("{} does not answer", destination.address)),
        }
        sleep(pause).await;
        pause = (2 * pause).min(REDIAL.1);
    }
}

/// Waits for a reason to dial. True: certificates have changed. False: the connection has ended.
async fn wait(shared: &Shared, active: &Active, tls: &mut watch::Receiver<ClientConfig>) -> bool {
    select! {
        biased;
        _ = active.connection.closed() => false,
        () = async {
            sleep(RENEWAL_GAP).await;
            select! {
                () = shared.renewal.notified() => {}
                _ = tls.changed() => {}
            }
        } => true,
    }
}

/// Opens a connection. It is in use once the partner's first stream has come: until then the
/// partner may refuse this node's certificate.
async fn connect(
    shared: &Arc<Shared>,
    endpoint: &Endpoint,
    destination: &Destination,
    config: ClientConfig,
) -> Option<Arc<Active>> {
    let Destination { address, name } = destination;
    let failed = |error: ConnectionError| shared.failed(*address, &error);
    let connecting = match endpoint.connect_with(config, *address, name) {
        Ok(connecting) => connecting,
        Err(error) => {
            shared.failed_because(&format!("{address}: {error}"));
            return None;
        }
    };
    let connection = connecting.await.map_err(failed).ok()?;
    let Some(version) = version(&connection) else {
        connection.close(NO_VERSION, b"");
        shared.failed_because(&format!("{address}: no common version"));
        return None;
    };
    let first = connection.accept_uni().await.map_err(failed).ok()?;
    let active = shared.adopt(connection, version);
    inbound::serve(shared, &active, Some(first));
    Some(active)
}
