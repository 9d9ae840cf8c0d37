//! VLAN tags that senders at the other end of a cable keep beside the frame, as kernels do for
//! hardware that inserts tags. A back end that learns of such a tag puts it back into the frame.
//!
//! A VLAN device would send such tags, and not every kernel has those devices. So a program on the
//! far end's output adds the tag by the same means.

use crate::stage::{BackEnd, PATIENCE, enter_namespace, ip, maintain_until, run};
use natgate_io::{Batch, Change, Device};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

const PLAIN: &[u8] = b"plain plain plain pl";
const TAGGED: &[u8] = b"tagged tagged tagged";

/// The far end's kernel sends two datagrams, the second with a tag of VLAN 5, in the frame or
/// beside it. Returns both frames as the device receives them.
fn frames_of(kind: BackEnd, leave_to_hardware: bool) -> [Vec<u8>; 2] {
    enter_namespace();
    kind.make();
    if !leave_to_hardware {
        run("ethtool", "-K far tx-vlan-hw-insert off");
    }
    // The sender finishes its checksums.
    run("ethtool", "-K far tx off");
    ip("addr add 10.6.0.1/24 dev far");
    ip("neigh add 10.6.0.2 lladdr 02:00:00:00:00:0a dev far");
    let mut device = kind.open();
    if !device.link().up {
        maintain_until(&mut *device, |change| matches!(change, Change::Up));
    }
    let socket = UdpSocket::bind("10.6.0.1:4000").expect("a socket");
    let mut received = |payload: &[u8]| {
        socket.send_to(payload, "10.6.0.2:53").expect("the kernel sends");
        frame_with(&mut *device, payload)
    };
    let plain = received(PLAIN);
    let _program = add_tags("far");
    [plain, received(TAGGED)]
}

/// Receives the frame that ends in this payload.
fn frame_with(device: &mut dyn Device, payload: &[u8]) -> Vec<u8> {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "the frame did not come");
        let mut batch = Batch::new();
        device.split().0.receive(&mut batch);
        if let Some(frame) = batch.iter().find(|frame| frame.bytes().ends_with(payload)) {
            return frame.bytes().to_vec();
        }
    }
}

/// Adds a tag of VLAN 5 to every frame that leaves by a device, for as long as the returned
/// descriptor lives: `bpf_skb_vlan_push(context, ETH_P_8021Q, 5); return 0` on the device's output.
fn add_tags(device: &str) -> OwnedFd {
    const LOAD: libc::c_int = 5;
    const CREATE_LINK: libc::c_int = 28;
    const CLASSIFIER: u32 = 3;
    const WAY_OUT: u32 = 47;
    let kind = u32::from(0x8100_u16.to_be());
    let move_constant = |register: u64, value: u32| u64::from(value) << 32 | register << 8 | 0xb7;
    let code: [u64; 5] =
        [move_constant(2, kind), move_constant(3, 5), 18 << 32 | 0x85, move_constant(0, 0), 0x95];
    let (code, license) = (code.as_ptr() as u64, c"GPL".as_ptr() as u64);
    let [low, high] = [code as u32, (code >> 32) as u32];
    let [license_low, license_high] = [license as u32, (license >> 32) as u32];
    let program = bpf(LOAD, &[CLASSIFIER, 5, low, high, license_low, license_high]);
    let name = std::ffi::CString::new(device).expect("no zero byte");
    // SAFETY: the name is a string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    bpf(CREATE_LINK, &[program.as_raw_fd() as u32, index, WAY_OUT, 0])
}

/// Makes a BPF request that returns a descriptor.
fn bpf<const N: usize>(command: libc::c_int, request: &[u32; N]) -> OwnedFd {
    let len = std::mem::size_of_val(request);
    // SAFETY: the request outlives the call, its length is passed, and at every caller the targets
    // of its pointers outlive the call.
    let made = unsafe { libc::syscall(libc::SYS_bpf, command, request.as_ptr(), len) };
    assert!(made >= 0, "bpf {command}: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and has no other owner.
    unsafe { OwnedFd::from_raw_fd(made as libc::c_int) }
}

/// Bytes of a frame between the hardware addresses and the packet.
fn heads(frames: &[Vec<u8>; 2]) -> [&[u8]; 2] {
    frames.each_ref().map(|frame| &frame[12..frame.len() - 48])
}

const PLAIN_HEAD: &[u8] = &[8, 0];
const TAGGED_HEAD: &[u8] = &[0x81, 0, 0, 5, 8, 0];

#[test]
fn packet_sockets_put_tags_back() {
    for kind in [BackEnd::AfPacket, BackEnd::AfPacketRate] {
        for leave_to_hardware in [true, false] {
            let frames = frames_of(kind, leave_to_hardware);
            assert_eq!(heads(&frames), [PLAIN_HEAD, TAGGED_HEAD], "{kind:?} {leave_to_hardware}");
        }
    }
}

#[test]
fn af_xdp_sees_tags_that_are_in_the_frame() {
    for kind in [BackEnd::XdpNative, BackEnd::XdpGeneric] {
        let frames = frames_of(kind, false);
        assert_eq!(heads(&frames), [PLAIN_HEAD, TAGGED_HEAD], "{kind:?}");
    }
}

/// The kernel does not tell XDP of such tags, as the documentation warns.
#[test]
fn af_xdp_does_not_see_tags_beside_the_frame() {
    for kind in [BackEnd::XdpNative, BackEnd::XdpGeneric] {
        let frames = frames_of(kind, true);
        assert_eq!(heads(&frames), [PLAIN_HEAD, PLAIN_HEAD], "{kind:?}");
    }
}
