//! Commands to a running gateway, and what its thread does about them between batches.
//!
//! Whoever gives a command has a [`Commander`], prepares everything that is large in its own
//! thread, and waits there for the answer. Each of the gateway's threads takes one command at a
//! time, does a part of it each turn, and hands back what is to be disposed of: it makes and frees
//! nothing large itself. Where there are several, all are asked first whether they can do it, and
//! then all do.

use crate::capture::{Captures, Tap};
use crate::handover::{Exchange, Legacy, Writing, Written};
use crate::links::Link;
use crate::router::{LearntRoutes, Renewal, Retired, Router};
use crate::survey::{Inquiry, Question, SurveyContext};
use crate::team::{Invitation, Member, Newcomer, Partition, team};
use crate::trace::{Probe, Tracing, WorkerTrace, turned};
use crate::wiring::{Devices, LinkMap, Rewiring};
use crate::{Settings, WorkerError};
use natgate_engine::{
    Config, ConfigError, Departure, Engine, Reconfiguration, ReconfigureError, Review, Superseded,
    Timestamp, Verdict,
};
use natgate_io::Device;
use std::fmt::{self, Debug, Formatter};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};

/// Commands that wait.
const MOST_WAITING: usize = 16;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration stays as it was.
    #[error("the configuration is refused: {0:?}")]
    Refused(ReconfigureError),
    /// A device carries less than the settings say.
    #[error(transparent)]
    Device(#[from] WorkerError),
    /// What there is goes to another process, as it is.
    #[error("another process is taking over; ask that one when it has")]
    HandingOver,
    /// There is no room for another.
    #[error("{} captures are under way, as many as there may be; end one", crate::capture::MOST)]
    Captures,
    /// Nobody is there to do it.
    #[error("the gateway is stopping")]
    Stopping,
}

/// What settings to come are prepared by.
#[derive(Debug)]
pub struct Numbered {
    /// Pools and realms in force, in the translators' numbering.
    config: Config,
    workers: usize,
    /// Who has what.
    partition: Option<Arc<Partition>>,
}

impl Numbered {
    /// Who has what, if there are several workers.
    pub(crate) fn partition(&self) -> Option<&Partition> {
        self.partition.as_deref()
    }

    /// Whether pools and realms at work are those of a configuration, in its order: nothing is left
    /// of any that has gone.
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

/// Other settings, ready to be put in force.
#[derive(Debug)]
pub struct Prepared {
    /// For each worker.
    parts: Vec<Part>,
}

/// One worker's part of them.
#[derive(Debug)]
struct Part {
    engine: Reconfiguration,
    router: Renewal,
    wiring: Rewiring,
    settings: Settings,
    /// Who has what then, if there are several workers.
    partition: Option<Arc<Partition>>,
}

impl Prepared {
    /// Makes everything that other settings take to come into the place of those in force, which
    /// are those that [`Prepared::settings`] told; `numbered` is what [`Commander::numbered`]
    /// tells. Devices are then to be opened.
    ///
    /// # Errors
    /// [`ConfigError`] when the gateway could not run with them.
    pub fn new(
        in_force: &Settings,
        numbered: Numbered,
        new: Settings,
    ) -> Result<Self, ConfigError> {
        let Numbered { config, workers, partition } = numbered;
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
        let partition = partition
            .map(|before| Arc::new(Partition::new(&settings.engine, workers, Some(&before))));
        let part = |_| -> Result<Part, ConfigError> {
            let wiring = Rewiring::new(in_force, &settings)?;
            let router = Renewal::new(in_force, &settings);
            let router = router.map_err(|error| ConfigError { message: error.to_string() })?;
            let (engine, settings) = (engine.clone(), settings.clone());
            Ok(Part { engine, router, wiring, settings, partition: partition.clone() })
        };
        Ok(Self { parts: (0..workers).map(part).collect::<Result<_, _>>()? })
    }

    /// The settings, with realms in the numbering that they have at work.
    pub fn settings(&self) -> &Settings {
        &self.parts[0].settings
    }

    /// Opens the devices that realms have and that are not open yet, one for each worker.
    ///
    /// # Errors
    /// What `open` says of a device by its name.
    ///
    /// # Panics
    /// When `open` gives another number of devices.
    pub fn open<E>(
        &mut self,
        mut open: impl FnMut(&str) -> Result<Vec<Box<dyn Device>>, E>,
    ) -> Result<(), E> {
        for name in self.parts[0].wiring.missing() {
            let devices = open(&name)?;
            assert_eq!(devices.len(), self.parts.len(), "a device a worker");
            for (part, device) in self.parts.iter_mut().zip(devices) {
                part.wiring.put(&name, device);
            }
        }
        Ok(())
    }
}

/// What has become of the mappings that there were.
#[derive(Debug)]
pub struct Reconfigured {
    /// How many stayed.
    pub stayed: u64,
    /// How many went, by [`Departure`].
    pub went: [u64; Departure::ALL.len()],
    _past: Vec<Past>,
}

/// What was in force before; to be disposed of by who asked for something else.
struct Past {
    _engine: Box<Superseded>,
    _router: Retired,
    _devices: Devices,
}

impl Debug for Past {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Past")
    }
}

/// Nothing large is left at the gateway: what it has not taken goes back.
type Reply = SyncSender<Result<Reconfigured, (CommandError, Box<Part>)>>;

type CheckReply = SyncSender<(Result<(), CommandError>, Box<Part>)>;

type WriteReply = SyncSender<(Box<Writing>, bool)>;

type ReviewReply = SyncSender<(Result<Review, CommandError>, Box<Part>)>;

enum Command {
    Numbered(SyncSender<(Config, Option<Arc<Partition>>)>),
    Check(Box<Part>, CheckReply),
    Reconfigure(Box<Part>, Reply),
    Review(Box<Part>, Review, ReviewReply),
    Learn(Arc<LearntRoutes>, SyncSender<Arc<LearntRoutes>>),
    /// Says what another needs to join; one that was alone becomes this member.
    Invite(Option<Box<Member>>, SyncSender<Invitation>),
    Welcome(Box<Newcomer>, SyncSender<()>),
    Write(Box<Writing>, WriteReply),
    /// Take no packets any more; answered when there is nothing to be sent or told.
    Halt(SyncSender<Legacy>),
    /// Take packets again.
    Resume(SyncSender<()>),
    /// Other devices take the place of those that there are, which are handed back.
    Exchange(Box<Exchange>, SyncSender<Box<Exchange>>),
    Trace(Box<Tracing>, SyncSender<Box<Tracing>>),
    /// Has packets copied; a worker that has too many captures gives it back.
    Capture(Box<Tap>, SyncSender<Option<Box<Tap>>>),
    /// Ends the capture with this number, and gives it back.
    EndCapture(u64, SyncSender<Option<Box<Tap>>>),
}

/// Gives commands to a gateway; clones give commands to the same.
#[derive(Clone, Debug)]
pub struct Commander {
    /// One more when a worker joins.
    workers: Arc<RwLock<Vec<Arc<CommandSender>>>>,
}

/// Where one worker is told something.
#[derive(Debug)]
struct CommandSender {
    commands: SyncSender<Command>,
    questions: SyncSender<Question>,
    /// Wakes the worker's thread.
    wake: UnixStream,
}

/// Where a worker's commands come in.
#[derive(Debug)]
pub struct Commands {
    commands: Receiver<Command>,
    /// What only reads, or takes a moment: answered while a command is under way.
    questions: Receiver<Question>,
}

/// The two ends; a byte written to `wake` wakes the gateway (see [`crate::Controls`]).
pub fn commands(wake: UnixStream) -> (Commander, Commands) {
    let (commander, mut commands) = team_commands(vec![wake]);
    (commander, commands.remove(0))
}

/// The same for a gateway of several workers, each of which is woken by its own stream.
pub fn team_commands(wakes: Vec<UnixStream>) -> (Commander, Vec<Commands>) {
    let (workers, commands) = wakes.into_iter().map(ends).unzip();
    (Commander { workers: Arc::new(RwLock::new(workers)) }, commands)
}

/// The two ends for one worker.
fn ends(wake: UnixStream) -> (Arc<CommandSender>, Commands) {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    let (asker, questions) = sync_channel(MOST_WAITING);
    // A gateway that never sleeps is awake however many bytes lie there. Should this fail, the next
    // command at worst waits until it sleeps.
    let _ = wake.set_nonblocking(true);
    let commands = Commands { commands: receiver, questions };
    (Arc::new(CommandSender { commands: sender, questions: asker, wake }), commands)
}

impl Commander {
    /// How many workers the gateway has.
    pub fn workers(&self) -> usize {
        self.mouths().len()
    }

    /// Asks a worker something and waits for the answer.
    pub(crate) fn question<T>(
        &self,
        worker: usize,
        question: impl FnOnce(SyncSender<T>) -> Question,
    ) -> Result<T, CommandError> {
        let mouth = self.mouths().get(worker).cloned().ok_or(CommandError::Stopping)?;
        let (reply, answer) = sync_channel(1);
        mouth.questions.send(question(reply)).map_err(|_| CommandError::Stopping)?;
        // As with commands.
        let _ = (&mouth.wake).write_all(&[0]);
        answer.recv().map_err(|_| CommandError::Stopping)
    }

    fn mouths(&self) -> Vec<Arc<CommandSender>> {
        self.workers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets another worker join, which wakes by a byte at the other end of `waker`, a gateway with
    /// these settings; should there be one worker so far, `first` is what wakes that. `make` makes
    /// the worker and has its thread run; then it gets its part of what is new. The settings name
    /// the workers that there are then.
    ///
    /// # Errors
    /// [`CommandError`], or what `make` says; then all is as it was, but for hand-overs that nobody
    /// uses.
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

    /// The pools and realms in force, in the translator's numbering.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn numbered(&self) -> Result<Numbered, CommandError> {
        let workers = self.mouths();
        let answers = workers.iter().map(|worker| worker.ask(Command::Numbered));
        let answers: Vec<_> = answers.collect::<Result<_, _>>()?;
        let mut answers = answers.into_iter();
        let (config, partition) = answers.next().ok_or(CommandError::Stopping)?;
        let config = answers.fold(config, |all, (config, _)| all.with_numbers_of(config));
        Ok(Numbered { config, workers: workers.len(), partition })
    }

    /// Puts other settings in force and waits until all mappings have been asked whether they may
    /// stay.
    ///
    /// # Errors
    /// [`CommandError`]; then nothing has changed.
    ///
    /// # Panics
    /// When devices have not been opened.
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

    /// Finds out which mappings would stay and go, and names at most so many of the latter.
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

    /// Says what would happen to a packet, by the worker whose it is; if it turns round and what it
    /// would become is known, then by the worker who would get it.
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

    /// The answer of the first of some workers that knows of a packet, else of the last.
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

    /// Has every worker copy packets for a capture, each to its own tap.
    ///
    /// # Errors
    /// [`CommandError::Stopping`], or [`CommandError::Captures`] when there are as many captures as
    /// there may be.
    pub(crate) fn begin_capture(
        &self,
        mut tap: impl FnMut() -> Box<Tap>,
    ) -> Result<(), CommandError> {
        for mouth in self.mouths() {
            let tap = tap();
            if mouth.ask(|reply| Command::Capture(tap, reply))?.is_some() {
                return Err(CommandError::Captures);
            }
        }
        Ok(())
    }

    /// Has the workers beyond the first so many copy packets, too; returns where their answers
    /// come.
    pub(crate) fn go_on_capturing(
        &self,
        known: usize,
        mut tap: impl FnMut() -> Box<Tap>,
    ) -> Vec<Receiver<Option<Box<Tap>>>> {
        let mouths = self.mouths();
        let newcomers = mouths.iter().skip(known);
        // One that has gone copies nothing.
        newcomers
            .filter_map(|mouth| {
                let tap = tap();
                mouth.begin(|reply| Command::Capture(tap, reply)).ok()
            })
            .collect()
    }

    /// Ends a capture wherever it has begun.
    pub(crate) fn end_capture(&self, number: u64) {
        for mouth in self.mouths() {
            // What a worker has of it goes here, or has gone with the worker.
            let _ = mouth.ask(|reply| Command::EndCapture(number, reply));
        }
    }

    /// Has the routers go by these learnt routes in the place of those before.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn learn(&self, routes: Arc<LearntRoutes>) -> Result<(), CommandError> {
        for worker in self.mouths() {
            worker.ask(|reply| Command::Learn(Arc::clone(&routes), reply))?;
        }
        Ok(())
    }

    /// Has a worker write what is next of its state.
    pub(crate) fn begin_writing(
        &self,
        worker: usize,
        writing: Box<Writing>,
    ) -> Result<Written, CommandError> {
        let mouth = self.mouths().get(worker).cloned().ok_or(CommandError::Stopping)?;
        mouth.begin(|reply| Command::Write(writing, reply))
    }

    /// Has all workers take no packets any more.
    pub(crate) fn halt_all(&self) -> Result<Vec<Legacy>, CommandError> {
        self.ask_all(Command::Halt)
    }

    /// Has them take packets again.
    pub(crate) fn resume_all(&self) -> Result<(), CommandError> {
        self.ask_all(Command::Resume).map(drop)
    }

    /// Exchanges the devices of workers that take no packets; returns those that there were.
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

    /// Gives all workers a command, and then waits for the answers.
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

    /// Gives a command; the answer comes by what is returned.
    fn begin<T>(
        &self,
        command: impl FnOnce(SyncSender<T>) -> Command,
    ) -> Result<Receiver<T>, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.commands.send(command(reply)).map_err(|_| CommandError::Stopping)?;
        // If that fails the gateway is gone, and the answer will not come either.
        let _ = (&self.wake).write_all(&[0]);
        Ok(answer)
    }
}

/// A command under way.
enum Task {
    /// To be prepared when nothing is left to do because of the last one.
    Waiting(Box<Part>, Reply),
    /// To be put in force when the translator is ready.
    Prepared(Box<Part>, Reply),
    /// In force; the mappings are being asked.
    InForce(Past, Reply),
    /// To be answered when nothing is left to do because of the last one.
    Check(Box<Part>, CheckReply),
    Review(Box<Part>, Review, ReviewReply),
    Write(Box<Writing>, WriteReply),
}

/// The gateway's end: what has come in, and what is under way.
#[derive(Default)]
pub(crate) struct CommandRunner {
    commands: Option<Commands>,
    task: Option<Task>,
    /// Whether no packets are to be taken, and who waits to hear that none are.
    is_halted: bool,
    halting: Option<SyncSender<Legacy>>,
    /// A question under way beside it.
    inquiry: Option<Inquiry>,
}

impl CommandRunner {
    /// Takes commands from there.
    pub(crate) fn listen(&mut self, commands: Commands) {
        self.commands = Some(commands);
    }

    /// Whether no packets are to be taken: another process is about to.
    pub(crate) fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// Who waits to hear that no packets are taken.
    pub(crate) fn halting(&mut self) -> Option<SyncSender<Legacy>> {
        self.halting.take()
    }

    /// Whether a command is under way, of which each turn does a part.
    pub(crate) fn is_busy(&self) -> bool {
        self.task.is_some() || self.inquiry.is_some() || self.halting.is_some()
    }

    /// Whether a question is there to be answered in part by [`CommandRunner::answer`].
    pub(crate) fn is_asked(&mut self) -> bool {
        if self.inquiry.is_none() {
            let question = self.commands.as_ref().and_then(|all| all.questions.try_recv().ok());
            self.inquiry = question.map(Inquiry::new);
        }
        self.inquiry.is_some()
    }

    /// Does a turn's share of the answer.
    pub(crate) fn answer(&mut self, sight: &mut SurveyContext<'_>) {
        self.inquiry = self.inquiry.take().and_then(|inquiry| inquiry.turn(sight));
    }

    /// Does a turn's share; returns the settings that have come into force, and who has what then.
    pub(crate) fn turn(
        &mut self,
        (now, captures): (Timestamp, &mut Captures),
        engine: &mut Engine,
        router: &mut Router,
        cables: &mut LinkMap,
        devices: &mut Devices,
        team: &mut Option<Member>,
    ) -> Option<(Settings, Option<Arc<Partition>>)> {
        if self.task.is_none() {
            let receiver = &self.commands.as_ref()?.commands;
            self.task = match receiver.try_recv().ok()? {
                Command::Numbered(reply) => {
                    // Who does not wait for the answer has stopped; so with all answers here.
                    let partition = team.as_ref().map(|team| Arc::clone(team.partition()));
                    let _ = reply.send((numbered(engine.config()), partition));
                    None
                }
                Command::Check(part, reply) => Some(Task::Check(part, reply)),
                Command::Invite(alone, reply) => {
                    let member = match (team.as_mut(), alone) {
                        (None, Some(alone)) => {
                            let member = team.insert(*alone);
                            member.no_longer_alone(engine);
                            Some(member)
                        }
                        (known, _) => known,
                    };
                    if let Some(member) = member {
                        let _ = reply.send(member.invite());
                    }
                    None
                }
                Command::Welcome(newcomer, reply) => {
                    if let Some(member) = team {
                        member.welcome(*newcomer, engine);
                        let _ = reply.send(());
                    }
                    None
                }
                Command::Reconfigure(prepared, reply) => Some(Task::Waiting(prepared, reply)),
                Command::Review(prepared, review, reply) => {
                    Some(Task::Review(prepared, review, reply))
                }
                Command::Write(writing, reply) => Some(Task::Write(writing, reply)),
                Command::Halt(reply) => {
                    (self.is_halted, self.halting) = (true, Some(reply));
                    None
                }
                Command::Resume(reply) => {
                    self.is_halted = false;
                    let _ = reply.send(());
                    None
                }
                Command::Exchange(mut exchange, reply) => {
                    exchange.turn(router, cables, devices);
                    let _ = reply.send(exchange);
                    None
                }
                Command::Learn(routes, reply) => {
                    let _ = reply.send(router.learn(routes));
                    None
                }
                Command::Trace(mut tracing, reply) => {
                    tracing.answer(now, engine, router);
                    let _ = reply.send(tracing);
                    None
                }
                Command::Capture(tap, reply) => {
                    let _ = reply.send(captures.begin(tap));
                    None
                }
                Command::EndCapture(number, reply) => {
                    let _ = reply.send(captures.end(number));
                    None
                }
            };
        }
        let mut came = None;
        self.task = match self.task.take()? {
            Task::Waiting(mut prepared, reply) if engine.is_settled() => {
                match prepare(&mut prepared, engine, devices) {
                    Ok(()) => Some(Task::Prepared(prepared, reply)),
                    Err(error) => {
                        let _ = reply.send(Err((error, prepared)));
                        None
                    }
                }
            }
            Task::Prepared(prepared, reply) if engine.is_prepared() => {
                let Part {
                    engine: reconfiguration,
                    router: renewal,
                    wiring,
                    mut settings,
                    partition,
                } = *prepared;
                let past = Past {
                    _engine: Box::new(engine.reconfigure(reconfiguration)),
                    _devices: wiring.apply(cables, devices),
                    _router: router
                        .renew(renewal, |link: Link| devices[cables.device_of(link)].link().mac),
                };
                // Events name pools by the translator's numbers.
                settings.engine.pools.clone_from(&engine.config().pools);
                came = Some((settings, partition));
                Some(Task::InForce(past, reply))
            }
            Task::InForce(past, reply) if engine.is_settled() => {
                let (stayed, went) = engine.departed();
                let _ = reply.send(Ok(Reconfigured { stayed, went, _past: vec![past] }));
                None
            }
            Task::Check(part, reply) if engine.is_settled() => {
                let checked = part.wiring.check(&part.settings, devices).map_err(Into::into);
                let checked = checked.and_then(|()| {
                    engine.check_configuration(&part.engine).map_err(CommandError::Refused)
                });
                let _ = reply.send((checked, part));
                None
            }
            Task::Review(prepared, mut review, reply) => {
                match prepared.wiring.check(&prepared.settings, devices) {
                    Err(error) => {
                        let _ = reply.send((Err(error.into()), prepared));
                        None
                    }
                    Ok(()) if engine.review(&prepared.engine, &mut review) => {
                        Some(Task::Review(prepared, review, reply))
                    }
                    Ok(()) => {
                        let _ = reply.send((Ok(review), prepared));
                        None
                    }
                }
            }
            Task::Write(mut writing, reply) => match writing.turn(engine, self.is_halted) {
                None => Some(Task::Write(writing, reply)),
                Some(is_over) => {
                    let _ = reply.send((writing, is_over));
                    None
                }
            },
            waiting => Some(waiting),
        };
        came
    }
}

/// Begins to put settings in force.
fn prepare(
    prepared: &mut Part,
    engine: &mut Engine,
    devices: &Devices,
) -> Result<(), CommandError> {
    prepared.wiring.check(&prepared.settings, devices)?;
    engine.prepare_configuration(&mut prepared.engine).map_err(CommandError::Refused)
}

/// The pools and realms of a configuration, and nothing else of it.
fn numbered(config: &Config) -> Config {
    Config {
        realms: config.realms.clone(),
        pools: config.pools.clone(),
        default_pool: config.default_pool,
        allocation: config.allocation.clone(),
        ..Config::default()
    }
}
