//! Execution of commands and questions by one worker, between batches.
//!
//! A [`CommandRunner`] takes one command at a time, does a part of it each turn, and returns data
//! that is no longer needed: a worker allocates and frees nothing large itself. Questions run
//! beside the command.

use super::{
    CheckReply, Command, CommandError, Commands, Numbering, Part, Past, Reconfigured, Reply,
    ReviewReply, WriteReply,
};
use crate::alg::{Algs, Aside};
use crate::handover::{Legacy, Writing};
use crate::link::Link;
use crate::router::Router;
use crate::router6::Router6;
use crate::settings::Settings;
use crate::survey::{Inquiry, SurveyContext};
use crate::tap::Captures;
use crate::team::{Invitation, Member, Partition};
use crate::wiring::{Devices, LinkMap};
use natgate_engine::{Config, Engine, Review, Timestamp};
use natgate_ipv6::{StaticHost, Translator};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Time for which hosts of new static mappings of NAT64 keep their numbers before the mappings are
/// in force.
const RESERVATION: Duration = Duration::from_secs(600);

/// A command in progress.
enum Task {
    /// Waits until the engine has completed the previous change.
    Waiting(Box<Part>, Reply),
    /// Waits until the engine is prepared for the change.
    Prepared(Box<Part>, Reply),
    /// In force; the engine still checks the mappings.
    InForce(Past, Reply),
    /// Waits until the engine has completed the previous change.
    Check(Box<Part>, CheckReply),
    Review(Box<Part>, Review, ReviewReply),
    Write(Box<Writing>, WriteReply),
}

/// Received commands, and the command in progress.
#[derive(Default)]
pub(crate) struct CommandRunner {
    commands: Option<Commands>,
    /// The next command, if it came before the command in progress has ended. The byte that woke
    /// the worker for it is read already, so the worker must not sleep before it has run.
    next: Option<Command>,
    task: Option<Task>,
    /// True while the worker takes no packets; `halting` is the pending answer.
    is_halted: bool,
    halting: Option<SyncSender<Legacy>>,
    /// Question in progress, independent of `task`.
    inquiry: Option<Inquiry>,
}

/// Parts of a worker that commands read and change.
pub(crate) struct WorkerParts<'a> {
    pub(crate) now: Timestamp,
    pub(crate) captures: &'a mut Captures,
    pub(crate) engine: &'a mut Engine,
    pub(crate) router: &'a mut Router,
    pub(crate) cables: &'a mut LinkMap,
    pub(crate) devices: &'a mut Devices,
    pub(crate) team: &'a mut Option<Member>,
    /// Translator between the families, if IPv6 is configured.
    pub(crate) translator: Option<&'a mut Translator>,
    /// Router of IPv6, if IPv6 is configured.
    pub(crate) router6: Option<&'a Router6>,
    /// Application-level gateways that are on, and others.
    pub(crate) algs: (&'a mut Option<Box<Algs>>, &'a mut Aside),
}

/// Settings that have come into force, and the partition among the workers.
type InForce = (Settings, Option<Arc<Partition>>);

impl CommandRunner {
    /// Sets the source of commands.
    pub(crate) fn listen(&mut self, commands: Commands) {
        self.commands = Some(commands);
    }

    /// True while the worker takes no packets because another process takes over.
    pub(crate) fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// Takes the pending answer to [`Command::Halt`].
    pub(crate) fn halting(&mut self) -> Option<SyncSender<Legacy>> {
        self.halting.take()
    }

    /// True while a command or a question needs further turns.
    pub(crate) fn is_busy(&self) -> bool {
        let has_command = self.next.is_some() || self.task.is_some();
        has_command || self.inquiry.is_some() || self.halting.is_some()
    }

    /// True if a question waits for [`CommandRunner::answer`].
    pub(crate) fn is_asked(&mut self) -> bool {
        if self.inquiry.is_none() {
            let question = self.commands.as_ref().and_then(|all| all.questions.try_recv().ok());
            self.inquiry = question.map(Inquiry::new);
        }
        self.inquiry.is_some()
    }

    /// Does one turn's share of the answer, and takes the next question after the last share.
    pub(crate) fn answer(&mut self, sight: &mut SurveyContext<'_>) {
        self.inquiry = self.inquiry.take().and_then(|inquiry| inquiry.turn(sight));
        self.is_asked();
    }

    /// Does one turn's share of the command in progress, and takes the next command after the last
    /// share; returns settings that have come into force.
    pub(crate) fn turn(&mut self, parts: &mut WorkerParts<'_>) -> Option<InForce> {
        if self.task.is_none() {
            self.take_next();
            let command = self.next.take()?;
            self.task = self.start(command, parts);
        }
        let in_force = self.advance(parts);
        self.take_next();
        in_force
    }

    /// Takes the next command from the queue.
    fn take_next(&mut self) {
        if self.next.is_none() {
            self.next = self.commands.as_ref().and_then(|all| all.commands.try_recv().ok());
        }
    }

    /// Does one turn's share of the task.
    fn advance(&mut self, parts: &mut WorkerParts<'_>) -> Option<InForce> {
        let mut in_force = None;
        self.task = match self.task.take()? {
            Task::Waiting(mut prepared, reply) if parts.engine.is_settled() => {
                match prepare(&mut prepared, parts) {
                    Ok(()) => Some(Task::Prepared(prepared, reply)),
                    Err(error) => {
                        let _ = reply.send(Err((error, prepared)));
                        None
                    }
                }
            }
            Task::Prepared(prepared, reply) if parts.engine.is_prepared() => {
                let (past, settings) = put_in_force(*prepared, parts);
                in_force = Some(settings);
                Some(Task::InForce(past, reply))
            }
            Task::InForce(past, reply) if parts.engine.is_settled() => {
                let (stayed, went) = parts.engine.departed();
                let _ = reply.send(Ok(Reconfigured { stayed, went, _past: vec![past] }));
                None
            }
            Task::Check(part, reply) if parts.engine.is_settled() => {
                let checked = part.wiring.check(&part.settings, parts.devices).map_err(Into::into);
                let checked = checked.and_then(|()| {
                    parts.engine.check_configuration(&part.engine).map_err(CommandError::Refused)
                });
                let _ = reply.send((checked, part));
                None
            }
            Task::Review(prepared, review, reply) => advance_review(prepared, review, reply, parts),
            Task::Write(mut writing, reply) => match writing.turn(parts.engine, self.is_halted) {
                None => Some(Task::Write(writing, reply)),
                Some(is_over) => {
                    let _ = reply.send((writing, is_over));
                    None
                }
            },
            waiting => Some(waiting),
        };
        in_force
    }

    /// Executes a short command at once; returns the task of a long one. If the receiver of an
    /// answer has ended, the answer is not needed and is lost.
    fn start(&mut self, command: Command, parts: &mut WorkerParts<'_>) -> Option<Task> {
        let WorkerParts { now, captures, engine, router, cables, devices, team, algs, .. } = parts;
        let WorkerParts { translator, router6, .. } = parts;
        let (engine, team) = (&mut **engine, &mut **team);
        match command {
            Command::Check(part, reply) => return Some(Task::Check(part, reply)),
            Command::Reconfigure(part, reply) => return Some(Task::Waiting(part, reply)),
            Command::Review(part, review, reply) => match engine.check_blocks(&part.engine) {
                Ok(()) => return Some(Task::Review(part, review, reply)),
                Err(error) => drop(reply.send((Err(CommandError::Refused(error)), part))),
            },
            Command::Write(writing, reply) => return Some(Task::Write(writing, reply)),
            Command::Numbered(hosts, reply) => {
                let partition = team.as_ref().map(|team| Arc::clone(team.partition()));
                let numbers = hosts.map_or(Ok(Vec::new()), |hosts| {
                    reserve(translator.as_deref_mut(), &hosts, *now)
                });
                let numbering = numbers.map(|numbers| {
                    let left = engine.left_addresses().collect();
                    Numbering { config: numbered(engine.config()), partition, numbers, left }
                });
                let _ = reply.send(numbering);
            }
            Command::Invite(alone, reply) => {
                if let Some(invitation) = invite(alone, engine, team) {
                    let _ = reply.send(invitation);
                }
            }
            Command::Welcome(newcomer, reply) => {
                if let Some(member) = team {
                    member.welcome(*newcomer, engine);
                    let _ = reply.send(());
                }
            }
            Command::Halt(reply) => (self.is_halted, self.halting) = (true, Some(reply)),
            Command::Resume(reply) => {
                self.is_halted = false;
                let _ = reply.send(());
            }
            Command::Exchange(mut exchange, reply) => {
                exchange.turn(router, cables, devices);
                let _ = reply.send(exchange);
            }
            Command::Learn(routes, reply) => {
                let _ = reply.send(router.learn(routes));
            }
            Command::Trace(mut tracing, reply) => {
                let algs = algs.0.as_ref().map(|algs| &algs.stage);
                let families = translator.as_deref_mut().zip(*router6);
                tracing.answer(*now, (engine, algs), router, families);
                let _ = reply.send(tracing);
            }
            Command::Capture(tap, reply) => {
                let _ = reply.send(captures.begin(tap));
            }
            Command::EndCapture(number, reply) => {
                let _ = reply.send(captures.end(number));
            }
        }
        None
    }
}

/// Invites a new worker; a worker without a team becomes the member `alone` first.
fn invite(
    alone: Option<Box<Member>>,
    engine: &mut Engine,
    team: &mut Option<Member>,
) -> Option<Invitation> {
    if team.is_none()
        && let Some(alone) = alone
    {
        team.insert(*alone).no_longer_alone(engine);
    }
    team.as_ref().map(Member::invite)
}

/// Puts prepared settings in force; returns the replaced state.
fn put_in_force(prepared: Part, parts: &mut WorkerParts<'_>) -> (Past, InForce) {
    let Part { engine: reconfiguration, router: renewal, mut settings, .. } = prepared;
    let Part { wiring, pairs, partition, algs, .. } = prepared;
    let WorkerParts { engine, router, cables, devices, algs: (on, aside), translator, .. } = parts;
    let superseded = Box::new(engine.reconfigure(reconfiguration));
    let algs = aside.renew(on, algs, &settings.alg, engine.config());
    if let Some(on) = on {
        on.stage.stop_engine(translator.is_none());
        on.stage.tell_ports(engine);
    }
    let past = Past {
        _engine: superseded,
        _algs: algs,
        _devices: wiring.apply(cables, devices),
        _pairs: translator.as_mut().map(|translator| translator.exchange_pairs(pairs)),
        _router: router.renew(renewal, |link: Link| devices[cables.device_of(link)].link().mac),
    };
    // Events name pools by the engine's numbers.
    settings.engine.pools.clone_from(&engine.config().pools);
    (past, (settings, partition))
}

/// Does one turn's share of a review.
fn advance_review(
    prepared: Box<Part>,
    mut review: Review,
    reply: ReviewReply,
    parts: &mut WorkerParts<'_>,
) -> Option<Task> {
    let result = match prepared.wiring.check(&prepared.settings, parts.devices) {
        Err(error) => Err(error.into()),
        Ok(()) if parts.engine.review(&prepared.engine, &mut review) => {
            return Some(Task::Review(prepared, review, reply));
        }
        Ok(()) => Ok(review),
    };
    let _ = reply.send((result, prepared));
    None
}

/// Prepares the engine for new settings. The members of a team have checked the settings before,
/// all of them, and none may refuse alone because a block has changed hands since.
fn prepare(prepared: &mut Part, parts: &mut WorkerParts<'_>) -> Result<(), CommandError> {
    prepared.wiring.check(&prepared.settings, parts.devices)?;
    let hosts: Vec<StaticHost> = prepared.settings.ipv6.static_hosts().copied().collect();
    let numbers = reserve(parts.translator.as_deref_mut(), &hosts, parts.now)?;
    let mut own = hosts.iter().zip(numbers).filter_map(|(host, number)| Some((host, number?)));
    if own.any(|(host, number)| host.number != number) {
        let message = "hosts of static mappings have lost their numbers meanwhile; reload again";
        return Err(CommandError::Hosts(message.to_owned()));
    }
    let new = &mut prepared.engine;
    let result = match parts.team {
        Some(_) => parts.engine.prepare_checked(new),
        None => parts.engine.prepare_configuration(new),
    };
    result.map_err(CommandError::Refused)
}

/// Copies the pools and realms of a configuration, and nothing else.
fn numbered(config: &Config) -> Config {
    Config {
        realms: config.realms.clone(),
        pools: config.pools.clone(),
        default_pool: config.default_pool,
        allocation: config.allocation.clone(),
        ..Config::default()
    }
}

/// Numbers of the hosts of static mappings of NAT64 and DS-Lite, reserved for a while.
fn reserve(
    translator: Option<&mut Translator>,
    hosts: &[StaticHost],
    now: Timestamp,
) -> Result<Vec<Option<Ipv4Addr>>, CommandError> {
    match translator {
        Some(translator) => {
            translator.reserve(hosts, now, now.plus(RESERVATION)).map_err(CommandError::Hosts)
        }
        None if hosts.is_empty() => Ok(Vec::new()),
        None => Err(CommandError::Hosts("there is neither NAT64 nor DS-Lite".to_owned())),
    }
}
