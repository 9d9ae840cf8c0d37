//! Recorded conversations with changes at random: other bytes, numbers and lengths, and parts of
//! other conversations. `common/arena.rs` tells what holds for each.
//!
//! NATGATE_INPUTS is the number of messages, NATGATE_SEED that of the first conversation.

mod common;

use common::arena::{confuse, converse, exchange};
use common::recorded::{Conversation, conversations};
use common::{Opening, Random};
use natgate_payload::{Kind, Side};
use std::thread;

/// Messages, unless the environment has another number.
const INPUTS: u64 = 40_000;
/// Longest message, bytes: one segment.
const LONGEST: usize = 1200;
/// Longest part that is moved, bytes.
const PART: usize = 64;

/// Bytes that separate, begin or end something, and limits.
const BYTES: &[u8] = b"\0\x01\x7f\x80\xff\r\n \t,;:=<>()[]@|-.\"0";
/// Numbers at limits of their fields, and none.
const NUMBERS: [&str; 10] = [
    "",
    "0",
    "-1",
    "255",
    "256",
    "1023",
    "65535",
    "65536",
    "4294967296",
    "340282366920938463463374607431768211456",
];
/// Words of 16 bits, as lengths and ports are.
const WORDS: [[u8; 2]; 5] = [[0, 0], [0, 1], [0x7f, 0xff], [0x80, 0], [0xff, 0xff]];

/// Tells the seed if the conversation fails.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("NATGATE_SEED={}", self.0);
        }
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |number| number.parse().expect("a number"))
}

/// Any of the elements.
fn any<'a, T>(random: &mut Random, of: &'a [T]) -> &'a T {
    &of[random.below(of.len())]
}

/// A random range of a message.
fn part(random: &mut Random, len: usize) -> std::ops::Range<usize> {
    let first = random.below(len + 1);
    first..first + random.below((len - first).min(PART) + 1)
}

/// Changes a message at one place.
fn change(random: &mut Random, message: &mut Vec<u8>, all: &[Conversation]) {
    let range = part(random, message.len());
    let at = range.start;
    match random.below(8) {
        0 => {
            if let Some(byte) = message.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = message.get_mut(at) {
                *byte = *any(random, BYTES);
            }
        }
        2 => drop(message.drain(range)),
        3 => {
            let copy = message[range].to_vec();
            drop(message.splice(at..at, copy));
        }
        4 => {
            let other = any(random, all);
            let (_, other) = any(random, &other.messages);
            let of_other = part(random, other.len());
            drop(message.splice(range, other[of_other].iter().copied()));
        }
        5 => {
            let rest = &message[at..];
            let Some(first) = rest.iter().position(u8::is_ascii_digit) else { return };
            let len = rest[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = any(random, &NUMBERS).bytes();
            drop(message.splice(at + first..at + first + len, number));
        }
        6 => message.truncate(at),
        _ => {
            if let Some(word) = message[at..].first_chunk_mut() {
                *word = *any(random, &WORDS);
            }
        }
    }
    message.truncate(LONGEST);
}

#[test]
fn changed_conversations_are_whole_and_open_nothing_else() {
    let all = conversations();
    let (inputs, first) = (number("NATGATE_INPUTS", INPUTS), number("NATGATE_SEED", 1));
    println!("NATGATE_SEED={first}");
    let mut given = 0;
    for seed in first.. {
        if given >= inputs {
            break;
        }
        let _told = Told(seed);
        let mut random = Random(seed);
        let conversation = any(&mut random, &all);
        let mut messages = conversation.messages.clone();
        for _ in 0..random.below(4) {
            let at = random.below(messages.len());
            match random.below(12) {
                0 => {
                    let other = any(&mut random, &all);
                    messages.insert(at, any(&mut random, &other.messages).clone());
                }
                1 if messages.len() > 1 => drop(messages.remove(at)),
                2 => messages[at].0 = messages[at].0.other(),
                _ => change(&mut random, &mut messages[at].1, &all),
            }
        }
        let messages: Vec<(Side, &[u8])> =
            messages.iter().map(|(from, bytes)| (*from, &bytes[..])).collect();
        given += messages.len() as u64;
        let Opening { kind, endpoints, opener, .. } = conversation.opening;
        // Another protocol's server may say such things, too.
        let kind = if random.below(16) == 0 { *any(&mut random, &Kind::ALL) } else { kind };
        let opening = Opening::new(kind, endpoints, opener);
        match random.below(8) {
            0 => confuse(opening, &messages),
            1 => exchange(kind, endpoints, &messages),
            _ if kind == Kind::Tftp => exchange(kind, endpoints, &messages),
            _ => converse(opening, seed as u8, &messages),
        }
    }
}
