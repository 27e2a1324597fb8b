//! The generated documentation.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;

use super::Expansion;

impl Expansion<'_> {
    /// What is in force for the task, in a sentence.
    fn options(&self) -> String {
        let args = self.args;
        let mut words = vec![
            format!("queue `{}`", args.queue.as_deref().unwrap_or("default")),
            format!("priority {}", args.priority.unwrap_or(5)),
            match args.max_attempts.unwrap_or(5) {
                1 => "one attempt".to_owned(),
                attempts => format!("up to {attempts} attempts"),
            },
            match args.timeout_ms {
                Some(ms) => format!("a timeout of {}", duration(ms)),
                None => "the configured timeout (30 s)".to_owned(),
            },
        ];
        words.extend(args.ttl_ms.map(|ms| format!("to be started within {}", duration(ms))));
        words.join(", ")
    }

    /// The function as a link; a name that is written `r#..` cannot be one.
    fn link(&self) -> String {
        let ident = &self.item.function.sig.ident;
        let name = self.item.name();
        if *ident == name { format!("[`{name}`](fn@{name})") } else { format!("`{name}`") }
    }

    /// The payload's: the function's own, and what it is.
    pub(super) fn payload_docs(&self) -> TokenStream {
        let mut docs: TokenStream = self.item.attrs("doc").map(ToTokens::to_token_stream).collect();
        let about = format!(
            " The payload of the task function {}, known as `{}` on the wire: {}.",
            self.link(),
            self.wire_name(),
            self.options()
        );
        if !docs.is_empty() {
            docs.extend(quote!(#[doc = ""]));
        }
        docs.extend(quote!(#[doc = #about]));
        docs
    }

    /// Those of `enqueue`.
    pub(super) fn enqueue_docs(&self) -> TokenStream {
        let head = format!(
            " Puts a call of {} into the queue, once this is awaited: {}, unless said otherwise here.",
            self.link(),
            self.options()
        );
        let mut docs = quote!(#[doc = #head]);
        let mut first = true;
        for param in self.item.payload().filter(|param| !param.docs.is_empty()) {
            let line = param.docs.first().and_then(first_line).unwrap_or_default();
            let line = format!(" - `{}`: {}", param.ident.unraw(), line.trim());
            if first {
                docs.extend(quote!(#[doc = ""]));
                first = false;
            }
            docs.extend(quote!(#[doc = #line]));
        }
        docs
    }
}

fn first_line(doc: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &doc.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
        return None;
    };
    Some(text.value())
}

/// `1500` as `1.5 s`.
fn duration(ms: u64) -> String {
    match ms {
        _ if ms.is_multiple_of(3_600_000) => format!("{} h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        _ if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        _ => format!("{ms} ms"),
    }
}
