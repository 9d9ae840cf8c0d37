//! Ports that need nothing but DPDK itself: rings in memory, and a source and a sink.
//!
//! DPDK runs once a process, so the tests share it; each test has ports of its own. Needs the
//! programs that `make test` installs.
#![cfg(libdpdk)]

use natgate_dpdk::{DpdkDevice, Eal, Error, start};
use natgate_io::{BATCH, Batch, Device, Frame, HEADROOM, Lost};

const MTU: u16 = 1500;
/// Larger than the number of buffers, so that a leak shows.
const MORE_THAN_BUFFERS: usize = 100_000;

fn eal() -> Eal {
    start(None, MTU).expect("DPDK starts; it needs root, or huge pages for this user")
}

fn open(device: &str) -> DpdkDevice {
    eal().open(device, MTU, 1).unwrap().pop().unwrap()
}

fn frame_bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number * 31 + i * 7) as u8).collect()
}

fn send(device: &mut DpdkDevice, bytes: &[u8]) -> Lost {
    let mut bytes = bytes.to_vec();
    let end = bytes.len();
    device.split().1.transmit(&mut [Frame::of(&mut bytes, 0, end)])
}

fn receive(device: &mut DpdkDevice) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    device.split().0.receive(&mut batch);
    batch.iter().map(|frame| frame.bytes().to_vec()).collect()
}

/// Addresses of the frames' bytes.
fn places(batch: &Batch<'_>) -> Vec<*const u8> {
    batch.iter().map(|frame| frame.bytes().as_ptr()).collect()
}

#[test]
fn frames_come_back_from_a_ring_as_they_went() {
    let mut ring = open("net_ring10");
    assert!(ring.link().up);
    assert_eq!((ring.link().name.as_str(), ring.link().mtu), ("net_ring10", MTU.into()));
    assert!(ring.readiness().is_none() && ring.poll_interval().is_some());
    let sent: Vec<_> = [60, 61, 1000, 1514].map(|len| frame_bytes(len, len)).to_vec();
    for bytes in &sent {
        assert_eq!(send(&mut ring, bytes), Lost::NONE);
    }
    assert_eq!(receive(&mut ring), sent);
    assert!(receive(&mut ring).is_empty());
    let counted = ring.statistics();
    assert_eq!((counted.received, counted.transmitted), (4, 4));
}

#[test]
fn a_frame_goes_on_without_being_copied() {
    let (mut from, mut to) = (open("net_ring20"), open("net_ring21"));
    for number in 0..3 {
        send(&mut from, &frame_bytes(number, 200));
    }
    let mut batch = Batch::new();
    from.split().0.receive(&mut batch);
    let before = places(&batch);
    for frame in &mut batch {
        assert!(frame.headroom() >= HEADROOM);
        // As in the gateway, the length of the header and some bytes change.
        let (start, end) = frame.range();
        frame.set_range(start - 4, end - 10);
        frame.bytes_mut()[..4].copy_from_slice(b"head");
    }
    assert_eq!(to.split().1.transmit(&mut batch), Lost::NONE);
    assert!(batch.iter().all(Frame::is_empty));
    drop(batch);
    let mut arrived = Batch::new();
    to.split().0.receive(&mut arrived);
    let after = places(&arrived);
    assert_eq!(after, before.iter().map(|place| place.wrapping_sub(4)).collect::<Vec<_>>());
    for (number, frame) in arrived.iter().enumerate() {
        assert_eq!(frame.bytes(), [b"head", &frame_bytes(number, 200)[..190]].concat());
    }
}

#[test]
fn no_buffer_is_lost_whatever_becomes_of_frames() {
    let (mut from, mut to) = (open("net_null30,size=64"), open("net_null31"));
    let mut passed = 0;
    let mut turn = 0;
    while passed < MORE_THAN_BUFFERS {
        let mut batch = Batch::new();
        from.split().0.receive(&mut batch);
        assert!(!batch.is_empty(), "buffers ran out after {passed} frames");
        passed += batch.len();
        turn += 1;
        // Some frames are dropped, some sent, some sent back.
        match turn % 3 {
            0 => {}
            1 => assert_eq!(to.split().1.transmit(&mut batch), Lost::NONE),
            _ => {
                let half = batch.len() / 2;
                assert_eq!(to.split().1.transmit(&mut batch[..half]), Lost::NONE);
            }
        }
    }
    assert_eq!(from.statistics().received, passed as u64);
}

#[test]
fn what_a_full_ring_does_not_take_is_lost_and_counted() {
    let (mut source, mut ring) = (open("net_null40,size=64"), open("net_ring40"));
    let (mut lost, mut offered) = (0, 0);
    while offered < MORE_THAN_BUFFERS {
        let mut batch = Batch::new();
        source.split().0.receive(&mut batch);
        assert!(!batch.is_empty(), "buffers ran out after {offered} frames");
        offered += batch.len();
        lost += ring.split().1.transmit(&mut batch).count() as usize;
    }
    let counted = ring.statistics();
    assert_eq!(counted.transmit_full, lost as u64);
    assert_eq!(counted.transmitted, (offered - lost) as u64);
    let mut arrived = 0;
    loop {
        let frames = receive(&mut ring).len();
        if frames == 0 {
            break;
        }
        arrived += frames;
    }
    assert_eq!(arrived, offered - lost);
}

#[test]
fn a_frame_that_is_too_long_is_refused_alone() {
    let mut ring = open("net_ring50");
    let (mut short, mut long) = (frame_bytes(1, 100), vec![0; 60_000]);
    let mut frames = [Frame::of(&mut long, 0, 60_000), Frame::of(&mut short, 0, 100)];
    let lost = ring.split().1.transmit(&mut frames);
    assert!(lost.contains(0) && !lost.contains(1));
    assert_eq!(ring.statistics().transmit_refused, 1);
    assert_eq!(receive(&mut ring), [frame_bytes(1, 100)]);
}

#[test]
fn frames_beyond_the_mtu_are_not_handed_out() {
    let mut ring = open("net_ring55");
    send(&mut ring, &frame_bytes(1, 1518));
    send(&mut ring, &frame_bytes(2, 1519));
    assert_eq!(receive(&mut ring), [frame_bytes(1, 1518)]);
    assert_eq!(ring.statistics().receive_oversize, 1);
}

#[test]
fn queues_of_a_port_are_devices_of_their_own() {
    let mut queues = eal().open("net_ring60", MTU, 2).unwrap();
    for (number, queue) in queues.iter_mut().enumerate() {
        send(queue, &frame_bytes(number, 100));
    }
    for (number, queue) in queues.iter_mut().enumerate() {
        assert_eq!(receive(queue), [frame_bytes(number, 100)]);
    }
    // The port lives as long as any of its queues.
    queues.remove(0);
    send(&mut queues[0], &frame_bytes(7, 100));
    assert_eq!(receive(&mut queues[0]), [frame_bytes(7, 100)]);
    assert!(matches!(eal().open("net_ring60", MTU, 1), Err(Error::InUse(_))));
    drop(queues);
    assert!(receive(&mut open("net_ring60")).is_empty());
}

#[test]
fn batches_that_have_frames_already_are_filled_up() {
    let mut source = open("net_null70,size=64");
    let mut bytes = vec![0; 100];
    let mut batch = Batch::new();
    batch.push(Frame::of(&mut bytes, 0, 100));
    source.split().0.receive(&mut batch);
    assert!(batch.len() > 1 && batch.len() <= BATCH);
}

#[test]
fn refusals_say_what_would_be_right() {
    let refused = |device: &str, mtu, queues| {
        eal().open(device, mtu, queues).map(drop).unwrap_err().to_string()
    };
    for (device, mtu, queues, said) in [
        ("eth0", MTU, 1, "DPDK has no port \"eth0\""),
        ("0000:03:00.0", MTU, 1, "allow a PCI device by dpdk.eal"),
        ("net_nothing0", MTU, 1, "cannot make the device \"net_nothing0\""),
        ("net_null80,colour=red", MTU, 1, "cannot make the device"),
        ("net_null81", 9000, 1, "set mtu = "),
        ("net_null82", MTU, 5000, "use no more workers"),
        ("net_null83", MTU, 0, "use no more workers"),
        ("net_null\0", MTU, 1, "zero byte"),
    ] {
        let error = refused(device, mtu, queues);
        assert!(error.contains(said), "{device:?}: {error}");
    }
    let _used = open("net_null84");
    assert!(refused("net_null84", MTU, 1).contains("in use"));
    // A refused port is free again.
    open("net_null81");
    assert!(matches!(start(Some(&["--no-huge".to_owned()]), MTU), Err(Error::Once)));
    assert!(matches!(start(None, 9000), Err(Error::Once)));
}
