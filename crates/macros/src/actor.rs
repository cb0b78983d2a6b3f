//! `#[actor]`: a handle type beside the impl, with the same methods, and ways to create and find actors.

use crate::method::Method;
use crate::options::{Kind, Options};
use crate::signature::{Errors, Signature, attributes, failure_of};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, ImplItem, ImplItemFn, ItemImpl, Result, Type};

/// Calls that may run at once in an actor with async methods that does not say otherwise.
const ASYNC_CONCURRENCY: u32 = 1000;
/// Methods of every handle, unless the actor has one of that name.
const HANDLE_METHODS: [&str; 4] = ["kill", "explain", "id", "with_deadline"];

/// A checked actor.
struct Actor {
    own: Type,
    name: Ident,
    constructor: Signature,
    methods: Vec<Method>,
    options: Options,
}

/// Expands `#[actor]`.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let block: ItemImpl = syn::parse2(item.clone()).map_err(|_| not_an_impl(item))?;
    let actor = Actor::check(&block, Options::parse(Kind::Actor, attribute)?)?;
    let block = unmarked(block);
    let (handle, creation) = (actor.handle(), actor.creation());
    let definitions = actor.definitions();
    Ok(quote! {
        #block
        #handle
        #[allow(clippy::all, unreachable_pub, missing_docs, dead_code, non_upper_case_globals, private_interfaces, private_bounds)]
        const _: () = {
            #definitions
            #creation
        };
    })
}

fn not_an_impl(item: TokenStream) -> Error {
    let message = "`#[actor]` goes on an impl of a type's methods\nhint: use `#[remote]` on a function";
    Error::new_spanned(item, message)
}

/// The impl without the marks that only `#[actor]` knows.
fn unmarked(mut block: ItemImpl) -> ItemImpl {
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item {
            method.attrs.retain(|attribute| !attribute.path().is_ident("local"));
        }
    }
    block
}

/// The same for tokens that may not be an impl at all.
pub(crate) fn without_marks(item: TokenStream) -> Option<TokenStream> {
    match syn::parse2::<ItemImpl>(item.clone()) {
        Ok(block) => Some(unmarked(block).into_token_stream()),
        Err(_) => Some(item),
    }
}

fn type_name(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) if path.qself.is_none() => {
            path.path.segments.last().filter(|last| last.arguments.is_none()).map(|last| &last.ident)
        }
        _ => None,
    }
}

impl Actor {
    fn check(block: &ItemImpl, options: Options) -> Result<Self> {
        let mut errors = Errors::default();
        if let Some((path, _)) = &block.trait_ {
            let hint = "put it on the type's own impl, and call the trait's methods from there";
            return Err(Error::new(
                path.span(),
                format!("`#[actor]` cannot go on the impl of a trait\nhint: {hint}"),
            ));
        }
        let Some(name) = type_name(&block.self_ty).filter(|_| block.generics.params.is_empty()) else {
            let span =
                if block.generics.params.is_empty() { block.self_ty.span() } else { block.generics.span() };
            let message =
                "an actor cannot be generic: workers find it by its name\nhint: write one actor per type";
            return Err(Error::new(span, message));
        };
        let mut constructor = None;
        let mut methods = Vec::new();
        for function in functions(block) {
            if attributes(&function.attrs, "local").next().is_some() {
                continue;
            }
            match function.sig.receiver() {
                Some(_) => methods.push(Method::check(function, &block.self_ty, &mut errors)),
                None if function.sig.ident == "new" => {
                    constructor = Some(check_constructor(function, &block.self_ty, &mut errors));
                }
                None => {}
            }
        }
        if constructor.is_none() {
            let message = format!("the actor `{name}` has no constructor\nhint: add `fn new(..) -> Self`");
            errors.push(block.self_ty.span(), message);
        }
        errors.finish()?;
        let constructor = constructor.expect("a missing constructor is an error");
        Ok(Self { own: (*block.self_ty).clone(), name: name.clone(), constructor, methods, options })
    }

    /// Whether calls may run at the same time.
    fn is_shared(&self) -> bool {
        self.options.max_concurrency.is_some() || self.methods.iter().any(|method| method.is_async)
    }

    fn concurrency(&self) -> u32 {
        let default = if self.is_shared() { ASYNC_CONCURRENCY } else { 1 };
        self.options.max_concurrency.unwrap_or(default)
    }

    fn handle_name(&self) -> Ident {
        format_ident!("{}Handle", self.name)
    }

    /// The handle type and what every handle can do.
    fn handle(&self) -> TokenStream {
        let (handle, text) = (self.handle_name(), self.handle_name().to_string());
        let about = format!("A handle of an actor of type `{}`, wherever it lives.", self.name);
        quote! {
            #[doc = #about]
            #[allow(unreachable_pub, dead_code)]
            #[derive(Clone)]
            pub struct #handle {
                actor: ::aktis::__private::Actor,
            }

            impl ::core::fmt::Debug for #handle {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    ::core::write!(f, "{}({:?})", #text, self.actor)
                }
            }

            impl ::aktis::__private::serde::Serialize for #handle {
                fn serialize<S: ::aktis::__private::serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> ::core::result::Result<S::Ok, S::Error> {
                    ::aktis::__private::serde::Serialize::serialize(&self.actor, serializer)
                }
            }

            impl<'de> ::aktis::__private::serde::Deserialize<'de> for #handle {
                fn deserialize<D: ::aktis::__private::serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> ::core::result::Result<Self, D::Error> {
                    let actor = ::aktis::__private::serde::Deserialize::deserialize(deserializer)?;
                    ::core::result::Result::Ok(Self { actor })
                }
            }

            impl ::aktis::ActorRef for #handle {
                fn actor(&self) -> &::aktis::__private::Actor {
                    &self.actor
                }
            }

            impl ::aktis::IntoArg<#handle> for &#handle {
                fn add_to(
                    self,
                    arguments: &mut ::aktis::__private::Arguments,
                    runtime: &::aktis::__private::Runtime,
                ) -> ::core::result::Result<(), ::aktis::__private::Error> {
                    arguments.push(runtime, self)
                }
            }
        }
    }

    /// The registered functions and the handle's methods.
    fn definitions(&self) -> TokenStream {
        let (own, handle, shared) = (&self.own, self.handle_name(), self.is_shared());
        let definitions = self.methods.iter().map(|method| method.definition(own, &self.name, shared));
        let methods = self.methods.iter().map(Method::on_handle);
        let constructor = self.constructor_definition();
        let common = self.handle_methods();
        quote! {
            #constructor
            #(#definitions)*
            impl #handle {
                #(#methods)*
                #common
            }
        }
    }

    fn constructor_definition(&self) -> TokenStream {
        let own = &self.own;
        let body = quote!(::aktis::__private::FunctionBody::Constructor(__aktis_construct));
        let path = format!("{}::new", self.name);
        let registered = self.constructor.registered(&path, &format_ident!("__AKTIS_CONSTRUCTOR"), &body);
        let (taken, names) = self.constructor.taken();
        let state = if self.is_shared() { quote!(shared_state) } else { quote!(exclusive_state) };
        let state = quote!(::aktis::__private::#state::<#own>);
        let constructed = match self.constructor.output.fallible {
            true => {
                let failure_of = failure_of(self.constructor.output.span);
                quote!(<#own>::new(#(#names),*).map_err(#failure_of).map(#state))
            }
            false => quote!(::core::result::Result::Ok(#state(<#own>::new(#(#names),*)))),
        };
        quote! {
            #registered
            fn __aktis_construct(
                __aktis_call: &mut ::aktis::__private::Call,
            ) -> ::core::result::Result<::aktis::__private::ActorState, ::aktis::__private::Failure> {
                #taken
                #constructed
            }
        }
    }

    /// What every handle has, unless the actor has a method of that name.
    fn handle_methods(&self) -> TokenStream {
        let [kill, explain, id, with_deadline] =
            HANDLE_METHODS.map(|name| !self.methods.iter().any(|method| method.signature.name == name));
        let kill = kill.then(|| {
            quote! {
                /// Ends the actor now, for good.
                pub fn kill(&self) -> ::aktis::Result<()> {
                    self.actor.kill()
                }
            }
        });
        let explain = explain.then(|| {
            quote! {
                /// Says where the actor is, or why it is not: sentences for people.
                pub fn explain(&self) -> ::std::string::String {
                    self.actor.explain()
                }
            }
        });
        let id = id.then(|| {
            quote! {
                /// The actor's id.
                pub fn id(&self) -> ::aktis::ActorId {
                    self.actor.id()
                }
            }
        });
        let with_deadline = with_deadline.then(|| {
            quote! {
                /// A handle whose calls are cancelled if they are not done so long after they were made.
                pub fn with_deadline(&self, allowed: ::core::time::Duration) -> Self {
                    Self { actor: self.actor.with_deadline(allowed) }
                }
            }
        });
        quote!(#kill #explain #id #with_deadline)
    }

    /// `remote`, `options` and `find` of the type itself.
    fn creation(&self) -> TokenStream {
        let (own, handle) = (&self.own, self.handle_name());
        let defaults = self.options.actor_defaults(self.concurrency());
        let parameters = self.constructor.parameters();
        let adder = self.constructor.adder(&quote!());
        let adder_with = self.constructor.adder(&quote!(self.settings.check()?;));
        quote! {
            fn __aktis_defaults() -> &'static ::aktis::__private::ActorOptions {
                static OPTIONS: ::std::sync::OnceLock<::aktis::__private::ActorOptions> =
                    ::std::sync::OnceLock::new();
                OPTIONS.get_or_init(|| #defaults)
            }

            impl #own {
                /// Creates an actor with its own options; gives its handle at once.
                pub fn remote(#parameters) -> #handle {
                    #handle {
                        actor: ::aktis::__private::Actor::create(&__AKTIS_CONSTRUCTOR, __aktis_defaults(), #adder),
                    }
                }

                /// Options of one actor, in a chain that ends with `remote`.
                pub fn options() -> __AktisOptions {
                    let settings = ::aktis::__private::ActorSettings::from_default(__aktis_defaults());
                    __AktisOptions { settings }
                }

                /// The actor of this type with this name.
                pub fn find(name: &str) -> ::aktis::Result<#handle> {
                    ::core::result::Result::Ok(#handle {
                        actor: ::aktis::__private::Actor::find(name, &__AKTIS_CONSTRUCTOR)?,
                    })
                }
            }

            /// Options of one actor, in a chain that ends with `remote`.
            #[must_use = "no actor is created before `remote`"]
            pub struct __AktisOptions {
                settings: ::aktis::__private::ActorSettings,
            }

            impl __AktisOptions {
                ::aktis::__actor_option_methods!();

                /// Creates an actor with these options; gives its handle at once.
                pub fn remote(self, #parameters) -> #handle {
                    #handle {
                        actor: ::aktis::__private::Actor::create(
                            &__AKTIS_CONSTRUCTOR,
                            &self.settings.options,
                            #adder_with,
                        ),
                    }
                }
            }
        }
    }
}

fn functions(block: &ItemImpl) -> impl Iterator<Item = &ImplItemFn> {
    block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(function) => Some(function),
        _ => None,
    })
}

fn check_constructor(function: &ImplItemFn, own: &Type, errors: &mut Errors) -> Signature {
    const WHAT: &str = "an actor's constructor";
    if let Some(token) = &function.sig.asyncness {
        let hint = "do the waiting in an async method";
        errors.push(token.span(), format!("{WHAT} cannot be async\nhint: {hint}"));
    }
    let signature = Signature::check(&function.sig, WHAT, Some(own), errors);
    if type_name(&signature.output.ty) != type_name(own) {
        let span = match &function.sig.output {
            syn::ReturnType::Default => function.sig.ident.span(),
            syn::ReturnType::Type(_, ty) => ty.span(),
        };
        errors.push(span, format!("{WHAT} returns `Self` or `Result<Self, E>`"));
    }
    signature
}
