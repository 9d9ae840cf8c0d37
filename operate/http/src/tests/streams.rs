//! Tests of requests that are streams, by HTTP/2.

use super::*;

/// Serves back what comes in, as a stream.
fn streams() -> (Server, std::net::SocketAddr) {
    let back = any(async |request: Request| Body::new(request.into_body()));
    let listen = Listen::tcp("127.0.0.1:0".parse().unwrap()).role(Role::Operate).streams();
    let server = Server::start(listen, Router::new().route("/back", back)).unwrap();
    let address = server.address().unwrap();
    (server, address)
}

#[test]
fn streams_are_answered_while_they_come_in() {
    use http_body_util::BodyExt;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let (_server, address) = streams();
    let talk = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let shake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut client, connection) = shake.await.unwrap();
        tokio::spawn(connection);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let pieces = futures_util::stream::poll_fn(move |context| {
            receiver.poll_recv(context).map(|piece| piece.map(Ok::<_, std::io::Error>))
        });
        let request = hyper::Request::post(format!("http://{address}/back"));
        let request = request.body(Body::from_stream(pieces)).unwrap();
        sender.send(Bytes::from_static(b"one")).unwrap();
        let mut body = client.send_request(request).await.unwrap().into_body();
        let one = body.frame().await.unwrap().unwrap().into_data().unwrap();
        // In silence pings keep it for longer than who says nothing may stay.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        sender.send(Bytes::from_static(b"two")).unwrap();
        let two = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(sender);
        (one, two, body.collect().await.unwrap().to_bytes())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(talk), (Bytes::from("one"), Bytes::from("two"), Bytes::new()));
}

#[test]
fn who_says_nothing_where_streams_are_is_given_up() {
    let (_server, address) = streams();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = Vec::new();
    // It ends, or is cut; a timeout would be another error.
    let ended = stream.read_to_end(&mut said);
    assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
}
