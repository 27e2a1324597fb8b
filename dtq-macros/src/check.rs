//! Rules for signatures, and those that cross keys and signature.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Lifetime, Type};

use crate::args::Args;
use crate::diag::Diag;
use crate::item::{Item, Output, Param, Role};
use crate::names::{is_wire_name, shadows_prelude, upper_camel};

/// The payload's name, once all rules have been looked at.
pub(crate) fn check(args: &Args, item: &Item, diag: &Diag) -> Ident {
    signature(item, diag);
    let mut names: Vec<&Ident> = Vec::new();
    for param in &item.params {
        parameter(param, item.function.sig.generics.lifetimes().next().is_some(), diag);
        if names.contains(&&param.ident) {
            // The compiler says so of the function; once is enough.
            diag.quietly();
        }
        names.push(&param.ident);
    }
    contexts(item, diag);
    output(item, diag);
    wire_names(args, item, diag);
    for derive in &args.derives {
        if let Some(last) = derive.segments.last()
            && (last.ident == "Serialize" || last.ident == "Deserialize")
        {
            diag.on(derive, format!("every payload is `{}` already: remove it here", last.ident));
        }
    }
    payload_name(args, item, diag)
}

fn signature(item: &Item, diag: &Diag) {
    let sig = &item.function.sig;
    if !item.function.has_body {
        diag.on(&sig.ident, "a task is a free function with a body, not a trait's: write `async fn name(..) { .. }` outside of any trait");
        return;
    }
    if let Some(variadic) = &sig.variadic {
        // It asks for `unsafe` and `extern` as well, and takes them along.
        diag.on(
            variadic,
            "a task has a fixed list of parameters: take a `Vec<T>` instead of `...`",
        );
        return;
    }
    if let Some(constness) = &sig.constness {
        diag.on(constness, "a task runs in a worker, not at compile time: remove `const`");
    }
    if let syn::Safety::Unsafe(safety) = &sig.safety {
        diag.on(
            safety,
            "a task is called by dtq, which cannot keep the promises that `unsafe` asks for: remove it, and \
             write an `unsafe` block inside",
        );
    }
    if let Some(abi) = &sig.abi {
        diag.on(
            abi,
            "a task is a Rust function: remove `extern`, and call the foreign function inside",
        );
    }
    if let Some(receiver) = sig.receiver() {
        diag.on(
            receiver,
            "a task is a free function, not a method: move it out of the `impl`, and take what it needs as \
             parameters or as `#[state]`",
        );
    }
    if let Some(first) = sig.generics.params.first() {
        let what = match first {
            syn::GenericParam::Lifetime(_) => {
                "a task owns its parameters, since another process runs it: remove the lifetime, and take \
                 owned types"
            }
            _ => {
                "a task is one concrete function, since its payload is read by another process: remove the \
                 type parameters, and write a task for each type that calls a generic function"
            }
        };
        // One mistake: the clause goes with the parameters.
        diag.on(&sig.generics.params, what);
    } else if let Some(clause) = &sig.generics.where_clause {
        diag.on(clause, "a task takes concrete types: remove the `where` clause");
    }
}

/// What a task cannot return, as far as tokens tell.
fn output(item: &Item, diag: &Diag) {
    let (Output::Plain(ty) | Output::Fallible(ty)) = &item.output else { return };
    if let Type::Never(never) = ty {
        diag.on(never, "a task ends at some time, and its result is stored: remove `-> !`");
        return;
    }
    if let Some(Found::Impl(tokens)) = find(ty, true) {
        diag.on(tokens, "a task's result is stored: write the type instead of `impl Trait`");
    } else if matches!(find(ty, true), Some(Found::Borrow(..))) {
        if item.params.iter().any(|param| matches!(find(&param.ty, true), Some(Found::Borrow(..))))
        {
            // The parameter's type is the mistake.
            return;
        }
        // There is nothing that it could borrow from: the compiler says so of the function.
        diag.quietly();
    }
}

fn wire_names(args: &Args, item: &Item, diag: &Diag) {
    let name = args.name.clone().unwrap_or_else(|| item.name());
    if args.name.is_none() && !is_wire_name(&name) {
        diag.on(
            &item.function.sig.ident,
            "this function's name cannot be the task's wire name, which is 1 to 128 ASCII letters, digits and any \
             of _ . : -: give it one by `#[dtq::task(name = \"...\")]`",
        );
    }
    for (at, (alias, span)) in args.aliases.iter().enumerate() {
        if *alias == name {
            diag.at(
                *span,
                format!("`{alias}` is the task's name, and need not be its alias: remove it"),
            );
        } else if args.aliases[..at].iter().any(|(other, _)| other == alias) {
            diag.at(*span, format!("the alias `{alias}` is given twice: remove one of them"));
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

/// What makes a type impossible, as far as tokens tell.
enum Found {
    /// A reference or a lifetime, and what to write instead.
    Borrow(TokenStream, &'static str),
    Impl(TokenStream),
    Other(TokenStream, &'static str),
}

/// The first such thing in a type, from outside. `'static` is as good as owned where `statics` are.
fn find(ty: &Type, statics: bool) -> Option<Found> {
    struct Finder {
        statics: bool,
        found: Option<Found>,
    }
    impl<'ast> Visit<'ast> for Finder {
        fn visit_type(&mut self, ty: &'ast Type) {
            if self.found.is_some() {
                return;
            }
            let tokens = ty.to_token_stream();
            self.found = match ty {
                Type::Reference(reference)
                    if self.statics
                        && reference
                            .lifetime
                            .as_ref()
                            .is_some_and(|name| name.ident == "static") =>
                {
                    None
                }
                Type::Reference(reference) => Some(Found::Borrow(
                    tokens,
                    match &*reference.elem {
                        Type::Path(path) if path.path.is_ident("str") => {
                            "write `String` instead of `&str`"
                        }
                        Type::Slice(_) => "write `Vec<T>` instead of a slice",
                        _ => "write the type without `&`",
                    },
                )),
                Type::ImplTrait(_) => Some(Found::Impl(tokens)),
                Type::Ptr(_) => Some(Found::Other(
                    tokens,
                    "a pointer means nothing to the process that runs the task: pass the value",
                )),
                Type::Path(path) if path.path.is_ident("Self") => Some(Found::Other(
                    tokens,
                    "a task is a free function, where there is no `Self`: write the type's name",
                )),
                // What must not stand here at all is told by the compiler, at the function.
                _ => None,
            };
            // That of a `Cow<'static, T>` is for what is never borrowed when it is read.
            let before = self.statics;
            self.statics |= matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Cow"));
            if self.found.is_none() {
                visit::visit_type(self, ty);
            }
            self.statics = before;
        }

        fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
            if self.found.is_none() && (lifetime.ident != "static" || !self.statics) {
                let what =
                    "take a type that owns its data, such as `String` instead of `Cow<'_, str>`";
                self.found = Some(Found::Borrow(lifetime.to_token_stream(), what));
            }
        }

        // What a function pointer borrows is not the payload's.
        fn visit_type_fn_ptr(&mut self, _: &'ast syn::TypeFnPtr) {}
    }
    let mut finder = Finder { statics, found: None };
    finder.visit_type(ty);
    finder.found
}

/// What cannot travel.
fn parameter(param: &Param, with_lifetimes: bool, diag: &Diag) {
    let payload = param.role == Role::Payload;
    // A state may well be a `&'static T`.
    match find(&param.ty, !payload) {
        // The lifetime is the mistake, and was told.
        Some(Found::Borrow(..)) if with_lifetimes => {}
        Some(Found::Borrow(tokens, instead)) if payload => {
            diag.on(
                tokens,
                format!("a task owns its parameters, since another process runs it: {instead}"),
            );
        }
        Some(Found::Borrow(tokens, _)) if param.role == Role::Ctx => {
            diag.on(tokens, "a task owns its context: write `dtq::Context`");
        }
        Some(Found::Borrow(tokens, _)) => {
            diag.on(tokens, "a task gets a clone of its state: write `Arc<T>`");
        }
        Some(Found::Impl(tokens)) => {
            diag.on(tokens, "a task takes concrete types, since its payload is stored: write the type instead of `impl Trait`");
        }
        Some(Found::Other(tokens, what)) => diag.on(tokens, what),
        None if payload => match &param.ty {
            Type::Path(path) if path.path.is_ident("str") => {
                diag.on(&param.ty, "`str` has no size: write `String`");
            }
            Type::Slice(slice) => diag.on(slice, "a slice has no size: write `Vec<T>`"),
            // The compiler has its own words for these, at the function.
            ty if !stands_alone(ty) => diag.quietly(),
            _ => {}
        },
        None => {}
    }
}

/// Whether a type means the same in a struct and in a signature elsewhere: it names no lifetime, no
/// `Self`, nothing to be inferred.
pub(crate) fn stands_alone(ty: &Type) -> bool {
    struct Finder(bool);
    impl<'ast> Visit<'ast> for Finder {
        fn visit_type(&mut self, ty: &'ast Type) {
            self.0 |= match ty {
                Type::Reference(reference) => reference.lifetime.is_none(),
                Type::ImplTrait(_) | Type::Infer(_) => true,
                Type::Path(path) => path.path.is_ident("Self"),
                _ => false,
            };
            visit::visit_type(self, ty);
        }
        fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
            self.0 |= lifetime.ident != "static";
        }
    }
    let mut finder = Finder(false);
    finder.visit_type(ty);
    !finder.0
}

fn payload_name(args: &Args, item: &Item, diag: &Diag) -> Ident {
    let function = &item.function.sig.ident;
    let (ident, name) = match &args.payload {
        Some(payload) => (payload.clone(), payload.unraw().to_string()),
        None => {
            let name = upper_camel(&item.name());
            if syn::parse_str::<Ident>(&name).is_err() {
                let what = "no type can be named after this function: write `#[dtq::task(payload = SomeName)]`";
                diag.on(function, what);
                return quote::format_ident!("Payload", span = function.span());
            }
            (Ident::new(&name, function.span()), name)
        }
    };
    let problem = if shadows_prelude(&name) {
        "and take that name away from the code around it"
    } else if *function == ident {
        "like the function itself"
    } else if args.payload.is_none() && uses(item, &name) {
        "a name that the signature itself uses"
    } else {
        return ident;
    };
    let instead = format!("{}Task", upper_camel(&item.name()));
    diag.on(
        &ident,
        format!("the payload struct would be called `{name}`, {problem}: write `#[dtq::task(payload = {instead})]`"),
    );
    // Under another name, so that the rest of the file still means what it says.
    Ident::new(&instead, function.span())
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
