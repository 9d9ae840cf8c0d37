//! A client of the image's status page with smoltcp's TCP, over the machine's cables.

use crate::machine::{Machine, PATIENCE};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Fetches a path from an address on a side; `None` if no answer comes within two seconds of the
/// request, or if the connection is refused.
pub(crate) fn get(
    machine: &Machine,
    from: (usize, Ipv4Addr),
    to: (Ipv4Addr, u16),
    path: &str,
) -> Option<String> {
    get_beside(machine, from, to, path, &mut || ())
}

/// Fetches a path while `more` sends other packets to the machine repeatedly.
pub(crate) fn get_beside(
    machine: &Machine,
    (side, from): (usize, Ipv4Addr),
    (to, port): (Ipv4Addr, u16),
    path: &str,
    beside: &mut dyn FnMut(),
) -> Option<String> {
    let mut wire = Wire::default();
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut wire, Instant::now());
    interface.update_ip_addrs(|addresses| {
        let everywhere = IpCidr::new(IpAddress::Ipv4(from), 0);
        addresses.push(everywhere).expect("there is room for one");
    });
    let buffer = || SocketBuffer::new(vec![0; 16 << 10]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.connect(interface.context(), (IpAddress::Ipv4(to), port), 40_000).expect("it can");
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(socket);
    let begin = std::time::Instant::now();
    let (mut is_asked, mut said) = (false, Vec::new());
    loop {
        interface.poll(Instant::now(), &mut wire, &mut sockets);
        let socket = sockets.get_mut::<Socket<'_>>(handle);
        if socket.can_send() && !is_asked {
            let question = format!("GET {path} HTTP/1.1\r\nHost: {to}:{port}\r\n\r\n");
            socket.send_slice(question.as_bytes()).expect("it is open");
            is_asked = true;
        }
        let mut bytes = [0; 16 << 10];
        let came = socket.recv_slice(&mut bytes).unwrap_or(0);
        said.extend_from_slice(&bytes[..came]);
        match socket.state() {
            State::CloseWait => socket.close(),
            State::Closed if is_asked => return String::from_utf8(said).ok(),
            State::Closed => return None,
            State::SynSent if begin.elapsed().as_secs() >= 2 => return None,
            _ => {}
        }
        assert!(begin.elapsed() < PATIENCE, "{} bytes came", said.len());
        interface.poll(Instant::now(), &mut wire, &mut sockets);
        wire.outgoing.drain(..).for_each(|packet| machine.send(side, &packet));
        beside();
        let [inside, outside] = machine.settle();
        wire.incoming.extend(if side == 0 { inside } else { outside });
    }
}

/// Queues of packets to and from the client.
#[derive(Default)]
struct Wire {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);

struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        Some((Received(self.incoming.pop_front()?), Sending(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}
