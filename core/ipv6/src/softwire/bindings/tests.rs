//! Tests of the table of bindings.

extern crate std;

use super::*;
use alloc::collections::BTreeMap;
use core::hint::black_box;

const BR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2);

fn sets(offset: u8, len: u8) -> PortSets {
    PortSets::new(offset, len).expect("at most 16 bits")
}

fn binding(ipv4: u32, sets: PortSets, psid: u16, b4: u128) -> Binding {
    let (ipv4, b4) = (Ipv4Addr::from_bits(ipv4), Ipv6Addr::from_bits(b4));
    Binding { ipv4, sets, psid, b4, br: BR }
}

fn table(bindings: &[Binding]) -> BindingTable {
    BindingTable::new(bindings, BR, 10).expect("bindings that agree")
}

fn next(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

#[test]
fn a_binding_is_found_by_the_ports_of_its_set_alone() {
    let shared = sets(6, 8);
    let whole = PortSets::WHOLE;
    let table = table(&[
        binding(0xc000_0212, shared, 0x34, 1),
        binding(0xc000_0212, shared, 0x35, 2),
        binding(0xc000_0213, whole, 0, 3),
        binding(0xc000_0214, shared, 0x34, 4),
    ]);
    let customer = |ipv4, port| table.find(ipv4, port).map(|tunnel| tunnel.customer);
    assert_eq!(customer(0xc000_0212, 1232), Some(1));
    assert_eq!(customer(0xc000_0212, 1236), Some(2));
    assert_eq!(customer(0xc000_0212, 1240), None);
    assert_eq!(customer(0xc000_0212, 208), None);
    assert_eq!(customer(0xc000_0213, 5), Some(3));
    assert_eq!(customer(0xc000_0214, 1232), Some(4));
    assert_eq!(customer(0xc000_0215, 1232), None);
    assert_eq!(customer(1, 1), None);
    assert_eq!(table.find(0xc000_0213, 7).map(|tunnel| tunnel.br), Some(BR.to_bits()));
    assert_eq!((table.len(), table.iter().count()), (4, 4));
}

#[test]
fn bindings_that_contradict_each_other_are_named() {
    let one = sets(0, 4);
    let bindings = [
        binding(9, one, 3, 1),
        binding(8, one, 3, 1),
        binding(9, one, 3, 2),
        binding(8, sets(2, 4), 5, 2),
        binding(8, one, 3, 7),
    ];
    let conflicts = BindingTable::new(&bindings, BR, 10).expect_err("they contradict");
    assert_eq!(conflicts[0], Conflict::Divided(1, 3));
    assert!(conflicts.contains(&Conflict::Same(0, 2)) && conflicts.contains(&Conflict::Same(1, 4)));
    let many: Vec<Binding> = (1..=300)
        .map(|number| Binding { br: Ipv6Addr::from_bits(number), ..binding(5, one, 0, 1) })
        .map(|one| Binding { ipv4: Ipv4Addr::from_bits(one.br.to_bits() as u32), ..one })
        .collect();
    let conflicts = BindingTable::new(&many, BR, 10).expect_err("too many BR addresses");
    assert_eq!(conflicts, [Conflict::Brs(255)]);
}

#[test]
fn changes_agree_with_an_ordinary_map() {
    let mut state = 7;
    std::eprintln!("seed 7");
    let division = sets(2, 5);
    let start: Vec<Binding> = (0..500)
        .map(|number| binding(100 + number / 32, division, (number % 32) as u16, 1))
        .collect();
    let table = table(&start);
    let mut plain: BTreeMap<(u32, u16), u128> =
        start.iter().map(|one| ((one.ipv4.to_bits(), one.psid), 1)).collect();
    let mut full = 0;
    for step in 0..20_000_u32 {
        let (ipv4, psid) = (100 + next(&mut state) % 16, (next(&mut state) % 32) as u16);
        if next(&mut state).is_multiple_of(3) {
            assert_eq!(table.remove(ipv4.into(), psid), plain.remove(&(ipv4, psid)).is_some());
        } else {
            let b4 = u128::from(step) << 64 | 9;
            match table.set(binding(ipv4, division, psid, b4)) {
                Ok(is_new) => {
                    assert_eq!(is_new, plain.insert((ipv4, psid), b4).is_none());
                }
                Err(refused) => {
                    assert_eq!(refused, Refused::Full);
                    full += 1;
                }
            }
        }
        assert_eq!(table.len(), plain.len());
        let has = plain.range((ipv4, 0)..=(ipv4, u16::MAX)).next().is_some();
        assert_eq!(table.has_address(ipv4), has);
    }
    assert!(full < 20_000 / 4, "{full} of 20,000 refused");
    for (&(ipv4, psid), &b4) in &plain {
        let port = division.ranges(psid).next().expect("a range").0;
        assert_eq!(table.find(ipv4, port).map(|tunnel| tunnel.customer), Some(b4));
    }
    assert_eq!(table.iter().count(), plain.len());
}

#[test]
fn what_a_table_cannot_have_is_refused() {
    let division = sets(0, 4);
    let table = table(&[binding(9, division, 3, 1)]);
    assert_eq!(table.set(binding(9, sets(0, 5), 3, 1)), Err(Refused::Divided));
    let other = Binding { br: Ipv6Addr::LOCALHOST, ..binding(9, division, 4, 1) };
    assert_eq!(table.set(other), Err(Refused::Br));
    assert_eq!(table.set(binding(9, division, 3, 2)), Ok(false));
    assert!(table.remove(Ipv4Addr::from_bits(9), 3) && table.is_empty());
    let empty = BindingTable::new(&[], BR, 10).expect("no binding");
    assert_eq!((empty.find(9, 1), empty.is_empty()), (None, true));
    assert_eq!(empty.set(binding(9, division, 3, 1)), Err(Refused::Divided));
}

#[test]
fn a_million_bindings_take_at_most_33_bytes_each_and_lookups_stay_short() {
    let division = sets(0, 6);
    let all: Vec<Binding> = (0..1_000_000_u32)
        .map(|number| {
            binding(0x0a00_0000 + number / 64, division, (number % 64) as u16, number.into())
        })
        .collect();
    let table = table(&all);
    let each = table.memory() as f64 / all.len() as f64;
    assert!(each <= 33.0, "{each} bytes a binding");
    let lines = |one: &Binding| {
        let wanted = table.wanted(one.ipv4.to_bits(), one.psid);
        let (place, _) = table.search(wanted).expect("a binding");
        (place / LINE + table.keys.len() - wanted.at / LINE) % table.keys.len() + 1
    };
    let lines: usize = all.iter().map(lines).sum();
    assert!(lines < all.len() * 13 / 10, "{lines} lines of keys for a million lookups");
}

#[test]
fn readers_find_a_binding_while_it_changes() {
    use std::sync::atomic::AtomicBool;
    let division = sets(0, 2);
    let bindings: Vec<_> =
        (0..64).map(|n| binding(50 + n / 4, division, (n % 4) as u16, 0)).collect();
    let table = table(&bindings);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u64;
            while !end.load(Ordering::Relaxed) {
                for number in 0..64_u32 {
                    let port = ((number % 4) << 14) as u16;
                    let found = table.find(50 + number / 4, port).expect("a binding").customer;
                    // Both halves of a value are of one change.
                    assert_eq!(found >> 64, found & u128::from(u64::MAX));
                    reads += 1;
                }
            }
            reads
        });
        for change in 0..200_000_u128 {
            let number = (change % 64) as u32;
            let b4 = change << 64 | change;
            let one = binding(50 + number / 4, division, (number % 4) as u16, b4);
            assert_eq!(table.set(black_box(one)), Ok(false));
        }
        end.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("a reader that found all") > 0);
    });
}
