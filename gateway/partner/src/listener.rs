//! Connections that come in: addresses are checked before anything is kept of a packet, handshakes
//! are bounded, and the newest partner that proves itself is the one in use. The node that dials
//! hears the partner's knocks and its guardian alone.

use crate::frame::Kind;
use crate::guardian;
use crate::inbound;
use crate::knock;
use crate::limits::{FAILED_HANDSHAKE, HANDSHAKE, HANDSHAKES};
use crate::outbound::signal;
use crate::shared::{Shared, count};
use crate::transport::{GUARDIAN, KNOCK, NO_VERSION, is_of, version};
use quinn::{ConnectionError, Endpoint, Incoming, TransportErrorCode};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Accepts connections until the endpoint is closed. `partner`: the address that is expected.
/// Others have places of their own, so that they cannot take the partner's.
pub(crate) async fn listen(shared: Arc<Shared>, endpoint: Endpoint, partner: IpAddr) {
    let places = [(); 2].map(|()| Arc::new(Semaphore::new(HANDSHAKES)));
    while let Some(incoming) = endpoint.accept().await {
        if !incoming.remote_address_validated() && incoming.may_retry() {
            // The sender must prove its address. Nothing is kept until then.
            let _ = incoming.retry();
            continue;
        }
        let is_partner = incoming.remote_address().ip().to_canonical() == partner.to_canonical();
        match Arc::clone(&places[usize::from(is_partner)]).try_acquire_owned() {
            Ok(place) => drop(tokio::spawn(greet(Arc::clone(&shared), incoming, place))),
            Err(_) => {
                count(&shared.counters.turned_away);
                incoming.ignore();
            }
        }
    }
}

async fn greet(shared: Arc<Shared>, incoming: Incoming, place: OwnedSemaphorePermit) {
    let address = incoming.remote_address();
    let handshake = async { incoming.accept()?.await };
    match timeout(HANDSHAKE, handshake).await {
        Ok(Ok(connection)) if is_of(&connection, GUARDIAN) => {
            guardian::hear(&shared, &connection).await;
            return;
        }
        Ok(Ok(connection)) if is_of(&connection, KNOCK) => {
            knock::hear(&shared, &connection);
            return;
        }
        Ok(Ok(connection)) => match version(&connection) {
            Some(version) => {
                let active = shared.adopt(connection, version);
                inbound::serve(&shared, &active, None);
                // An error means that the connection has ended.
                let _ = signal(&active, Kind::Greeting).await;
                return;
            }
            None => connection.close(NO_VERSION, b""),
        },
        // The other node has begun anew, or needs it no more.
        Ok(Err(ConnectionError::ConnectionClosed(close)))
            if close.error_code == TransportErrorCode::APPLICATION_ERROR =>
        {
            return;
        }
        Ok(Err(error)) => shared.failed(address, &error),
        Err(_) => shared.failed_because(&format!("{address}: the handshake took too long")),
    }
    sleep(FAILED_HANDSHAKE).await;
    drop(place);
}
