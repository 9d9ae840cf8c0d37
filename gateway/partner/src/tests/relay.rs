//! A relay of datagrams between two links, which loses some of them. The system loses others, which
//! nobody counts: a burst that is longer than the buffer of the relay's socket.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Datagrams that the relay loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    None = 0,
    /// One of five, at random.
    Fifth = 1,
    /// All from the dialing node.
    Dialer = 2,
    All = 3,
    /// From the dialing node, all datagrams that exceed some thousands a second.
    Slow = 4,
    End = 5,
}

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    loss: Arc<AtomicU8>,
    lost: Arc<[AtomicU64; 2]>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// A relay to the node that listens. The seed gives the losses.
    pub(crate) fn start(listener: SocketAddr, seed: u64) -> Self {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a port");
        let [front, back] = [bind(), bind()].map(Arc::new);
        let address = front.local_addr().unwrap();
        let (loss, lost) = (Arc::new(AtomicU8::new(0)), Arc::new([const { AtomicU64::new(0) }; 2]));
        let dialer = Arc::new(Mutex::new(None));
        let [from, to] = [Arc::clone(&front), Arc::clone(&back)];
        let known = Arc::clone(&dialer);
        let outbound = pass(from, &loss, &lost, 0, seed, move |bytes, source| {
            *known.lock().unwrap() = Some(source);
            to.send_to(bytes, listener)
        });
        let inbound = pass(back, &loss, &lost, 1, !seed, move |bytes, _| {
            let dialer = dialer.lock().unwrap().expect("it has sent first");
            front.send_to(bytes, dialer)
        });
        Self { address, loss, lost, threads: vec![outbound, inbound] }
    }

    pub(crate) fn lose(&self, loss: Loss) {
        self.loss.store(loss as u8, Ordering::SeqCst);
    }

    /// Datagrams of the dialing node that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost[0].load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.lose(Loss::End);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn pass(
    socket: Arc<UdpSocket>,
    loss: &Arc<AtomicU8>,
    lost: &Arc<[AtomicU64; 2]>,
    direction: usize,
    seed: u64,
    send: impl Fn(&[u8], SocketAddr) -> std::io::Result<usize> + Send + 'static,
) -> JoinHandle<()> {
    let (loss, lost) = (Arc::clone(loss), Arc::clone(lost));
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut random = seed | 1;
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        loop {
            let received = socket.recv_from(&mut buffer);
            let loss = loss.load(Ordering::SeqCst);
            if loss == Loss::End as u8 {
                return;
            }
            let Ok((length, source)) = received else { continue };
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let is_lost = loss == Loss::All as u8
                || loss == Loss::Dialer as u8 && direction == 0
                || loss == Loss::Fifth as u8 && random.is_multiple_of(5);
            if is_lost {
                lost[direction].fetch_add(1, Ordering::SeqCst);
            } else {
                if loss == Loss::Slow as u8 && direction == 0 && random.is_multiple_of(4) {
                    thread::sleep(Duration::from_millis(1));
                }
                // An error is a loss.
                let _ = send(&buffer[..length], source);
            }
        }
    })
}
