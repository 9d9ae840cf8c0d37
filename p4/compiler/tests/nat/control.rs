//! A controller gets the same answers from the NAT in each of its executors.

use super::{all, nat, process, udp};
use natgate_p4::{Answer, Entries, InstalledRow, Key, Machine, MachineError, Request, Row, Target};
use std::time::Duration;

type Answered = Result<Answer, MachineError>;

/// Rows of a table, in parts of `most` rows.
fn rows(machine: &mut Machine<'_>, table: &str, most: usize) -> Vec<InstalledRow> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let table = table.to_owned();
        let Ok(Answer::Rows(part)) = machine.answer(&Request::Rows { table, after, most }) else {
            panic!("these are rows");
        };
        let is_last = part.len() < most;
        after = part.last().map(|last| last.row.keys.clone());
        all.extend(part);
        if is_last {
            return all;
        }
    }
}

/// Everything that can be read.
fn everything(machine: &mut Machine<'_>) -> (Vec<Vec<InstalledRow>>, Vec<Answered>) {
    let info = nat().info();
    let name = |preamble: &natgate_p4::Preamble| preamble.name.clone();
    let tables: Vec<String> = info.tables.iter().map(|table| name(&table.preamble)).collect();
    let all: Vec<Vec<InstalledRow>> = tables.iter().map(|table| rows(machine, table, 3)).collect();
    let mut answers = Vec::new();
    for table in tables {
        answers.push(machine.answer(&Request::Default { table }));
    }
    for found in all.iter().flatten() {
        let (table, keys) = (found.row.table.clone(), found.row.keys.clone());
        let one = machine.answer(&Request::Row { table, keys });
        assert_eq!(one, Ok(Answer::Rows(vec![found.clone()])));
    }
    for counter in info.counters {
        let counter = name(&counter.preamble);
        answers.push(machine.answer(&Request::Counters { counter, from: 0, most: 300 }));
    }
    let meter = "subscriber_rate".to_owned();
    answers.push(machine.answer(&Request::Meters { meter, from: 5, most: 5 }));
    (all, answers)
}

/// Changes, some of which are refused.
fn changes(learnt: &Row) -> Vec<Request> {
    let counter = |index| {
        let counter = "drops".to_owned();
        Request::SetCounter { counter, index, value: (7, 8) }
    };
    let meter =
        |index| Request::SetMeter { meter: "subscriber_rate".to_owned(), index, rates: None };
    let (table, keys, priority) = ("routes".to_owned(), vec![Key::Prefix(0, 0)], 0);
    let station = |args: &[u128]| Row {
        table: "stations".to_owned(),
        keys: vec![Key::Exact(9)],
        priority,
        action: "at".to_owned(),
        args: args.to_vec(),
    };
    vec![
        counter(3),
        counter(256),
        meter(7),
        meter(65536),
        Request::Insert(learnt.clone()),
        Request::Modify(learnt.clone()),
        Request::Delete { table: table.clone(), keys: keys.clone(), priority },
        Request::Delete { table, keys, priority },
        Request::Modify(station(&[1])),
        Request::Insert(station(&[1])),
        Request::Insert(station(&[2])),
        Request::Modify(station(&[2])),
        Request::SetDefault { table: "stations".to_owned(), action: None },
    ]
}

#[test]
fn a_controller_is_answered_the_same_by_all() {
    let program = nat();
    let entries = Entries::read(&program, "nat.toml", include_str!("../../../nat.toml"));
    let entries = entries.unwrap_or_else(|error| panic!("{}", error.rendered()));
    let (_turn, machines) = all(&program);
    let answers = machines.into_iter().map(|(by, mut machine)| {
        entries.load(&mut machine).unwrap_or_else(|error| panic!("{}", error.rendered()));
        for host in 1..20_u64 {
            let packet = udp(&format!("udp 10.0.0.{host}:5{host:02}0 > 198.51.100.7:53"));
            process(&mut machine, Duration::from_secs(host), 0, &packet).expect("it goes out");
        }
        let before = everything(&mut machine);
        let mut learnt = before.0.iter().flatten().filter(|found| found.is_learnt);
        let upload = learnt.find(|found| found.row.table == "NatMain.upload");
        let learnt = upload.expect("mappings are learnt").clone();
        assert!(learnt.expires_in.is_some());
        let changes = changes(&learnt.row);
        let done: Vec<Answered> = changes.iter().map(|change| machine.answer(change)).collect();
        let failed = done.iter().filter(|done| done.is_err()).count();
        assert_eq!(failed, 6, "{done:?}");
        let Row { table, keys, .. } = learnt.row;
        let kept = machine.answer(&Request::Row { table, keys });
        let Ok(Answer::Rows(kept)) = &kept else { panic!("these are rows") };
        assert!(!kept[0].is_learnt && kept[0].expires_in.is_none(), "it stays now");
        let after = everything(&mut machine);
        assert_eq!(machine.answer(&Request::Clear), Ok(Answer::Done));
        let cleared = everything(&mut machine);
        assert!(cleared.0.iter().all(Vec::is_empty));
        entries.load(&mut machine).unwrap_or_else(|error| panic!("{}", error.rendered()));
        let packet = udp("udp 10.0.0.1:4000 > 198.51.100.7:53");
        let lent = process(&mut machine, Duration::from_secs(20), 0, &packet);
        (by, (before, done, after, cleared, lent))
    });
    let answers: Vec<_> = answers.collect();
    for (by, answers_of_it) in &answers {
        assert_eq!(*answers_of_it, answers[0].1, "{by}");
    }
}
