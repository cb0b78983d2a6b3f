//! `#[on_worker_start]`: a function that each worker process calls before its first task.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ItemFn, Result, ReturnType};

/// Expands `#[on_worker_start]`.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new_spanned(attribute, "`#[on_worker_start]` has no options"));
    }
    let function: ItemFn = syn::parse2(item.clone()).map_err(|_| {
        Error::new_spanned(item, "`#[on_worker_start]` goes on a function with a body, outside of an impl")
    })?;
    let signature = &function.sig;
    let refuse = |span, message| Err(Error::new(span, message));
    if !signature.inputs.is_empty() {
        return refuse(
            signature.inputs.span(),
            "a function that runs when a worker starts takes no arguments",
        );
    }
    if !signature.generics.params.is_empty() {
        return refuse(
            signature.generics.span(),
            "a function that runs when a worker starts cannot be generic",
        );
    }
    if let Some(token) = &signature.asyncness {
        return refuse(token.span(), "a function that runs when a worker starts cannot be async");
    }
    let name = &signature.ident;
    let suffix = format!("::{name}");
    let span = match &signature.output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    let started = quote_spanned!(span=> ::aktis::__private::started);
    Ok(quote! {
        #[allow(dead_code)]
        #function

        const _: () = {
            #[::aktis::__private::linkme::distributed_slice(::aktis::__private::WORKER_STARTS)]
            #[linkme(crate = ::aktis::__private::linkme)]
            static __AKTIS_START: ::aktis::__private::WorkerStart = ::aktis::__private::WorkerStart {
                name: ::core::concat!(::core::module_path!(), #suffix),
                run: || #started(#name()),
            };
        };
    })
}
