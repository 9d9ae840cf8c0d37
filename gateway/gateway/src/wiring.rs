//! Which devices there are and whose frames they carry; and how that becomes otherwise while the
//! gateway is at work, because realms come, go or move.
//!
//! Devices are opened by the thread that prepares other settings, and those that are not needed any
//! more go back there: the gateway's thread only puts them in their places.

use crate::limits::{MOST_DEVICES, OUTSIDE};
use crate::link::Link;
use crate::links::DeviceLinks;
use crate::router;
use crate::settings::Settings;
use crate::worker_error::{NarrowDevice, WorkerError};
use natgate_engine::{ConfigError, Side};
use natgate_io::{Device, LinkInfo};
use std::fmt::{self, Debug, Formatter};

/// Devices in the order of [`Settings::devices`].
pub(crate) type Devices = Vec<Box<dyn Device>>;

/// The links of each device, and of each realm the place of its device, if there is such a realm.
#[derive(Clone, Debug)]
pub(crate) struct LinkMap {
    pub(crate) carried: Vec<DeviceLinks>,
    places: Vec<Option<usize>>,
}

impl LinkMap {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { carried: DeviceLinks::by_device(settings), places: settings.places() }
    }

    /// The place of a link's device. Nothing is sent by links of realms that there are not.
    pub(crate) fn device_of(&self, link: Link) -> usize {
        match link.side {
            Side::Inside => self.places[usize::from(link.realm)].unwrap_or_default(),
            Side::Outside => OUTSIDE,
        }
    }

    /// The realms beside number 0.
    pub(crate) fn further(&self) -> impl Iterator<Item = u16> + '_ {
        let realms = (0..).zip(&self.places).skip(1);
        realms.filter_map(|(realm, place)| place.map(|_| realm))
    }

    /// The links of a device, by its place.
    pub(crate) fn links(&self, place: usize) -> impl Iterator<Item = Link> + '_ {
        self.carried[place].realms().map(move |realm| Link::new(side_of(place), realm))
    }

    /// Links of which the settings say more than their devices carry.
    pub(crate) fn narrow<'d>(
        &self,
        settings: &Settings,
        devices: impl Iterator<Item = &'d LinkInfo>,
    ) -> impl Iterator<Item = NarrowDevice> {
        let links = devices
            .enumerate()
            .flat_map(|(place, info)| self.links(place).map(move |link| (link, info)));
        links.filter_map(|(link, info)| {
            let configured = settings.link(link).mtu;
            (u32::from(configured) > info.mtu).then(|| NarrowDevice {
                name: router::name(settings, link),
                configured,
                device: info.name.clone(),
                actual: info.mtu,
            })
        })
    }
}

/// The side of a device, by its place.
pub(crate) fn side_of(place: usize) -> Side {
    if place == OUTSIDE { Side::Outside } else { Side::Inside }
}

/// Where a device comes from.
enum Source {
    /// It is there, at this place.
    Kept(usize),
    /// It is to be opened, or has been.
    New(String, Option<Box<dyn Device>>),
}

impl Debug for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(place) => write!(f, "Kept({place})"),
            Self::New(name, device) => write!(f, "New({name:?}, {})", device.is_some()),
        }
    }
}

/// What becomes of the wiring; made apart from the gateway.
#[derive(Debug)]
pub(crate) struct Rewiring {
    cables: LinkMap,
    sources: Vec<Source>,
    /// Largest packets of the links that devices have now, bytes, by the device's place.
    former_mtus: Vec<u16>,
}

impl Rewiring {
    /// What other settings make of it, before devices are opened.
    pub(crate) fn new(in_force: &Settings, new: &Settings) -> Result<Self, ConfigError> {
        let (before, names) = (in_force.devices(), new.devices());
        if names.len() > MOST_DEVICES {
            let message = format!("{} devices: at most {MOST_DEVICES} are possible", names.len());
            return Err(ConfigError { message });
        }
        let source = |(place, name): (usize, &str)| match before.iter().position(|old| *old == name)
        {
            // A side's device is its own.
            Some(old) if (old == OUTSIDE) == (place == OUTSIDE) => Source::Kept(old),
            _ => Source::New(name.to_owned(), None),
        };
        let sources = names.into_iter().enumerate().map(source).collect();
        let former = LinkMap::new(in_force);
        let longest = |place: usize| former.links(place).map(|link| in_force.link(link).mtu).max();
        let former_mtus = (0..before.len()).map(|place| longest(place).unwrap_or_default());
        let former_mtus = former_mtus.collect();
        Ok(Self { cables: LinkMap::new(new), sources, former_mtus })
    }

    /// The devices that are not open yet.
    pub(crate) fn missing(&self) -> Vec<String> {
        let name = |source: &Source| match source {
            Source::New(name, None) => Some(name.clone()),
            _ => None,
        };
        self.sources.iter().filter_map(name).collect()
    }

    /// Takes one that has been opened.
    pub(crate) fn put(&mut self, opened: &str, opened_device: Box<dyn Device>) {
        for source in &mut self.sources {
            if let Source::New(name, device @ None) = source
                && name == opened
            {
                *device = Some(opened_device);
                return;
            }
        }
    }

    /// Whether no device need be opened any more.
    pub(crate) fn is_ready(&self) -> bool {
        !self.sources.iter().any(|source| matches!(source, Source::New(_, None)))
    }

    /// Whether devices carry what the settings say of their links, as far as they are open. A
    /// device that is kept may have come to carry less than was said of it before.
    pub(crate) fn check(&self, settings: &Settings, devices: &Devices) -> Result<(), WorkerError> {
        let unknown = |name: &str| LinkInfo {
            name: name.to_owned(),
            index: 0,
            mac: Default::default(),
            mtu: u32::MAX,
            up: false,
        };
        let info = |source: &Source| match source {
            Source::Kept(place) => {
                let link = devices[*place].link();
                let mtu = link.mtu.max(self.former_mtus[*place].into());
                LinkInfo { mtu, ..link.clone() }
            }
            Source::New(name, device) => {
                device.as_ref().map_or_else(|| unknown(name), |device| device.link().clone())
            }
        };
        let infos: Vec<LinkInfo> = self.sources.iter().map(info).collect();
        self.cables.narrow(settings, infos.iter()).next().map_or(Ok(()), |one| Err(one.into()))
    }

    /// Puts the devices in their places; those that are not needed any more are handed back.
    ///
    /// # Panics
    /// When a device has not been opened.
    pub(crate) fn apply(self, cables: &mut LinkMap, devices: &mut Devices) -> Devices {
        let mut before: Vec<Option<Box<dyn Device>>> = devices.drain(..).map(Some).collect();
        devices.extend(self.sources.into_iter().map(|source| match source {
            Source::Kept(place) => before[place].take().expect("each is kept once"),
            Source::New(_, device) => device.expect("it has been opened"),
        }));
        *cables = self.cables;
        before.into_iter().flatten().collect()
    }
}
