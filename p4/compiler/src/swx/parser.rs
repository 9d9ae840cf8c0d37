//! Parsers: states become labels, and every header is extracted only if all of it is there, which
//! the pipeline itself does not look after.
//!
//! Where it can be told how far a packet has been read, its length is compared with that; otherwise
//! what is left of it is counted.

use super::code::{FIRST_OWN, Field, Instr, Label, Test, Value};
use super::lower::{Fields, Lower, Place};
use crate::ir::{Expr, Header, MOST_STEPS, Match, Next, Noted, Program, Slot, Stmt, Target, Ty};
use crate::source::Checked;
use std::collections::BTreeSet;

/// The longest packet.
pub(super) const LONGEST: usize = 65_535;

/// What is known at a place in a parser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    /// How many bytes have been read, if that is always the same.
    offset: Option<usize>,
    /// Headers that were surely extracted.
    must: BTreeSet<usize>,
    /// Headers that may have been.
    may: BTreeSet<usize>,
}

impl Flow {
    fn merge(&mut self, other: &Self) {
        self.offset = self.offset.filter(|offset| other.offset == Some(*offset));
        self.must.retain(|header| other.must.contains(header));
        self.may.extend(&other.may);
    }
}

/// A parser at work.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// What is known here. What was surely extracted is among what is known of headers anyway.
    at: Flow,
    /// Where everything goes on.
    end: Label,
    /// Where this parser is accepted, within another; the whole one's are left by [`Lower::leave`].
    done: Option<Label>,
    /// What is left, in bytes, if that is counted.
    left: Option<Field>,
    /// States that were entered, if there may be many.
    steps: Option<Field>,
    /// What stands behind the states: where, which error, which headers were not extracted.
    stubs: Vec<(Label, Option<u64>, Vec<usize>)>,
    /// Headers of which it is not known at some end whether they were extracted, and those whose
    /// fields are touched before.
    pub(super) unsure: BTreeSet<usize>,
    /// Whether the parser is being made, and nothing behind it.
    pub(super) is_under_way: bool,
    /// As far as the program looks at packets, bytes.
    pub(super) most: usize,
}

impl<'p> Lower<'p> {
    /// The program's parser.
    pub(super) fn parse(&mut self) -> Checked<()> {
        let number = self.program.parser;
        let start = Flow { offset: Some(0), ..Flow::default() };
        let mut varies = false;
        self.flow(number, &start, &mut varies)?;
        let end = self.label();
        self.reading.end = end;
        if varies {
            let left = self.counter("left", 32);
            self.push(Instr::Mov(left, Self::length()));
            self.reading.left = Some(left);
            self.reading.most = LONGEST;
        }
        if has_cycle(self.program, number) {
            let steps = self.counter("steps", 16);
            self.push(Instr::Mov(steps, Value::Const(0)));
            self.reading.steps = Some(steps);
        }
        self.reading.is_under_way = true;
        self.states(number, &start)?;
        self.reading.is_under_way = false;
        for (label, error, headers) in std::mem::take(&mut self.reading.stubs) {
            self.push(Instr::Label(label));
            if let Some(error) = error {
                self.set_error(Value::Const(error))?;
            }
            self.push(Instr::Reset(headers));
            self.push(Instr::Jump(end));
        }
        self.push(Instr::Label(end));
        self.known.clear();
        Ok(())
    }

    fn counter(&mut self, name: &str, bits: u32) -> Field {
        let name = self.names.meta(name);
        self.metas.push((name, bits));
        Field::Meta(self.metas.len() - 1)
    }

    /// What is known at each state that can be reached, and where the parser accepts.
    fn flow(
        &mut self,
        number: usize,
        at: &Flow,
        varies: &mut bool,
    ) -> Checked<(Vec<Option<Flow>>, Option<Flow>)> {
        let program = self.program;
        let parser = &program.parsers[number];
        let mut states: Vec<Option<Flow>> = vec![None; parser.states.len()];
        let mut accepted: Option<Flow> = None;
        states[parser.start] = Some(at.clone());
        let mut waiting = vec![parser.start];
        while let Some(state) = waiting.pop() {
            let Some(mut now) = states[state].clone() else { continue };
            for stmt in &parser.states[state].body {
                self.step(stmt, &mut now, varies)?;
            }
            let targets: Vec<Target> = match &parser.states[state].next {
                Next::To(to) => vec![*to],
                Next::Select(_, cases) => cases.iter().map(|(_, to)| *to).collect(),
            };
            for target in targets {
                let place = match target {
                    Target::State(next) => &mut states[next],
                    Target::Accept => &mut accepted,
                    Target::Reject => continue,
                };
                let merged = match place.clone() {
                    Some(mut known) => {
                        known.merge(&now);
                        known
                    }
                    None => now.clone(),
                };
                if place.as_ref() != Some(&merged) {
                    if let Target::State(next) = target {
                        *varies |= merged.offset.is_none();
                        waiting.push(next);
                    }
                    *place = Some(merged);
                }
            }
        }
        Ok((states, accepted))
    }

    fn step(&mut self, stmt: &Stmt, now: &mut Flow, varies: &mut bool) -> Checked<()> {
        match stmt {
            Stmt::Extract(header) => {
                now.offset = now.offset.map(|offset| offset + bytes(&header.fields));
                if let Place::Valid(header) = self.place(header.valid)? {
                    now.must.insert(header);
                    now.may.insert(header);
                }
            }
            Stmt::Advance(bits) => {
                let by = self.skipped(bits)?;
                now.offset = now.offset.map(|offset| offset + by);
            }
            // What is made valid otherwise stays where it is, too.
            Stmt::Assign(pairs) => self.made_valid(pairs.iter().map(|(slot, _)| *slot), now)?,
            Stmt::Call(routine, pairs) => {
                self.made_valid(pairs.iter().map(|(slot, _)| *slot), now)?;
                let written = self.sets.routine(*routine);
                self.made_valid(written.writes.iter().copied(), now)?;
            }
            Stmt::Parse(parser) => {
                let (states, accepted) = self.flow(*parser, now, varies)?;
                let may = states.into_iter().flatten().flat_map(|flow| flow.may);
                let may: BTreeSet<usize> = may.collect();
                *now = accepted.unwrap_or_else(|| now.clone());
                *varies |= now.offset.is_none();
                now.may.extend(may);
            }
            _ => {}
        }
        Ok(())
    }

    fn made_valid(&mut self, slots: impl Iterator<Item = Slot>, now: &mut Flow) -> Checked<()> {
        for slot in slots {
            if let Place::Valid(header) = self.place(slot)? {
                now.may.insert(header);
            }
        }
        Ok(())
    }

    /// Takes down that a header is valid that was not extracted.
    pub(super) fn is_made_valid(&mut self, header: usize) {
        self.reading.at.may.insert(header);
    }

    /// A parser's states, the first one first.
    fn states(&mut self, number: usize, at: &Flow) -> Checked<()> {
        let program = self.program;
        let parser = &program.parsers[number];
        self.enter(at);
        self.block(&parser.init)?;
        let (states, _) = self.flow(number, at, &mut false)?;
        let labels: Vec<Label> = states.iter().map(|_| self.label()).collect();
        let others = (0..states.len()).filter(|state| *state != parser.start);
        for state in std::iter::once(parser.start).chain(others) {
            let Some(flow) = &states[state] else { continue };
            self.push(Instr::Label(labels[state]));
            self.enter(flow);
            if let Some(steps) = self.reading.steps {
                self.push(Instr::Alu("add", steps, Value::Const(1)));
                let late = self.failure("ParserTimeout");
                let most = Value::Const(MOST_STEPS as u64);
                self.compare(Test::Greater, Value::Field(steps), most, late);
            }
            self.block(&parser.states[state].body)?;
            self.release();
            match &parser.states[state].next {
                Next::To(Target::State(next)) => self.push(Instr::Jump(labels[*next])),
                Next::To(target) => self.go(*target),
                Next::Select(keys, cases) => self.select(keys, cases, &labels)?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, flow: &Flow) {
        self.reading.at = flow.clone();
        self.known = flow.must.clone();
    }

    /// A parser within a parser.
    pub(super) fn parse_within(&mut self, number: usize) -> Checked<()> {
        let (at, done) = (self.reading.at.clone(), self.label());
        let at = Flow { must: self.known.clone(), ..at };
        let mut after = at.clone();
        self.step(&Stmt::Parse(number), &mut after, &mut false)?;
        let outer = self.reading.done.replace(done);
        self.states(number, &at)?;
        self.reading.done = outer;
        self.push(Instr::Label(done));
        self.enter(&after);
        Ok(())
    }

    /// Accepts or rejects right here.
    fn go(&mut self, target: Target) {
        match (target, self.reading.done) {
            (Target::Accept, Some(done)) => self.push(Instr::Jump(done)),
            _ => {
                let headers = self.not_extracted();
                self.push(Instr::Reset(headers));
                let end = self.reading.end;
                self.push(Instr::Jump(end));
            }
        }
    }

    /// Where to jump for a target.
    fn leave(&mut self, target: Target, labels: &[Label]) -> Label {
        match (target, self.reading.done) {
            (Target::State(state), _) => labels[state],
            (Target::Accept, Some(done)) => done,
            _ => self.stub(None),
        }
    }

    /// Headers that have surely not been extracted; of those that may have been, it is taken down.
    fn not_extracted(&mut self) -> Vec<usize> {
        let unsure = self.reading.at.may.difference(&self.known).copied();
        let unsure: Vec<usize> = unsure.collect();
        self.reading.unsure.extend(unsure);
        let own = FIRST_OWN..self.headers.len();
        own.filter(|header| !self.reading.at.may.contains(header)).collect()
    }

    fn stub(&mut self, error: Option<u64>) -> Label {
        let headers = self.not_extracted();
        let mut stubs = self.reading.stubs.iter();
        let known = stubs.find(|(_, other, others)| *other == error && *others == headers);
        if let Some((label, ..)) = known {
            return *label;
        }
        let label = self.label();
        self.reading.stubs.push((label, error, headers));
        label
    }

    /// Where to jump when an error of the core library's has happened.
    fn failure(&mut self, name: &str) -> Label {
        let error = self.program.error(name) as u64;
        self.stub(Some(error))
    }

    fn set_error(&mut self, error: Value) -> Checked<()> {
        if let Some(slot) = self.program.metadata.parser_errors.first() {
            let field = self.field(*slot)?;
            self.push(Instr::Mov(field, error));
        }
        Ok(())
    }

    /// Jumps away if there are not so many bytes; does not move on.
    fn need(&mut self, count: usize) {
        let short = self.failure("PacketTooShort");
        let (has, needed) = match (self.reading.left, self.reading.at.offset) {
            (None, Some(offset)) => {
                self.reading.most = self.reading.most.max(offset + count);
                (Self::length(), offset + count)
            }
            (left, _) => (left.map_or_else(Self::length, Value::Field), count),
        };
        self.compare(Test::Less, has, Value::Const(needed as u64), short);
    }

    fn move_on(&mut self, count: usize) {
        if let Some(left) = self.reading.left {
            self.push(Instr::Alu("sub", left, Value::Const(count as u64)));
        }
        self.reading.at.offset = self.reading.at.offset.map(|offset| offset + count);
    }

    pub(super) fn extract(&mut self, header: &Header) -> Checked<()> {
        let count = bytes(&header.fields);
        self.need(count);
        self.move_on(count);
        if let Place::Valid(number) = self.place(header.valid)? {
            self.push(Instr::Extract(number));
            self.known.insert(number);
            self.reading.at.may.insert(number);
        }
        Ok(())
    }

    /// What is looked at is a header of its own, which is never emitted.
    pub(super) fn lookahead(&mut self, fields: &[(Slot, Ty)]) -> Checked<()> {
        let is_whole = |(_, ty): &(Slot, Ty)| ty.width().is_multiple_of(8) && ty.width() <= 64;
        if !fields.iter().all(is_whole) {
            let what = "lookahead at what is not whole bytes, 64 bits at most each";
            return Err(self.lacks_noted(Noted::Lookahead, what));
        }
        self.need(bytes(fields));
        let widths: Vec<u32> = fields.iter().map(|(_, ty)| ty.width()).collect();
        let header = self.anonymous("ahead", &widths);
        self.push(Instr::Lookahead(header));
        self.known.insert(header);
        for (number, (slot, _)) in fields.iter().enumerate() {
            let to = self.field(*slot)?;
            self.push(Instr::Mov(to, Value::Field(Field::Header(header, number))));
        }
        Ok(())
    }

    /// Bytes that are skipped.
    fn skipped(&self, bits: &Expr) -> Checked<usize> {
        match bits.as_constant() {
            Some(bits) if bits.is_multiple_of(8) && bits <= 255 * 8 => Ok(bits as usize / 8),
            _ => {
                let what = "advance by other than a constant number of whole bytes, 255 at most";
                Err(self.lacks_noted(Noted::Advance, what))
            }
        }
    }

    /// What is skipped is a header of its own, which is never emitted.
    pub(super) fn advance(&mut self, bits: &Expr) -> Checked<()> {
        let count = self.skipped(bits)?;
        if count == 0 {
            return Ok(());
        }
        self.need(count);
        self.move_on(count);
        let mut widths = vec![64; count / 8];
        widths.extend((!count.is_multiple_of(8)).then_some(count as u32 % 8 * 8));
        let header = self.anonymous("skipped", &widths);
        self.push(Instr::Extract(header));
        Ok(())
    }

    fn anonymous(&mut self, name: &str, widths: &[u32]) -> usize {
        let name = self.names.header(name);
        let fields = widths.iter().enumerate().map(|(at, bits)| (format!("f{at}"), *bits));
        self.headers.push(Fields { name, fields: fields.collect() });
        self.headers.len() - 1
    }

    pub(super) fn verify(&mut self, condition: &Expr, error: &Expr) -> Checked<()> {
        let holds = self.label();
        self.jump(condition, true, holds)?;
        let error = self.operand(error)?;
        self.set_error(error)?;
        self.go(Target::Reject);
        self.push(Instr::Label(holds));
        Ok(())
    }

    fn select(
        &mut self,
        keys: &[Expr],
        cases: &[(Vec<Match>, Target)],
        labels: &[Label],
    ) -> Checked<()> {
        let mut values = Vec::new();
        for key in keys {
            let value = self.operand(key)?;
            values.push((value, key.ty));
        }
        let mut asked: Vec<(&[Match], Label)> = Vec::new();
        for (matches, target) in cases {
            asked.push((matches, self.leave(*target, labels)));
        }
        self.cases(&values, &asked, 0);
        let none = self.failure("NoMatch");
        self.push(Instr::Jump(none));
        Ok(())
    }

    /// Asks cases from a key on, the first that fits wins; what several in a row ask is asked once.
    fn cases(&mut self, values: &[(Value, Ty)], cases: &[(&[Match], Label)], from: usize) {
        let mut rest = cases;
        while let Some((matches, to)) = rest.first() {
            let asks =
                |matches: &[Match]| (from..matches.len()).find(|key| matches[*key].mask != 0);
            let Some(key) = asks(matches) else {
                self.push(Instr::Jump(*to));
                return;
            };
            let (wanted, (value, ty)) = (matches[key], values[key]);
            let alike =
                |(other, _): &&(&[Match], Label)| asks(other) == Some(key) && other[key] == wanted;
            let count = rest.iter().take_while(alike).count();
            let is_last = matches[key + 1..].iter().all(|asked| asked.mask == 0);
            if count == 1 && is_last {
                self.ask_key(Test::Equal, wanted, value, ty, *to);
            } else {
                let next = self.label();
                self.ask_key(Test::NotEqual, wanted, value, ty, next);
                self.cases(values, &rest[..count], key + 1);
                self.push(Instr::Label(next));
            }
            rest = &rest[count..];
        }
    }

    fn ask_key(&mut self, test: Test, asked: Match, value: Value, ty: Ty, to: Label) {
        let wanted = Value::Const(asked.value as u64);
        if asked.mask == ty.mask() {
            return self.compare(test, value, wanted, to);
        }
        let masked = self.temp(ty.width());
        self.push(Instr::Mov(masked, value));
        self.push(Instr::Alu("and", masked, Value::Const(asked.mask as u64)));
        self.compare(test, Value::Field(masked), wanted, to);
    }
}

fn bytes(fields: &[(Slot, Ty)]) -> usize {
    fields.iter().map(|(_, ty)| ty.width() as usize).sum::<usize>() / 8
}

/// Whether a state can come back to itself, in a parser or those within it.
fn has_cycle(program: &Program, number: usize) -> bool {
    let parser = &program.parsers[number];
    let next = |state: usize| -> Vec<usize> {
        let targets: Vec<Target> = match &parser.states[state].next {
            Next::To(to) => vec![*to],
            Next::Select(_, cases) => cases.iter().map(|(_, to)| *to).collect(),
        };
        let states = targets.into_iter().filter_map(|target| match target {
            Target::State(next) => Some(next),
            _ => None,
        });
        states.collect()
    };
    let comes_back = |from: usize| {
        let (mut seen, mut waiting) = (BTreeSet::new(), next(from));
        while let Some(state) = waiting.pop() {
            if seen.insert(state) {
                waiting.extend(next(state));
            }
        }
        seen.contains(&from)
    };
    let within = parser.states.iter().flat_map(|state| &state.body).any(|stmt| match stmt {
        Stmt::Parse(inner) => has_cycle(program, *inner),
        _ => false,
    });
    within || (0..parser.states.len()).any(comes_back)
}
