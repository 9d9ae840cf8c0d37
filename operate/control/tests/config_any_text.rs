//! Whatever the text, reading it ends with settings that the engine takes or with problems that
//! have a place; never with a panic.

use natgate_control::config::{Problem, read_text};
use natgate_control::meaning::Meaning;
use natgate_engine::{Engine, Timestamp};
use proptest::prelude::*;

const GOOD: &str = include_str!("good.toml");
/// An engine of an accepted configuration is made if it takes no more than this.
const MEMORY: u64 = 64 << 20;

/// Pieces that make a difference when they come instead of others.
const PIECES: &[&str] = &[
    "0",
    "-1",
    "65536",
    "4294967296",
    "1e9",
    "nan",
    "true",
    "\"",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    ",",
    ".",
    "/",
    "-",
    ":",
    "\n",
    "#",
    "é",
    "\u{0}",
    "\u{feff}",
    "'''",
    "0x",
    "1979-05-27",
    "\"0.0.0.0/0\"",
    "\"10.0.0.1\"",
    "\"203.0.113.1\"",
    "\"255.255.255.255\"",
    "\"1-65535\"",
    "\"9999999999999999999d\"",
    "\"99EiB\"",
    "[inside]\n",
    "[[pool]]\n",
    "[nat.block]\n",
    "pool.x.y = 1\n",
    "\"default\"",
    "\"snat\"",
    "\"dnat\"",
    "\"block\"",
    "\"\"",
];

/// True if the new text comes from the file itself.
fn own() -> impl Strategy<Value = bool> {
    any::<bool>()
}

fn check(text: &str) -> Result<(), TestCaseError> {
    let lines = text.split('\n').count();
    let placed = |problem: &Problem| {
        problem.line.is_some_and(|line| (1..=lines).contains(&line))
            && problem.column.is_some_and(|column| column >= 1)
            && !problem.message.is_empty()
            && !problem.to_string().contains('\n')
    };
    match read_text(text, "any.toml") {
        Err(problems) => {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(placed), "{problems:?}");
        }
        Ok(configuration) => {
            prop_assert!(configuration.warnings.iter().all(placed));
            let config = configuration.settings.engine.clone();
            prop_assert!(Meaning::of(configuration).to_string().ends_with('\n'));
            if Engine::memory(&config) <= MEMORY {
                let engine = Engine::new(&config, [0; 32], Timestamp(0));
                prop_assert!(engine.is_ok(), "{:?}", engine.err());
            }
        }
    }
    Ok(())
}

/// The offset of a character, counted round the text.
fn boundary(text: &str, at: usize) -> usize {
    let mut at = at % (text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[test]
fn the_file_that_is_mutated_is_good() {
    let read = read_text(GOOD, "good.toml");
    assert!(read.is_ok(), "{:?}", read.err());
}

proptest! {
    #[test]
    fn random_text(text in any::<String>()) {
        check(&text)?;
    }

    /// Some spans of the good file are replaced by pieces, by spans from elsewhere, or by nothing.
    #[test]
    fn mutated_text(
        mutations in prop::collection::vec(
            (any::<usize>(), 0..24_usize, prop::sample::select(PIECES), any::<usize>(), own()),
            1..6,
        ),
    ) {
        let mut text = GOOD.to_owned();
        for (at, len, piece, elsewhere, own) in mutations {
            let (start, end) = (at % (text.len() + 1), at % (text.len() + 1) + len);
            let (start, end) = (boundary(&text, start), boundary(&text, end.min(text.len())));
            let from = boundary(&text, elsewhere % (text.len() + 1));
            let to = boundary(&text, (from + len).min(text.len()));
            let new = if own { text[from..to].to_owned() } else { piece.to_owned() };
            text.replace_range(start..end, &new);
        }
        check(&text)?;
    }

    /// One value of the good file becomes another: these are mostly TOML still.
    #[test]
    fn swapped_values(line in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(),
                      piece in prop::sample::select(PIECES), own in own()) {
        let mut lines: Vec<String> = GOOD.lines().map(str::to_owned).collect();
        let assignments: Vec<usize> =
            (0..lines.len()).filter(|at| lines[*at].contains('=')).collect();
        let other = lines[assignments[other.index(assignments.len())]].clone();
        let line = &mut lines[assignments[line.index(assignments.len())]];
        let key = line.split_once('=').map_or("", |(key, _)| key).to_owned();
        let value = other.split_once('=').map_or("", |(_, value)| value);
        *line = format!("{key}={}", if own { value } else { piece });
        check(&lines.join("\n"))?;
    }
}
