//! One method of an actor: how it is registered, run, and called through a handle.

use crate::actor::Actor;
use crate::generics::Combination;
use crate::signature::{Errors, Signature, attributes, check_returned};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, ImplItemFn, ReceiverKind, Type};

const WHAT: &str = "an actor's method";

/// A method that is exported.
pub(crate) struct Method {
    pub(crate) signature: Signature,
    pub(crate) is_async: bool,
    /// Whether it takes `&mut self`.
    exclusive: bool,
    documentation: Vec<Attribute>,
    conditions: Vec<Attribute>,
}

impl Method {
    /// Checks a method.
    pub(crate) fn check(method: &ImplItemFn, own: &Type, errors: &mut Errors) -> Self {
        let mut exclusive = false;
        if let Some(receiver) = method.sig.receiver() {
            match &receiver.kind {
                ReceiverKind::Reference(_, None, mutability) => exclusive = mutability.is_some(),
                _ => errors.push(
                    receiver.span(),
                    format!("{WHAT} takes `&self` or `&mut self`\nhint: mark it `#[local]` to keep it out of the handle"),
                ),
            }
        }
        let hint =
            "make the actor generic and list its types, as in `#[actor(T = [u64, f64])]`; or take an enum";
        Signature::refuse_generics(&method.sig, WHAT, hint, errors);
        let mut signature = Signature::check(&method.sig, WHAT, Some(own), errors);
        check_returned(&mut signature.output, WHAT, errors);
        Self {
            signature,
            is_async: method.sig.asyncness.is_some(),
            exclusive,
            documentation: attributes(&method.attrs, "doc").cloned().collect(),
            conditions: attributes(&method.attrs, "cfg").cloned().collect(),
        }
    }

    fn item(&self) -> Ident {
        format_ident!("__aktis_method_{}", self.signature.name)
    }

    fn runner(&self) -> Ident {
        format_ident!("__aktis_run_{}", self.signature.name)
    }

    /// The registered function for one combination of types, and how it is found by its position.
    pub(crate) fn registered(
        &self,
        actor: &Actor,
        combination: &Combination,
        position: usize,
    ) -> (TokenStream, TokenStream) {
        let (exclusive, runner, conditions) = (self.exclusive, self.runner(), &self.conditions);
        let variant = if self.is_async { quote!(AsyncMethod) } else { quote!(Method) };
        // A method with `&self` leaves its actor as it is.
        let read_only = (!self.is_async).then(|| {
            let read_only = !self.exclusive;
            quote!(read_only: #read_only,)
        });
        let turbofish = combination.turbofish();
        let run = quote_spanned!(combination.span()=> #runner #turbofish);
        let body = quote! {
            ::aktis::__private::FunctionBody::#variant { exclusive: #exclusive, #read_only run: #run }
        };
        let (path, item) = (actor.path(combination, &self.signature), self.item());
        let registered = self.signature.registered(&path, &item, &body);
        (quote!(#(#conditions)* #registered), quote!(#(#conditions)* #position => &#item,))
    }

    /// The code that runs the method in a worker.
    pub(crate) fn definition(&self, actor: &Actor) -> TokenStream {
        let conditions = &self.conditions;
        let result_check = self.signature.result_check(&actor.parameters);
        let run = if self.is_async { self.async_runner(actor) } else { self.sync_runner(actor) };
        quote! {
            #(#conditions)*
            const _: () = { #result_check };
            #(#conditions)*
            #run
        }
    }

    /// The declaration of type parameters and the where clause of the code that runs the method.
    fn generics(&self, actor: &Actor) -> (TokenStream, TokenStream) {
        let bound = if self.is_async { quote!('static + Send + Sync) } else { quote!('static) };
        let values = self.signature.value_predicates(&actor.parameters);
        (actor.parameters.declared(), actor.predicates(&bound, &values))
    }

    /// The actor, locked as the method needs it, under the name `__aktis_actor`; and the call.
    fn locked_call(&self, own: &Type, shared: bool, state: &TokenStream) -> (TokenStream, TokenStream) {
        let (name, (_, names)) = (&self.signature.name, self.signature.taken());
        let lock = match (shared, self.exclusive) {
            (false, _) => quote!(lock),
            (true, false) => quote!(read),
            (true, true) => quote!(write),
        };
        let locked = quote!(::aktis::__private::#lock::<#own>(#state));
        if self.exclusive {
            (
                quote!(let mut __aktis_actor = #locked;),
                quote!(<#own>::#name(&mut *__aktis_actor #(, #names)*)),
            )
        } else {
            (quote!(let __aktis_actor = #locked;), quote!(<#own>::#name(&*__aktis_actor #(, #names)*)))
        }
    }

    fn sync_runner(&self, actor: &Actor) -> TokenStream {
        let (own, shared, (declared, predicates)) = (&actor.own, actor.is_shared(), self.generics(actor));
        let (runner, (taken, _)) = (self.runner(), self.signature.taken());
        let (locked, call) = self.locked_call(own, shared, &quote!(__aktis_state));
        let encoded = self.signature.encoded(&quote!(__aktis_value));
        quote! {
            fn #runner #declared(
                __aktis_call: &mut ::aktis::__private::Call,
                __aktis_state: &::aktis::__private::ActorState,
            ) -> ::core::result::Result<::aktis::__private::Encoded, ::aktis::__private::Failure>
            #predicates
            {
                #taken
                let __aktis_value = {
                    #locked
                    #call
                };
                #encoded
            }
        }
    }

    fn async_runner(&self, actor: &Actor) -> TokenStream {
        let (own, (declared, predicates)) = (&actor.own, self.generics(actor));
        let (runner, (taken, _)) = (self.runner(), self.signature.taken());
        let (locked, call) = self.locked_call(own, true, &quote!(&__aktis_state));
        let encoded = self.signature.encoded(&quote!(__aktis_value));
        quote! {
            fn #runner #declared(
                __aktis_call: &mut ::aktis::__private::Call,
                __aktis_state: ::aktis::__private::ActorState,
            ) -> ::core::result::Result<::aktis::__private::AsyncReturn, ::aktis::__private::Failure>
            #predicates
            {
                #taken
                ::core::result::Result::Ok(::aktis::__private::AsyncReturn::later(async move {
                    let __aktis_value = {
                        #locked
                        #call.await
                    };
                    #encoded
                }))
            }
        }
    }

    /// The method of the handle.
    pub(crate) fn on_handle(&self, actor: &Actor, position: usize) -> TokenStream {
        let (name, conditions) = (&self.signature.name, &self.conditions);
        let (ty, parameters) = (&self.signature.output.ty, self.signature.parameters());
        let listed = actor.listed_bound();
        let call = match actor.refused {
            true => quote!(::core::unreachable!("a program with errors does not run")),
            false => {
                let adder = self.signature.adder(&quote!());
                let function = actor.registered_function(&self.item(), position);
                quote!(self.actor.call(#function, #adder))
            }
        };
        let own_documentation = &self.documentation;
        let documentation = match own_documentation.is_empty() {
            true => {
                let text = format!("Calls the actor's method `{name}`; gives a reference at once.");
                quote!(#[doc = #text])
            }
            false => quote!(#(#own_documentation)*),
        };
        quote! {
            #documentation
            #(#conditions)*
            #[inline]
            pub fn #name(&self, #parameters) -> ::aktis::ObjectRef<#ty> #listed {
                #call
            }
        }
    }
}
