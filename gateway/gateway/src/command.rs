//! Commands to a running gateway. [`runner`] executes them.
//!
//! A [`Commander`] gives commands. It prepares large data in its own thread and waits there for the
//! answer. If there are several workers, the commander first asks all of them for consent; then all
//! of them act.

mod captures;
mod runner;

pub(crate) use runner::{CommandRunner, WorkerParts};

use crate::alg::Algs;
use crate::handover::{Exchange, Legacy, Writing, Written};
use crate::link::Link;
use crate::router::{LearntRoutes, Renewal, Retired, RouterError};
use crate::router6::Router6;
use crate::settings::Settings;
use crate::survey::Question;
use crate::tap::Tap;
use crate::team::{Invitation, Member, Newcomer, Partition, team};
use crate::trace::{Probe, Tracing, WorkerTrace, turned};
use crate::wiring::{Devices, Rewiring};
use crate::worker_error::WorkerError;
use natgate_engine::{
    Config, ConfigError, Departure, Reconfiguration, ReconfigureError, Review, Superseded, Verdict,
};
use natgate_io::Device;
use natgate_ipv6::{Pairs, StaticHost};
use natgate_wire::arp::Mac;
use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};

/// Most commands that wait for one worker.
const MOST_WAITING: usize = 16;

/// Reason why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The engine refuses the configuration; the old configuration stays in force.
    #[error("the configuration is refused: {0:?}")]
    Refused(ReconfigureError),
    /// A host of a static mapping of NAT64 gets no number; the old configuration stays in force.
    #[error("{0}")]
    Hosts(String),
    /// A device carries less than the settings require.
    #[error(transparent)]
    Device(#[from] WorkerError),
    /// The gateway hands its state over to another process.
    #[error("another process is taking over; ask that one when it has")]
    HandingOver,
    /// As many captures run as the limit permits.
    #[error(
        "{} captures are under way, as many as there may be; end one",
        crate::limits::MOST_CAPTURES
    )]
    Captures,
    /// The gateway is stopping and executes no commands.
    #[error("the gateway is stopping")]
    Stopping,
}

/// State of a running gateway from which new settings are prepared.
#[derive(Debug)]
pub struct Numbered {
    /// Pools and realms in force, in the engines' numbering.
    config: Config,
    workers: usize,
    /// Partition among the workers; `None` with a single worker.
    partition: Option<Arc<Partition>>,
    /// Numbers of the hosts that static mappings of NAT64 are to have.
    numbers: Vec<Ipv4Addr>,
    /// Addresses in no pool of which an engine still has something.
    left: HashSet<Ipv4Addr>,
}

impl Numbered {
    /// Partition among the workers; `None` with a single worker.
    pub(crate) fn partition(&self) -> Option<&Partition> {
        self.partition.as_deref()
    }

    /// True if pools and realms in force are those of `config`, in its order, and none that was
    /// removed is left.
    pub fn is_of(&self, config: &Config) -> bool {
        let pools = |config: &Config| -> Vec<_> {
            config.pools.iter().map(|pool| (pool.name.clone(), pool.count())).collect()
        };
        let realms = |config: &Config| -> Vec<_> {
            config.realms.iter().map(|realm| (realm.name.clone(), realm.gone)).collect()
        };
        pools(&self.config) == pools(config) && realms(&self.config) == realms(config)
    }
}

/// New settings, ready to be put in force.
#[derive(Debug)]
pub struct Prepared {
    /// One part for each worker.
    parts: Vec<Part>,
}

/// One worker's part of new settings.
#[derive(Debug)]
struct Part {
    engine: Reconfiguration,
    router: Renewal,
    wiring: Rewiring,
    settings: Settings,
    /// Pairs of prefixes of NPTv6.
    pairs: Pairs,
    /// New partition among the workers; `None` with a single worker.
    partition: Option<Arc<Partition>>,
    /// Application-level gateways for a worker that may have none.
    algs: Option<Box<Algs>>,
}

impl Prepared {
    /// Prepares the change from `in_force`, the settings that [`Prepared::settings`] returned last,
    /// to `new`. `numbered` is of [`Commander::numbered_for`]. Call [`Prepared::open`] afterwards.
    ///
    /// # Errors
    /// [`ConfigError`] if the gateway cannot run with the new settings.
    pub fn new(
        in_force: &Settings,
        numbered: Numbered,
        new: Settings,
    ) -> Result<Self, ConfigError> {
        let Numbered { config, workers, partition, numbers, left } = numbered;
        let mut new = new;
        let added = new.ipv6.add_realms(&mut new.engine, &numbers);
        added.map_err(|message| ConfigError { message })?;
        let pairs = Pairs::new(&new.ipv6.nptv6);
        let pairs = pairs.map_err(|overlap| ConfigError { message: overlap.to_string() })?;
        let macs = vec![Mac::default(); new.devices().len()];
        let unreachable = |error: RouterError| ConfigError { message: error.to_string() };
        Router6::new(&new, &macs).map_err(unreachable)?;
        let Config { pools, default_pool, allocation, realms, .. } = config;
        let of_engine =
            Config { pools, default_pool, allocation, realms, ..in_force.engine.clone() };
        let engine = match &partition {
            None => Reconfiguration::new(&of_engine, &new.engine)?,
            Some(_) => {
                let engines = workers as u32;
                let share = new.engine.share_after(engines, &in_force.engine);
                let own = in_force.engine.share_after(engines, &in_force.engine);
                let own = Config { limits: own.limits, classes: own.classes, ..of_engine.clone() };
                Reconfiguration::new(&own, &share)?
            }
        };
        let settings = new.in_numbers_of(&of_engine);
        let partition = partition.map(|before| {
            let mut partition = Partition::of(&settings, workers, Some(&before));
            partition.forget_left(&before, |address| left.contains(&address));
            Arc::new(partition)
        });
        let part = |number| -> Result<Part, ConfigError> {
            let wiring = Rewiring::new(in_force, &settings)?;
            let router = Renewal::new(in_force, &settings);
            let router = router.map_err(|error| ConfigError { message: error.to_string() })?;
            let (mut engine, settings) = (engine.clone(), settings.clone());
            if let Some(partition) = &partition {
                engine.divide(|realm, host| partition.of_host(realm, host.to_bits()) == number);
            }
            let has_first_algs = in_force.alg.is_off() && !settings.alg.is_off();
            let algs = has_first_algs.then(|| Algs::spare(&settings.alg));
            let (pairs, partition) = (pairs.clone(), partition.clone());
            Ok(Part { engine, router, wiring, settings, pairs, partition, algs })
        };
        Ok(Self { parts: (0..workers).map(part).collect::<Result<_, _>>()? })
    }

    /// The settings, with realms in the engines' numbering.
    pub fn settings(&self) -> &Settings {
        &self.parts[0].settings
    }

    /// Names of the devices that [`Prepared::open`] opens.
    pub fn missing(&self) -> Vec<String> {
        self.parts[0].wiring.missing()
    }

    /// Opens the devices that are not open yet, one for each worker.
    ///
    /// # Errors
    /// The error of `open`, which takes a device's name.
    ///
    /// # Panics
    /// If `open` returns a number of devices other than the number of workers.
    pub fn open<E>(
        &mut self,
        mut open: impl FnMut(&str) -> Result<Vec<Box<dyn Device>>, E>,
    ) -> Result<(), E> {
        for name in self.missing() {
            let devices = open(&name)?;
            assert_eq!(devices.len(), self.parts.len(), "a device a worker");
            for (part, device) in self.parts.iter_mut().zip(devices) {
                part.wiring.put(&name, device);
            }
        }
        Ok(())
    }
}

/// Effect of new settings on the existing mappings.
#[derive(Debug)]
pub struct Reconfigured {
    /// Number of mappings that stayed.
    pub stayed: u64,
    /// Number of mappings that were removed, by [`Departure`].
    pub went: [u64; Departure::ALL.len()],
    _past: Vec<Past>,
}

/// Replaced state. The thread that gave the command drops it.
struct Past {
    _engine: Box<Superseded>,
    _router: Retired,
    _pairs: Option<Pairs>,
    _algs: Option<Box<Algs>>,
    _devices: Devices,
}

impl Debug for Past {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Past")
    }
}

/// Answer to [`Command::Reconfigure`]. A refused part returns to the sender, so that the worker
/// frees nothing large.
type Reply = SyncSender<Result<Reconfigured, (CommandError, Box<Part>)>>;

type CheckReply = SyncSender<(Result<(), CommandError>, Box<Part>)>;

type WriteReply = SyncSender<(Box<Writing>, bool)>;

type ReviewReply = SyncSender<(Result<Review, CommandError>, Box<Part>)>;

/// Answer to [`Command::Numbered`].
struct Numbering {
    config: Config,
    partition: Option<Arc<Partition>>,
    numbers: Vec<Option<Ipv4Addr>>,
    /// Addresses in no pool of which the engine still has something.
    left: Vec<Ipv4Addr>,
}

enum Command {
    /// Asks for the state from which settings are prepared, and reserves numbers for the hosts of
    /// their static mappings of NAT64.
    Numbered(Option<Vec<StaticHost>>, SyncSender<Result<Numbering, CommandError>>),
    Check(Box<Part>, CheckReply),
    Reconfigure(Box<Part>, Reply),
    Review(Box<Part>, Review, ReviewReply),
    Learn(Arc<LearntRoutes>, SyncSender<Arc<LearntRoutes>>),
    /// Returns what a new worker needs to join; a worker without a team becomes the given member
    /// first.
    Invite(Option<Box<Member>>, SyncSender<Invitation>),
    Welcome(Box<Newcomer>, SyncSender<()>),
    Write(Box<Writing>, WriteReply),
    /// Stops the intake of packets; answered when all packets are sent and all events reported.
    Halt(SyncSender<Legacy>),
    /// Resumes the intake of packets.
    Resume(SyncSender<()>),
    /// Replaces the devices and returns the former ones.
    Exchange(Box<Exchange>, SyncSender<Box<Exchange>>),
    Trace(Box<Tracing>, SyncSender<Box<Tracing>>),
    /// Starts a capture; a worker at its limit of captures returns the tap.
    Capture(Box<Tap>, SyncSender<Option<Box<Tap>>>),
    /// Ends the capture with this number and returns its tap.
    EndCapture(u64, SyncSender<Option<Box<Tap>>>),
}

/// Sender of commands to a gateway. Clones send to the same gateway.
#[derive(Clone, Debug)]
pub struct Commander {
    /// One sender for each worker; a worker that joins adds one.
    workers: Arc<RwLock<Vec<Arc<CommandSender>>>>,
}

/// Sender of commands and questions to one worker.
#[derive(Debug)]
struct CommandSender {
    commands: SyncSender<Command>,
    questions: SyncSender<Question>,
    /// Wakes the worker's thread.
    wake: UnixStream,
}

/// Receiver of one worker's commands and questions.
#[derive(Debug)]
pub struct Commands {
    commands: Receiver<Command>,
    /// Questions only read, or are quick: they are answered while a command runs.
    questions: Receiver<Question>,
}

/// Creates sender and receiver for a gateway with one worker. A byte written to `wake` wakes the
/// worker (see [`crate::Controls`]).
pub fn commands(wake: UnixStream) -> (Commander, Commands) {
    let (commander, mut commands) = team_commands(vec![wake]);
    (commander, commands.remove(0))
}

/// Creates sender and receivers for a gateway with several workers; each stream wakes one.
pub fn team_commands(wakes: Vec<UnixStream>) -> (Commander, Vec<Commands>) {
    let (workers, commands) = wakes.into_iter().map(ends).unzip();
    (Commander { workers: Arc::new(RwLock::new(workers)) }, commands)
}

/// Creates sender and receiver for one worker.
fn ends(wake: UnixStream) -> (Arc<CommandSender>, Commands) {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    let (asker, questions) = sync_channel(MOST_WAITING);
    // A full socket buffer wakes the worker, too. If this call fails, a command may have to wait
    // until the worker reads the buffer.
    let _ = wake.set_nonblocking(true);
    let commands = Commands { commands: receiver, questions };
    (Arc::new(CommandSender { commands: sender, questions: asker, wake }), commands)
}

impl Commander {
    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.mouths().len()
    }

    /// Asks one worker a question and waits for the answer.
    pub(crate) fn question<T>(
        &self,
        worker: usize,
        question: impl FnOnce(SyncSender<T>) -> Question,
    ) -> Result<T, CommandError> {
        let mouth = self.mouths().get(worker).cloned().ok_or(CommandError::Stopping)?;
        let (reply, answer) = sync_channel(1);
        mouth.questions.send(question(reply)).map_err(|_| CommandError::Stopping)?;
        // If this write fails, the gateway has ended, and the answer does not come either.
        let _ = (&mouth.wake).write_all(&[0]);
        answer.recv().map_err(|_| CommandError::Stopping)
    }

    fn mouths(&self) -> Vec<Arc<CommandSender>> {
        self.workers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a worker to a gateway. `settings` name the number of workers including the new one.
    /// `waker` wakes the new worker for packets, `wake` for commands; `first` does so for a worker
    /// that had no team. `make` creates the worker and starts its thread; then the worker gets its
    /// share of new subscribers.
    ///
    /// # Errors
    /// [`CommandError`], or the error of `make`. The gateway then works as before; only rings to a
    /// missing worker remain.
    pub fn join<E: From<CommandError>>(
        &self,
        settings: &Settings,
        [first, waker, wake]: [UnixStream; 3],
        make: impl FnOnce(Member, Commands) -> Result<(), E>,
    ) -> Result<(), E> {
        let mouths = self.mouths();
        let alone = (mouths.len() == 1).then(|| team(settings, vec![first]).pop()).flatten();
        let invitation = mouths[0].ask(|reply| Command::Invite(alone.map(Box::new), reply))?;
        let (member, newcomers, beginning) = invitation.accept(settings, waker);
        for (mouth, newcomer) in mouths.iter().zip(newcomers) {
            mouth.ask(|reply| Command::Welcome(Box::new(newcomer), reply))?;
        }
        let (mouth, commands) = ends(wake);
        make(member, commands)?;
        self.workers.write().unwrap_or_else(PoisonError::into_inner).push(mouth);
        beginning.begin();
        Ok(())
    }

    /// Pools and realms in force, in the engines' numbering, and the partition among the workers.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn numbered(&self) -> Result<Numbered, CommandError> {
        self.ask_numbers(None)
    }

    /// As [`Commander::numbered`], for settings whose static mappings of NAT64 and DS-Lite have
    /// these hosts, those of NAT64 first.
    /// The hosts keep their numbers for ten minutes, or until the settings are in force.
    ///
    /// # Errors
    /// [`CommandError::Stopping`], and [`CommandError::Hosts`] if a host gets no number.
    pub fn numbered_for(&self, hosts: &[StaticHost]) -> Result<Numbered, CommandError> {
        self.ask_numbers(Some(hosts))
    }

    fn ask_numbers(&self, hosts: Option<&[StaticHost]>) -> Result<Numbered, CommandError> {
        let (workers, hosts) = (self.mouths(), hosts.map(<[StaticHost]>::to_vec));
        let ask = |of: &Arc<CommandSender>| of.ask(|to| Command::Numbered(hosts.clone(), to))?;
        let answers: Vec<Numbering> = workers.iter().map(ask).collect::<Result<_, _>>()?;
        let mut answers = answers.into_iter();
        let first = answers.next().ok_or(CommandError::Stopping)?;
        let Numbering { config, partition, mut numbers, left } = first;
        let mut left = HashSet::from_iter(left);
        let config = answers.fold(config, |all, other| {
            // Each worker numbers its own hosts.
            let pairs = numbers.iter_mut().zip(other.numbers);
            pairs.for_each(|(number, other)| *number = number.or(other));
            left.extend(other.left);
            all.with_numbers_of(other.config)
        });
        let numbers = numbers.into_iter().flatten().collect();
        Ok(Numbered { config, workers: workers.len(), partition, numbers, left })
    }

    /// Puts new settings in force and waits until every mapping has been checked.
    ///
    /// # Errors
    /// [`CommandError`]; the former settings then stay in force.
    ///
    /// # Panics
    /// If a device has not been opened.
    pub fn reconfigure(&self, prepared: Prepared) -> Result<Reconfigured, CommandError> {
        let (workers, mut parts) = (self.mouths(), prepared.parts);
        assert!(parts.iter().all(|part| part.wiring.is_ready()), "devices have been opened");
        if parts.len() > 1 {
            let mut checked = Vec::new();
            for (worker, part) in workers.iter().zip(parts) {
                let part = Box::new(part);
                let (result, part) = worker.ask(|reply| Command::Check(part, reply))?;
                result?;
                checked.push(*part);
            }
            parts = checked;
        }
        let mut answers = Vec::new();
        for (worker, part) in workers.iter().zip(parts) {
            answers.push(worker.begin(|reply| Command::Reconfigure(Box::new(part), reply))?);
        }
        let mut all = Reconfigured { stayed: 0, went: Default::default(), _past: Vec::new() };
        for answer in answers {
            let answer = answer.recv().map_err(|_| CommandError::Stopping)?;
            let Reconfigured { stayed, went, _past: past } = answer.map_err(|(error, _)| error)?;
            all.stayed += stayed;
            all.went.iter_mut().zip(went).for_each(|(all, went)| *all += went);
            all._past.extend(past);
        }
        Ok(all)
    }

    /// Counts the mappings that would stay and go with new settings, and lists at most `most` that
    /// would go.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn review(&self, prepared: Prepared, most: usize) -> Result<Review, CommandError> {
        let mut all = Review::new(most);
        for (worker, part) in self.mouths().iter().zip(prepared.parts) {
            let review = Review::new(most - all.named.len());
            let (review, _) = worker.ask(|reply| Command::Review(Box::new(part), review, reply))?;
            let review = review?;
            all.stay += review.stay;
            all.go.iter_mut().zip(review.go).for_each(|(all, go)| *all += go);
            all.named.extend(review.named);
        }
        Ok(all)
    }

    /// Explains the fate of a packet, by the worker that owns it. If the packet turns round
    /// (hairpin) and its translation is known, the explanation of the receiver's worker follows.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn trace(&self, probe: Probe) -> Result<Vec<WorkerTrace>, CommandError> {
        let partition = self.numbered()?.partition;
        let (mut all, mut next) = (Vec::new(), Some((probe, false)));
        while let Some((probe, is_turned)) = next.take() {
            let link = if is_turned { Link::OUTSIDE } else { probe.link };
            let candidates = partition.as_ref().map(|all| all.candidates(link, &probe.packet));
            let tracing =
                self.ask_some(&candidates.unwrap_or_else(|| vec![0]), &probe, is_turned)?;
            let Tracing { probe, traced, .. } = *tracing;
            let explanation = &traced.explanation;
            if explanation.verdict == Verdict::HandOver
                && let Some(packet) =
                    explanation.becomes.and_then(|becomes| turned(&probe.packet, &becomes))
            {
                next = Some((Probe { link: probe.link, packet }, true));
            }
            all.push(traced);
        }
        Ok(all)
    }

    /// Returns the answer of the first candidate that knows the packet, else of the last candidate.
    fn ask_some(
        &self,
        candidates: &[usize],
        probe: &Probe,
        is_turned: bool,
    ) -> Result<Box<Tracing>, CommandError> {
        let (mouths, mut last) = (self.mouths(), None);
        for &worker in candidates {
            let mouth = mouths.get(worker).ok_or(CommandError::Stopping)?;
            let tracing = Box::new(Tracing::new(probe.clone(), is_turned));
            let mut tracing = mouth.ask(|reply| Command::Trace(tracing, reply))?;
            tracing.traced.worker = worker;
            let knows = tracing.knows;
            last = Some(tracing);
            if knows {
                break;
            }
        }
        last.ok_or(CommandError::Stopping)
    }

    /// Replaces the learnt routes of all routers.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn learn(&self, routes: Arc<LearntRoutes>) -> Result<(), CommandError> {
        for worker in self.mouths() {
            worker.ask(|reply| Command::Learn(Arc::clone(&routes), reply))?;
        }
        Ok(())
    }

    /// Starts the export of the next part of a worker's state.
    pub(crate) fn begin_writing(
        &self,
        worker: usize,
        writing: Box<Writing>,
    ) -> Result<Written, CommandError> {
        let mouth = self.mouths().get(worker).cloned().ok_or(CommandError::Stopping)?;
        mouth.begin(|reply| Command::Write(writing, reply))
    }

    /// Stops the intake of packets on all workers.
    pub(crate) fn halt_all(&self) -> Result<Vec<Legacy>, CommandError> {
        self.ask_all(Command::Halt)
    }

    /// Resumes the intake of packets on all workers.
    pub(crate) fn resume_all(&self) -> Result<(), CommandError> {
        self.ask_all(Command::Resume).map(drop)
    }

    /// Exchanges the devices of halted workers; returns the former devices.
    pub(crate) fn exchange_all(
        &self,
        exchanges: Vec<Exchange>,
    ) -> Result<Vec<Exchange>, CommandError> {
        let exchange = |(mouth, exchange): (Arc<CommandSender>, Exchange)| {
            let exchanged = mouth.ask(|reply| Command::Exchange(Box::new(exchange), reply))?;
            Ok(*exchanged)
        };
        self.mouths().into_iter().zip(exchanges).map(exchange).collect()
    }

    /// Gives all workers a command, then waits for all answers.
    fn ask_all<T>(
        &self,
        command: impl Fn(SyncSender<T>) -> Command,
    ) -> Result<Vec<T>, CommandError> {
        let answers = self.mouths().into_iter().map(|mouth| mouth.begin(&command));
        let answers: Vec<_> = answers.collect::<Result<_, _>>()?;
        answers
            .into_iter()
            .map(|answer| answer.recv().map_err(|_| CommandError::Stopping))
            .collect()
    }
}

impl CommandSender {
    /// Gives a command and waits for the answer.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, CommandError> {
        self.begin(command)?.recv().map_err(|_| CommandError::Stopping)
    }

    /// Gives a command; returns the receiver of the answer.
    fn begin<T>(
        &self,
        command: impl FnOnce(SyncSender<T>) -> Command,
    ) -> Result<Receiver<T>, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.commands.send(command(reply)).map_err(|_| CommandError::Stopping)?;
        // If this write fails, the gateway has ended, and the answer does not come either.
        let _ = (&self.wake).write_all(&[0]);
        Ok(answer)
    }
}
