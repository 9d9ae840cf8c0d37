//! Tests that the back end without a network keeps the promises of the trait.

use super::*;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Frames of one call of `receive`.
fn received(device: &mut MemoryDevice) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    device.split().0.receive(&mut batch);
    batch.iter().map(|frame| frame.bytes().to_vec()).collect()
}

#[test]
fn frames_pass_in_order_both_ways() {
    let (mut device, wire) = pair("a", MAC);
    assert!(wire.send(b"one") && wire.send(b"two"));
    assert_eq!(received(&mut device), [b"one", b"two"]);
    assert!(received(&mut device).is_empty());
    let mut bytes = *b"three";
    let frame = Frame::of(&mut bytes, 0, 5);
    assert_eq!(device.split().1.transmit(&mut [frame]), Lost::NONE);
    assert_eq!(wire.take().as_deref(), Some(&b"three"[..]));
    assert_eq!(wire.take(), None);
    let statistics = device.statistics();
    assert_eq!((statistics.received, statistics.transmitted), (2, 1));
}

#[test]
fn a_batch_is_never_overfilled_and_has_headroom() {
    let (mut device, wire) = pair("a", MAC);
    for _ in 0..BATCH + 1 {
        assert!(wire.send(b"x"));
    }
    let mut batch = Batch::new();
    device.split().0.receive(&mut batch);
    assert_eq!(batch.len(), BATCH);
    assert!(batch.iter().all(|frame| frame.headroom() >= HEADROOM));
    drop(batch);
    assert_eq!(received(&mut device).len(), 1);
}

#[test]
fn a_full_queue_loses_what_comes_after() {
    let (mut device, wire) = pair("a", MAC);
    let mut bytes = [0; 1];
    for _ in 0..QUEUE {
        let frame = Frame::of(&mut bytes, 0, 1);
        assert_eq!(device.split().1.transmit(&mut [frame]), Lost::NONE);
    }
    let lost = device.split().1.transmit(&mut [Frame::of(&mut bytes, 0, 1)]);
    assert!(lost.contains(0) && lost.count() == 1);
    assert_eq!(device.statistics().transmit_full, 1);
    assert!(wire.take().is_some());
    assert_eq!(device.split().1.transmit(&mut [Frame::of(&mut bytes, 0, 1)]), Lost::NONE);
}

#[test]
fn a_pulled_cable_is_noticed_and_survived() {
    let (mut device, wire) = pair("a", MAC);
    wire.set_up(false);
    assert!(wire.send(b"x"));
    assert!(received(&mut device).is_empty());
    assert!(matches!(device.maintain(), Some(Change::Down)));
    assert!(device.maintain().is_none());
    wire.set_up(true);
    assert!(matches!(device.maintain(), Some(Change::Up)));
    assert_eq!(received(&mut device), [b"x"]);
    assert_eq!(device.statistics().link_losses, 1);
}

#[test]
fn frames_come_to_the_device_that_is_chosen_and_leave_by_one_cable() {
    let (mut devices, wire) = group("a", MAC, 3, |frame| frame[0].into());
    for number in [0, 1, 2, 1, 9] {
        assert!(wire.send(&[number]));
    }
    let [first, second, third] = &mut devices[..] else { panic!("three were asked for") };
    assert_eq!(received(first), [[0], [9]]);
    assert_eq!(received(second), [[1], [1]]);
    assert_eq!(received(third), [[2]]);
    for device in [second, third] {
        let mut bytes = *b"x";
        device.split().1.transmit(&mut [Frame::of(&mut bytes, 0, 1)]);
    }
    wire.set_up(false);
    assert_eq!(devices.iter_mut().filter_map(MemoryDevice::maintain).count(), 3);
    let sum = Statistics::of_group(devices.iter_mut().map(MemoryDevice::statistics));
    assert_eq!((sum.received, sum.transmitted, sum.link_losses), (5, 2, 1));
    assert_eq!((wire.take(), wire.take()), (Some(b"x".to_vec()), Some(b"x".to_vec())));
}
