//! Devices of a gateway and the links that they carry, and changes of both while the gateway works,
//! because realms come, go or move.
//!
//! The thread that prepares new settings opens devices, and gets back devices that are no longer
//! needed: the worker's thread only puts devices in their places.

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

/// Links of each device, and for each realm the index of its device, if the realm exists.
#[derive(Clone, Debug)]
pub(crate) struct LinkMap {
    pub(crate) carried: Vec<DeviceLinks>,
    places: Vec<Option<usize>>,
}

impl LinkMap {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { carried: DeviceLinks::by_device(settings), places: settings.places() }
    }

    /// Index of a link's device. Nothing is sent by links of realms that do not exist.
    pub(crate) fn device_of(&self, link: Link) -> usize {
        match link.side {
            Side::Inside => self.places[usize::from(link.realm)].unwrap_or_default(),
            Side::Outside => OUTSIDE,
        }
    }

    /// Numbers of the realms beside realm 0.
    pub(crate) fn further(&self) -> impl Iterator<Item = u16> + '_ {
        let realms = (0..).zip(&self.places).skip(1);
        realms.filter_map(|(realm, place)| place.map(|_| realm))
    }

    /// Links of a device, by its index.
    pub(crate) fn links(&self, place: usize) -> impl Iterator<Item = Link> + '_ {
        self.carried[place].realms().map(move |realm| Link::new(side_of(place), realm))
    }

    /// Links whose settings require more than their devices carry.
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

/// Side of a device, by its index.
pub(crate) fn side_of(place: usize) -> Side {
    if place == OUTSIDE { Side::Outside } else { Side::Inside }
}

/// Origin of a device.
enum Source {
    /// The device at this index stays.
    Kept(usize),
    /// The device is to be opened, or has been.
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

/// New wiring, prepared apart from the worker.
#[derive(Debug)]
pub(crate) struct Rewiring {
    cables: LinkMap,
    sources: Vec<Source>,
    /// MTUs of the links that devices have now, bytes, by the device's index.
    former_mtus: Vec<u16>,
}

impl Rewiring {
    /// Prepares the wiring of new settings; devices are not opened yet.
    pub(crate) fn new(in_force: &Settings, new: &Settings) -> Result<Self, ConfigError> {
        let (before, names) = (in_force.devices(), new.devices());
        if names.len() > MOST_DEVICES {
            let message = format!("{} devices: at most {MOST_DEVICES} are possible", names.len());
            return Err(ConfigError { message });
        }
        let source = |(place, name): (usize, &str)| match before.iter().position(|old| *old == name)
        {
            // A device does not change its side.
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

    /// Names of the devices that are not open yet.
    pub(crate) fn missing(&self) -> Vec<String> {
        let name = |source: &Source| match source {
            Source::New(name, None) => Some(name.clone()),
            _ => None,
        };
        self.sources.iter().filter_map(name).collect()
    }

    /// Adds a device that has been opened.
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

    /// True if all devices are open.
    pub(crate) fn is_ready(&self) -> bool {
        !self.sources.iter().any(|source| matches!(source, Source::New(_, None)))
    }

    /// Checks whether the open devices carry what the settings require of their links. A kept
    /// device may carry less than when it was opened.
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

    /// Puts the devices in their places; returns those that are no longer needed.
    ///
    /// # Panics
    /// If a device has not been opened.
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
