//! Small programs, one for each construct of the language, against stories that a person worked
//! out: interpreted, and as generated Rust.
//!
//! The story of `programs/NAME.p4` is NAME.txt. It has one step a line, in order. Times are
//! seconds, bytes of packets are hexadecimal.
//!
//! | line | means |
//! |---|---|
//! | `in PORT BYTES` | a packet comes; the next line is its result |
//! | `out PORT BYTES`, `drop` | it leaves like this, or goes nowhere |
//! | `at SECONDS` | the time from here on |
//! | `entry TABLE KEYS ACTION [ARGUMENTS]` | a controller's entry |
//! | `profile NUMBER SECONDS` | how long entries of a profile stay |
//! | `meter NAME INDEX COMMITTED BURST PEAK BURST` | a meter's rates |
//! | `entries TABLE NUMBER` | number of entries in the table now |
//! | `counter NAME INDEX PACKETS BYTES` | what is counted |
//! | `digest NAME FIELD=VALUE ...` | the oldest message to controllers |

use natgate_p4::rt::Execute;
use natgate_p4::{Info, Machine, Outcome, Program, Rates, Request, Row, Target, compile};
use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Tests of all programs, each with the struct of its Rust.
macro_rules! corpus {
    ($($name:ident $made:ident)*) => {
        $(
            #[test]
            fn $name() {
                let program = include_str!(concat!("../programs/", stringify!($name), ".p4"));
                let story = include_str!(concat!("../programs/", stringify!($name), ".txt"));
                let made = natgate_p4_examples::$name::$made::new(0);
                told(stringify!($name), program, story, Box::new(made));
            }
        )*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

corpus! {
    action_run ActionRun
    actions Actions
    add_on_miss AddOnMiss
    annotations Annotations
    arithmetic Arithmetic
    bits Bits
    bitwise Bitwise
    casts Casts
    checksums Checksums
    concatenation Concatenation
    conditional Conditional
    const_entries ConstEntries
    constants Constants
    controls Controls
    counter_arrays CounterArrays
    digests Digests
    direction Direction
    enums Enums
    exact_match ExactMatch
    exit_and_return ExitAndReturn
    functions Functions
    hashes Hashes
    headers Headers
    hit_and_miss HitAndMiss
    longest_prefix LongestPrefix
    lookahead Lookahead
    meter_arrays MeterArrays
    no_keys NoKeys
    parser_errors ParserErrors
    parser_loop ParserLoop
    ports Ports
    random_numbers RandomNumbers
    register_arrays RegisterArrays
    saturating Saturating
    select Select
    shifts Shifts
    signed Signed
    slices Slices
    structs Structs
    subparser Subparser
    switch_values SwitchValues
    ternary Ternary
    tuples Tuples
    typedefs Typedefs
    wide Wide
}

#[test]
fn every_story_has_its_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let files = std::fs::read_dir(folder).expect("the corpus is there");
    let paths = files.map(|file| file.expect("it can be read").path());
    let stories = paths.filter(|path| path.extension().is_some_and(|end| end == "txt"));
    let mut names: Vec<String> = stories
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, NAMES);
}

/// Checks a program against a story, interpreted and as Rust.
fn told(name: &str, text: &str, story: &str, made: Box<dyn Execute>) {
    let file = format!("{name}.p4");
    let program = compile(&file, text).unwrap_or_else(|error| panic!("{}", error.rendered()));
    let interpreted = Machine::new(&program, 0);
    for (by, machine) in [("interpreted", interpreted), ("Rust", Machine::with(&program, made))] {
        let mut teller = Teller::new(&program, machine);
        for (number, line) in story.lines().enumerate() {
            teller.place = format!("{name}.txt, line {}, {by}", number + 1);
            teller.line(line);
        }
        assert!(teller.outcome.is_none(), "{}: what becomes of the packet?", teller.place);
        assert!(teller.count > 0, "{name}.txt: there are no packets");
    }
}

struct Teller<'p> {
    machine: Machine<'p>,
    info: Info,
    now: Duration,
    /// Fate of the last packet, until it is compared.
    outcome: Option<Outcome>,
    /// Number of packets so far.
    count: usize,
    place: String,
}

impl<'p> Teller<'p> {
    fn new(program: &'p Program, machine: Machine<'p>) -> Self {
        let info = program.info();
        let (now, place) = (Duration::ZERO, String::new());
        Self { machine, info, now, outcome: None, count: 0, place }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_packet = matches!(words[..], ["in" | "out" | "drop", ..]);
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["entry", ..] => self.entry(line.trim_start_matches("entry")),
            _ if is_packet => self.packet(&words),
            _ => self.control(&words),
        }
    }

    fn packet(&mut self, words: &[&str]) {
        let place = &self.place;
        match *words {
            ["in", port, ref bytes @ ..] => {
                assert!(self.outcome.is_none(), "{place}: what becomes of the one before?");
                let packet = packet(bytes);
                self.outcome = Some(self.machine.process(self.now, number(port), &packet));
                self.count += 1;
            }
            ["out", port, ref bytes @ ..] => {
                let expected = Outcome::Sent { port: number(port), packet: packet(bytes) };
                assert_eq!(self.outcome.take(), Some(expected), "{place}");
            }
            _ => assert_eq!(self.outcome.take(), Some(Outcome::Dropped), "{place}"),
        }
    }

    fn entry(&mut self, text: &str) {
        let row = Row::read(&self.info, text).unwrap_or_else(|error| self.fails(&error));
        let answer = self.machine.answer(&Request::Insert(row));
        answer.map(drop).unwrap_or_else(|error| self.fails(&error));
    }

    /// Runs a controller's action or check.
    fn control(&mut self, words: &[&str]) {
        let (machine, place) = (&mut self.machine, &self.place);
        match *words {
            ["at", seconds] => {
                self.now = Duration::from_secs(number(seconds));
                machine.pass(self.now);
            }
            ["profile", profile, seconds] => {
                machine.set_profile(number(profile), Duration::from_secs(number(seconds)));
            }
            ["meter", name, index, committed, committed_burst, peak, peak_burst] => {
                let [committed, committed_burst, peak, peak_burst] =
                    [committed, committed_burst, peak, peak_burst].map(number);
                let rates = Rates { committed, committed_burst, peak, peak_burst };
                assert_eq!(machine.set_meter(name, number(index), rates), Ok(()), "{place}");
            }
            ["entries", table, count] => {
                assert_eq!(machine.entries(table), Ok(number(count)), "{place}");
            }
            ["counter", name, index, packets, bytes] => {
                let expected = (number(packets), number(bytes));
                assert_eq!(machine.counter(name, number(index)), Ok(expected), "{place}");
            }
            ["digest", name, ref fields @ ..] => {
                let told = machine.digest().unwrap_or_else(|| panic!("{place}: there is none"));
                let values = told.1.iter().map(|(field, value)| format!("{field}={value}"));
                assert_eq!((told.0, values.collect::<Vec<_>>()), (name, text(fields)), "{place}");
            }
            _ => panic!("{place}: {words:?} is nothing that a story has"),
        }
    }

    fn fails(&self, error: &dyn Display) -> ! {
        panic!("{}: {error}", self.place)
    }
}

fn number<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{text:?} is no number: {error:?}"))
}

fn text(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn packet(words: &[&str]) -> Vec<u8> {
    let digits = words.concat();
    assert!(digits.len().is_multiple_of(2), "{digits}: whole bytes");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}
