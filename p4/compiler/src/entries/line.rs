//! An entry in one line, as on a command line: `TABLE KEYS ACTION [ARGUMENTS]`.

use super::{listed, value};
use crate::info::{FieldInfo, Info};
use crate::machine::{Error, Key, Row, named};

/// Format of a line.
const SHAPE: &str = "an entry is a table, its keys, an action and its arguments, such as \"routes \
                     0.0.0.0/0 via 192.0.2.1,2\"; keys and arguments have commas between them and \
                     no blanks";

impl Row {
    /// Reads `TABLE KEYS ACTION [ARGUMENTS]`. Keys and arguments are in the program's order with
    /// commas between them, and written as in files of entries. `_` matches any value of a key that
    /// is not exact. The priority is 0.
    ///
    /// # Errors
    ///
    /// Names, numbers or widths are not the program's; the message says which, and what would be
    /// right.
    pub fn read(info: &Info, text: &str) -> Result<Self, Error> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (table, keys, action, args) = match words[..] {
            [table, keys, action] => (table, keys, action, ""),
            [table, keys, action, args] => (table, keys, action, args),
            _ => return Err(Error::Values(SHAPE.to_owned())),
        };
        let names: Vec<&str> = info.tables.iter().map(|table| &*table.preamble.name).collect();
        let table = &info.tables[named("table", &names, table)?];
        let actions = listed(info, table);
        let names: Vec<&str> = actions.iter().map(|action| &*action.preamble.name).collect();
        let action = actions[named("action", &names, action)?];
        let (of, fields) = (&table.preamble.name, &table.fields);
        let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
        let keys = each("keys", of, &names, keys, |number, text| key(&fields[number], text))?;
        let (to, params) = (&action.preamble.name, &action.params);
        let names: Vec<&str> = params.iter().map(|param| &*param.name).collect();
        let argument = |number: usize, text: &str| value::parsed(text, params[number].bits);
        let args = each("arguments", to, &names, args, argument)?;
        Ok(Self { table: of.clone(), keys, priority: 0, action: to.clone(), args })
    }
}

/// Values between commas, one for each name.
fn each<V>(
    what: &str,
    of: &str,
    names: &[&str],
    text: &str,
    read: impl Fn(usize, &str) -> Result<V, String>,
) -> Result<Vec<V>, Error> {
    let given: Vec<&str> = text.split(',').filter(|_| !text.is_empty()).collect();
    if given.len() != names.len() {
        let there = match names.is_empty() {
            true => "none".to_owned(),
            false => format!("{}, with commas between them and no blanks", names.join(",")),
        };
        return Err(Error::Values(format!("the {what} of `{of}` are {there}")));
    }
    let value = |(number, text): (usize, &str)| {
        read(number, text).map_err(|why| Error::Values(format!("{}: {why}", names[number])))
    };
    given.into_iter().enumerate().map(value).collect()
}

fn key(field: &FieldInfo, text: &str) -> Result<Key, String> {
    match (text, value::any(field.kind)) {
        ("_", Some(any)) => Ok(any),
        ("_", None) => Err("an exact key has one value".to_owned()),
        _ => value::key_of_text(text, field.kind, field.bits),
    }
}
