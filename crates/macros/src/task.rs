//! `#[remote]`: a type beside the function, with the same name, whose functions run it as a task.

use crate::generics::Parameters;
use crate::map::{self, Mapping};
use crate::options::{Kind, Options};
use crate::signature::{Errors, Signature, attributes, check_returned, failure_of, item_of};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ItemFn, Type};

const WHAT: &str = "a remote function";

/// How the task is submitted and run, by what it gives.
struct Form {
    /// The types of what travels back.
    values: Vec<TokenStream>,
    /// What `remote` gives.
    reference: TokenStream,
    /// The variant of `FunctionBody`.
    variant: TokenStream,
    /// What the body gives.
    gives: TokenStream,
    /// The body's last expression.
    body: TokenStream,
}

/// A checked function.
struct Task {
    function: ItemFn,
    signature: Signature,
    parameters: Parameters,
    options: Options,
    form: Form,
    /// Whether it was refused: then it has the same items, which do nothing, so that no other errors follow.
    refused: bool,
}

/// Expands `#[remote]`. `is_associated` tells whether a function is inside an impl or a trait.
pub(crate) fn expand(
    attribute: TokenStream,
    item: TokenStream,
    is_associated: fn(&str) -> bool,
) -> TokenStream {
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(_) => return refused_item(&not_a_function(&item), &item),
    };
    if let Some(receiver) = function.sig.receiver() {
        let hint = "use `#[actor]` on the impl for a value with methods";
        let error = Error::new(receiver.span(), format!("{WHAT} has no `self`\nhint: {hint}"));
        return refused_item(&error, &item);
    }
    if is_associated(&function.sig.ident.to_string()) {
        let hint = "move it out of the impl or trait; for a value with methods, use `#[actor]` on the impl";
        let message = format!("`#[remote]` cannot go on an associated function\nhint: {hint}");
        return refused_item(&Error::new(function.sig.ident.span(), message), &item);
    }
    let mut errors = Errors::default();
    let options = Options::parse(Kind::Task, attribute, &mut errors);
    if let Some(token) = &function.sig.asyncness {
        let hint = "drop `async` and block inside, or make it an async method of an `#[actor]`";
        errors.push(
            token.span(),
            format!("{WHAT} cannot be async: a task has a thread of its own\nhint: {hint}"),
        );
    }
    let parameters = Parameters::check(&function.sig.generics, &options.lists, "remote", &mut errors);
    if !parameters.are_there() {
        Signature::refuse_where_clause(&function.sig, WHAT, &mut errors);
    }
    let mut signature = Signature::check(&function.sig, WHAT, None, &mut errors);
    let form = match (&options.stream, &options.returns) {
        (Some(_), _) => stream_form(&signature, &parameters, &mut errors),
        (None, Some(returns)) => several_form(&mut signature, &parameters, *returns, &mut errors),
        (None, None) => {
            check_returned(&mut signature.output, WHAT, &mut errors);
            plain_form(&signature, &parameters)
        }
    };
    let task = Task { function, signature, parameters, options, form, refused: !errors.is_empty() };
    let (errors, items) = (errors.finish(), task.items());
    quote!(#errors #items)
}

fn refused_item(error: &Error, item: &TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    quote!(#error #item)
}

fn not_a_function(item: &TokenStream) -> Error {
    let message = "`#[remote]` goes on a function with a body\nhint: use `#[actor]` on an impl";
    Error::new_spanned(item, message)
}

fn call(signature: &Signature, parameters: &Parameters) -> TokenStream {
    let (name, (_, names), types) = (&signature.name, signature.taken(), parameters.arguments());
    let types = parameters.are_there().then(|| quote!(::#types));
    quote!(#name #types(#(#names),*))
}

fn plain_form(signature: &Signature, parameters: &Parameters) -> Form {
    let ty = &signature.output.ty;
    Form {
        values: vec![ty.to_token_stream()],
        reference: quote!(::aktis::ObjectRef<#ty>),
        variant: quote!(Task),
        gives: quote!(::aktis::__private::Encoded),
        body: signature.encoded(&call(signature, parameters)),
    }
}

fn several_form(
    signature: &mut Signature,
    parameters: &Parameters,
    returns: (usize, proc_macro2::Span),
    errors: &mut Errors,
) -> Form {
    check_returned(&mut signature.output, WHAT, errors);
    let types: Vec<&Type> = match &signature.output.ty {
        Type::Tuple(tuple) if tuple.elems.len() == returns.0 => tuple.elems.iter().collect(),
        other => {
            let message = format!("`returns = {}` goes with a tuple of {} values", returns.0, returns.0);
            errors.push(returns.1, message);
            match other {
                Type::Tuple(tuple) if tuple.elems.len() > 1 => tuple.elems.iter().collect(),
                _ => return plain_form(signature, parameters),
            }
        }
    };
    let names: Vec<_> = (0..types.len()).map(|i| format_ident!("__aktis_return_{i}")).collect();
    let called = call(signature, parameters);
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
    Form {
        values: types.iter().map(ToTokens::to_token_stream).collect(),
        reference: quote!((#(::aktis::ObjectRef<#types>),*)),
        variant: quote!(Several),
        gives: quote!(::std::vec::Vec<::aktis::__private::Encoded>),
        body: quote! {{
            let (#(#names),*) = #called;
            ::core::result::Result::Ok(::std::vec![#(#returned(#names)?),*])
        }},
    }
}

fn stream_form(signature: &Signature, parameters: &Parameters, errors: &mut Errors) -> Form {
    let (item, fallible_item) = item_of(&signature.output.ty).unwrap_or_else(|| {
        let message = "a stream returns `impl Iterator<Item = T>` or `Box<dyn Iterator<Item = T>>`";
        errors.push(signature.output.ty.span(), message);
        (syn::parse_quote!(()), false)
    });
    let called = call(signature, parameters);
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
    Form {
        values: vec![item.to_token_stream()],
        reference: quote!(::aktis::ObjectStream<#item>),
        variant: quote!(Stream),
        gives: quote!(::aktis::__private::Items),
        body: quote!(::core::result::Result::Ok(#items)),
    }
}

impl Task {
    /// The function, the type with its name, and what that can do.
    fn items(&self) -> TokenStream {
        let (function, visibility, name) = (&self.function, &self.function.vis, &self.signature.name);
        let conditions: Vec<_> = attributes(&function.attrs, "cfg").collect();
        let about =
            format!("The remote form of the function `{name}`: `{name}::remote(..)` runs it as a task.");
        let (bare, marker) = (self.parameters.bare(), self.parameters.marker());
        let field = self.parameters.are_there().then(|| quote!(__aktis: #marker));
        let (runner, calls) = (self.runner(), self.calls());
        quote! {
            #function

            #[doc = #about]
            #(#conditions)*
            #[allow(non_camel_case_types, dead_code)]
            #visibility struct #name #bare { #field }

            #(#conditions)*
            #[allow(
                clippy::all, unreachable_pub, missing_docs, dead_code, unused_variables, unreachable_code, private_interfaces, private_bounds
            )]
            const _: () = {
                #runner
                #calls
            };
        }
    }

    /// The code that runs in a worker, and the registered functions; they do nothing if the function was refused.
    fn runner(&self) -> TokenStream {
        let Self { signature, parameters, form, .. } = self;
        if self.refused {
            let (name, bare, arguments) = (&signature.name, parameters.bare(), parameters.arguments());
            let none = quote!(::core::unreachable!("a program with errors does not run"));
            return remote_function(&quote!(#name #arguments), &arguments, &none, &bare);
        }
        let Form { values, variant, gives, body, .. } = form;
        let (declared, (taken, _)) = (parameters.declared(), signature.taken());
        let predicates = parameters.predicates_with(&quote!('static));
        let arguments = signature.argument_predicates(parameters);
        let values = values.iter().filter(|value| parameters.are_in(value));
        let result_check = self.options.stream.is_none().then(|| signature.result_check(parameters));
        let mapped = self.mapping().map(|mapping| mapping.registered);
        let registered = parameters.combinations().iter().map(|combination| {
            let (name, item) = (&signature.name, format_ident!("__AKTIS_FUNCTION"));
            let (types, turbofish) = (combination.arguments(), combination.turbofish());
            let run = quote_spanned!(combination.span()=> __aktis_run #turbofish);
            let body = quote!(::aktis::__private::FunctionBody::#variant(#run));
            let registered = signature.registered(&format!("{name}{}", combination.text()), &item, &body);
            let remote_function = remote_function(&quote!(#name #types), &types, &quote!(&#item), &quote!());
            combination.apart(quote!(#registered #remote_function))
        });
        quote! {
            #(#registered)*
            #mapped
            #result_check

            fn __aktis_run #declared(
                __aktis_call: &mut ::aktis::__private::Call,
            ) -> ::core::result::Result<#gives, ::aktis::__private::Failure>
            where
                #predicates #arguments #(#values: ::aktis::__private::RemoteValue,)*
            {
                #taken
                #body
            }
        }
    }

    /// An expression that submits the task.
    fn submission(&self, options: &TokenStream, first: &TokenStream) -> TokenStream {
        if self.refused {
            return quote!(::core::unreachable!("a program with errors does not run"));
        }
        let (adder, function) = (self.signature.adder(first), self.registered_function());
        match self.form.variant.to_string().as_str() {
            "Several" => {
                let Type::Tuple(tuple) = &self.signature.output.ty else {
                    unreachable!("several returns are a tuple")
                };
                let names: Vec<_> =
                    (0..tuple.elems.len()).map(|i| format_ident!("__aktis_return_{i}")).collect();
                quote! {{
                    let [#(#names),*] = ::aktis::__private::submit_several(#function, #options, #adder);
                    (#(::aktis::__private::retyped(#names)),*)
                }}
            }
            "Stream" => quote!(::aktis::__private::submit_stream(#function, #options, #adder)),
            _ => quote!(::aktis::__private::submit(#function, #options, #adder)),
        }
    }

    fn registered_function(&self) -> TokenStream {
        let (name, arguments) = (&self.signature.name, self.parameters.arguments());
        match self.parameters.are_there() {
            true => quote!(<#name #arguments as ::aktis::RemoteFunction>::function()),
            false => quote!(&__AKTIS_FUNCTION),
        }
    }

    /// What `map` consists of, for a plain function that has arguments and no type parameters.
    fn mapping(&self) -> Option<Mapping> {
        let may = self.form.variant.to_string() == "Task" && !self.parameters.are_there() && !self.refused;
        may.then(|| map::generate(&self.function.vis, &self.signature)).flatten()
    }

    /// `remote`, `map` and `options` of the type, and `remote` and `map` at the end of a chain of options.
    fn calls(&self) -> TokenStream {
        let Self { signature, parameters, form, .. } = self;
        let (visibility, name, reference) = (&self.function.vis, &signature.name, &form.reference);
        let (declared, bare, arguments) = (parameters.declared(), parameters.bare(), parameters.arguments());
        let (predicates, taken) = (parameters.predicates(), signature.parameters());
        let (defaults, marker) = (self.options.task_defaults(), parameters.marker());
        let listed = parameters.are_there().then(|| quote!(where #name #arguments: ::aktis::RemoteFunction));
        let submit = self.submission(&quote!(__aktis_defaults()), &quote!());
        let submit_with = self.submission(&quote!(&self.settings.options), &quote!(self.settings.check()?;));
        let (map, map_with) =
            self.mapping().map(|mapping| (mapping.method, mapping.method_with_options)).unzip();
        let about_remote =
            format!("Runs `{name}` as a task with its own options; gives a reference at once.");
        quote! {
            fn __aktis_defaults() -> &'static ::aktis::__private::TaskOptions {
                static OPTIONS: ::std::sync::OnceLock<::aktis::__private::TaskOptions> =
                    ::std::sync::OnceLock::new();
                OPTIONS.get_or_init(|| #defaults)
            }

            impl #declared #name #arguments where #predicates {
                #[doc = #about_remote]
                #[must_use = "the task's errors are lost if nobody asks for its result"]
                #[inline]
                #visibility fn remote(#taken) -> #reference #listed {
                    #submit
                }

                #map

                /// Options of one call, in a chain that ends with `remote`.
                #visibility fn options() -> ::aktis::TaskOptions<Self> #listed {
                    ::aktis::__private::task_options(__aktis_defaults())
                }
            }

            pub struct __AktisChain #bare {
                settings: ::aktis::__private::TaskSettings,
                marker: #marker,
            }

            impl #bare ::aktis::__private::Chain<::aktis::__private::TaskSettings> for __AktisChain #arguments {
                fn new(settings: ::aktis::__private::TaskSettings) -> Self {
                    Self { settings, marker: ::core::marker::PhantomData }
                }
                fn settings(&self) -> &::aktis::__private::TaskSettings {
                    &self.settings
                }
                fn settings_mut(&mut self) -> &mut ::aktis::__private::TaskSettings {
                    &mut self.settings
                }
            }

            impl #declared __AktisChain #arguments where #predicates {
                /// Runs the function as a task with these options; gives a reference at once.
                #[must_use = "the task's errors are lost if nobody asks for its result"]
                #visibility fn remote(&self, #taken) -> #reference #listed {
                    #submit_with
                }

                #map_with
            }
        }
    }
}

/// The impl that leads from the type of a function to what is registered.
fn remote_function(
    own: &TokenStream,
    types: &TokenStream,
    function: &TokenStream,
    declared: &TokenStream,
) -> TokenStream {
    quote! {
        impl #declared ::aktis::RemoteFunction for #own {
            type Chain = __AktisChain #types;
            fn function() -> &'static ::aktis::__private::Function {
                #function
            }
        }
    }
}
