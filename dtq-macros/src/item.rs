//! The function: its attributes, parameters and return, taken apart. Its body stays a row of tokens:
//! nobody here reads it, and one that is half-written goes through to the compiler as it is.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, FnArg, Pat, PatType, ReturnType, Signature, Type, Visibility};

use crate::diag::Diag;

/// A function whose body is not looked at.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// The braces and what is between them; nothing but a semicolon in a trait.
    pub(crate) body: TokenStream,
    pub(crate) has_body: bool,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let (vis, sig) = (input.parse()?, input.parse()?);
        let body: TokenStream = input.parse()?;
        let first = body.clone().into_iter().next();
        let has_body =
            !matches!(first, Some(TokenTree::Punct(semicolon)) if semicolon.as_char() == ';');
        Ok(Self { attrs, vis, sig, body, has_body })
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.attrs.iter().map(ToTokens::to_token_stream));
        self.vis.to_tokens(tokens);
        self.sig.to_tokens(tokens);
        self.body.to_tokens(tokens);
    }
}

/// A task function, taken apart.
#[derive(Debug)]
pub(crate) struct Item {
    /// The function without dtq's own attributes on parameters.
    pub(crate) function: Function,
    pub(crate) params: Vec<Param>,
    pub(crate) output: Output,
}

/// One parameter.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) role: Role,
    /// Of a context or state, which need none, perhaps a stand-in.
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    /// `#[serde(..)]` of a plain parameter.
    pub(crate) serde: Vec<Attribute>,
    /// Its doc comments.
    pub(crate) docs: Vec<Attribute>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Payload,
    Ctx,
    State,
}

/// What the function returns.
#[derive(Debug)]
pub(crate) enum Output {
    Nothing,
    Plain(Type),
    /// The last segment of its path ends in `Result`.
    Fallible(Type),
}

impl Item {
    /// Takes the function apart; what cannot stand is reported. Parameters that are refused for
    /// their pattern are kept under a name of our own, so that the rest can be checked.
    pub(crate) fn new(mut function: Function, diag: &Diag) -> Self {
        function.attrs.retain(|attr| {
            let again = is_task(attr.path());
            if again {
                diag.on(attr.path(), "a function is one task: remove the second `#[dtq::task]`");
            }
            !again
        });
        let inputs = function.sig.inputs.iter_mut().enumerate();
        let params = inputs
            .filter_map(|(index, input)| match input {
                FnArg::Typed(typed) => Some(param(index, typed, diag)),
                FnArg::Receiver(_) => None,
            })
            .collect();
        let output = match &function.sig.output {
            ReturnType::Default => Output::Nothing,
            ReturnType::Type(_, ty) if is_unit(ty) => Output::Nothing,
            ReturnType::Type(_, ty) if ends_in_result(ty) => Output::Fallible((**ty).clone()),
            ReturnType::Type(_, ty) => Output::Plain((**ty).clone()),
        };
        Self { function, params, output }
    }

    pub(crate) fn payload(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| param.role == Role::Payload)
    }

    /// The function's attributes of this name.
    pub(crate) fn attrs<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Attribute> {
        self.function.attrs.iter().filter(move |attr| attr.path().is_ident(name))
    }

    pub(crate) fn is_async(&self) -> bool {
        self.function.sig.asyncness.is_some()
    }

    /// The function's name as it is spoken: without `r#`.
    pub(crate) fn name(&self) -> String {
        self.function.sig.ident.unraw().to_string()
    }
}

/// `#[task]` or `#[dtq::task]`.
fn is_task(path: &syn::Path) -> bool {
    let names: Vec<String> =
        path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    matches!(names.iter().map(String::as_str).collect::<Vec<_>>()[..], ["task"] | ["dtq", "task"])
}

fn is_unit(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty())
}

fn ends_in_result(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|last| last.ident.to_string().ends_with("Result"))
        }
        Type::Group(group) => ends_in_result(&group.elem),
        Type::Paren(paren) => ends_in_result(&paren.elem),
        _ => false,
    }
}

/// Reads a parameter and removes from the function what is dtq's alone.
fn param(index: usize, typed: &mut PatType, diag: &Diag) -> Param {
    let mut roles: Vec<Role> = Vec::new();
    let (mut serde, mut docs, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for attr in std::mem::take(&mut typed.attrs) {
        let is = |name: &str| attr.path().is_ident(name);
        if is("ctx") || is("state") {
            if !matches!(attr.meta, syn::Meta::Path(_)) {
                let name = attr.path().to_token_stream();
                diag.on(&attr.meta, format!("`{name}` takes nothing: write `#[{name}]` alone"));
            }
            if let Some(first) = roles.first() {
                let both = if (*first == Role::Ctx) == is("ctx") {
                    "twice"
                } else {
                    "as both `#[ctx]` and `#[state]`"
                };
                diag.on(&attr.meta, format!("this parameter is marked {both}: remove one of them"));
                continue;
            }
            roles.push(if is("ctx") { Role::Ctx } else { Role::State });
        } else if is("cfg") || is("cfg_attr") {
            let what = "a task's parameters are its wire format, which must not depend on the build: \
                        remove this attribute, or write two tasks";
            diag.on(&attr.meta, what);
        } else if is("serde") {
            serde.push(attr);
        } else if is("doc") {
            docs.push(attr);
        } else if let Some(meant) = misspelt(attr.path()) {
            let written = attr.path().to_token_stream();
            diag.on(
                &attr.meta,
                format!(
                    "`{written}` is no attribute of a task's parameter: did you mean `#[{meant}]`?"
                ),
            );
            roles.extend(match meant {
                "ctx" => Some(Role::Ctx),
                "state" => Some(Role::State),
                _ => None,
            });
        } else {
            kept.push(attr);
        }
    }
    let role = roles.first().copied().unwrap_or(Role::Payload);
    if role != Role::Payload {
        if let Some(attr) = serde.first() {
            diag.on(&attr.meta, "this parameter is not part of the payload: remove `#[serde(..)]`");
        }
        serde.clear();
    }
    typed.attrs = kept;
    let ident = ident(index, &typed.pat, role, diag);
    Param { role, ident, ty: (*typed.ty).clone(), serde, docs }
}

/// Which of ours an unknown attribute may have been meant to be.
fn misspelt(path: &syn::Path) -> Option<&'static str> {
    const OTHERS: &[&str] = &["allow", "warn", "deny", "forbid", "expect"];
    let name = path.get_ident()?.to_string();
    match name.as_str() {
        "context" => Some("ctx"),
        "data" | "extension" => Some("state"),
        other if OTHERS.contains(&other) => None,
        other => crate::names::nearest(other, &["ctx", "context", "state", "serde"])
            .map(|near| if near == "context" { "ctx" } else { near }),
    }
}

/// The name of a parameter, which becomes the payload's field.
fn ident(index: usize, pat: &Pat, role: Role, diag: &Diag) -> Ident {
    let stand_in = quote::format_ident!("arg{index}");
    match pat {
        Pat::Ident(ident) if role == Role::Payload && ident.by_ref.is_some() => {
            diag.on(
                pat,
                format!(
                    "a task's parameter is taken by value: write `{}` without `ref`",
                    ident.ident
                ),
            );
            ident.ident.clone()
        }
        Pat::Ident(ident) if role == Role::Payload && ident.subpat.is_some() => {
            let text = "a task's parameter has one name, which becomes the payload's field: take it apart in the body";
            diag.on(pat, text);
            ident.ident.clone()
        }
        Pat::Ident(ident) => ident.ident.clone(),
        _ if role != Role::Payload => stand_in,
        Pat::Wild(_) => {
            diag.on(
                pat,
                "a task's parameter needs a name, which becomes the payload's field: write `_name`",
            );
            stand_in
        }
        _ => {
            let text = pat.to_token_stream();
            diag.on(
                pat,
                format!(
                    "a task's parameter needs a name, which becomes the payload's field: write `value` here, \
                     and `let {text} = value;` in the body"
                ),
            );
            stand_in
        }
    }
}

/// The last segment of a path type's arguments, if the type is a path.
fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        Type::Group(group) => last_segment(&group.elem),
        _ => None,
    }
}

/// `E` of `Result<T, E>`, where it is written out.
pub(crate) fn error_type(ty: &Type) -> Option<&Type> {
    let syn::PathArguments::AngleBracketed(arguments) = &last_segment(ty)?.arguments else {
        return None;
    };
    match (arguments.args.len(), arguments.args.last()?) {
        (2, syn::GenericArgument::Type(error)) => Some(error),
        _ => None,
    }
}

/// `T` of `Result<T, E>`, where it is written out.
pub(crate) fn value_type(ty: &Type) -> Option<&Type> {
    let syn::PathArguments::AngleBracketed(arguments) = &last_segment(ty)?.arguments else {
        return None;
    };
    match arguments.args.first()? {
        syn::GenericArgument::Type(value) => Some(value),
        _ => None,
    }
}

/// `String`, however it is written.
pub(crate) fn is_string(ty: &Type) -> bool {
    let Type::Path(path) = ty else {
        return matches!(ty, Type::Group(group) if is_string(&group.elem));
    };
    if path.qself.is_some()
        || path.path.segments.iter().any(|segment| !segment.arguments.is_empty())
    {
        return false;
    }
    let names: Vec<String> =
        path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    matches!(names[..], ["String"] | ["std" | "alloc", "string", "String"])
}

/// A type that is known by its name to travel, so that nothing need be probed. (If the user has another
/// `String` that does not, there is more than one error; nothing worse.)
pub(crate) fn is_plain(ty: &Type) -> bool {
    const ATOMS: &[&str] = &[
        "String", "bool", "char", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32",
        "i64", "i128", "isize", "f32", "f64",
    ];
    const HOLDERS: &[&str] = &["Option", "Vec"];
    match ty {
        Type::Group(group) => is_plain(&group.elem),
        Type::Tuple(tuple) => tuple.elems.len() <= 4 && tuple.elems.iter().all(is_plain),
        Type::Path(path) if path.qself.is_none() && path.path.segments.len() == 1 => {
            let segment = &path.path.segments[0];
            let name = segment.ident.to_string();
            match &segment.arguments {
                syn::PathArguments::None => ATOMS.contains(&name.as_str()),
                syn::PathArguments::AngleBracketed(arguments) => {
                    HOLDERS.contains(&name.as_str())
                        && arguments.args.iter().all(
                            |argument| matches!(argument, syn::GenericArgument::Type(ty) if is_plain(ty)),
                        )
                }
                syn::PathArguments::Parenthesized(_) => false,
            }
        }
        _ => false,
    }
}
