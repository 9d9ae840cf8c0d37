//! A new configuration for a running gateway: the file is read anew, and what it says takes the place
//! of what is in force, or is only tried.
//!
//! Everything but the switch itself is done in the thread that asks. One reload is done at a time.

use crate::config::{self, Configuration, Problem};
use crate::json;
use natgate_engine::{Config, Departure, Leaving};
use natgate_gateway::{CommandError, Commander, Prepared, Settings};
use serde_json::{Map, Value, json};
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

/// Reads a gateway's configuration anew.
pub struct Reloader {
    file: PathBuf,
    commander: Commander,
    in_force: Mutex<InForce>,
}

impl Reloader {
    /// For a gateway that was started with a file: what the file said, and that with what the kernel
    /// knew besides of the sides.
    pub fn new(file: &Path, read: Settings, complete: Settings, commander: Commander) -> Self {
        let in_force = Mutex::new(InForce { read, complete });
        Self { file: file.to_owned(), commander, in_force }
    }

    /// Reads the file and puts it in force.
    ///
    /// # Errors
    /// [`ReloadError`]; then nothing has changed.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let (new, prepared, warnings) = self.prepare(&in_force)?;
        let changed = changed(&in_force.read.engine, &new.read.engine);
        let done = self.commander.reconfigure(prepared).map_err(ReloadError::Gateway)?;
        *in_force = new;
        let (stay, go, named) = (done.stayed, done.went, Vec::new());
        let names = json::Names::of(&in_force.read.engine);
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
        let changed = changed(&in_force.read.engine, &new.read.engine);
        let review = self.commander.review(prepared, most).map_err(ReloadError::Gateway)?;
        let (stay, go, named) = (review.stay, review.go, review.named);
        let names = json::Names::of(&new.read.engine);
        Ok(Reloaded { dry_run: true, changed, stay, go, named, names, warnings })
    }

    fn prepare(
        &self,
        in_force: &InForce,
    ) -> Result<(InForce, Prepared, Vec<Problem>), ReloadError> {
        let Configuration { settings: read, warnings } =
            config::reread(&self.file, &in_force.read).map_err(ReloadError::Configuration)?;
        // The sides are as they were, or it would have been refused.
        let InForce { complete: Settings { engine, inside, outside, .. }, .. } = in_force;
        let (engine_inside, engine_outside) = (engine.inside.clone(), engine.outside.clone());
        let complete = Settings {
            engine: Config {
                inside: engine_inside,
                outside: engine_outside,
                ..read.engine.clone()
            },
            inside: inside.clone(),
            outside: outside.clone(),
            ..read.clone()
        };
        let pools = self.commander.pools().map_err(ReloadError::Gateway)?;
        let prepared =
            Prepared::new(&in_force.complete, pools, complete.clone()).map_err(|error| {
                let name = self.file.display().to_string();
                ReloadError::Configuration(vec![Problem::of_file(&name, error.message)])
            })?;
        Ok((InForce { read, complete }, prepared, warnings))
    }
}

/// The tables whose meaning is another.
fn changed(old: &Config, new: &Config) -> Vec<&'static str> {
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
        let of_realms: Vec<_> = config.realms.iter().map(|realm| realm.rules.clone()).collect();
        (config.rules.clone(), of_realms, config.timeout_sets.clone())
    };
    let realms = |config: &Config| {
        let mut realms = config.realms.clone();
        realms.iter_mut().for_each(|realm| realm.rules = Vec::new());
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
        (realms(old) != realms(new), "realm"),
        (rules(old) != rules(new), "rule"),
    ];
    tables.into_iter().filter_map(|(differs, table)| differs.then_some(table)).collect()
}
