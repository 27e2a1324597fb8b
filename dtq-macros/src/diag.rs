//! Collects every error of one use of a macro, so that all are reported together.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Errors found so far. It must be asked for them: dropped unread, it panics.
#[derive(Debug, Default)]
pub(crate) struct Diag {
    errors: std::cell::RefCell<Option<Vec<syn::Error>>>,
    read: std::cell::Cell<bool>,
    quiet: std::cell::Cell<bool>,
}

impl Diag {
    /// An error at a place in the source.
    pub(crate) fn at(&self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// An error that underlines all of `tokens`.
    pub(crate) fn on(&self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn push(&self, error: syn::Error) {
        self.errors.borrow_mut().get_or_insert_default().push(error);
    }

    /// The value, or `None` with its error kept.
    pub(crate) fn keep<T>(&self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// There is a mistake, of which the compiler will tell without us.
    pub(crate) fn quietly(&self) {
        self.quiet.set(true);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.borrow().is_none() && !self.quiet.get()
    }

    /// Every error as `compile_error!`s.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.read.set(true);
        let errors = self.errors.take().unwrap_or_default();
        errors.into_iter().map(|error| error.into_compile_error()).collect()
    }
}

impl Drop for Diag {
    fn drop(&mut self) {
        assert!(
            self.read.get() || std::thread::panicking(),
            "errors were collected and not reported"
        );
    }
}
