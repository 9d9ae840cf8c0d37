//! Common tests of every back end: frames pass unchanged, links come and go, long frames are
//! refused. The modules below test the features of single back ends.
//!
//! Each test runs in a network namespace of its own thread, which ends with the thread. Needs root
//! and iproute2, and fails without them.

mod group;
mod packet_socket;
mod stage;
mod tun;
mod vlan;
mod xdp;

use natgate_io::{Change, Lost};
use stage::{BackEnd, Stage, ip, maintain_until, receive, send};

/// Runs these tests over every back end.
macro_rules! over_every_back_end {
    ($($test:ident)*) => {
        over_every_back_end!(@ af_packet AfPacket $($test)*);
        over_every_back_end!(@ af_packet_for_rate AfPacketRate $($test)*);
        over_every_back_end!(@ xdp_native XdpNative $($test)*);
        over_every_back_end!(@ xdp_generic XdpGeneric $($test)*);
        over_every_back_end!(@ xdp_queues XdpQueues $($test)*);
        over_every_back_end!(@ layer_3 Tun $($test)*);
    };
    (@ $module:ident $kind:ident $($test:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(super::BackEnd::$kind);
                }
            )*
        }
    };
}

over_every_back_end! {
    frames_pass_both_ways_unchanged_and_in_order
    frames_of_ipv6_pass_both_ways_unchanged
    batches_pass_and_frames_of_no_use_do_not_stop_them
    a_link_that_flaps_is_survived
    a_device_that_goes_and_comes_back_is_taken_up_again
    a_device_that_is_down_can_be_opened
    the_mtu_is_kept
    what_comes_too_fast_is_counted
}

/// Bytes that differ between any two frames.
fn payload(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8).collect()
}

fn frames_pass_both_ways_unchanged_and_in_order(kind: BackEnd) {
    let mut stage = Stage::new(kind);
    // More frames than any ring has places, of every length.
    for number in 0..1481 {
        let inward = stage.inward(&payload(number, number));
        stage.far.send(&inward);
        assert_eq!(receive(&mut *stage.device, 1), [inward]);
        let outward = stage.outward(&payload(number, 1480 - number));
        assert_eq!(send(&mut *stage.device, &outward), Lost::NONE);
        assert_eq!(stage.far.receive(1), [outward]);
    }
    let inward: Vec<_> = (0..200).map(|number| stage.inward(&payload(number, 8))).collect();
    inward.iter().for_each(|frame| stage.far.send(frame));
    assert_eq!(receive(&mut *stage.device, 200), inward);
    let statistics = stage.device.statistics();
    assert_eq!((statistics.received, statistics.transmitted), (1681, 1481));
    assert_eq!((statistics.receive_overrun, statistics.transmit_full), (0, 0));
}

fn frames_of_ipv6_pass_both_ways_unchanged(kind: BackEnd) {
    let mut stage = Stage::new(kind);
    for number in 0..=1460 {
        let [inward, outward] = stage.of_ipv6(&payload(number, number));
        stage.far.send(&inward);
        assert_eq!(receive(&mut *stage.device, 1), [inward]);
        assert_eq!(send(&mut *stage.device, &outward), Lost::NONE);
        assert_eq!(stage.far.receive(1), [outward]);
    }
}

fn batches_pass_and_frames_of_no_use_do_not_stop_them(kind: BackEnd) {
    use natgate_io::{BATCH, Frame};
    let mut stage = Stage::new(kind);
    let mut frames: Vec<_> =
        (0..BATCH).map(|number| stage.outward(&payload(number, 60 + number))).collect();
    frames[3] = vec![0; 5];
    frames[7] = stage.outward(&[0; 2000]);
    let mut sent = frames.clone();
    let ends: Vec<_> = frames.iter().map(Vec::len).collect();
    let mut batch: Vec<_> =
        sent.iter_mut().zip(ends).map(|(bytes, end)| Frame::of(bytes, 0, end)).collect();
    let lost = stage.device.split().1.transmit(&mut batch);
    assert!(lost.contains(3) && lost.contains(7) && lost.count() == 2, "{lost:?}");
    frames.remove(7);
    frames.remove(3);
    assert_eq!(stage.far.receive(BATCH - 2), frames);
    let statistics = stage.device.statistics();
    assert_eq!((statistics.transmitted, statistics.transmit_refused), (BATCH as u64 - 2, 2));
}

fn a_link_that_flaps_is_survived(kind: BackEnd) {
    let mut stage = Stage::new(kind);
    for round in 1..=3 {
        ip("link set dev near down");
        maintain_until(&mut *stage.device, |change| matches!(change, Change::Down));
        let outward = stage.outward(b"into the void");
        assert_eq!(send(&mut *stage.device, &outward).count(), 1);
        ip("link set dev near up");
        maintain_until(&mut *stage.device, |change| matches!(change, Change::Up));
        stage.works(b"again");
        assert_eq!(stage.device.statistics().link_losses, round);
    }
    assert_eq!(stage.device.statistics().transmit_refused, 3);
}

fn a_device_that_goes_and_comes_back_is_taken_up_again(kind: BackEnd) {
    let mut stage = Stage::new(kind);
    for round in 1..=3 {
        kind.unmake();
        maintain_until(&mut *stage.device, |change| matches!(change, Change::Gone));
        assert!(stage.device.readiness().is_none());
        let outward = stage.outward(b"into the void");
        assert_eq!(send(&mut *stage.device, &outward).count(), 1);
        kind.make();
        maintain_until(&mut *stage.device, |change| matches!(change, Change::Back(Ok(()))));
        stage.reopen_far();
        stage.works(b"again");
        assert_eq!(stage.device.statistics().link_losses, round);
    }
}

fn a_device_that_is_down_can_be_opened(kind: BackEnd) {
    stage::enter_namespace();
    kind.make();
    ip("link set dev near down");
    let mut device = kind.open();
    assert!(!device.link().up);
    let mut frame = vec![2; 60];
    assert_eq!(send(&mut *device, &frame).count(), 1);
    assert_eq!(device.statistics().transmit_refused, 1);
    ip("link set dev near up");
    maintain_until(&mut *device, |change| matches!(change, Change::Up));
    let mut stage = Stage::with(kind, device);
    stage.works(b"now it is up");
    frame.clear();
    assert_eq!(send(&mut *stage.device, &frame).count(), 1, "no frame at all");
}

fn the_mtu_is_kept(kind: BackEnd) {
    let mut stage = Stage::new(kind);
    assert_eq!(stage.device.link().mtu, 1500);
    let longest = stage.outward(&[7; 1480]);
    assert_eq!(send(&mut *stage.device, &longest), Lost::NONE);
    assert_eq!(stage.far.receive(1), [longest]);
    ip("link set dev near mtu 1000");
    maintain_until(&mut *stage.device, |change| matches!(change, Change::Altered));
    assert_eq!(stage.device.link().mtu, 1000);
    let (long, fits) = (stage.outward(&[7; 1480]), stage.outward(&[7; 980]));
    assert_eq!(send(&mut *stage.device, &long).count(), 1);
    assert_eq!(send(&mut *stage.device, &fits), Lost::NONE);
    assert_eq!(stage.far.receive(1), [fits]);
}

fn what_comes_too_fast_is_counted(kind: BackEnd) {
    if kind == BackEnd::Tun {
        // The queue belongs to the kernel, and the kernel counts its drops.
        return;
    }
    let mut stage = Stage::new(kind);
    if kind == BackEnd::AfPacketRate {
        return everything_is_received_or_counted(&mut stage);
    }
    for number in 0..700 {
        let inward = stage.inward(&payload(number, 100));
        stage.far.send(&inward);
        // The kernel needs time to hand frames over to another processor.
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
    let begin = std::time::Instant::now();
    while stage.device.statistics().receive_overrun < 700 - 256 {
        assert!(begin.elapsed() < stage::PATIENCE, "{:?}", stage.device.statistics());
    }
    assert_eq!(receive(&mut *stage.device, 256)[255], stage.inward(&payload(255, 100)));
    assert_eq!(stage.device.statistics().receive_overrun, 700 - 256);
    stage.works(b"room again");
}

/// Checks a ring without places of fixed size: the number of frames in it depends on their lengths.
fn everything_is_received_or_counted(stage: &mut Stage) {
    const SENT: u64 = 30_000;
    for number in 0..SENT {
        let inward = stage.inward(&payload(number as usize, 100));
        stage.far.send(&inward);
    }
    let begin = std::time::Instant::now();
    loop {
        let waiting = {
            let mut batch = natgate_io::Batch::new();
            stage.device.split().0.receive(&mut batch);
            batch.len()
        };
        let statistics = stage.device.statistics();
        assert!(begin.elapsed() < stage::PATIENCE, "{statistics:?}");
        if waiting == 0 && statistics.received + statistics.receive_overrun == SENT {
            // The ring has 32 blocks; their use depends on how fast frames came.
            assert!((32..20_000).contains(&statistics.received), "{statistics:?}");
            break;
        }
    }
    stage.works(b"room again");
}
