//! `#[derive(dtq::Retryable)]`: which variants of an error enum are worth retrying.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Data, DeriveInput, Fields, LitStr, Token, Variant};

use crate::diag::Diag;
use crate::krate::Krate;
use crate::span;

/// What a variant says.
enum Verdict {
    Permanent,
    Retry(Option<u64>),
    Inherit,
}

pub(crate) fn derive(tokens: TokenStream) -> TokenStream {
    let diag = Diag::default();
    let input: DeriveInput = match syn::parse2(tokens) {
        Ok(input) => input,
        Err(error) => {
            let _ = diag.into_tokens();
            return error.into_compile_error();
        }
    };
    let krate = krate(&input, &diag);
    let arms = match &input.data {
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| arm(&input.ident, variant, &krate, &diag))
            .collect::<Vec<_>>(),
        _ => {
            diag.on(&input.ident, "`Retryable` is derived for enums, whose variants are marked: for a struct, name the type in #[dtq::task(retry_on(..))] or mark the error where it is made");
            Vec::new()
        }
    };
    if !input.generics.params.is_empty() {
        diag.on(&input.generics, "`Retryable` cannot be derived for a generic type, since it is found again by its concrete type: mark the error where it is made");
    }
    if !diag.is_empty() {
        return diag.into_tokens();
    }
    let _ = diag.into_tokens();
    let name = &input.ident;
    let unmatched = arms.is_empty().then(|| quote!(_ => #krate::__private::Derived::Permanent,));
    // Spanned on the user's own name: one error if the enum is no error.
    let found = quote_spanned!(name.span()=> <#name as #krate::__private::Erring>::find(error));
    quote! {
        const _: () = {
            fn verdict(error: &#name) -> #krate::__private::Derived {
                match error {
                    #(#arms)*
                    #unmatched
                }
            }

            fn probe(
                error: &(dyn #krate::__private::StdError + 'static),
            ) -> ::core::option::Option<#krate::__private::Derived> {
                #found.map(verdict)
            }

            #[#krate::__private::linkme::distributed_slice(#krate::__private::DERIVED)]
            #[linkme(crate = #krate::__private::linkme)]
            static PROBE: #krate::__private::DerivedProbe = probe;
        };
    }
}

/// `#[retryable(crate = ::path)]` on the enum.
fn krate(input: &DeriveInput, diag: &Diag) -> Krate {
    let mut krate = None;
    for attr in retryable_attrs(&input.attrs) {
        let read = attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error(
                    "on the enum only `#[retryable(crate = ::path)]` may stand: mark the variants",
                ));
            }
            if krate.is_some() {
                return Err(meta.error("`crate` is given twice: remove one of them"));
            }
            krate = Some(Krate(meta.value()?.parse()?));
            Ok(())
        });
        if matches!(attr.meta, syn::Meta::Path(_)) {
            diag.on(
                attr,
                "on the enum only `#[retryable(crate = ::path)]` may stand: mark the variants",
            );
        } else {
            diag.keep(read);
        }
    }
    krate.unwrap_or_default()
}

fn retryable_attrs(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("retryable"))
}

fn arm(enum_name: &syn::Ident, variant: &Variant, krate: &Krate, diag: &Diag) -> TokenStream {
    let name = &variant.ident;
    for field in &variant.fields {
        if let Some(attr) = retryable_attrs(&field.attrs).next() {
            diag.on(attr, "`#[retryable]` marks variants: move it above the variant");
        }
    }
    let says = match verdict(variant, diag) {
        Verdict::Permanent => quote!(#krate::__private::Derived::Permanent),
        Verdict::Inherit => quote!(#krate::__private::Derived::Inherit),
        Verdict::Retry(None) => {
            quote!(#krate::__private::Derived::Retry { after_ms: ::core::option::Option::None })
        }
        Verdict::Retry(Some(ms)) => {
            quote!(#krate::__private::Derived::Retry { after_ms: ::core::option::Option::Some(#ms) })
        }
    };
    let cfgs = variant.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let span = name.span();
    let pattern = match &variant.fields {
        Fields::Unit => quote_spanned!(span=> #enum_name::#name),
        Fields::Unnamed(_) => quote_spanned!(span=> #enum_name::#name(..)),
        Fields::Named(_) => quote_spanned!(span=> #enum_name::#name { .. }),
    };
    quote!(#(#cfgs)* #pattern => #says,)
}

fn verdict(variant: &Variant, diag: &Diag) -> Verdict {
    let mut attrs = retryable_attrs(&variant.attrs);
    let Some(attr) = attrs.next() else { return Verdict::Permanent };
    for extra in attrs {
        diag.on(extra, "the variant is marked twice: remove one of them");
    }
    if matches!(attr.meta, syn::Meta::Path(_)) {
        return Verdict::Retry(None);
    }
    let mut verdict = None;
    let read = attr.parse_nested_meta(|meta| {
        if verdict.is_some() {
            return Err(meta.error("a variant says one thing: `after = \"30s\"` or `inherit`"));
        }
        if meta.path.is_ident("inherit") {
            if meta.input.peek(Token![=]) {
                return Err(meta.error("`inherit` takes nothing: write `#[retryable(inherit)]`"));
            }
            verdict = Some(Verdict::Inherit);
        } else if meta.path.is_ident("after") {
            let text: LitStr = meta
                .value()
                .and_then(syn::parse::ParseBuffer::parse)
                .map_err(|_| meta.error("`after` wants a duration: write `#[retryable(after = \"30s\")]`"))?;
            let ms = span::parse(&text.value())
                .ok_or_else(|| syn::Error::new(text.span(), span::complaint(&text.value())))?;
            verdict = Some(Verdict::Retry(Some(ms)));
        } else {
            return Err(meta.error("a variant is marked `#[retryable]`, `#[retryable(after = \"30s\")]` or `#[retryable(inherit)]`"));
        }
        Ok(())
    });
    diag.keep(read);
    if verdict.is_none() && diag.is_empty() {
        diag.at(attr.span(), "the mark is empty: write `#[retryable]`, `#[retryable(after = \"30s\")]` or `#[retryable(inherit)]`");
    }
    if matches!(verdict, Some(Verdict::Inherit)) && matches!(variant.fields, Fields::Unit) {
        diag.on(attr, "`inherit` asks the error's source, and this variant holds none");
    }
    verdict.unwrap_or(Verdict::Permanent)
}
