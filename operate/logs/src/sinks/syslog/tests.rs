//! Messages against a reader of RFC 5424's grammar that is independent of the formatter.

use super::*;
use crate::drive::tests::created;
use crate::record::Gap;
use natgate_engine::{Change, Event};
use natgate_gateway::{Collector, Transport};
use proptest::prelude::*;

fn settings() -> SyslogSettings {
    SyslogSettings {
        collector: Collector { address: "127.0.0.1:514".into(), transport: Transport::Udp },
        facility: 16,
        host_name: None,
        app_name: "natgate".into(),
        enterprise: 32473,
    }
}

/// A message in its parts.
#[derive(Debug, PartialEq)]
struct Read {
    priority: u32,
    time: String,
    /// HOSTNAME, APP-NAME, PROCID, MSGID.
    header: Vec<String>,
    id: String,
    parameters: Vec<(String, String)>,
    text: String,
}

/// Reads a message by the grammar of section 6; panics on a violation.
fn read(message: &str) -> Read {
    let (priority, rest) = message.strip_prefix('<').unwrap().split_once('>').unwrap();
    let mut fields = rest.splitn(7, ' ');
    assert_eq!(fields.next(), Some("1"));
    let mut field = || fields.next().unwrap().to_owned();
    let time = field();
    let header: Vec<String> = (0..4).map(|_| field()).collect();
    for (field, most) in header.iter().zip([255, 48, 128, 32]) {
        assert!(
            !field.is_empty() && field.len() <= most && field.bytes().all(|b| b.is_ascii_graphic())
        );
    }
    let rest = field();
    let mut left = rest.strip_prefix('[').unwrap();
    let (id, parameters) = left.split_once(' ').unwrap();
    left = parameters;
    let mut parameters = Vec::new();
    loop {
        let (name, rest) = left.split_once("=\"").unwrap();
        assert!(name.len() <= 32 && name.bytes().all(|b| b.is_ascii_graphic() && b != b']'));
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (_, '\\') => value.push(chars.next().unwrap().1),
                (at, '"') => break at,
                (_, c) => {
                    assert!(c != ']' && !c.is_control());
                    value.push(c);
                }
            }
        };
        parameters.push((name.to_owned(), value));
        let rest = &rest[end + 1..];
        match rest.strip_prefix(' ') {
            Some(rest) => left = rest,
            None => {
                let text = rest.strip_prefix("] ").unwrap().to_owned();
                let priority = priority.parse().unwrap();
                return Read { priority, time, header, id: id.to_owned(), parameters, text };
            }
        }
    }
}

#[test]
fn a_mapping_is_told() {
    let messages = Messages::new(&settings(), "gate", "7");
    let Record::Event(event) = created(5000) else { unreachable!("it is an event") };
    let event = Event { time: Timestamp(1_700_000_000_123_456_789), ..event };
    let message = messages.message(&[Record::Event(event)], 0, &Names::default(), false);
    let message = message.expect("an event has a message");
    let begins =
        "<134>1 2023-11-14T22:13:20.123456Z gate natgate 7 mapping_created [natgate@32473 ";
    assert!(message.starts_with(begins), "{message}");
    let mut told = read(&message);
    told.parameters.sort();
    let expected = [
        ("external", "203.0.113.1:5000"),
        ("internal", "10.0.0.5:4000"),
        ("kind", "dynamic"),
        ("protocol", "udp"),
        ("subscriber", "10.0.0.5"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(told.parameters, expected);
    for words in ["mapping created ", " internal 10.0.0.5:4000", " protocol udp"] {
        assert!(told.text.contains(words), "{}", told.text);
    }
    let gap = Record::Gap(Gap { lost: 12, from: Timestamp(1), to: Timestamp(2_000_000_000) });
    let told = read(&messages.message(&[gap], 0, &Names::default(), false).expect("a message"));
    assert_eq!((told.priority, &told.header[3][..]), (16 * 8 + 4, "gap"));
    assert!(told.parameters.contains(&("lost".into(), "12".into())));
}

proptest! {
    #[test]
    fn whatever_names_there_are_messages_are_read_as_they_were_meant(
        pool in any::<String>(),
        host in any::<String>(),
        app in any::<String>(),
        time in any::<u64>(),
    ) {
        let names = Names { pools: vec![pool.clone()], ..Names::default() };
        let messages = Messages::new(&SyslogSettings { app_name: app, ..settings() }, &host, "1");
        let change = Change::PoolExhausted { pool: 0, protocol: 6 };
        let record = Record::Event(Event { time: Timestamp(time), change });
        let told = read(&messages.message(&[record], 0, &names, false).expect("a message"));
        prop_assert_eq!(&told.header[3], "pool_exhausted");
        prop_assert_eq!(told.id, "natgate@32473");
        prop_assert!(told.parameters.contains(&("pool".into(), clean(&pool))));
        prop_assert!(told.parameters.contains(&("protocol".into(), "tcp".into())));
        prop_assert!(told.text.chars().all(|c| c.is_ascii_graphic() || c == ' '));
        prop_assert_eq!(told.time.len(), "2023-11-14T22:13:20.123456Z".len());
    }
}
