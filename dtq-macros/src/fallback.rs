//! On an error: the function as it is and a stand-in for its payload, so that one mistake is one
//! message and the editor goes on working.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::FnArg;

use crate::diag::Diag;
use crate::expand::Expansion;
use crate::item::is_string;

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
            diag.at(word.span(), format!("only a function can be a task, not a `{word}`: put `#[dtq::task]` on a `fn` or `async fn`"));
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
    let arguments = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    let arguments = arguments.zip(&expansion.item.params).filter_map(|(_, param)| {
        let (ident, ty) = (&param.ident, &param.ty);
        let into = is_string(ty).then(|| quote!(impl ::core::convert::Into<#ty>));
        let ty = into.unwrap_or_else(|| ty.to_token_stream());
        (param.role == crate::item::Role::Payload).then(|| quote!(#ident: #ty))
    });
    let where_clause = &generics.where_clause;
    // Fields whose types need a lifetime or a parameter cannot stand in the struct.
    let simple =
        generics.params.is_empty() && expansion.item.payload().all(|param| owns(&param.ty));
    let declaration = if simple {
        expansion.declaration(&quote!(#[allow(dead_code)]), false)
    } else {
        quote!(#(#carried)* #[allow(dead_code)] #vis struct #name;)
    };
    let function = runnable(expansion);
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
    }
}

/// The function without what the compiler would refuse as well, after we did.
fn runnable(expansion: &Expansion<'_>) -> TokenStream {
    let function = &expansion.item.function;
    let mut sig = function.sig.clone();
    sig.constness = None;
    sig.variadic = None;
    sig.abi = None;
    let (attrs, vis, body) = (&function.attrs, &function.vis, &function.body);
    quote!(#[allow(dead_code)] #(#attrs)* #vis #sig #body)
}

/// Whether a type can stand in a struct without parameters.
fn owns(ty: &syn::Type) -> bool {
    use syn::visit::Visit;
    struct Borrows(bool);
    impl<'ast> Visit<'ast> for Borrows {
        fn visit_type(&mut self, ty: &'ast syn::Type) {
            self.0 |= matches!(
                ty,
                syn::Type::Reference(_) | syn::Type::ImplTrait(_) | syn::Type::Infer(_)
            );
            syn::visit::visit_type(self, ty);
        }
        fn visit_lifetime(&mut self, lifetime: &'ast syn::Lifetime) {
            self.0 |= lifetime.ident != "static";
        }
    }
    let mut borrows = Borrows(false);
    borrows.visit_type(ty);
    !borrows.0
}
