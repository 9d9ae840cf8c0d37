//! RTSP with media by UDP: ffmpeg gets pictures and a tone from GStreamer's server.

use super::*;

/// Python of Debian, for which GStreamer's packages are.
const PYTHON: &str = "/usr/bin/python3";

/// Bytes of a second of the tone, 8,000 samples of 16 bits, and pictures in a second.
const SECOND: usize = 16_000;
const PICTURES: usize = 25;

impl Offer {
    /// Starts the server on a node.
    fn rtsp(&self, node: &str) -> Server {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alg/rtsp_server.py");
        let log = self.network.file("rtsp.log");
        let place = self.network.node(node);
        let server = Server(place.start(PYTHON.as_ref(), &[script], &log).unwrap());
        wait_for_listener(place, 554, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}: {:?}", fs::read_to_string(&log)));
        server
    }

    /// Has ffmpeg get a second of both media. Returns false if it does not in this time.
    fn gets(&self, node: &str, server: Ipv4Addr, seconds: u32) -> bool {
        let [sound, pictures] = [self.fetched(), self.network.file("pictures")];
        let _ = fs::remove_file(&pictures);
        let url = format!("rtsp://{server}/media");
        let options = ["-nostdin", "-loglevel", "error", "-rtsp_transport", "udp", "-i", &url];
        let to_sound = ["-map", "0:a", "-t", "1", "-f", "s16le", sound.to_str().unwrap()];
        let copies = ["-map", "0:v", "-t", "1", "-c:v", "copy", "-f", "mjpeg"];
        let arguments = [&options[..], &to_sound, &copies, &[pictures.to_str().unwrap()]].concat();
        let done = self.network.node(node).run(seconds, "ffmpeg", &arguments);
        let [sound, pictures] = [sound, pictures].map(|file| fs::read(file).unwrap_or_default());
        let is_loud = sound.chunks_exact(2).any(|two| i16::from_le_bytes([two[0], two[1]]) > 8_000);
        let count = pictures.windows(3).filter(|three| three == b"\xff\xd8\xff").count();
        done.is_ok() && sound.len() >= SECOND / 2 && is_loud && count >= PICTURES / 2
    }
}

#[test]
fn a_client_of_rtsp_gets_media_of_a_server_outside() {
    need("ffmpeg");
    let offer = Offer::new();
    let _server = offer.rtsp("server1");
    let gateway = offer.start(&format!("{STRICT}[alg]\nrtsp = true\n"));
    assert!(offer.gets("sub1", SERVER1, 15));
    assert_eq!(alg_counters(&gateway)["rtsp"], 2);
    assert!(gateway.stop().unwrap().success());
    let gateway = offer.start(STRICT);
    assert!(!offer.gets("sub1", SERVER1, 4), "without the gateway");
    assert!(gateway.stop().unwrap().success());
}

#[test]
fn a_server_of_rtsp_inside_serves_media() {
    need("ffmpeg");
    let offer = Offer::new();
    let _server = offer.rtsp("sub1");
    let external = POOL[0];
    let fixed = format!(
        "[[static]]\nprotocol = \"tcp\"\ninternal = \"{SUBSCRIBER1}:554\"\n\
         external = \"{external}:554\"\n"
    );
    let gateway = offer.start(&format!("{STRICT}{fixed}[alg]\nrtsp = true\n"));
    assert!(offer.gets("server1", external, 15));
    assert_eq!(alg_counters(&gateway)["rtsp"], 2);
    assert!(gateway.stop().unwrap().success());
}
