//! Option lists of IPv4 and TCP: results of searches, and the end of a search at a malformed list.

use natgate_wire::Tcp;
use natgate_wire::ipv4::{Options, has_unexpired_source_route, scan_options};
use proptest::prelude::*;

#[test]
fn ip_options_by_example() {
    use Options::{Malformed, Plain, SourceRoute};
    let cases: [(&str, &[u8], Options); 18] = [
        ("none", &[], Plain),
        ("end of list", &[0, 0, 0, 0], Plain),
        ("no operation up to the end", &[1, 1, 1, 1], Plain),
        ("record route", &[7, 7, 4, 0, 0, 0, 0, 0], Plain),
        ("timestamp", &[68, 8, 5, 0, 0, 0, 0, 0], Plain),
        ("router alert", &[148, 4, 0, 0], Plain),
        ("shortest possible", &[200, 2, 0, 0], Plain),
        ("loose source route", &[131, 7, 4, 10, 0, 0, 1, 0], SourceRoute),
        ("strict source route", &[137, 7, 4, 10, 0, 0, 1, 0], SourceRoute),
        ("source route behind others", &[1, 148, 4, 0, 0, 137, 3, 4], SourceRoute),
        ("source route whose length lies", &[131, 255, 0, 0], SourceRoute),
        ("source route at the last byte", &[1, 1, 1, 131], SourceRoute),
        ("source route after the end of list", &[1, 0, 131, 7], Plain),
        ("source route as data of another", &[148, 4, 131, 137], Plain),
        ("length zero", &[7, 0, 0, 0], Malformed),
        ("length one", &[7, 1, 0, 0], Malformed),
        ("runs past the header", &[1, 7, 4, 0], Malformed),
        ("no room for a length", &[1, 1, 1, 7], Malformed),
    ];
    for (name, options, expected) in cases {
        assert_eq!(scan_options(options), expected, "{name}");
    }
}

#[test]
fn source_routes_by_example() {
    let cases: [(&str, &[u8], bool); 13] = [
        ("none", &[], false),
        ("other options", &[1, 148, 4, 0, 0, 7, 3, 4], false),
        ("loose, at its start", &[131, 7, 4, 10, 0, 0, 1, 0], true),
        ("strict, at its start", &[137, 7, 4, 10, 0, 0, 1, 0], true),
        ("loose, expired", &[131, 7, 8, 10, 0, 0, 1, 0], false),
        ("strict, expired", &[137, 7, 8, 10, 0, 0, 1, 0], false),
        ("at its last address", &[131, 11, 8, 10, 0, 0, 1, 10, 0, 0, 2, 0], true),
        ("unexpired behind expired", &[131, 3, 4, 137, 7, 4, 10, 0, 0, 1, 0, 0], true),
        ("behind the end of the list", &[0, 131, 7, 4], false),
        ("without pointer", &[1, 1, 131, 2], true),
        ("without length", &[1, 1, 1, 131], true),
        ("whose pointer is its length", &[131, 255, 255, 0], true),
        ("behind a malformed option", &[7, 0, 131, 7, 4, 0, 0, 0], false),
    ];
    for (name, options, expected) in cases {
        assert_eq!(has_unexpired_source_route(options), expected, "{name}");
    }
}

/// A segment's header with these options, padded to whole words.
fn segment(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes.extend_from_slice(options);
    bytes.resize(20 + options.len().next_multiple_of(4), 0);
    bytes[12] = (bytes.len() / 4 * 16) as u8;
    bytes
}

fn window_scale(options: &[u8]) -> Option<u8> {
    Tcp::new_checked(&segment(options)[..]).expect("a whole header").window_scale()
}

#[test]
fn window_scales_by_example() {
    let cases: [(&str, &[u8], Option<u8>); 13] = [
        ("none", &[], None),
        ("alone", &[3, 3, 7], Some(7)),
        ("shift zero is not absence", &[3, 3, 0], Some(0)),
        (
            "as Linux sends it",
            &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7],
            Some(7),
        ),
        ("shifts beyond 14 count as 14", &[3, 3, 15], Some(14)),
        ("shift 255", &[3, 3, 255], Some(14)),
        ("behind the end of list", &[0, 3, 3, 7], None),
        ("within another option", &[254, 5, 3, 3, 7], None),
        ("length other than three is no such option", &[3, 4, 7, 0], None),
        ("a right one after it", &[3, 4, 7, 0, 3, 3, 5], Some(5)),
        ("an option of length zero ends the search", &[8, 0, 3, 3, 7], None),
        ("an option of length one ends the search", &[8, 1, 3, 3, 7], None),
        ("an option that runs past the header ends it", &[8, 40, 3, 3, 7], None),
    ];
    for (name, options, expected) in cases {
        assert_eq!(window_scale(options), expected, "{name}");
    }
}

#[test]
fn data_is_not_searched_for_options() {
    let mut bytes = segment(&[]);
    bytes.extend_from_slice(&[3, 3, 7, 0]);
    assert_eq!(Tcp::new_checked(&bytes[..]).expect("a whole header").window_scale(), None);
}

/// Options that a search skips.
fn harmless() -> impl Strategy<Value = Vec<u8>> {
    let kinds = (2..=255_u8).prop_filter("routes", |kind| !matches!(kind, 3 | 131 | 137));
    let with_data = (kinds, prop::collection::vec(any::<u8>(), 0..6))
        .prop_map(|(kind, data)| [&[kind, data.len() as u8 + 2][..], &data].concat());
    prop_oneof![Just(vec![1]), with_data]
}

proptest! {
    #[test]
    fn harmless_lists_are_plain_wherever_a_route_follows(
        options in prop::collection::vec(harmless(), 0..6),
        route in prop::sample::select(vec![131, 137]),
    ) {
        let mut list = options.concat();
        prop_assert_eq!(scan_options(&list), Options::Plain);
        list.extend([route, 3, 4]);
        prop_assert_eq!(scan_options(&list), Options::SourceRoute);
        let cut = list.len() - 3;
        list.truncate(cut);
        list.push(200);
        prop_assert_eq!(scan_options(&list), Options::Malformed);
    }

    #[test]
    fn the_first_window_scale_counts(
        before in prop::collection::vec(harmless(), 0..4), shift in 0..=14_u8, after in any::<u8>(),
    ) {
        let mut list = before.concat();
        list.extend([3, 3, shift, 3, 3, after]);
        prop_assume!(list.len() <= 40);
        prop_assert_eq!(window_scale(&list), Some(shift));
    }

    #[test]
    fn no_list_makes_the_search_panic_or_run_forever(
        list in prop::collection::vec(any::<u8>(), 0..=40),
    ) {
        let _ = scan_options(&list);
        let _ = window_scale(&list);
    }
}
