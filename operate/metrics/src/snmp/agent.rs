//! The subagent: sessions with the master agent, answers to its requests, and reconnection.

use super::long_tables::{LongTables, RowContext, Rows, Table, mappings_of};
use super::notifications::{Bindings, Notifier};
use super::pdu::{HEADER, Header, Malformed, Outcome, Range, Request, Writer, error, kind};
use super::pools::PoolNumbers;
use super::tables::{MIB, Oid, Value, tables, translated};
use super::{Master, SnmpSettings};
use crate::Figures;
use natgate_engine::Config;
use natgate_gateway::panics;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Bound;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time that the master may take for an answer, and that a write may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval of checks of thresholds, and of the end of the gateway.
const BEAT: Duration = Duration::from_secs(1);

/// Pause before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(5);

/// Time for which figures are valid: a walk asks for one object after another.
const FRESH: Duration = Duration::from_secs(1);

/// Timeout that the master is asked to use, seconds: a page of a long table takes a moment.
const WAIT: u8 = 30;

/// Most values of one response.
const MOST_VALUES: usize = 512;

/// The state that the tables are made of.
#[derive(Clone, Debug)]
pub struct View {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The figures.
    pub figures: Figures,
}

/// Gives the subscribers, by realm and address, that have reached a limit or its highest threshold
/// since the call before.
pub type Reached = Box<dyn FnMut() -> Vec<(u16, Ipv4Addr)> + Send>;

/// Sources of the tables.
pub struct Sources {
    /// Configuration and figures. It may wait; its error says why there are none.
    pub view: Box<dyn Fn() -> Result<View, String> + Send>,
    /// Subscribers and mappings, which are read if the settings ask for them.
    pub rows: Box<dyn Rows>,
    /// Subscribers to notify managers about.
    pub reached: Reached,
}

/// A running subagent; it ends when this is dropped.
#[derive(Debug)]
pub struct Agent {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts the subagent. `say` gets a sentence when the master is found and when it is lost.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        settings: SnmpSettings,
        sources: Sources,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let mut work = AgentLoop::new(settings, sources, stopped);
        let run = move || panics::contain(|| work.run(&say));
        let thread = thread::Builder::new().name("snmp".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread has been reported by the hook.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The reason for the end of a session.
enum SessionEnd {
    /// The gateway stops.
    Stopped,
    /// The master is lost, for this reason.
    Lost(String),
}

impl From<io::Error> for SessionEnd {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<Malformed> for SessionEnd {
    fn from(_: Malformed) -> Self {
        Self::Lost("it sent what is no AgentX".to_owned())
    }
}

trait Stream: Read + Write {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

fn connect(master: &Master) -> io::Result<Box<dyn Stream>> {
    Ok(match master {
        Master::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(BEAT))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Box::new(stream)
        }
        Master::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_read_timeout(Some(BEAT))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
    })
}

/// The state of the thread.
struct AgentLoop {
    settings: SnmpSettings,
    source: Box<dyn Fn() -> Result<View, String> + Send>,
    reached: Reached,
    view: Option<(Instant, View)>,
    /// The highest count of translated packets: packets that are undeliverable later are
    /// subtracted.
    translated: u64,
    pools: PoolNumbers,
    long: LongTables,
    notifier: Notifier,
    stopped: Receiver<()>,
}

impl AgentLoop {
    fn new(settings: SnmpSettings, sources: Sources, stopped: Receiver<()>) -> Self {
        let Sources { view: source, rows, reached } = sources;
        let (pools, notifier, long) =
            (PoolNumbers::default(), Notifier::default(), LongTables::new(rows));
        Self {
            settings,
            source,
            reached,
            view: None,
            translated: 0,
            pools,
            long,
            notifier,
            stopped,
        }
    }

    fn run(&mut self, say: &dyn Fn(String)) {
        let mut lacks = false;
        loop {
            let place = match &self.settings.master {
                Master::Unix(path) => path.display().to_string(),
                Master::Tcp(address) => address.to_string(),
            };
            match self.session(&|| say(format!("SNMP agent at {place} has natgate's tables"))) {
                SessionEnd::Stopped => return,
                SessionEnd::Lost(why) => {
                    if !lacks {
                        say(format!(
                            "warning: no SNMP agent at {place}: {why}; it is tried again every {} \
                             s; snmp.agentx names another place",
                            PAUSE.as_secs()
                        ));
                    }
                    lacks = true;
                }
            }
            match self.stopped.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
        }
    }

    /// Runs one session, from connecting to its end.
    fn session(&mut self, begun: &dyn Fn()) -> SessionEnd {
        let stream = match connect(&self.settings.master) {
            Ok(stream) => stream,
            Err(error) => return error.into(),
        };
        let mut session =
            Session { stream, number: 0, packet: 0, uptime: 0, opened: Instant::now() };
        let result = session.open(&self.stopped).and_then(|()| {
            begun();
            self.serve(&mut session)
        });
        match result {
            Ok(never) => match never {},
            Err(SessionEnd::Stopped) => {
                // A master that has gone needs no message.
                let _ = session.send(kind::CLOSE, &[SHUTDOWN, 0, 0, 0]);
                SessionEnd::Stopped
            }
            Err(lost) => lost,
        }
    }

    fn serve(&mut self, session: &mut Session) -> Result<std::convert::Infallible, SessionEnd> {
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                next = Instant::now() + BEAT;
                self.notify(session)?;
            }
            let Some((header, payload)) = session.receive(&self.stopped)? else { continue };
            let answer = match header.kind {
                kind::RESPONSE | kind::CLEANUP_SET => continue,
                kind::CLOSE => return Err(SessionEnd::Lost("it closed the session".to_owned())),
                kind::TEST_SET => Err((error::NOT_WRITABLE, 1)),
                kind::COMMIT_SET | kind::UNDO_SET => Err((error::REQUEST_DENIED, 0)),
                _ => match Request::read(&header, &payload)? {
                    Some(request) => self.answer(session, &request),
                    None => Err((error::REQUEST_DENIED, 0)),
                },
            };
            session.respond(&header, answer)?;
        }
    }

    /// The values that are asked for, or an error and its place.
    fn answer(&mut self, session: &Session, request: &Request) -> Result<Bindings, (u16, u16)> {
        let failed = |_| (error::GENERAL, 0);
        let view = self.view().map_err(failed)?.clone();
        let now = Instant::now();
        let began = session.ticks_at(view.figures.began.elapsed().unwrap_or_default());
        let since =
            |pool: &str| self.pools.age(pool, now).map_or(began, |age| session.ticks_at(age));
        let counted = (began, self.translated);
        let short = tables(&self.settings, &view, &self.pools, counted, &since);
        let context = RowContext::new(&self.settings, &view.config, &self.pools, began);
        let long = self.settings.subscribers.then_some(&mut self.long);
        Objects { short: &short, long, context: &context }.look_up(request).map_err(failed)
    }

    /// Notifies managers of thresholds that were reached.
    fn notify(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        // Thresholds that cannot be checked now are checked the next time.
        let Ok(view) = self.view().cloned() else { return Ok(()) };
        let now = Instant::now();
        if self.settings.subscribers {
            for (realm, address) in (self.reached)() {
                // A subscriber that has gone since has no mappings any more.
                let Ok(Some(info)) = self.long.rows().subscriber(realm, address) else { continue };
                let (settings, who) = (&self.settings, (realm, address));
                self.notifier.subscriber_reached(settings, who, mappings_of(&info), now);
            }
        }
        for bindings in self.notifier.due(&self.settings, &view, &self.pools, now) {
            let all = bindings.iter();
            let payload =
                all.fold(Writer::default(), |payload, (name, value)| payload.binding(name, value));
            session.send(kind::NOTIFY, &payload.0)?;
        }
        Ok(())
    }

    /// Configuration and figures, not older than a moment.
    fn view(&mut self) -> Result<&View, String> {
        let is_fresh = self.view.as_ref().is_some_and(|(made, _)| made.elapsed() < FRESH);
        if !is_fresh {
            let view = (self.source)()?;
            self.pools.learn(&view.config, Instant::now());
            //= rfc7659#section-4-monotone
            self.translated = self.translated.max(translated(&view.figures.counters));
            self.view = Some((Instant::now(), view));
        }
        self.view.as_ref().map(|(_, view)| view).ok_or_else(String::new)
    }
}

/// The reason of a Close message: the subagent ends.
const SHUTDOWN: u8 = 5;

/// All objects.
struct Objects<'a> {
    short: &'a BTreeMap<Oid, Value>,
    /// Objects of long tables, if the settings ask for them.
    long: Option<&'a mut LongTables>,
    context: &'a RowContext<'a>,
}

impl Objects<'_> {
    /// The values that are asked for.
    fn look_up(&mut self, request: &Request) -> Result<Bindings, String> {
        match request {
            Request::Get(ranges) => ranges.iter().map(|range| self.get(&range.start)).collect(),
            Request::GetNext(ranges) => ranges.iter().map(|range| self.next(range)).collect(),
            Request::GetBulk { once, most, ranges } => {
                let (single, repeated) = ranges.split_at(usize::from(*once).min(ranges.len()));
                let mut found: Bindings =
                    single.iter().map(|range| self.next(range)).collect::<Result<_, _>>()?;
                let mut ranges = repeated.to_vec();
                for _ in 0..*most {
                    if ranges.is_empty() || found.len() + ranges.len() > MOST_VALUES {
                        break;
                    }
                    for range in &mut ranges {
                        let (name, value) = self.next(range)?;
                        let end = range.end.clone();
                        *range = Range { start: name.clone(), included: false, end };
                        found.push((name, value));
                    }
                    let last = &found[found.len() - ranges.len()..];
                    if last.iter().all(|(_, value)| *value == Value::EndOfView) {
                        break;
                    }
                }
                Ok(found)
            }
        }
    }

    fn get(&mut self, name: &Oid) -> Result<(Oid, Value), String> {
        if let Some(long) = &mut self.long
            && let Some(value) = long.get(self.context, name)?
        {
            return Ok((name.clone(), value));
        }
        let value = self.short.get(name).cloned().unwrap_or_else(|| {
            // A column is named by the MIB, a 2, the table, a 1 and the column.
            let column = name.get(..MIB.len() + 4);
            let is_there = |column: &[u32]| {
                let mut behind = self.short.range(column.to_vec()..);
                behind.next().is_some_and(|(other, _)| other.starts_with(column))
            };
            if column.is_some_and(is_there) { Value::NoSuchInstance } else { Value::NoSuchObject }
        });
        Ok((name.clone(), value))
    }

    /// The first object of a range.
    fn next(&mut self, range: &Range) -> Result<(Oid, Value), String> {
        let from = match range.included {
            true => Bound::Included(range.start.clone()),
            false => Bound::Excluded(range.start.clone()),
        };
        let short = self.short.range((from, Bound::Unbounded)).next();
        let short = short.map(|(name, value)| (name.clone(), value.clone()));
        let mut first = None;
        if let Some(long) = &mut self.long {
            for table in Table::ALL {
                // In the order of names all short tables come after the first long one.
                if table != Table::Subscribers && short.is_some() {
                    break;
                }
                first = long.next(table, self.context, range)?;
                if first.is_some() {
                    break;
                }
            }
        }
        let first = first.or(short).filter(|(name, _)| range.end.is_empty() || *name < range.end);
        Ok(first.unwrap_or_else(|| (range.start.clone(), Value::EndOfView)))
    }
}

/// A session with the master.
struct Session {
    stream: Box<dyn Stream>,
    number: u32,
    /// The latest packet's number.
    packet: u32,
    /// The master's uptime when the session was opened, hundredths of a second.
    uptime: u32,
    opened: Instant,
}

impl Session {
    /// Opens the session and registers the MIB.
    fn open(&mut self, stopped: &Receiver<()>) -> Result<(), SessionEnd> {
        let payload = Writer::default().u8s([0; 4]).oid(&[]).octets(b"natgate, NATV2-MIB").0;
        let (header, outcome) = self.ask(kind::OPEN, &payload, stopped)?;
        if outcome.error != error::NONE {
            return Err(SessionEnd::Lost(format!(
                "it does not open a session (error {})",
                outcome.error
            )));
        }
        (self.number, self.uptime, self.opened) = (header.session, outcome.uptime, Instant::now());
        const PRIORITY: u8 = 127;
        let payload = Writer::default().u8s([WAIT, PRIORITY, 0, 0]).oid(&MIB).0;
        let (_, outcome) = self.ask(kind::REGISTER, &payload, stopped)?;
        match outcome.error {
            error::NONE => Ok(()),
            error => Err(SessionEnd::Lost(format!(
                "it does not let natgate have NATV2-MIB (error {error}); is another there already?"
            ))),
        }
    }

    /// Sends a message and waits for the response.
    fn ask(
        &mut self,
        kind: u8,
        payload: &[u8],
        stopped: &Receiver<()>,
    ) -> Result<(Header, Outcome), SessionEnd> {
        self.send(kind, payload)?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some((header, payload)) = self.receive(stopped)?
                && (header.kind, header.packet) == (kind::RESPONSE, self.packet)
            {
                return Ok((header, Outcome::read(&header, &payload)?));
            }
        }
        Err(SessionEnd::Lost("it does not answer".to_owned()))
    }

    fn send(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        self.packet = self.packet.wrapping_add(1);
        let header = Header::new(kind, self.number, 0, self.packet);
        self.stream.write_all(&header.message(payload))
    }

    fn respond(&mut self, to: &Header, answer: Result<Bindings, (u16, u16)>) -> io::Result<()> {
        let (error, place) = answer.as_ref().err().copied().unwrap_or_default();
        let head = Writer::default().u32(0).u16(error).u16(place);
        let bindings = answer.unwrap_or_default();
        let payload =
            bindings.iter().fold(head, |payload, (name, value)| payload.binding(name, value));
        let header = Header::new(kind::RESPONSE, to.session, to.transaction, to.packet);
        self.stream.write_all(&header.message(&payload.0))
    }

    /// The next message; `None`: none has begun within a beat.
    fn receive(&mut self, stopped: &Receiver<()>) -> Result<Option<(Header, Vec<u8>)>, SessionEnd> {
        let mut header = [0; HEADER];
        if !self.fill(&mut header, stopped, true)? {
            return Ok(None);
        }
        let header = Header::read(&header)?;
        let mut payload = vec![0; header.payload];
        self.fill(&mut payload, stopped, false)?;
        Ok(Some((header, payload)))
    }

    /// Fills a buffer; `false`: nothing came, where that may be.
    fn fill(
        &mut self,
        buffer: &mut [u8],
        stopped: &Receiver<()>,
        may_be_none: bool,
    ) -> Result<bool, SessionEnd> {
        let (mut filled, until) = (0, Instant::now() + PATIENCE);
        while filled < buffer.len() {
            // The other end goes when the gateway stops.
            if !matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
                return Err(SessionEnd::Stopped);
            }
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(SessionEnd::Lost("it has gone".to_owned())),
                Ok(count) => filled += count,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    if filled == 0 && may_be_none {
                        return Ok(false);
                    }
                    if Instant::now() >= until {
                        return Err(SessionEnd::Lost("it stopped in a message".to_owned()));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// The master's uptime at a time of this age; 0 if the master started later.
    fn ticks_at(&self, age: Duration) -> u32 {
        let now = u64::from(self.uptime) + hundredths(self.opened.elapsed());
        // TimeStamp is of 32 bits, as sysUpTime is.
        now.saturating_sub(hundredths(age)) as u32
    }
}

fn hundredths(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 10).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
