//! The options in the parentheses of an attribute.

use crate::generics::List;
use crate::signature::Errors;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::time::Duration;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, LitFloat, LitInt, LitStr, Result, Token, parenthesized};

/// Which attribute the options belong to.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Task,
    Actor,
}

impl Kind {
    /// The names of all options.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Task => TASK_OPTIONS,
            Self::Actor => ACTOR_OPTIONS,
        }
    }
}

const TASK_OPTIONS: &[&str] = &[
    "cpus",
    "gpus",
    "memory",
    "resources",
    "retries",
    "isolated",
    "name",
    "returns",
    "stream",
    "stream_ahead",
    "priority",
    "deadline",
];
const ACTOR_OPTIONS: &[&str] = &[
    "cpus",
    "gpus",
    "memory",
    "resources",
    "restarts",
    "call_retries",
    "checkpoint",
    "checkpoint_directory",
    "max_concurrency",
    "isolated",
    "name",
    "detached",
    "priority",
];

/// When an actor saves its state.
pub(crate) struct Checkpoint {
    calls: u32,
    milliseconds: u64,
    pub(crate) span: Span,
}

/// What an attribute asks for.
#[derive(Default)]
pub(crate) struct Options {
    resources: Vec<(String, f64)>,
    retries: Option<u32>,
    name: Option<String>,
    isolated: bool,
    stream_ahead: Option<u32>,
    restarts: Option<u32>,
    call_retries: Option<u32>,
    checkpoint: Option<Checkpoint>,
    checkpoint_directory: Option<String>,
    detached: bool,
    priority: Option<i32>,
    deadline: Option<Duration>,
    pub(crate) returns: Option<(usize, Span)>,
    pub(crate) stream: Option<Span>,
    pub(crate) max_concurrency: Option<u32>,
    /// The types that type parameters are listed with.
    pub(crate) lists: Vec<List>,
}

impl Options {
    /// Parses the options of an attribute. Those that are wrong are left out, and are among the errors.
    pub(crate) fn parse(kind: Kind, tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Self::default();
        let parser = |input: ParseStream<'_>| {
            let mut seen: Vec<Ident> = Vec::new();
            while !input.is_empty() {
                if let Err(error) = options.parse_one(kind, &mut seen, input) {
                    errors.add(error);
                    while !input.is_empty() && !input.peek(Token![,]) {
                        input.parse::<TokenTree>()?;
                    }
                }
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            options.check(&seen)
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.add(error);
        }
        options
    }

    /// Parses one option, up to the comma after it.
    fn parse_one(&mut self, kind: Kind, seen: &mut Vec<Ident>, input: ParseStream<'_>) -> Result<()> {
        if input.peek(syn::token::Paren) {
            return self.add_list(List::of_several(input)?);
        }
        let name = Ident::parse_any(input)?;
        if seen.contains(&name) {
            return Err(Error::new(name.span(), format!("option `{name}` is given twice")));
        }
        seen.push(name.clone());
        let known = kind.options().contains(&name.to_string().as_str());
        if !known && input.peek(Token![=]) && input.peek2(syn::token::Bracket) {
            self.add_list(List::of_one(name, input)?)?;
        } else {
            self.set(kind, &name, input)?;
        }
        at_end(input)
    }

    fn add_list(&mut self, mut list: List) -> Result<()> {
        let problem = list.problem();
        self.lists.push(list);
        problem.map_or(Ok(()), Err)
    }

    fn set(&mut self, kind: Kind, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        let known = kind.options();
        let text = name.to_string();
        if !known.contains(&text.as_str()) {
            return Err(unknown(kind, name, known));
        }
        match text.as_str() {
            "cpus" => self.resources.push(("CPU".to_owned(), amount(name, input)?)),
            "gpus" => self.resources.push(("GPU".to_owned(), amount(name, input)?)),
            "memory" => self.resources.push(("memory".to_owned(), amount(name, input)?)),
            "resources" => self.set_resources(input)?,
            "retries" => self.retries = Some(count(name, input, 0)?),
            "restarts" => self.restarts = Some(count(name, input, 0)?),
            "call_retries" => self.call_retries = Some(count(name, input, 0)?),
            "checkpoint" => self.checkpoint = Some(checkpoint(name, input)?),
            "checkpoint_directory" => self.checkpoint_directory = Some(absolute_path(name, input)?),
            "max_concurrency" => self.max_concurrency = Some(count(name, input, 1)?),
            "stream_ahead" => self.stream_ahead = Some(count(name, input, 1)?),
            "returns" => self.returns = Some((count(name, input, 2)? as usize, name.span())),
            "priority" => self.priority = Some(integer(name, input)?),
            "deadline" => self.deadline = Some(seconds(name, input)?),
            "name" => self.name = Some(text_of(name, input)?),
            "isolated" => self.isolated = flag(name, input)?,
            "detached" => self.detached = flag(name, input)?,
            "stream" => self.stream = flag(name, input)?.then(|| name.span()),
            _ => unreachable!("every known option is handled"),
        }
        Ok(())
    }

    fn set_resources(&mut self, input: ParseStream<'_>) -> Result<()> {
        let content;
        parenthesized!(content in input);
        while !content.is_empty() {
            let name = Ident::parse_any(&content)?;
            let amount = amount(&name, &content)?;
            self.resources.push((name.to_string(), amount));
            if !content.is_empty() {
                content.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }

    fn check(&self, seen: &[Ident]) -> Result<()> {
        let find = |name: &str| seen.iter().find(|ident| *ident == name);
        if let (Some(_), Some(returns)) = (find("stream"), find("returns")) {
            return Err(Error::new(returns.span(), "a stream has no fixed number of returns"));
        }
        if let (None, Some(ahead)) = (find("stream"), find("stream_ahead")) {
            return Err(Error::new(ahead.span(), "`stream_ahead` has a meaning only with `stream`"));
        }
        if let (None, Some(directory)) = (find("checkpoint"), find("checkpoint_directory")) {
            let message = "`checkpoint_directory` has a meaning only with `checkpoint`";
            return Err(Error::new(directory.span(), message));
        }
        if let (Some(checkpoint), None) = (find("checkpoint"), find("restarts")) {
            let message =
                "an actor with checkpoints needs restarts\nhint: `#[actor(restarts = 3, checkpoint = 100)]`";
            return Err(Error::new(checkpoint.span(), message));
        }
        if let (Some(_), Some(concurrency)) = (find("checkpoint"), find("max_concurrency")) {
            let message =
                "an actor with checkpoints runs one call at a time: calls are replayed in their order";
            return Err(Error::new(concurrency.span(), message));
        }
        Ok(())
    }

    /// An expression of type `TaskOptions`.
    pub(crate) fn task_defaults(&self) -> TokenStream {
        let resources = self.resource_calls();
        let retries = self.retries.map(|retries| quote!(__aktis.options.retries = Some(#retries);));
        let name = self.name.as_ref().map(|name| quote!(__aktis.options.name = Some(#name.into());));
        let isolated = self.isolated.then(|| quote!(__aktis.options.shape_mut().isolated = true;));
        let ahead = self.stream_ahead.map(|ahead| quote!(__aktis.options.stream_ahead = Some(#ahead);));
        let priority =
            self.priority.map(|priority| quote!(__aktis.options.shape_mut().priority = #priority;));
        let deadline = self.deadline.map(|deadline| {
            let (seconds, nanoseconds) = (deadline.as_secs(), deadline.subsec_nanos());
            let deadline = quote!(::core::time::Duration::new(#seconds, #nanoseconds));
            quote!(__aktis.options.deadline = Some(#deadline);)
        });
        quote! {{
            #[allow(unused_mut)]
            let mut __aktis = ::aktis::__private::TaskSettings::default();
            #resources #retries #name #isolated #ahead #priority #deadline
            __aktis.options
        }}
    }

    /// An expression of type `ActorOptions`.
    pub(crate) fn actor_defaults(&self, concurrency: u32) -> TokenStream {
        let resources = self.resource_calls();
        let name = self.name.as_ref().map(|name| quote!(__aktis.options.name = Some(#name.into());));
        let (isolated, detached) = (self.isolated, self.detached);
        let (restarts, call_retries) = (self.restarts.unwrap_or(0), self.call_retries.unwrap_or(0));
        let priority = self.priority.unwrap_or(0);
        let log = self.checkpoint.as_ref().map(|checkpoint| {
            let Checkpoint { calls, milliseconds, .. } = checkpoint;
            quote!(__aktis.checkpoint(#calls, #milliseconds);)
        });
        let directory = self.checkpoint_directory.as_ref();
        let directory = directory.map(|path| quote!(__aktis.checkpoint_directory(#path.as_ref());));
        quote! {{
            let mut __aktis = ::aktis::__private::ActorSettings::default();
            __aktis.options.isolated = #isolated;
            __aktis.options.detached = #detached;
            __aktis.options.restarts = #restarts;
            __aktis.options.call_retries = #call_retries;
            __aktis.options.concurrency = #concurrency;
            __aktis.options.priority = #priority;
            #resources #name #log #directory
            __aktis.options
        }}
    }

    /// When the actor saves its state, if it does.
    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    fn resource_calls(&self) -> TokenStream {
        self.resources.iter().map(|(name, amount)| quote!(__aktis.resource(#name, #amount);)).collect()
    }
}

/// Whether the value of an option ends where it should.
fn at_end(input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) { Ok(()) } else { Err(input.error("expected `,`")) }
}

fn unknown(kind: Kind, name: &Ident, known: &[&str]) -> Error {
    let what = if kind == Kind::Task { "a remote function" } else { "an actor" };
    let near = known.iter().find(|known| is_near(known, &name.to_string()));
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the options are {}", known.join(", ")),
    };
    Error::new(name.span(), format!("{what} has no option `{name}`\nhint: {hint}"))
}

/// Whether two names are the same but for an ending, a prefix such as `num_`, or capitals.
fn is_near(known: &str, given: &str) -> bool {
    let given = given.to_lowercase();
    let stem = known.trim_end_matches('s');
    given.contains(stem) || (given.len() > 3 && known.contains(given.as_str()))
}

fn value_of<T>(
    name: &Ident,
    input: ParseStream<'_>,
    what: &str,
    parse: impl FnOnce(ParseStream<'_>) -> Option<T>,
) -> Result<T> {
    let complain = |span: Span| Error::new(span, format!("`{name}` takes {what}"));
    if !input.peek(Token![=]) {
        return Err(complain(name.span()));
    }
    input.parse::<Token![=]>()?;
    let span = input.span();
    parse(input).ok_or_else(|| complain(span))
}

fn amount(name: &Ident, input: ParseStream<'_>) -> Result<f64> {
    let what = format!("a number that is not negative, with at most four decimals, as in `{name} = 0.5`");
    value_of(name, input, &what, |input| {
        let number = number(input)?;
        let scaled = number * 10_000.0;
        let exact = (scaled.round() / 10_000.0 - number).abs() < 1e-9 * number.max(1.0);
        ((0.0..1e14).contains(&number) && exact).then_some(number)
    })
}

fn number(input: ParseStream<'_>) -> Option<f64> {
    match input.peek(LitFloat) {
        true => input.parse::<LitFloat>().ok()?.base10_parse().ok(),
        false => input.parse::<LitInt>().ok()?.base10_parse().ok(),
    }
}

fn seconds(name: &Ident, input: ParseStream<'_>) -> Result<Duration> {
    let what = format!("a number of seconds above 0, as in `{name} = 1.5`");
    value_of(name, input, &what, |input| {
        Duration::try_from_secs_f64(number(input)?).ok().filter(|time| !time.is_zero())
    })
}

fn integer(name: &Ident, input: ParseStream<'_>) -> Result<i32> {
    let what = format!("a whole number, as in `{name} = 3` or `{name} = -1`");
    value_of(name, input, &what, |input| {
        let sign = if input.parse::<Token![-]>().is_ok() { -1 } else { 1 };
        let number: i64 = input.parse::<LitInt>().ok()?.base10_parse().ok()?;
        i32::try_from(sign * number).ok()
    })
}

fn count(name: &Ident, input: ParseStream<'_>, least: u32) -> Result<u32> {
    let what = format!("a whole number of at least {least}, as in `{name} = {}`", least.max(3));
    let number = value_of(name, input, &what, |input| {
        let literal = input.parse::<LitInt>().ok()?;
        Some((literal.base10_parse::<u32>().ok()?, literal.span()))
    })?;
    match number {
        (number, _) if number >= least => Ok(number),
        (_, span) => Err(Error::new(span, format!("`{name}` takes {what}"))),
    }
}

fn absolute_path(name: &Ident, input: ParseStream<'_>) -> Result<String> {
    let what = format!("an absolute path, as in `{name} = \"/shared\"`");
    value_of(name, input, &what, |input| {
        let path = input.parse::<LitStr>().ok()?.value();
        path.starts_with('/').then_some(path)
    })
}

/// After so many calls, after a time such as "5s", or, without a value, when the actor asks for it.
fn checkpoint(name: &Ident, input: ParseStream<'_>) -> Result<Checkpoint> {
    let span = name.span();
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(Checkpoint { calls: 0, milliseconds: 0, span });
    }
    let what = format!("a number of calls, or a time, as in `{name} = 100` or `{name} = \"500ms\"`");
    value_of(name, input, &what, |input| {
        if let Ok(calls) = input.parse::<LitInt>() {
            let calls = calls.base10_parse().ok().filter(|calls| *calls > 0)?;
            return Some(Checkpoint { calls, milliseconds: 0, span });
        }
        let milliseconds = milliseconds(&input.parse::<LitStr>().ok()?.value()).filter(|time| *time > 0)?;
        Some(Checkpoint { calls: 0, milliseconds, span })
    })
}

/// A time such as `500ms`, `5s` or `1m`.
fn milliseconds(text: &str) -> Option<u64> {
    let (number, factor) = [("ms", 1), ("s", 1000), ("m", 60_000)]
        .into_iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn text_of(name: &Ident, input: ParseStream<'_>) -> Result<String> {
    let what = format!("a text that is not empty, as in `{name} = \"fit\"`");
    value_of(name, input, &what, |input| {
        let text = input.parse::<LitStr>().ok()?.value();
        (!text.is_empty()).then_some(text)
    })
}

fn flag(name: &Ident, input: ParseStream<'_>) -> Result<bool> {
    if input.peek(Token![=]) || input.peek(syn::token::Paren) {
        let culprit = input.cursor().token_stream().into_token_stream();
        let message = format!("`{name}` takes no value: write just `{name}`");
        return Err(Error::new(
            culprit.into_iter().next().map_or(name.span(), |token| token.span()),
            message,
        ));
    }
    Ok(true)
}
