//! Realms as text: links, subscribers, reachable realms.

use super::Meaning;
use crate::config::{DEFAULT_REALM, show_prefix};
use natgate_engine::RealmConfig;
use natgate_gateway::{RealmSettings, Settings, SideSettings};
use serde::Serialize;
use std::fmt::{self, Formatter};

/// The meaning of one realm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RealmMeaning {
    /// Name of the realm.
    pub name: String,
    /// Device of the realm's frames.
    pub device: String,
    /// VLAN of the realm's frames, if any.
    pub vlan: Option<u16>,
    /// Prefixes of the subscribers.
    pub subscribers: Vec<String>,
    /// Pool of subscribers without a rule.
    pub pool: String,
    /// Realms whose external endpoints this realm may reach.
    pub hairpin_to: Vec<String>,
}

/// The meanings of all realms but the default one.
pub(super) fn meanings(settings: &Settings) -> Vec<RealmMeaning> {
    let of = |(realm, link): (&RealmConfig, &RealmSettings)| RealmMeaning {
        name: realm.name.clone(),
        device: link.inside.device.clone(),
        vlan: link.vlan,
        subscribers: realm.subscribers.iter().map(|prefix| show_prefix(*prefix)).collect(),
        pool: settings.engine.pools[realm.default_pool].name.clone(),
        hairpin_to: (realm.hairpin_to.iter())
            .map(|other| settings.realm_name(*other).to_owned())
            .collect(),
    };
    settings.engine.realms.iter().zip(&settings.realms).map(of).collect()
}

impl Meaning {
    /// Writes the realms, if there are several.
    pub(super) fn realms(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let engine = &self.settings.engine;
        if engine.realms.is_empty() {
            return Ok(());
        }
        writeln!(f, "Realms")?;
        let device = &self.settings.inside.device;
        writeln!(f, "  {DEFAULT_REALM}: what comes by {device} without a VLAN tag")?;
        self.reaches(f, DEFAULT_REALM, &engine.hairpin_to)?;
        for (realm, link) in engine.realms.iter().zip(&self.settings.realms) {
            self.realm(f, realm, link)?;
        }
        Ok(())
    }

    fn realm(
        &self,
        f: &mut Formatter<'_>,
        realm: &RealmConfig,
        link: &RealmSettings,
    ) -> fmt::Result {
        let SideSettings { device, address, gateway, mtu, .. } = &link.inside;
        match link.vlan {
            Some(vlan) => write!(f, "  {}: VLAN {vlan} of {device}", realm.name)?,
            None => write!(f, "  {}: {device}", realm.name)?,
        }
        if let Some((address, len)) = address {
            write!(f, ", {address}/{len}")?;
        }
        if let Some(gateway) = gateway {
            write!(f, ", next hop {gateway}")?;
        }
        let silent = if realm.inside.silent { ", no ICMP errors" } else { "" };
        writeln!(f, ", MTU {mtu}{silent}")?;
        let subscribers: Vec<String> =
            realm.subscribers.iter().map(|prefix| show_prefix(*prefix)).collect();
        let pool = &self.settings.engine.pools[realm.default_pool].name;
        writeln!(f, "    subscribers: {}, pool {pool}", subscribers.join(", "))?;
        self.reaches(f, &realm.name, &realm.hairpin_to)
    }

    /// Writes the realms that a realm may reach by hairpin, or that it reaches none.
    fn reaches(&self, f: &mut Formatter<'_>, name: &str, others: &[u16]) -> fmt::Result {
        let others: Vec<&str> =
            others.iter().map(|other| self.settings.realm_name(*other)).collect();
        match others.is_empty() {
            true => writeln!(f, "    {name} reaches no other realm by hairpin"),
            false => writeln!(f, "    {name} reaches {} by hairpin", others.join(", ")),
        }
    }

    /// The suffix that names a realm, if there are several.
    pub(super) fn of_realm(&self, realm: u16) -> String {
        match self.settings.realms.is_empty() {
            true => String::new(),
            false => format!(" of {}", self.settings.realm_name(realm)),
        }
    }
}
