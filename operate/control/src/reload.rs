//! Reload of a running gateway: the file is read again, and its settings replace those in force, or
//! are only tried.
//!
//! All work but the switch itself happens in the calling thread. Only one reload runs at a time.

mod tables;

use self::tables::{changed, named};
use crate::config::{self, Configuration, Problem, Rivals};
use crate::host_names::HostNames;
use crate::json;
use natgate_engine::{Config, Departure, Leaving, ReconfigureError};
use natgate_gateway::{CommandError, Commander, Device, Prepared, Settings, WorkerSettings};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The reason why the settings in force stay.
#[derive(Debug)]
pub enum ReloadError {
    /// The new configuration is wrong, or changes a key that needs a restart.
    Configuration(Vec<Problem>),
    /// The gateway refused the new settings.
    Gateway(CommandError),
}

/// The result of a reload or of a trial.
#[derive(Debug)]
pub struct Reloaded {
    /// True for a trial.
    pub dry_run: bool,
    /// The tables of the configuration that differ.
    pub changed: Vec<&'static str>,
    /// Numbers of bindings of lw4o6 before and after, if other bindings are in force afterwards.
    pub bindings: Option<[usize; 2]>,
    /// Number of mappings that stay.
    pub stay: u64,
    /// Number of mappings that go, by [`Departure`].
    pub go: [u64; Departure::ALL.len()],
    /// Some of the mappings that would go, after a trial.
    pub named: Vec<Leaving>,
    /// Names of their realms.
    pub names: json::Names,
    /// Names of their hosts with numbers.
    pub(crate) hosts: HostNames,
    /// Legal but unwise values.
    pub warnings: Vec<Problem>,
}

impl Reloaded {
    /// Number of all mappings that go.
    pub fn gone(&self) -> u64 {
        self.go.iter().sum()
    }

    /// The result as an object for scripts.
    pub fn object(&self) -> Value {
        let by_reason = Departure::ALL.iter().zip(self.go);
        let by_reason: Map<String, Value> =
            by_reason.map(|(why, count)| (why.name().into(), count.into())).collect();
        let named = self.named.iter().map(|leaving| {
            let (id, realm) = (&leaving.mapping, leaving.mapping.realm);
            let mut object = json::mapping_id(id, self.hosts.of(realm, id.internal.address));
            if let Some(realm) = self.names.realm(realm) {
                object["realm"] = realm.into();
            }
            object["reason"] = leaving.why.name().into();
            object
        });
        json!({
            "ok": true,
            "dry_run": self.dry_run,
            "changed": self.changed,
            "bindings": self.bindings.map(|[from, to]| json!({ "before": from, "after": to })),
            "mappings": { "stay": self.stay, "go": self.gone(), "by_reason": by_reason },
            "named": named.collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

/// The settings in force.
struct InForce {
    /// The settings as the file gave them.
    read: Settings,
    /// The settings completed with the kernel's addresses of the sides.
    complete: Arc<Settings>,
    /// The text of the file, if short enough for comparison.
    text: Option<String>,
}

impl InForce {
    /// The tables that differ from these settings.
    fn differing(&self, new: &Self) -> Vec<&'static str> {
        let tables = changed(&self.read, &new.read);
        match (&self.text, &new.text) {
            (Some(old), Some(new)) => named(tables, old, new),
            _ => tables,
        }
    }
}

/// An attempt to reload: the difference between the files, and the result.
#[derive(Debug)]
pub struct Attempt {
    /// The difference as `key: old -> new`; the last entry may give the number of further ones.
    pub difference: Vec<String>,
    /// The result.
    pub result: Result<Reloaded, ReloadError>,
}

impl Attempt {
    /// The attempt in one sentence for the log.
    pub fn sentence(&self) -> String {
        let result = match &self.result {
            Ok(reloaded) => sentence(&reloaded.object()),
            Err(ReloadError::Configuration(problems)) => {
                let first: String =
                    problems.iter().take(1).map(|problem| one_line(&problem.to_string())).collect();
                match problems.len() {
                    0 | 1 => format!("refused: {first}"),
                    count => format!("refused for {count} problems, the first: {first}"),
                }
            }
            Err(ReloadError::Gateway(error)) => format!("not reloaded: {error}"),
        };
        let difference = self.difference.join("; ");
        if difference.is_empty() { result } else { format!("{result}; {difference}") }
    }
}

/// Most characters of a problem in the log's line about a reload.
const LONGEST: usize = 300;

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect()
}

/// The result of a reload or a trial in one sentence, from its JSON.
pub fn sentence(body: &Value) -> String {
    let dry_run = body["dry_run"] == true;
    let changed = body["changed"].as_array().map(Vec::as_slice).unwrap_or_default();
    let changed: Vec<&str> = changed.iter().filter_map(Value::as_str).collect();
    let changed = match (&changed[..], dry_run) {
        ([], false) => "reloaded, nothing is different".to_owned(),
        ([], true) => "nothing would be different".to_owned(),
        (changed, false) => format!("reloaded, with other {}", changed.join(", ")),
        (changed, true) => format!("would be reloaded, with other {}", changed.join(", ")),
    };
    let bindings = &body["bindings"];
    let bindings = match bindings.is_null() {
        true => String::new(),
        false => format!(" ({} bindings before, {} after)", bindings["before"], bindings["after"]),
    };
    let mappings = &body["mappings"];
    let (stay, go) = (&mappings["stay"], &mappings["go"]);
    let by_reason = mappings["by_reason"].as_object().into_iter().flatten();
    let reasons: Vec<String> = by_reason
        .filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0))
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let would = if dry_run { "would " } else { "" };
    let stays = match (stay.as_u64(), dry_run) {
        (Some(1), false) => "1 mapping stays".to_owned(),
        (Some(1), true) => "1 mapping would stay".to_owned(),
        _ => format!("{stay} mappings {would}stay"),
    };
    let goes = if go == 1 && !dry_run { "goes" } else { "go" };
    format!("{changed}{bindings}; {stays}, {go} {would}{goes}{reasons}")
}

/// Opens a device by name, once for each worker.
pub type Open = Box<dyn Fn(&str) -> Result<Vec<Box<dyn Device>>, String> + Send + Sync>;

/// Adds a worker to a gateway that will have these settings.
pub type Join = Box<dyn Fn(&Commander, &Settings) -> Result<(), String> + Send + Sync>;

/// Checks, without opening it, that there is a device by name that can be opened.
pub type Find = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Opens the event logs of new settings. The returned function puts them in force, and records the
/// configuration. A dry run only checks them.
pub type Logging =
    Box<dyn Fn(&Settings, Purpose) -> Result<Box<dyn FnOnce() + Send>, String> + Send + Sync>;

/// Reads the certificates of other machines' clients again. The returned function puts them in
/// force.
pub type Access = Box<dyn Fn(&Settings) -> Result<Box<dyn FnOnce() + Send>, String> + Send + Sync>;

/// Purpose of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A reload, which may take effect.
    Reload,
    /// A dry run: it makes no files and no folders.
    DryRun,
}

/// Claims exclusive resources (devices, external addresses) for this gateway; an error names the
/// gateway that has one. The returned function releases the earlier claims.
pub type Claiming =
    Box<dyn Fn(&Settings, Purpose) -> Result<Box<dyn FnOnce() + Send>, String> + Send + Sync>;

/// Reloads the configuration of a gateway.
pub struct Reloader {
    file: PathBuf,
    commander: Commander,
    open: Open,
    find: Option<Find>,
    join: Join,
    in_force: Mutex<InForce>,
    /// True while a [`Hold`] forbids further reloads.
    is_held: Arc<AtomicBool>,
    /// The settings in force, for readers. The lock is held briefly.
    seen: Mutex<Arc<Settings>>,
    tally: Mutex<Tally>,
    /// Drain time in force, milliseconds. The thread that ends the gateway reads it without waiting
    /// for a reload.
    drain: AtomicU64,
    /// Notified at the start and the end of a reload.
    tell: Option<ReloadObserver>,
    logging: Option<Logging>,
    access: Option<Access>,
    claiming: Option<Claiming>,
}

/// Forbids further reloads until dropped.
#[derive(Debug)]
pub struct Hold(Arc<AtomicBool>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Called when a reload starts (`true`) and when it ends (`false`).
pub type ReloadObserver = Box<dyn Fn(bool) + Send + Sync>;

/// Reports the end of a reload when dropped.
struct UnderWay<'a>(Option<&'a ReloadObserver>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(tell) = self.0 {
            tell(false);
        }
    }
}

/// Number of reloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reloads that put new settings in force.
    pub succeeded: u64,
    /// Reloads that failed.
    pub failed: u64,
    /// Time of the last successful reload; `None`: none since the start.
    pub last_success: Option<SystemTime>,
}

impl Reloader {
    /// Makes the reloader of a gateway that was started with a file. `read` has the settings as the
    /// file gave them, `complete` with the kernel's addresses of the sides. `open` opens devices of
    /// new realms, `join` adds workers.
    pub fn new(
        file: &Path,
        read: Settings,
        complete: Settings,
        commander: Commander,
        open: Open,
        join: Join,
    ) -> Self {
        let drain = AtomicU64::new(millis(&read));
        let complete = Arc::new(complete);
        let seen = Mutex::new(Arc::clone(&complete));
        let text = config::read_file(file).ok().and_then(short).filter(|text| {
            // The file may have changed since the start.
            let said = config::read_text(text, "");
            said.is_ok_and(|said| said.settings == read)
        });
        let in_force = Mutex::new(InForce { read, complete, text });
        Self {
            file: file.to_owned(),
            commander,
            open,
            find: None,
            join,
            in_force,
            is_held: Arc::default(),
            seen,
            tally: Mutex::default(),
            drain,
            tell: None,
            logging: None,
            access: None,
            claiming: None,
        }
    }

    /// Waits for a reload that is under way, and returns the settings in force. They stay in force
    /// until the lock is dropped; a reload is refused meanwhile.
    pub fn hold(&self) -> (Arc<Settings>, Hold) {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_held.store(true, Ordering::Release);
        (Arc::clone(&in_force.complete), Hold(Arc::clone(&self.is_held)))
    }

    /// The command queues of the gateway.
    pub fn commander(&self) -> &Commander {
        &self.commander
    }

    /// Locks the settings in force for a change.
    fn change(&self) -> Result<MutexGuard<'_, InForce>, ReloadError> {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        match self.is_held.load(Ordering::Acquire) {
            true => Err(ReloadError::Gateway(CommandError::HandingOver)),
            false => Ok(in_force),
        }
    }

    /// The complete settings in force, with the realm numbers of the running gateway.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes the settings in force to readers.
    fn show(&self, in_force: &InForce) {
        let now = Arc::clone(&in_force.complete);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Number of reloads so far.
    pub fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an observer of reloads.
    pub fn telling(self, tell: ReloadObserver) -> Self {
        Self { tell: Some(tell), ..self }
    }

    /// Adds event logs that a reload replaces.
    pub fn logging(self, logging: Logging) -> Self {
        Self { logging: Some(logging), ..self }
    }

    /// Adds a search for devices, which a dry run makes in place of opening them.
    pub fn finding(self, find: Find) -> Self {
        Self { find: Some(find), ..self }
    }

    /// Adds clients of other machines, whose certificates a reload rereads.
    pub fn admitting(self, access: Access) -> Self {
        Self { access: Some(access), ..self }
    }

    /// Adds claims of exclusive resources.
    pub fn claiming(self, claiming: Claiming) -> Self {
        Self { claiming: Some(claiming), ..self }
    }

    /// Drain time of the gateway before it ends, from the settings in force.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain.load(Ordering::Relaxed))
    }

    /// Reads the file and puts it in force.
    ///
    /// # Errors
    /// [`ReloadError`]; then nothing has changed.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        self.attempt().result
    }

    /// Reads the file and puts it in force. Also returns the difference. If the result is an error,
    /// nothing has changed.
    pub fn attempt(&self) -> Attempt {
        let mut difference = Vec::new();
        let reloaded = self.put_in_force(&mut difference);
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        match &reloaded {
            Ok(_) => {
                tally.succeeded += 1;
                tally.last_success = Some(SystemTime::now());
            }
            Err(_) => tally.failed += 1,
        }
        Attempt { difference, result: reloaded }
    }

    fn put_in_force(&self, difference: &mut Vec<String>) -> Result<Reloaded, ReloadError> {
        let mut in_force = self.change()?;
        let under_way = UnderWay(self.tell.as_ref());
        if let Some(tell) = under_way.0 {
            tell(true);
        }
        let text = self.text()?;
        if let (Some(old), true) = (&in_force.text, text.len() <= config::MOST_TEXT) {
            *difference = config::difference(old, &text);
        }
        let (new, mut prepared, warnings) = self.prepare(&in_force, text)?;
        let changed = in_force.differing(&new);
        let bindings = tables::bindings(&in_force.read, &new.read);
        let access = self.read_access(&new.read)?;
        let claims = self.claim(&new.complete, Purpose::Reload)?;
        prepared.open(&self.open).map_err(|message| self.wrong(message))?;
        let logs = self.open_logs(&new.complete, Purpose::Reload)?;
        let done = self.commander.reconfigure(prepared);
        let done = done.map_err(|error| self.not_taken(error, &new))?;
        for apply in [logs, access, claims].into_iter().flatten() {
            apply();
        }
        self.drain.store(millis(&new.read), Ordering::Relaxed);
        let workers = new.complete.workers.clone();
        let before = std::mem::replace(&mut *in_force, new).complete.workers.clone();
        self.show(&in_force);
        for count in before.count + 1..=workers.count {
            let cores = workers.cores.iter().copied().take(count).collect();
            let there = WorkerSettings { count, cores };
            let with = Settings { workers: there.clone(), ..Settings::clone(&in_force.complete) };
            if let Err(message) = self.join(&with) {
                let there = match count - 1 == before.count {
                    true => before,
                    false => WorkerSettings { count: count - 1, ..there },
                };
                in_force.read.workers.clone_from(&there);
                Arc::make_mut(&mut in_force.complete).workers = there;
                self.show(&in_force);
                return Err(self.wrong(format!(
                    "worker {count} of {} cannot join: {message}; everything else is in force",
                    workers.count
                )));
            }
        }
        let (stay, go, named) = (done.stayed, done.went, Vec::new());
        let names = json::Names::of_settings(&in_force.complete);
        let hosts = HostNames::default();
        Ok(Reloaded { dry_run: false, changed, bindings, stay, go, named, names, hosts, warnings })
    }

    /// Reads the file and determines the effects of a reload without doing it. Names at most `most`
    /// of the mappings that would go.
    ///
    /// # Errors
    /// [`ReloadError`]: a reload would be refused.
    pub fn try_out(&self, most: usize) -> Result<Reloaded, ReloadError> {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let (new, prepared, warnings) = self.prepare(&in_force, self.text()?)?;
        let changed = in_force.differing(&new);
        let bindings = tables::bindings(&in_force.read, &new.read);
        // A trial refuses the same files as a reload.
        self.read_access(&new.read)?;
        self.claim(&new.complete, Purpose::DryRun)?;
        if let Some(find) = &self.find {
            let found = prepared.missing().iter().try_for_each(|name| find(name));
            found.map_err(|message| self.wrong(message))?;
        }
        self.open_logs(&new.complete, Purpose::DryRun)?;
        let review = self.commander.review(prepared, most);
        let review = review.map_err(|error| self.not_taken(error, &new))?;
        let (stay, go, named) = (review.stay, review.go, review.named);
        // Mappings of removed realms are among them.
        let names = json::Names::of_settings(&new.complete);
        let hosts =
            named.iter().map(|one: &Leaving| (one.mapping.realm, one.mapping.internal.address));
        let hosts = HostNames::ask(&self.commander, &in_force.complete, hosts);
        let hosts = hosts.map_err(ReloadError::Gateway)?;
        Ok(Reloaded { dry_run: true, changed, bindings, stay, go, named, names, hosts, warnings })
    }

    fn join(&self, settings: &Settings) -> Result<(), String> {
        let numbered = self.commander.numbered().map_err(|error| error.to_string())?;
        if !numbered.is_of(&settings.engine) {
            let what = "a pool or realm that has left, or has moved, still has mappings";
            return Err(format!("{what}; reload again when they have gone, or restart natgate"));
        }
        (self.join)(&self.commander, settings)
    }

    /// A problem of the file as a whole.
    fn wrong(&self, message: String) -> ReloadError {
        let name = self.file.display().to_string();
        ReloadError::Configuration(vec![Problem::of_file(&name, message)])
    }

    fn not_taken(&self, error: CommandError, new: &InForce) -> ReloadError {
        match error {
            CommandError::Device(error) => self.wrong(error.to_string()),
            CommandError::Hosts(message) => self.wrong(message),
            CommandError::Refused(ReconfigureError::Block(conflict)) => {
                let text = new.text.as_deref().unwrap_or_default();
                let problem = config::block_conflict(text, &self.file, &conflict, &new.complete);
                ReloadError::Configuration(vec![problem])
            }
            error => ReloadError::Gateway(error),
        }
    }

    fn text(&self) -> Result<String, ReloadError> {
        config::read_file(&self.file).map_err(ReloadError::Configuration)
    }

    /// Reads the certificates of other machines' clients again.
    fn read_access(&self, new: &Settings) -> Result<Option<Box<dyn FnOnce() + Send>>, ReloadError> {
        let access = self.access.as_ref().map(|read| read(new)).transpose();
        access.map_err(|message| self.wrong(message))
    }

    /// Opens the event logs that the new settings need and those in force do not.
    fn open_logs(
        &self,
        new: &Settings,
        purpose: Purpose,
    ) -> Result<Option<Box<dyn FnOnce() + Send>>, ReloadError> {
        let logs = self.logging.as_ref().map(|open| open(new, purpose)).transpose();
        logs.map_err(|message| self.wrong(message))
    }

    /// Claims the resources that the new settings need and those in force do not.
    fn claim(
        &self,
        new: &Settings,
        purpose: Purpose,
    ) -> Result<Option<Box<dyn FnOnce() + Send>>, ReloadError> {
        let claims = self.claiming.as_ref().map(|claim| claim(new, purpose)).transpose();
        claims.map_err(|message| self.wrong(message))
    }

    fn prepare(
        &self,
        in_force: &InForce,
        text: String,
    ) -> Result<(InForce, Prepared, Vec<Problem>), ReloadError> {
        let Configuration { settings: mut read, warnings, .. } =
            config::reread_text(&text, &self.file, &in_force.read)
                .map_err(ReloadError::Configuration)?;
        keep_bindings(&in_force.read, &mut read);
        // The sides are unchanged; otherwise the settings had been refused.
        let Settings { engine, inside, outside, kernel, .. } = &*in_force.complete;
        let (engine_inside, engine_outside) = (engine.inside.clone(), engine.outside.clone());
        let mut complete = Settings {
            engine: Config {
                inside: engine_inside,
                outside: engine_outside,
                ..read.engine.clone()
            },
            inside: inside.clone(),
            outside: outside.clone(),
            kernel: kernel.clone(),
            ..read.clone()
        };
        complete.derive_inside_routes();
        let hosts: Vec<_> = complete.ipv6.static_hosts().copied().collect();
        let numbered = self.commander.numbered_for(&hosts);
        let numbered = numbered.map_err(|error| match error {
            CommandError::Hosts(message) => self.wrong(message),
            error => ReloadError::Gateway(error),
        })?;
        let prepared = Prepared::new(&in_force.complete, numbered, complete)
            .map_err(|error| self.wrong(error.message))?;
        let complete = Arc::new(prepared.settings().clone());
        Ok((InForce { read, complete, text: short(text) }, prepared, warnings))
    }
}

/// Keeps the bindings in force, with the changes by requests, if their file is as it was and
/// nothing else in the new settings claims what a binding has.
fn keep_bindings(old: &Settings, new: &mut Settings) {
    let (Some(before), Some(now)) = (&old.bindings, &new.bindings) else { return };
    let address = |settings: &Settings| settings.ipv6.lw4o6.as_ref().map(|one| one.address);
    let is_same = (before.path(), before.file()) == (now.path(), now.file())
        && address(old) == address(new)
        && now.file().exists();
    let (kept, table, rivals) = (before.clone(), before.table(), Rivals::of(new));
    if is_same && table.iter().all(|binding| rivals.fault(&binding).is_none()) {
        new.bindings = Some(kept);
        if let Some(lw4o6) = &mut new.ipv6.lw4o6 {
            lw4o6.bindings = table;
        }
    }
}

/// Returns a text that is short enough for comparison.
fn short(text: String) -> Option<String> {
    (text.len() <= config::MOST_TEXT).then_some(text)
}

/// Drain time of the settings, milliseconds.
fn millis(settings: &Settings) -> u64 {
    settings.kernel.drain().as_millis() as u64
}
