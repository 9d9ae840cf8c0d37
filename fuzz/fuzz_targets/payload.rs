//! Random bytes as conversations of two hosts through the payload framework.
//!
//! The first byte chooses the protocol, the client's side, and one of three kinds of input.
//! `common/arena.rs` tells what holds for each.
//!
//! Messages are separated by the byte 255. The sides speak in turns.

#![no_main]

// The hosts of the crate's own tests.
#[path = "../../core/payload/tests/common/mod.rs"]
mod common;

use common::arena::{confuse, converse, exchange};
use common::{Opening, client_inside, client_inside_v6, server_inside};
use libfuzzer_sys::fuzz_target;
use natgate_payload::{Kind, Side};

/// Longest message, bytes: one segment.
const LONGEST: usize = 1200;
/// Most messages of a conversation.
const MOST: usize = 24;

fuzz_target!(|data: &[u8]| {
    let [head, seed, rest @ ..] = data else { return };
    let kind = Kind::ALL[usize::from(head & 7) % Kind::ALL.len()];
    let (is_server_inside, speaks_first) = (head & 16 != 0, head & 32 != 0);
    let endpoints = match (is_server_inside, head & 8 != 0) {
        (true, _) => server_inside(21),
        (false, true) => client_inside_v6(21),
        (false, false) => client_inside(21),
    };
    let opener = if is_server_inside { Side::Outside } else { Side::Inside };
    let mut side = if speaks_first { opener } else { opener.other() };
    let parts = rest.split(|byte| *byte == 255).take(MOST);
    let messages: Vec<(Side, &[u8])> = parts
        .map(|part| {
            let message = (side, &part[..part.len().min(LONGEST)]);
            side = side.other();
            message
        })
        .collect();
    let opening = Opening::new(kind, endpoints, opener);
    match head >> 6 {
        0 | 1 if kind != Kind::Tftp => converse(opening, *seed, &messages),
        2 => confuse(opening, &messages),
        _ => exchange(kind, endpoints, &messages),
    }
});
