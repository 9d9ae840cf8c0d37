//! State that the link's thread and the callers of its handle share: queues, counters, and the
//! connections that live.
//!
//! Callers on the way of packets use queues and atomic numbers only. Locks are for reports.

use crate::budget::{Budget, Share};
use crate::limits::{
    GRACE, LONG_QUEUE, MAX_MESSAGE, MAX_VIEW, MIN_DATAGRAM_ROOM, QUEUE_BYTES, QUEUE_MESSAGES,
    TUNNEL_HEAD, TUNNEL_MARK, TUNNEL_PACKETS, TUNNEL_WORDS, VIEW_BYTES, WORD,
};
use crate::questions::Questions;
use crate::status::LinkStatus;
use crate::transport::{REPLACED, ending, printable, refusal};
use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use quinn::{Connection, ConnectionError};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tokio::sync::{Notify, mpsc, watch};

/// Wakes a thread. It does not wait itself.
pub type Wake = dyn Fn() + Send + Sync;

/// A message on its way out. Its bytes count until QUIC has taken them.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bytes: Bytes,
    _share: Share,
}

/// A packet of the tunnel on its way out, and the time at which it was queued.
#[derive(Debug)]
pub(crate) struct Passing {
    pub(crate) bytes: Bytes,
    pub(crate) since: Instant,
}

/// Ends of the queues that the link's thread reads.
pub(crate) struct Outbound {
    pub(crate) long: mpsc::Receiver<Queued>,
    pub(crate) packets: mpsc::Receiver<Passing>,
    pub(crate) words: mpsc::Receiver<Passing>,
}

/// A connection with the partner, both of whose sides know each other.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) connection: Connection,
    /// Its number among the connections so far, from 1 on.
    pub(crate) number: u64,
    pub(crate) version: u16,
}

/// Events counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) send_overflow: AtomicU64,
    pub(crate) receive_overflow: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    pub(crate) unpassed: AtomicU64,
    pub(crate) passed_overflow: AtomicU64,
}

/// True if a packet of the tunnel is a word.
fn is_word(packet: &[u8]) -> bool {
    packet.first() == Some(&WORD)
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What reports need.
#[derive(Debug, Default)]
struct Report {
    /// The connection in use is the last; one that it has replaced may come before it.
    alive: Vec<Arc<Active>>,
    connected_since: Option<Instant>,
    connections: u64,
    /// Lost packets of connections that have ended.
    lost: u64,
    refused: u64,
    last_refusal: Option<String>,
    last_failure: Option<String>,
    certificate_error: Option<String>,
    /// The last view that arrived: number of its connection, and its own.
    last_view: (u64, u64),
}

/// Streams that have data to send, and the end of the last of them.
#[derive(Debug, Default)]
pub(crate) struct StreamsPending {
    number: AtomicUsize,
    pub(crate) none: Notify,
}

impl StreamsPending {
    pub(crate) fn any(&self) -> bool {
        self.number.load(Ordering::Relaxed) > 0
    }
}

/// One of [`StreamsPending`].
pub(crate) struct StreamPending(Arc<Shared>);

impl Drop for StreamPending {
    fn drop(&mut self) {
        if self.0.streams.number.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.streams.none.notify_waiters();
        }
    }
}

/// The state.
pub(crate) struct Shared {
    /// Short messages, and whether there are new ones.
    datagrams: ArrayQueue<Queued>,
    new_datagrams: Notify,
    long: mpsc::Sender<Queued>,
    /// Packets of the tunnel, in both directions.
    packets: mpsc::Sender<Passing>,
    passed: ArrayQueue<Vec<u8>>,
    /// Words among them ([`WORD`]), in both directions.
    words: mpsc::Sender<Passing>,
    passed_words: ArrayQueue<Vec<u8>>,
    /// Wakes the reader of these packets.
    pub(crate) waker: OnceLock<Box<Wake>>,
    outbound: Budget,
    received: ArrayQueue<(Vec<u8>, Share)>,
    pub(crate) inbound: Budget,
    pub(crate) inbound_views: Budget,
    /// The greatest boot number that a guardian of the partner has said and nobody has asked for
    /// yet; 0: none.
    partner_ended: AtomicU64,
    own_view: ArrayQueue<Vec<u8>>,
    pub(crate) view_told: Notify,
    partner_view: ArrayQueue<Vec<u8>>,
    is_connected: AtomicBool,
    pub(crate) is_running: AtomicBool,
    datagram_room: AtomicUsize,
    pub(crate) streams: StreamsPending,
    pub(crate) counters: Counters,
    /// The connection in use.
    pub(crate) current: watch::Sender<Option<Arc<Active>>>,
    report: Mutex<Report>,
    /// Read the files of certificates again.
    pub(crate) reload: Notify,
    /// The partner asks for a new connection.
    pub(crate) renewal: Notify,
    /// The partner, which listens, is there.
    pub(crate) knocked: Notify,
    /// End the thread.
    pub(crate) stop: Notify,
    pub(crate) questions: Questions,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new() -> (Arc<Self>, Outbound) {
        let (long, long_out) = mpsc::channel(LONG_QUEUE);
        let (packets, packets_out) = mpsc::channel(TUNNEL_PACKETS);
        let (words, words_out) = mpsc::channel(TUNNEL_WORDS);
        let shared = Self {
            datagrams: ArrayQueue::new(QUEUE_MESSAGES),
            new_datagrams: Notify::new(),
            long,
            packets,
            passed: ArrayQueue::new(TUNNEL_PACKETS),
            words,
            passed_words: ArrayQueue::new(TUNNEL_WORDS),
            waker: OnceLock::new(),
            outbound: Budget::new(QUEUE_BYTES),
            received: ArrayQueue::new(QUEUE_MESSAGES),
            inbound: Budget::new(QUEUE_BYTES),
            inbound_views: Budget::new(VIEW_BYTES),
            partner_ended: AtomicU64::new(0),
            own_view: ArrayQueue::new(1),
            view_told: Notify::new(),
            partner_view: ArrayQueue::new(1),
            is_connected: AtomicBool::new(false),
            is_running: AtomicBool::new(true),
            datagram_room: AtomicUsize::new(MIN_DATAGRAM_ROOM),
            streams: StreamsPending::default(),
            counters: Counters::default(),
            current: watch::Sender::new(None),
            report: Mutex::default(),
            reload: Notify::new(),
            renewal: Notify::new(),
            knocked: Notify::new(),
            stop: Notify::new(),
            questions: Questions::default(),
        };
        let outbound = Outbound { long: long_out, packets: packets_out, words: words_out };
        (Arc::new(shared), outbound)
    }

    /// Queues a message. A short one may wait for [`Shared::flush`]: each call of that wakes the
    /// link's thread, which takes longer than to queue a message. False: there is no connection, or
    /// no room.
    pub(crate) fn queue(&self, message: Bytes) -> bool {
        if !self.is_connected.load(Ordering::Acquire) {
            return false;
        }
        let share =
            if message.len() > MAX_MESSAGE { None } else { self.outbound.take(message.len()) };
        let is_queued = share.is_some_and(|share| {
            let is_short = message.len() <= self.datagram_room();
            let queued = Queued { bytes: message, _share: share };
            if is_short {
                self.datagrams.push(queued).is_ok()
            } else {
                self.long.try_send(queued).is_ok()
            }
        });
        if !is_queued {
            count(&self.counters.send_overflow);
            self.flush();
        }
        is_queued
    }

    /// Sends the queued messages.
    pub(crate) fn flush(&self) {
        if self.has_messages() {
            self.new_datagrams.notify_one();
        }
    }

    /// The next short message, as soon as there is one.
    pub(crate) async fn next_datagram(&self) -> Queued {
        loop {
            match self.datagrams.pop() {
                Some(message) => return message,
                None => self.new_datagrams.notified().await,
            }
        }
    }

    /// Queues a packet of the tunnel. False: there is no connection, no room, or it is too long.
    pub(crate) fn pass(&self, packet: &[u8]) -> bool {
        if !self.is_connected.load(Ordering::Acquire) {
            return false;
        }
        let passing =
            || Passing { bytes: [&TUNNEL_MARK, packet].concat().into(), since: Instant::now() };
        let queue = if is_word(packet) { &self.words } else { &self.packets };
        TUNNEL_HEAD + packet.len() <= self.datagram_room()
            && queue.capacity() > 0
            && queue.try_send(passing()).is_ok()
    }

    /// The next packet that has come by the tunnel.
    pub(crate) fn passed(&self) -> Option<Vec<u8>> {
        self.passed_words.pop().or_else(|| self.passed.pop())
    }

    /// Queues a packet that has come by the tunnel.
    pub(crate) fn note_passed(&self, packet: &[u8]) {
        let was_empty = self.passed_words.is_empty() && self.passed.is_empty();
        let queue = if is_word(packet) { &self.passed_words } else { &self.passed };
        match queue.push(packet.to_vec()) {
            // The reader reads until nothing is left.
            Ok(()) if was_empty => self.waker.get().into_iter().for_each(|wake| wake()),
            Ok(()) => {}
            Err(_) => count(&self.counters.passed_overflow),
        }
    }

    /// True if a message of replication waits for QUIC.
    pub(crate) fn has_messages(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// Queues a message that no longer fits a datagram.
    pub(crate) fn send_by_stream(&self, message: Queued) {
        if self.long.try_send(message).is_err() {
            count(&self.counters.abandoned);
        }
    }

    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        self.received.pop().map(|(message, _)| message)
    }

    /// Queues a message of the partner.
    pub(crate) fn received(&self, message: Vec<u8>, share: Share) {
        let counter = match self.received.push((message, share)) {
            Ok(()) => &self.counters.received,
            Err(_) => &self.counters.receive_overflow,
        };
        count(counter);
    }

    pub(crate) fn tell(&self, view: Vec<u8>) -> bool {
        let is_short = view.len() <= MAX_VIEW;
        if is_short {
            self.own_view.force_push(view);
            self.view_told.notify_one();
        }
        is_short
    }

    /// The view that was told since the last call.
    pub(crate) fn told(&self) -> Option<Vec<u8>> {
        self.own_view.pop()
    }

    pub(crate) fn heard(&self) -> Option<Vec<u8>> {
        self.partner_view.pop()
    }

    /// Keeps a view of the partner, unless a later one has arrived.
    pub(crate) fn viewed(&self, connection: u64, number: u64, view: Vec<u8>) {
        let mut report = self.report();
        if (connection, number) > report.last_view {
            report.last_view = (connection, number);
            self.partner_view.force_push(view);
        }
    }

    /// A guardian of the partner says that processes up to this boot number have ended.
    pub(crate) fn note_end(&self, boot: u64) {
        self.partner_ended.fetch_max(boot, Ordering::AcqRel);
    }

    pub(crate) fn partner_ended(&self) -> Option<u64> {
        // The usual case writes nothing.
        match self.partner_ended.load(Ordering::Acquire) {
            0 => None,
            _ => Some(self.partner_ended.swap(0, Ordering::AcqRel)),
        }
    }

    pub(crate) fn datagram_room(&self) -> usize {
        self.datagram_room.load(Ordering::Relaxed)
    }

    /// Asks QUIC how much fits a datagram.
    pub(crate) fn measure(&self, active: &Active) {
        let room = active.connection.max_datagram_size().unwrap_or_default();
        self.datagram_room.store(room.max(MIN_DATAGRAM_ROOM), Ordering::Relaxed);
    }

    pub(crate) fn stream_pending(self: &Arc<Self>) -> StreamPending {
        self.streams.number.fetch_add(1, Ordering::Relaxed);
        StreamPending(Arc::clone(self))
    }

    /// Puts a connection in use. Another that is in use is read for some time, then closed.
    pub(crate) fn adopt(self: &Arc<Self>, connection: Connection, version: u16) -> Arc<Active> {
        let mut report = self.report();
        report.connections += 1;
        let active = Arc::new(Active { connection, number: report.connections, version });
        if let Some(replaced) = report.alive.last().cloned() {
            tokio::spawn(async move {
                tokio::time::sleep(GRACE).await;
                replaced.connection.close(REPLACED, b"");
            });
        }
        // Only one waits for its end.
        let older = report.alive.len().saturating_sub(1);
        report.alive[..older].iter().for_each(|one| one.connection.close(REPLACED, b""));
        report.alive.push(Arc::clone(&active));
        report.connected_since.get_or_insert_with(Instant::now);
        // Under the lock: whoever reads that there is a connection can send, and the end of the
        // one before is not taken for the end of this one.
        self.measure(&active);
        self.current.send_replace(Some(Arc::clone(&active)));
        self.is_connected.store(true, Ordering::Release);
        drop(report);
        let (shared, ended) = (Arc::clone(self), Arc::clone(&active));
        tokio::spawn(async move {
            let error = ended.connection.closed().await;
            shared.ended(&ended, &error);
        });
        active
    }

    /// A connection has ended.
    fn ended(&self, ended: &Arc<Active>, error: &ConnectionError) {
        let mut report = self.report();
        report.lost += ended.lost();
        report.alive.retain(|one| one.number != ended.number);
        let is_current =
            self.current.borrow().as_ref().is_some_and(|one| one.number == ended.number);
        if is_current {
            self.is_connected.store(false, Ordering::Release);
            self.current.send_replace(None);
            report.connected_since = None;
            report.last_failure = Some(ending(error));
        }
    }

    /// A connection was not made, because of the reason that QUIC gives.
    pub(crate) fn failed(&self, address: SocketAddr, error: &ConnectionError) {
        let mut report = self.report();
        if let Some(reason) = refusal(error) {
            let reason = format!("{address}: {reason}");
            report.refused += 1;
            report.last_refusal = Some(reason.clone());
            report.last_failure = Some(reason);
        } else {
            report.last_failure = Some(format!("{address}: {}", ending(error)));
        }
    }

    /// A connection was not made.
    pub(crate) fn failed_because(&self, reason: &str) {
        self.report().last_failure = Some(printable(reason));
    }

    pub(crate) fn certificates(&self, error: Option<String>) {
        self.report().certificate_error = error;
    }

    /// The thread has ended.
    pub(crate) fn ended_thread(&self) {
        self.is_connected.store(false, Ordering::Release);
        self.current.send_replace(None);
        self.is_running.store(false, Ordering::Release);
        while self.datagrams.pop().is_some() {
            count(&self.counters.abandoned);
        }
        let mut report = self.report();
        report.connected_since = None;
        report.alive.clear();
    }

    pub(crate) fn status(&self) -> LinkStatus {
        let report = self.report();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let current =
            report.alive.last().filter(|_| self.is_connected.load(Ordering::Acquire)).cloned();
        LinkStatus {
            is_running: self.is_running.load(Ordering::Acquire),
            connected_since: report.connected_since,
            version: current.as_ref().map(|one| one.version),
            round_trip: current.as_ref().map(|one| one.connection.rtt()),
            clock_lead: self.questions.lead(),
            connections: report.connections,
            sent: read(&counters.sent),
            received: read(&counters.received),
            lost_packets: report.lost + report.alive.iter().map(|one| one.lost()).sum::<u64>(),
            abandoned: read(&counters.abandoned),
            send_overflow: read(&counters.send_overflow),
            receive_overflow: read(&counters.receive_overflow),
            malformed: read(&counters.malformed),
            refused: report.refused,
            last_refusal: report.last_refusal.clone(),
            turned_away: read(&counters.turned_away),
            unpassed: read(&counters.unpassed),
            passed_overflow: read(&counters.passed_overflow),
            last_failure: report.last_failure.clone(),
            certificate_error: report.certificate_error.clone(),
        }
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn lost(&self) -> u64 {
        self.connection.stats().path.lost_packets
    }
}
