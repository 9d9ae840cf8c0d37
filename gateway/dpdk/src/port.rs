//! A port: found or made, configured, and closed when the last of its queues is dropped.
#![allow(unsafe_code)]

use crate::eal::{Buffers, check, split};
use crate::sys::{self, Limits, Link, PortStatistics};
use crate::{Error, port_name};
use natgate_io::LinkInfo;
use natgate_wire::arp::Mac;
use std::collections::BTreeSet;
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prefix of the names of virtual network drivers.
const VIRTUAL: &str = "net_";

/// Open ports. The lock is held for changes of a port, and for questions that DPDK permits to one
/// thread at a time.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// An open port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: u16,
    name: String,
    /// The port's name for DPDK, if this process made the port.
    made: Option<CString>,
}

impl Port {
    pub(crate) fn open(
        device: &str,
        mtu: u16,
        queues: u16,
        buffers: Buffers,
    ) -> Result<Self, Error> {
        let mut open = control();
        let (id, made) = find_or_make(device)?;
        if !open.insert(id) {
            return Err(Error::InUse(device.to_owned()));
        }
        drop(open);
        // From here on, dropping the port undoes everything.
        let port = Self { id, name: port_name(device).to_owned(), made };
        port.configure(device, mtu, queues, buffers)?;
        Ok(port)
    }

    fn configure(
        &self,
        device: &str,
        mtu: u16,
        queues: u16,
        buffers: Buffers,
    ) -> Result<(), Error> {
        let failed = |what: &'static str| {
            move |reason| Error::System { what, device: device.to_owned(), reason }
        };
        let _control = control();
        let mut limits = Limits::default();
        // SAFETY: the port is open, and the structure that is filled in outlives the call.
        let result = unsafe { sys::natgate_dpdk_limits(self.id, &mut limits) };
        check(result).map_err(failed("asking"))?;
        if queues == 0 || queues > limits.queues {
            let (device, most) = (device.to_owned(), limits.queues);
            return Err(Error::Queues { device, asked: queues, most });
        }
        let most = limits.mtu.min(buffers.longest());
        if mtu > most {
            return Err(Error::Mtu { device: device.to_owned(), most });
        }
        let pool = buffers.memory.as_ptr();
        // SAFETY: the port is open and no thread moves packets through it yet; the pool lives as
        // long as the process.
        let result = unsafe { sys::natgate_dpdk_configure(self.id, queues, mtu, pool) };
        check(result).map(drop).map_err(failed("setting up"))
    }

    /// State of the link.
    pub(crate) fn link(&self) -> Result<LinkInfo, Error> {
        let _control = control();
        let mut link = Link::default();
        // SAFETY: the port is open, and the structure that is filled in outlives the call.
        let result = unsafe { sys::natgate_dpdk_link(self.id, &mut link) };
        let name = self.name.clone();
        match check(result) {
            Ok(_) => Ok(LinkInfo {
                name,
                index: self.id.into(),
                mac: Mac(link.mac),
                mtu: link.mtu.into(),
                up: link.up,
            }),
            Err(reason) => Err(Error::System { what: "asking", device: name, reason }),
        }
    }

    /// Counters since the port was opened; zero for a port without counters.
    pub(crate) fn statistics(&self) -> PortStatistics {
        let _control = control();
        let mut statistics = PortStatistics::default();
        // SAFETY: the port is open, and the structure that is filled in outlives the call.
        let result: c_int = unsafe { sys::natgate_dpdk_statistics(self.id, &mut statistics) };
        if result < 0 { PortStatistics::default() } else { statistics }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut open = control();
        let name = self.made.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        // SAFETY: the queues are gone, so no thread moves packets through the port; the name is
        // null, or a text that outlives the call.
        unsafe { sys::natgate_dpdk_close(self.id, name) };
        open.remove(&self.id);
    }
}

fn control() -> MutexGuard<'static, BTreeSet<u16>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds or makes the port of a device; also returns its name if it had to be made.
fn find_or_make(device: &str) -> Result<(u16, Option<CString>), Error> {
    let (name, arguments) = split(device)?;
    // SAFETY: a text that outlives the call.
    let find = || check(unsafe { sys::natgate_dpdk_find(name.as_ptr()) });
    let no_port = || Error::NoPort(device.to_owned());
    if let Ok(port) = find() {
        return Ok((u16::try_from(port).map_err(|_| no_port())?, None));
    }
    if !device.starts_with(VIRTUAL) {
        return Err(no_port());
    }
    // SAFETY: texts that outlive the call.
    check(unsafe { sys::natgate_dpdk_make(name.as_ptr(), arguments.as_ptr()) })
        .map_err(|reason| Error::Make { device: device.to_owned(), reason })?;
    let port = find().ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(no_port)?;
    Ok((port, Some(name)))
}
