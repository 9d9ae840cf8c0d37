//! The word of a guardian, and who may say it.

use super::rig::{NOBODY, Rig, assert_views_arrive, connected, start, until};
use crate::{Link, LinkError, Settings, tell_end};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

fn settings(rig: &Rig, node: &str, partner: &str, link: &Link) -> Settings {
    rig.settings(node, partner, link.local_address())
}

#[test]
fn both_nodes_hear_the_partners_guardian() {
    let (rig, [a, b]) = connected();
    tell_end(&settings(&rig, "a", "b", &b), 7 << 32 | 5, LIMIT).expect("b is told");
    assert_eq!(until("the word", || b.partner_ended()), 7 << 32 | 5);
    assert_eq!(b.partner_ended(), None, "it is told once");
    // `a` dials, and listens for the guardian alone.
    tell_end(&settings(&rig, "b", "a", &a), 3, LIMIT).expect("a is told");
    tell_end(&settings(&rig, "b", "a", &a), 2, LIMIT).expect("a is told");
    assert_eq!(until("the word", || a.partner_ended()), 3, "the greatest");
    assert_views_arrive(&a, &b, b"the link goes on");
    assert_eq!(b.status().connections, 1);
}

#[test]
fn a_guardian_of_another_name_is_refused() {
    let (rig, [a, b]) = connected();
    rig.write("c", &rig.authority, 2099);
    let limit = Duration::from_millis(700);
    let told = tell_end(&settings(&rig, "c", "b", &b), 9, limit);
    assert!(matches!(told, Err(LinkError::Silent(_))), "{told:?}");
    // The node itself is not its own partner.
    let told = tell_end(&settings(&rig, "b", "a", &b), 9, limit);
    assert!(matches!(told, Err(LinkError::Silent(_))), "{told:?}");
    assert_eq!((a.partner_ended(), b.partner_ended()), (None, None));
    assert!(b.status().refused > 0);
}

#[test]
fn a_partner_that_is_not_there_is_told_when_it_comes() {
    let rig = Rig::new();
    ["a", "b"].iter().for_each(|node| rig.write(node, &rig.authority, 2099));
    let silent = rig.settings("a", "b", NOBODY.parse().unwrap());
    let told = tell_end(&silent, 1, Duration::from_millis(300));
    assert!(told.is_err_and(|error| error.to_string().contains(NOBODY)));
    let b = start(&rig.settings("b", "a", NOBODY.parse().unwrap()));
    tell_end(&settings(&rig, "a", "b", &b), 1, LIMIT).expect("b is told");
}
