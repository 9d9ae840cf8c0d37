//! Parsers.
//!
//! Most parsers are trees of states: each state is a function, so that the compiler knows at each
//! how far the packet has been read. If states repeat, a loop runs from one to the next.

use super::names::{Names, Unique, camel, snake};
use crate::ir::{Expr, Match, Next, Parser, State, Target};

/// Most visits of states, counted by paths, for which a parser is a tree.
const MOST_VISITED: u32 = 100;

impl Parser {
    /// Names of its states' functions, if they form a tree.
    pub(super) fn functions(&self) -> Vec<String> {
        let mut left = MOST_VISITED;
        match self.is_tree(self.start, &mut left) {
            true => self.states.iter().map(|state| snake(&state.name)).collect(),
            false => Vec::new(),
        }
    }

    /// True if all paths from a state end, and are few. A loop uses up `left`.
    fn is_tree(&self, state: usize, left: &mut u32) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        let mut ends = |target: &Target| match target {
            Target::State(state) => self.is_tree(*state, left),
            Target::Accept | Target::Reject => true,
        };
        match &self.states[state].next {
            Next::To(target) => ends(target),
            Next::Select(_, cases) => cases.iter().all(|(_, target)| ends(target)),
        }
    }
}

impl Names<'_> {
    /// A parser as functions.
    pub(super) fn parser(&self, number: usize) -> String {
        let (parser, name) = (&self.program.parsers[number], &self.parsers[number]);
        let (init, functions) = (self.block(&parser.init, true), &self.states[number]);
        let body = match functions.get(parser.start) {
            Some(start) => format!("{init} self.{start}()"),
            None => format!("{init} {}", self.state_loop(number)),
        };
        let states = parser.states.iter().zip(functions);
        let states: String =
            states.map(|(state, name)| self.state(state, name, functions)).collect();
        format!(
            "/// The parser `{}`.
            #[inline(always)]
            fn {name}(&mut self) -> Result<(), Stop> {{ {body} }}
            {states}\n",
            parser.name,
        )
    }

    /// A state as a function.
    fn state(&self, state: &State, name: &str, functions: &[String]) -> String {
        let go = |to: usize| format!("self.{}()", functions[to]);
        let (body, next) = (self.block(&state.body, true), self.next(&state.next, "", &go));
        format!(
            "/// Its state `{}`.
            #[inline(always)]
            fn {name}(&mut self) -> Result<(), Stop> {{
                self.input.step()?;
                {body} {next}
            }}\n",
            state.name,
        )
    }

    /// A loop over the states, which have an enum type.
    fn state_loop(&self, number: usize) -> String {
        let parser = &self.program.parsers[number];
        let states = format!("{}State", camel(&self.parsers[number]));
        let names = state_names(parser);
        let go = |to: usize| format!("{states}::{}", names[to]);
        let arms = parser.states.iter().zip(&names).map(|(state, name)| {
            let (body, next) =
                (self.block(&state.body, true), self.next(&state.next, "return ", &go));
            format!("{states}::{name} => {{ {body} {next} }}\n")
        });
        format!(
            "let mut state = {states}::{};
            loop {{
                self.input.step()?;
                state = match state {{ {} }};
            }}",
            names[parser.start],
            arms.collect::<String>(),
        )
    }

    /// Enum type of a parser's states, if it has one.
    pub(super) fn states_type(&self, number: usize) -> String {
        if !self.states[number].is_empty() {
            return String::new();
        }
        let parser = &self.program.parsers[number];
        let names = state_names(parser).join(", ");
        format!(
            "/// Where the parser `{}` is.
            #[derive(Clone, Copy, Debug)]
            enum {}State {{ {names} }}\n",
            parser.name,
            camel(&self.parsers[number])
        )
    }

    /// Code behind a state. `leaves` precedes a result of the parser, `go` makes a jump to a state.
    fn next(&self, next: &Next, leaves: &str, go: &dyn Fn(usize) -> String) -> String {
        let target = |target: &Target| match target {
            Target::State(state) => go(*state),
            Target::Accept => format!("{leaves}Ok(())"),
            Target::Reject => format!("{leaves}Err(Stop::Reject(0))"),
        };
        let (keys, cases) = match next {
            Next::To(to) => return target(to),
            Next::Select(keys, cases) => (keys, cases),
        };
        let lets = keys.iter().enumerate();
        let lets: String =
            lets.map(|(number, key)| format!("let key_{number} = {};\n", self.expr(key))).collect();
        let mut text = String::new();
        for (asked, to) in cases {
            let conditions: Vec<String> =
                asked.iter().zip(keys).enumerate().filter_map(asks).collect();
            let arm = target(to);
            if conditions.is_empty() {
                return format!("{lets} {text} {{ {arm} }}");
            }
            text += &format!("if {} {{ {arm} }} else ", conditions.join(" && "));
        }
        let no_match = self.program.error("NoMatch");
        format!("{lets} {text} {{ {leaves}Err(Stop::Reject({no_match})) }}")
    }
}

/// Condition of a case for one key; `None` if every key matches.
fn asks((number, (asked, key)): (usize, (&Match, &Expr))) -> Option<String> {
    let Match { value, mask } = *asked;
    let value = super::expr::literal(key.ty, value);
    match mask {
        0 => None,
        _ if mask == key.ty.mask() => Some(format!("key_{number} == {value}")),
        _ => {
            let mask = super::expr::literal(key.ty, mask);
            Some(format!("key_{number} & {mask} == {value}"))
        }
    }
}

fn state_names(parser: &Parser) -> Vec<String> {
    let mut names = Unique::default();
    parser.states.iter().map(|state| names.take(&camel(&state.name))).collect()
}
