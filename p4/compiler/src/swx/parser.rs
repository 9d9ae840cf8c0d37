//! Parsers: states become labels, and every header is extracted only if all of it is there; the
//! pipeline itself does not check that.
//!
//! If the position in the packet is known statically, the packet's length is compared with it;
//! otherwise a counter of the remaining bytes is used.

use super::code::{FIRST_OWN, Field, Instr, Label, Test, Value};
use super::lower::{Fields, Lower, Place};
use crate::ir::{Expr, Header, MOST_STEPS, Match, Next, Noted, Program, Slot, Stmt, Target, Ty};
use crate::source::Checked;
use std::collections::BTreeSet;

/// Longest packet, bytes.
pub(super) const LONGEST: usize = 65_535;

/// Static knowledge at a place in a parser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    /// Number of bytes read, if it is always the same.
    offset: Option<usize>,
    /// Headers that were certainly extracted.
    must: BTreeSet<usize>,
    /// Headers that may have been extracted.
    may: BTreeSet<usize>,
}

impl Flow {
    fn merge(&mut self, other: &Self) {
        self.offset = self.offset.filter(|offset| other.offset == Some(*offset));
        self.must.retain(|header| other.must.contains(header));
        self.may.extend(&other.may);
    }
}

/// State of the parser that is being converted.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Knowledge at the present place. Headers certainly extracted are also in `known`.
    at: Flow,
    /// Label behind the parser.
    end: Label,
    /// Label for the acceptance of a nested parser; the outer one ends by [`Lower::leave`].
    done: Option<Label>,
    /// Field with the number of remaining bytes, if they are counted.
    left: Option<Field>,
    /// Field with the number of entered states, if there may be many.
    steps: Option<Field>,
    /// Code behind the states: label, error, and headers that were not extracted.
    stubs: Vec<(Label, Option<u64>, Vec<usize>)>,
    /// Headers that may or may not be extracted at some end, and those whose fields are accessed
    /// before.
    pub(super) unsure: BTreeSet<usize>,
    /// True while the parser is being converted.
    pub(super) is_under_way: bool,
    /// Most bytes of packets that the program reads.
    pub(super) most: usize,
}

impl<'p> Lower<'p> {
    /// Converts the program's parser.
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

    /// Computes the knowledge at each reachable state, and where the parser accepts.
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
            // A header that is made valid by other means stays in its place, too.
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

    /// Notes a header that is valid without having been extracted.
    pub(super) fn is_made_valid(&mut self, header: usize) {
        self.reading.at.may.insert(header);
    }

    /// Converts a parser's states, the first one first.
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

    /// Converts a parser within a parser.
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

    /// Accepts or rejects at this place.
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

    /// Label for a transition to a target.
    fn leave(&mut self, target: Target, labels: &[Label]) -> Label {
        match (target, self.reading.done) {
            (Target::State(state), _) => labels[state],
            (Target::Accept, Some(done)) => done,
            _ => self.stub(None),
        }
    }

    /// Headers that have certainly not been extracted; headers that may have been are noted.
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

    /// Label for an error of the core library.
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

    /// Jumps away if there are fewer than `count` bytes; does not advance.
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

    /// The bytes of a lookahead form a separate header, which is never emitted.
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

    /// Number of bytes that are skipped.
    fn skipped(&self, bits: &Expr) -> Checked<usize> {
        match bits.as_constant() {
            Some(bits) if bits.is_multiple_of(8) && bits <= 255 * 8 => Ok(bits as usize / 8),
            _ => {
                let what = "advance by other than a constant number of whole bytes, 255 at most";
                Err(self.lacks_noted(Noted::Advance, what))
            }
        }
    }

    /// Skipped bytes form a separate header, which is never emitted.
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

    /// Tests cases from key `from` on; the first match wins. Equal consecutive tests are made once.
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

/// True if a state can be entered again, in a parser or a nested one.
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
