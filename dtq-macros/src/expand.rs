//! What is generated for a task function: parse, check, expand, each in its file.

mod enqueue;
mod entry;
mod payload;
#[cfg(test)]
mod tests;
mod words;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::Attribute;
use syn::spanned::Spanned as _;

use crate::args::{self, Args};
use crate::check;
use crate::diag::Diag;
use crate::fallback;
use crate::item::{Function, Item};

/// `#[dtq::task(attribute)] tokens`.
pub(crate) fn task(attribute: TokenStream, tokens: TokenStream) -> TokenStream {
    let diag = Diag::default();
    let args = args::parse(attribute, &diag);
    let function: Function = match syn::parse2(tokens.clone()) {
        Ok(function) => function,
        Err(error) => return fallback::not_a_function(&tokens, error, diag),
    };
    let item = Item::new(function, &diag);
    let payload = check::check(&args, &item, &diag);
    let expansion = Expansion { args: &args, item: &item, payload: &payload };
    if !diag.is_empty() {
        return fallback::function(&expansion, diag);
    }
    let _ = diag.into_tokens();
    expansion.whole()
}

/// Our own tokens, reported where the user's are.
pub(crate) fn here(tokens: &impl ToTokens) -> Span {
    tokens.span().resolved_at(Span::mixed_site())
}

/// A task that passed every check.
pub(crate) struct Expansion<'a> {
    pub(crate) args: &'a Args,
    pub(crate) item: &'a Item,
    /// The payload's name.
    pub(crate) payload: &'a Ident,
}

impl Expansion<'_> {
    fn whole(&self) -> TokenStream {
        let function = &self.item.function;
        let (payload, enqueue, entry) = (self.payload_struct(), self.enqueue(), self.entry());
        quote!(#function #payload #enqueue #entry)
    }

    /// `#[cfg(..)]` of the function, which holds for all that comes of it; and the lints that are
    /// allowed on it.
    pub(crate) fn carried(&self) -> Vec<&Attribute> {
        ["cfg", "allow"].into_iter().flat_map(|name| self.item.attrs(name)).collect()
    }

    pub(crate) fn wire_name(&self) -> String {
        self.args.name.clone().unwrap_or_else(|| self.item.name())
    }

    /// The wire name as a literal where the user wrote it.
    pub(crate) fn wire_literal(&self) -> proc_macro2::Literal {
        let mut literal = proc_macro2::Literal::string(&self.wire_name());
        literal.set_span(Span::mixed_site());
        literal
    }
}
