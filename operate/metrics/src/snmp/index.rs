//! Indexes of rows: numbers that name a row, some of which are the same for all rows.
//!
//! Managers ask for the row after any name, even one that no row can have. [`Index::first_from`]
//! gives the first row that is possible there, without knowledge of the rows.

/// A number of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A number that is the same in all rows.
    Is(u32),
    /// A number of the row, from 0 to this one.
    UpTo(u32),
}

/// The form of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index(Vec<Part>);

impl Index {
    pub(super) fn new(parts: impl IntoIterator<Item = Part>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// A text after its length, as for texts and addresses.
    pub(super) fn text(text: &[u8]) -> impl Iterator<Item = Part> + '_ {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        std::iter::once(length).chain(text.iter().map(|byte| u32::from(*byte))).map(Part::Is)
    }

    /// An IPv4 address of the row: its kind, its length, its octets.
    pub(super) fn address() -> impl Iterator<Item = Part> {
        let octets = std::iter::repeat_n(Part::UpTo(u8::MAX.into()), 4);
        [Part::Is(1), Part::Is(4)].into_iter().chain(octets)
    }

    /// The row with these numbers of its own.
    pub(super) fn name(&self, own: &[u32]) -> Vec<u32> {
        let mut own = own.iter();
        let number = |part: &Part| match part {
            Part::Is(number) => *number,
            Part::UpTo(_) => own.next().copied().unwrap_or_default(),
        };
        self.0.iter().map(number).collect()
    }

    /// The numbers of a row's own, if this names one.
    pub(super) fn own(&self, name: &[u32]) -> Option<Vec<u32>> {
        let own = self.first_from(name, true)?;
        (self.name(&own) == name).then_some(own)
    }

    /// The numbers of the first possible row after a name, or at it if that is `included`.
    pub(super) fn first_from(&self, name: &[u32], included: bool) -> Option<Vec<u32>> {
        let mut own = Vec::new();
        for (at, part) in self.0.iter().enumerate() {
            let Some(&number) = name.get(at) else { return Some(self.fill(own)) };
            match *part {
                Part::Is(one) if number < one => return Some(self.fill(own)),
                Part::Is(one) if number > one => return self.after(own),
                Part::UpTo(most) if number > most => return self.after(own),
                Part::Is(_) => {}
                Part::UpTo(_) => own.push(number),
            }
        }
        match included && name.len() == self.0.len() {
            true => Some(own),
            false => self.after(own),
        }
    }

    fn limits(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().filter_map(|part| match part {
            Part::UpTo(most) => Some(*most),
            Part::Is(_) => None,
        })
    }

    /// The first that begins so.
    fn fill(&self, mut own: Vec<u32>) -> Vec<u32> {
        own.resize(self.limits().count(), 0);
        own
    }

    /// The first behind all that begin so.
    fn after(&self, mut own: Vec<u32>) -> Option<Vec<u32>> {
        let limits: Vec<u32> = self.limits().collect();
        while let Some(last) = own.pop() {
            if last < limits[own.len()] {
                own.push(last + 1);
                return Some(self.fill(own));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let parts = [Part::Is(1), Part::UpTo(2)];
        Index::new(parts.into_iter().chain(Index::text(b"in")).chain([Part::UpTo(1)]))
    }

    #[test]
    fn every_name_is_followed_by_the_first_row_that_could_be() {
        let index = index();
        let rows: Vec<Vec<u32>> = (0..=2).flat_map(|a| [vec![a, 0], vec![a, 1]]).collect();
        let names: Vec<Vec<u32>> = rows.iter().map(|own| index.name(own)).collect();
        assert_eq!(names[3], [1, 1, 2, b'i'.into(), b'n'.into(), 1]);
        assert!(names.is_sorted());
        // Names of rows, shorter ones, longer ones, and ones with each number changed.
        let mut asked = vec![vec![], vec![0], vec![2], vec![u32::MAX; 9]];
        for name in &names {
            asked.extend((0..=name.len()).map(|len| name[..len].to_vec()));
            asked.push([&name[..], &[0]].concat());
            for at in 0..name.len() {
                for number in [0, 1, 2, 3, name[at] - name[at].min(1), name[at] + 1, u32::MAX] {
                    let mut other = name.clone();
                    other[at] = number;
                    asked.push(other);
                }
            }
        }
        for name in asked {
            for included in [false, true] {
                let expected = names
                    .iter()
                    .zip(&rows)
                    .find(|(row, _)| **row > name || included && **row == name);
                let expected = expected.map(|(_, own)| own.clone());
                assert_eq!(index.first_from(&name, included), expected, "{name:?} {included}");
            }
            let row = names.iter().position(|row| *row == name);
            assert_eq!(index.own(&name), row.map(|row| rows[row].clone()), "{name:?}");
        }
    }

    #[test]
    fn numbers_of_full_size_and_addresses_have_an_end() {
        let index = Index::new([Part::UpTo(u32::MAX)]);
        assert_eq!(index.first_from(&[u32::MAX], true), Some(vec![u32::MAX]));
        assert_eq!(index.first_from(&[u32::MAX], false), None);
        let index = Index::new(Index::address());
        assert_eq!(index.first_from(&[1, 4, 10, 255, 255, 255], false), Some(vec![11, 0, 0, 0]));
        assert_eq!(index.first_from(&[1, 4, 10, 300], false), Some(vec![11, 0, 0, 0]));
        assert_eq!(index.first_from(&[1, 5], false), None);
    }
}
