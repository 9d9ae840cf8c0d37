//! Declarations, at the top level and in parsers and controls.

use super::Parser;
use crate::ast::{
    Annotation, Control, Decl, DeclKind, Direction, Method, Name, Param, Signature, State, Stmt,
    Transition, TypeRef,
};
use crate::lexer::Kind;
use crate::source::{Checked, problem};
use crate::unsupported;
use std::sync::Arc;

impl Parser {
    /// Reads a top-level declaration; `None` for a lone semicolon.
    pub(super) fn declaration(&mut self) -> Checked<Option<Decl>> {
        let annotations = self.annotations()?;
        if annotations.is_empty() && self.eat(";") {
            return Ok(None);
        }
        let word = match self.peek() {
            Kind::Name(word) => word.clone(),
            _ => return self.expected("a declaration"),
        };
        self.supported(&word)?;
        let (name, kind) = match &*word {
            "const" => self.constant()?,
            "typedef" | "type" => self.alias(&word)?,
            "struct" | "header" => self.record(&word)?,
            "enum" => self.enumeration()?,
            "error" if self.is(1, "{") => self.names(DeclKind::Error)?,
            "match_kind" if self.is(1, "{") => self.names(DeclKind::MatchKind)?,
            "extern" => self.external()?,
            "action" => self.action()?,
            "parser" => self.parser()?,
            "control" => self.control()?,
            "package" => {
                self.next();
                let name = self.new_type()?;
                let signature = self.signature()?;
                self.expect(";")?;
                (name, DeclKind::Package(signature))
            }
            _ if matches!(&self.token(1).kind, Kind::Name(_)) && self.is(2, "<") => {
                // The result is a type parameter of the function itself; otherwise it would be the
                // name of a type.
                return problem(self.span(), "generic functions are not supported");
            }
            _ if self.is_type(0) => self.function_or_instance()?,
            _ => return self.expected("a declaration"),
        };
        Ok(Some(Decl { name, kind, annotations }))
    }

    /// Reads a declaration in a parser or control, before its states or `apply`.
    pub(super) fn local(&mut self) -> Checked<Decl> {
        let annotations = self.annotations()?;
        let word = match self.peek() {
            Kind::Name(word) => word.clone(),
            _ => return self.expected("a declaration"),
        };
        self.supported(&word)?;
        let (name, kind) = match &*word {
            "const" => self.constant()?,
            "action" => self.action()?,
            "table" => {
                self.next();
                let name = self.new_name()?;
                (name, DeclKind::Table(Arc::new(self.table()?)))
            }
            _ if self.is_type(0) => self.variable_or_instance()?,
            _ => return self.expected("a declaration, `state` or `apply`"),
        };
        Ok(Decl { name, kind, annotations })
    }

    /// Reads annotations of an object that controllers identify by its position; annotations that
    /// give it a number or name are refused.
    pub(super) fn annotations_but(&mut self, refused: &[&str]) -> Checked<Vec<Annotation>> {
        let annotations = self.annotations()?;
        match annotations.iter().find(|one| refused.contains(&&*one.name.text)) {
            Some(one) => {
                let what = format!("`@{}` is not supported here; delete it", one.name.text);
                problem(one.name.span, what)
            }
            None => Ok(annotations),
        }
    }

    pub(super) fn annotations(&mut self) -> Checked<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.eat("@") {
            let name = match self.peek().clone() {
                Kind::Name(text) => Name { text, span: self.next().span },
                _ => return self.expected("an annotation's name"),
            };
            if let Some(what) = unsupported::annotation(&name.text) {
                return problem(name.span, what);
            }
            let close = match () {
                () if self.eat("(") => ")",
                () if self.eat("[") => "]",
                () => {
                    annotations.push(Annotation { name, body: None });
                    continue;
                }
            };
            annotations.push(Annotation { name, body: Some(self.annotation_body(close)?) });
        }
        Ok(annotations)
    }

    fn annotation_body(&mut self, close: &str) -> Checked<String> {
        let mut words = Vec::new();
        let mut open = 0;
        loop {
            let is_close = self.is(0, close);
            match self.peek() {
                Kind::End => return self.expected(&format!("`{close}`")),
                _ if is_close && open == 0 => {
                    self.next();
                    return Ok(words.join(" "));
                }
                Kind::Punct("(" | "[") => open += 1,
                Kind::Punct(")" | "]") if open > 0 => open -= 1,
                _ => {}
            }
            words.push(match self.next().kind {
                Kind::Text(text) => text.to_string(),
                other => other.to_string().trim_matches('`').to_owned(),
            });
        }
    }

    /// Reads the name of a new type, known as a type from here on.
    fn new_type(&mut self) -> Checked<Name> {
        let name = self.new_name()?;
        self.types.insert(name.text.clone());
        Ok(name)
    }

    fn constant(&mut self) -> Checked<(Name, DeclKind)> {
        self.expect_word("const")?;
        let ty = self.type_ref()?;
        let name = self.new_name()?;
        self.expect("=")?;
        let value = self.expr()?;
        self.expect(";")?;
        Ok((name, DeclKind::Const(ty, value)))
    }

    fn alias(&mut self, word: &str) -> Checked<(Name, DeclKind)> {
        self.next();
        let ty = self.type_ref()?;
        let name = self.new_type()?;
        self.expect(";")?;
        let kind = match word {
            "typedef" => DeclKind::Typedef(ty),
            _ => DeclKind::NewType(ty),
        };
        Ok((name, kind))
    }

    fn record(&mut self, word: &str) -> Checked<(Name, DeclKind)> {
        self.next();
        let name = self.new_type()?;
        self.refuse_type_parameters(&format!("generic {word}s"))?;
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.eat("}") {
            self.annotations_but(&["id", "name"])?;
            let ty = self.type_ref()?;
            fields.push((ty, self.name()?));
            self.expect(";")?;
        }
        let kind = match word {
            "header" => DeclKind::Header(fields),
            _ => DeclKind::Struct(fields),
        };
        Ok((name, kind))
    }

    fn refuse_type_parameters(&self, what: &str) -> Checked<()> {
        match self.is(0, "<") {
            true => problem(self.span(), format!("{what} are not supported")),
            false => Ok(()),
        }
    }

    fn enumeration(&mut self) -> Checked<(Name, DeclKind)> {
        self.next();
        let representation = match self.is_type(0) {
            true => Some(self.type_ref()?),
            false => None,
        };
        let name = self.new_type()?;
        self.expect("{")?;
        let members = self.list("}", |parser| {
            parser.annotations()?;
            let member = parser.name()?;
            let value = match parser.eat("=") {
                true => Some(parser.expr()?),
                false => None,
            };
            Ok((member, value))
        })?;
        Ok((name, DeclKind::Enum(representation, members)))
    }

    fn names(&mut self, kind: fn(Vec<Name>) -> DeclKind) -> Checked<(Name, DeclKind)> {
        let token = self.next();
        let Kind::Name(text) = token.kind else { return self.expected("a name") };
        self.expect("{")?;
        let names = self.list("}", |parser| {
            parser.annotations()?;
            parser.name()
        })?;
        Ok((Name { text, span: token.span }, kind(names)))
    }

    /// Reads type parameters, which are types until `read` is done.
    fn with_types<T>(
        &mut self,
        read: impl FnOnce(&mut Self, Vec<Arc<str>>) -> Checked<T>,
    ) -> Checked<T> {
        let before = self.types.clone();
        let mut names = Vec::new();
        if self.eat("<") {
            names = self.list(">", |parser| Ok(parser.new_name()?.text))?;
            self.types.extend(names.iter().cloned());
        }
        let result = read(self, names);
        self.types = before;
        result
    }

    fn signature(&mut self) -> Checked<Signature> {
        self.with_types(|parser, types| Ok(Signature { types, params: parser.params()? }))
    }

    fn params(&mut self) -> Checked<Vec<Param>> {
        self.expect("(")?;
        self.list(")", |parser| {
            parser.annotations_but(&["id", "name"])?;
            let direction = match () {
                () if parser.eat_word("in") => Direction::In,
                () if parser.eat_word("out") => Direction::Out,
                () if parser.eat_word("inout") => Direction::InOut,
                () => Direction::None,
            };
            let ty = parser.type_ref()?;
            let name = parser.new_name()?;
            if parser.is(0, "=") {
                return problem(parser.span(), "default values of parameters are not supported");
            }
            Ok(Param { direction, ty, name })
        })
    }

    fn external(&mut self) -> Checked<(Name, DeclKind)> {
        self.next();
        let is_object = matches!(self.peek(), Kind::Name(_))
            && (self.is(1, "{") || self.is(1, "<"))
            && !self.is_type(0);
        if !is_object {
            let method = self.method(None)?;
            return Ok((method.name.clone(), DeclKind::ExternFunction(method)));
        }
        let name = self.new_type()?;
        let kind = self.with_types(|parser, types| {
            parser.expect("{")?;
            let mut methods = Vec::new();
            while !parser.eat("}") {
                parser.annotations()?;
                methods.push(parser.method(Some(&name))?);
            }
            Ok(DeclKind::Extern(types, methods))
        })?;
        Ok((name, kind))
    }

    /// Reads a method of `object`, or a function.
    fn method(&mut self, object: Option<&Name>) -> Checked<Method> {
        if let Some(object) = object
            && self.is(1, "(")
        {
            let token = self.next();
            if token.kind != Kind::Name(object.text.clone()) {
                return problem(token.span, format!("a constructor is named `{}`", object.text));
            }
            let params = self.params()?;
            self.expect(";")?;
            let name = Name { text: object.text.clone(), span: token.span };
            return Ok(Method { result: None, name, types: Vec::new(), params });
        }
        let before = self.types.clone();
        // The type of the result may be one of the parameters that follow it.
        if let (Kind::Name(result), true) = (&self.token(0).kind, self.is(2, "<")) {
            let result = result.clone();
            self.types.insert(result);
        }
        let result = self.type_ref()?;
        self.types = before;
        let name = self.name()?;
        self.with_types(|parser, types| {
            let params = parser.params()?;
            parser.expect(";")?;
            Ok(Method { result: Some(result), name, types, params })
        })
    }

    fn action(&mut self) -> Checked<(Name, DeclKind)> {
        self.next();
        let name = self.new_name()?;
        let params = self.params()?;
        Ok((name, DeclKind::Action(params, self.block()?)))
    }

    fn parser(&mut self) -> Checked<(Name, DeclKind)> {
        self.next();
        let name = self.new_type()?;
        let signature = self.signature()?;
        if self.eat(";") {
            return Ok((name, DeclKind::ParserType(signature)));
        }
        self.refuse_generic(&signature, &name)?;
        let (mut locals, mut states) = (Vec::new(), Vec::new());
        self.expect("{")?;
        while !self.eat("}") {
            let at = self.at;
            self.annotations()?;
            if self.is_word("state") {
                states.push(self.state()?);
                continue;
            }
            self.at = at;
            if !states.is_empty() {
                return self.expected("`state` or `}`");
            }
            locals.push(self.local()?);
        }
        let parser = crate::ast::Parser { params: signature.params, locals, states };
        Ok((name, DeclKind::Parser(Arc::new(parser))))
    }

    /// Refuses type parameters and constructor parameters of a parser or control with a body.
    fn refuse_generic(&self, signature: &Signature, name: &Name) -> Checked<()> {
        if !signature.types.is_empty() {
            return problem(name.span, "generic parsers and controls are not supported");
        }
        match self.is(0, "(") {
            true => problem(
                self.span(),
                "constructor parameters of parsers and controls are not supported",
            ),
            false => Ok(()),
        }
    }

    fn state(&mut self) -> Checked<State> {
        self.expect_word("state")?;
        let name = self.new_name()?;
        self.expect("{")?;
        let mut body: Vec<Stmt> = Vec::new();
        loop {
            if self.eat_word("transition") {
                let transition = self.transition()?;
                self.expect("}")?;
                return Ok(State { name, body, transition });
            }
            if self.is(0, "}") {
                // By the language's definition a missing transition rejects.
                let span = self.next().span;
                let reject = Name { text: "reject".into(), span };
                return Ok(State { name, body, transition: Transition::To(reject) });
            }
            body.push(self.statement()?);
        }
    }

    fn transition(&mut self) -> Checked<Transition> {
        if !self.eat_word("select") {
            let to = self.name()?;
            self.expect(";")?;
            return Ok(Transition::To(to));
        }
        self.expect("(")?;
        let keys = self.list(")", Self::expr)?;
        self.expect("{")?;
        let mut cases = Vec::new();
        while !self.eat("}") {
            let sets = self.key_sets()?;
            self.expect(":")?;
            let to = self.name()?;
            self.expect(";")?;
            cases.push((sets, to));
        }
        self.eat(";");
        Ok(Transition::Select(keys, cases))
    }

    /// Reads `default`, `_`, `a`, `(a, b)`.
    pub(super) fn key_sets(&mut self) -> Checked<Vec<crate::ast::Expr>> {
        let is_tuple = self.is(0, "(") && !(self.is_type(1));
        if !is_tuple {
            return Ok(vec![self.key_set()?]);
        }
        // `(a) &&& b` and `(a, b)` begin alike: the latter is tried first.
        let at = self.at;
        self.next();
        let sets = self.list(")", Self::key_set)?;
        if self.is(0, ":") {
            return Ok(sets);
        }
        self.at = at;
        Ok(vec![self.key_set()?])
    }

    fn control(&mut self) -> Checked<(Name, DeclKind)> {
        self.next();
        let name = self.new_type()?;
        let signature = self.signature()?;
        if self.eat(";") {
            return Ok((name, DeclKind::ControlType(signature)));
        }
        self.refuse_generic(&signature, &name)?;
        self.expect("{")?;
        let mut locals = Vec::new();
        while !self.is_word("apply") {
            locals.push(self.local()?);
        }
        self.next();
        let body = self.block()?;
        self.expect("}")?;
        let control = Control { params: signature.params, locals, body };
        Ok((name, DeclKind::Control(Arc::new(control))))
    }

    fn variable_or_instance(&mut self) -> Checked<(Name, DeclKind)> {
        let ty = self.type_ref()?;
        if self.is(0, "(") {
            return self.instance(ty);
        }
        let name = self.new_name()?;
        let value = match self.eat("=") {
            true => Some(self.expr()?),
            false => None,
        };
        self.expect(";")?;
        Ok((name, DeclKind::Var(ty, value)))
    }

    fn instance(&mut self, ty: TypeRef) -> Checked<(Name, DeclKind)> {
        self.expect("(")?;
        let args = self.arguments()?;
        let name = self.new_name()?;
        if self.is(0, "=") {
            return problem(self.span(), "abstract methods are not supported");
        }
        self.expect(";")?;
        Ok((name, DeclKind::Instance(ty, args)))
    }

    fn function_or_instance(&mut self) -> Checked<(Name, DeclKind)> {
        let ty = self.type_ref()?;
        if self.is(0, "(") {
            return self.instance(ty);
        }
        let name = self.new_name()?;
        if self.is(0, ";") || self.is(0, "=") {
            return problem(name.span, "variables are declared in parsers and controls only");
        }
        self.refuse_type_parameters("generic functions")?;
        let params = self.params()?;
        let body = self.block()?;
        Ok((name, DeclKind::Function(ty, params, body)))
    }
}
