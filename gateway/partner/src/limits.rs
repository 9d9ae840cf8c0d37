//! Limits and times of the link. Everything that grows has its bound here.

use std::time::Duration;

/// Longest message of replication, bytes.
pub const MAX_MESSAGE: usize = 16 << 20;
/// Longest view, bytes.
pub const MAX_VIEW: usize = 1 << 20;
/// Least result of [`crate::Link::datagram_room`], bytes.
pub const MIN_DATAGRAM_ROOM: usize = 1_100;
/// Longest question, bytes.
pub const MAX_QUESTION: usize = 1 << 10;
/// Longest answer to a question, bytes.
pub const MAX_ANSWER: usize = 1 << 20;
/// Messages that wait in one direction.
pub const QUEUE_MESSAGES: usize = 8_192;
/// Bytes of messages that wait in one direction, partly received ones included.
pub const QUEUE_BYTES: usize = 32 << 20;

/// Packets of the tunnel that wait in one direction.
pub const TUNNEL_PACKETS: usize = 1_024;
/// A packet of the tunnel that begins with this byte is a word: it has a queue of its own in each
/// direction, and goes before the packets that wait.
pub(crate) const WORD: u8 = 0;
/// Words that wait in one direction.
pub(crate) const TUNNEL_WORDS: usize = 64;
/// Bytes before a packet of the tunnel in its datagram.
pub const TUNNEL_HEAD: usize = TUNNEL_MARK.len();
/// A datagram that begins with this is a packet of the tunnel. No message begins with it.
pub(crate) const TUNNEL_MARK: [u8; 4] = [0xe7, 0x7e, 0xe7, 0x7e];
/// Datagrams that QUIC may hold when a packet of the tunnel is added, bytes, that packet included.
pub(crate) const TUNNEL_BUFFER: usize = 64 << 10;
/// Longest wait of a packet of the tunnel; an older one is not sent.
pub(crate) const TUNNEL_AGE: Duration = Duration::from_millis(100);
/// Time after which a packet of the tunnel does not wait for messages any more: a link that is full
/// of replication still carries some packets.
pub(crate) const TUNNEL_PATIENCE: Duration = Duration::from_millis(5);
/// Pause before QUIC is asked again whether it has room for a packet of the tunnel.
pub(crate) const TUNNEL_PAUSE: Duration = Duration::from_millis(1);

/// Long messages that wait before their streams are open.
pub(crate) const LONG_QUEUE: usize = 256;
/// Long messages whose streams are open.
pub(crate) const LONG_STREAMS: usize = 8;
/// Streams that the partner may have open: long messages, views, requests.
pub(crate) const STREAMS: u32 = 64;
/// Bytes of views that are partly received.
pub(crate) const VIEW_BYTES: usize = 4 << 20;
/// Time in which a stream must be complete.
pub(crate) const STREAM_TIME: Duration = Duration::from_secs(30);

/// Longest wait of a question for earlier ones.
pub(crate) const TURN_TIME: Duration = Duration::from_secs(20);
/// Time of a question, after earlier ones, until the end of its answer.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(10);
/// Time in which a node finds its answer.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(8);

/// Interval of comparisons of the nodes' clocks.
pub(crate) const COMPARE: Duration = Duration::from_secs(30);
/// Longest time of a comparison, which is wrong by half of it at most.
pub(crate) const COMPARISON: Duration = Duration::from_millis(500);

/// Bytes that may always be on their way, however many are lost.
pub(crate) const LEAST_WINDOW: u64 = 256 << 10;
/// Datagrams that QUIC holds until congestion control lets them go, bytes.
pub(crate) const DATAGRAM_BUFFER: usize = 256 << 10;
/// Most bytes that QUIC adds to a datagram in that buffer.
pub(crate) const DATAGRAM_OVERHEAD: usize = 64;
/// Longest time that datagrams pause so that streams have packets.
pub(crate) const STREAM_TURN: Duration = Duration::from_millis(10);

/// A view is repeated after this time.
pub(crate) const VIEW_PERIOD: Duration = Duration::from_millis(200);
/// Least time between two views: changes in between are one view.
pub(crate) const VIEW_GAP: Duration = Duration::from_millis(5);

/// Without packets for this time a connection has ended.
pub(crate) const IDLE: Duration = Duration::from_secs(2);
/// A packet is sent at least this often.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// Round trip that is assumed before the first measurement.
pub(crate) const FIRST_ROUND_TRIP: Duration = Duration::from_millis(100);
/// Time in which both sides must know each other.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(4);
/// Handshakes in progress with the partner's address, and as many with all others.
pub(crate) const HANDSHAKES: usize = 8;
/// A handshake that failed keeps its place for this time, which bounds their rate.
pub(crate) const FAILED_HANDSHAKE: Duration = Duration::from_secs(1);
/// Pause before a connection is tried again: the first, and the longest.
pub(crate) const REDIAL: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(2));
/// Pauses between knocks, from the first to the longest; and the age of an attempt to dial that a
/// knock may end: it has repeated its first packet by then.
pub(crate) const KNOCKS: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_secs(4));
pub(crate) const KNOCKED: Duration = Duration::from_millis(300);
/// After a connection that lasted this long the pause is the first again.
pub(crate) const LASTED: Duration = Duration::from_secs(2);
/// A replaced connection is read for this time, then closed.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// Least time between two connections that were opened because certificates have changed.
pub(crate) const RENEWAL_GAP: Duration = Duration::from_secs(1);
/// Changed certificate files are noticed after this time.
pub(crate) const FILE_CHECK: Duration = Duration::from_secs(10);
/// Time of a guardian's connection in which it says the number of the process.
pub(crate) const GUARDIAN_TIME: Duration = Duration::from_secs(2);
/// Pause of a guardian before it tries again.
pub(crate) const GUARDIAN_PAUSE: Duration = Duration::from_millis(200);
/// Time for the last packets when the link is stopped.
pub(crate) const FAREWELL: Duration = Duration::from_millis(500);
/// Buffer of the socket that the link asks for, bytes. The system may give less.
pub(crate) const SOCKET_BUFFER: usize = 4 << 20;
/// Longest reason of a failure that is kept, characters.
pub(crate) const REASON: usize = 240;
/// The first version of the link with questions.
pub(crate) const QUESTIONS: u16 = 4;
/// The first version of the link whose records may have control flows of gateways.
pub const FLOWS: u16 = 5;
/// The first version of the link whose records may leave out their keys, and whose states may have
/// sums over the settings of gateways.
pub const KEYS: u16 = 6;
