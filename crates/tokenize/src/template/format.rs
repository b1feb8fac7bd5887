//! Does a template want message content as a string or as a list of parts?
//!
//! vLLM (`--chat-template-content-format auto`) reads the parsed template: a loop over
//! `message.content`, or over a macro parameter that receives it, means parts. The same rules here,
//! on minijinja's syntax tree.

use minijinja::machinery::ast::{CallArg, CallBlock, Expr, Macro, Stmt};
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;

/// How message content reaches the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentFormat {
    /// One string; text parts are joined by newlines.
    String,
    /// A list of parts.
    Parts,
}

/// The format of `source` (without `generation` tags); a template that does not parse wants a string.
pub(super) fn detect(source: &str) -> ContentFormat {
    let Ok(Stmt::Template(template)) = parse(source, "chat_template", SyntaxConfig::default()) else {
        return ContentFormat::String;
    };
    let mut found = Nodes::default();
    found.body(&template.children, None);
    if found.loops_over_content() {
        ContentFormat::Parts
    } else {
        ContentFormat::String
    }
}

/// What the rules look at, gathered in one walk.
#[derive(Default)]
struct Nodes<'a, 't> {
    /// `set name = value`.
    sets: Vec<(&'t str, &'a Expr<'t>)>,
    loops: Vec<Loop<'a, 't>>,
    macros: Vec<&'a Macro<'t>>,
    /// Calls of a plain name.
    calls: Vec<(&'t str, &'a [CallArg<'t>])>,
}

struct Loop<'a, 't> {
    target: &'a Expr<'t>,
    over: &'a Expr<'t>,
    /// Index of the innermost macro around it.
    inside: Option<usize>,
}

impl<'a, 't> Nodes<'a, 't> {
    fn loops_over_content(&self) -> bool {
        let messages = self.names_for("messages");
        let item = |each: &Loop<'a, 't>| {
            let over_messages = messages.iter().any(|name| refers(each.over, name, None));
            if over_messages { name_of(each.target) } else { None }
        };
        let message_names: Vec<&str> = self.loops.iter().filter_map(item).collect();
        let content = |expr: &Expr<'t>| {
            message_names
                .iter()
                .any(|name| refers(expr, name, Some("content")))
        };
        self.loops.iter().any(|each| {
            if content(each.over) {
                return true;
            }
            let Expr::Var(over) = each.over else { return false };
            match each.inside {
                Some(at) => self
                    .parameters_given_content(self.macros[at], &content)
                    .any(|name| name == over.id),
                None => over.id == "content",
            }
        })
    }

    /// `root` and every name that it, or a part of it, is assigned to.
    fn names_for(&self, root: &'t str) -> Vec<&'t str> {
        let mut names = vec![root];
        let mut at = 0;
        while let Some(&name) = names.get(at) {
            for (target, value) in &self.sets {
                if refers(value, name, None) && !names.contains(target) {
                    names.push(target);
                }
            }
            at += 1;
        }
        names
    }

    fn parameters_given_content(
        &self,
        of: &'a Macro<'t>,
        content: &impl Fn(&Expr<'t>) -> bool,
    ) -> impl Iterator<Item = &'t str> {
        let parameters: Vec<&'t str> = of.args.iter().filter_map(name_of).collect();
        let calls = self.calls.iter().filter(|(name, _)| *name == of.name);
        let mut given = Vec::new();
        for (at, argument) in calls.flat_map(|(_, arguments)| arguments.iter().enumerate()) {
            match argument {
                CallArg::Pos(value) if content(value) => given.extend(parameters.get(at)),
                CallArg::Kwarg(name, value) if content(value) && parameters.contains(name) => {
                    given.push(*name);
                }
                _ => {}
            }
        }
        given.into_iter()
    }

    fn body(&mut self, body: &'a [Stmt<'t>], inside: Option<usize>) {
        for statement in body {
            self.statement(statement, inside);
        }
    }

    fn statement(&mut self, statement: &'a Stmt<'t>, inside: Option<usize>) {
        match statement {
            Stmt::Template(node) => self.body(&node.children, inside),
            Stmt::EmitExpr(node) => self.expression(&node.expr),
            Stmt::ForLoop(node) => {
                self.loops.push(Loop {
                    target: &node.target,
                    over: &node.iter,
                    inside,
                });
                self.expression(&node.iter);
                self.body(&node.body, inside);
                self.body(&node.else_body, inside);
            }
            Stmt::IfCond(node) => {
                self.expression(&node.expr);
                self.body(&node.true_body, inside);
                self.body(&node.false_body, inside);
            }
            Stmt::WithBlock(node) => self.body(&node.body, inside),
            Stmt::Set(node) => {
                if let Some(name) = name_of(&node.target) {
                    self.sets.push((name, &node.expr));
                }
                self.expression(&node.expr);
            }
            Stmt::SetBlock(node) => self.body(&node.body, inside),
            Stmt::AutoEscape(node) => self.body(&node.body, inside),
            Stmt::FilterBlock(node) => self.body(&node.body, inside),
            Stmt::Block(node) => self.body(&node.body, inside),
            Stmt::Macro(node) => self.macro_body(node),
            Stmt::CallBlock(node) => {
                let CallBlock { call, macro_decl, .. } = &**node;
                self.call(&call.expr, &call.args);
                self.body(&macro_decl.body, inside);
            }
            Stmt::Do(node) => self.call(&node.call.expr, &node.call.args),
            Stmt::EmitRaw(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Continue(_)
            | Stmt::Break(_) => {}
        }
    }

    fn macro_body(&mut self, node: &'a Macro<'t>) {
        self.macros.push(node);
        let at = self.macros.len() - 1;
        self.body(&node.body, Some(at));
    }

    fn call(&mut self, callee: &'a Expr<'t>, arguments: &'a [CallArg<'t>]) {
        match callee {
            Expr::Var(name) => self.calls.push((name.id, arguments)),
            other => self.expression(other),
        }
        for argument in arguments {
            match argument {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expression(value),
            }
        }
    }

    /// Looks for macro calls.
    fn expression(&mut self, expression: &'a Expr<'t>) {
        match expression {
            Expr::Call(node) => self.call(&node.expr, &node.args),
            Expr::BinOp(node) => {
                self.expression(&node.left);
                self.expression(&node.right);
            }
            Expr::UnaryOp(node) => self.expression(&node.expr),
            Expr::IfExpr(node) => {
                self.expression(&node.test_expr);
                self.expression(&node.true_expr);
                if let Some(otherwise) = &node.false_expr {
                    self.expression(otherwise);
                }
            }
            Expr::Filter(node) => {
                if let Some(inner) = &node.expr {
                    self.expression(inner);
                }
            }
            Expr::Test(node) => self.expression(&node.expr),
            Expr::GetAttr(node) => self.expression(&node.expr),
            Expr::GetItem(node) => self.expression(&node.expr),
            Expr::Slice(node) => self.expression(&node.expr),
            Expr::Compare(node) => self.expression(&node.expr),
            Expr::List(node) => node.items.iter().for_each(|item| self.expression(item)),
            Expr::Tuple(node) => node.items.iter().for_each(|item| self.expression(item)),
            Expr::Map(node) => node.values.iter().for_each(|item| self.expression(item)),
            Expr::Var(_) | Expr::Const(_) => {}
        }
    }
}

fn name_of<'t>(expression: &Expr<'t>) -> Option<&'t str> {
    match expression {
        Expr::Var(name) => Some(name.id),
        _ => None,
    }
}

/// Whether the expression is `name` (or `name.key`, `name['key']`), a slice of it, or it through
/// filters and tests.
fn refers(expression: &Expr<'_>, name: &str, key: Option<&str>) -> bool {
    match (expression, key) {
        (Expr::Filter(node), _) => node.expr.as_ref().is_some_and(|inner| refers(inner, name, key)),
        (Expr::Test(node), _) => refers(&node.expr, name, key),
        (Expr::Slice(node), _) => refers(&node.expr, name, key),
        (Expr::Var(node), None) => node.id == name,
        (Expr::GetAttr(node), Some(key)) => node.name == key && name_of(&node.expr) == Some(name),
        (Expr::GetItem(node), Some(key)) => {
            name_of(&node.expr) == Some(name)
                && matches!(&node.subscript_expr, Expr::Const(constant) if constant.value.as_str() == Some(key))
        }
        _ => false,
    }
}
