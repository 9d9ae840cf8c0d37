//! Packets that come in together.

use natgate_io::{Frame, HEADROOM};
use natgate_p4::{Fate, Machine, Outcome};
use std::time::Duration;

/// Fates of packets that come in by a port together.
pub(crate) fn together(
    machine: &mut Machine<'_>,
    now: Duration,
    port: u32,
    packets: &[Vec<u8>],
) -> Vec<Outcome> {
    let room = |packet: &Vec<u8>| [&[0; HEADROOM][..], packet].concat();
    let mut buffers: Vec<Vec<u8>> = packets.iter().map(room).collect();
    let frames = buffers.iter_mut().map(|buffer| {
        let end = buffer.len();
        Frame::of(buffer, HEADROOM, end)
    });
    let (mut frames, mut fates) = (frames.collect::<Vec<_>>(), vec![Fate::NoRoom; packets.len()]);
    machine.forward_all(now, port, &mut frames, &mut fates);
    drop(frames);
    let outcome = |(fate, buffer): (Fate, Vec<u8>)| match fate {
        Fate::Sent { port, start } => Outcome::Sent { port, packet: buffer[start..].to_vec() },
        Fate::Dropped => Outcome::Dropped,
        Fate::NoRoom => panic!("there is room"),
    };
    fates.into_iter().zip(buffers).map(outcome).collect()
}
