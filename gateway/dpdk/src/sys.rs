//! Declarations of the functions in src/shim.c. Keep structures and functions in step with it.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

/// A buffer of DPDK, opaque here.
pub(crate) type Mbuf = c_void;
/// A pool of such buffers.
pub(crate) type Mempool = c_void;

/// A frame as it is passed between Rust and C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameDescriptor {
    pub(crate) mbuf: *mut Mbuf,
    pub(crate) bytes: *mut u8,
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) room: u32,
}

impl FrameDescriptor {
    pub(crate) const EMPTY: Self =
        Self { mbuf: std::ptr::null_mut(), bytes: std::ptr::null_mut(), start: 0, len: 0, room: 0 };
}

/// Numbers of frames that came in and were not returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refused {
    pub(crate) oversize: u64,
    pub(crate) unfinished: u64,
    pub(crate) memory: u64,
}

/// Frames of a burst that were not sent, a bit each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotSent {
    pub(crate) full: u64,
    pub(crate) refused: u64,
}

/// Limits of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) queues: u16,
    pub(crate) mtu: u16,
}

/// State of a port's link.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u16,
    pub(crate) up: bool,
}

/// Counters of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortStatistics {
    pub(crate) missed: u64,
    pub(crate) no_buffer: u64,
    pub(crate) transmit_errors: u64,
}

unsafe extern "C" {
    pub(crate) fn natgate_dpdk_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(crate) fn natgate_dpdk_pool(count: u32, cache: u32, room: u16) -> *mut Mempool;
    pub(crate) fn natgate_dpdk_find(name: *const c_char) -> c_int;
    pub(crate) fn natgate_dpdk_make(name: *const c_char, arguments: *const c_char) -> c_int;
    pub(crate) fn natgate_dpdk_limits(port: u16, limits: *mut Limits) -> c_int;
    pub(crate) fn natgate_dpdk_configure(
        port: u16,
        queues: u16,
        mtu: u16,
        pool: *mut Mempool,
    ) -> c_int;
    pub(crate) fn natgate_dpdk_close(port: u16, name: *const c_char);
    pub(crate) fn natgate_dpdk_link(port: u16, link: *mut Link) -> c_int;
    pub(crate) fn natgate_dpdk_statistics(port: u16, statistics: *mut PortStatistics) -> c_int;
    pub(crate) fn natgate_dpdk_receive(
        port: u16,
        queue: u16,
        pool: *mut Mempool,
        longest: u32,
        frames: *mut FrameDescriptor,
        count: u16,
        refused: *mut Refused,
    ) -> u16;
    pub(crate) fn natgate_dpdk_release(mbufs: *mut *mut Mbuf, count: u32);
    pub(crate) fn natgate_dpdk_transmit(
        port: u16,
        queue: u16,
        pool: *mut Mempool,
        room: u16,
        frames: *const FrameDescriptor,
        count: u16,
        lost: *mut NotSent,
    );
}
