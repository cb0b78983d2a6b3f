//! The type parameters of a remote function or actor, and the types that the attribute lists for them.
//!
//! Workers find functions in a registry that is filled at link time, so each combination of types is registered by
//! itself. The generated code is generic, like the function; only the registered items are one per combination.

use crate::signature::Errors;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, GenericParam, Generics, Lit, Result, Token, Type, bracketed, parenthesized};

/// One list of an attribute: `T = [u64, f64]`, or `(K, V) = [(u64, String), (u32, u8)]`.
pub(crate) struct List {
    names: Vec<Ident>,
    /// For each entry of the list, one type or constant per name.
    entries: Vec<Vec<TokenStream>>,
    problem: Option<Error>,
}

impl List {
    /// Parses a list of `T`, from its `=` on.
    pub(crate) fn of_one(name: Ident, input: ParseStream<'_>) -> Result<Self> {
        input.parse::<Token![=]>()?;
        Self::parse(vec![name], input, |content| {
            let entries = Punctuated::<Entry, Token![,]>::parse_terminated(content)?;
            Ok(entries.into_iter().map(|entry| vec![entry.0]).collect())
        })
    }

    /// Parses a list of tuples, from `(K, V)` on.
    pub(crate) fn of_several(input: ParseStream<'_>) -> Result<Self> {
        let content;
        parenthesized!(content in input);
        let names = content.parse_terminated(Ident::parse_any, Token![,])?;
        let names: Vec<Ident> = names.into_iter().collect();
        if names.is_empty() {
            return Err(content.error("name the type parameters, as in `(K, V) = [(u64, String)]`"));
        }
        input.parse::<Token![=]>()?;
        let expected = names.len();
        Self::parse(names, input, |content| {
            let entries = Punctuated::<Tuple, Token![,]>::parse_terminated(content)?;
            let wrong = entries.iter().find(|entry| entry.types.len() != expected);
            if let Some(Tuple { types, span }) = wrong {
                return Err(Error::new(*span, format!("expected {expected} types, got {}", types.len())));
            }
            Ok(entries.into_iter().map(|entry| entry.types).collect())
        })
    }

    /// Parses what is in the brackets. A list that is wrong is an error, and counts as a list of its names.
    fn parse(
        names: Vec<Ident>,
        input: ParseStream<'_>,
        entries: impl FnOnce(ParseStream<'_>) -> Result<Vec<Vec<TokenStream>>>,
    ) -> Result<Self> {
        let content;
        bracketed!(content in input);
        let content: TokenStream = content.parse()?;
        let (entries, problem) = match entries.parse2(content) {
            Ok(entries) if entries.is_empty() => (Vec::new(), Some(empty(&names[0]))),
            Ok(entries) => (entries, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Ok(Self { names, entries, problem })
    }

    /// What is wrong with the list.
    pub(crate) fn problem(&mut self) -> Option<Error> {
        self.problem.take()
    }
}

fn empty(name: &Ident) -> Error {
    let message = format!("the list of `{name}` is empty\nhint: name the types, as in `{name} = [u64, f64]`");
    Error::new(name.span(), message)
}

/// A type, or a constant: a literal or a block.
struct Entry(TokenStream);

impl syn::parse::Parse for Entry {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let constant = input.peek(Lit) || input.peek(Token![-]) || input.peek(syn::token::Brace);
        let tokens = match constant {
            true => input.parse::<Expr>()?.into_token_stream(),
            false => input.parse::<Type>()?.into_token_stream(),
        };
        Ok(Self(tokens))
    }
}

/// Several of them in parentheses.
struct Tuple {
    types: Vec<TokenStream>,
    span: Span,
}

impl syn::parse::Parse for Tuple {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (span, types) = (input.span(), input.parse::<Type>()?);
        match types {
            Type::Tuple(tuple) => {
                Ok(Self { types: tuple.elems.iter().map(ToTokens::to_token_stream).collect(), span })
            }
            _ => {
                Err(Error::new(span, "expected one type per parameter in parentheses, as in `(u64, String)`"))
            }
        }
    }
}

/// One combination of listed types.
pub(crate) struct Combination {
    /// One type or constant per parameter, in the order of the parameters.
    types: Vec<TokenStream>,
}

impl Combination {
    /// `<u64, String>`, or nothing for what is not generic.
    pub(crate) fn arguments(&self) -> TokenStream {
        let types = &self.types;
        if types.is_empty() { TokenStream::new() } else { quote!(<#(#types),*>) }
    }

    /// The same as text, for names.
    pub(crate) fn text(&self) -> String {
        let types: Vec<_> = self.types.iter().map(compact).collect();
        if types.is_empty() { String::new() } else { format!("<{}>", types.join(", ")) }
    }

    /// The same after `::`, for an expression.
    pub(crate) fn turbofish(&self) -> TokenStream {
        let types = &self.types;
        if types.is_empty() { TokenStream::new() } else { quote!(::<#(#types),*>) }
    }

    /// The items of this combination, which must not clash with those of others.
    pub(crate) fn apart(&self, items: TokenStream) -> TokenStream {
        if self.types.is_empty() { items } else { quote!(const _: () = { #items };) }
    }

    /// Where the attribute names it.
    pub(crate) fn span(&self) -> Span {
        self.types.first().map_or_else(Span::call_site, Spanned::span)
    }
}

/// The type parameters of a function or actor; none for most.
#[derive(Default)]
pub(crate) struct Parameters {
    generics: Generics,
    combinations: Vec<Combination>,
}

impl Parameters {
    /// Checks that each parameter has a list. `attribute` is `remote` or `actor`.
    pub(crate) fn check(generics: &Generics, lists: &[List], attribute: &str, errors: &mut Errors) -> Self {
        let generics = generics.clone();
        let names: Vec<Ident> = names_of(&generics).collect();
        for list in lists {
            for name in list.names.iter().filter(|name| !names.contains(name)) {
                let message = format!("there is no type parameter `{name}` for this list of types");
                errors.push(name.span(), message);
            }
        }
        if let Some(lifetime) = generics.lifetimes().next() {
            let hint = "take and return owned values";
            let message = format!("`#[{attribute}]` cannot go with a lifetime parameter\nhint: {hint}");
            errors.push(lifetime.span(), message);
        }
        let listed = |name: &Ident| lists.iter().any(|list| list.names.contains(name));
        let mut complete = true;
        for parameter in generics.params.iter() {
            let (name, example) = match parameter {
                GenericParam::Type(parameter) => (&parameter.ident, "[u64, f64]"),
                GenericParam::Const(parameter) => (&parameter.ident, "[2, 3]"),
                _ => continue,
            };
            if !listed(name) {
                complete = false;
                let hint = format!("list what it is used with: `#[{attribute}({name} = {example})]`");
                let message = format!(
                    "`{name}` can be anything, but workers find functions by name and types\nhint: {hint}"
                );
                errors.push(name.span(), message);
            }
        }
        let combinations = if complete { product(&names, lists) } else { Vec::new() };
        for (position, combination) in combinations.iter().enumerate() {
            let text = combination.text();
            if combinations[..position].iter().any(|earlier| earlier.text() == text) && !text.is_empty() {
                errors.push(combination.span(), format!("`{text}` is listed twice"));
            }
        }
        Self { generics, combinations }
    }

    /// Whether there are parameters.
    pub(crate) fn are_there(&self) -> bool {
        !self.generics.params.is_empty()
    }

    /// The combinations that are registered; one without types for what is not generic.
    pub(crate) fn combinations(&self) -> &[Combination] {
        &self.combinations
    }

    /// `<T: Sum, const N: usize>`: for an impl or function.
    pub(crate) fn declared(&self) -> TokenStream {
        self.generics.split_for_impl().0.to_token_stream()
    }

    /// `<'de, T, const N: usize>`: for an impl that needs no bounds.
    pub(crate) fn bare_with(&self, first: &TokenStream) -> TokenStream {
        let parameters = self.generics.params.iter().filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(parameter.ident.to_token_stream()),
            GenericParam::Const(parameter) => {
                let (name, ty) = (&parameter.ident, &parameter.ty);
                Some(quote!(const #name: #ty))
            }
            _ => None,
        });
        quote!(<#first #(#parameters),*>)
    }

    /// `<T, const N: usize>`, or nothing: for a declaration without bounds.
    pub(crate) fn bare(&self) -> TokenStream {
        if self.are_there() { self.bare_with(&TokenStream::new()) } else { TokenStream::new() }
    }

    /// `<T, N>`, or nothing: for a use.
    pub(crate) fn arguments(&self) -> TokenStream {
        let names = names_of(&self.generics);
        if self.are_there() { quote!(<#(#names),*>) } else { TokenStream::new() }
    }

    /// The type of a field that uses all type parameters, and owns none.
    pub(crate) fn marker(&self) -> TokenStream {
        let names = self.generics.type_params().map(|parameter| &parameter.ident);
        quote!(::core::marker::PhantomData<fn() -> (#(#names,)*)>)
    }

    /// The bounds of the where clause, each with a comma, without the word `where`.
    pub(crate) fn predicates(&self) -> TokenStream {
        match &self.generics.where_clause {
            Some(clause) => {
                let predicates = clause.predicates.iter();
                quote!(#(#predicates,)*)
            }
            None => TokenStream::new(),
        }
    }

    /// The same, and that all type parameters have `bound`.
    pub(crate) fn predicates_with(&self, bound: &TokenStream) -> TokenStream {
        let predicates = self.predicates();
        let names = self.generics.type_params().map(|parameter| &parameter.ident);
        quote!(#predicates #(#names: #bound,)*)
    }

    /// Whether a type depends on a parameter.
    pub(crate) fn are_in(&self, tokens: &TokenStream) -> bool {
        self.are_there() && mentions(tokens.clone(), &names_of(&self.generics).collect::<Vec<_>>())
    }
}

fn names_of(generics: &Generics) -> impl Iterator<Item = Ident> + '_ {
    generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => Some(parameter.ident.clone()),
        GenericParam::Const(parameter) => Some(parameter.ident.clone()),
        _ => None,
    })
}

fn mentions(tokens: TokenStream, names: &[Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => names.contains(&ident),
        TokenTree::Group(group) => mentions(group.stream(), names),
        _ => false,
    })
}

/// Each entry of each list with each of all others.
fn product(names: &[Ident], lists: &[List]) -> Vec<Combination> {
    let mut rows: Vec<Vec<(&Ident, &TokenStream)>> = vec![Vec::new()];
    for list in lists {
        rows = rows
            .iter()
            .flat_map(|row| {
                list.entries
                    .iter()
                    .map(move |entry| row.iter().copied().chain(list.names.iter().zip(entry)).collect())
            })
            .collect();
    }
    let of = |row: &[(&Ident, &TokenStream)], name: &Ident| {
        row.iter().find(|(listed, _)| *listed == name).map(|(_, ty)| (*ty).clone())
    };
    rows.iter()
        .map(|row| Combination { types: names.iter().filter_map(|name| of(row, name)).collect() })
        .collect()
}

/// Tokens as text, without the spaces that nobody writes.
fn compact(tokens: &TokenStream) -> String {
    let mut text = String::new();
    for character in tokens.to_string().chars() {
        match character {
            ' ' if text.ends_with([' ', '<', '(', '[', '&', ':', '-']) => {}
            '<' | '>' | ',' | ';' | ':' | ')' | ']' => {
                text.truncate(text.trim_end().len());
                text.push(character);
            }
            _ => text.push(character),
        }
    }
    text
}
