//! Commands to a running gateway, and what its thread does about them between batches.
//!
//! Whoever gives a command has a [`Commander`], prepares everything that is large in its own thread, and
//! waits there for the answer. The gateway's thread takes one command at a time, does a part of it
//! each turn, and hands back what is to be disposed of: it makes and frees nothing large itself.

use crate::links::Link;
use crate::router::{LearntRoutes, Renewal, Retired, Router};
use crate::wiring::{Cables, Devices, Rewiring};
use crate::{Settings, WorkerError};
use natgate_engine::{
    Config, ConfigError, Departure, Engine, Reconfiguration, ReconfigureError, Review, Superseded,
};
use natgate_io::Device;
use std::fmt::{self, Debug, Formatter};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

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
    /// Nobody is there to do it.
    #[error("the gateway is stopping")]
    Stopping,
}

/// Other settings, ready to be put in force.
#[derive(Debug)]
pub struct Prepared {
    engine: Reconfiguration,
    router: Renewal,
    wiring: Rewiring,
    settings: Settings,
}

impl Prepared {
    /// Makes everything that other settings take to come into the place of those in force, which are those
    /// that [`Prepared::settings`] told; `numbered` is what [`Commander::numbered`] tells. Devices are
    /// then to be opened.
    ///
    /// # Errors
    /// [`ConfigError`] when the gateway could not run with them.
    pub fn new(in_force: &Settings, numbered: Config, new: Settings) -> Result<Self, ConfigError> {
        let Config { pools, default_pool, allocation, realms, .. } = numbered;
        let engine = in_force.engine.clone();
        let of_engine = Config { pools, default_pool, allocation, realms, ..engine };
        let engine = Reconfiguration::new(&of_engine, &new.engine)?;
        let settings = new.in_numbers_of(&of_engine);
        let wiring = Rewiring::new(in_force, &settings)?;
        let router = Renewal::new(in_force, &settings);
        let router = router.map_err(|error| ConfigError { message: error.to_string() })?;
        Ok(Self { engine, router, wiring, settings })
    }

    /// The settings, with realms in the numbering that they have at work.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Opens the devices that realms have and that are not open yet.
    ///
    /// # Errors
    /// What `open` says of a device by its name.
    pub fn open<E>(
        &mut self,
        open: impl FnMut(&str) -> Result<Box<dyn Device>, E>,
    ) -> Result<(), E> {
        self.wiring.open(open)
    }
}

/// What has become of the mappings that there were.
#[derive(Debug)]
pub struct Reconfigured {
    /// How many stayed.
    pub stayed: u64,
    /// How many went, by [`Departure`].
    pub went: [u64; Departure::ALL.len()],
    _past: Past,
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
type Reply = SyncSender<Result<Reconfigured, (CommandError, Box<Prepared>)>>;

type ReviewReply = SyncSender<(Result<Review, CommandError>, Box<Prepared>)>;

enum Command {
    Numbered(SyncSender<Config>),
    Reconfigure(Box<Prepared>, Reply),
    Review(Box<Prepared>, Review, ReviewReply),
    Learn(Arc<LearntRoutes>, SyncSender<Arc<LearntRoutes>>),
}

/// Gives commands to a gateway.
#[derive(Debug)]
pub struct Commander {
    commands: SyncSender<Command>,
    /// Wakes the gateway's thread.
    wake: UnixStream,
}

/// Where a gateway's commands come in.
#[derive(Debug)]
pub struct Commands(Receiver<Command>);

/// The two ends; a byte written to `wake` wakes the gateway (see [`crate::Controls`]).
pub fn commands(wake: UnixStream) -> (Commander, Commands) {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    // A gateway that never sleeps is awake however many bytes lie there. Should this fail, the next
    // command at worst waits until it sleeps.
    let _ = wake.set_nonblocking(true);
    (Commander { commands: sender, wake }, Commands(receiver))
}

impl Commander {
    /// The pools and realms in force, in the translator's numbering.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn numbered(&self) -> Result<Config, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.give(Command::Numbered(reply))?;
        answer.recv().map_err(|_| CommandError::Stopping)
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
        assert!(prepared.wiring.is_ready(), "devices have been opened");
        let (reply, answer) = sync_channel(1);
        self.give(Command::Reconfigure(Box::new(prepared), reply))?;
        let answer = answer.recv().map_err(|_| CommandError::Stopping)?;
        answer.map_err(|(error, _)| error)
    }

    /// Finds out which mappings would stay and go, and names at most so many of the latter.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn review(&self, prepared: Prepared, most: usize) -> Result<Review, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.give(Command::Review(Box::new(prepared), Review::new(most), reply))?;
        let (review, _) = answer.recv().map_err(|_| CommandError::Stopping)?;
        review
    }

    /// Has the router go by these learnt routes in the place of those before.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn learn(&self, routes: Arc<LearntRoutes>) -> Result<(), CommandError> {
        let (reply, answer) = sync_channel(1);
        self.give(Command::Learn(routes, reply))?;
        answer.recv().map(drop).map_err(|_| CommandError::Stopping)
    }

    /// Another who gives commands to the same gateway.
    ///
    /// # Errors
    /// The system's.
    pub fn another(&self) -> io::Result<Self> {
        Ok(Self { commands: self.commands.clone(), wake: self.wake.try_clone()? })
    }

    fn give(&self, command: Command) -> Result<(), CommandError> {
        self.commands.send(command).map_err(|_| CommandError::Stopping)?;
        // If that fails the gateway is gone, and the answer will not come either.
        let _ = (&self.wake).write_all(&[0]);
        Ok(())
    }
}

/// A command under way.
enum Task {
    /// To be prepared when nothing is left to do because of the last one.
    Waiting(Box<Prepared>, Reply),
    /// To be put in force when the translator is ready.
    Prepared(Box<Prepared>, Reply),
    /// In force; the mappings are being asked.
    InForce(Past, Reply),
    Review(Box<Prepared>, Review, ReviewReply),
}

/// The gateway's end: what has come in, and what is under way.
#[derive(Default)]
pub(crate) struct Clerk {
    commands: Option<Commands>,
    task: Option<Task>,
}

impl Clerk {
    /// Takes commands from there.
    pub(crate) fn listen(&mut self, commands: Commands) {
        self.commands = Some(commands);
    }

    /// Whether a command is under way, of which each turn does a part.
    pub(crate) fn is_busy(&self) -> bool {
        self.task.is_some()
    }

    /// Does a turn's share; returns the settings that have come into force.
    pub(crate) fn turn(
        &mut self,
        engine: &mut Engine,
        router: &mut Router,
        cables: &mut Cables,
        devices: &mut Devices,
    ) -> Option<Settings> {
        if self.task.is_none() {
            let Commands(receiver) = self.commands.as_ref()?;
            self.task = match receiver.try_recv().ok()? {
                Command::Numbered(reply) => {
                    // Who does not wait for the answer has stopped; so with all answers here.
                    let _ = reply.send(numbered(engine.config()));
                    None
                }
                Command::Reconfigure(prepared, reply) => Some(Task::Waiting(prepared, reply)),
                Command::Review(prepared, review, reply) => {
                    Some(Task::Review(prepared, review, reply))
                }
                Command::Learn(routes, reply) => {
                    let _ = reply.send(router.learn(routes));
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
                let Prepared { engine: reconfiguration, router: renewal, wiring, mut settings } =
                    *prepared;
                let past = Past {
                    _engine: Box::new(engine.reconfigure(reconfiguration)),
                    _devices: wiring.apply(cables, devices),
                    _router: router
                        .renew(renewal, |link: Link| devices[cables.device_of(link)].link().mac),
                };
                // Events name pools by the translator's numbers.
                settings.engine.pools.clone_from(&engine.config().pools);
                came = Some(settings);
                Some(Task::InForce(past, reply))
            }
            Task::InForce(past, reply) if engine.is_settled() => {
                let (stayed, went) = engine.departed();
                let _ = reply.send(Ok(Reconfigured { stayed, went, _past: past }));
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
            waiting => Some(waiting),
        };
        came
    }
}

/// Begins to put settings in force.
fn prepare(
    prepared: &mut Prepared,
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
