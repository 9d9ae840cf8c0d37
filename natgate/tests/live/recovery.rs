//! Failures around a gateway and their end: cables, devices, senders, and a process without
//! processor time. The gateway recovers without help, and its mappings stay.

use super::PROGRAM;
use natgate_testnet::{
    GATEWAY_INSIDE, Gateway, ROUTER, SERVER1, SERVER2, TestNetwork, config, traffic, wait_for,
};
use std::net::{SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(15);

/// A port without a listener.
const DISCARD: u16 = 9;

/// A running gateway, and an internal host with a mapping.
struct Work<'s> {
    network: &'s TestNetwork,
    gateway: Gateway,
    socket: UdpSocket,
    external: SocketAddrV4,
}

impl<'s> Work<'s> {
    fn start(network: &'s TestNetwork, gateway: Gateway, node: &str) -> Self {
        let socket = network.udp_socket(node);
        let external = traffic::ask_udp(&socket, SERVER1).unwrap();
        Self { network, gateway, socket, external }
    }

    fn waits_for_words(&self, words: &str) {
        let seen =
            wait_for(words, PATIENCE, || Ok(self.gateway.log().contains(words).then_some(())));
        assert!(seen.is_ok(), "{words:?} was not said: {}", self.gateway.log());
    }

    /// Checks that the mapping works again.
    fn recovers(&self, from: &str) {
        let seen = wait_for(from, PATIENCE, || {
            Ok(traffic::ask_udp_once(&self.socket, SERVER1, b"again").ok())
        });
        let seen = seen.unwrap_or_else(|error| panic!("{error}: {}", self.gateway.log()));
        assert_eq!(seen, self.external, "the mapping was kept after {from}");
        // No packet is lost after the recovery.
        for _ in 0..20 {
            assert_eq!(traffic::ask_udp(&self.socket, SERVER2).unwrap(), self.external);
        }
    }

    fn ip(&self, node: &str, arguments: &str) {
        self.network.ip(node, arguments);
    }

    /// Floods the gateway from a node, as fast as one thread can, and stops.
    fn flood(&self, node: &str, time: Duration) {
        let socket = self.network.udp_socket(node);
        let (end, mut sent) = (Instant::now() + time, 0_u64);
        while Instant::now() < end {
            for _ in 0..64 {
                // A full queue refuses some packets.
                sent += u64::from(socket.send_to(&[0; 1000], (SERVER1, DISCARD)).is_ok());
            }
        }
        assert!(sent > 10_000, "{sent} datagrams are no flood");
    }
}

/// All failures of Ethernet cables.
fn cables(backend: &str) {
    let network = super::network();
    let work = Work::start(&network, super::start(&network, backend, ""), "sub1");
    for (node, end, side) in [("router", "nat", "outside"), ("switch", "nat", "inside")] {
        work.ip(node, &format!("link set {end} down"));
        work.waits_for_words(&format!("{side} device {side} is down"));
        // The socket tries to send meanwhile.
        assert!(traffic::ask_udp_once(&work.socket, SERVER1, b"in vain").is_err());
        work.ip(node, &format!("link set {end} up"));
        if side == "outside" {
            work.ip("router", "route replace 203.0.113.0/24 via 192.0.2.2");
        }
        work.recovers("a cable that was pulled");
    }
    work.ip("nat", "link delete outside");
    work.waits_for_words("outside device outside is gone");
    network.cable(["nat", "outside", "router", "nat"]).unwrap();
    work.ip("router", &format!("address add {ROUTER}/24 dev nat"));
    work.ip("router", "route add 203.0.113.0/24 via 192.0.2.2");
    work.waits_for_words("outside device outside is back");
    work.recovers("the outside's device that went and came");
    work.ip("nat", "link delete inside");
    work.waits_for_words("inside device inside is gone");
    network.cable(["nat", "inside", "switch", "nat"]).unwrap();
    work.ip("switch", "link set nat master bridge");
    work.waits_for_words("inside device inside is back");
    work.recovers("the inside's device that went and came");
    stalls(&work, "sub2");
    assert_eq!(work.gateway.stop().unwrap().code(), Some(0));
}

/// Stops the gateway during a flood that ends before the gateway continues; then floods the running
/// gateway.
fn stalls(work: &Work<'_>, from: &str) {
    work.gateway.freeze().unwrap();
    work.flood(from, Duration::from_secs(1));
    work.gateway.thaw().unwrap();
    work.recovers("a stall");
    work.flood(from, Duration::from_secs(1));
    work.recovers("a flood");
}

#[test]
fn packet_sockets_recover() {
    cables("af-packet");
}

#[test]
fn af_xdp_recovers() {
    cables("af-xdp");
}

#[test]
fn tun_recovers() {
    let network = super::network();
    let text = config("").replacen("\"inside\"", "\"subscriber\"", 1);
    let text = text.replacen("af-packet", "tun", 1);
    let gateway = Gateway::start_in(&network, "nat", Path::new(PROGRAM), &text).unwrap();
    let switch_on = || {
        network.ip("nat", "address replace 10.0.0.77/24 dev subscriber");
        network.ip("nat", "link set subscriber up");
        network.ip("nat", &format!("route replace default via {GATEWAY_INSIDE}"));
    };
    switch_on();
    let words = "inside device subscriber is up";
    wait_for(words, PATIENCE, || Ok(gateway.log().contains(words).then_some(()))).unwrap();
    let work = Work::start(&network, gateway, "nat");
    // At the start the gateway has reported once that the device is down.
    let down = "inside device subscriber is down";
    let earlier = work.gateway.log().matches(down).count();
    work.ip("nat", "link set subscriber down");
    let again = || Ok((work.gateway.log().matches(down).count() > earlier).then_some(()));
    wait_for("the link is down", PATIENCE, again).unwrap();
    switch_on();
    work.recovers("a device that was switched off");
    work.ip("nat", "link delete subscriber");
    work.waits_for_words("inside device subscriber is gone");
    work.waits_for_words("inside device subscriber is back");
    switch_on();
    work.recovers("a device that was taken away");
    stalls(&work, "nat");
    let status = work.gateway.status().unwrap();
    assert_eq!(status["devices"]["inside"]["link_losses"], 2, "{}", status["devices"]);
    assert_eq!(work.gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn a_device_that_carries_less_than_before_is_followed() {
    let network = super::network();
    let work = Work::start(&network, super::start(&network, "af-packet", ""), "sub1");
    let carry = |mtu: u32| {
        work.ip("nat", &format!("link set outside mtu {mtu}"));
        work.ip("router", &format!("link set nat mtu {mtu}"));
        work.waits_for_words(&format!("and MTU {mtu} now"));
    };
    let ping = |from: &str, fragments: &str| {
        let to = SERVER1.to_string();
        let arguments = ["-n", "-c", "1", "-W", "3", "-M", fragments, "-s", "1400", &to];
        network.node(from).run(20, "ping", &arguments)
    };
    ping("sub1", "do").unwrap();
    carry(1300);
    let said = ping("sub1", "do").unwrap_err().to_string();
    assert!(said.contains("Frag needed") && said.contains("mtu = 1300"), "{said}");
    ping("sub2", "dont").unwrap();
    carry(1500);
    ping("sub2", "do").unwrap();
    let status = work.gateway.status().unwrap();
    assert_eq!(status["devices"]["outside"]["transmit_full"], 0, "{}", status["devices"]);
    work.recovers("a device that carried less for a while");
    assert_eq!(work.gateway.stop().unwrap().code(), Some(0));
}
