//! QUIC's settings, versions of the messages, and reasons of failures as sentences.

use crate::congestion::Congestion;
use crate::limits::{
    DATAGRAM_BUFFER, FIRST_ROUND_TRIP, FLOWS, HANDSHAKES, IDLE, KEEP_ALIVE, KEYS, QUESTIONS,
    REASON, SOCKET_BUFFER, STREAMS,
};
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{
    Connection, ConnectionError, EndpointConfig, ServerConfig, TransportConfig, TransportErrorCode,
    VarInt,
};
use rustls::AlertDescription;
use socket2::SockRef;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// Versions of the messages that this program speaks, greatest first. Version 4 is version 3 with
/// questions, version 5 is version 4 with control flows in records, and version 6 is version 5 with
/// records that leave out their keys, and sums over gateways in states.
pub(crate) const VERSIONS: [u16; 4] = [KEYS, FLOWS, QUESTIONS, 3];

/// Codes of a closed connection: the link is stopped, a newer connection is in use, the versions
/// differ.
pub(crate) const STOPPED: VarInt = VarInt::from_u32(0);
pub(crate) const REPLACED: VarInt = VarInt::from_u32(1);
pub(crate) const NO_VERSION: VarInt = VarInt::from_u32(2);

/// The end of a process is told: the receiver has noted it.
pub(crate) const NOTED: VarInt = VarInt::from_u32(3);

const PROTOCOL: &str = "natgate-pair/";

/// Name of the protocol by which a guardian tells the end of a process.
pub(crate) const GUARDIAN: &[u8] = b"natgate-guardian/1";

/// Name of the protocol by which the node that listens asks the other to dial.
pub(crate) const KNOCK: &[u8] = b"natgate-knock/1";

/// Names of versions in the handshake.
pub(crate) fn protocols(versions: &[u16]) -> Vec<Vec<u8>> {
    versions.iter().map(|version| format!("{PROTOCOL}{version}").into_bytes()).collect()
}

/// The version that both sides have agreed on.
pub(crate) fn version(connection: &Connection) -> Option<u16> {
    let name = String::from_utf8(protocol(connection)?).ok()?;
    name.strip_prefix(PROTOCOL)?.parse().ok()
}

/// The protocol that both sides have agreed on.
pub(crate) fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    connection.handshake_data()?.downcast::<HandshakeData>().ok()?.protocol
}

/// True if both sides have agreed on a protocol with this name.
pub(crate) fn is_of(connection: &Connection, name: &[u8]) -> bool {
    protocol(connection).is_some_and(|agreed| agreed == name)
}

pub(crate) fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_uni_streams(STREAMS.into())
        // Versions with questions allow one when they are agreed on.
        .max_concurrent_bidi_streams(0_u32.into())
        .stream_receive_window((4_u32 << 20).into())
        .receive_window((16_u32 << 20).into())
        .send_window(16 << 20)
        .datagram_receive_buffer_size(Some(1 << 20))
        .datagram_send_buffer_size(DATAGRAM_BUFFER)
        .max_idle_timeout(Some(IDLE.try_into().expect("a short time")))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .initial_rtt(FIRST_ROUND_TRIP)
        .congestion_controller_factory(Arc::new(Congestion::default()))
        .allow_spin(false);
    transport
}

pub(crate) fn server(tls: Arc<QuicServerConfig>) -> ServerConfig {
    let mut server = ServerConfig::with_crypto(tls);
    server
        .transport_config(Arc::new(transport()))
        .max_incoming(4 * HANDSHAKES)
        .incoming_buffer_size(64 << 10)
        .incoming_buffer_size_total(1 << 20)
        .migration(false);
    server
}

/// Only the present version of QUIC.
pub(crate) fn endpoint() -> EndpointConfig {
    let mut endpoint = EndpointConfig::default();
    endpoint.supported_versions(vec![1]);
    endpoint
}

/// The socket of the link.
pub(crate) fn socket(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(listen)?;
    socket.set_nonblocking(true)?;
    let options = SockRef::from(&socket);
    // A smaller buffer loses packets of a burst earlier, and works.
    let _ = options.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = options.set_send_buffer_size(SOCKET_BUFFER);
    Ok(socket)
}

/// The reason if one side has refused the other's certificate or versions.
pub(crate) fn refusal(error: &ConnectionError) -> Option<String> {
    let alert = |code: TransportErrorCode| {
        u8::try_from(u64::from(code).checked_sub(0x100)?).ok().map(AlertDescription::from)
    };
    match error {
        ConnectionError::TransportError(own) => alert(own.code).map(|_| printable(&own.reason)),
        ConnectionError::ConnectionClosed(theirs) => alert(theirs.error_code)
            .map(|alert| format!("the other side refuses this node: {alert:?}")),
        _ => None,
    }
}

/// Why a connection has ended, as a sentence. Words of the other side are not repeated.
pub(crate) fn ending(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TimedOut => "the partner is silent".to_owned(),
        ConnectionError::Reset => "the partner does not know the connection".to_owned(),
        ConnectionError::ApplicationClosed(close) => match close.error_code {
            STOPPED => "the partner has stopped the link".to_owned(),
            REPLACED => "the partner uses a newer connection".to_owned(),
            NO_VERSION => "the partner speaks no common version".to_owned(),
            NOTED => "the partner has noted the end".to_owned(),
            code => format!("the partner has closed the connection with code {code}"),
        },
        ConnectionError::ConnectionClosed(close) => {
            format!("the partner has closed the connection: {}", close.error_code)
        }
        other => printable(&other.to_string()),
    }
}

/// A text that may have words of the other side: short, and on one line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON).collect()
}
