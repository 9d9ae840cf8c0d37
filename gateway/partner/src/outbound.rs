//! What goes to the partner on the connection in use: datagrams, long messages, views, and packets
//! of the tunnel.
//!
//! QUIC fills packets with datagrams first. As long as datagrams wait, streams get no packet.
//! Therefore datagrams pause for a moment if both wait. Packets of the tunnel are datagrams, too:
//! they go behind all messages, and leave most of QUIC's buffer to these.

use crate::frame::Kind;
use crate::limits::{
    DATAGRAM_BUFFER, DATAGRAM_OVERHEAD, LONG_STREAMS, STREAM_TIME, STREAM_TURN, TUNNEL_AGE,
    TUNNEL_BUFFER, TUNNEL_PATIENCE, TUNNEL_PAUSE, VIEW_GAP, VIEW_PERIOD,
};
use crate::shared::{Active, Passing, Queued, Shared, count};
use bytes::Bytes;
use quinn::{SendDatagramError, SendStream, VarInt};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::select;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{consume_budget, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Code of a stream that is not sent to its end.
const UNSENT: VarInt = VarInt::from_u32(1);

/// Views precede long messages.
const VIEW_PRIORITY: i32 = 1;

/// Sends the queued datagrams.
pub(crate) async fn datagrams(shared: Arc<Shared>) {
    let mut current = shared.current.subscribe();
    loop {
        let message = shared.next_datagram().await;
        datagram(&shared, &mut current, message).await;
        // QUIC's tasks have the same thread.
        consume_budget().await;
    }
}

async fn datagram(
    shared: &Arc<Shared>,
    current: &mut watch::Receiver<Option<Arc<Active>>>,
    message: Queued,
) {
    loop {
        let Some(active) = current.borrow_and_update().clone() else {
            return count(&shared.counters.abandoned);
        };
        let bytes = message.bytes.clone();
        let sent = async {
            let_streams_go(shared, &active, bytes.len()).await;
            active.connection.send_datagram_wait(bytes).await
        };
        select! {
            biased;
            sent = sent => match sent {
                Ok(()) => return count(&shared.counters.sent),
                Err(SendDatagramError::ConnectionLost(_)) => {
                    return count(&shared.counters.abandoned);
                }
                // The path has changed.
                Err(_) => {
                    shared.measure(&active);
                    return shared.send_by_stream(message);
                }
            },
            // The next connection takes the message.
            _ = current.changed() => {}
        }
    }
}

/// If datagrams and streams wait, sends the datagrams and then waits for streams.
async fn let_streams_go(shared: &Shared, active: &Active, length: usize) {
    let has_room =
        |length| active.connection.datagram_send_buffer_space() >= length + DATAGRAM_OVERHEAD;
    if !shared.streams.any() || has_room(length) {
        return;
    }
    while !has_room(DATAGRAM_BUFFER - 2 * DATAGRAM_OVERHEAD) {
        if !shared.streams.any() || active.connection.close_reason().is_some() {
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
    // A lost wake-up costs the time of the turn.
    select! {
        () = shared.streams.none.notified() => {}
        () = sleep(STREAM_TURN) => {}
    }
}

/// Sends the queued packets of the tunnel.
pub(crate) async fn packets(shared: Arc<Shared>, mut queue: mpsc::Receiver<Passing>) {
    while let Some(packet) = queue.recv().await {
        let is_sent = packet.since.elapsed() < TUNNEL_AGE && pass(&shared, packet).await;
        if !is_sent {
            count(&shared.counters.unpassed);
        }
    }
}

/// Sends the queued words of the tunnel. Packets and messages that wait do not delay them.
pub(crate) async fn words(shared: Arc<Shared>, mut queue: mpsc::Receiver<Passing>) {
    while let Some(word) = queue.recv().await {
        let active = shared.current.borrow().clone();
        let is_sent = match active {
            Some(active) if word.since.elapsed() < TUNNEL_AGE => {
                let sending = active.connection.send_datagram_wait(word.bytes);
                matches!(timeout(TUNNEL_AGE, sending).await, Ok(Ok(())))
            }
            _ => false,
        };
        if !is_sent {
            count(&shared.counters.unpassed);
        }
    }
}

/// Gives a packet of the tunnel to QUIC as soon as no message waits and QUIC holds few datagrams,
/// or when it has been patient. False: the connection has ended, or the packet is too long for its
/// path.
async fn pass(shared: &Shared, packet: Passing) -> bool {
    let len = packet.bytes.len() + DATAGRAM_OVERHEAD;
    let began = Instant::now();
    if shared.has_messages() {
        // A worker may have queued some that it has not flushed yet.
        shared.flush();
        yield_now().await;
    }
    loop {
        let Some(active) = shared.current.borrow().clone() else { return false };
        let connection = &active.connection;
        if connection.close_reason().is_some() {
            return false;
        }
        let held = || DATAGRAM_BUFFER.saturating_sub(connection.datagram_send_buffer_space());
        let has_room = held() + len <= TUNNEL_BUFFER;
        if has_room && !shared.has_messages() {
            // There is room, so QUIC drops no other datagram.
            return connection.send_datagram(packet.bytes).is_ok();
        }
        if !has_room && shared.streams.any() {
            while held() > 0 && shared.streams.any() && connection.close_reason().is_none() {
                sleep(TUNNEL_PAUSE).await;
            }
            select! {
                () = shared.streams.none.notified() => {}
                () = sleep(STREAM_TURN) => {}
            }
        } else if began.elapsed() >= TUNNEL_PATIENCE {
            return connection.send_datagram_wait(packet.bytes).await.is_ok();
        } else {
            sleep(TUNNEL_PAUSE).await;
        }
    }
}

/// Sends the queued long messages, each in a stream of its own.
pub(crate) async fn long(shared: Arc<Shared>, mut queue: mpsc::Receiver<Queued>) {
    let places = Arc::new(Semaphore::new(LONG_STREAMS));
    while let Some(message) = queue.recv().await {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let active = shared.current.borrow().clone();
            let is_sent = match active {
                Some(active) => send_long(&shared, &active, message.bytes.clone()).await,
                None => false,
            };
            count(if is_sent { &shared.counters.sent } else { &shared.counters.abandoned });
            drop((message, place));
        });
    }
}

/// Sends a long message. True: the partner has it.
async fn send_long(shared: &Arc<Shared>, active: &Active, message: Bytes) -> bool {
    let _pending = shared.stream_pending();
    let sending = async {
        let mut stream = Outgoing::open(active, Kind::Message).await?;
        stream.complete(message).await?;
        // `None`: everything was acknowledged.
        stream.stream.stopped().await.ok()?.is_none().then_some(())
    };
    matches!(timeout(STREAM_TIME, sending).await, Ok(Some(())))
}

/// Sends the node's newest view: after a change, on a new connection, and from time to time.
pub(crate) async fn views(shared: Arc<Shared>) {
    let mut current = shared.current.subscribe();
    let mut period = interval(VIEW_PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut views = Views::default();
    loop {
        let is_due = select! {
            () = shared.view_told.notified() => views.take(&shared),
            _ = period.tick() => true,
            _ = current.changed() => true,
        };
        let active = current.borrow_and_update().clone();
        let Some(active) = active.filter(|_| is_due) else { continue };
        shared.measure(&active);
        select! {
            _ = views.send(&shared, &active) => sleep(VIEW_GAP).await,
            // The next connection takes the view.
            _ = current.changed() => current.mark_changed(),
        }
    }
}

#[derive(Default)]
struct Views {
    newest: Option<Bytes>,
    sent: u64,
}

impl Views {
    /// Takes the view that was told. True if it differs from the one before.
    fn take(&mut self, shared: &Shared) -> bool {
        let Some(told) = shared.told() else { return false };
        let is_new = self.newest.as_ref().is_none_or(|newest| *newest != told);
        if is_new {
            self.newest = Some(told.into());
        }
        is_new
    }

    async fn send(&mut self, shared: &Arc<Shared>, active: &Active) -> Option<()> {
        let pending = shared.stream_pending();
        if self.newest.is_none() && !self.take(shared) {
            return None;
        }
        let mut stream = Outgoing::open(active, Kind::View).await?;
        // There may be a newer one by now.
        self.take(shared);
        self.sent += 1;
        stream.stream.set_priority(VIEW_PRIORITY).ok()?;
        stream.stream.write_all(&self.sent.to_le_bytes()).await.ok()?;
        stream.complete(self.newest.clone()?).await?;
        let acknowledged = stream.stream.stopped();
        tokio::spawn(async move {
            // An error means that the connection has ended.
            let _ = acknowledged.await;
            drop(pending);
        });
        Some(())
    }
}

/// Sends a stream that has no content.
pub(crate) async fn signal(active: &Active, kind: Kind) -> Option<()> {
    Outgoing::open(active, kind).await?.complete(Bytes::new()).await
}

/// A stream on its way out. It is reset if its writer ends early: QUIC would finish it otherwise,
/// and the partner would take a part for the whole.
struct Outgoing {
    stream: SendStream,
    is_whole: bool,
}

impl Outgoing {
    async fn open(active: &Active, kind: Kind) -> Option<Self> {
        let stream = active.connection.open_uni().await.ok()?;
        let mut outgoing = Self { stream, is_whole: false };
        outgoing.stream.write_all(&[kind.byte()]).await.ok()?;
        Some(outgoing)
    }

    async fn complete(&mut self, body: Bytes) -> Option<()> {
        self.stream.write_chunk(body).await.ok()?;
        self.stream.finish().ok()?;
        self.is_whole = true;
        Some(())
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.is_whole {
            // An error means that the stream has ended already.
            let _ = self.stream.reset(UNSENT);
        }
    }
}
