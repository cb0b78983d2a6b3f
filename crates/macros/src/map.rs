//! `map` of a remote function: many calls in one task.

use crate::signature::{Argument, Signature};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::Visibility;

/// What is generated for a function that can be mapped.
pub(crate) struct Mapping {
    /// The registered function that runs a chunk, and its code.
    pub(crate) registered: TokenStream,
    /// `map` of the function.
    pub(crate) method: TokenStream,
    /// `map` of its options.
    pub(crate) method_with_options: TokenStream,
}

/// The parts of `map`; nothing for a function without arguments, which has nothing to go through.
pub(crate) fn generate(visibility: &Visibility, signature: &Signature) -> Option<Mapping> {
    let count = signature.arguments.len();
    if count == 0 {
        return None;
    }
    let name = &signature.name;
    let item = format_ident!("__AKTIS_MAP");
    let body = quote!(::aktis::__private::FunctionBody::Task(__aktis_run_chunk));
    let registered = signature.registered(&format!("{name}::map"), &item, &body);
    let per_call = count as u32;
    let output = &signature.output.ty;
    let types: Vec<_> = signature.arguments.iter().map(|Argument { ty, .. }| ty).collect();
    let texts = signature.arguments.iter().map(|Argument { name, .. }| name.to_string());
    let generics: Vec<_> = (0..count).map(|i| format_ident!("__Aktis{i}")).collect();
    let values: Vec<_> = (0..count).map(|i| format_ident!("__aktis_{i}")).collect();
    let (item_type, pattern) = match count {
        1 => (quote!(#(#generics)*), quote!(#(#values)*)),
        _ => (quote!((#(#generics),*)), quote!((#(#values),*))),
    };
    let add = quote! {
        |__aktis_arguments, __aktis_runtime, #pattern| {
            #(::aktis::__private::add::<#types>(__aktis_arguments, __aktis_runtime, #texts, #values)?;)*
            ::core::result::Result::Ok(())
        }
    };
    let method = |receiver: TokenStream, settings: TokenStream, about: &str| {
        quote! {
            #[doc = #about]
            #visibility fn map<__AktisItems, #(#generics),*>(
                #receiver items: __AktisItems,
            ) -> ::aktis::Map<__AktisItems::IntoIter, #output>
            where
                __AktisItems: ::core::iter::IntoIterator<Item = #item_type>,
                #(#generics: ::aktis::IntoArg<#types>,)*
            {
                ::aktis::__private::map(&__AKTIS_MAP, #settings, items.into_iter(), #add)
            }
        }
    };
    let about =
        format!("Runs `{name}` for each item, many items in one task; gives the results as an iterator.");
    let about_options = "Runs the function for each item with these options, many items in one task; gives the results as an iterator.";
    Some(Mapping {
        registered: quote! {
            #registered

            fn __aktis_run_chunk(
                __aktis_call: &mut ::aktis::__private::Call,
            ) -> ::core::result::Result<::aktis::__private::Encoded, ::aktis::__private::Failure> {
                ::aktis::__private::run_chunk(__aktis_call, #per_call, __aktis_run)
            }
        },
        method: method(
            quote!(),
            quote!(::aktis::__private::TaskSettings::from_default(__aktis_defaults())),
            &about,
        ),
        method_with_options: method(quote!(&self,), quote!(self.settings.clone()), about_options),
    })
}
