//! Owners of an external endpoint at an earlier time, from the event logs on disk that the
//! configuration names. The logs have events, and the configurations that were in force. The
//! configuration that is in force now says nothing about an earlier time.
//!
//! A search may read many files. So a gateway runs few at a time ([`Searches`]), each in its own
//! thread, and cancels searches without a waiting client.

use crate::who::{Answer, beside, reverse};
use natgate_engine::Timestamp;
use natgate_gateway::{Clock, LogTo, Settings};
use natgate_logs::{
    Coverage, Holder, Holders, InForceThen, OwnersInForce, SearchError, Span, Tenure, Traces,
    holders_of,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use tokio::sync::{Semaphore, oneshot};

/// Most searches that run at a time.
const MOST_RUNNING: usize = 2;

/// Most searches that run or wait.
const MOST_SEARCHES: usize = 16;

/// The reason why no holder is known.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// No log on disk is configured.
    #[error(
        "no log on disk to look in; add [[log]] with kind = \"spool\" and a folder, which then \
         tells of what happens from now on"
    )]
    NoLog,
    /// A log cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The search was cancelled.
    #[error("the search was broken off because nobody waits for its answer")]
    Cancelled,
    /// The time lies in the future.
    #[error("that time is still to come; {}", .coverage.sentence())]
    Future {
        /// The part of the time that the logs cover.
        coverage: Coverage,
    },
    /// Neither the logs nor the configuration of that time name a holder.
    #[error("{reason}; {}", .coverage.sentence())]
    Nobody {
        /// The reason, in one sentence without its full stop.
        reason: Box<str>,
        /// Owners by the configuration in force now, if the one of that time is not known.
        now: Vec<Answer>,
        /// The part of the time that the logs cover.
        coverage: Coverage,
        /// What else the logs of a node of a pair say.
        traces: Box<Traces>,
    },
}

/// The owners of an endpoint at an earlier time.
#[derive(Clone, Debug, PartialEq)]
pub struct Owners {
    /// Holders by the events of the log.
    pub holders: Vec<Holder>,
    /// Owners by the configuration that was in force then.
    pub answers: Vec<Answer>,
    /// The part of the time that the logs cover.
    pub coverage: Coverage,
    /// What else the log of a node of a pair says.
    pub traces: Traces,
}

/// Nodes whose logs [`had`] does not search: the partner of a pair. Its log tells what happened to
/// the mappings of a slice while it was the owner.
pub fn not_asked(settings: &Settings) -> Vec<String> {
    settings.fleet.iter().map(|fleet| fleet.partner.node.clone()).collect()
}

/// Finds the owners at that time: by the log's events, and by the configuration that the log
/// records for that time. The search calls `go_on` repeatedly and is cancelled when it returns
/// false.
///
/// # Errors
/// [`Unknown`].
pub fn had(
    settings: &Settings,
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
    go_on: &dyn Fn() -> bool,
) -> Result<Owners, Unknown> {
    had_in(settings, external, protocol, at, Tenure::default(), go_on)
}

/// As [`had`], for a node of a pair, which owned the endpoint's slice or not.
pub(crate) fn had_in(
    settings: &Settings,
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
    tenure: Tenure,
    go_on: &dyn Fn() -> bool,
) -> Result<Owners, Unknown> {
    let folders = settings.logs.iter().filter_map(|log| match &log.to {
        LogTo::Spool(spool) => Some(spool.folder.as_path()),
        _ => None,
    });
    let (mut nobody, mut coverage) = (None, Coverage::default());
    let mut traces = Traces::default();
    // The answer of a log that does not cover so late a time; another log may cover it.
    let mut uncertain = None;

    for folder in folders {
        match holders_of(folder, external, protocol, at, tenure, go_on) {
            Ok(found) if is_future(at, &found.coverage) => {
                coverage.add(found.coverage.clone());
                uncertain = Some(found);
            }
            Ok(found) => return Ok(with_statics(found, external, protocol)),
            Err(error @ SearchError::Io { .. }) => {
                return Err(Unknown::Unreadable(error.to_string()));
            }
            Err(SearchError::Cancelled) => return Err(Unknown::Cancelled),
            Err(error) => {
                coverage.add(error.coverage().cloned().unwrap_or_default());
                nobody = Some(error.to_string());
                let more = error.into_traces();
                traces.cut.extend(more.cut);
                traces.ended.extend(more.ended);
            }
        }
    }
    if (nobody.is_some() || uncertain.is_some()) && is_future(at, &coverage) {
        return Err(Unknown::Future { coverage });
    }
    if let Some(found) = uncertain {
        return Ok(with_statics(found, external, protocol));
    }
    let reason = nobody.ok_or(Unknown::NoLog)?;
    by_configuration(settings, external, protocol, reason, (coverage, traces))
}

/// Adds static mappings of the time to holders: those of protocols that have no holder, if the
/// question is about all protocols.
fn with_statics(found: Holders, external: (Ipv4Addr, u16), protocol: Option<u8>) -> Owners {
    let Holders { holders, coverage, traces } = found;
    let answered: Option<Vec<&str>> =
        holders.iter().map(|holder| holder.protocol.as_deref()).collect();
    let mut answers = Vec::new();
    if let (None, Some(answered), InForceThen::Known(known)) =
        (protocol, answered, &coverage.in_force)
    {
        add(&mut answers, known.iter().flat_map(|owners| beside(owners, external, &answered)));
    }
    Owners { holders, answers, coverage, traces }
}

fn add(answers: &mut Vec<Answer>, more: impl Iterator<Item = Answer>) {
    for answer in more {
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
}

/// Finds the owners by the configuration, if the log names no holder for the `reason`. Only the
/// configuration that the log records for that time gives owners: the one that is in force now may
/// be another.
fn by_configuration(
    settings: &Settings,
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    reason: String,
    (coverage, traces): (Coverage, Traces),
) -> Result<Owners, Unknown> {
    let (address, port) = external;
    let of = |owners: &OwnersInForce| reverse(owners, address, port, protocol);
    let mut answers = Vec::new();
    if let InForceThen::Known(known) = &coverage.in_force {
        add(&mut answers, known.iter().flat_map(|owners| of(owners).unwrap_or_default()));
        if !answers.is_empty() {
            return Ok(Owners { holders: Vec::new(), answers, coverage, traces });
        }
        let reason = format!("{address}:{port}: {reason}");
        let traces = Box::new(traces);
        return Err(Unknown::Nobody { reason: reason.into(), now: Vec::new(), coverage, traces });
    }
    let now = of(&OwnersInForce::of_settings(settings)).unwrap_or_default();
    let mut reason = format!("{address}:{port}: {reason}");
    if !now.is_empty() {
        let why = match coverage.in_force {
            InForceThen::Unrecorded => "it does not record the configuration of that time",
            _ => "it does not cover that time",
        };
        if !reason.contains("does not cover that time") {
            reason.push_str("; ");
            reason.push_str(why);
        }
        let each: Vec<String> = now.iter().map(Answer::sentence).collect();
        reason.push_str("; by the configuration in force now, ");
        reason.push_str(&each.join(" and "));
    }
    Err(Unknown::Nobody { reason: reason.into(), now, coverage, traces: Box::new(traces) })
}

/// True if a time lies in the future. A log covers later times than the present if the clock was
/// set back: such a time has been.
fn is_future(at: Timestamp, coverage: &Coverage) -> bool {
    let seconds = at.0 as f64 / 1e9;
    let covers = |span: &Span| span.from <= seconds && seconds <= span.until;
    at > Clock::default().now() && !coverage.covered.iter().any(covers)
}

/// The searches of a gateway: few run at a time, some wait, more are refused.
#[derive(Debug)]
pub struct Searches {
    /// A permit for each running search.
    turns: Arc<Semaphore>,
    /// A permit for each running or waiting search.
    places: Arc<Semaphore>,
}

/// The reason why there was no search.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too many searches run and wait.
    #[error(
        "{MOST_SEARCHES} searches of the log are under way, which is the most at a time; ask again \
         in a moment"
    )]
    Busy,
    /// The search ended without a result.
    #[error("the search failed inside; this is a bug of natgate's, or no thread can be made")]
    Failed,
}

/// Cancels a search when dropped.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Searches {
    /// Makes the limits; no search runs.
    pub fn new() -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        Self { turns: of(MOST_RUNNING), places: of(MOST_SEARCHES) }
    }

    /// Runs a search in its own thread when a permit is free. If this future is dropped because the
    /// client has gone, the search does not begin, or its `go_on` returns false.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn run<T: Send + 'static>(
        &self,
        search: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        self.run_then(search, |found, _| found).await
    }

    /// As [`Self::run`]; then, without the permit to run, does the `rest`, which may wait for
    /// another machine. Meanwhile it counts among those that run or wait.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn run_then<F: 'static, T: Send + 'static>(
        &self,
        search: impl FnOnce(&dyn Fn() -> bool) -> F + Send + 'static,
        rest: impl FnOnce(F, &dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Refused::Busy)?;
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let is_wanted = Arc::new(AtomicBool::new(true));
        let _waiting = Waiting(Arc::clone(&is_wanted));
        let (answer, answered) = oneshot::channel();
        let work = move || {
            let go_on = || is_wanted.load(Ordering::Relaxed);
            let found = search(&go_on);
            drop(turn);
            let found = rest(found, &go_on);
            // The next search may begin before this client reads the answer.
            drop(place);
            let _ = answer.send(found);
        };
        Builder::new().name("log search".into()).spawn(work).map_err(|_| Refused::Failed)?;
        answered.await.map_err(|_| Refused::Failed)
    }
}

impl Default for Searches {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_gateway::SpoolSettings;
    use natgate_logs::{InForce, Sink, SpoolSink};
    use proptest::prelude::*;
    use std::future::Future;
    use std::path::{Path, PathBuf};
    use std::pin::{Pin, pin};
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    /// Polls a future until it is ready; panics after a minute.
    fn finish<T>(mut future: Pin<&mut impl Future<Output = T>>) -> T {
        let (mut context, began) = (Context::from_waker(Waker::noop()), Instant::now());
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return done;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for(is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn few_run_some_wait_more_are_refused_and_those_without_a_client_end() {
        let searches = Searches::new();
        let running = Arc::new(AtomicUsize::new(0));
        let endless = || {
            let running = Arc::clone(&running);
            searches.run(move |go_on| {
                running.fetch_add(1, Ordering::Relaxed);
                while go_on() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                running.fetch_sub(1, Ordering::Relaxed);
            })
        };
        let count = || running.load(Ordering::Relaxed);
        let mut context = Context::from_waker(Waker::noop());
        let mut clients: Vec<_> = (0..MOST_SEARCHES).map(|_| Box::pin(endless())).collect();
        for client in &mut clients {
            assert!(client.as_mut().poll(&mut context).is_pending());
        }
        wait_for(|| count() == MOST_RUNNING);
        assert_eq!(finish(pin!(searches.run(|_| 7))), Err(Refused::Busy));
        // Clients that leave while they wait, or while their search runs, release their permits.
        clients.truncate(MOST_RUNNING + 1);
        assert_eq!(count(), MOST_RUNNING);
        drop(clients.remove(0));
        let waits = clients.last_mut().expect("one waits");
        wait_for(|| count() == MOST_RUNNING - 1);
        assert!(waits.as_mut().poll(&mut context).is_pending());
        wait_for(|| count() == MOST_RUNNING);
        drop(clients);
        wait_for(|| count() == 0);
        assert_eq!(finish(pin!(searches.run(|_| 7))), Ok(7));
        // A search that panics releases its permits.
        for _ in 0..=MOST_SEARCHES {
            let panics = searches.run(|_| -> () { panic!("as it is meant to") });
            assert_eq!(finish(pin!(panics)), Err(Refused::Failed));
        }
        assert_eq!(finish(pin!(searches.run(|_| 8))), Ok(8));
    }

    #[test]
    fn a_search_that_waits_for_another_machine_lets_others_run() {
        let (searches, waiting) = (Searches::new(), Arc::new(AtomicUsize::new(0)));
        let mut context = Context::from_waker(Waker::noop());
        let slow = || {
            let waiting = Arc::clone(&waiting);
            let wait = move |(), go_on: &dyn Fn() -> bool| {
                waiting.fetch_add(1, Ordering::Relaxed);
                while go_on() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            Box::pin(searches.run_then(|_| (), wait))
        };
        let (mut clients, began): (Vec<_>, _) =
            ((1..MOST_SEARCHES).map(|_| slow()).collect(), Instant::now());
        while waiting.load(Ordering::Relaxed) < clients.len() {
            assert!(began.elapsed() < Duration::from_secs(60), "they do not all wait");
            for client in &mut clients {
                assert!(client.as_mut().poll(&mut context).is_pending());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(finish(pin!(searches.run(|_| 7))), Ok(7));
        clients.push(slow());
        assert!(clients.last_mut().expect("it waits").as_mut().poll(&mut context).is_pending());
        assert_eq!(finish(pin!(searches.run(|_| 7))), Err(Refused::Busy));
        drop(clients);
        wait_for(|| finish(pin!(searches.run(|_| 8))) == Ok(8));
    }

    const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

    /// Begin of a history, seconds.
    const BEGIN: u64 = 1000;

    /// Configurations of a history: other kinds of pools, other shares, other static mappings.
    const CONFIGURATIONS: [&str; 6] = [
        "",
        "[nat]\nallocation = \"block\"\n",
        "[nat]\nallocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/24\"]\n",
        "[nat]\nallocation = \"deterministic\"\nsubscribers = [\"10.1.0.0/25\"]\n\
            [[static]]\ninternal = \"10.1.0.37:80\"\nexternal = \"203.0.113.1:20000\"\n\
            protocol = \"tcp\"\n",
        "[[static]]\ninternal = \"10.9.0.2:80\"\nexternal = \"203.0.113.1:20000\"\n\
            protocol = \"udp\"\n",
        "[[static]]\ninternal = \"10.9.0.3:80\"\nexternal = \"203.0.113.1:20000\"\n\
            protocol = \"tcp\"\n",
    ];

    fn settings(folder: &Path, number: usize) -> Settings {
        let text = format!(
            "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n\
             [[pool]]\naddresses = [\"203.0.113.1\"]\n{}\
             [[log]]\nkind = \"spool\"\nfolder = {folder:?}\n",
            CONFIGURATIONS[number]
        );
        crate::config::parse(&text, "t").unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn at(seconds: f64) -> Timestamp {
        Timestamp(0).plus(Duration::from_secs_f64(seconds))
    }

    /// A folder that is removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("natgate-past-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Begins a run of a gateway.
    fn start(folder: &Path, now: f64) -> SpoolSink {
        let (max_size, max_age) = (1 << 20, Duration::from_secs(1 << 30));
        let folder = folder.to_owned();
        let mut sink =
            SpoolSink::open(&SpoolSettings { folder, max_size, max_age }, false).unwrap();
        sink.connect(at(now)).unwrap();
        sink
    }

    fn put_in_force(sink: &mut SpoolSink, folder: &Path, number: usize, now: f64) {
        let engine = &settings(folder, number).engine;
        sink.put_in_force(&InForce::since(engine, at(now)), at(now)).unwrap();
        pass(sink, now);
    }

    fn pass(sink: &mut SpoolSink, now: f64) {
        sink.passed(at(now));
        sink.flush(at(now)).unwrap();
    }

    fn by(folder: &Path, number: usize, protocol: Option<u8>) -> Vec<Answer> {
        let owners = OwnersInForce::of(&settings(folder, number).engine);
        reverse(&owners, POOL, 20_000, protocol).unwrap_or_default()
    }

    #[test]
    fn a_spool_without_configurations_gives_no_owner_by_the_present_one() {
        let folder = Folder::new();
        let mut sink = start(&folder.0, 1000.0);
        pass(&mut sink, 1010.0);
        let found = had(&settings(&folder.0, 2), (POOL, 20_000), None, at(1005.0), &|| true);
        let error = found.expect_err("nobody is known");
        let Unknown::Nobody { now, coverage, .. } = &error else { panic!("{error}") };
        assert_eq!((now, coverage.covered.len()), (&by(&folder.0, 2, None), 1));
        let said = error.to_string();
        let why = "it does not record the configuration of that time; by the configuration in \
            force now, 10.0.0.75 has ports";
        assert!(said.contains(why), "{said}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        // Restarts and reloads with other kinds of pools and other static mappings, against a list.
        #[test]
        fn the_configuration_of_that_time_answers(
            steps in prop::collection::vec(
                (any::<bool>(), 0..CONFIGURATIONS.len(), 2..9_u32),
                1..12,
            ),
            present in 0..CONFIGURATIONS.len(),
        ) {
            let folder = Folder::new();
            let folder = &folder.0;
            let mut now = BEGIN as f64;
            let mut sink = start(folder, now);
            // Times, each with the configuration that was in force, if the log covers the time.
            let mut times = vec![(now - 5.0, None)];
            for (place, (is_restart, number, length)) in steps.into_iter().enumerate() {
                if is_restart && place > 0 {
                    sink.close(at(now)).unwrap();
                    times.push((now + 1.5, None));
                    now += 3.0;
                    sink = start(folder, now);
                }
                put_in_force(&mut sink, folder, number, now);
                times.push((now + 0.5, Some(number)));
                now += f64::from(length);
                pass(&mut sink, now);
                times.push((now - 0.5, Some(number)));
            }
            times.push((now + 1.0, None));
            let settings = settings(folder, present);
            for (time, in_force) in times {
                for protocol in [None, Some(6), Some(17)] {
                    let found = had(&settings, (POOL, 20_000), protocol, at(time), &|| true);
                    let (answers, present_ones, said) = match found {
                        Ok(found) => {
                            prop_assert!(!found.answers.is_empty() && found.holders.is_empty());
                            prop_assert_eq!(found.coverage.covered.len(), 1);
                            (found.answers, Vec::new(), String::new())
                        }
                        Err(error) => {
                            let said = error.to_string();
                            let Unknown::Nobody { now, .. } = error else { panic!("{error}") };
                            (Vec::new(), now, said)
                        }
                    };
                    let expected = in_force.map(|number| by(folder, number, protocol));
                    prop_assert_eq!(answers, expected.unwrap_or_default(), "at {}: {}", time, said);
                    let expected = match in_force {
                        Some(_) => Vec::new(),
                        None => by(folder, present, protocol),
                    };
                    let is_told = said.contains("does not cover that time")
                        && said.contains("by the configuration in force now, ");
                    prop_assert!(expected.is_empty() || is_told, "{}", said);
                    prop_assert_eq!(present_ones, expected, "at {}", time);
                }
            }
        }
    }
}
