//! The worker's part of saving ports: copies the taken ports, a few addresses a turn, for a thread
//! that writes them.
//!
//! A pass covers all external addresses. A channel with room for a few addresses joins the two
//! threads: if the disk is slow, the pass waits and packets do not. Each address is copied at one
//! moment, but not all addresses at the same moment.

use super::file::Replacement;
use super::format::{Bitmap, Record, WORDS};
use super::{SavedPorts, StateError};
use crate::panics;
use crate::settings::StateSettings;
use natgate_engine::{Engine, Timestamp};
use natgate_wire::protocol;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Addresses that are copied in one turn: 128 KiB, some ten microseconds.
const ADDRESSES_A_TURN: usize = 4;

/// Most addresses that wait to be written.
const MOST_WAITING: usize = 16;

/// Interval at which the worker checks for room in the channel.
const PAUSE: Duration = Duration::from_millis(1);

/// Protocols whose ports are saved.
const PROTOCOLS: [u8; 4] = [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

/// A message to the thread that writes.
#[derive(Debug)]
enum Message {
    /// The ports of one address.
    Address(Vec<Record>),
    /// The end of the pass.
    End,
}

/// Saves the ports that a translator has given out.
#[derive(Debug)]
pub(crate) struct PortStateWriter {
    interval: Duration,
    /// Time of the next pass.
    next: Timestamp,
    /// Time of the next work.
    wake: Timestamp,
    /// Next address of the pass in progress.
    at: Option<usize>,
    /// Message for which the channel had no room.
    unsent: Option<Message>,
    messages: SyncSender<Message>,
    results: Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
}

impl PortStateWriter {
    /// Holds the saved ports, and saves the ports in use from now on.
    ///
    /// # Errors
    /// [`StateError::Thread`].
    pub(crate) fn new(
        saved: SavedPorts,
        engine: &mut Engine,
        now: Timestamp,
    ) -> Result<Self, StateError> {
        let SavedPorts { settings: StateSettings { file, interval }, records, .. } = saved;
        //= rfc6888#REQ-8-restart
        for record in &records {
            engine.hold_ports(record.address, record.protocol, &record.ports[..]);
        }
        let (messages, received) = sync_channel(MOST_WAITING);
        let (sender, results) = channel();
        let thread = Builder::new()
            .name("state file".into())
            .spawn(move || {
                // The worker waits for answers of this thread.
                panics::enter_data_plane();
                write_passes(&file, &received, &sender);
            })
            .map_err(StateError::Thread)?;
        let next = now.plus(interval);
        let (wake, at, unsent) = (next, None, None);
        Ok(Self { interval, next, wake, at, unsent, messages, results, thread })
    }

    /// Does one turn's share of a pass that is in progress or due; returns the result of a pass
    /// that has been written meanwhile.
    pub(crate) fn turn(&mut self, now: Timestamp, engine: &Engine) -> Option<io::Result<()>> {
        if self.at.is_none() && now >= self.next {
            self.at = Some(0);
            self.next = now.plus(self.interval);
        }
        for _ in 0..ADDRESSES_A_TURN {
            if !self.step(engine) {
                break;
            }
        }
        self.wake = match (&self.unsent, self.at) {
            (Some(_), _) => now.plus(PAUSE),
            (None, Some(_)) => now,
            (None, None) => self.next,
        };
        self.results.try_recv().ok()
    }

    /// Copies one address. Returns `false` if no pass is in progress, or the channel has no room.
    fn step(&mut self, engine: &Engine) -> bool {
        let message = match self.unsent.take() {
            Some(message) => message,
            None => match self.copy(engine) {
                Some(message) => message,
                None => return false,
            },
        };
        match self.messages.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                self.unsent = Some(message);
                false
            }
        }
    }

    /// Next message of the pass in progress.
    fn copy(&mut self, engine: &Engine) -> Option<Message> {
        let at = self.at?;
        let mut is_address = false;
        let mut records = Vec::new();
        for protocol in PROTOCOLS {
            let mut ports: Bitmap = Box::new([0; WORDS]);
            let Some(address) = engine.taken_ports(at, protocol, &mut ports[..]) else { continue };
            is_address = true;
            if ports.iter().any(|word| *word != 0) {
                records.push(Record { address, protocol, ports });
            }
        }
        self.at = is_address.then_some(at + 1);
        Some(if is_address { Message::Address(records) } else { Message::End })
    }

    /// Time of the next work for [`PortStateWriter::turn`].
    pub(crate) fn next_deadline(&self) -> Timestamp {
        self.wake
    }

    /// Writes a last pass, waits for it, and ends the thread.
    ///
    /// # Errors
    /// The error of the write.
    pub(crate) fn finish(mut self, engine: &Engine) -> io::Result<()> {
        // A pass in progress is completed first: the thread could not tell two passes apart.
        let mut passes = if self.at.is_some() || self.unsent.is_some() { 2 } else { 1 };
        while passes > 0 {
            self.at = self.at.or(self.unsent.is_none().then_some(0));
            let message = self.unsent.take().or_else(|| self.copy(engine));
            let Some(message) = message else { break };
            passes -= usize::from(matches!(message, Message::End));
            if self.messages.send(message).is_err() {
                break;
            }
        }
        drop(self.messages);
        let ended = self.thread.join().is_ok();
        let last = self.results.into_iter().last();
        match last {
            Some(result) if ended => result,
            _ => Err(io::Error::other("the thread that writes it has ended")),
        }
    }
}

/// The thread that writes: pass after pass, until the sender is gone.
fn write_passes(path: &Path, messages: &Receiver<Message>, results: &Sender<io::Result<()>>) {
    while let Ok(first) = messages.recv() {
        let Some(result) = write_pass(path, first, messages) else { return };
        if results.send(result).is_err() {
            return;
        }
    }
}

/// Writes one pass; `None` if the pass was broken off.
fn write_pass(path: &Path, first: Message, messages: &Receiver<Message>) -> Option<io::Result<()>> {
    let mut replacement = Replacement::begin(path);
    let mut message = first;
    while let Message::Address(records) = message {
        if let Ok(open) = &mut replacement
            && let Err(error) = records.iter().try_for_each(|record| open.record(record))
        {
            // The rest of the pass is received and discarded.
            replacement = Err(error);
        }
        message = messages.recv().ok()?;
    }
    Some(replacement.and_then(Replacement::finish))
}
