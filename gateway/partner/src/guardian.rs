//! The word of a guardian as its receiver hears it: a process of the partner has ended.
//!
//! The guardian dials with its node's certificate, and sends one stream: the boot number of the
//! process, 64 bits in little-endian order. The receiver closes the connection with a code that
//! says that it has noted the number.

use crate::limits::GUARDIAN_TIME;
use crate::shared::{Shared, count};
use crate::transport::NOTED;
use quinn::Connection;
use tokio::time::timeout;

/// Hears a guardian of the partner.
pub(crate) async fn hear(shared: &Shared, connection: &Connection) {
    let heard = timeout(GUARDIAN_TIME, async {
        let bytes = connection.accept_uni().await.ok()?.read_to_end(8).await.ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    });
    match heard.await {
        Ok(Some(boot)) => {
            shared.note_end(boot);
            connection.close(NOTED, b"");
        }
        _ => count(&shared.counters.malformed),
    }
}
