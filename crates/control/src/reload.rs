//! A new configuration for a running gateway: the file is read anew, and what it says takes the place
//! of what is in force, or is only tried.
//!
//! Everything but the switch itself is done in the thread that asks. One reload is done at a time.

use crate::config::{self, Configuration, DEFAULT_REALM, Problem};
use crate::json;
use natgate_engine::{Config, Departure, Leaving, Rule};
use natgate_gateway::{
    CommandError, Commander, Device, Prepared, RealmSettings, Route, Settings, WorkerSettings,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Why the configuration in force stays.
#[derive(Debug)]
pub enum ReloadError {
    /// The new one is wrong, or changes what only a restart does.
    Configuration(Vec<Problem>),
    /// The gateway did not take it.
    Gateway(CommandError),
}

/// What a reload has come to, or would come to.
#[derive(Debug)]
pub struct Reloaded {
    /// Whether it was only tried.
    pub dry_run: bool,
    /// The tables whose meaning is another.
    pub changed: Vec<&'static str>,
    /// Mappings that stay.
    pub stay: u64,
    /// Mappings that go, by [`Departure`].
    pub go: [u64; Departure::ALL.len()],
    /// Some of those that would go, when it was tried.
    pub named: Vec<Leaving>,
    /// The realms that they are of.
    pub names: json::Names,
    /// What is legal and yet unwise.
    pub warnings: Vec<Problem>,
}

impl Reloaded {
    /// All mappings that go.
    pub fn gone(&self) -> u64 {
        self.go.iter().sum()
    }

    /// As scripts read it.
    pub fn object(&self) -> Value {
        let by_reason = Departure::ALL.iter().zip(self.go);
        let by_reason: Map<String, Value> =
            by_reason.map(|(why, count)| (why.name().into(), count.into())).collect();
        let named = self.named.iter().map(|leaving| {
            let mut object = json::mapping_id(&leaving.mapping);
            if let Some(realm) = self.names.realm(leaving.mapping.realm) {
                object["realm"] = realm.into();
            }
            object["reason"] = leaving.why.name().into();
            object
        });
        json!({
            "ok": true,
            "dry_run": self.dry_run,
            "changed": self.changed,
            "mappings": { "stay": self.stay, "go": self.gone(), "by_reason": by_reason },
            "named": named.collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

/// What is in force.
struct InForce {
    /// As the file said it.
    read: Settings,
    /// With what the kernel knew of the sides.
    complete: Settings,
}

/// Opens a device by its name, once for each worker, or says why it cannot be.
pub type Open = Box<dyn Fn(&str) -> Result<Vec<Box<dyn Device>>, String> + Send + Sync>;

/// Has another worker join a gateway that is to have these settings, or says why none can.
pub type Join = Box<dyn Fn(&Commander, &Settings) -> Result<(), String> + Send + Sync>;

/// Reads a gateway's configuration anew.
pub struct Reloader {
    file: PathBuf,
    commander: Commander,
    open: Open,
    join: Join,
    in_force: Mutex<InForce>,
}

impl Reloader {
    /// For a gateway that was started with a file: what the file said, and that with what the kernel
    /// knew besides of the sides. `open` is asked for the devices of new realms, `join` for workers.
    pub fn new(
        file: &Path,
        read: Settings,
        complete: Settings,
        commander: Commander,
        open: Open,
        join: Join,
    ) -> Self {
        let in_force = Mutex::new(InForce { read, complete });
        Self { file: file.to_owned(), commander, open, join, in_force }
    }

    /// Reads the file and puts it in force.
    ///
    /// # Errors
    /// [`ReloadError`]; then nothing has changed.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let (new, mut prepared, warnings) = self.prepare(&in_force)?;
        let changed = changed(&in_force.read, &new.read);
        prepared.open(&self.open).map_err(|message| self.wrong(message))?;
        let done = self.commander.reconfigure(prepared).map_err(|error| self.not_taken(error))?;
        let workers = new.complete.workers.clone();
        let before = std::mem::replace(&mut *in_force, new).complete.workers;
        for count in before.count + 1..=workers.count {
            let cores = workers.cores.iter().copied().take(count).collect();
            let there = WorkerSettings { count, cores };
            let with = Settings { workers: there.clone(), ..in_force.complete.clone() };
            if let Err(message) = self.join(&with) {
                let there = match count - 1 == before.count {
                    true => before,
                    false => WorkerSettings { count: count - 1, ..there },
                };
                in_force.read.workers.clone_from(&there);
                in_force.complete.workers = there;
                return Err(self.wrong(format!(
                    "worker {count} of {} cannot join: {message}; everything else is in force",
                    workers.count
                )));
            }
        }
        let (stay, go, named) = (done.stayed, done.went, Vec::new());
        let names = json::Names::of(&in_force.complete.engine);
        Ok(Reloaded { dry_run: false, changed, stay, go, named, names, warnings })
    }

    /// Reads the file and finds out what would happen were it put in force; names at most so many of
    /// the mappings that would go.
    ///
    /// # Errors
    /// [`ReloadError`]: it would be refused.
    pub fn try_out(&self, most: usize) -> Result<Reloaded, ReloadError> {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let (new, prepared, warnings) = self.prepare(&in_force)?;
        let changed = changed(&in_force.read, &new.read);
        let review =
            self.commander.review(prepared, most).map_err(|error| self.not_taken(error))?;
        let (stay, go, named) = (review.stay, review.go, review.named);
        // Those of realms that would go are among them.
        let names = json::Names::of(&new.complete.engine);
        Ok(Reloaded { dry_run: true, changed, stay, go, named, names, warnings })
    }

    fn join(&self, settings: &Settings) -> Result<(), String> {
        let numbered = self.commander.numbered().map_err(|error| error.to_string())?;
        if !numbered.is_of(&settings.engine) {
            let what = "a pool or realm that has left, or has moved, still has mappings";
            return Err(format!("{what}; reload again when they have gone, or restart natgate"));
        }
        (self.join)(&self.commander, settings)
    }

    /// What is wrong with the file as a whole.
    fn wrong(&self, message: String) -> ReloadError {
        let name = self.file.display().to_string();
        ReloadError::Configuration(vec![Problem::of_file(&name, message)])
    }

    fn not_taken(&self, error: CommandError) -> ReloadError {
        match error {
            CommandError::Device(error) => self.wrong(error.to_string()),
            error => ReloadError::Gateway(error),
        }
    }

    fn prepare(
        &self,
        in_force: &InForce,
    ) -> Result<(InForce, Prepared, Vec<Problem>), ReloadError> {
        let Configuration { settings: read, warnings } =
            config::reread(&self.file, &in_force.read).map_err(ReloadError::Configuration)?;
        // The sides are as they were, or it would have been refused.
        let InForce { complete: Settings { engine, inside, outside, kernel, .. }, .. } = in_force;
        let (engine_inside, engine_outside) = (engine.inside.clone(), engine.outside.clone());
        let complete = Settings {
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
        let numbered = self.commander.numbered().map_err(ReloadError::Gateway)?;
        let prepared = Prepared::new(&in_force.complete, numbered, complete)
            .map_err(|error| self.wrong(error.message))?;
        let complete = prepared.settings().clone();
        Ok((InForce { read, complete }, prepared, warnings))
    }
}

/// The tables whose meaning is another.
fn changed(old: &Settings, new: &Settings) -> Vec<&'static str> {
    // In which order realms stand is no matter.
    let links = |settings: &Settings| -> BTreeMap<String, RealmSettings> {
        let realms = settings.realms.iter().cloned();
        realms
            .map(|realm| (realm.name.clone(), RealmSettings { routes: vec![], ..realm }))
            .collect()
    };
    let routes = |settings: &Settings| -> BTreeMap<String, Vec<Route>> {
        let realms = settings.realms.iter().map(|realm| (realm.name.clone(), realm.routes.clone()));
        let default = (DEFAULT_REALM.to_owned(), settings.routes.clone());
        realms.filter(|(_, routes)| !routes.is_empty()).chain([default]).collect()
    };
    let (links_differ, routes_differ) = (links(old) != links(new), routes(old) != routes(new));
    let workers_differ = old.workers != new.workers;
    let (old, new) = (&old.engine, &new.engine.in_numbers_of(&old.engine));
    let pools = |config: &Config| (config.pools.clone(), config.default_pool);
    let nat = |config: &Config| Config {
        pools: Vec::new(),
        default_pool: 0,
        rules: Vec::new(),
        statics: Vec::new(),
        limits: new.limits.clone(),
        timeouts: new.timeouts.clone(),
        classes: Vec::new(),
        port_timeouts: Vec::new(),
        timeout_sets: Vec::new(),
        realms: Vec::new(),
        ..config.clone()
    };
    let rules = |config: &Config| {
        let realms = config.realms.iter().filter(|realm| !realm.rules.is_empty());
        let of_realms: BTreeMap<String, Vec<Rule>> =
            realms.map(|realm| (realm.name.clone(), realm.rules.clone())).collect();
        (config.rules.clone(), of_realms, config.timeout_sets.clone())
    };
    let realms = |config: &Config| {
        let mut realms = config.realms.clone();
        for realm in &mut realms {
            (realm.rules, realm.order) = (Vec::new(), 0);
        }
        realms
    };
    let without_rules = |config: &Config| nat(&Config { rules: Vec::new(), ..config.clone() });
    let tables = [
        (pools(old) != pools(new), "pool"),
        (without_rules(old) != without_rules(new), "nat"),
        (old.limits != new.limits, "limits"),
        (old.classes != new.classes, "class"),
        (old.timeouts != new.timeouts, "timeouts"),
        (old.port_timeouts != new.port_timeouts, "timeout"),
        (old.statics != new.statics, "static"),
        (realms(old) != realms(new) || links_differ, "realm"),
        (rules(old) != rules(new), "rule"),
        (routes_differ, "route"),
        (workers_differ, "workers"),
    ];
    tables.into_iter().filter_map(|(differs, table)| differs.then_some(table)).collect()
}
