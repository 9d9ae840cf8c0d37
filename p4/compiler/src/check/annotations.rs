//! Annotations: the names and numbers by which controllers know objects. Also the further
//! properties of an extern's instance for controllers.

use super::Checker;
use super::scope::Entity;
use super::types::Type;
use crate::ast::{Annotation, Decl};
use crate::info::{ACTION, TABLE, object_prefix};
use crate::ir::{self, Unit};
use crate::source::{Checked, problem};
use std::sync::Arc;

/// An object that an annotation may name, by its index in the program.
#[derive(Clone, Copy)]
enum Annotated {
    Action(usize),
    Table(usize),
    Object(usize),
}

impl Checker {
    /// Applies the annotations of a declaration.
    pub(super) fn apply_annotations(&mut self, decl: &Decl) -> Checked<()> {
        for annotation in &decl.annotations {
            match &*annotation.name.text {
                "name" => self.rename(decl, annotation)?,
                "id" => self.numbered(decl, annotation)?,
                // Unknown annotations are ignored.
                _ => {}
            }
        }
        Ok(())
    }

    fn annotated(&self, decl: &Decl, annotation: &Annotation) -> Checked<Annotated> {
        match self.scopes.find(&decl.name.text) {
            Some(Entity::Action(index)) => Ok(Annotated::Action(*index)),
            Some(Entity::Table(index)) => Ok(Annotated::Table(*index)),
            Some(Entity::Object(object)) => Ok(Annotated::Object(object.index)),
            _ => {
                let what = format!(
                    "`@{}` is supported for tables, actions, externs' instances and keys only",
                    annotation.name.text
                );
                problem(annotation.name.span, what)
            }
        }
    }

    /// Applies `@name("x")`, which replaces the last part of the name, or `@name(".x")`, which
    /// replaces the whole name.
    fn rename(&mut self, decl: &Decl, annotation: &Annotation) -> Checked<()> {
        let annotated = self.annotated(decl, annotation)?;
        let span = annotation.name.span;
        let is_part = |one: char| one.is_ascii_alphanumeric() || "_.$[]-".contains(one);
        let text = annotation.body.as_deref().unwrap_or_default();
        let bare = text.strip_prefix('.').unwrap_or(text);
        if bare.is_empty() || !bare.chars().all(is_part) {
            return problem(span, "a name is expected here, as in @name(\"upload\")");
        }
        let full: Arc<str> = match text.starts_with('.') {
            true => bare.into(),
            false => self.full_name(bare),
        };
        let ir = &mut self.ir;
        let taken = match annotated {
            Annotated::Action(_) => ir.actions.iter().any(|one| one.name == full),
            Annotated::Table(_) => ir.tables.iter().any(|one| one.name == full),
            Annotated::Object(_) => ir.objects.iter().any(|one| one.name == full),
        };
        if taken {
            return problem(span, format!("`{full}` is there already; choose another name"));
        }
        match annotated {
            Annotated::Action(index) => ir.actions[index].name = full,
            Annotated::Table(index) => ir.tables[index].name = full,
            Annotated::Object(index) => ir.objects[index].name = full,
        }
        Ok(())
    }

    /// Applies `@id(5)`: the lower three bytes of a number, or all four with the kind of object in
    /// the highest byte.
    fn numbered(&mut self, decl: &Decl, annotation: &Annotation) -> Checked<()> {
        let annotated = self.annotated(decl, annotation)?;
        let span = annotation.name.span;
        let prefix = match annotated {
            Annotated::Action(_) => ACTION,
            Annotated::Table(_) => TABLE,
            Annotated::Object(index) => match object_prefix(&self.ir.objects[index].kind) {
                Some(prefix) => prefix,
                None => {
                    return problem(span, "controllers do not know this extern; delete its number");
                }
            },
        };
        let given = annotation.body.as_deref().and_then(|body| body.parse::<u32>().ok());
        let id = given.filter(|id| *id << 8 != 0 && [0, prefix].contains(&(id >> 24)));
        let Some(id) = id.map(|id| id | prefix << 24) else {
            let first = prefix << 24 | 1;
            let what =
                format!("a number from {first:#x} to {:#x} is expected here", first | 0xff_ffff);
            return problem(span, what);
        };
        let ir = &mut self.ir;
        let actions = ir.actions.iter().map(|one| one.id);
        let tables = ir.tables.iter().map(|one| one.id);
        let objects = ir.objects.iter().map(|one| one.control.id);
        if actions.chain(tables).chain(objects).any(|other| other == Some(id)) {
            return problem(span, format!("the number {id:#x} is given already; choose another"));
        }
        match annotated {
            Annotated::Action(index) => ir.actions[index].id = Some(id),
            Annotated::Table(index) => ir.tables[index].id = Some(id),
            Annotated::Object(index) => ir.objects[index].control.id = Some(id),
        }
        Ok(())
    }
}

/// Properties of an extern's instance for controllers, besides its kind.
pub(super) fn control_info(
    of: &str,
    types: &[(Arc<str>, Type)],
    args: &[Vec<u128>],
) -> ir::ControlInfo {
    let mut info = ir::ControlInfo::default();
    match (of, types.first(), args.get(1)) {
        ("Counter", _, Some(kind)) => {
            // The numbers are the architecture's.
            info.unit = match kind[0] {
                0 => Unit::Packets,
                1 => Unit::Bytes,
                _ => Unit::Both,
            };
        }
        ("Register" | "Digest", Some((_, ty)), _) => {
            if let Type::Struct(one) = ty {
                info.data_name = Some(one.name.clone());
            }
            info.data = ty.members();
        }
        _ => {}
    }
    info
}
