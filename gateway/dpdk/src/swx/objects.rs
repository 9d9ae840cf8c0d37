//! Extern objects: functions that the program calls and the pipeline itself lacks. Their mailboxes
//! are words of eight bytes.

use super::ports::Shared;
use super::sys::Call;
use super::table::Table;
use natgate_p4::rt::{Meters, Random};
use natgate_p4::swx::{ControlObject, Pipeline, Use};
use std::ffi::{c_int, c_void};

/// Words of the mailbox of the object that adds entries.
const ACTION: usize = 0;
const PROFILE: usize = 1;
const ADDED: usize = 2;
const FIRST_ARG: usize = 3;
const ARGS: usize = 8;

/// An extern object.
#[derive(Debug)]
pub(super) struct Object {
    shared: *mut Shared,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Table(*mut Table),
    Meter(*mut Meters),
    Random { state: *mut Random, least: u128, most: u128, mask: u128 },
    Digest { number: usize, fields: usize },
}

/// State of objects, by the program's numbers.
#[derive(Debug)]
pub(super) enum Memory {
    Meters(Box<Meters>),
    Random(Box<Random>),
    Nothing,
}

impl Memory {
    pub(super) fn new(kept: &ControlObject, seed: u64) -> Self {
        match *kept {
            ControlObject::Meter { size, bytes } => {
                Self::Meters(Box::new(Meters::new(size, bytes)))
            }
            ControlObject::Random { .. } => Self::Random(Box::new(Random::new(seed))),
            _ => Self::Nothing,
        }
    }
}

impl Object {
    /// Creates an object of this use, with a mailbox of `fields` words.
    pub(super) fn new(
        of: Use,
        fields: usize,
        tables: &[*mut Table],
        memory: &mut [Memory],
        program: &Pipeline,
        shared: *mut Shared,
    ) -> Option<Self> {
        let kind = match of {
            Use::Table(number) => Kind::Table(tables[number]),
            Use::Meter(number) => match &mut memory[number] {
                Memory::Meters(meters) => Kind::Meter(&raw mut **meters),
                _ => return None,
            },
            Use::Random(number) => match (&mut memory[number], program.objects[number]) {
                (Memory::Random(state), ControlObject::Random { width, least, most }) => {
                    let mask = u128::MAX >> (128 - width);
                    Kind::Random { state: &raw mut **state, least, most, mask }
                }
                _ => return None,
            },
            Use::Digest(number) => Kind::Digest { number, fields },
        };
        Some(Self { shared, kind })
    }
}

/// Function of that name.
pub(super) fn function(name: &str) -> Option<Call> {
    Some(match name {
        "restart" => restart,
        "set_timeout" => set_timeout,
        "add" => add,
        "execute" => execute,
        "draw" => draw,
        "pack" => pack,
        _ => return None,
    })
}

/// # Safety
///
/// This holds for all functions here. The object is an [`Object`]; the targets of its pointers
/// live, and no other code accesses them meanwhile. The world is that of the packet; the mailbox
/// has the words of the object's use.
unsafe extern "C" fn restart(object: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        let Object { shared, kind } = &*object.cast::<Object>();
        if let Kind::Table(table) = kind {
            (**table).restart((**shared).now);
        }
    }
    1
}

/// # Safety
///
/// The conditions of [`restart`].
unsafe extern "C" fn set_timeout(object: *mut c_void, mailbox: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        let Object { shared, kind } = &*object.cast::<Object>();
        if let Kind::Table(table) = kind {
            let profile = *mailbox.cast::<u64>().add(PROFILE);
            (**table).set_timeout((*(**shared).world).timeout(profile.into()));
        }
    }
    1
}

/// # Safety
///
/// The conditions of [`restart`].
unsafe extern "C" fn add(object: *mut c_void, mailbox: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        let Object { shared, kind } = &*object.cast::<Object>();
        if let Kind::Table(table) = kind {
            let words = std::slice::from_raw_parts_mut(mailbox.cast::<u64>(), FIRST_ARG + ARGS);
            let timeout = (*(**shared).world).timeout(words[PROFILE].into());
            let (action, args) = (words[ACTION] as usize, &words[FIRST_ARG..]);
            words[ADDED] = (**table).add((**shared).now, action, args, timeout).into();
        }
    }
    1
}

/// # Safety
///
/// The conditions of [`restart`].
unsafe extern "C" fn execute(object: *mut c_void, mailbox: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        let Object { shared, kind } = &*object.cast::<Object>();
        if let Kind::Meter(meters) = kind {
            let words = std::slice::from_raw_parts_mut(mailbox.cast::<u64>(), 3);
            let [index, before, length] = [0, 1, 2].map(|number: usize| words[number].into());
            words[1] = (**meters).colour((**shared).now, index, before, length) as u64;
        }
    }
    1
}

/// # Safety
///
/// The conditions of [`restart`].
unsafe extern "C" fn draw(object: *mut c_void, mailbox: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        if let Kind::Random { state, least, most, mask } = &(*object.cast::<Object>()).kind {
            *mailbox.cast::<u64>() = ((**state).next(*least, *most) & mask) as u64;
        }
    }
    1
}

/// # Safety
///
/// The conditions of [`restart`].
unsafe extern "C" fn pack(object: *mut c_void, mailbox: *mut c_void) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        let Object { shared, kind } = &*object.cast::<Object>();
        if let Kind::Digest { number, fields } = kind {
            let words = std::slice::from_raw_parts(mailbox.cast::<u64>(), *fields);
            let values = words.iter().map(|word| (*word).into()).collect();
            (*(**shared).world).tell(*number, values);
        }
    }
    1
}
