//! `#[actor]`: a handle type beside the impl, with the same methods, and ways to create and find actors.

use crate::generics::{Combination, Parameters};
use crate::method::Method;
use crate::options::{Kind, Options};
use crate::signature::{Errors, Signature, attributes, failure_of};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ImplItem, ImplItemFn, ItemImpl, Type};

/// Calls that may run at once in an actor with async methods that does not say otherwise.
const ASYNC_CONCURRENCY: u32 = 1000;
/// Methods of every handle, unless the actor has one of that name.
const HANDLE_METHODS: [&str; 4] = ["kill", "explain", "id", "with_deadline"];

const CONSTRUCTOR: &str = "an actor's constructor";
/// What `#[actor]` adds to the type itself.
const RESERVED: [(&str, &str); 3] = [
    ("remote", "creates an actor"),
    ("options", "starts a chain of options"),
    ("find", "gives the actor with a name"),
];

/// A checked actor.
pub(crate) struct Actor {
    /// The type, with its parameters.
    pub(crate) own: Type,
    name: Ident,
    pub(crate) parameters: Parameters,
    constructor: Signature,
    methods: Vec<Method>,
    options: Options,
    /// Whether it was refused: then it has the same items, which do nothing, so that no other errors follow.
    pub(crate) refused: bool,
    /// Reserved names that the refused actor has taken.
    taken_names: Vec<Ident>,
}

/// Expands `#[actor]`.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let block: ItemImpl = match syn::parse2(item.clone()) {
        Ok(block) => block,
        Err(_) => {
            let error = not_an_impl(&item).to_compile_error();
            return quote!(#error #item);
        }
    };
    let mut errors = Errors::default();
    let options = Options::parse(Kind::Actor, attribute, &mut errors);
    let actor = Actor::check(&block, options, &mut errors);
    let (errors, block) = (errors.finish(), unmarked(block));
    let items = actor.map(|actor| actor.items());
    quote!(#errors #block #items)
}

fn not_an_impl(item: &TokenStream) -> Error {
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

fn type_name(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().map(|last| &last.ident),
        _ => None,
    }
}

/// Whether a type has types in angle brackets.
fn is_generic(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.iter().any(|segment| !segment.arguments.is_none()))
}

impl Actor {
    /// Checks an impl. `None` if there is nothing of an actor in it.
    fn check(block: &ItemImpl, options: Options, errors: &mut Errors) -> Option<Self> {
        if let Some((path, _)) = &block.trait_ {
            let hint = "put it on the type's own impl, and call the trait's methods from there";
            errors.push(path.span(), format!("`#[actor]` cannot go on the impl of a trait\nhint: {hint}"));
            return None;
        }
        let Some(name) = type_name(&block.self_ty) else {
            let message = "`#[actor]` goes on the impl of a struct or enum";
            errors.push(block.self_ty.span(), message);
            return None;
        };
        if block.generics.params.is_empty() && is_generic(&block.self_ty) {
            let hint = format!("write `#[actor(T = [..])] impl<T> {name}<T>`, with the types in the list");
            let message = format!("the types of an actor are in the list of its attribute\nhint: {hint}");
            errors.push(block.self_ty.span(), message);
            return None;
        }
        let parameters = Parameters::check(&block.generics, &options.lists, "actor", errors);
        let (mut constructor, mut methods, mut taken_names) = (None, Vec::new(), Vec::new());
        for function in functions(block) {
            if let Some((reserved, what)) = RESERVED.iter().find(|(name, _)| function.sig.ident == name) {
                let message = format!(
                    "an actor cannot have a function `{reserved}`: `{name}::{reserved}` {what}\nhint: give it another name"
                );
                errors.push(function.sig.ident.span(), message);
                taken_names.push(function.sig.ident.clone());
            }
            if attributes(&function.attrs, "local").next().is_some() {
                continue;
            }
            match function.sig.receiver() {
                Some(_) => methods.push(Method::check(function, &block.self_ty, errors)),
                None if function.sig.ident == "new" => {
                    constructor = Some(check_constructor(function, &block.self_ty, errors));
                }
                None => {}
            }
        }
        let constructor = constructor.unwrap_or_else(|| {
            let message = format!("the actor `{name}` has no constructor\nhint: add `fn new(..) -> Self`");
            errors.push(block.self_ty.span(), message);
            let none: syn::Signature = syn::parse_quote!(fn new() -> Self);
            Signature::check(&none, CONSTRUCTOR, Some(&block.self_ty), errors)
        });
        if let (Some(checkpoint), Some(method)) =
            (options.checkpoint(), methods.iter().find(|method| method.is_async))
        {
            let method = &method.signature.name;
            let message = format!(
                "an actor with checkpoints runs one call at a time, and `{method}` is async\nhint: calls are replayed in their order"
            );
            errors.push(checkpoint.span, message);
        }
        let (own, name, refused) = ((*block.self_ty).clone(), name.clone(), !errors.is_empty());
        Some(Self { own, name, parameters, constructor, methods, options, refused, taken_names })
    }

    /// All that is generated beside the impl.
    fn items(&self) -> TokenStream {
        let (handle, definitions, creation) = (self.handle(), self.definitions(), self.creation());
        quote! {
            #handle
            #[allow(
                clippy::all, unreachable_pub, missing_docs, dead_code, unused_variables, unreachable_code, non_upper_case_globals,
                private_interfaces, private_bounds
            )]
            const _: () = {
                #definitions
                #creation
            };
        }
    }

    /// The path of the constructor or a method, with the types.
    pub(crate) fn path(&self, combination: &Combination, signature: &Signature) -> String {
        format!("{}{}::{}", self.name, combination.text(), signature.name)
    }

    /// The constructor and methods as they are registered, and how they are found from the type.
    fn registered(&self, combination: &Combination) -> TokenStream {
        let (types, turbofish) = (combination.arguments(), combination.turbofish());
        let (item, path) = (constructor_item(), self.path(combination, &self.constructor));
        let run = quote_spanned!(combination.span()=> __aktis_construct #turbofish);
        let body = quote!(::aktis::__private::FunctionBody::Constructor(#run));
        let constructor = self.constructor.registered(&path, &item, &body);
        let (methods, arms): (Vec<_>, Vec<_>) =
            self.numbered().map(|(position, method)| method.registered(self, combination, position)).unzip();
        let remembered = self.options.checkpoint().map(|checkpoint| {
            let remembered = quote_spanned! {checkpoint.span=>
                ::aktis::__private::remembered::<__AktisOwn #types>(#item.id)
            };
            quote! {
                #[::aktis::__private::linkme::distributed_slice(::aktis::__private::REMEMBERED)]
                #[linkme(crate = ::aktis::__private::linkme)]
                static __AKTIS_REMEMBERED: ::aktis::__private::Remembered = #remembered;
            }
        });
        combination.apart(quote! {
            #constructor
            #remembered
            #(#methods)*
            impl ::aktis::RemoteActor for __AktisOwn #types {
                type Chain = __AktisChain #types;
                #[inline]
                fn function(position: usize) -> &'static ::aktis::__private::Function {
                    match position {
                        0usize => &#item,
                        #(#arms)*
                        _ => ::core::unreachable!("the actor has no method {position}"),
                    }
                }
            }
        })
    }

    /// The methods with their positions; the constructor has position 0.
    fn numbered(&self) -> impl Iterator<Item = (usize, &Method)> {
        self.methods.iter().enumerate().map(|(index, method)| (index + 1, method))
    }

    /// An expression for the registered constructor or method.
    pub(crate) fn registered_function(&self, item: &Ident, position: usize) -> TokenStream {
        let own = &self.own;
        match self.parameters.are_there() {
            true => quote!(<#own as ::aktis::RemoteActor>::function(#position)),
            false => quote!(&#item),
        }
    }

    /// A where clause: the types are in the list. Nothing for actors that are not generic.
    pub(crate) fn listed_bound(&self) -> Option<TokenStream> {
        let own = &self.own;
        self.parameters.are_there().then(|| quote!(where #own: ::aktis::RemoteActor))
    }

    /// The where clause of code that runs in a worker.
    pub(crate) fn predicates(&self, bound: &TokenStream, values: &TokenStream) -> TokenStream {
        if !self.parameters.are_there() {
            return TokenStream::new();
        }
        let (own, predicates) = (&self.own, self.parameters.predicates_with(bound));
        let shared = self.is_shared().then(|| quote!(+ Sync));
        quote!(where #predicates #values #own: Send #shared)
    }

    /// Whether calls may run at the same time.
    pub(crate) fn is_shared(&self) -> bool {
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
        let (bare, arguments, marker) =
            (self.parameters.bare(), self.parameters.arguments(), self.parameters.marker());
        let deserialized = self.parameters.bare_with(&quote!('de,));
        quote! {
            #[doc = #about]
            #[allow(unreachable_pub, dead_code)]
            pub struct #handle #bare {
                actor: ::aktis::__private::Actor,
                marker: #marker,
            }

            impl #bare ::core::clone::Clone for #handle #arguments {
                fn clone(&self) -> Self {
                    Self { actor: self.actor.clone(), marker: self.marker }
                }
            }

            impl #bare ::core::fmt::Debug for #handle #arguments {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    ::core::write!(f, "{}({:?})", #text, self.actor)
                }
            }

            impl #bare ::aktis::__private::serde::Serialize for #handle #arguments {
                fn serialize<__S: ::aktis::__private::serde::Serializer>(
                    &self,
                    serializer: __S,
                ) -> ::core::result::Result<__S::Ok, __S::Error> {
                    ::aktis::__private::serde::Serialize::serialize(&self.actor, serializer)
                }
            }

            impl #deserialized ::aktis::__private::serde::Deserialize<'de> for #handle #arguments {
                fn deserialize<__D: ::aktis::__private::serde::Deserializer<'de>>(
                    deserializer: __D,
                ) -> ::core::result::Result<Self, __D::Error> {
                    let actor = ::aktis::__private::serde::Deserialize::deserialize(deserializer)?;
                    ::core::result::Result::Ok(Self { actor, marker: ::core::marker::PhantomData })
                }
            }

            impl #bare ::aktis::ActorRef for #handle #arguments {
                fn actor(&self) -> &::aktis::__private::Actor {
                    &self.actor
                }
            }

            impl #bare ::aktis::IntoArg<#handle #arguments> for &#handle #arguments {
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
        let (own, handle) = (&self.own, self.handle_name());
        let (bare, declared, arguments) =
            (self.parameters.bare(), self.parameters.declared(), self.parameters.arguments());
        let predicates = self.parameters.predicates();
        let registered = match self.refused {
            true => quote! {
                impl #declared ::aktis::RemoteActor for #own where #predicates {
                    type Chain = __AktisChain #arguments;
                    fn function(_: usize) -> &'static ::aktis::__private::Function {
                        ::core::unreachable!("a program with errors does not run")
                    }
                }
            },
            false => {
                let registered =
                    self.parameters.combinations().iter().map(|combination| self.registered(combination));
                let definitions = self.methods.iter().map(|method| method.definition(self));
                let constructor = self.constructor_definition();
                quote! {
                    type __AktisOwn #bare = #own;
                    #(#registered)*
                    #constructor
                    #(#definitions)*
                }
            }
        };
        let methods = self.numbered().map(|(position, method)| method.on_handle(self, position));
        let common = self.handle_methods();
        quote! {
            #registered
            impl #declared #handle #arguments where #predicates {
                #(#methods)*
            }
            impl #bare #handle #arguments {
                #common
            }
        }
    }

    /// The code that constructs the actor in a worker.
    fn constructor_definition(&self) -> TokenStream {
        let own = &self.own;
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
        let declared = self.parameters.declared();
        let values = self.constructor.argument_predicates(&self.parameters);
        let predicates = self.predicates(&quote!('static), &values);
        quote! {
            fn __aktis_construct #declared(
                __aktis_call: &mut ::aktis::__private::Call,
            ) -> ::core::result::Result<::aktis::__private::ActorState, ::aktis::__private::Failure>
            #predicates
            {
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
                    Self { actor: self.actor.with_deadline(allowed), marker: self.marker }
                }
            }
        });
        quote!(#kill #explain #id #with_deadline)
    }

    /// `remote`, `options` and `find` of the type itself, and `remote` at the end of a chain of options.
    fn creation(&self) -> TokenStream {
        let (own, handle, constructor) = (&self.own, self.handle_name(), constructor_item());
        let (bare, declared, arguments) =
            (self.parameters.bare(), self.parameters.declared(), self.parameters.arguments());
        let (predicates, marker) = (self.parameters.predicates(), self.parameters.marker());
        let (taken, listed) = (self.constructor.parameters(), self.listed_bound());
        let constructor = self.registered_function(&constructor, 0);
        let handle_of = |actor: TokenStream| match self.refused {
            true => quote!(::core::unreachable!("a program with errors does not run")),
            false => quote!(#handle { actor: #actor, marker: ::core::marker::PhantomData }),
        };
        let adder = self.constructor.adder(&quote!());
        let created =
            handle_of(quote!(::aktis::__private::Actor::create(#constructor, __aktis_defaults(), #adder)));
        let adder = self.constructor.adder(&quote!(self.settings.check()?;));
        let created_with = handle_of(
            quote!(::aktis::__private::Actor::create(#constructor, &self.settings.options, #adder)),
        );
        let found = handle_of(quote!(::aktis::__private::Actor::find(name, #constructor)?));
        let defaults = self.options.actor_defaults(self.concurrency());
        let free = |name: &str| !self.taken_names.iter().any(|taken| taken == name);
        let remote = free("remote").then(|| {
            quote! {
                /// Creates an actor with its own options; gives its handle at once.
                pub fn remote(#taken) -> #handle #arguments #listed {
                    #created
                }
            }
        });
        let options = free("options").then(|| {
            quote! {
                /// Options of one actor, in a chain that ends with `remote`.
                pub fn options() -> ::aktis::ActorOptions<Self> #listed {
                    ::aktis::__private::actor_options(__aktis_defaults())
                }
            }
        });
        let find = free("find").then(|| {
            quote! {
                /// The actor of this type with this name.
                pub fn find(name: &str) -> ::aktis::Result<#handle #arguments> #listed {
                    ::core::result::Result::Ok(#found)
                }
            }
        });
        quote! {
            fn __aktis_defaults() -> &'static ::aktis::__private::ActorOptions {
                static OPTIONS: ::std::sync::OnceLock<::aktis::__private::ActorOptions> =
                    ::std::sync::OnceLock::new();
                OPTIONS.get_or_init(|| #defaults)
            }

            impl #declared #own where #predicates {
                #remote
                #options
                #find
            }

            pub struct __AktisChain #bare {
                settings: ::aktis::__private::ActorSettings,
                marker: #marker,
            }

            impl #bare ::aktis::__private::Chain<::aktis::__private::ActorSettings> for __AktisChain #arguments {
                fn new(settings: ::aktis::__private::ActorSettings) -> Self {
                    Self { settings, marker: ::core::marker::PhantomData }
                }
                fn settings(&self) -> &::aktis::__private::ActorSettings {
                    &self.settings
                }
                fn settings_mut(&mut self) -> &mut ::aktis::__private::ActorSettings {
                    &mut self.settings
                }
            }

            impl #declared __AktisChain #arguments where #predicates {
                /// Creates an actor with these options; gives its handle at once.
                pub fn remote(&self, #taken) -> #handle #arguments #listed {
                    #created_with
                }
            }
        }
    }
}

fn constructor_item() -> Ident {
    format_ident!("__AKTIS_CONSTRUCTOR")
}

fn functions(block: &ItemImpl) -> impl Iterator<Item = &ImplItemFn> {
    block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(function) => Some(function),
        _ => None,
    })
}

fn check_constructor(function: &ImplItemFn, own: &Type, errors: &mut Errors) -> Signature {
    if let Some(token) = &function.sig.asyncness {
        let hint = "do the waiting in an async method";
        errors.push(token.span(), format!("{CONSTRUCTOR} cannot be async\nhint: {hint}"));
    }
    let hint = "make the actor generic and list its types, as in `#[actor(T = [u64, f64])]`";
    Signature::refuse_generics(&function.sig, CONSTRUCTOR, hint, errors);
    let signature = Signature::check(&function.sig, CONSTRUCTOR, Some(own), errors);
    if type_name(&signature.output.ty) != type_name(own) {
        let span = match &function.sig.output {
            syn::ReturnType::Default => function.sig.ident.span(),
            syn::ReturnType::Type(_, ty) => ty.span(),
        };
        errors.push(span, format!("{CONSTRUCTOR} returns `Self` or `Result<Self, E>`"));
    }
    signature
}
