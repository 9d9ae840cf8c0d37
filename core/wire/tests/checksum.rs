//! The Internet checksum: worked examples, its laws, and the incremental update in comparison with
//! full recomputation.
//!
//! Ones' complement has two zeros, 0x0000 and 0xffff, and errors are most likely there. Random
//! words almost never hit the zeros, so the tests draw the zeros on purpose. Update and
//! recomputation differ only for a message of zeros alone (RFC 1624 section 3 overlooks this case).
//! No IP packet and no pseudo header is such a message, and the exception has a test of its own.

use natgate_wire::checksum::{checksum, fold, pseudo_header, sum};
use natgate_wire::{Delta, Icmp, Ipv4};
use proptest::prelude::*;

/// Words, half of them at the edges of ones' complement arithmetic.
fn word() -> impl Strategy<Value = u16> {
    prop_oneof![
        2 => Just(0x0000),
        2 => Just(0xffff),
        1 => Just(0x0001),
        1 => Just(0xfffe),
        1 => Just(0x8000),
        5 => any::<u16>(),
    ]
}

fn words(most: usize) -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(word(), 1..=most)
}

fn bytes_of(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The checksum by its definition, one word after the other.
fn checksum_by_definition(bytes: &[u8]) -> u16 {
    let mut total: u16 = 0;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (added, carry) = total.overflowing_add(word);
        total = added + u16::from(carry);
    }
    !total
}

#[test]
fn the_example_of_rfc_1071() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(fold(sum(&bytes, 0)), 0xddf2);
    assert_eq!(checksum(&bytes), !0xddf2);
}

#[test]
fn the_example_of_rfc_1624() {
    // HC = 0xdd2f, m = 0x5555, m' = 0x3285: equation 2 of RFC 1141 gives 0xffff, the correct value
    // is 0.
    assert_eq!(Delta::NONE.replace_u16(0x5555, 0x3285).apply(0xdd2f), 0x0000);
}

#[test]
fn nothing_sums_to_zero_and_an_odd_byte_is_a_high_one() {
    assert_eq!(checksum(&[]), 0xffff);
    assert_eq!(checksum(&[0x12]), !0x1200);
    assert_eq!(checksum(&[0xff, 0xff]), 0);
}

#[test]
fn long_data_and_large_starts_do_not_overflow() {
    let bytes = [0xff; 65_535];
    assert_eq!(checksum(&bytes), checksum_by_definition(&bytes));
    assert_eq!(fold(sum(&bytes, u32::MAX)), !checksum_by_definition(&bytes));
    assert_eq!(fold(u32::MAX), 0xffff);
}

/// RFC 1624's equation 3 never gives the sum 0x0000. Only zeros alone have that sum.
#[test]
fn the_exception_is_a_message_of_zeros() {
    let full = checksum(&[0, 0, 0, 0]);
    let updated = Delta::NONE.replace_u16(0x1234, 0).apply(checksum(&[0x12, 0x34, 0, 0]));
    assert_eq!((full, updated), (0xffff, 0x0000));
    // A receiver accepts both: with either value the sum is one of the two zeros.
    for stored in [full, updated] {
        assert!(matches!(fold(sum(&stored.to_be_bytes(), 0)), 0 | 0xffff));
    }
}

proptest! {
    #[test]
    fn the_sum_is_that_of_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(checksum(&bytes), checksum_by_definition(&bytes));
    }

    #[test]
    fn parts_add_up(head in words(40), tail in words(40)) {
        let (head, tail) = (bytes_of(&head), bytes_of(&tail));
        let whole = [head.clone(), tail.clone()].concat();
        prop_assert_eq!(fold(sum(&tail, sum(&head, 0))), fold(sum(&whole, 0)));
    }

    #[test]
    fn data_with_its_checksum_has_checksum_zero(mut data in words(40)) {
        data.push(checksum(&bytes_of(&data)));
        prop_assert_eq!(checksum(&bytes_of(&data)), 0);
    }

    #[test]
    fn pseudo_headers_are_twelve_bytes(
        source in any::<u32>(), destination in any::<u32>(), protocol in any::<u8>(),
        length in any::<u16>(), start in words(3),
    ) {
        let [high, low] = length.to_be_bytes();
        let bytes = [
            &source.to_be_bytes()[..], &destination.to_be_bytes(), &[0, protocol, high, low],
            &bytes_of(&start),
        ].concat();
        let partial = pseudo_header(source, destination, protocol, length);
        prop_assert_eq!(fold(sum(&bytes_of(&start), partial)), fold(sum(&bytes, 0)));
    }

    /// Replaces several words in one delta, in any order.
    #[test]
    fn an_update_equals_recomputation(
        old in words(30),
        changes in prop::collection::vec((any::<prop::sample::Index>(), word()), 0..8),
    ) {
        let mut new = old.clone();
        let (mut delta, mut backwards) = (Delta::NONE, Delta::NONE);
        for (at, value) in changes {
            let at = at.index(new.len());
            delta = delta.replace_u16(new[at], value);
            backwards = Delta::NONE.replace_u16(new[at], value).and(backwards);
            new[at] = value;
        }
        let before = checksum(&bytes_of(&old));
        prop_assert_eq!(delta, backwards);
        if new == old {
            // m + m' is the negative zero. It can only turn one zero into the other.
            prop_assert!(matches!(delta.apply(before) ^ before, 0 | 0xffff));
        }
        if new.iter().any(|&word| word != 0) {
            prop_assert_eq!(delta.apply(before), checksum(&bytes_of(&new)));
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong_by_as_much(
        old in words(10),
        at in any::<prop::sample::Index>(),
        value in word(),
        error in 1..0xffff_u16,
    ) {
        let mut new = old.clone();
        let at = at.index(old.len());
        new[at] = value;
        // Sums are compared modulo 0xffff: the two zeros are one number.
        let add = |a: u16, b: u16| fold(u32::from(a) + u32::from(b));
        let wrong = add(checksum(&bytes_of(&old)), error);
        let updated = Delta::NONE.replace_u16(old[at], value).apply(wrong);
        let expected = add(checksum(&bytes_of(&new)), error);
        prop_assert_eq!(updated % 0xffff, expected % 0xffff);
        prop_assert_ne!(updated % 0xffff, checksum(&bytes_of(&new)) % 0xffff);
    }

    #[test]
    fn addresses_are_two_words(
        old in (word(), word()),
        new in (word(), word()),
        rest in 1..=u16::MAX,
    ) {
        let join = |(high, low): (u16, u16)| u32::from(high) << 16 | u32::from(low);
        let delta = Delta::NONE.replace_u32(join(old), join(new));
        let before = checksum(&bytes_of(&[old.0, old.1, rest]));
        prop_assert_eq!(delta.apply(before), checksum(&bytes_of(&[new.0, new.1, rest])));
    }

    /// Changes addresses and TTL of a header, as a router does.
    #[test]
    fn headers_keep_a_right_checksum(
        old in (word(), word(), word(), word()), new in (word(), word(), word(), word()),
        identification in word(), ttl in 1..=255_u8, protocol in any::<u8>(),
    ) {
        let join = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let mut bytes = [0; 20];
        let mut packet = Ipv4::init(&mut bytes[..], 20);
        packet.set_total_len(20);
        packet.set_identification(identification);
        packet.set_ttl(ttl);
        packet.set_protocol(protocol);
        packet.set_source(join(old.0, old.1));
        packet.set_destination(join(old.2, old.3));
        packet.fill_checksum();
        prop_assert!(packet.checksum_valid());
        let word = |ttl: u8| u16::from_be_bytes([ttl, protocol]);
        let delta = Delta::NONE
            .replace_u32(packet.source(), join(new.0, new.1))
            .replace_u32(packet.destination(), join(new.2, new.3))
            .replace_u16(word(ttl), word(ttl - 1));
        packet.set_source(join(new.0, new.1));
        packet.set_destination(join(new.2, new.3));
        packet.set_ttl(ttl - 1);
        packet.update_checksum(delta);
        prop_assert!(packet.checksum_valid());
        let updated = packet.header_checksum();
        packet.fill_checksum();
        prop_assert_eq!(updated, packet.header_checksum());
    }

    #[test]
    fn icmp_messages_fill_their_checksum(mut message in prop::collection::vec(any::<u8>(), 8..80)) {
        message[0] |= 1;
        let mut view = Icmp::new_checked(&mut message[..]).expect("eight bytes");
        view.fill_checksum();
        prop_assert!(view.checksum_valid());
        prop_assert_eq!(view.checksum(), u16::from_be_bytes([message[2], message[3]]));
    }
}
