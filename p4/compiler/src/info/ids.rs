//! Numbers and short names that stay the same as long as names do.

use std::collections::BTreeSet;

/// Numbers with a prefix for names; some numbers are given. The others are a hash of their names
/// (Jenkins's one-at-a-time hash, as in p4c, so that both compilers give a program the same
/// numbers). On a collision the next number is taken, in the order of the names.
pub(super) fn numbers(prefix: u32, names: &[(&str, Option<u32>)]) -> Vec<u32> {
    let mut taken: BTreeSet<u32> = names.iter().filter_map(|(_, given)| *given).collect();
    let mut numbers: Vec<u32> = names.iter().map(|(_, given)| given.unwrap_or(0)).collect();
    let mut order: Vec<usize> = (0..names.len()).filter(|at| names[*at].1.is_none()).collect();
    order.sort_by_key(|at| names[*at].0);
    for at in order {
        let first = hash(names[at].0);
        let numbered = |step: u32| prefix << 24 | (first.wrapping_add(step) & 0xff_ffff);
        let free = |id: &u32| *id << 8 != 0 && !taken.contains(id);
        let id = (0..1 << 24).map(numbered).find(free).unwrap_or(0);
        taken.insert(id);
        numbers[at] = id;
    }
    numbers
}

fn hash(name: &str) -> u32 {
    let mixed = name.bytes().fold(0_u32, |hash, byte| {
        let hash = hash.wrapping_add(byte.into());
        let hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    });
    let mixed = mixed.wrapping_add(mixed << 3);
    let mixed = mixed ^ (mixed >> 11);
    mixed.wrapping_add(mixed << 15)
}

/// The shortest suffix of a name, from a dot on, that no other name has.
pub(super) fn alias<'n>(name: &'n str, all: &[&str]) -> &'n str {
    let ends_alike = |end: &str| {
        let alike = |other: &&&str| {
            other.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        all.iter().filter(alike).count()
    };
    let starts = name.rmatch_indices('.').map(|(at, _)| at + 1);
    starts.map(|start| &name[start..]).find(|end| ends_alike(end) == 1).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_p4c_gives() {
        let tables = numbers(0x02, &[("MyIngress.ipv4_lpm", None)]);
        assert_eq!(tables, [37_375_156]);
        let names =
            [("MyIngress.ipv4_forward", None), ("MyIngress.drop", None), ("NoAction", None)];
        assert_eq!(numbers(0x01, &names), [28_792_405, 25_652_968, 21_257_015]);
    }

    #[test]
    fn what_is_taken_is_stepped_over() {
        let taken = numbers(0x01, &[("other", Some(21_257_015)), ("NoAction", None)]);
        assert_eq!(taken, [21_257_015, 21_257_016]);
    }

    #[test]
    fn aliases_are_the_shortest_ends_that_are_unique() {
        let all = ["a.x.t", "a.y.t", "t", "b.u"];
        let aliases = all.map(|name| alias(name, &all));
        assert_eq!(aliases, ["x.t", "y.t", "t", "u"]);
    }
}
