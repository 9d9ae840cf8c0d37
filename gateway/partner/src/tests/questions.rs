//! Questions to the partner: answers, refusals, versions, and partners that do not keep the rules.

use super::hostile::{Client, listener};
use super::rig::{
    NOBODY, Rig, assert_views_arrive, connected, until, until_true, wait_for_connection,
};
use crate::limits::QUESTION_TIME;
use crate::link::{Tuning, start_tuned};
use crate::transport::VERSIONS;
use crate::{AskError, Link, MAX_ANSWER, MAX_QUESTION};
use quinn::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

fn ask(link: &Link, question: &[u8]) -> Result<Vec<u8>, AskError> {
    link.ask(question.to_vec(), &|| true)
}

/// Answers with a prefix and the question.
fn repeat(link: &Link, prefix: u8) {
    link.answer_by(Box::new(move |question, _| Some([&[prefix], question].concat())));
}

#[test]
fn both_nodes_ask_and_answer_at_once() {
    let (_rig, links) = connected();
    let [a, b] = &links;
    // Nobody answers yet.
    assert_eq!(ask(a, b"?"), Err(AskError::Refused));
    repeat(a, b'a');
    repeat(b, b'b');
    thread::scope(|scope| {
        for (link, other) in [(a, b'b'), (b, b'a')] {
            for caller in 0..4_u8 {
                scope.spawn(move || {
                    for number in 0..20_u8 {
                        let question = [caller, number];
                        assert_eq!(ask(link, &question), Ok([&[other][..], &question].concat()));
                    }
                });
            }
        }
    });
    let longest = vec![7; MAX_QUESTION];
    assert_eq!(ask(a, &longest).map(|answer| answer.len()), Ok(MAX_QUESTION + 1));
    assert_eq!(ask(a, &[7; MAX_QUESTION + 1]), Err(AskError::TooLong));
    assert_views_arrive(a, b, b"as before");
    for link in &links {
        assert_eq!((link.status().connections, link.status().malformed), (1, 0));
    }
}

#[test]
fn without_a_connection_there_is_no_question() {
    let rig = Rig::new();
    let b = rig.start("b", "a", NOBODY.parse().unwrap());
    assert_eq!(ask(&b, b"?"), Err(AskError::NotConnected));
}

#[test]
fn a_partner_of_the_version_before_is_not_asked() {
    for versions in [[&[3_u16][..], &VERSIONS], [&VERSIONS, &[3]]] {
        let rig = Rig::new();
        let start = |node: &str, partner, address, versions: &[u16]| {
            rig.write(node, &rig.authority, 2099);
            let tuning = Tuning { versions: versions.to_vec(), ..Tuning::default() };
            start_tuned(&rig.settings(node, partner, address), tuning).expect("a link")
        };
        let b = start("b", "a", NOBODY.parse().unwrap(), versions[1]);
        let a = start("a", "b", b.local_address(), versions[0]);
        wait_for_connection(&a);
        wait_for_connection(&b);
        for link in [&a, &b] {
            repeat(link, 0);
            assert_eq!(link.status().version, Some(3));
            assert_eq!(ask(link, b"?"), Err(AskError::OldVersion));
        }
        assert_views_arrive(&a, &b, b"the link works");
        assert_views_arrive(&b, &a, b"both ways");
    }
}

#[test]
fn an_answer_has_a_greatest_length() {
    let (_rig, [a, b]) = connected();
    b.answer_by(Box::new(|question, _| {
        Some(vec![7; MAX_ANSWER + usize::from(question == b"too much")])
    }));
    assert_eq!(ask(&a, b"much").map(|answer| answer.len()), Ok(MAX_ANSWER));
    assert_eq!(ask(&a, b"too much"), Err(AskError::Refused));
    assert_views_arrive(&a, &b, b"as before");
}

#[test]
fn an_answerer_that_panics_answers_nothing() {
    let (_rig, [a, b]) = connected();
    b.answer_by(Box::new(|question, _| {
        assert!(question != b"panic", "a panic of this test");
        Some(Vec::new())
    }));
    assert_eq!(ask(&a, b"panic"), Err(AskError::Refused));
    assert_eq!(ask(&a, b"?"), Ok(Vec::new()));
}

#[test]
fn one_question_is_answered_at_a_time_and_a_cancelled_one_ends() {
    let (_rig, [a, b]) = connected();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, greatest) = (Arc::clone(&running), Arc::clone(&most));
    b.answer_by(Box::new(move |question, go_on| {
        greatest.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        while question == b"endless" && go_on() {
            thread::sleep(Duration::from_millis(1));
        }
        inside.fetch_sub(1, Ordering::SeqCst);
        Some(question.to_vec())
    }));
    // Cancelled as soon as it is being answered.
    let is_running = || running.load(Ordering::SeqCst) > 0;
    assert_eq!(a.ask(b"endless".to_vec(), &|| !is_running()), Err(AskError::Cancelled));
    until_true("the end of the work", || !is_running());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(ask(&a, b"short"), Ok(b"short".to_vec())));
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_views_arrive(&a, &b, b"as before");
}

/// All of them together take longer than the time of one question.
#[test]
fn the_wait_for_earlier_questions_is_no_part_of_the_time_of_a_question() {
    let (_rig, [a, b]) = connected();
    b.answer_by(Box::new(|question, _| {
        thread::sleep(QUESTION_TIME * 2 / 5);
        Some(question.to_vec())
    }));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(ask(&a, b"slow"), Ok(b"slow".to_vec())));
        }
    });
}

/// A partner that the test programs, with its connection to `b`.
fn partner() -> (Rig, Link, Client, Connection) {
    let (rig, b, client) = listener();
    let connection = client.dial(&rig.client(&VERSIONS), b.local_address()).expect("the partner");
    wait_for_connection(&b);
    (rig, b, client, connection)
}

#[test]
fn questions_that_break_the_rules_are_refused_and_counted() {
    let (_rig, b, client, connection) = partner();
    repeat(&b, 0);
    let exchange = |bytes: &[u8]| {
        client.run(async {
            let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
            // An error is a stream that the other side has stopped.
            let _ = send.write_all(bytes).await;
            let _ = send.finish();
            receive.read_to_end(1 << 20).await.ok()
        })
    };
    let mut malformed = 0;
    for bytes in [&[][..], &[1; 7], &[1; 9 + MAX_QUESTION], &[1; 100_000]] {
        assert_eq!(exchange(bytes), None);
        malformed += 1;
        until_true("a refusal", || b.status().malformed == malformed);
    }
    // The number comes back, and the connection is still good.
    assert_eq!(exchange(&[9; 9]), Some(vec![9, 9, 9, 9, 9, 9, 9, 9, 0, 9]));
    assert_eq!((b.status().connections, b.status().malformed), (1, malformed));
}

#[test]
fn an_answer_to_another_question_is_none() {
    let (_rig, b, client, connection) = partner();
    // Answers by the first byte of the question.
    let answer = |question: &[u8], make: &dyn Fn(&[u8]) -> Option<Vec<u8>>| {
        thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&b, question));
            client.run(async {
                connection.set_max_concurrent_bi_streams(1_u32.into());
                let (mut send, mut receive) = connection.accept_bi().await.expect("a question");
                let bytes = receive.read_to_end(8 + MAX_QUESTION).await.expect("a question");
                let Some(bytes) = make(&bytes) else { return drop(send.reset(7_u32.into())) };
                // Errors are a stream that the other side has stopped.
                let _ = send.write_all(&bytes).await;
                let _ = send.finish();
                let _ = send.stopped().await;
            });
            asked.join().expect("no panic")
        })
    };
    let own = |bytes: &[u8]| Some(bytes.to_vec());
    assert_eq!(answer(b"right", &own), Ok(b"right".to_vec()));
    let other = |bytes: &[u8]| Some([&[bytes[0] + 1][..], &bytes[1..]].concat());
    assert_eq!(answer(b"another", &other), Err(AskError::Malformed));
    // The former number.
    let former = |bytes: &[u8]| Some([&[bytes[0] - 1][..], &bytes[1..]].concat());
    assert_eq!(answer(b"former", &former), Err(AskError::Malformed));
    assert_eq!(answer(b"short", &|_| Some(vec![1; 7])), Err(AskError::Malformed));
    assert_eq!(answer(b"empty", &|_| Some(Vec::new())), Err(AskError::Malformed));
    let long = |bytes: &[u8]| Some([&bytes[..8], &vec![0; MAX_ANSWER + 1]].concat());
    assert_eq!(answer(b"long", &long), Err(AskError::Malformed));
    assert_eq!(answer(b"none", &|_| None), Err(AskError::Refused));
    assert_eq!(answer(b"right", &own), Ok(b"right".to_vec()));
    connection.close(0_u32.into(), b"");
    until("the end of the connection", || b.status().connected_since.is_none().then_some(()));
    assert_eq!(ask(&b, b"late"), Err(AskError::NotConnected));
}
