//! The process that takes over.

use crate::HandoverError;
use crate::message::Message;
use natgate_engine::{Restoration, RestoreError, Restored, Timestamp};
use natgate_gateway::ipv6::{CarriedHost, CarriedPath};
use natgate_gateway::{Clock, Worker};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest silence of the giver.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time for the giver to end after it has handed over.
const LAST: Duration = Duration::from_secs(30);

/// Most passes before the last one.
const MOST_PASSES: usize = 8;

/// The last pass follows one that writes fewer mappings than the first divided by this number.
const FEW: u64 = 50;

/// Messages of records that wait for each worker.
const WAITING: usize = 2;

/// Result of a take-over.
#[derive(Clone, Copy, Debug)]
pub struct TakeOver {
    /// Fate of the mappings.
    pub restored: Restored,
    /// Time since which no process takes packets.
    pub since: Instant,
}

/// Takes over from the process that listens.
#[derive(Debug)]
pub struct Heir {
    stream: UnixStream,
    clock: Clock,
    closes: bool,
    restorations: Vec<Restoration>,
    /// Hosts of NAT64 or DS-Lite of each worker.
    hosts: Vec<Vec<CarriedHost>>,
    /// Prefixes by which hosts of each worker reach remote addresses.
    paths: Vec<Vec<CarriedPath>>,
    /// Control flows of application-level gateways of each worker.
    flows: Vec<Vec<Vec<u8>>>,
}

impl Heir {
    /// Asks the process that listens at a path for a gateway of `workers` workers. `closes` says
    /// that its devices can be opened only when no other process has them.
    ///
    /// # Errors
    /// [`HandoverError`]; the giver continues.
    pub fn ask(path: &Path, workers: usize, closes: bool) -> Result<Self, HandoverError> {
        let stream = UnixStream::connect(path)
            .map_err(|error| HandoverError::Nobody { path: path.to_owned(), error })?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(HandoverError::Lost)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(HandoverError::Lost)?;
        Message::hello(workers, closes).send(&stream).map_err(HandoverError::Lost)?;
        match Message::receive(&stream)? {
            Message::Welcome { time, steady, closes } => {
                let clock = Clock::like((Timestamp(time), steady));
                let (restorations, hosts, paths) = (Vec::new(), Vec::new(), Vec::new());
                let flows = Vec::new();
                Ok(Self { stream, clock, closes, restorations, hosts, paths, flows })
            }
            Message::Refused(sentence) => Err(HandoverError::Refused(sentence)),
            _ => Err(HandoverError::Damaged("it does not answer")),
        }
    }

    /// Clock of the giver, to be continued.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// True if the giver closes its devices before this process opens any.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Fills new workers with the giver's state while the giver works, until little changes between
    /// passes.
    ///
    /// # Errors
    /// [`HandoverError`]; the giver continues, and the workers are not to be used.
    pub fn fill(&mut self, workers: &mut [Worker]) -> Result<(), HandoverError> {
        self.restorations = workers.iter().map(Worker::begin_restoration).collect();
        let mut first = None;
        for _ in 0..MOST_PASSES {
            self.say(&Message::More)?;
            // The giver has the frames that come meanwhile, too.
            let written = self.pass(workers, Worker::discard_frames)?;
            let first = *first.get_or_insert(written);
            if written <= first / FEW && written < first {
                break;
            }
        }
        Ok(())
    }

    /// Has the giver stop, and takes the rest. `open` opens the workers' devices if the giver has
    /// closed its own. When this returns, the gateway belongs to this process.
    ///
    /// # Errors
    /// [`HandoverError`]; the giver continues, and the workers are not to be used.
    pub fn take(
        &mut self,
        workers: &mut [Worker],
        open: impl FnOnce(&mut [Worker]) -> Result<(), String>,
    ) -> Result<TakeOver, HandoverError> {
        workers.iter_mut().for_each(Worker::discard_frames);
        let since = Instant::now();
        self.say(&Message::Stop)?;
        let Message::Halted(mut legacy) = Message::receive(&self.stream)? else {
            return Err(HandoverError::Damaged("it does not stop"));
        };
        for worker in &mut *workers {
            // The giver has handled the frames until now; later frames wait for the worker.
            worker.discard_frames();
            let fits = worker.adopt(legacy.division.as_ref());
            fits.ok_or(HandoverError::Damaged("its workers have what cannot be"))?;
        }
        self.pass(workers, |_| ())?;
        let restored = self.finish(workers)?;
        let now = self.clock.now();
        legacy.hosts = std::mem::take(&mut self.hosts);
        legacy.paths = std::mem::take(&mut self.paths);
        legacy.flows = std::mem::take(&mut self.flows);
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.go_on(now, number, &legacy).map_err(HandoverError::Host)?;
        }
        if self.closes {
            self.say(&Message::Close)?;
            match Message::receive(&self.stream)? {
                Message::Closed => open(workers).map_err(HandoverError::Devices)?,
                _ => return Err(HandoverError::Damaged("it does not close its devices")),
            }
        }
        self.say(&Message::Taken)?;
        match Message::receive(&self.stream)? {
            Message::Yours => Ok(TakeOver { restored, since }),
            _ => Err(HandoverError::Damaged("it does not let go")),
        }
    }

    /// Completes the restoration on all workers.
    fn finish(&mut self, workers: &mut [Worker]) -> Result<Restored, HandoverError> {
        let mut sum = Restored::default();
        for (worker, restoration) in workers.iter_mut().zip(&mut self.restorations) {
            let restored = worker.finish_restoration(restoration).map_err(wrong)?;
            sum.mappings += restored.mappings;
            let counts = sum.left_out.iter_mut().zip(restored.left_out);
            counts.for_each(|(all, own)| *all += own);
        }
        Ok(sum)
    }

    /// Waits until the giver has ended, or its time to end is over: its sockets and files are free
    /// then.
    pub fn wait_until_gone(self) {
        // No data comes any more: this call returns when the connection has ended, or after the
        // time-out.
        let _ = self.stream.set_read_timeout(Some(LAST));
        let _ = (&self.stream).read(&mut [0]);
    }

    fn say(&self, message: &Message) -> Result<(), HandoverError> {
        message.send(&self.stream).map_err(HandoverError::Lost)
    }

    /// Reads the records of one pass, each worker in a thread of its own. `between` is called
    /// after each part of a worker's records. Returns the number of mappings written.
    fn pass(
        &mut self,
        workers: &mut [Worker],
        between: fn(&mut Worker),
    ) -> Result<u64, HandoverError> {
        let Self { stream, restorations, hosts, paths, flows, .. } = self;
        hosts.resize(workers.len(), Vec::new());
        paths.resize(workers.len(), Vec::new());
        flows.resize(workers.len(), Vec::new());
        thread::scope(|scope| {
            let (mut inboxes, mut readers) = (Vec::new(), Vec::new());
            for (worker, restoration) in workers.iter_mut().zip(restorations) {
                let (inbox, records) = sync_channel::<Vec<u8>>(WAITING);
                inboxes.push(inbox);
                readers.push(scope.spawn(move || -> Result<(), RestoreError> {
                    for part in records {
                        worker.restore(restoration, &part)?;
                        between(worker);
                    }
                    Ok(())
                }));
            }
            let written = deal(stream, inboxes, (hosts, paths, flows));
            for reader in readers {
                let read = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
                // A read error is more precise than the closed channel that it causes.
                read.map_err(wrong)?;
            }
            written
        })
    }
}

/// Lists of all workers: hosts, the prefixes by which they reach remote addresses, and control
/// flows.
type Lists<'l> = (&'l mut [Vec<CarriedHost>], &'l mut [Vec<CarriedPath>], &'l mut [Vec<Vec<u8>>]);

/// Distributes records to the threads that read them until a pass is over, and keeps the lists of
/// each worker.
fn deal(
    stream: &UnixStream,
    inboxes: Vec<SyncSender<Vec<u8>>>,
    (all, all_paths, all_flows): Lists<'_>,
) -> Result<u64, HandoverError> {
    loop {
        match Message::receive(stream)? {
            Message::Records { worker, records } => {
                let inbox = inboxes.get(usize::from(worker));
                let dealt = inbox.is_some_and(|inbox| inbox.send(records).is_ok());
                dealt.then_some(()).ok_or(HandoverError::Damaged("records that nobody takes"))?;
            }
            Message::Hosts { worker, hosts } => match all.get_mut(usize::from(worker)) {
                Some(own) => own.extend(hosts),
                None => return Err(HandoverError::Damaged("hosts that nobody takes")),
            },
            Message::Paths { worker, paths } => match all_paths.get_mut(usize::from(worker)) {
                Some(own) => own.extend(paths),
                None => return Err(HandoverError::Damaged("prefixes that nobody takes")),
            },
            Message::Flows { worker, flows } => match all_flows.get_mut(usize::from(worker)) {
                Some(own) => own.extend(flows),
                None => return Err(HandoverError::Damaged("flows that nobody takes")),
            },
            Message::Over(written) => return Ok(written),
            Message::Refused(sentence) => return Err(HandoverError::Refused(sentence)),
            _ => return Err(HandoverError::Damaged("something else than its state")),
        }
    }
}

fn wrong(error: RestoreError) -> HandoverError {
    match error {
        RestoreError::Damaged(what) => HandoverError::Damaged(what),
        RestoreError::Behavior => HandoverError::Behavior,
        RestoreError::Room(mappings) => HandoverError::Room(mappings),
    }
}
