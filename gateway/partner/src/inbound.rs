//! What comes from the partner on one connection: datagrams, and streams that each have one
//! message, view or request.
//!
//! The partner is authenticated and nevertheless not trusted with memory: bytes count from the
//! moment they arrive, and a stream that is too long or unknown is stopped.

use crate::budget::{Budget, Share};
use crate::frame::Kind;
use crate::limits::{MAX_MESSAGE, MAX_VIEW, STREAM_TIME, TUNNEL_MARK};
use crate::question;
use crate::shared::{Active, Shared, count};
use quinn::{RecvStream, VarInt};
use std::sync::Arc;
use tokio::time::timeout;

/// Code of a stream that is not read to its end.
const UNREAD: VarInt = VarInt::from_u32(1);

/// Most bytes that are taken from QUIC at a time.
const CHUNK: usize = 64 << 10;

/// Why a stream is not read.
enum Unread {
    /// It has ended early, or the connection has.
    Broken,
    /// Its kind is unknown, or it is too long.
    Malformed,
    /// There is no room for it.
    Full,
}

/// Reads a connection until its end. `first`: a stream that the partner has already opened.
pub(crate) fn serve(shared: &Arc<Shared>, active: &Arc<Active>, first: Option<RecvStream>) {
    tokio::spawn(datagrams(Arc::clone(shared), Arc::clone(active)));
    tokio::spawn(question::serve(Arc::clone(shared), Arc::clone(active)));
    tokio::spawn(streams(Arc::clone(shared), Arc::clone(active), first));
}

async fn datagrams(shared: Arc<Shared>, active: Arc<Active>) {
    while let Ok(datagram) = active.connection.read_datagram().await {
        if let Some(packet) = datagram.strip_prefix(&TUNNEL_MARK) {
            shared.note_passed(packet);
            continue;
        }
        match shared.inbound.take(datagram.len()) {
            // A copy: the datagram itself would keep its whole packet.
            Some(share) => shared.received(datagram.to_vec(), share),
            None => count(&shared.counters.receive_overflow),
        }
    }
}

/// QUIC bounds the streams that are open, and so the tasks.
async fn streams(shared: Arc<Shared>, active: Arc<Active>, first: Option<RecvStream>) {
    let mut first = first;
    loop {
        let stream = match first.take() {
            Some(stream) => stream,
            None => match active.connection.accept_uni().await {
                Ok(stream) => stream,
                Err(_) => return,
            },
        };
        tokio::spawn(receive(Arc::clone(&shared), active.number, stream));
    }
}

async fn receive(shared: Arc<Shared>, connection: u64, mut stream: RecvStream) {
    let read = timeout(STREAM_TIME, read(&shared, connection, &mut stream)).await;
    let counter = match read {
        Ok(Ok(())) | Ok(Err(Unread::Broken)) => return,
        Ok(Err(Unread::Full)) => &shared.counters.receive_overflow,
        Ok(Err(Unread::Malformed)) | Err(_) => &shared.counters.malformed,
    };
    count(counter);
    // An error means that the stream has ended already.
    let _ = stream.stop(UNREAD);
}

async fn read(shared: &Shared, connection: u64, stream: &mut RecvStream) -> Result<(), Unread> {
    let [kind] = head(stream).await?;
    match Kind::read(kind).ok_or(Unread::Malformed)? {
        Kind::Greeting => Ok(()),
        Kind::Message => {
            let (message, share) = body(stream, MAX_MESSAGE, &shared.inbound).await?;
            shared.received(message, share);
            Ok(())
        }
        Kind::View => {
            let number = u64::from_le_bytes(head(stream).await?);
            let (view, _share) = body(stream, MAX_VIEW, &shared.inbound_views).await?;
            shared.viewed(connection, number, view);
            Ok(())
        }
        Kind::Renewal => {
            shared.renewal.notify_one();
            Ok(())
        }
    }
}

async fn head<const N: usize>(stream: &mut RecvStream) -> Result<[u8; N], Unread> {
    let mut head = [0; N];
    stream.read_exact(&mut head).await.map_err(|error| match error {
        quinn::ReadExactError::FinishedEarly(_) => Unread::Malformed,
        quinn::ReadExactError::ReadError(_) => Unread::Broken,
    })?;
    Ok(head)
}

/// The rest of a stream.
async fn body(
    stream: &mut RecvStream,
    most: usize,
    budget: &Budget,
) -> Result<(Vec<u8>, Share), Unread> {
    let mut share = budget.take(0).ok_or(Unread::Full)?;
    let mut body = Vec::new();
    while let Some(chunk) = stream.read_chunk(CHUNK, true).await.map_err(|_| Unread::Broken)? {
        let bytes = chunk.bytes;
        if body.len() + bytes.len() > most {
            return Err(Unread::Malformed);
        }
        if !share.grow(bytes.len()) {
            return Err(Unread::Full);
        }
        body.extend_from_slice(&bytes);
    }
    Ok((body, share))
}
