//! Tables and their properties.

use super::Parser;
use crate::ast::{Annotation, Entry, Table, TableAction};
use crate::source::{Checked, problem};

/// Name that `@name` gives.
fn given_name(annotations: &[Annotation]) -> Option<String> {
    annotations.iter().find(|one| &*one.name.text == "name").and_then(|one| one.body.clone())
}

impl Parser {
    /// Reads a table, from its opening brace on.
    pub(super) fn table(&mut self) -> Checked<Table> {
        let mut table = Table::default();
        let mut seen: Vec<String> = Vec::new();
        self.expect("{")?;
        while !self.eat("}") {
            self.annotations()?;
            let is_const = self.eat_word("const");
            let name = self.name()?;
            if seen.contains(&name.text.to_string()) {
                return problem(name.span, format!("`{}` is there twice; delete one", name.text));
            }
            seen.push(name.text.to_string());
            self.expect("=")?;
            match &*name.text {
                "key" => table.keys = self.keys()?,
                "actions" => table.actions = self.table_actions()?,
                "entries" if is_const => table.entries = self.entries()?,
                "entries" => {
                    let what =
                        "entries that can be changed are not supported; write `const entries`";
                    return problem(name.span, what);
                }
                _ => {
                    let value = self.expr()?;
                    self.expect(";")?;
                    table.properties.push((name, value, is_const));
                }
            }
        }
        Ok(table)
    }

    fn keys(&mut self) -> Checked<Vec<(crate::ast::Expr, crate::ast::Name, Option<String>)>> {
        let mut keys = Vec::new();
        self.expect("{")?;
        while !self.eat("}") {
            let expr = self.expr()?;
            self.expect(":")?;
            let kind = self.name()?;
            let name = given_name(&self.annotations_but(&["id"])?);
            self.expect(";")?;
            keys.push((expr, kind, name));
        }
        self.eat(";");
        Ok(keys)
    }

    fn table_actions(&mut self) -> Checked<Vec<TableAction>> {
        let mut actions = Vec::new();
        self.expect("{")?;
        while !self.eat("}") {
            let annotations = self.annotations_but(&["id", "name"])?;
            // Names outside of the control may be written with a dot.
            self.eat(".");
            let name = self.name()?;
            if self.eat("(") && !self.eat(")") {
                return problem(self.span(), "arguments in a list of actions are not supported");
            }
            self.expect(";")?;
            actions.push(TableAction { name, annotations });
        }
        self.eat(";");
        Ok(actions)
    }

    fn entries(&mut self) -> Checked<Vec<Entry>> {
        let mut entries = Vec::new();
        self.expect("{")?;
        while !self.eat("}") {
            let span = self.span();
            if self.is_word("const") || self.is_word("priority") {
                return problem(span, "priorities of entries are not supported; the first wins");
            }
            let keys = self.key_sets()?;
            self.expect(":")?;
            let action = self.expr()?;
            self.annotations()?;
            self.expect(";")?;
            entries.push(Entry { keys, action, span: span.to(self.last()) });
        }
        self.eat(";");
        Ok(entries)
    }
}
