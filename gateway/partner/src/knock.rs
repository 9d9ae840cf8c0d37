//! The knock of the node that listens: it is there, and the other node should dial now.
//!
//! The node that dials pauses between attempts, and an attempt towards a node that is not there
//! yet repeats its first packet rarely. A node that starts would wait for seconds. So the node
//! that listens dials, too, while there is no connection, with a protocol of its own. Both sides
//! prove who they are, and the receiver closes the connection. The connection of the link is still
//! the other node's. A partner that refuses a knock does not know the protocol, and is not asked
//! again.

use crate::dialer::Destination;
use crate::limits::{HANDSHAKE, KNOCKS};
use crate::shared::Shared;
use crate::transport::{NOTED, refusal};
use quinn::{ClientConfig, ConnectError, Connection, Endpoint};
use std::sync::Arc;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Hears a knock of the partner.
pub(crate) fn hear(shared: &Shared, connection: &Connection) {
    shared.knocked.notify_one();
    connection.close(NOTED, b"");
}

/// Knocks while there is no connection, until the endpoint has ended.
pub(crate) async fn knock(
    shared: Arc<Shared>,
    endpoint: Endpoint,
    destination: Destination,
    mut tls: watch::Receiver<ClientConfig>,
) {
    let mut current = shared.current.subscribe();
    let (first, longest) = KNOCKS;
    loop {
        let mut pause = first;
        while current.borrow_and_update().is_none() {
            let config = tls.borrow_and_update().clone();
            match once(&endpoint, &destination, config).await {
                Answer::Heard => {}
                Answer::Refused if tls.changed().await.is_err() => return,
                Answer::Refused => continue,
                Answer::Stopped => return,
            }
            select! {
                () = sleep(pause) => {}
                _ = current.changed() => {}
            }
            pause = (2 * pause).min(longest);
        }
        if current.wait_for(Option::is_none).await.is_err() {
            return;
        }
        // The other node has noticed the end, too, and dials.
        sleep(first).await;
    }
}

/// What came of a knock.
enum Answer {
    /// The partner has heard it, or nobody has.
    Heard,
    Refused,
    /// The endpoint has ended.
    Stopped,
}

async fn once(endpoint: &Endpoint, destination: &Destination, config: ClientConfig) -> Answer {
    let Destination { address, name, .. } = destination;
    let connecting = match endpoint.connect_with(config, *address, name) {
        Ok(connecting) => connecting,
        Err(ConnectError::EndpointStopping) => return Answer::Stopped,
        // The configuration has no such address. The partner dials without knocks.
        Err(_) => return Answer::Heard,
    };
    let heard = async {
        connecting.await?.closed().await;
        Ok(())
    };
    match timeout(HANDSHAKE, heard).await {
        Ok(Err(error)) if refusal(&error).is_some() => Answer::Refused,
        _ => Answer::Heard,
    }
}
