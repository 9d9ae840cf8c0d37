//! The package: `PNA_NIC(...) main;` combines parser, controls and deparser.

use super::Checker;
use super::scope::{Entity, Instance, Param};
use super::types::Type;
use crate::ast::{Arg, Expr, ExprKind, Name, Signature, TypeKind, TypeRef};
use crate::ir::Slot;
use crate::source::{Checked, Span, problem};
use std::sync::Arc;

/// Known type parameters of a package.
type Bindings = Vec<(Arc<str>, Type)>;

impl Checker {
    pub(super) fn package(&mut self, ty: &TypeRef, args: &[Arg], name: &Name) -> Checked<()> {
        let TypeKind::Named(of, given) = &ty.kind else {
            return problem(ty.span, "a package is expected here");
        };
        let Entity::Package(signature) = self.find(&of.text, of.span)?.clone() else {
            let what = "externs, parsers and controls get instances in parsers and controls only";
            return problem(ty.span, what);
        };
        if &*name.text != "main" || self.is_complete {
            return problem(name.span, "a program has one package, and its name is `main`");
        }
        let names: Vec<_> = signature.params.iter().map(|param| param.name.text.clone()).collect();
        let args: Vec<Expr> = self.bind(&names, args, name.span)?.into_iter().cloned().collect();
        let mut bindings = Bindings::new();
        for (name, ty) in signature.types.iter().zip(given) {
            bindings.push((name.clone(), self.ty(ty)?));
        }
        for (param, arg) in signature.params.iter().zip(&args) {
            let TypeKind::Named(wanted, types) = &param.ty.kind else {
                return problem(param.ty.span, "parts of a package are parsers and controls");
            };
            let Entity::BlockType(block, is_parser) = self.find(&wanted.text, wanted.span)?.clone()
            else {
                return problem(wanted.span, "parts of a package are parsers and controls");
            };
            let names: Vec<Arc<str>> = types
                .iter()
                .filter_map(|ty| match &ty.kind {
                    TypeKind::Named(name, _) => Some(name.text.clone()),
                    _ => None,
                })
                .collect();
            let instance = self.part(arg, is_parser)?;
            self.conform(&block, &names, &instance, &mut bindings, arg.span)?;
            let start = self.share(&instance, &param.name.text);
            match is_parser {
                true => self.ir.parser = start,
                false => self.ir.controls.push(start),
            }
        }
        let bound = |name: &str| bindings.iter().find(|(one, _)| &**one == name).map(|(_, ty)| ty);
        if bound("PH") != bound("MH") || bound("PM") != bound("MM") {
            let what = "pre control and main control have headers and metadata of the same types";
            return problem(name.span, what);
        }
        self.is_complete = true;
        Ok(())
    }

    /// Checks `Name()`, an instance of that parser or control.
    fn part(&mut self, arg: &Expr, is_parser: bool) -> Checked<Instance> {
        let what = if is_parser { "a parser" } else { "a control" };
        let wanted = || problem(arg.span, format!("{what} is expected here, as `Name()`"));
        let ExprKind::Call(call) = &arg.kind else { return wanted() };
        let (ExprKind::Name(text), true) = (&call.callee.kind, call.args.is_empty()) else {
            return wanted();
        };
        let name = Name { text: text.clone(), span: arg.span };
        match self.find(text, arg.span)?.clone() {
            Entity::ParserDecl(parser) if is_parser => self.instance_of_parser(&parser, &name),
            Entity::ControlDecl(control) if !is_parser => self.instance_of_control(&control, &name),
            _ => wanted(),
        }
    }

    /// Checks that a part has the parameters that the architecture requires.
    fn conform(
        &mut self,
        block: &Signature,
        names: &[Arc<str>],
        instance: &Instance,
        bindings: &mut Bindings,
        span: Span,
    ) -> Checked<()> {
        if block.params.len() != instance.params.len() {
            let what = format!(
                "{} parameters are expected, and not {}",
                block.params.len(),
                instance.params.len()
            );
            return problem(span, what);
        }
        for (wanted, param) in block.params.iter().zip(&instance.params) {
            let variable = match &wanted.ty.kind {
                TypeKind::Named(name, _) => block.types.iter().position(|ty| *ty == name.text),
                _ => None,
            };
            let ty = match variable.and_then(|place| names.get(place)) {
                // The package's own name for a type parameter of the block.
                Some(name) => match bindings.iter().find(|(bound, _)| bound == name) {
                    Some((_, ty)) => ty.clone(),
                    None => {
                        bindings.push((name.clone(), param.ty.clone()));
                        param.ty.clone()
                    }
                },
                None => self.ty(&wanted.ty)?,
            };
            if ty != param.ty || wanted.direction != param.direction {
                let what = format!(
                    "the parameter `{}` is to be {}, with the architecture's direction",
                    param.name, ty
                );
                return problem(span, what);
            }
        }
        Ok(())
    }

    /// Notes the slots that the architecture fills.
    fn share(&mut self, instance: &Instance, part: &str) -> usize {
        for param in &instance.params {
            self.share_metadata(param);
        }
        let place = match part {
            "main_parser" => 0,
            "pre_control" => 1,
            "main_control" => 2,
            _ => 3,
        };
        let mut params: Vec<(Slot, usize)> = Vec::new();
        for param in instance.params.iter().filter(|param| !matches!(param.ty, Type::Extern(..))) {
            params.push((param.first, param.ty.size().unwrap_or(0)));
        }
        self.ir.metadata.params[place] = params;
        instance.index
    }

    fn share_metadata(&mut self, param: &Param) {
        let Type::Struct(one) = &param.ty else { return };
        if !one.name.starts_with("pna_") {
            return;
        }
        let slot = |name| param.ty.field(name).map(|(_, offset)| param.first + offset as Slot);
        let metadata = &mut self.ir.metadata;
        metadata.input_ports.extend(slot("input_port"));
        metadata.timestamps.extend(slot("timestamp"));
        metadata.parser_errors.extend(slot("parser_error"));
    }
}
