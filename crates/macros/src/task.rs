//! `#[remote]`: a type beside the function, with the same name, whose functions run it as a task.

use crate::options::{Kind, Options};
use crate::signature::{Errors, Signature, attributes, check_returned, failure_of, item_of};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ItemFn, Result, Type};

const WHAT: &str = "a remote function";

/// How the task is submitted and run, by what it gives.
struct Form {
    /// What `remote` gives.
    reference: TokenStream,
    /// The variant of `FunctionBody`.
    variant: TokenStream,
    /// What the body gives.
    gives: TokenStream,
    /// The body's last expression.
    body: TokenStream,
}

/// Expands `#[remote]`.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item.clone()).map_err(|_| not_a_function(item))?;
    let options = Options::parse(Kind::Task, attribute)?;
    let mut errors = Errors::default();
    if let Some(receiver) = function.sig.receiver() {
        let hint = "use `#[actor]` on the impl for a value with methods";
        errors.push(receiver.span(), format!("{WHAT} has no `self`\nhint: {hint}"));
    }
    if let Some(token) = &function.sig.asyncness {
        let hint = "drop `async` and block inside, or make it an async method of an `#[actor]`";
        errors.push(
            token.span(),
            format!("{WHAT} cannot be async: a task has a thread of its own\nhint: {hint}"),
        );
    }
    let signature = Signature::check(&function.sig, WHAT, None, &mut errors);
    let form = match (&options.stream, &options.returns) {
        (Some(_), _) => stream_form(&signature, &mut errors),
        (None, Some(returns)) => several_form(&signature, *returns, &mut errors),
        (None, None) => {
            check_returned(&signature.output, WHAT, &mut errors);
            Some(plain_form(&signature))
        }
    };
    errors.finish()?;
    let form = form.expect("a form is missing only with an error");
    Ok(generate(&function, &signature, &options, &form))
}

fn not_a_function(item: TokenStream) -> Error {
    let message = "`#[remote]` goes on a function with a body\nhint: use `#[actor]` on an impl";
    Error::new_spanned(item, message)
}

fn call(signature: &Signature) -> TokenStream {
    let (name, (_, names)) = (&signature.name, signature.taken());
    quote!(#name(#(#names),*))
}

fn plain_form(signature: &Signature) -> Form {
    let ty = &signature.output.ty;
    Form {
        reference: quote!(::aktis::ObjectRef<#ty>),
        variant: quote!(Task),
        gives: quote!(::aktis::__private::Encoded),
        body: signature.encoded(&call(signature)),
    }
}

fn several_form(
    signature: &Signature,
    returns: (usize, proc_macro2::Span),
    errors: &mut Errors,
) -> Option<Form> {
    check_returned(&signature.output, WHAT, errors);
    let types: Vec<&Type> = match &signature.output.ty {
        Type::Tuple(tuple) if tuple.elems.len() == returns.0 => tuple.elems.iter().collect(),
        _ => {
            let message = format!("`returns = {}` goes with a tuple of {} values", returns.0, returns.0);
            errors.push(returns.1, message);
            return None;
        }
    };
    let names: Vec<_> = (0..types.len()).map(|i| format_ident!("__aktis_return_{i}")).collect();
    let called = call(signature);
    let called = match signature.output.fallible {
        true => {
            let failure_of = failure_of(signature.output.span);
            quote!((#called).map_err(#failure_of)?)
        }
        false => called,
    };
    let returned = types
        .iter()
        .map(|ty| quote_spanned!(ty.span()=> ::aktis::__private::returned::<#ty>))
        .collect::<Vec<_>>();
    Some(Form {
        reference: quote!((#(::aktis::ObjectRef<#types>),*)),
        variant: quote!(Several),
        gives: quote!(::std::vec::Vec<::aktis::__private::Encoded>),
        body: quote! {{
            let (#(#names),*) = #called;
            ::core::result::Result::Ok(::std::vec![#(#returned(#names)?),*])
        }},
    })
}

fn stream_form(signature: &Signature, errors: &mut Errors) -> Option<Form> {
    let Some((item, fallible_item)) = item_of(&signature.output.ty) else {
        let message = "a stream returns `impl Iterator<Item = T>` or `Box<dyn Iterator<Item = T>>`";
        errors.push(signature.output.ty.span(), message);
        return None;
    };
    let called = call(signature);
    let called = match signature.output.fallible {
        true => {
            let failure_of = failure_of(signature.output.span);
            quote!((#called).map_err(#failure_of)?)
        }
        false => called,
    };
    let items = match fallible_item {
        true => {
            let failure_of = failure_of(item.span());
            quote_spanned!(item.span()=> ::aktis::__private::fallible_items(#called, #failure_of))
        }
        false => quote_spanned!(item.span()=> ::aktis::__private::items(#called)),
    };
    Some(Form {
        reference: quote!(::aktis::ObjectStream<#item>),
        variant: quote!(Stream),
        gives: quote!(::aktis::__private::Items),
        body: quote!(::core::result::Result::Ok(#items)),
    })
}

/// An expression that submits the task.
fn submission(signature: &Signature, form: &Form, options: &TokenStream, first: &TokenStream) -> TokenStream {
    let adder = signature.adder(first);
    match form.variant.to_string().as_str() {
        "Several" => {
            let Type::Tuple(tuple) = &signature.output.ty else {
                unreachable!("several returns are a tuple")
            };
            let names: Vec<_> = (0..tuple.elems.len()).map(|i| format_ident!("__aktis_return_{i}")).collect();
            quote! {{
                let [#(#names),*] = ::aktis::__private::submit_several(&__AKTIS_FUNCTION, #options, #adder);
                (#(::aktis::__private::retyped(#names)),*)
            }}
        }
        "Stream" => quote!(::aktis::__private::submit_stream(&__AKTIS_FUNCTION, #options, #adder)),
        _ => quote!(::aktis::__private::submit(&__AKTIS_FUNCTION, #options, #adder)),
    }
}

fn generate(function: &ItemFn, signature: &Signature, options: &Options, form: &Form) -> TokenStream {
    let (visibility, name) = (&function.vis, &signature.name);
    let conditions: Vec<_> = attributes(&function.attrs, "cfg").collect();
    let Form { reference, variant, gives, body } = form;
    let body_of_function = quote!(::aktis::__private::FunctionBody::#variant(__aktis_run));
    let registered =
        signature.registered(&name.to_string(), &format_ident!("__AKTIS_FUNCTION"), &body_of_function);
    let defaults = options.task_defaults();
    let (parameters, (taken, _)) = (signature.parameters(), signature.taken());
    let submit = submission(signature, form, &quote!(__aktis_defaults()), &quote!());
    let submit_with =
        submission(signature, form, &quote!(&self.settings.options), &quote!(self.settings.check()?;));
    let about = format!("The remote form of the function `{name}`: `{name}::remote(..)` runs it as a task.");
    let about_remote = format!("Runs `{name}` as a task with its own options; gives a reference at once.");
    quote! {
        #function

        #[doc = #about]
        #(#conditions)*
        #[allow(non_camel_case_types, dead_code)]
        #visibility struct #name {}

        #(#conditions)*
        #[allow(clippy::all, unreachable_pub, missing_docs, dead_code)]
        const _: () = {
            #registered

            fn __aktis_run(
                __aktis_call: &mut ::aktis::__private::Call,
            ) -> ::core::result::Result<#gives, ::aktis::__private::Failure> {
                #taken
                #body
            }

            fn __aktis_defaults() -> &'static ::aktis::__private::TaskOptions {
                static OPTIONS: ::std::sync::OnceLock<::aktis::__private::TaskOptions> =
                    ::std::sync::OnceLock::new();
                OPTIONS.get_or_init(|| #defaults)
            }

            impl #name {
                #[doc = #about_remote]
                #[must_use = "the task's errors are lost if nobody asks for its result"]
                #[inline]
                #visibility fn remote(#parameters) -> #reference {
                    #submit
                }

                /// Options of one call, in a chain that ends with `remote`.
                #visibility fn options() -> __AktisOptions {
                    let settings = ::aktis::__private::TaskSettings::from_default(__aktis_defaults());
                    __AktisOptions { settings }
                }
            }

            /// Options of one call, in a chain that ends with `remote`.
            #[must_use = "nothing runs before `remote`"]
            #visibility struct __AktisOptions {
                settings: ::aktis::__private::TaskSettings,
            }

            impl __AktisOptions {
                ::aktis::__task_option_methods!();

                /// Runs the function as a task with these options; gives a reference at once.
                #[must_use = "the task's errors are lost if nobody asks for its result"]
                #visibility fn remote(self, #parameters) -> #reference {
                    #submit_with
                }
            }
        };
    }
}
