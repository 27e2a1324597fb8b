//! Where dtq lives: `crate = ::path`, by default `::dtq`.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;

/// The path of dtq as the user's crate sees it.
#[derive(Debug, Clone)]
pub(crate) struct Krate(pub(crate) syn::Path);

impl Default for Krate {
    fn default() -> Self {
        Self(syn::parse_quote!(::dtq))
    }
}

impl Krate {
    /// `path::__private::serde` as serde's `crate = ".."` wants it.
    pub(crate) fn serde(&self) -> String {
        let path: String = self.0.to_token_stream().to_string().split_whitespace().collect();
        format!("{path}::__private::serde")
    }

    /// The path as tokens that are reported at this place.
    pub(crate) fn at(&self, place: Span) -> TokenStream {
        let located = |mut tree: TokenTree| {
            tree.set_span(tree.span().located_at(place));
            tree
        };
        self.0.to_token_stream().into_iter().map(located).collect()
    }

    /// Whether the path begins with a `$crate`, which cannot be written in a string.
    pub(crate) fn is_from_a_macro(&self) -> bool {
        self.0.segments.first().is_some_and(|first| first.ident == "$crate")
    }
}

impl ToTokens for Krate {
    fn to_tokens(&self, tokens: &mut proc_macro2::TokenStream) {
        self.0.to_tokens(tokens);
    }
}
