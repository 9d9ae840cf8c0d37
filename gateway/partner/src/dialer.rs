//! The node that dials: tries again after pauses or when the partner knocks, and opens a new
//! connection beside the present one when certificates have changed or the partner has started
//! again.

use crate::inbound;
use crate::limits::{HANDSHAKE, KNOCKED, LASTED, RENEWAL_GAP};
use crate::shared::{Active, Shared};
use crate::transport::{NO_VERSION, version};
use quinn::{ClientConfig, ConnectError, ConnectionError, Endpoint};
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout};

/// Address and name of the partner.
pub(crate) struct Destination {
    pub(crate) address: SocketAddr,
    pub(crate) name: String,
    /// The first and the longest pause between attempts.
    pub(crate) redial: (Duration, Duration),
}

/// Dials until the endpoint has ended.
pub(crate) async fn dial(
    shared: Arc<Shared>,
    endpoint: Endpoint,
    destination: Destination,
    mut tls: watch::Receiver<ClientConfig>,
) {
    let (first, longest) = destination.redial;
    let mut pause = first;
    loop {
        let config = tls.borrow_and_update().clone();
        let dialed = timeout(HANDSHAKE, connect(&shared, &endpoint, &destination, config)).await;
        match dialed {
            Ok(Ok(active)) => {
                let began = Instant::now();
                let is_renewal = wait(&shared, &active, &mut tls).await;
                if is_renewal || began.elapsed() >= LASTED {
                    pause = first;
                }
                if is_renewal {
                    continue;
                }
            }
            Ok(Err(Failure::Endpoint)) => return,
            // The reason is in the report.
            Ok(Err(Failure::Attempt)) => {}
            Ok(Err(Failure::Knocked)) => {
                shared.failed_because(&silent(&destination));
                continue;
            }
            Err(_) => shared.failed_because(&silent(&destination)),
        }
        select! {
            () = sleep(pause) => pause = (2 * pause).min(longest),
            () = shared.knocked.notified() => {}
        }
    }
}

fn silent(destination: &Destination) -> String {
    format!("{} does not answer", destination.address)
}

enum Failure {
    /// This attempt has failed; another may succeed.
    Attempt,
    /// The partner has not answered, and knocks.
    Knocked,
    /// The endpoint has ended.
    Endpoint,
}

/// Waits for a reason to dial. True: certificates have changed, or the partner knocks. False: the
/// connection has ended.
async fn wait(shared: &Shared, active: &Active, tls: &mut watch::Receiver<ClientConfig>) -> bool {
    select! {
        biased;
        _ = active.connection.closed() => false,
        () = async {
            sleep(RENEWAL_GAP).await;
            // A knock until now was for this connection.
            select! {
                biased;
                () = shared.knocked.notified() => {}
                () = ready(()) => {}
            }
            select! {
                () = shared.renewal.notified() => {}
                () = shared.knocked.notified() => {}
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
    let Destination { address, name, .. } = destination;
    let failed = |error: ConnectionError| {
        shared.failed(*address, &error);
        Failure::Attempt
    };
    let other = |reason: &str| {
        shared.failed_because(&format!("{address}: {reason}"));
        Failure::Attempt
    };
    let mut connecting =
        endpoint.connect_with(config, *address, name).map_err(|error| match error {
            ConnectError::EndpointStopping => Failure::Endpoint,
            error => other(&error.to_string()),
        })?;
    let knocked = async {
        sleep(KNOCKED).await;
        shared.knocked.notified().await;
    };
    // An attempt that has an answer goes on: the partner may have taken the connection already.
    select! {
        biased;
        // The connection tells an error.
        _ = connecting.handshake_data() => {}
        () = knocked => return Err(Failure::Knocked),
    }
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
