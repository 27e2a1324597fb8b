//! `SendWelcome::enqueue(to, lang)`.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};

use super::{Expansion, here};
use crate::item::is_string;

impl Expansion<'_> {
    pub(super) fn enqueue(&self) -> TokenStream {
        let (vis, name, carried) = (&self.item.function.vis, self.payload, self.carried());
        let krate = &self.args.krate;
        let mut declared = Vec::new();
        let mut fields = Vec::new();
        for param in self.item.payload() {
            let (ident, ty) = (&param.ident, &param.ty);
            if is_string(ty) {
                let into = quote_spanned!(here(ty)=> ::core::convert::Into);
                declared.push(quote!(#ident: impl #into<#ty>));
                fields.push(quote!(#ident: #into::into(#ident)));
            } else {
                declared.push(quote!(#ident: #ty));
                fields.push(quote!(#ident));
            }
        }
        let docs = self.enqueue_docs();
        // Found and shown where the function stands.
        let enqueue = Ident::new("enqueue", here(&self.item.function.sig.ident));
        let many = (declared.len() > 7).then(|| quote!(#[allow(clippy::too_many_arguments)]));
        quote! {
            #(#carried)*
            impl #name {
                #docs
                #many
                #[allow(dead_code)]
                #vis fn #enqueue(#(#declared),*) -> #krate::Enqueue<Self> {
                    #krate::__private::enqueue(Self { #(#fields),* })
                }
            }
        }
    }
}
