//! Declarations of the functions in src/swx.c. Keep structures and functions in step with it.

use std::ffi::{c_char, c_int, c_void};

/// A pipeline.
pub(super) type Raw = c_void;

/// A packet as ports hand it over.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) handle: *mut c_void,
    pub(super) bytes: *mut u8,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// A field of a struct.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: *const c_char,
    pub(super) bits: u32,
}

/// Takes in a packet; returns non-zero if there was one.
pub(super) type Receive = unsafe extern "C" fn(ports: *mut c_void, packet: *mut Packet) -> c_int;

/// Takes a packet that leaves or is dropped.
pub(super) type Send = unsafe extern "C" fn(ports: *mut c_void, packet: *mut Packet);

/// Looks a key up; returns non-zero when done, which is always.
pub(super) type Lookup = unsafe extern "C" fn(
    table: *mut c_void,
    mailbox: *mut c_void,
    key: *mut *mut u8,
    action: *mut u64,
    args: *mut *mut u8,
    entry: *mut usize,
    hit: *mut c_int,
) -> c_int;

/// A function of an extern object; returns non-zero when done, which is always.
pub(super) type Call = unsafe extern "C" fn(object: *mut c_void, mailbox: *mut c_void) -> c_int;

/// Functions for packets and keys.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) receive: Receive,
    pub(super) send: Send,
    pub(super) drop: Send,
    pub(super) lookup: Lookup,
}

unsafe extern "C" {
    pub(super) fn natgate_swx_new(
        pipeline: *mut *mut Raw,
        calls: *const Calls,
        ports: *mut c_void,
    ) -> c_int;
    pub(super) fn natgate_swx_struct(
        pipeline: *mut Raw,
        name: *const c_char,
        fields: *mut Field,
        count: u32,
    ) -> c_int;
    pub(super) fn natgate_swx_header(
        pipeline: *mut Raw,
        name: *const c_char,
        of: *const c_char,
    ) -> c_int;
    pub(super) fn natgate_swx_metadata(pipeline: *mut Raw, of: *const c_char) -> c_int;
    pub(super) fn natgate_swx_array(
        pipeline: *mut Raw,
        name: *const c_char,
        size: u32,
        initial: u64,
    ) -> c_int;
    pub(super) fn natgate_swx_extern(
        pipeline: *mut Raw,
        kind: *const c_char,
        mailbox: *const c_char,
        name: *const c_char,
        object: *mut c_void,
        functions: *const *const c_char,
        calls: *const Call,
        count: u32,
    ) -> c_int;
    pub(super) fn natgate_swx_action(
        pipeline: *mut Raw,
        name: *const c_char,
        args: *const c_char,
        instructions: *const *const c_char,
        count: u32,
    ) -> c_int;
    pub(super) fn natgate_swx_table(
        pipeline: *mut Raw,
        name: *const c_char,
        keys: *const *const c_char,
        key_count: u32,
        actions: *const *const c_char,
        action_count: u32,
        default_action: *const c_char,
        default_args: *const c_char,
        size: u32,
        object: *mut c_void,
    ) -> c_int;
    pub(super) fn natgate_swx_build(
        pipeline: *mut Raw,
        instructions: *const *const c_char,
        count: u32,
    ) -> c_int;
    pub(super) fn natgate_swx_is_big_endian(pipeline: *mut Raw, action: u32, arg: u32) -> c_int;
    pub(super) fn natgate_swx_default(
        pipeline: *mut Raw,
        table: u32,
        action: u64,
        args: *const u64,
        count: u32,
    ) -> c_int;
    pub(super) fn natgate_swx_read(
        pipeline: *mut Raw,
        array: *const c_char,
        index: u32,
        value: *mut u64,
    ) -> c_int;
    pub(super) fn natgate_swx_write(
        pipeline: *mut Raw,
        array: *const c_char,
        index: u32,
        value: u64,
    ) -> c_int;
    pub(super) fn natgate_swx_run(pipeline: *mut Raw, instructions: u32);
    pub(super) fn natgate_swx_free(pipeline: *mut Raw);
}
