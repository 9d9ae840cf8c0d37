//! The room that fragments have: shares of memory and table, and the effect of floods on others
//! (none).

use super::*;

#[test]
fn a_source_holds_an_eighth_of_the_memory() {
    let mut world = World::new(MEMORY);
    let share = MEMORY / BLOCK / 8;
    let held = (0..1000).filter(|&id| world.later(last(1480, 2960).id(id)) == Later::Held).count();
    assert_eq!(held, share / Store::blocks(1500));
    assert_eq!(world.later(last(1480, 2960).id(2000)), Later::Drop(LIMIT));
    // Fragments that were refused leave no trace, and others still have room.
    assert_eq!(world.fragments.datagrams.len(), held);
    assert_eq!(world.later(last(1480, 2960).from(2)), Later::Held);
    assert_eq!(world.later_on(Side::Outside, last(1480, 2960)), Later::Held);
    // The first fragment makes room again.
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 2960).id(2000)), Later::Held);
}

//= test rfc6146#section-3.4-resources
#[test]
fn all_sources_hold_no_more_than_the_memory() {
    let mut world = World::new(MEMORY);
    let mut held = 0;
    for host in 0..20 {
        for id in 0..50 {
            held += usize::from(world.later(last(1480, 5000).from(host).id(id)) == Later::Held);
        }
    }
    assert!((MEMORY / BLOCK - 7..=MEMORY / BLOCK).contains(&(held * 7)), "{held}");
    world.advance(2 * SECOND);
    assert_eq!(world.dropped(UNMATCHED), held as u64);
    assert!(world.is_pristine());
}

#[test]
fn released_fragments_take_memory_until_they_are_fetched() {
    let mut world = World::sized(64, 4);
    assert_eq!(world.later(last(1480, 2960)), Later::Held);
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 2960).id(8)), Later::Drop(LIMIT));
    assert_eq!(world.released().len(), 1);
    assert_eq!(world.later(last(1480, 2960).id(8)), Later::Held);
}

#[test]
fn without_memory_only_order_helps() {
    let mut world = World::new(0);
    assert_eq!(world.later(last(1480, 1500)), Later::Drop(LIMIT));
    assert_eq!(world.first(middle(0, 1480), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 1500)), APPLY);
    assert!(world.is_pristine());
}

#[test]
fn the_memory_told_is_in_proportion() {
    let default = Fragments::memory(16 << 20);
    assert!((16 << 20..28 << 20).contains(&default), "{default}");
    assert!(Fragments::memory(0) < 1 << 20);
}

/// Datagrams in order from another source, while a flood goes on.
fn bystander_passes(world: &mut World, id: u16) {
    assert_eq!(world.first(middle(0, 1480).from(99).id(id), Some(REWRITE)), Ok(()));
    assert_eq!(world.later(last(1480, 1500).from(99).id(id)), APPLY);
}

//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_first_fragments_from_one_source_hurts_nobody_else() {
    for rewrite in [Some(REWRITE), None] {
        let mut world = World::new(MEMORY);
        let mut passed = 0;
        for id in 0..3000 {
            passed += usize::from(world.first(middle(0, 1480).id(id), rewrite).is_ok());
            bystander_passes(&mut world, id);
        }
        // A ninth of the table is an eighth of the rest.
        assert_eq!(passed, 1024_usize.div_ceil(9) - 1);
        assert_eq!(world.later(last(1480, 1500).from(99)), Later::Held);
    }
}

/// For any number of sources with first fragments that pass, a source without a place gets one.
//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_translated_first_fragments_leaves_others_a_place() {
    let mut world = World::new(MEMORY);
    for id in 0..3000 {
        for host in 100..116 {
            let _ = world.first(middle(0, 1480).from(host).id(id), Some(REWRITE));
        }
        bystander_passes(&mut world, id);
    }
}

//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_later_fragments_from_one_source_hurts_nobody_else() {
    let mut world = World::new(MEMORY);
    let mut held = 0;
    for id in 0..3000 {
        held += usize::from(world.later(last(1480, 1500).id(id)) == Later::Held);
        bystander_passes(&mut world, id);
    }
    assert_eq!(held, 1024_usize.div_ceil(9) - 1);
    assert_eq!(world.later(last(1480, 1500).from(99)), Later::Held);
    assert_eq!(world.first(middle(0, 1480).from(99), Some(REWRITE)), Ok(()));
    assert_eq!(world.released().len(), 1);
}

//= test rfc4787#REQ-14a
//= test rfc6146#section-5.3-fragments
#[test]
fn a_flood_from_many_sources_leaves_room_for_datagrams_in_order() {
    let mut world = World::new(MEMORY);
    for host in 100..3000 {
        let _ = world.later(last(1480, 1500).from(host));
        let _ = world.later(last(65_528, 66_000).from(host).id(8));
        let _ = world.first(middle(0, 80).from(host).id(9), None);
        bystander_passes(&mut world, host as u16);
    }
    assert_eq!(world.fragments.datagrams.len(), 512);
    assert_eq!(world.later(last(1480, 1500)), Later::Drop(LIMIT));
    assert_eq!(world.later(last(65_528, 66_000)), Later::Drop(TOO_LONG));
    world.advance(3 * SECOND);
    assert!(world.is_pristine());
}

#[test]
fn a_full_table_refuses_first_fragments_too() {
    let mut world = World::sized(16, 64);
    for host in 0..16 {
        assert_eq!(world.first(middle(0, 80).from(host), Some(REWRITE)), Ok(()));
    }
    assert_eq!(world.first(middle(0, 80).from(20), Some(REWRITE)), Err(LIMIT));
    assert_eq!(world.later(last(80, 90).from(3)), APPLY);
    assert_eq!(world.first(middle(0, 80).from(20), Some(REWRITE)), Ok(()));
}
