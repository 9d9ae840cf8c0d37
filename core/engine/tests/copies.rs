//! Copies of mappings between engines that run: the partner of a pair has the mappings of the
//! owner, whatever the numbers of workers are.

mod common;

use common::*;
use natgate_engine::{AddressRange, Config, Copies, CopyEnds, PoolConfig, RestoreError, Side};
use std::collections::BTreeMap;

fn range(address: &str) -> AddressRange {
    AddressRange { first: address.parse().unwrap(), last: address.parse().unwrap() }
}

/// An engine that assigns ports of the first address, and may have copies of the others.
fn node(own: &str, others: &[&str]) -> Lab {
    let addresses = [own].iter().chain(others).map(|address| range(address)).collect();
    let draining = others.iter().map(|address| range(address)).collect();
    let pool = PoolConfig { addresses, draining, ..pool(own, own, (2000, 2999)) };
    Lab::new(&Config { pools: vec![pool], ..config() })
}

fn origin(lab: &Lab) -> Vec<u8> {
    let mut origin = Vec::new();
    lab.engine.copy_origin(&mut origin);
    origin
}

/// Present records of an engine by key.
fn records(lab: &Lab) -> BTreeMap<u32, (Vec<u8>, u64)> {
    let record = |key| {
        let mut record = Vec::new();
        let fingerprint = lab.engine.copy_record(key, &mut record)?;
        Some((key, (record, fingerprint)))
    };
    (0..lab.engine.copy_extent()).filter_map(record).collect()
}

fn copy_all(from: &Lab, to: &mut Lab, copies: &mut Copies) -> usize {
    let all = records(from);
    for (key, (record, fingerprint)) in &all {
        assert_eq!(to.engine.copy(copies, *key, record), Ok(Some(*fingerprint)));
    }
    all.len()
}

const A: &str = "203.0.113.1";
const B: &str = "203.0.113.2";

#[test]
fn a_partner_continues_the_flows_of_an_owner_with_another_clock() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    b.wait_s(1_000.3);
    b.out(&udp("10.0.0.9:9", REMOTE));
    let outside = a.external_of(&udp("10.0.0.5:4000", REMOTE));
    a.out(&tcp("10.0.0.5:5000", REMOTE, "S", 100, 0));
    let syn = ends(&a.out(&tcp("10.0.0.6:5000", REMOTE, "S", 100, 0))).0;
    a.inward(&tcp(REMOTE, &syn, "SA", 500, 101));
    a.out(&tcp("10.0.0.6:5000", REMOTE, "A", 101, 501));

    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    assert_eq!(copy_all(&a, &mut b, &mut copies), 3);
    assert_eq!(b.created().len(), 1, "copies are no events");
    assert_eq!(b.external_of(&udp("10.0.0.5:4000", REMOTE)), outside);
    assert_eq!(ends(&b.inward(&tcp(REMOTE, &syn, "A", 501, 101))).1, "10.0.0.6:5000");
    // New mappings come from the addresses of the partner itself.
    assert!(b.external_of(&udp("10.0.0.5:4001", REMOTE)).starts_with(B));

    // The same record again changes nothing; an end ends the copy and not the mapping of another.
    copy_all(&a, &mut b, &mut copies);
    let before = b.engine.mappings().count();
    let (&key, _) = records(&a).iter().next().expect("a mapping");
    b.engine.end_copy(&mut copies, key);
    b.engine.end_copy(&mut copies, key);
    b.engine.end_copy(&mut copies, 1 << 30);
    assert_eq!(b.engine.mappings().count(), before - 1);
}

#[test]
fn three_workers_are_copied_to_two() {
    let addresses = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
    let mut owners: Vec<Lab> = addresses.iter().map(|own| node(own, &[])).collect();
    let mut partners = [node("203.0.113.8", &addresses), node("203.0.113.9", &addresses)];
    let mut outside = BTreeMap::new();
    for host in 2..62_u32 {
        let inside = format!("10.0.0.{host}:700");
        let owner = &mut owners[host as usize % 3];
        outside.insert(inside.clone(), owner.external_of(&udp(&inside, REMOTE)));
    }
    for owner in &owners {
        let mut copies = Vec::new();
        for partner in &mut partners {
            copies.push(partner.engine.begin_copies(&origin(owner)).expect("begins"));
        }
        for (key, (record, fingerprint)) in records(owner) {
            let ends = CopyEnds::read(&record).expect("whole");
            let to = usize::from(ends.internal.0.octets()[3] % 2);
            let copied = partners[to].engine.copy(&mut copies[to], key, &record);
            assert_eq!(copied, Ok(Some(fingerprint)));
        }
    }
    for (inside, external) in outside {
        let host: usize = inside.split(['.', ':']).nth(3).unwrap().parse().unwrap();
        assert_eq!(partners[host % 2].external_of(&udp(&inside, REMOTE)), external);
    }
}

#[test]
fn a_copy_never_displaces_a_mapping_of_the_engine_itself() {
    let few = |seed| {
        let pools = vec![pool(A, A, (2000, 2000))];
        Lab::seeded(&Config { pools, ..config() }, seed)
    };
    let (mut a, mut b) = (few(0), few(1));
    a.out(&udp("10.0.0.5:1", REMOTE));
    let own = b.external_of(&udp("10.0.0.6:1", REMOTE));
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    for (key, (record, _)) in records(&a) {
        assert_eq!(b.engine.copy(&mut copies, key, &record), Ok(None));
        b.engine.end_copy(&mut copies, key);
    }
    assert_eq!(b.external_of(&udp("10.0.0.6:1", REMOTE)), own);
}

#[test]
fn a_copy_that_ended_by_itself_leaves_its_slot_to_others() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    a.out(&udp("10.0.0.5:1", REMOTE));
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    copy_all(&a, &mut b, &mut copies);
    let (key, (record, fingerprint)) = records(&a).pop_first().expect("a mapping");
    b.wait_s(302.0);
    assert_eq!(b.engine.mappings().count(), 0, "the copy has ended");
    let own = b.external_of(&udp("10.0.0.7:1", REMOTE));
    b.engine.end_copy(&mut copies, key);
    assert_eq!(b.external_of(&udp("10.0.0.7:1", REMOTE)), own, "same slot, another mapping");
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    assert_eq!(b.engine.copy(&mut copies, key, &record), Ok(Some(fingerprint)));
    assert_eq!(b.engine.mappings().count(), 2);
}

#[test]
fn fingerprints_cover_what_matters_alone() {
    let mut a = node(A, &[B]);
    let outside = a.external_of(&tcp("10.0.0.6:5000", REMOTE, "S", 100, 0));
    let print = |a: &Lab| records(a).values().map(|(_, print)| *print).collect::<Vec<_>>();
    let opening = print(&a);
    a.inward(&tcp(REMOTE, &outside, "SA", 500, 101));
    a.out(&tcp("10.0.0.6:5000", REMOTE, "A", 101, 501));
    let established = print(&a);
    assert_ne!(opening, established);
    a.wait_s(5.0);
    a.out(&tcp("10.0.0.6:5000", REMOTE, "A", 201, 501));
    assert_eq!(print(&a), established, "numbers, counters, deadlines");
}

#[test]
fn damaged_records_change_nothing() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    a.out(&tcp("10.0.0.5:1", REMOTE, "S", 1, 0));
    let origin = origin(&a);
    for len in 0..origin.len() {
        assert!(b.engine.begin_copies(&origin[..len]).is_err());
    }
    let mut copies = b.engine.begin_copies(&origin).expect("begins");
    let (key, (record, _)) = records(&a).pop_first().expect("a mapping");
    for len in 0..record.len() {
        let copied = b.engine.copy(&mut copies, key, &record[..len]);
        assert!(matches!(copied, Err(RestoreError::Damaged(_))), "{len}: {copied:?}");
    }
    let mut state = record.clone();
    let at = state.len() - 3;
    state[at] = 99;
    assert!(b.engine.copy(&mut copies, key, &state).is_err());
    assert_eq!(b.engine.mappings().count(), 0);
    assert!(b.refused(Side::Outside, &udp(REMOTE, "203.0.113.1:2000")).name().len() > 1);
}
