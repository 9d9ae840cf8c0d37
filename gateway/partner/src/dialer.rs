//! The node that dials: tries again after pauses, and opens a new connection beside the present one
//! when certificates have changed.

use crate::inbound;
use crate::limits::{HANDSHAKE, LASTED, REDIAL, RENEWAL_GAP};
use crate::shared::{Active, Shared};
use crate::transport::{NO_VERSION, version};
use quinn::{ClientConfig, ConnectError, ConnectionError, Endpoint};
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

/// Dials until the endpoint has ended.
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
            Ok(Ok(active)) => {
                let began = Instant::now();
                let is_renewal = wait(&shared, &active, &mut tls).await;
                if is_renewal || began.elapsed() >= LASTED {
                    pause = REDIAL.0;
                }
                if is_renewal {
                    continue;
                }
            }
            Ok(Err(Failure::Endpoint)) => return,
            // The reason is in the report.
            Ok(Err(Failure::Attempt)) => {}
            Err(_) => shared.failed_because(&format!("{} does not answer", destination.address)),
        }
        sleep(pause).await;
        pause = (2 * pause).min(REDIAL.1);
    }
}

enum Failure {
    /// This attempt has failed; another may succeed.
    Attempt,
    /// The endpoint has ended.
    Endpoint,
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
) -> Result<Arc<Active>, Failure> {
    let Destination { address, name } = destination;
    let failed = |error: ConnectionError| {
        shared.failed(*address, &error);
        Failure::Attempt
    };
    let other = |reason: &str| {
        shared.failed_because(&format!("{address}: {reason}"));
        Failure::Attempt
    };
    let connecting =
        endpoint.connect_with(config, *address, name).map_err(|error| match error {
            ConnectError::EndpointStopping => Failure::Endpoint,
            error => other(&error.to_string()),
        })?;
    let connection = connecting.await.map_err(failed)?;
    let Some(version) = version(&connection) else {
        connection.close(NO_VERSION, b"");
        return Err(other("no common version"));
    };
    let first = connection.accept_uni().await.map_err(failed)?;
    let active = shared.adopt(connection, version);
    inbound::serve(shared, &active, Some(first));
    Ok(active)
}
