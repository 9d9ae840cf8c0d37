//! Commands to a running gateway, and what its thread does about them between batches.
//!
//! Whoever gives a command has a [`Commander`], prepares everything that is large in its own thread, and
//! waits there for the answer. The gateway's thread takes one command at a time, does a part of it
//! each turn, and hands back what is to be disposed of: it makes and frees nothing large itself.

use crate::Settings;
use crate::router::{Renewal, Router};
use natgate_engine::{
    Config, ConfigError, Departure, Engine, Reconfiguration, ReconfigureError, Review, Superseded,
};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Commands that wait.
const MOST_WAITING: usize = 16;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration stays as it was.
    #[error("the configuration is refused: {0:?}")]
    Refused(ReconfigureError),
    /// Nobody is there to do it.
    #[error("the gateway is stopping")]
    Stopping,
}

/// Other settings, ready to be put in force.
#[derive(Debug)]
pub struct Prepared {
    engine: Reconfiguration,
    router: Renewal,
    settings: Settings,
}

impl Prepared {
    /// Makes everything that other settings take to come into the place of those in force; `pools` is what
    /// [`Commander::pools`] tells.
    ///
    /// # Errors
    /// [`ConfigError`] when the translator could not run with them.
    pub fn new(in_force: &Settings, pools: Config, new: Settings) -> Result<Self, ConfigError> {
        let Config { pools, default_pool, allocation, .. } = pools;
        let of_engine = Config { pools, default_pool, allocation, ..in_force.engine.clone() };
        let engine = Reconfiguration::new(&of_engine, &new.engine)?;
        Ok(Self { engine, router: Renewal::new(in_force, &new), settings: new })
    }
}

/// What has become of the mappings that there were.
#[derive(Debug)]
pub struct Reconfigured {
    /// How many stayed.
    pub stayed: u64,
    /// How many went, by [`Departure`].
    pub went: [u64; Departure::ALL.len()],
    /// What was in force before; to be disposed of by the receiver.
    _superseded: Box<Superseded>,
}

enum Command {
    Pools(SyncSender<Config>),
    Reconfigure(Box<Prepared>, SyncSender<Result<Reconfigured, ReconfigureError>>),
    Review(Box<Prepared>, Review, SyncSender<(Review, Box<Prepared>)>),
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
    /// The pools in force, as the translator has them.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn pools(&self) -> Result<Config, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.give(Command::Pools(reply))?;
        answer.recv().map_err(|_| CommandError::Stopping)
    }

    /// Puts other settings in force and waits until all mappings have been asked whether they may
    /// stay.
    ///
    /// # Errors
    /// [`CommandError`]; then nothing has changed.
    pub fn reconfigure(&self, prepared: Prepared) -> Result<Reconfigured, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.give(Command::Reconfigure(Box::new(prepared), reply))?;
        let answer = answer.recv().map_err(|_| CommandError::Stopping)?;
        answer.map_err(CommandError::Refused)
    }

    /// Finds out which mappings would stay and go, and names at most so many of the latter.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn review(&self, prepared: Prepared, most: usize) -> Result<Review, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.give(Command::Review(Box::new(prepared), Review::new(most), reply))?;
        let (review, _) = answer.recv().map_err(|_| CommandError::Stopping)?;
        Ok(review)
    }

    fn give(&self, command: Command) -> Result<(), CommandError> {
        self.commands.send(command).map_err(|_| CommandError::Stopping)?;
        // If that fails the gateway is gone, and the answer will not come either.
        let _ = (&self.wake).write_all(&[0]);
        Ok(())
    }
}

type Reply = SyncSender<Result<Reconfigured, ReconfigureError>>;

/// A command under way.
enum Task {
    /// To be prepared when nothing is left to do because of the last one.
    Waiting(Box<Prepared>, Reply),
    /// To be put in force when the translator is ready.
    Prepared(Box<Prepared>, Reply),
    /// In force; the mappings are being asked.
    InForce(Box<Superseded>, Reply),
    Review(Box<Prepared>, Review, SyncSender<(Review, Box<Prepared>)>),
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
    pub(crate) fn turn(&mut self, engine: &mut Engine, router: &mut Router) -> Option<Settings> {
        if self.task.is_none() {
            let Commands(receiver) = self.commands.as_ref()?;
            self.task = match receiver.try_recv().ok()? {
                Command::Pools(reply) => {
                    // Who does not wait for the answer has stopped; so with all answers here.
                    let _ = reply.send(pools(engine.config()));
                    None
                }
                Command::Reconfigure(prepared, reply) => Some(Task::Waiting(prepared, reply)),
                Command::Review(prepared, review, reply) => {
                    Some(Task::Review(prepared, review, reply))
                }
            };
        }
        let mut came = None;
        self.task = match self.task.take()? {
            Task::Waiting(mut prepared, reply) if engine.is_settled() => {
                match engine.prepare_configuration(&mut prepared.engine) {
                    Ok(()) => Some(Task::Prepared(prepared, reply)),
                    Err(error) => {
                        let _ = reply.send(Err(error));
                        None
                    }
                }
            }
            Task::Prepared(prepared, reply) if engine.is_prepared() => {
                let Prepared { engine: reconfiguration, router: renewal, mut settings } = *prepared;
                let superseded = Box::new(engine.reconfigure(reconfiguration));
                router.renew(renewal);
                // Events name pools by the translator's numbers.
                settings.engine.pools.clone_from(&engine.config().pools);
                came = Some(settings);
                Some(Task::InForce(superseded, reply))
            }
            Task::InForce(superseded, reply) if engine.is_settled() => {
                let (stayed, went) = engine.departed();
                let _ = reply.send(Ok(Reconfigured { stayed, went, _superseded: superseded }));
                None
            }
            Task::Review(prepared, mut review, reply) => {
                if engine.review(&prepared.engine, &mut review) {
                    Some(Task::Review(prepared, review, reply))
                } else {
                    let _ = reply.send((review, prepared));
                    None
                }
            }
            waiting => Some(waiting),
        };
        came
    }
}

/// The pools of a configuration, and nothing else of it.
fn pools(config: &Config) -> Config {
    Config {
        pools: config.pools.clone(),
        default_pool: config.default_pool,
        allocation: config.allocation.clone(),
        ..Config::default()
    }
}
