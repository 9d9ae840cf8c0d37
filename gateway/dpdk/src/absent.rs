//! The crate's interface without libdpdk: the same names, and the reason why nothing opens.

use crate::Error;
use natgate_io::{Change, Device, LinkInfo, Receive, Statistics, Transmit};
use natgate_p4::rt::{Execute, Meter, Rates, Store, Verdict, World};
use natgate_p4::swx::Pipeline;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;

/// DPDK's environment, which does not exist here.
#[derive(Clone, Copy, Debug)]
pub struct Eal(Infallible);

/// A queue of a port, which does not exist here.
#[derive(Debug)]
pub struct DpdkDevice(Infallible);

/// Returns an error: there is no libdpdk.
///
/// # Errors
/// [`Error::Absent`].
pub fn start(_: Option<&[String]>, _: u16) -> Result<Eal, Error> {
    Err(Error::Absent)
}

/// Returns an error: there is no libdpdk.
///
/// # Errors
/// [`Error::Absent`].
pub fn start_for(_: Option<&[String]>, _: u16, _: u16) -> Result<Eal, Error> {
    Err(Error::Absent)
}

impl Eal {
    /// Cannot be called.
    ///
    /// # Errors
    /// None: no environment exists.
    pub fn open(self, _: &str, _: u16, _: u16) -> Result<Vec<DpdkDevice>, Error> {
        match self.0 {}
    }
}

/// A P4 program in DPDK's SWX pipeline, which does not exist here.
#[derive(Debug)]
pub struct Swx(Infallible);

impl Swx {
    /// Returns an error: there is no libdpdk.
    ///
    /// # Errors
    /// [`Error::Absent`].
    pub fn reserve(_: &Pipeline, _: u16, _: u16) -> Result<(), Error> {
        Err(Error::Absent)
    }

    /// Returns an error: there is no libdpdk.
    ///
    /// # Errors
    /// [`Error::Absent`].
    pub fn new(_: &Pipeline, _: u64) -> Result<Self, Error> {
        Err(Error::Absent)
    }
}

impl Execute for Swx {
    fn process(&mut self, _: &mut World, _: u32, _: &[u8], _: &mut Vec<u8>) -> Verdict {
        match self.0 {}
    }

    fn table(&self, _: usize) -> &dyn Store {
        match self.0 {}
    }

    fn table_mut(&mut self, _: usize) -> &mut dyn Store {
        match self.0 {}
    }

    fn counter(&self, _: usize, _: u32) -> (u64, u64) {
        match self.0 {}
    }

    fn set_counter(&mut self, _: usize, _: u32, _: (u64, u64)) -> bool {
        match self.0 {}
    }

    fn meter(&self, _: usize, _: u32) -> Option<Rates> {
        match self.0 {}
    }

    fn set_meter(&mut self, _: usize, _: u32, _: Option<Meter>) -> bool {
        match self.0 {}
    }

    fn clear(&mut self) {
        match self.0 {}
    }
}

impl Device for DpdkDevice {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        match self.0 {}
    }

    fn link(&self) -> &LinkInfo {
        match self.0 {}
    }

    fn statistics(&mut self) -> Statistics {
        match self.0 {}
    }

    fn maintain(&mut self) -> Option<Change> {
        match self.0 {}
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match self.0 {}
    }
}
