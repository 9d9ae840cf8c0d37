//! Removal of needless code, and detection of metadata that must be zero at the beginning.

use super::code::{Field, Instr, META_IN, META_OUT, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Code of the program, or of an action.
pub(super) type Code = Vec<Instr>;

/// Keys of a table, as metadata, and the code of its actions.
pub(super) struct Run {
    pub(super) keys: Vec<usize>,
    pub(super) actions: Vec<Code>,
}

/// Removes unused values, jumps to the next instruction, and unreachable code.
pub(super) fn tidy(main: &mut Code, tables: &mut [Run], bits: &dyn Fn(Field) -> u32) {
    loop {
        let before = size(main, tables);
        let mut read: BTreeSet<usize> = [META_IN, META_OUT].into();
        read.extend(tables.iter().flat_map(|table| &table.keys));
        for code in std::iter::once(&*main).chain(tables.iter().flat_map(|table| &table.actions)) {
            read.extend(code.iter().flat_map(Instr::reads).filter_map(meta));
        }
        let passing = passing(main, tables);
        let actions = tables.iter_mut().flat_map(|table| &mut table.actions);
        for code in std::iter::once(&mut *main).chain(actions) {
            pass_on(code, &passing, bits);
            clean(code, &read);
        }
        drop_dead(main, tables);
        if size(main, tables) == before {
            return;
        }
    }
}

/// Metadata whose only reads are moves directly behind its writes.
fn passing(main: &Code, tables: &[Run]) -> BTreeSet<usize> {
    let (mut passing, mut others) = (BTreeSet::new(), BTreeSet::new());
    others.extend(tables.iter().flat_map(|table| &table.keys));
    for code in std::iter::once(main).chain(tables.iter().flat_map(|table| &table.actions)) {
        for (number, instr) in code.iter().enumerate() {
            let before = number.checked_sub(1).map(|before| &code[before]);
            let is_move = matches!(instr, Instr::Mov(..));
            for read in instr.reads().into_iter().filter_map(meta) {
                let from = before.filter(|before| is_move && !before.updates());
                match from.and_then(Instr::writes) == Some(Field::Meta(read)) {
                    true => passing.insert(read),
                    false => others.insert(read),
                };
            }
            if instr.updates() {
                others.extend(instr.writes().and_then(meta));
            }
        }
    }
    passing.retain(|number| !others.contains(number));
    passing
}

/// Removes writes of the main code that are never read.
fn drop_dead(main: &mut Code, tables: &[Run]) {
    let of_table: Vec<_> = tables.iter().map(touched).collect();
    let next = successors(main);
    let live = live(main, &next, &of_table);
    let mut number = 0;
    main.retain(|instr| {
        let is_read = |to| next[number].iter().any(|next| live[*next].contains(&to));
        let is_dead = match instr {
            Instr::Mov(to, _) | Instr::Alu(_, to, _) | Instr::Read(_, to, _) => {
                meta(*to).is_some_and(|to| !is_read(to))
            }
            _ => false,
        };
        number += 1;
        !is_dead
    });
}

fn size(main: &Code, tables: &[Run]) -> usize {
    main.len() + tables.iter().flat_map(|table| &table.actions).map(Vec::len).sum::<usize>()
}

fn meta(field: Field) -> Option<usize> {
    match field {
        Field::Meta(number) => Some(number),
        _ => None,
    }
}

/// Writes values that are only moved directly to their target, if nothing is cut on the way.
fn pass_on(code: &mut Code, passing: &BTreeSet<usize>, bits: &dyn Fn(Field) -> u32) {
    for number in 1..code.len() {
        let Instr::Mov(to, Value::Field(Field::Meta(from))) = code[number] else { continue };
        let before = &code[number - 1];
        let way = Field::Meta(from);
        let is_whole = bits(to) <= bits(way)
            || match before {
                Instr::Mov(_, Value::Const(_)) => true,
                Instr::Mov(_, Value::Field(source)) => bits(*source) <= bits(way),
                _ => false,
            };
        if passing.contains(&from) && before.writes() == Some(way) && is_whole {
            code[number - 1].write_to(to);
            code[number] = Instr::Mov(to, Value::Field(to));
        }
    }
}

fn clean(code: &mut Code, read: &BTreeSet<usize>) {
    code.retain(|instr| {
        let is_idle = match instr {
            Instr::Mov(to, from) => from.field() == Some(*to),
            Instr::Reset(headers) => headers.is_empty(),
            _ => false,
        };
        let is_wanted = match instr {
            Instr::Mov(to, _) | Instr::Alu(_, to, _) | Instr::Read(_, to, _) => {
                meta(*to).is_none_or(|number| read.contains(&number))
            }
            _ => true,
        };
        is_wanted && !is_idle
    });
    shorten_jumps(code);
    // Code behind an unconditional end is unreachable up to the next label.
    let mut is_reached = true;
    code.retain(|instr| {
        is_reached |= matches!(instr, Instr::Label(_));
        let keeps = is_reached;
        is_reached &= !instr.ends();
        keeps
    });
    let mut number = 0;
    while number < code.len() {
        let goes_on = code[number].target().is_some_and(|to| {
            let labels = code[number + 1..].iter();
            labels
                .map_while(|instr| match instr {
                    Instr::Label(label) => Some(*label),
                    _ => None,
                })
                .any(|label| label == to)
        });
        if goes_on {
            code.remove(number);
        } else {
            number += 1;
        }
    }
    let targets: BTreeSet<usize> = code.iter().filter_map(Instr::target).collect();
    code.retain(|instr| !matches!(instr, Instr::Label(label) if !targets.contains(label)));
}

/// Redirects jumps to jumps to the final target.
fn shorten_jumps(code: &mut Code) {
    let (mut leads, mut labels) = (BTreeMap::new(), Vec::new());
    for instr in &*code {
        match instr {
            Instr::Label(label) => labels.push(*label),
            Instr::Jump(to) => leads.extend(labels.drain(..).map(|label| (label, *to))),
            _ => labels.clear(),
        }
    }
    // In a circle of jumps alone any place is equivalent.
    let end = |from: usize| {
        let way = std::iter::successors(leads.get(&from), |to| leads.get(to));
        way.take(leads.len() + 1).last().copied()
    };
    for instr in code {
        if let Some(to) = instr.target().and_then(end) {
            instr.jump_to(to);
        }
    }
}

/// Metadata that the program may read before it writes it.
pub(super) fn unset(main: &Code, tables: &[Run]) -> BTreeSet<usize> {
    let of_table: Vec<_> = tables.iter().map(touched).collect();
    let mut unset = read_first(main, &of_table);
    unset.retain(|number| *number != META_IN && *number != META_OUT);
    unset
}

/// Metadata that a table's keys and actions may read before they write it, and metadata that all
/// its actions certainly write.
type TouchedByTable = (BTreeSet<usize>, BTreeSet<usize>);

fn touched(table: &Run) -> TouchedByTable {
    let mut reads: BTreeSet<usize> = table.keys.iter().copied().collect();
    let mut writes: Option<BTreeSet<usize>> = None;
    for code in &table.actions {
        reads.extend(read_first(code, &[]));
        let own = surely_written(code);
        writes = Some(match writes {
            Some(others) => others.intersection(&own).copied().collect(),
            None => own,
        });
    }
    (reads, writes.unwrap_or_default())
}

/// Possible successors of each instruction.
fn successors(code: &Code) -> Vec<Vec<usize>> {
    let labels: BTreeMap<usize, usize> = code
        .iter()
        .enumerate()
        .filter_map(|(number, instr)| match instr {
            Instr::Label(label) => Some((*label, number)),
            _ => None,
        })
        .collect();
    let next = |(number, instr): (usize, &Instr)| {
        let jump = instr.target().and_then(|to| labels.get(&to).copied());
        let follows = !instr.ends() && number + 1 < code.len();
        jump.into_iter().chain(follows.then_some(number + 1)).collect()
    };
    code.iter().enumerate().map(next).collect()
}

/// Metadata that may be read before it is written.
fn read_first(code: &Code, tables: &[TouchedByTable]) -> BTreeSet<usize> {
    let live = live(code, &successors(code), tables);
    live.into_iter().next().unwrap_or_default()
}

/// Metadata that may be read from each instruction on before it is written.
fn live(code: &Code, next: &[Vec<usize>], tables: &[TouchedByTable]) -> Vec<BTreeSet<usize>> {
    let mut live: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); code.len()];
    let mut is_changed = true;
    while is_changed {
        is_changed = false;
        for (number, instr) in code.iter().enumerate().rev() {
            let mut now: BTreeSet<usize> =
                next[number].iter().flat_map(|next| live[*next].iter().copied()).collect();
            if let Some(to) = instr.writes().and_then(meta) {
                match instr.updates() {
                    true => now.insert(to),
                    false => now.remove(&to),
                };
            }
            if let Instr::Table(table) = instr
                && let Some((reads, writes)) = tables.get(*table)
            {
                now.retain(|number| !writes.contains(number));
                now.extend(reads);
            }
            now.extend(instr.reads().into_iter().filter_map(meta));
            if now.len() != live[number].len() {
                (live[number], is_changed) = (now, true);
            }
        }
    }
    live
}

/// Metadata that every path through an action writes.
fn surely_written(code: &Code) -> BTreeSet<usize> {
    let all: BTreeSet<usize> =
        code.iter().filter_map(|instr| instr.writes().and_then(meta)).collect();
    let mut before = vec![all.clone(); code.len()];
    if let Some(first) = before.first_mut() {
        first.clear();
    }
    let (mut at_end, next) = (all, successors(code));
    let mut is_changed = true;
    while is_changed {
        is_changed = false;
        for (number, instr) in code.iter().enumerate() {
            let mut after = before[number].clone();
            after.extend(instr.writes().and_then(meta));
            if *instr == Instr::Return {
                at_end.retain(|number| after.contains(number));
            }
            for next in &next[number] {
                let left = before[*next].intersection(&after).copied().collect::<BTreeSet<_>>();
                is_changed |= left.len() != before[*next].len();
                before[*next] = left;
            }
        }
    }
    at_end
}
