//! Features of AF_XDP alone: its modes, memory that two devices share, queues that several devices
//! serve.

use crate::stage::{BackEnd, enter_namespace, ip, maintain_until, open_xdp, receive, send};
use natgate_io::packet::{self, PacketDevice};
use natgate_io::xdp::{Config, Hook, Memory, Mode, XdpDevice};
use natgate_io::{BATCH, Batch, Change, Device, Error, Frame, Lost};
use std::process::Command;

const CONFIG: Config = Config { frames: 256 };

/// Two cables, a0 to a1 and b0 to b1, all ends up; the test has a0 and b0.
fn two_cables() {
    enter_namespace();
    for name in ["a", "b"] {
        ip(&format!("link add name {name}0 type veth peer name {name}1"));
        for end in ["0", "1"] {
            ip(&format!("link set dev {name}{end} addrgenmode none up"));
        }
    }
}

fn open_packet(name: &str) -> PacketDevice {
    PacketDevice::open(name, packet::Config::default()).expect("the device can be opened")
}

fn wait_until_up(device: &mut dyn Device) {
    if !device.link().up {
        maintain_until(device, |change| matches!(change, Change::Up));
    }
}

fn open_pair() -> [XdpDevice; 2] {
    let mut pair = XdpDevice::open_pair(["a0", "b0"], &CONFIG).expect("both can be opened");
    pair.iter_mut().for_each(|device| wait_until_up(device));
    pair
}

/// Forwards the frames that wait at `from` to `to`; returns their number.
fn forward(from: &mut XdpDevice, to: &mut XdpDevice, times: usize) -> usize {
    let mut batch = Batch::new();
    from.split().0.receive(&mut batch);
    for frame in &mut batch {
        frame.bytes_mut()[20] = 0xee;
    }
    for _ in 0..times {
        assert_eq!(to.split().1.transmit(&mut batch), Lost::NONE);
    }
    batch.len()
}

#[test]
fn what_is_forwarded_is_not_copied_and_its_memory_comes_back() {
    two_cables();
    let [mut a, mut b] = open_pair();
    let (mut left, mut right) = (open_packet("a1"), open_packet("b1"));
    wait_until_up(&mut right);
    // Many times more frames than the memory holds.
    for round in 0..200_u32 {
        let mut expected = Vec::new();
        for number in 0..20_u32 {
            let mut frame = [round.to_be_bytes(), number.to_be_bytes()].concat().repeat(10);
            assert_eq!(send(&mut left, &frame), Lost::NONE);
            frame[20] = 0xee;
            expected.push(frame);
        }
        let mut forwarded = 0;
        while forwarded < 20 {
            forwarded += forward(&mut a, &mut b, 1);
        }
        assert_eq!(receive(&mut right, 20), expected);
        // A frame that was received by neither device is copied.
        assert_eq!(send(&mut b, &expected[0]), Lost::NONE);
        assert_eq!(receive(&mut right, 1), expected[..1]);
    }
    assert_eq!(b.handed_over(), 4000);
    assert_eq!(b.statistics().transmitted, 4200);
    assert_eq!(a.statistics().receive_overrun, 0);
}

#[test]
fn a_frame_that_is_sent_twice_goes_out_twice() {
    two_cables();
    let [mut a, mut b] = open_pair();
    let (mut left, mut right) = (open_packet("a1"), open_packet("b1"));
    wait_until_up(&mut right);
    for number in 0..1000_u32 {
        let mut frame = number.to_be_bytes().repeat(15);
        assert_eq!(send(&mut left, &frame), Lost::NONE);
        while forward(&mut a, &mut b, 2) == 0 {}
        frame[20] = 0xee;
        assert_eq!(receive(&mut right, 2), [frame.clone(), frame]);
    }
    // The second sending copies the frame, unless the first has completed.
    assert!(b.handed_over() >= 1000);
    assert_eq!((b.statistics().transmitted, b.statistics().transmit_full), (2000, 0));
}

#[test]
fn one_of_a_pair_comes_and_goes_and_the_memory_stays_whole() {
    two_cables();
    let [mut a, mut b] = open_pair();
    let mut left = open_packet("a1");
    for round in 0..5_u8 {
        let frame = vec![round; 80];
        assert_eq!(send(&mut left, &frame), Lost::NONE);
        ip("link delete b0");
        maintain_until(&mut b, |change| matches!(change, Change::Gone));
        assert_eq!(receive(&mut a, 1), [frame]);
        ip("link add name b0 type veth peer name b1");
        ip("link set dev b0 up");
        ip("link set dev b1 up");
        maintain_until(&mut b, |change| matches!(change, Change::Back(Ok(()))));
        wait_until_up(&mut b);
        let mut right = open_packet("b1");
        wait_until_up(&mut right);
        // Enough frames to fill both rings: no chunk was lost with the device.
        for number in 0..600_u32 {
            let mut frame = number.to_be_bytes().repeat(15);
            assert_eq!(send(&mut left, &frame), Lost::NONE);
            while forward(&mut a, &mut b, 1) == 0 {}
            frame[20] = 0xee;
            let received = receive(&mut right, 1);
            assert_eq!(received, [frame]);
        }
    }
}

#[test]
fn two_devices_serve_a_queue_each() {
    enter_namespace();
    BackEnd::XdpQueues.make();
    let (hook, mut far) = (Hook::new("near"), open_packet("far"));
    let open = |queues| {
        let memory = Memory::new(&["near"], &CONFIG).expect("there is memory");
        let device = XdpDevice::open_queues(&hook, Some(queues), &memory, CONFIG);
        let mut device = device.expect("the queue can be opened");
        wait_until_up(&mut device);
        device
    };
    let (mut first, mut second) = (open(0..1), open(1..2));
    // Each frame comes to one of the devices, whatever the kernel's distribution of flows.
    for number in 0..500_u32 {
        assert_eq!(send(&mut far, &number.to_be_bytes().repeat(20)), Lost::NONE);
        let begin = std::time::Instant::now();
        let mut received = 0;
        while received == 0 {
            assert!(begin.elapsed() < crate::stage::PATIENCE);
            for device in [&mut first, &mut second] {
                let mut batch = Batch::new();
                device.split().0.receive(&mut batch);
                received += batch.len();
            }
        }
        assert_eq!(received, 1);
    }
    for device in [&mut first, &mut second] {
        let frame = vec![9; 60];
        assert_eq!(send(device, &frame), Lost::NONE);
        assert_eq!(receive(&mut far, 1), [frame]);
    }
    // The program stays for the second when the first is closed.
    drop(first);
    assert_eq!(second.mode().expect("it is there").queues, 1);
    drop(second);
    let all = XdpDevice::open_queues(
        &hook,
        None,
        &Memory::new(&["near"], &CONFIG).expect("there is memory"),
        CONFIG,
    );
    assert_eq!(all.expect("all queues are free again").mode().expect("it is there").queues, 2);
}

#[test]
fn a_device_can_be_opened_again_at_once() {
    enter_namespace();
    BackEnd::XdpNative.make();
    for _ in 0..5 {
        let device = open_xdp(BackEnd::XdpNative);
        assert!(matches!(
            XdpDevice::open("near", CONFIG),
            Err(Error::OccupiedXdp(name)) if name == "near"
        ));
        drop(device);
    }
    assert_no_program_at("near");
}

fn assert_no_program_at(device: &str) {
    let shown = Command::new("ip").args(["link", "show", "dev", device]).output();
    let shown = String::from_utf8(shown.expect("ip can be run").stdout).expect("text");
    assert!(!shown.contains("xdp"), "the program stays: {shown}");
}

/// A child has all descriptors until it becomes another program.
#[test]
fn the_program_goes_though_a_child_has_its_descriptors() {
    enter_namespace();
    BackEnd::XdpNative.make();
    let device = open_xdp(BackEnd::XdpNative);
    // SAFETY: the child only waits until it is killed; it uses no memory of the parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: both may be called in the child of a process with threads.
        unsafe {
            libc::pause();
            libc::_exit(0);
        }
    }
    assert!(child > 0, "there can be a child");
    drop(device);
    let shown = std::panic::catch_unwind(|| assert_no_program_at("near"));
    // SAFETY: the process is a child and has not been waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    shown.expect("the child does not keep the program in its place");
}

#[test]
fn what_keeps_it_from_the_drivers_mode_is_said() {
    enter_namespace();
    BackEnd::XdpGeneric.make();
    let mode = open_xdp(BackEnd::XdpGeneric).mode().expect("it is there");
    assert_eq!(mode.mode, Mode::Generic);
    let said = mode.to_string();
    let expected = "AF_XDP in generic mode, copying, 1 queue (not native: the other end of near \
                    has more transmit queues";
    assert!(said.starts_with(expected), "{said}");
    ip("link delete near");
    BackEnd::XdpNative.make();
    let said = open_xdp(BackEnd::XdpNative).mode().expect("it is there").to_string();
    assert_eq!(said, "AF_XDP in native mode, copying, 1 queue");
}

#[test]
fn mtus_that_do_not_fit_are_refused_with_the_remedy() {
    enter_namespace();
    BackEnd::XdpNative.make();
    ip("link set dev near mtu 9000");
    let error = XdpDevice::open("near", CONFIG).expect_err("no frame fits");
    let expected = "device \"near\" has an MTU of 9000, and AF_XDP carries at most 3822 here; \
                    lower it with `ip link set dev near mtu 3822`, or use backend = \"af-packet\"";
    assert_eq!(error.to_string(), expected);
    // The length is too large for the driver's mode, not for the generic one.
    ip("link set dev near mtu 3800");
    ip("link set dev far mtu 3800");
    let device = XdpDevice::open("near", CONFIG).expect("the generic mode works");
    let mode = device.mode().expect("it is there");
    assert_eq!(mode.mode, Mode::Generic);
    assert!(mode.obstacle.is_some_and(|why| why.contains("its MTU of 3800, or that of the")));
}

#[test]
fn queues_that_are_not_there_and_devices_that_do_not_exist_are_refused() {
    enter_namespace();
    BackEnd::XdpNative.make();
    let memory = Memory::new(&["near"], &CONFIG).expect("there is memory");
    let error = XdpDevice::open_queues(&Hook::new("near"), Some(0..3), &memory, CONFIG);
    let error = error.expect_err("there is one queue").to_string();
    assert!(error.contains("has 1 receive queues and 3 are wanted; `ethtool -L near"), "{error}");
    let error = XdpDevice::open("nosuch0", CONFIG).expect_err("there is no such device");
    assert!(matches!(error, Error::NoDevice(name) if name == "nosuch0"));
}

#[test]
fn a_full_device_says_which_frames_it_lost() {
    two_cables();
    let [mut a, _] = open_pair();
    let mut left = XdpDevice::open("a1", CONFIG).expect("the device can be opened");
    wait_until_up(&mut left);
    // Faster than the other processor receives them: the cable's queue has 256 places.
    let (mut sent, mut lost, mut received) = (0_u64, 0_u64, 0_u64);
    for round in 0..400_u32 {
        let mut bytes: Vec<_> = (0..BATCH as u32)
            .map(|number| [round.to_be_bytes(), number.to_be_bytes()].concat().repeat(8))
            .collect();
        let mut frames: Vec<_> = bytes.iter_mut().map(|bytes| Frame::of(bytes, 0, 64)).collect();
        let missing = left.split().1.transmit(&mut frames);
        sent += BATCH as u64;
        lost += u64::from(missing.count());
        let mut batch = Batch::new();
        a.split().0.receive(&mut batch);
        received += batch.len() as u64;
    }
    let begin = std::time::Instant::now();
    // Every frame was received, or found a queue full, at either end.
    loop {
        let mut batch = Batch::new();
        a.split().0.receive(&mut batch);
        received += batch.len() as u64;
        drop(batch);
        let overrun = a.statistics().receive_overrun;
        if received + lost + overrun == sent {
            break;
        }
        let seen = (received, lost, overrun, sent);
        assert!(begin.elapsed() < crate::stage::PATIENCE, "{seen:?}");
    }
    let statistics = left.statistics();
    assert_eq!((statistics.transmit_full, statistics.transmitted), (lost, sent - lost));
}
