//! Realms of a pair: a copy is of the realm with its name, whatever its number is at each node, and
//! nothing is copied that the partner has no realm for, or other arithmetic.

use super::*;
use natgate_engine::RealmConfig;

/// Realms that a configuration may have, in the order of its file.
const SETS: [&[&str]; 6] = [
    &["red", "blue"],
    &["blue", "green", "red"],
    &["green", "red", "blue"],
    &["red"],
    &["blue"],
    &["green", "blue"],
];

/// The realms of one of several configurations.
pub(super) fn set(number: usize) -> Vec<RealmConfig> {
    SETS[number % SETS.len()].iter().map(|name| realm(name)).collect()
}

fn realm(name: &str) -> RealmConfig {
    let own = Ipv4Addr::new(10, 0, 0, 1);
    RealmConfig {
        name: name.into(),
        inside: SideConfig {
            address: Some(own),
            network: Some(natgate_engine::Prefix::new(own, 24)),
            ..SideConfig::default()
        },
        subscribers: vec![natgate_engine::Prefix::new(own, 8)],
        ..RealmConfig::default()
    }
}

impl Allotment {
    /// The realms of a node at its start.
    pub(super) fn realms(self, node: &str) -> Vec<RealmConfig> {
        match self {
            Self::Realms => set(usize::from(node == "b")),
            _ => Vec::new(),
        }
    }

    /// The name of a host's realm, and its address there. Three hosts each have one address.
    pub(super) fn place(self, host: u8) -> (&'static str, Ipv4Addr) {
        match self {
            Self::Realms => {
                let name = ["", "red", "blue"][usize::from(host % 3)];
                (name, Ipv4Addr::new(10, 0, 0, (host / 3 + 1) * 4))
            }
            Self::Nat64 => ("nat64", Ipv4Addr::new(10, 0, 0, host)),
            Self::Both if host.is_multiple_of(2) => ("nat64", Ipv4Addr::new(10, 0, 0, host)),
            Self::Dslite | Self::Both => ("dslite", Ipv4Addr::new(10, 0, 0, host)),
            _ => ("", Ipv4Addr::new(10, 0, 0, host)),
        }
    }
}

impl Process {
    /// The number of a host's realm at this node, and its address. `None`: there is no such realm.
    pub(super) fn place(&self, host: u8) -> Option<(u16, Ipv4Addr)> {
        let (name, address) = self.allotment.place(host);
        let is_its = |number: &u16| self.realm_name(*number) == name;
        Some((self.engine.config().realm_numbers().find(is_its)?, address))
    }

    /// The name of a realm.
    pub(super) fn realm_name(&self, number: u16) -> String {
        let place = usize::from(number).checked_sub(1);
        place.map_or(String::new(), |place| self.engine.config().realms[place].name.clone())
    }

    fn reload_realms(&mut self, names: &[&str]) {
        let realms = names.iter().map(|name| realm(name)).collect();
        let config = Config { realms, ..self.engine.config().clone() };
        self.reload_with(&config);
    }

    fn faults(&self) -> Vec<Option<String>> {
        self.status().slices.iter().map(SliceStatus::fault).collect()
    }
}

/// Hosts of realm 0, of "red" and of "blue", all with one address.
const ALIKE: [u8; 3] = [3, 4, 5];

#[test]
fn subscribers_of_realms_with_one_address_stay_apart() {
    let mut pair = Pair::with(Allotment::Realms);
    assert_ne!(pair.a().place(4), pair.b().place(4), "the numbers of the realm differ");
    assert_eq!(pair.a().place(3), pair.b().place(3));
    let flows = ALIKE.map(|host| pair.a().send((host, 1)).expect("sent"));
    pair.run(3.0);
    assert_eq!(pair.a().hosts(), pair.b().hosts());
    pair.end_a_with_guardian();
    pair.run(1.0);
    assert_eq!(ALIKE.map(|host| pair.b().send((host, 1)).expect("sent")), flows);
    pair.b().clear(5);
    pair.run(123.0);
    assert_eq!(
        ALIKE[..2].iter().map(|host| pair.b().send((*host, 1))).collect::<Vec<_>>(),
        [Some(flows[0]), Some(flows[1])]
    );
    assert_eq!(pair.b().engine.mappings().count(), 2);
}

#[test]
fn a_copy_of_a_realm_that_the_partner_lacks_is_refused_and_comes_after_a_reload() {
    let mut pair = Pair::with(Allotment::Realms);
    pair.b().reload_realms(&["green", "blue"]);
    let [_, red, blue] = ALIKE.map(|host| pair.a().send((host, 1)).expect("sent"));
    pair.run(5.0);
    let told = "1 mappings have no copy, because the other node has no realm red";
    assert_eq!(pair.a().faults(), [Some(told.into()), None]);
    assert_eq!(pair.b().faults(), [Some(told.replace("the other", "this")), None]);
    assert!(pair.b().status().slices[0].records_without_realm > Some(0));
    assert_eq!(pair.b().answer(red, None), None);
    assert!(pair.b().answer(blue, None).is_some_and(|(realm, _)| realm == "blue"));
    let epoch = pair.a().status().slices[0].epoch;
    assert_eq!(said(&pair, 0), epoch);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(2.0);
    assert_eq!(pair.b().status().slices[0].role, "partner", "the slice waits for the realm");
    assert_eq!(said(&pair, 0), epoch | tunnel::CLOSED, "new mappings are better made elsewhere");
    for is_overdue in [false, true] {
        let slice = &pair.a().status().slices[0];
        assert_eq!((slice.moves_to.as_deref(), slice.is_move_overdue), (Some("b"), is_overdue));
        assert!(slice.fault().is_some_and(|fault| fault == told) && !slice.only_moves());
        pair.run(60.0);
    }
    pair.b().reload_realms(&["green", "red", "blue"]);
    pair.run(1.5);
    assert!(pair.b().answer(red, None).is_some_and(|(realm, _)| realm == "red"));
    let slice = &pair.b().status().slices[0];
    assert_eq!((slice.role, slice.fault()), ("owner", None));
    assert_eq!((said(&pair, 0), said(&pair, 1)), (0, epoch + 1));
}

/// What a node has said last of its presence in slice 0.
fn said(pair: &Pair, node: usize) -> u64 {
    let word = pair.wire().words[node].clone();
    u64::from_le_bytes(*word[27..].first_chunk().expect("a word"))
}

#[test]
fn a_realm_with_the_number_of_a_removed_one_gets_no_copy_of_it() {
    let mut pair = Pair::with(Allotment::Realms);
    pair.b().reload_realms(&["blue"]);
    pair.run(30.0);
    let (red, blue) = (pair.a().send((4, 1)).expect("sent"), pair.a().send((5, 1)).expect("sent"));
    pair.run(3.0);
    // Records are on their way while the partner replaces one realm by another, which gets its
    // number when nothing of the former is left. No state of the owner arrives meanwhile.
    let late = {
        pair.a().send((5, 2)).expect("sent");
        pair.run(2.0);
        let (a, now) = (pair.a.as_mut().expect("it runs"), pair.now + 3 * SECOND);
        a.turn(now);
        std::mem::take(&mut pair.wire().messages[1])
    };
    assert!(!late.is_empty());
    pair.wire().is_cut = true;
    pair.b().reload_realms(&[]);
    pair.run(30.0);
    pair.b().reload_realms(&["red", "green", "blue"]);
    pair.run(30.0);
    pair.b().reload_realms(&["red", "green"]);
    pair.run(30.0);
    pair.wire().is_cut = false;
    pair.wire().messages[1].extend(late);
    for _ in 0..40 {
        pair.run(0.1);
        pair.check();
        assert!(pair.b().hosts().values().all(|(realm, _)| realm != "green"));
    }
    assert_eq!(pair.b().answer(blue, None), None);
    assert!(pair.b().answer(red, None).is_some_and(|(realm, _)| realm == "red"));
}

#[test]
fn other_arithmetic_is_refused_and_told_key_by_key() {
    let mut pair = Pair::with(Allotment::Arithmetic);
    let flow = pair.a().send((5, 1)).expect("sent");
    pair.run(5.0);
    assert_eq!(pair.b().faults(), [None, None]);
    // The partner has other ports for its subscribers from now on.
    let mut config = pair.b().engine.config().clone();
    let plan = plan_of(&mut config);
    (plan.dynamic_ports, plan.ports_per_subscriber) = (16, Some(6));
    pair.b().reload_with(&config);
    let second = pair.a().send((5, 2)).expect("sent");
    pair.run(5.0);
    let told = "nothing is copied, because the configurations of the two nodes differ in \
                ports_per_subscriber, dynamic_ports";
    for process in [&pair.a, &pair.b].into_iter().flatten() {
        assert_eq!(process.faults(), [Some(told.into()), Some(told.into())]);
    }
    assert_eq!(pair.b().answer(second, None), None, "nothing is copied");
    let sent = |pair: &mut Pair| pair.a().status().slices[0].sent.expect("a stream").packets;
    let before = sent(&mut pair);
    pair.run(20.0);
    assert_eq!(sent(&mut pair), before, "nothing is sent in vain");
    // Both agree again.
    let plan = plan_of(&mut config);
    (plan.dynamic_ports, plan.ports_per_subscriber) = (32, Some(4));
    pair.b().reload_with(&config);
    pair.run(5.0);
    assert_eq!((pair.a().faults(), pair.b().faults()), (vec![None, None], vec![None, None]));
    for external in [flow, second] {
        assert!(pair.b().answer(external, None).is_some());
    }
}

fn plan_of(config: &mut Config) -> &mut DeterministicConfig {
    match &mut config.pools[0].allocation {
        Some(Allocation::Deterministic(plan)) => plan,
        _ => panic!("a plan"),
    }
}
