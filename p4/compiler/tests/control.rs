//! Requests of a controller to a program in operation, from its own thread, and requests of files
//! of entries.

mod common;

use common::{Parts, program};
use natgate_p4::{
    Answer, Entries, InstalledRow, Key, MOST_REQUESTS, Machine, MachineError, Outcome, Program,
    Rates, Request, Row, Target, compile, request_queue,
};
use std::time::Duration;

const LOCALS: &str = "
    Counter<bit<64>, bit<8>>(4, PNA_CounterType_t.PACKETS) passed;
    Meter<bit<8>>(2, PNA_MeterType_t.PACKETS) rate;
    Register<bit<32>, bit<8>>(2, 7) last;
    action set(bit<32> x) { hdr.words.c = x; passed.count(1); }
    action miss() { hdr.words.c = last.read(0); last.write(0, 9); }
    table exact_one {
        key = { hdr.words.a : exact; }
        actions = { set; @defaultonly miss; }
        default_action = miss();
        size = 300;
    }
    table prefixes {
        key = { hdr.words.a : lpm; }
        actions = { set; miss; }
        default_action = miss();
    }
    table masks {
        key = { hdr.words.a : ternary; hdr.words.b : ternary; }
        actions = { set; miss; }
        default_action = miss();
    }
    table own {
        key = { hdr.words.a : exact; }
        actions = { set; miss; }
        const default_action = miss();
        const entries = { 5 : set(1); }
    }
    action keep() { restart_expire_timer(); }
    action learn() { add_entry(\"keep\", {}, (ExpireTimeProfileId_t) 3); }
    table learnt {
        key = { hdr.words.a : exact; }
        actions = { keep; @defaultonly learn; }
        const default_action = learn();
        add_on_miss = true;
        idle_timeout_with_auto_delete = true;
    }";

fn compiled() -> Program {
    let body = "exact_one.apply(); if (hdr.words.b == 1) { learnt.apply(); }";
    let text = program(Parts { locals: LOCALS, body, ..Parts::default() });
    compile("test.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()))
}

/// Last word of a packet after its processing; its first two words are given.
fn word(machine: &mut Machine<'_>, seconds: u64, a: u16, b: u16) -> u32 {
    let packet = [&a.to_be_bytes()[..], &b.to_be_bytes(), &[0; 4]].concat();
    match machine.process(Duration::from_secs(seconds), 1, &packet) {
        Outcome::Sent { packet, .. } => u32::from_be_bytes(packet[4..8].try_into().expect("four")),
        Outcome::Dropped => panic!("it is sent"),
    }
}

fn row(table: &str, keys: &[Key], args: &[u128]) -> Row {
    let (table, action) = (table.to_owned(), "Main.set".to_owned());
    Row { table, keys: keys.to_vec(), priority: 0, action, args: args.to_vec() }
}

fn rows(
    machine: &mut Machine<'_>,
    table: &str,
    after: Option<Vec<Key>>,
    most: usize,
) -> Vec<InstalledRow> {
    match machine.answer(&Request::Rows { table: table.to_owned(), after, most }) {
        Ok(Answer::Rows(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn entries_are_added_changed_read_and_removed() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    let insert = Request::Insert(row("exact_one", &[Key::Exact(3)], &[11]));
    let modify = Request::Modify(row("exact_one", &[Key::Exact(3)], &[12]));
    let delete = |priority| Request::Delete {
        table: "exact_one".to_owned(),
        keys: vec![Key::Exact(3)],
        priority,
    };
    let name = || "Main.exact_one".to_owned();
    assert_eq!(machine.answer(&modify), Err(MachineError::Missing(name())));
    assert_eq!(machine.answer(&delete(0)), Err(MachineError::Missing(name())));
    assert_eq!(machine.answer(&insert), Ok(Answer::Done));
    assert_eq!(machine.answer(&insert), Err(MachineError::Exists(name())));
    assert_eq!(word(&mut machine, 0, 3, 0), 11);
    assert_eq!(machine.answer(&modify), Ok(Answer::Done));
    assert_eq!(word(&mut machine, 0, 3, 0), 12);
    let [found] = &rows(&mut machine, "exact_one", None, 9)[..] else { panic!("one row") };
    assert_eq!(found.row, row("Main.exact_one", &[Key::Exact(3)], &[12]));
    assert!(!found.is_const && !found.is_learnt && found.expires_in.is_none());
    let one = Request::Row { table: name(), keys: vec![Key::Exact(3)] };
    assert_eq!(machine.answer(&one), Ok(Answer::Rows(vec![found.clone()])));
    assert!(machine.answer(&delete(1)).is_err(), "exact entries have no priority");
    assert_eq!(machine.answer(&delete(0)), Ok(Answer::Done));
    assert_eq!(machine.answer(&one), Ok(Answer::Rows(Vec::new())));
}

#[test]
fn many_are_read_by_parts() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    for value in 0..300 {
        let insert = Request::Insert(row("exact_one", &[Key::Exact(value)], &[value]));
        assert_eq!(machine.answer(&insert), Ok(Answer::Done));
    }
    let full = machine.answer(&Request::Insert(row("exact_one", &[Key::Exact(300)], &[1])));
    assert_eq!(full, Err(MachineError::Full("Main.exact_one".to_owned())));
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let part = rows(&mut machine, "exact_one", after, 7);
        seen.extend(part.iter().map(|one| one.row.args[0]));
        match part.last() {
            Some(last) if part.len() == 7 => after = Some(last.row.keys.clone()),
            _ => break,
        }
    }
    assert_eq!(seen, (0..300).collect::<Vec<u128>>());
}

#[test]
fn keys_come_back_as_they_were_given() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    let prefix = row("Main.prefixes", &[Key::Prefix(0x1200, 8)], &[1]);
    let masked = Row {
        priority: 5,
        ..row("Main.masks", &[Key::Masked(0x10, 0xf0), Key::Masked(0, 0)], &[1])
    };
    for row in [&prefix, &masked] {
        assert_eq!(machine.answer(&Request::Insert(row.clone())), Ok(Answer::Done));
        assert_eq!(&rows(&mut machine, &row.table, None, 9)[0].row, row);
    }
    let other = Request::Insert(Row { priority: 6, ..masked.clone() });
    assert!(matches!(machine.answer(&other), Err(MachineError::Exists(_))), "it would never win");
    let other = Request::Modify(Row { priority: 6, ..masked });
    assert!(matches!(machine.answer(&other), Err(MachineError::Missing(_))));
}

#[test]
fn what_is_the_programs_stays() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    let constant = Err(MachineError::Const("Main.own".to_owned()));
    assert_eq!(machine.answer(&Request::Insert(row("own", &[Key::Exact(6)], &[1]))), constant);
    assert_eq!(machine.answer(&Request::Modify(row("own", &[Key::Exact(5)], &[2]))), constant);
    let action = Some(("set".to_owned(), vec![1]));
    let set = |table: &str| Request::SetDefault { table: table.to_owned(), action: action.clone() };
    assert_eq!(machine.answer(&set("own")), constant);
    assert!(rows(&mut machine, "own", None, 9)[0].is_const);
    let only = Row { action: "miss".to_owned(), ..row("exact_one", &[Key::Exact(1)], &[]) };
    let refused = machine.answer(&Request::Insert(only)).expect_err("it is for the default");
    assert_eq!(refused.to_string(), "`miss` is for the default of `Main.exact_one` only");
    let default = Request::Default { table: "exact_one".to_owned() };
    let is = |action: &str, args: &[u128]| {
        let (action, args) = (action.to_owned(), args.to_vec());
        Ok(Answer::Default { action, args, is_const: false })
    };
    assert_eq!(machine.answer(&default), is("Main.miss", &[]));
    assert_eq!(machine.answer(&set("exact_one")), Ok(Answer::Done));
    assert_eq!(machine.answer(&default), is("Main.set", &[1]));
    let back = Request::SetDefault { table: "exact_one".to_owned(), action: None };
    assert_eq!(machine.answer(&back), Ok(Answer::Done));
    assert_eq!(machine.answer(&default), is("Main.miss", &[]));
}

#[test]
fn what_packets_add_is_read_until_it_goes() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    let profile = Request::SetProfile { profile: 3, timeout: Duration::from_secs(10) };
    assert_eq!(machine.answer(&profile), Ok(Answer::Done));
    word(&mut machine, 1, 77, 1);
    let [found] = &rows(&mut machine, "learnt", None, 9)[..] else { panic!("one row") };
    assert_eq!((&found.row.keys[..], &*found.row.action), (&[Key::Exact(77)][..], "Main.keep"));
    assert!(found.is_learnt && found.expires_in == Some(Duration::from_secs(10)));
    word(&mut machine, 12, 1, 0);
    assert!(rows(&mut machine, "learnt", None, 9).is_empty());
}

#[test]
fn counters_and_meters_are_read_and_set() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    let (counter, meter) = (|| "passed".to_owned(), || "rate".to_owned());
    assert_eq!(
        machine.answer(&Request::Insert(row("exact_one", &[Key::Exact(3)], &[11]))),
        Ok(Answer::Done)
    );
    word(&mut machine, 0, 3, 0);
    let set = |index| Request::SetCounter { counter: counter(), index, value: (40, 50) };
    assert_eq!(machine.answer(&set(3)), Ok(Answer::Done));
    assert_eq!(
        machine.answer(&set(4)).expect_err("it is not there").to_string(),
        "`passed` has the places 0 to 3"
    );
    let read = |from, most| Request::Counters { counter: counter(), from, most };
    let all = vec![(0, 0, 0), (1, 1, 0), (2, 0, 0), (3, 40, 50)];
    assert_eq!(machine.answer(&read(0, 9)), Ok(Answer::Counters(all.clone())));
    assert_eq!(machine.answer(&read(1, 2)), Ok(Answer::Counters(all[1..3].to_vec())));
    assert_eq!(machine.answer(&read(9, 2)), Ok(Answer::Counters(Vec::new())));
    let wrong = Request::Counters { counter: meter(), from: 0, most: 1 };
    assert!(matches!(machine.answer(&wrong), Err(MachineError::Name { .. })));

    let rates = Rates { committed: 1, committed_burst: 2, peak: 3, peak_burst: 4 };
    let set = |rates, index| Request::SetMeter { meter: meter(), index, rates };
    assert_eq!(machine.answer(&set(Some(rates), 1)), Ok(Answer::Done));
    let read = Request::Meters { meter: meter(), from: 0, most: 9 };
    assert_eq!(machine.answer(&read), Ok(Answer::Meters(vec![(0, None), (1, Some(rates))])));
    assert_eq!(machine.answer(&set(None, 1)), Ok(Answer::Done));
    assert_eq!(machine.answer(&read), Ok(Answer::Meters(vec![(0, None), (1, None)])));
    assert!(
        machine.answer(&set(None, 2)).is_err() && machine.answer(&set(Some(rates), 2)).is_err()
    );
}

#[test]
fn all_can_be_as_at_the_start() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    assert_eq!((word(&mut machine, 0, 3, 0), word(&mut machine, 0, 3, 0)), (7, 9), "a register");
    let insert = Request::Insert(row("exact_one", &[Key::Exact(3)], &[11]));
    assert_eq!(machine.answer(&insert), Ok(Answer::Done));
    assert_eq!(machine.answer(&Request::Clear), Ok(Answer::Done));
    assert_eq!(word(&mut machine, 0, 3, 0), 7);
    assert_eq!(rows(&mut machine, "own", None, 9).len(), 1);
    assert!(rows(&mut machine, "exact_one", None, 9).is_empty());
}

#[test]
fn a_controller_asks_from_another_thread() {
    let (controller, requests) = request_queue();
    let asks = std::thread::spawn(move || {
        let inserts = (0..2 * MOST_REQUESTS as u128)
            .map(|value| Request::Insert(row("exact_one", &[Key::Exact(value)], &[value])));
        let answers = controller.ask_all(inserts.collect()).expect("the program runs");
        let one = controller.ask(Request::Default { table: "nothing".to_owned() });
        (answers, one, controller)
    });
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    let mut served = 0;
    while served < 3 {
        served += usize::from(requests.serve(&mut machine));
        std::thread::yield_now();
    }
    let (answers, one, controller) = asks.join().expect("it ends");
    // There is room for 300 entries.
    assert!(answers[..300].iter().all(|answer| *answer == Ok(Answer::Done)));
    assert!(answers[300..].iter().all(|one| matches!(one, Err(MachineError::Full(_)))));
    assert_eq!(answers.len(), 2 * MOST_REQUESTS);
    assert!(matches!(one, Err(MachineError::Name { .. })));
    assert!(!requests.serve(&mut machine), "nobody waits");
    drop(requests);
    assert_eq!(controller.ask(Request::Clear), Err(MachineError::Gone));
}

/// Error message about a file, with its line and column.
fn said(program: &Program, text: &str) -> String {
    let read = Entries::read(program, "e.toml", text);
    match read.and_then(|entries| entries.load(&mut Machine::new(program, 0))) {
        Ok(()) => panic!("this is accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn files_of_entries_are_loaded() {
    let program = compiled();
    let mut machine = Machine::new(&program, 0);
    let text = "
        [[default]]
        table = \"exact_one\"
        action = \"set\"
        arguments = { x = 8 }
        [[entry]]
        table = \"exact_one\"
        keys = { \"hdr.words.a\" = \"0x3\" }
        action = \"set\"
        arguments = { x = \"192.0.2.1\" }
        [[entry]]
        table = \"prefixes\"
        keys = { \"hdr.words.a\" = \"0x1200/8\" }
        action = \"set\"
        arguments = { x = 1 }
        [[entry]]
        table = \"masks\"
        keys = { \"hdr.words.b\" = \"1 &&& 0xf\" }
        action = \"set\"
        arguments = { x = 1 }
        priority = 4
        [[meter]]
        meter = \"rate\"
        index = 1
        committed = 1
        committed_burst = 2
        peak = 3
        peak_burst = 4";
    let entries = Entries::read(&program, "e.toml", text).expect("it fits the program");
    assert_eq!(entries.count(), 5);
    entries.load(&mut machine).expect("there is room");
    assert_eq!(word(&mut machine, 0, 3, 0), 0xc000_0201);
    assert_eq!(word(&mut machine, 0, 4, 0), 8);
    assert_eq!(rows(&mut machine, "prefixes", None, 9)[0].row.keys, [Key::Prefix(0x1200, 8)]);
    let masks = &rows(&mut machine, "masks", None, 9)[0].row;
    assert_eq!(
        (&masks.keys[..], masks.priority),
        (&[Key::Masked(0, 0), Key::Masked(1, 0xf)][..], 4)
    );
}

#[test]
fn entries_are_read_from_lines() {
    let info = compiled().info();
    let read = |text| Row::read(&info, text);
    let masks = [Key::Masked(0x1200, 0xff00), Key::Masked(0, 0)];
    assert_eq!(read("masks 0x1200&&&0xff00,_ set 7"), Ok(row("Main.masks", &masks, &[7])));
    let network = row("Main.prefixes", &[Key::Prefix(0x1200, 8)], &[0xc000_0201]);
    assert_eq!(read(" Main.prefixes  0x1200/8 Main.set 192.0.2.1 "), Ok(network));
    let one = Row { action: "Main.miss".to_owned(), ..row("Main.prefixes", &[Key::Exact(5)], &[]) };
    assert_eq!(read("prefixes 5 miss"), Ok(one));
    for (text, expected) in [
        ("prefixes 5", "an entry is a table, its keys, an action and its arguments, such as"),
        ("two 5 set 1", "there is no one table `two`; the program has `Main.exact_one`, "),
        ("exact_one 5 keep", "there is no one action `keep`; the program has `Main.set`, "),
        ("exact_one 65536 set 1", "hdr.words.a: a value of 16 bits is expected here, such as "),
        ("exact_one _ set 1", "hdr.words.a: an exact key has one value"),
        ("exact_one 1/2 set 1", "hdr.words.a: a value of 16 bits is expected here, such as "),
        ("prefixes 0x1234/8 set 1", "hdr.words.a: the value has bits behind its prefix; "),
        ("masks 1 set 1", "the keys of `Main.masks` are hdr.words.a,hdr.words.b, with commas "),
        ("exact_one 1 set", "the arguments of `Main.set` are x, with commas between them and "),
        ("prefixes 1 miss 1", "the arguments of `Main.miss` are none"),
        ("exact_one 1 set -1", "x: a value of 32 bits is expected here, such as \"192.0.2.1\""),
    ] {
        let said = read(text).expect_err(text).to_string();
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}

#[test]
fn what_is_wrong_in_a_file_is_said_with_its_place() {
    let program = compiled();
    let entry = |rest: &str| format!("[[entry]]\ntable = \"exact_one\"\n{rest}");
    let keyed = |rest: &str| entry(&format!("keys = {{ \"hdr.words.a\" = 1 }}\n{rest}"));
    let set = "action = \"set\"\narguments = { x = 1 }";
    for (text, expected) in [
        (
            "[[rows]]".to_owned(),
            "1:3: there is no `rows`; what can stand here is `profile`, `default`, `entry`, \
             `meter`",
        ),
        ("entry = 5".to_owned(), "1:9: write `[[entry]]` above each"),
        ("[[entry]]\nkeys = {}".to_owned(), "1:1: `table` is missing; write `table = ...`"),
        (
            "[[entry]]\ntable = \"two\"".to_owned(),
            "2:9: there is no one table `two`; the program has `Main.exact_one`, `Main.prefixes`, \
             `Main.masks`, `Main.own`, `Main.learnt`",
        ),
        (
            entry(&format!("keys = {{ x = 1 }}\n{set}")),
            "3:10: there is no `x`; what can stand here is `hdr.words.a`",
        ),
        (entry(set), "1:1: `hdr.words.a` is missing; write `hdr.words.a = ...`"),
        (
            entry(&format!("keys = {{ \"hdr.words.a\" = 65536 }}\n{set}")),
            "3:26: a value of 16 bits is expected here, such as 5, or \"0x5\"",
        ),
        (
            keyed("action = \"keep\""),
            "4:10: there is no one action `keep`; the program has `Main.set`, `Main.miss`",
        ),
        (keyed("action = \"set\""), "1:1: `x` is missing; write `x = ...`"),
        (
            keyed("action = \"set\"\narguments = { x = 1, y = 2 }"),
            "5:22: there is no `y`; what can stand here is `x`",
        ),
        (
            keyed("action = \"miss\""),
            "1:1: `Main.miss` is for the default of `Main.exact_one` only",
        ),
        (
            keyed(&format!("{set}\n{}", keyed(set))),
            "6:1: the table `Main.exact_one` has an entry with these keys already; modify it, or \
             delete it before",
        ),
        (
            keyed(&format!("{set}\npriority = 3")),
            "1:1: entries of `Main.exact_one` have no priority: no key is ternary",
        ),
        (
            "[[profile]]\nnumber = 256\nseconds = 1".to_owned(),
            "2:10: a value of 8 bits is expected here, such as 5, or \"0x5\"",
        ),
    ] {
        assert_eq!(said(&program, &text), format!("e.toml:{expected}"), "{text}");
    }
    let syntax = said(&program, "[[entry]]\ntable = ");
    assert!(syntax.starts_with("e.toml:2:9: this is not TOML: "), "{syntax}");
}
