//! Rules for signatures, and those that cross keys and signature.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{FnArg, Lifetime, Type};

use crate::args::Args;
use crate::diag::Diag;
use crate::item::{Item, Param, Role};
use crate::names::{shadows_prelude, upper_camel};

/// The payload's name, once all rules have been looked at.
pub(crate) fn check(args: &Args, item: &Item, diag: &Diag) -> Ident {
    signature(item, diag);
    for param in &item.params {
        parameter(param, diag);
    }
    contexts(item, diag);
    if let Some(result) = item.function.sig.generics.params.iter().next() {
        let what = "a task is one concrete function: its payload is stored and read again by another process. \
                    Remove the generic parameters, or write a task for each type that calls a generic function";
        diag.on(result, what);
    }
    if let Some(clause) = &item.function.sig.generics.where_clause {
        diag.on(clause, "a task takes concrete types: remove the `where` clause");
    }
    payload_name(args, item, diag)
}

fn signature(item: &Item, diag: &Diag) {
    let sig = &item.function.sig;
    if let Some(constness) = &sig.constness {
        diag.on(constness, "a task runs in a worker, not at compile time: remove `const`");
    }
    if let syn::Safety::Unsafe(safety) = &sig.safety {
        diag.on(safety, "a task is called by dtq, which cannot promise what `unsafe` asks for: remove `unsafe`, and wrap the unsafe part inside");
    }
    if let Some(abi) = &sig.abi {
        diag.on(
            abi,
            "a task is a Rust function: remove `extern`, and call the foreign function inside",
        );
    }
    if let Some(variadic) = &sig.variadic {
        diag.on(
            variadic,
            "a task has a fixed list of parameters: take a `Vec<T>` instead of `...`",
        );
    }
    for input in &sig.inputs {
        if let FnArg::Receiver(receiver) = input {
            diag.on(receiver, "a task is a free function, not a method: move it out of the `impl`, and take what it needs as parameters or as `#[state]`");
        }
    }
}

fn contexts(item: &Item, diag: &Diag) {
    let mut contexts = item.params.iter().filter(|param| param.role == Role::Ctx);
    contexts.next();
    for extra in contexts {
        diag.on(
            &extra.ident,
            "a task has one context: remove this parameter, a `Context` can be cloned",
        );
    }
    let states: Vec<&Param> =
        item.params.iter().filter(|param| param.role == Role::State).collect();
    for (i, state) in states.iter().enumerate() {
        let text = state.ty.to_token_stream().to_string();
        if states[..i].iter().any(|other| other.ty.to_token_stream().to_string() == text) {
            diag.on(&state.ty, "two states of one type are the same value: remove one, or wrap one in a type of its own");
        }
    }
}

/// What cannot travel, as far as tokens tell.
fn parameter(param: &Param, diag: &Diag) {
    struct Finder<'a> {
        found: Option<(proc_macro2::TokenStream, &'a str)>,
    }
    impl<'ast> Visit<'ast> for Finder<'_> {
        fn visit_type(&mut self, ty: &'ast Type) {
            if self.found.is_some() {
                return;
            }
            match ty {
                Type::Reference(reference) => {
                    let what = match &*reference.elem {
                        Type::Path(path) if path.path.is_ident("str") => {
                            "a task owns its payload, since another process runs it: write `String` instead of `&str`"
                        }
                        Type::Slice(_) => {
                            "a task owns its payload, since another process runs it: write `Vec<T>` instead of a slice"
                        }
                        _ => {
                            "a task owns its payload, since another process runs it: write the type without `&`"
                        }
                    };
                    self.found = Some((ty.to_token_stream(), what));
                }
                Type::ImplTrait(_) => {
                    self.found = Some((
                        ty.to_token_stream(),
                        "a task takes concrete types, since its payload is stored: write the type instead of `impl Trait`",
                    ));
                }
                Type::Ptr(_) => {
                    self.found = Some((
                        ty.to_token_stream(),
                        "a pointer means nothing to the process that runs the task: pass the value",
                    ));
                }
                Type::Infer(_) => {
                    self.found =
                        Some((ty.to_token_stream(), "a parameter's type must be written out"));
                }
                _ => visit::visit_type(self, ty),
            }
        }

        fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
            if self.found.is_none() && lifetime.ident != "static" {
                self.found = Some((
                    lifetime.to_token_stream(),
                    "a task owns its payload, since another process runs it: use a type without a lifetime, such as `String` instead of `Cow<'_, str>`",
                ));
            }
        }
    }
    if param.role == Role::State {
        // A state is cloned from the worker; `&'static T` is a fine one.
        return;
    }
    let mut finder = Finder { found: None };
    finder.visit_type(&param.ty);
    if let Some((tokens, what)) = finder.found {
        diag.on(tokens, what);
    }
}

fn payload_name(args: &Args, item: &Item, diag: &Diag) -> Ident {
    let function = &item.function.sig.ident;
    if let Some(payload) = &args.payload {
        if payload == function {
            diag.on(payload, "the payload struct cannot have the function's own name");
        }
        return payload.clone();
    }
    let name = upper_camel(&function.unraw().to_string());
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        diag.on(
            function,
            "no type can be named after this function: write #[dtq::task(payload = SomeName)]",
        );
        return quote::format_ident!("Payload", span = function.span());
    }
    let ident = Ident::new(&name, function.span());
    if shadows_prelude(&name) {
        diag.on(function, format!("the payload struct would be called `{name}` and take that name away from the code around it: write #[dtq::task(payload = {name}Task)]"));
    } else if name == function.unraw().to_string() {
        diag.on(function, format!("the payload struct would have the function's own name `{name}`: write the function in snake_case, or #[dtq::task(payload = {name}Task)]"));
    } else if uses(item, &name) {
        diag.on(function, format!("the payload struct would be called `{name}`, a name that the signature itself uses: write #[dtq::task(payload = {name}Task)]"));
    }
    ident
}

/// Whether the signature names a type `name` without a path before it.
fn uses(item: &Item, name: &str) -> bool {
    struct Names<'a> {
        wanted: &'a str,
        found: bool,
    }
    impl<'ast> Visit<'ast> for Names<'_> {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            let first = path.segments.first();
            self.found |=
                path.leading_colon.is_none() && first.is_some_and(|s| s.ident == self.wanted);
            visit::visit_path(self, path);
        }
    }
    let mut names = Names { wanted: name, found: false };
    names.visit_signature(&item.function.sig);
    names.found
}
