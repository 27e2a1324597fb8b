//! The payload struct, and its way through serde.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;

use super::{Expansion, here};
use crate::item::{Param, is_plain};

impl Expansion<'_> {
    /// The struct. With `#[serde(..)]` on a parameter serde's own derives read it; otherwise a few lines
    /// do, which compile in a fraction of the time.
    pub(super) fn payload_struct(&self) -> TokenStream {
        let derived = self.is_derived();
        let krate = &self.args.krate;
        let mut derives: Vec<TokenStream> = Vec::new();
        let (mut before, mut attribute) = (TokenStream::new(), TokenStream::new());
        if derived {
            derives.push(quote!(#krate::__private::serde::Serialize));
            derives.push(quote!(#krate::__private::serde::Deserialize));
            let mut path = krate.serde();
            if krate.is_from_a_macro() {
                let alias = format_ident!("__dtq_serde_of_{}", self.item.name());
                path = alias.to_string();
                let carried = self.carried();
                before = quote! {
                    #(#carried)*
                    #[doc(hidden)]
                    #[allow(unused_imports)]
                    use #krate::__private::serde as #alias;
                };
            }
            attribute = quote!(#[serde(crate = #path)]);
        }
        derives.extend(self.args.derives.iter().map(ToTokens::to_token_stream));
        let derive = (!derives.is_empty()).then(|| quote!(#[derive(#(#derives),*)]));
        let declaration = self.declaration(&quote!(#derive #attribute), true);
        let serde = if derived { TokenStream::new() } else { self.by_hand() };
        quote!(#before #declaration #serde)
    }

    /// Whether serde's derives are asked.
    pub(super) fn is_derived(&self) -> bool {
        self.item.payload().any(|param| !param.serde.is_empty())
    }

    /// The struct with its docs, under these attributes.
    pub(crate) fn declaration(&self, attributes: &TokenStream, serde: bool) -> TokenStream {
        let (vis, name, carried) = (&self.item.function.vis, self.payload, self.carried());
        let docs = self.payload_docs();
        let fields = self.item.payload().map(|param| field(param, serde));
        quote! {
            #(#carried)*
            #docs
            #attributes
            #vis struct #name { #(#fields),* }
        }
    }

    /// `Serialize` and `Deserialize`.
    fn by_hand(&self) -> TokenStream {
        let (name, krate, carried) = (self.payload, &self.args.krate, self.carried());
        let text = name.unraw().to_string();
        let params: Vec<&Param> = self.item.payload().collect();
        let names: Vec<String> =
            params.iter().map(|param| param.ident.unraw().to_string()).collect();
        let count = Literal::usize_unsuffixed(params.len());
        let serde = quote!(#krate::__private::serde);
        let written = params.iter().zip(&names).map(|(param, name)| {
            let ident = &param.ident;
            let value = if is_plain(&param.ty) {
                quote!(&self.#ident)
            } else {
                quote!(#krate::__private::Part(&self.#ident).part())
            };
            quote!(#serde::ser::SerializeStruct::serialize_field(&mut fields, #name, #value)?;)
        });
        let mutable = (!params.is_empty()).then(|| quote!(mut));
        let types: Vec<_> = params.iter().map(|param| &param.ty).collect();
        let places: Vec<TokenStream> =
            (0..params.len()).map(|at| place(at, params.len())).collect();
        let indices = (0..params.len()).map(Literal::usize_unsuffixed);
        let read = params.iter().zip(&names).zip(&places).zip(indices).map(|(((param, name), at), index)| {
            let ty = &param.ty;
            if is_plain(ty) {
                quote!(#index => #krate::__private::fill(&mut slots #at, #name, source),)
            } else {
                quote!(#index => #krate::__private::ReadPart::<#ty>::NEW.fill(&mut slots #at, #name, source),)
            }
        });
        let built = params.iter().zip(&names).zip(&places).map(|((param, name), at)| {
            let (ident, ty) = (&param.ident, &param.ty);
            if is_plain(ty) {
                quote!(#ident: #krate::__private::take(slots #at, #name)?)
            } else {
                quote!(#ident: #krate::__private::ReadPart::<#ty>::NEW.take(slots #at, #name)?)
            }
        });
        let result = quote!(::core::result::Result);
        let slot_types = if types.len() > WIDE {
            let rows = types.chunks(WIDE).map(|row| quote!((#(::core::option::Option<#row>,)*)));
            quote!((#(#rows,)*))
        } else {
            quote!((#(::core::option::Option<#types>,)*))
        };
        let lifetime = syn::Lifetime::new("'dtq", Span::mixed_site());
        let slots = if params.is_empty() { quote!(_) } else { quote!(slots) };
        let matched = if params.is_empty() {
            quote!(let _ = (at, source); #result::Ok(()))
        } else {
            quote!(match at { #(#read)* _ => #result::Ok(()) })
        };
        quote! {
            #(#carried)*
            #[automatically_derived]
            impl #serde::Serialize for #name {
                fn serialize<DtqS: #serde::Serializer>(&self, serializer: DtqS) -> #result<DtqS::Ok, DtqS::Error> {
                    let #mutable fields = #serde::Serializer::serialize_struct(serializer, #text, #count)?;
                    #(#written)*
                    #serde::ser::SerializeStruct::end(fields)
                }
            }

            #(#carried)*
            #[automatically_derived]
            impl<#lifetime> #serde::Deserialize<#lifetime> for #name {
                fn deserialize<DtqD: #serde::Deserializer<#lifetime>>(
                    deserializer: DtqD,
                ) -> #result<Self, DtqD::Error> {
                    #krate::__private::read(deserializer)
                }
            }

            #(#carried)*
            #[automatically_derived]
            #[doc(hidden)]
            impl<#lifetime> #krate::__private::Fields<#lifetime> for #name {
                const NAME: &'static ::core::primitive::str = #text;
                const FIELDS: &'static [&'static ::core::primitive::str] = &[#(#names),*];
                type Slots = #slot_types;

                fn read<DtqS: #krate::__private::Source<#lifetime>>(
                    #slots: &mut Self::Slots,
                    at: ::core::primitive::usize,
                    source: DtqS,
                ) -> #result<(), DtqS::Error> {
                    #matched
                }

                fn build<DtqE: #serde::de::Error>(#slots: Self::Slots) -> #result<Self, DtqE> {
                    #result::Ok(Self { #(#built),* })
                }
            }
        }
    }

    /// One statement for each parameter whose type may not travel; all on the user's own tokens.
    pub(super) fn travel_checks(&self) -> TokenStream {
        let krate = &self.args.krate;
        if self.is_derived() {
            // Serde's derives say it, each in its own words.
            return TokenStream::new();
        }
        let unknown = self.item.payload().filter(|param| !is_plain(&param.ty));
        unknown
            .map(|param| {
                let ty = &param.ty;
                let place = here(ty);
                let krate = krate.at(place);
                quote_spanned!(place=> #krate::__private::Check::<#ty>::NEW.parameter();)
            })
            .collect()
    }
}

/// Tuples are `Default` up to twelve: longer lists of slots are in rows.
const WIDE: usize = 12;

/// `.3`, or `.1.3`.
fn place(at: usize, of: usize) -> TokenStream {
    let column = Literal::usize_unsuffixed(at % WIDE);
    if of <= WIDE {
        return quote!(.#column);
    }
    let row = Literal::usize_unsuffixed(at / WIDE);
    quote!(.#row.#column)
}

fn field(param: &Param, serde: bool) -> TokenStream {
    let (ident, ty, docs) = (&param.ident, &param.ty, &param.docs);
    let own = format!(" The parameter `{}`.", ident.unraw());
    let doc = if docs.is_empty() { quote!(#[doc = #own]) } else { quote!(#(#docs)*) };
    let serde = param.serde.iter().filter(|_| serde);
    quote!(#doc #(#serde)* pub #ident: #ty)
}
