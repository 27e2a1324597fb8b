//! On an error: the function as it is and a stand-in for its payload, so that one mistake is one
//! message and the editor goes on working.

use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::Type;

use crate::check::stands_alone;
use crate::diag::Diag;
use crate::expand::Expansion;
use crate::item::{Output, is_string};

/// What stands under the attribute is no function.
pub(crate) fn not_a_function(tokens: &TokenStream, error: syn::Error, diag: Diag) -> TokenStream {
    const OTHER: &[&str] = &[
        "struct",
        "enum",
        "mod",
        "trait",
        "impl",
        "static",
        "const",
        "type",
        "use",
        "union",
        "macro_rules",
    ];
    let mut words = tokens.clone().into_iter().filter_map(|tree| match tree {
        TokenTree::Ident(ident) => Some(ident),
        _ => None,
    });
    let keyword = words.find(|word| *word == "fn" || OTHER.iter().any(|other| word == other));
    match keyword {
        Some(word) if word != "fn" => {
            diag.at(word.span(), format!("only a function can be a task, and this is a `{word}`: put `#[dtq::task]` on a `fn` or `async fn`"));
        }
        _ => diag.push(error),
    }
    let errors = diag.into_tokens();
    quote!(#errors #tokens)
}

/// The function, and a payload that type-checks but cannot be enqueued.
pub(crate) fn function(expansion: &Expansion<'_>, diag: Diag) -> TokenStream {
    let function = &expansion.item.function;
    let errors = diag.into_tokens();
    let sig = &function.sig;
    if sig.receiver().is_some() || !function.has_body {
        // In an `impl` or a `trait`, where no struct can stand.
        return quote!(#errors #function);
    }
    let (vis, name, carried) = (&function.vis, expansion.payload, expansion.carried());
    let krate = &expansion.args.krate;
    let generics = &sig.generics;
    let arguments = expansion.item.payload().enumerate().map(|(at, param)| {
        // Not under its own name, which may be there twice.
        let (ident, ty) = (format_ident!("arg{at}"), &param.ty);
        if is_string(ty) {
            quote!(#ident: impl ::core::convert::Into<#ty>)
        } else if sig.generics.params.is_empty() && !(stands_alone(ty) && has_size(ty)) {
            quote!(#ident: impl ::core::marker::Sized)
        } else {
            quote!(#ident: #ty)
        }
    });
    let where_clause = &generics.where_clause;
    let mut names: Vec<_> = expansion.item.payload().map(|param| param.ident.to_string()).collect();
    names.sort();
    names.dedup();
    // Otherwise some field could not stand in a struct.
    let simple = names.len() == expansion.item.payload().count()
        && generics.params.is_empty()
        && expansion.item.payload().all(|param| stands_alone(&param.ty) && has_size(&param.ty));
    let declaration = if simple {
        expansion.declaration(&quote!(#[allow(dead_code)]), false)
    } else {
        quote!(#(#carried)* #[allow(dead_code)] #vis struct #name;)
    };
    let function = runnable(expansion);
    let output = match &expansion.item.output {
        Output::Plain(ty) | Output::Fallible(ty)
            if generics.params.is_empty() && stands_alone(ty) && !matches!(ty, Type::Never(_)) =>
        {
            expansion.output_type()
        }
        _ => quote!(()),
    };
    quote! {
        #errors
        #function
        #declaration
        #(#carried)*
        #[allow(unused_variables, dead_code, clippy::all)]
        impl #name {
            #vis fn enqueue #generics (#(#arguments),*) -> #krate::Enqueue<Self> #where_clause {
                ::core::unreachable!()
            }
        }
        #(#carried)*
        #[automatically_derived]
        impl #krate::Task for #name {
            const NAME: &'static ::core::primitive::str = "";
            type Output = #output;
            fn definition() -> &'static #krate::Definition {
                ::core::unreachable!()
            }
            fn encode(&self) -> #krate::__private::Payload {
                ::core::unreachable!()
            }
        }
    }
}

/// The function without what the compiler would refuse as well, after we did.
fn runnable(expansion: &Expansion<'_>) -> TokenStream {
    let function = &expansion.item.function;
    let mut sig = function.sig.clone();
    sig.constness = None;
    sig.variadic = None;
    sig.abi = None;
    for input in &mut sig.inputs {
        if let syn::FnArg::Typed(typed) = input
            && !has_size(&typed.ty)
        {
            let ty = &typed.ty;
            typed.ty = syn::parse_quote!(&'static #ty);
        }
    }
    let (attrs, vis, body) = (&function.attrs, &function.vis, &function.body);
    quote!(#[allow(unused)] #(#attrs)* #vis #sig #body)
}

/// `str` and `[T]` have none.
fn has_size(ty: &Type) -> bool {
    !matches!(ty, Type::Slice(_)) && !matches!(ty, Type::Path(path) if path.path.is_ident("str"))
}
