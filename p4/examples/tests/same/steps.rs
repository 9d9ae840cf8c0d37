//! Random packets, entries and times, and the results of programs in several executors.

use natgate_p4::rt::Execute;
use natgate_p4::{Key, Machine, Program, Rates, compile};
use proptest::prelude::*;
use std::time::Duration;

/// Kind and width of a table's key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Exact(u32),
    Lpm(u32),
    Ternary(u32),
}

pub(crate) use Kind::{Exact, Lpm, Ternary};

/// An action with the widths of its parameters.
pub(crate) type Action = (&'static str, &'static [u32]);

/// A table: its name, keys and actions.
pub(crate) type Table = (&'static str, &'static [Kind], &'static [Action]);

/// An executor of a program, with its name.
pub(crate) type Named = (&'static str, Box<dyn Execute>);

/// A program, its tables, counters and meters.
pub(crate) struct Subject {
    pub(crate) text: &'static str,
    /// Creates the executors to be compared with the interpreter, each with its name.
    pub(crate) make: fn(&Program, u64) -> Vec<Named>,
    pub(crate) tables: &'static [Table],
    pub(crate) counters: &'static [&'static str],
    pub(crate) meters: &'static [&'static str],
}

/// A step. Numbers are reduced to the existing ones.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Packet { pass: u64, port: u32, packet: Vec<u8> },
    Insert { table: usize, keys: Vec<(u128, u128)>, action: usize, args: Vec<u128>, priority: u32 },
    Remove { table: usize, keys: Vec<(u128, u128)> },
    Default { table: usize, action: usize, args: Vec<u128> },
    Meter { meter: usize, index: u32, rate: u64 },
    Profile { profile: u8, seconds: u64 },
}

/// Numbers that often coincide: few, and at the ends of the range.
pub(crate) fn number() -> impl Strategy<Value = u128> {
    prop_oneof![4 => 0..4_u128, 2 => Just(u128::MAX), 2 => Just(0x0100), 1 => any::<u128>()]
}

/// Bytes that often equal the entries' numbers.
pub(crate) fn packet() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![6 => Just(0_u8), 3 => 0..4_u8, 1 => Just(0xff), 1 => any::<u8>()];
    prop::collection::vec(byte, 0..60)
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let keys = || prop::collection::vec((number(), number()), 3);
    let args = || prop::collection::vec(number(), 5);
    prop_oneof![
        12 => (0..4000_u64, 0..4_u32, packet())
            .prop_map(|(pass, port, packet)| Step::Packet { pass, port, packet }),
        6 => (0..8_usize, keys(), 0..8_usize, args(), 0..3_u32).prop_map(
            |(table, keys, action, args, priority)| {
                Step::Insert { table, keys, action, args, priority }
            }
        ),
        2 => (0..8_usize, keys()).prop_map(|(table, keys)| Step::Remove { table, keys }),
        1 => (0..8_usize, 0..8_usize, args())
            .prop_map(|(table, action, args)| Step::Default { table, action, args }),
        1 => (0..3_usize, 0..10_u32, prop_oneof![0..3_u64, 0..1000_u64])
            .prop_map(|(meter, index, rate)| Step::Meter { meter, index, rate }),
        1 => (0..4_u8, 1..10_u64).prop_map(|(profile, seconds)| Step::Profile { profile, seconds }),
    ]
}

pub(crate) fn mask(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}

pub(crate) fn keys(kinds: &[Kind], given: &[(u128, u128)]) -> Vec<Key> {
    let key = |(kind, (value, other)): (&Kind, &(u128, u128))| match *kind {
        Exact(bits) => Key::Exact(value & mask(bits)),
        Lpm(bits) => Key::Prefix(value & mask(bits), (other % u128::from(bits + 1)) as u32),
        Ternary(bits) => Key::Masked(value & mask(bits), other & mask(bits)),
    };
    kinds.iter().zip(given).map(key).collect()
}

pub(crate) fn args(bits: &[u32], given: &[u128]) -> Vec<u128> {
    bits.iter().zip(given).map(|(bits, arg)| arg & mask(*bits)).collect()
}

/// Result of a step, as text.
pub(crate) fn taken(
    subject: &Subject,
    machine: &mut Machine<'_>,
    now: &mut u64,
    step: &Step,
) -> String {
    let table = |number: usize| &subject.tables[number % subject.tables.len()];
    match step {
        Step::Packet { pass, port, packet } => {
            *now += pass;
            format!("{:?}", machine.process(Duration::from_millis(*now), *port, packet))
        }
        Step::Insert { table: number, keys: given, action, args: values, priority } => {
            let (name, kinds, actions) = table(*number);
            let (action, bits) = actions[action % actions.len()];
            let (keys, args) = (keys(kinds, given), args(bits, values));
            format!("{:?}", machine.insert(name, &keys, action, &args, *priority))
        }
        Step::Remove { table: number, keys: given } => {
            let (name, kinds, _) = table(*number);
            format!("{:?}", machine.remove(name, &keys(kinds, given)))
        }
        Step::Default { table: number, action, args: values } => {
            let (name, _, actions) = table(*number);
            let (action, bits) = actions[action % actions.len()];
            format!("{:?}", machine.set_default(name, action, &args(bits, values)))
        }
        Step::Meter { meter, index, rate } => {
            let Some(name) = subject.meters.get(*meter) else { return String::new() };
            let (burst, peak) = (rate * 2, rate * 3);
            let rates = Rates { committed: *rate, committed_burst: burst, peak, peak_burst: peak };
            format!("{:?}", machine.set_meter(name, *index, rates))
        }
        Step::Profile { profile, seconds } => {
            machine.set_profile(*profile, Duration::from_secs(*seconds));
            String::new()
        }
    }
}

/// Everything that the control plane can read.
pub(crate) fn seen(subject: &Subject, machine: &mut Machine<'_>) -> String {
    let mut text = String::new();
    for (name, ..) in subject.tables {
        let entries = machine.read(name).expect("it is there");
        assert_eq!(machine.entries(name), Ok(entries.len()));
        text += &format!("{name} {entries:?}\n");
    }
    for name in subject.counters {
        let cells = (0..101).map(|index| machine.counter(name, index).expect("it is there"));
        text += &format!("{name} {:?}\n", cells.collect::<Vec<_>>());
    }
    while let Some(digest) = machine.digest() {
        text += &format!("{digest:?}\n");
    }
    text
}

pub(crate) fn compiled(subject: &Subject) -> Program {
    compile("a.p4", subject.text).unwrap_or_else(|error| panic!("{}", error.rendered()))
}

pub(crate) fn compare(subject: &Subject, steps: &[Step]) {
    let program = compiled(subject);
    let mut interpreted = Machine::new(&program, 5);
    let made = (subject.make)(&program, 5).into_iter();
    let mut made: Vec<_> =
        made.map(|(by, execute)| (by, Machine::with(&program, execute))).collect();
    let mut now = 0;
    for (number, step) in steps.iter().enumerate() {
        let before = now;
        let expected = taken(subject, &mut interpreted, &mut now, step);
        for (by, machine) in &mut made {
            let is = taken(subject, machine, &mut before.clone(), step);
            assert_eq!(is, expected, "{by}, step {number}: {step:?}");
        }
    }
    let expected = seen(subject, &mut interpreted);
    for (by, machine) in &mut made {
        assert_eq!(seen(subject, machine), expected, "{by}");
    }
}
