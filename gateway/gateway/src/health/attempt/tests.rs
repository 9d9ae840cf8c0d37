//! Checks against a server of a few lines.

use super::*;
use natgate_wire::tcp::flags::FIN;

const START: Timestamp = Timestamp(5_000_000_000);

fn at(millis: u64) -> Timestamp {
    START.plus(Duration::from_millis(millis))
}

fn attempt(kind: &CheckKind) -> Attempt {
    let ends = ("10.0.0.1:50000".parse().unwrap(), "10.0.0.5:8080".parse().unwrap());
    Attempt::new(START, kind, ends, 0xffff_fffe)
}

fn http() -> CheckKind {
    CheckKind::Http { path: "/health".to_owned(), host: None }
}

/// The packet that the attempt sends, checked: numbers, flags and data.
fn sent(attempt: &mut Attempt, now: Timestamp) -> (u32, u32, u8, Vec<u8>) {
    let mut bytes = [0xee; 700];
    assert!(now >= attempt.due());
    let len = attempt.write(now, &mut bytes);
    read(&bytes[..len])
}

fn read(bytes: &[u8]) -> (u32, u32, u8, Vec<u8>) {
    let ip = Ipv4::new_checked(bytes).unwrap();
    assert!(ip.checksum_valid() && usize::from(ip.total_len()) == bytes.len());
    let (source, destination) = (ip.source(), ip.destination());
    assert_eq!((source, destination), (0x0a00_0001, 0x0a00_0005));
    let len = ip.payload().len() as u16;
    let pseudo = checksum::pseudo_header(source, destination, protocol::TCP, len);
    assert_eq!(checksum::fold(checksum::sum(ip.payload(), pseudo)), 0xffff);
    let tcp = Tcp::new_checked(ip.payload()).unwrap();
    assert_eq!((tcp.source_port(), tcp.destination_port()), (50_000, 8080));
    let data = ip.payload()[tcp.header_len()..].to_vec();
    (tcp.sequence(), tcp.acknowledgment(), tcp.flags(), data)
}

/// Gives a segment of the server to the attempt.
fn answer(
    attempt: &mut Attempt,
    (number, acknowledged): (u32, u32),
    flags: u8,
    data: &[u8],
) -> Option<Outcome> {
    let other = Attempt {
        local: attempt.server,
        server: attempt.local,
        request: Vec::new(),
        stage: Stage::Synchronized,
        first: 0,
        due: START,
        again: AGAIN,
        owes: false,
    };
    let mut bytes = [0; 700];
    let len = other.write_segment((number, acknowledged), flags, &[], data, &mut bytes);
    attempt.take(&Ipv4::new_checked(&bytes[..len]).unwrap())
}

/// The attempt with a connection: the server's next number is 1001.
fn connected() -> Attempt {
    let mut attempt = attempt(&http());
    assert_eq!(sent(&mut attempt, START), (0xffff_fffe, 0, SYN, vec![]));
    assert_eq!(answer(&mut attempt, (1000, 0xffff_ffff), SYN | ACK, &[]), None);
    attempt
}

#[test]
fn a_server_that_accepts_the_syn_is_well_and_the_connection_is_reset() {
    let mut attempt = attempt(&CheckKind::Tcp);
    sent(&mut attempt, START);
    // Answers to something else.
    assert_eq!(answer(&mut attempt, (1000, 77), SYN | ACK, &[]), None);
    assert_eq!(answer(&mut attempt, (1000, 0xffff_fffe), RST | ACK, &[]), None);
    assert_eq!(answer(&mut attempt, (1000, 0xffff_ffff), SYN | ACK, &[]), Some(Ok(())));
    assert!(attempt.is_connected());
    let mut bytes = [0; 60];
    let len = attempt.write_reset(&mut bytes);
    assert_eq!(read(&bytes[..len]), (0xffff_ffff, 1001, RST | ACK, vec![]));
}

#[test]
fn a_server_that_resets_is_not() {
    let mut attempt = attempt(&CheckKind::Tcp);
    sent(&mut attempt, START);
    let refused = answer(&mut attempt, (0, 0xffff_ffff), RST | ACK, &[]);
    assert_eq!(refused, Some(Err(CheckFailure::Refused)));
    assert!(!attempt.is_connected());
}

#[test]
fn packets_without_an_answer_are_sent_again_later_and_later() {
    let mut attempt = attempt(&http());
    for millis in [0, 1000, 3000] {
        assert!(attempt.due() == at(millis));
        assert_eq!(sent(&mut attempt, at(millis)).2, SYN);
    }
    answer(&mut attempt, (1000, 0xffff_ffff), SYN | ACK, &[]);
    let (number, acknowledged, flags, data) = sent(&mut attempt, at(3100));
    assert_eq!((number, acknowledged, flags), (0xffff_ffff, 1001, ACK | PSH));
    let text = String::from_utf8(data.clone()).unwrap();
    assert!(text.starts_with("GET /health HTTP/1.0\r\nHost: 10.0.0.5:8080\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\n") && text.len() <= 500);
    assert_eq!(attempt.due(), at(4100));
    assert_eq!(sent(&mut attempt, at(4100)).3, data);
}

#[test]
fn a_status_of_success_or_redirection_is_well_at_every_cut_of_the_response() {
    let results: [(&str, Outcome); 7] = [
        ("HTTP/1.1 200 OK\r\n\r\n", Ok(())),
        ("HTTP/1.0 204\r\n", Ok(())),
        ("HTTP/1.1 399 Odd\r\n", Ok(())),
        ("HTTP/1.1 404 Not Found\r\n", Err(CheckFailure::Status(404))),
        ("HTTP/1.1 503 \r\n", Err(CheckFailure::Status(503))),
        ("SSH-2.0-OpenSSH\r\n", Err(CheckFailure::NotHttp)),
        ("HTTP/1.1 2x0 OK\r\n", Err(CheckFailure::NotHttp)),
    ];
    for (response, expected) in results {
        let response = response.as_bytes();
        for cut in 0..=response.len() {
            let mut attempt = connected();
            let request = sent(&mut attempt, START).3.len() as u32;
            let after = 0xffff_ffff_u32.wrapping_add(request);
            let (first, second) = response.split_at(cut);
            // The second part comes first, and is answered with an acknowledgment.
            let second_number = 1001 + cut as u32;
            let mut outcome = None;
            if cut > 0 && cut < response.len() {
                let early = answer(&mut attempt, (second_number, after), ACK, second);
                assert_eq!(early, None);
                assert_eq!(sent(&mut attempt, START), (after, 1001, ACK, vec![]));
            }
            for (number, part) in [(1001, first), (second_number, second)] {
                if !part.is_empty() && outcome.is_none() {
                    outcome = answer(&mut attempt, (number, after), ACK, part);
                }
            }
            assert_eq!(outcome, Some(expected), "{cut} of {response:?}");
        }
    }
}

#[test]
fn a_repeated_syn_gets_an_acknowledgment_and_no_second_request() {
    let mut attempt = connected();
    let request = sent(&mut attempt, START).3.len() as u32;
    assert_eq!(answer(&mut attempt, (7, 0xffff_ffff), SYN | ACK, &[]), None);
    assert!(attempt.due() > START, "another connection's SYN");
    assert_eq!(answer(&mut attempt, (1000, 0xffff_ffff), SYN | ACK, &[]), None);
    let after = 0xffff_ffff_u32.wrapping_add(request);
    assert_eq!(sent(&mut attempt, START), (after, 1001, ACK, vec![]));
}

#[test]
fn the_reset_has_the_number_that_the_server_expects() {
    let reset = |is_acknowledged: bool| {
        let mut attempt = connected();
        let request = sent(&mut attempt, START).3.len() as u32;
        let after = 0xffff_ffff_u32.wrapping_add(request);
        if is_acknowledged {
            assert_eq!(answer(&mut attempt, (1001, after), ACK, &[]), None);
        }
        let mut bytes = [0; 60];
        let len = attempt.write_reset(&mut bytes);
        (read(&bytes[..len]).0, after)
    };
    let (number, after) = reset(true);
    assert_eq!(number, after);
    assert_eq!(reset(false).0, 0xffff_ffff);
}

#[test]
fn a_connection_that_ends_early_is_no_response() {
    for flags in [FIN | ACK, RST] {
        let mut attempt = connected();
        let request = sent(&mut attempt, START).3.len() as u32;
        let after = 0xffff_ffff_u32.wrapping_add(request);
        // A RST with another number than the next one is not believed (RFC 5961 section 3).
        assert_eq!(answer(&mut attempt, (1002, after), flags, &[]), None);
        let outcome = answer(&mut attempt, (1001, after), flags, &[]);
        let expected = if flags == RST { CheckFailure::Refused } else { CheckFailure::NotHttp };
        assert_eq!(outcome, Some(Err(expected)));
    }
}

#[test]
fn an_echo_is_well_if_it_has_the_data() {
    let mut attempt = attempt(&CheckKind::Icmp);
    let mut bytes = [0xee; 60];
    let len = attempt.write(START, &mut bytes);
    assert_eq!(attempt.take(&Ipv4::new_checked(&bytes[..len]).unwrap()), None, "a request");
    let mut reply = bytes[..len].to_vec();
    reply[20] = 0;
    let mut message = Icmp::new_checked(&mut reply[20..]).unwrap();
    assert_eq!((message.kind(), message.identifier()), (0, 50_000));
    message.fill_checksum();
    assert_eq!(attempt.take(&Ipv4::new_checked(&reply[..]).unwrap()), Some(Ok(())));
    reply[28] ^= 1;
    assert_eq!(attempt.take(&Ipv4::new_checked(&reply[..]).unwrap()), None, "a wrong checksum");
    Icmp::new_checked(&mut reply[20..]).unwrap().fill_checksum();
    assert_eq!(attempt.take(&Ipv4::new_checked(&reply[..]).unwrap()), None, "other data");
}
