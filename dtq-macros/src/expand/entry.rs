//! The trait's implementation, the registry's entry, and the function that the worker calls.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Type;
use syn::ext::IdentExt as _;

use super::{Expansion, here};
use crate::item::{Output, Role, error_type, is_plain, value_type};

/// A variable of ours, the same in all that is generated, whatever place it is reported at.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

impl Expansion<'_> {
    pub(super) fn entry(&self) -> TokenStream {
        let (name, carried, krate) = (self.payload, self.carried(), &self.args.krate);
        let wire = self.wire_literal();
        let (output, run, definition) = (self.output_type(), self.run(), self.definition());
        let whole = if self.is_derived() {
            quote!(#krate::__private::Part(self).part())
        } else {
            quote!(self)
        };
        let deprecated = self.item.attrs("deprecated").next().map(|_| quote!(#[allow(deprecated)]));
        quote! {
            #(#carried)*
            #deprecated
            const _: () = {
                #run

                #[#krate::__private::linkme::distributed_slice(#krate::__private::TASKS)]
                #[linkme(crate = #krate::__private::linkme)]
                static ENTRY: &'static #krate::Definition = &#definition;

                #[automatically_derived]
                impl #krate::Task for #name {
                    const NAME: &'static ::core::primitive::str = #wire;
                    type Output = #output;

                    fn definition() -> &'static #krate::Definition {
                        ENTRY
                    }

                    fn encode(&self) -> #krate::__private::Payload {
                        #krate::__private::encode(#whole)
                    }
                }
            };
        }
    }

    pub(crate) fn output_type(&self) -> TokenStream {
        let krate = &self.args.krate;
        match &self.item.output {
            Output::Nothing => quote!(()),
            Output::Plain(ty) => quote!(#ty),
            Output::Fallible(ty) => {
                let (place, krate) = (here(ty), krate.at(here(ty)));
                quote_spanned!(place=> <#ty as #krate::__private::Fallible>::Ok)
            }
        }
    }

    fn definition(&self) -> TokenStream {
        let (args, krate) = (self.args, &self.args.krate);
        let wire = self.wire_literal();
        let kind = if self.item.is_async() { "Async" } else { "Blocking" };
        let kind = Ident::new(kind, Span::mixed_site());
        let mut tokens = quote! {
            #krate::__private::define(
                #wire,
                #krate::__private::Run::#kind(run),
                (::core::file!(), ::core::line!(), ::core::module_path!()),
            )
        };
        let mut list = |setter: &str, items: Vec<TokenStream>| {
            if !items.is_empty() {
                let setter = Ident::new(setter, Span::mixed_site());
                tokens.extend(quote!(.#setter(&[#(#items),*])));
            }
        };
        list(
            "with_aliases",
            args.aliases.iter().map(|(alias, _)| alias.to_token_stream()).collect(),
        );
        let names =
            self.item.payload().map(|param| param.ident.unraw().to_string().to_token_stream());
        list("with_params", names.collect());
        let states = self.item.params.iter().filter(|param| param.role == Role::State);
        let need = |ty: &Type| quote!(#krate::StateNeed::of::<#ty>());
        list("with_states", states.map(|param| need(&param.ty)).collect());
        let probe = |ty: &Type| quote!(#krate::__private::is_error::<#ty>);
        list("with_retry_on", args.retry_on.iter().map(probe).collect());
        let options = self.options_set();
        if !options.is_empty() {
            tokens.extend(quote!(.with_options(#krate::Options::DEFAULT #options)));
        }
        tokens
    }

    /// Calls of setters for what the attribute sets.
    fn options_set(&self) -> TokenStream {
        let args = self.args;
        let number = |value: Option<u64>| {
            value.map(Literal::u64_unsuffixed).map(|value| value.to_token_stream())
        };
        let setters = [
            ("with_queue", args.queue.as_ref().map(ToTokens::to_token_stream)),
            ("with_priority", number(args.priority.map(u64::from))),
            ("with_max_attempts", number(args.max_attempts.map(u64::from))),
            ("with_timeout_ms", number(args.timeout_ms)),
            ("with_backoff_base_ms", number(args.backoff.base_ms)),
            ("with_backoff_max_ms", number(args.backoff.max_ms)),
            ("with_backoff_jitter", args.backoff.jitter.map(|value| value.to_token_stream())),
            ("with_ttl_ms", number(args.ttl_ms)),
            ("with_retention_ms", number(args.retention_ms)),
            ("with_result_retention_ms", number(args.result_retention_ms)),
            ("with_result_max_bytes", number(args.result_max_bytes)),
        ];
        let setters = setters.into_iter().filter_map(|(setter, value)| Some((setter, value?)));
        setters
            .map(|(setter, value)| {
                let setter = Ident::new(setter, Span::mixed_site());
                quote!(.#setter(#value))
            })
            .collect()
    }

    /// Decodes the payload, calls the function, encodes what it returns.
    fn run(&self) -> TokenStream {
        let krate = &self.args.krate;
        let (checks, body, execution) = (self.travel_checks(), self.body(), local("execution"));
        if !self.item.is_async() {
            return quote! {
                fn run(#execution: #krate::__private::Execution) -> #krate::__private::Encoded {
                    #checks
                    #body
                }
            };
        }
        let unsure: Vec<&Type> = self
            .item
            .params
            .iter()
            .filter(|param| param.role != Role::Ctx && !is_plain(&param.ty))
            .map(|param| &param.ty)
            .collect();
        // A future that is not Send is reported at the function's name, and why, in the function's body.
        let span = here(&self.item.function.sig.ident);
        let here = krate.at(span);
        let run = quote_spanned!(span=> async move { #body });
        let call = if unsure.is_empty() {
            quote_spanned!(span=> #here::__private::boxed(#run))
        } else {
            quote_spanned!(span=> #here::__private::Sendable::<(#(#unsure,)*)>::NEW.boxed(#run))
        };
        quote! {
            fn run(#execution: #krate::__private::Execution) -> #krate::__private::BoxRun {
                #checks
                #call
            }
        }
    }

    fn body(&self) -> TokenStream {
        let (name, krate) = (self.payload, &self.args.krate);
        let function = &self.item.function.sig.ident;
        let (execution, whole) = (local("execution"), local("payload"));
        let arguments = self.item.params.iter().map(|param| {
            let (ident, ty) = (&param.ident, &param.ty);
            match param.role {
                Role::Payload => quote!(#whole.#ident),
                Role::Ctx => {
                    let (place, krate) = (here(ty), krate.at(here(ty)));
                    quote_spanned!(place=> #krate::__private::context::<#ty>(&#execution))
                }
                Role::State => {
                    let (place, krate) = (here(ty), krate.at(here(ty)));
                    quote_spanned!(place=> #krate::__private::StateOf::<#ty>::NEW.state(&#execution)?)
                }
            }
        });
        let wait = self.item.is_async().then(|| quote!(.await));
        let call = quote!(#function(#(#arguments),*) #wait);
        let returned = match &self.item.output {
            Output::Nothing => quote!({ #call; #krate::__private::nothing() }),
            Output::Plain(ty) => {
                let (place, krate) = (here(ty), krate.at(here(ty)));
                quote_spanned!(place=> #krate::__private::Plain::new(#call).ran())
            }
            Output::Fallible(ty) => {
                // What may be wrong here is the value's type or the error's: mostly the one that is not
                // known by its name.
                let doubtful = value_type(ty)
                    .filter(|value| {
                        !is_plain(value)
                            && !matches!(value, Type::Tuple(unit) if unit.elems.is_empty())
                    })
                    .or_else(|| error_type(ty))
                    .unwrap_or(ty);
                let (place, krate) = (here(doubtful), krate.at(here(doubtful)));
                quote_spanned!(place=> #krate::__private::Ran(#call).ran())
            }
        };
        // Without a parameter nothing of the decoded payload is used.
        let payload = if self.item.payload().next().is_some() { quote!(#whole) } else { quote!(_) };
        let decode = if self.is_derived() {
            quote!(#krate::__private::ReadPart::<#name>::NEW.decode(&#execution)?)
        } else {
            quote!(#krate::__private::decode::<#name>(&#execution)?)
        };
        quote! {
            let #payload = #decode;
            #returned
        }
    }
}
