//! Several sockets on one device; each frame comes to one of them (packet fanout).
//!
//! The kernel numbers a group's sockets as they join, and the program of a steering returns such
//! numbers. So the device that asks first opens all rings of a group at once, in order; the rings
//! of the other devices wait here. That happens when the link is new, and each time that it was
//! taken away and has come back. No frame is received before all sockets have joined: a socket that
//! is bound and has not joined yet would get every frame.

use super::ring::Ring;
use super::{Config, socket};
use crate::{Error, LinkInfo, Steering, steering};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shared state of the devices of a group.
#[derive(Debug)]
pub(super) struct Group {
    count: usize,
    /// Program that chooses the socket of a frame; `None`: the kernel's hash of the flow chooses.
    filter: Option<Vec<libc::sock_filter>>,
    opened: Mutex<Opened>,
}

/// Sockets that joined together.
#[derive(Debug, Default)]
struct Opened {
    /// Index of the link that the sockets are bound to.
    index: u32,
    /// Rings that have not been taken yet, by number.
    waiting: Vec<Option<Ring>>,
    /// Held together with each ring.
    ticket: Ticket,
}

/// Held by the owner of a group's ring. True if the group has to be opened again, and the ring
/// given back.
type Ticket = Arc<AtomicBool>;

/// Place of a device in a group.
#[derive(Debug)]
pub(super) struct Seat {
    group: Arc<Group>,
    number: usize,
    ticket: Option<Ticket>,
}

impl Group {
    /// Creates `count` seats.
    pub(super) fn seats(
        count: usize,
        steering: Option<&Steering>,
    ) -> impl Iterator<Item = Seat> + use<> {
        let filter = steering.map(|steering| steering::assemble(steering, count));
        let group = Arc::new(Self { count, filter, opened: Mutex::default() });
        (0..count).map(move |number| Seat { group: Arc::clone(&group), number, ticket: None })
    }

    fn open(&self, link: &LinkInfo, config: &Config) -> Result<Opened, Error> {
        let name = link.name.as_str();
        let mut number = None;
        let mut waiting = Vec::new();
        for _ in 0..self.count {
            let ring = Ring::open_shut(link, config)?;
            number = Some(self.join(&ring, number, name)?);
            waiting.push(Some(ring));
        }
        for ring in waiting.iter().flatten() {
            socket::let_in(ring.socket(), name)?;
        }
        Ok(Opened { index: link.index, waiting, ticket: Ticket::default() })
    }

    /// Lets a ring's socket join the group of this number, or a new group if it is the first;
    /// returns the group's number.
    fn join(&self, ring: &Ring, number: Option<u16>, name: &str) -> Result<u16, Error> {
        let socket = ring.socket();
        let kind =
            if self.filter.is_some() { libc::PACKET_FANOUT_CBPF } else { libc::PACKET_FANOUT_HASH };
        let kind = kind | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let kind = match number {
            Some(_) => kind,
            None => kind | libc::PACKET_FANOUT_FLAG_UNIQUEID,
        };
        let request = u32::from(number.unwrap_or(0)) | kind << 16;
        let what = "sharing a device between sockets (packet fanout, Linux 5.16 or later)";
        socket::set(socket, name, libc::PACKET_FANOUT, request, what)?;
        if let (None, Some(filter)) = (number, &self.filter) {
            socket::steer(socket, name, filter)?;
        }
        number.map_or_else(|| socket::fanout_number(socket, name), Ok)
    }
}

impl Seat {
    /// Takes the ring of this seat on a link. Returns `None` while another device of the group has
    /// a ring that must be given back first.
    pub(super) fn take(&mut self, link: &LinkInfo, config: &Config) -> Result<Option<Ring>, Error> {
        self.leave();
        let mut opened = self.group.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let there = opened.index == link.index;
        let there = there && opened.waiting.get(self.number).is_some_and(Option::is_some);
        if !there {
            opened.waiting.clear();
            // Two groups on one link would both get every frame.
            if opened.index == link.index && Arc::strong_count(&opened.ticket) > 1 {
                opened.ticket.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            *opened = self.group.open(link, config)?;
        }
        self.ticket = Some(Arc::clone(&opened.ticket));
        Ok(opened.waiting[self.number].take())
    }

    /// Leaves the group. Call it after the ring has been closed.
    pub(super) fn leave(&mut self) {
        self.ticket = None;
    }

    /// True if the ring has to be given back.
    pub(super) fn recalled(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| ticket.load(Ordering::Relaxed))
    }
}
