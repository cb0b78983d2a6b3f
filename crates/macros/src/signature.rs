//! A function's signature, checked for what can be called remotely.

use crate::generics::Parameters;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Pat, PathArguments, ReturnType, Safety, Type, TypeParamBound,
};

/// Collects errors, so that a user sees all of them at once.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, span: Span, message: impl std::fmt::Display) {
        self.add(Error::new(span, message));
    }

    pub(crate) fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The errors as tokens; nothing if there are none.
    pub(crate) fn finish(self) -> Option<TokenStream> {
        self.0.map(|error| error.to_compile_error())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// One argument.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: TokenStream,
    /// Whether the type can travel.
    fit: bool,
}

/// What a function gives.
pub(crate) struct Output {
    /// The type of the value, without the `Result` around it.
    pub(crate) ty: Type,
    /// Whether it is inside a `Result`.
    pub(crate) fallible: bool,
    /// The type of the error, if the `Result` says.
    error: Option<Type>,
    /// Where the return type is.
    pub(crate) span: Span,
}

/// What a remote function or method has in common.
pub(crate) struct Signature {
    pub(crate) name: Ident,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) output: Output,
    /// As text, for the function's id.
    pub(crate) text: String,
}

impl Signature {
    /// Checks a signature. `what` is "a remote function" or "an actor's method"; `own` stands for `Self`.
    pub(crate) fn check(
        signature: &syn::Signature,
        what: &str,
        own: Option<&Type>,
        errors: &mut Errors,
    ) -> Self {
        if let Safety::Unsafe(token) = &signature.safety {
            errors.push(token.span(), format!("{what} cannot be unsafe\nhint: use an unsafe block inside"));
        }
        if let Some(abi) = &signature.abi {
            errors.push(abi.span(), format!("{what} cannot have a foreign ABI"));
        }
        let arguments = signature.inputs.iter().enumerate().filter_map(|(position, input)| match input {
            FnArg::Receiver(_) => None,
            FnArg::Typed(argument) => Some(check_argument(position, argument, what, own, errors)),
        });
        let arguments = arguments.collect();
        let output = check_output(&signature.output, what, own, errors);
        let text = format!("{} {}", signature.inputs.to_token_stream(), signature.output.to_token_stream());
        Self { name: signature.ident.clone(), arguments, output, text }
    }

    /// Refuses type parameters: of a method, and of what else has no list of types.
    pub(crate) fn refuse_generics(signature: &syn::Signature, what: &str, hint: &str, errors: &mut Errors) {
        if !signature.generics.params.is_empty() {
            let message =
                format!("{what} cannot be generic: workers find it by name and types\nhint: {hint}");
            errors.push(signature.generics.span(), message);
        } else {
            Self::refuse_where_clause(signature, what, errors);
        }
    }

    /// Refuses a where clause, which has a meaning only with type parameters.
    pub(crate) fn refuse_where_clause(signature: &syn::Signature, what: &str, errors: &mut Errors) {
        if let Some(clause) = &signature.generics.where_clause {
            errors.push(clause.span(), format!("{what} cannot have a where clause"));
        }
    }

    /// The parameters of `remote`: each takes a value or a reference. Types that cannot travel are refused
    /// elsewhere, so that here anything goes.
    pub(crate) fn parameters(&self) -> TokenStream {
        let parameters = self.arguments.iter().map(|Argument { name, ty, fit }| match fit {
            true => quote_spanned!(ty.span()=> #name: impl ::aktis::IntoArg<#ty>),
            false => quote!(#name: impl ::core::marker::Sized),
        });
        quote!(#(#parameters),*)
    }

    /// What arguments have to be for a runner that is generic: `Vec<T>: RemoteValue`.
    pub(crate) fn argument_predicates(&self, parameters: &Parameters) -> TokenStream {
        let values = self.arguments.iter().map(|argument| &argument.ty).filter(|ty| parameters.are_in(ty));
        let values = values.map(|ty| quote_spanned!(ty.span()=> #ty: ::aktis::__private::RemoteValue,));
        let error = self.output.error.iter().filter(|ty| parameters.are_in(&ty.to_token_stream()));
        let error = error.map(|ty| quote_spanned!(ty.span()=> #ty: ::aktis::__private::RemoteError,));
        quote!(#(#values)* #(#error)*)
    }

    /// The same for arguments and the return value.
    pub(crate) fn value_predicates(&self, parameters: &Parameters) -> TokenStream {
        let (arguments, ty) = (self.argument_predicates(parameters), &self.output.ty);
        let value = parameters.are_in(&ty.to_token_stream());
        let value = value.then(|| quote_spanned!(ty.span()=> #ty: ::aktis::__private::RemoteValue,));
        quote!(#arguments #value)
    }

    /// A check that the value is not a `Result` under another name: the caller would not see its error as one.
    pub(crate) fn result_check(&self, parameters: &Parameters) -> Option<TokenStream> {
        let Output { ty, fallible: false, span, .. } = &self.output else { return None };
        let generic = parameters.are_in(&ty.to_token_stream());
        if generic || !matches!(ty, Type::Path(path) if path.qself.is_none()) {
            return None;
        }
        Some(quote_spanned! {*span=>
            #[allow(unused_imports)]
            const _: () = {
                use ::aktis::__private::NotResult as _;
                ::core::assert!(
                    !::aktis::__private::ResultTest::<#ty>::IS_RESULT,
                    "this return type is a `Result` under another name, which `#[remote]` and `#[actor]` cannot see\n\
                     hint: write `Result<T, E>`, or name the alias `Result`, and its error fails the call"
                );
            };
        })
    }

    /// A closure that adds the arguments to a call, after `first`.
    pub(crate) fn adder(&self, first: &TokenStream) -> TokenStream {
        let added = self.arguments.iter().map(|Argument { name, ty, .. }| {
            let text = name.to_string();
            quote!(::aktis::__private::add::<#ty>(__aktis_arguments, __aktis_runtime, #text, #name)?;)
        });
        quote! {
            |__aktis_arguments: &mut ::aktis::__private::Arguments, __aktis_runtime: &::aktis::__private::Runtime| {
                #first
                let _ = (&__aktis_arguments, __aktis_runtime);
                #(#added)*
                ::core::result::Result::Ok(())
            }
        }
    }

    /// Statements that take the arguments out of a call, and the names that they get.
    pub(crate) fn taken(&self) -> (TokenStream, Vec<Ident>) {
        let names: Vec<_> = (0..self.arguments.len()).map(|i| format_ident!("__aktis_{i}")).collect();
        let statements = self.arguments.iter().zip(&names).map(|(Argument { name, ty, .. }, variable)| {
            let text = name.to_string();
            let take = quote_spanned!(ty.span()=> ::aktis::__private::take::<#ty>);
            quote!(let #variable = #take(__aktis_call, #text)?;)
        });
        (quote!(#(#statements)*), names)
    }

    /// An expression that encodes what `called` gives.
    pub(crate) fn encoded(&self, called: &TokenStream) -> TokenStream {
        let Output { ty, fallible, span, .. } = &self.output;
        if *fallible {
            let failure_of = failure_of(*span);
            let returned = quote_spanned!(ty.span()=> ::aktis::__private::returned::<#ty>);
            quote!((#called).map_err(#failure_of).and_then(#returned))
        } else {
            let returned = quote_spanned!(ty.span()=> ::aktis::__private::returned::<#ty>);
            quote!(#returned(#called))
        }
    }

    /// The item `Function` of the registry, with this name and body.
    pub(crate) fn registered(&self, path: &str, item: &Ident, body: &TokenStream) -> TokenStream {
        let (suffix, at, text) = (format!("::{path}"), format!("::{path}@"), &self.text);
        quote! {
            #[::aktis::__private::linkme::distributed_slice(::aktis::__private::FUNCTIONS)]
            #[linkme(crate = ::aktis::__private::linkme)]
            static #item: ::aktis::__private::Function = ::aktis::__private::Function {
                id: ::aktis::__private::FunctionId::of(
                    ::core::concat!(
                        ::core::module_path!(), #at, ::core::file!(), ":", ::core::line!(), ":", ::core::column!()
                    ),
                    #text,
                ),
                name: ::core::concat!(::core::module_path!(), #suffix),
                body: #body,
            };
        }
    }
}

fn check_argument(
    position: usize,
    argument: &syn::PatType,
    what: &str,
    own: Option<&Type>,
    errors: &mut Errors,
) -> Argument {
    let name = match &*argument.pat {
        Pat::Ident(pattern) if pattern.by_ref.is_none() && pattern.subpat.is_none() => pattern.ident.clone(),
        other => {
            let hint = "take it apart inside";
            errors.push(other.span(), format!("{what} needs a plain name for each argument\nhint: {hint}"));
            format_ident!("__aktis_unnamed_{position}")
        }
    };
    let ty = named(argument.ty.to_token_stream(), own);
    let problem = unfit(ty.clone());
    if let Some((span, problem)) = problem {
        let hint = match problem {
            "a reference" => "take an owned value, or an `Array` to share numbers without a copy",
            "`impl Trait`" => "name the type",
            _ => "take an enum, or a type that can be serialised",
        };
        errors.push(
            span,
            format!("{what} cannot take {problem}: arguments travel to another process\nhint: {hint}"),
        );
    }
    Argument { name, ty, fit: problem.is_none() }
}

fn check_output(output: &ReturnType, what: &str, own: Option<&Type>, errors: &mut Errors) -> Output {
    let ReturnType::Type(_, ty) = output else {
        return Output { ty: syn::parse_quote!(()), fallible: false, error: None, span: Span::call_site() };
    };
    let span = ty.span();
    let ty: Type = syn::parse2(named(ty.to_token_stream(), own)).unwrap_or_else(|_| (**ty).clone());
    match result_of(&ty) {
        Some(Some(ok)) => {
            let (ok, error) = (ok.clone(), arguments_of(&ty).nth(1).cloned());
            Output { ty: ok, fallible: true, error, span }
        }
        Some(None) => {
            errors.push(
                span,
                format!("{what} must say what its `Result` holds\nhint: write `Result<T, E>` in full"),
            );
            Output { ty, fallible: false, error: None, span }
        }
        None => Output { ty, fallible: false, error: None, span },
    }
}

/// A closure that makes a failure of the error that a function returned; `span` is where its return type is.
pub(crate) fn failure_of(span: Span) -> TokenStream {
    quote_spanned! {span=>
        |__aktis_error| {
            #[allow(unused_imports)]
            use ::aktis::__private::{
                LocalTextErrorKind as _, TextErrorKind as _, TypedErrorKind as _, UnfitErrorKind as _,
            };
            (&&&::aktis::__private::ErrorProbe(&__aktis_error)).error_kind().failure(__aktis_error)
        }
    }
}

/// Refuses return types that cannot travel.
pub(crate) fn check_returned(output: &mut Output, what: &str, errors: &mut Errors) {
    if let Some((span, problem)) = unfit(output.ty.to_token_stream()) {
        let hint = match problem {
            "`impl Trait`" | "a trait object" => {
                "return a type that can be serialised; for an iterator, use `#[remote(stream)]`"
            }
            _ => "return an owned value, or an `Array` to share numbers without a copy",
        };
        errors.push(
            span,
            format!("{what} cannot return {problem}: results travel to another process\nhint: {hint}"),
        );
        output.ty = syn::parse_quote!(());
    }
}

/// The `T` of `Result<T, ..>`: `Some(None)` for a `Result` that does not say.
fn result_of(ty: &Type) -> Option<Option<&Type>> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    if last.ident != "Result" {
        return None;
    }
    Some(arguments_of(ty).next())
}

/// The types in the angle brackets of a path.
fn arguments_of(ty: &Type) -> impl Iterator<Item = &Type> {
    let last = match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    };
    let arguments = last.and_then(|last| match &last.arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments.args.iter()),
        _ => None,
    });
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// The `T` of `impl Iterator<Item = T>` or `Box<dyn Iterator<Item = T>>`, and whether it is inside a `Result`.
pub(crate) fn item_of(ty: &Type) -> Option<(Type, bool)> {
    let bounds = match ty {
        Type::ImplTrait(ty) => &ty.bounds,
        Type::TraitObject(ty) => &ty.bounds,
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
            return match arguments.args.first()? {
                GenericArgument::Type(inner @ Type::TraitObject(_)) if last.ident == "Box" => item_of(inner),
                _ => None,
            };
        }
        _ => return None,
    };
    let item = bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => {
            bound.path.segments.iter().find_map(|segment| match &segment.arguments {
                PathArguments::AngleBracketed(arguments) => {
                    arguments.args.iter().find_map(|argument| match argument {
                        GenericArgument::AssocType(assoc) if assoc.ident == "Item" => Some(assoc.ty.clone()),
                        _ => None,
                    })
                }
                _ => None,
            })
        }
        _ => None,
    })?;
    Some(match result_of(&item) {
        Some(Some(ok)) => (ok.clone(), true),
        _ => (item, false),
    })
}

/// The first thing in a type that cannot travel, and what it is.
fn unfit(tokens: TokenStream) -> Option<(Span, &'static str)> {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let found = match &token {
            TokenTree::Punct(punct) if punct.as_char() == '&' => Some((punct.span(), "a reference")),
            TokenTree::Punct(punct) if punct.as_char() == '\'' => match tokens.peek() {
                Some(TokenTree::Ident(name)) if *name != "static" => Some((name.span(), "a borrowed value")),
                _ => None,
            },
            TokenTree::Ident(ident) if *ident == "impl" => Some((ident.span(), "`impl Trait`")),
            TokenTree::Ident(ident) if *ident == "dyn" => Some((ident.span(), "a trait object")),
            TokenTree::Group(group) => unfit(group.stream()),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The tokens with `Self` replaced by the type that it stands for.
fn named(tokens: TokenStream, own: Option<&Type>) -> TokenStream {
    let Some(own) = own else { return tokens };
    let replace = |token: TokenTree| match token {
        TokenTree::Ident(ident) if ident == "Self" => own.to_token_stream(),
        TokenTree::Group(group) => {
            let mut inner = proc_macro2::Group::new(group.delimiter(), named(group.stream(), Some(own)));
            inner.set_span(group.span());
            TokenTree::Group(inner).into()
        }
        other => other.into(),
    };
    tokens.into_iter().map(replace).collect()
}

/// The attributes with this name.
pub(crate) fn attributes<'a>(
    attributes: &'a [Attribute],
    name: &'a str,
) -> impl Iterator<Item = &'a Attribute> {
    attributes.iter().filter(move |attribute| attribute.path().is_ident(name))
}
