//! `#[task(...)]`: keys to values with the spans that errors point at.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Lit, Path, Token};

use crate::diag::Diag;
use crate::krate::Krate;
use crate::names::{is_queue_name, is_wire_name, nearest};
use crate::span;

/// Every key that the attribute takes.
pub(crate) const KEYS: &[&str] = &[
    "name",
    "alias",
    "queue",
    "priority",
    "max_attempts",
    "timeout_ms",
    "timeout",
    "backoff",
    "retry_on",
    "ttl",
    "retention",
    "result_retention",
    "result_max_bytes",
    "payload",
    "derive",
    "crate",
];

/// Keys that may stand more than once.
const REPEATABLE: &[&str] = &["alias"];

/// What the attribute says; every value is valid.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) krate: Krate,
    pub(crate) name: Option<String>,
    /// With the place of each.
    pub(crate) aliases: Vec<(String, Span)>,
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<u8>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) backoff: Backoff,
    pub(crate) retry_on: Vec<syn::Type>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) retention_ms: Option<u64>,
    pub(crate) result_retention_ms: Option<u64>,
    pub(crate) result_max_bytes: Option<u64>,
    pub(crate) payload: Option<Ident>,
    pub(crate) derives: Vec<Path>,
}

/// `backoff(base = .., max = .., jitter = ..)`.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    pub(crate) base_ms: Option<u64>,
    pub(crate) max_ms: Option<u64>,
    pub(crate) jitter: Option<f64>,
}

/// One `key`, `key = value` or `key(...)` as it was written.
struct Entry {
    key: Ident,
    value: Value,
}

impl Entry {
    /// Of the value, or of the key where there is none.
    fn span(&self) -> Span {
        match &self.value {
            Value::Equals(tokens) | Value::List(tokens) if !tokens.is_empty() => tokens.span(),
            _ => self.key.span(),
        }
    }
}

enum Value {
    None,
    Equals(TokenStream),
    List(TokenStream),
}

/// Reads everything that can be read; what cannot be is reported and skipped.
pub(crate) fn parse(tokens: TokenStream, diag: &Diag) -> Args {
    let mut args = Args::default();
    let mut seen: Vec<(String, Span)> = Vec::new();
    for entry in entries(tokens, diag) {
        let name = entry.key.unraw().to_string();
        if !KEYS.contains(&name.as_str()) {
            let hint = meant(&name).or_else(|| nearest(&name, KEYS)).map_or_else(
                || format!("the keys are {}", KEYS.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            diag.on(&entry.key, format!("`{name}` is not a key of #[dtq::task]: {hint}"));
            continue;
        }
        if seen.iter().any(|(other, _)| *other == name) && !REPEATABLE.contains(&name.as_str()) {
            diag.on(&entry.key, format!("`{name}` is given twice: remove one of them"));
            continue;
        }
        let other = match name.as_str() {
            "timeout" => "timeout_ms",
            "timeout_ms" => "timeout",
            _ => "",
        };
        if seen.iter().any(|(seen, _)| seen == other) {
            diag.on(
                &entry.key,
                format!("`{name}` and `{other}` set the same thing: remove one of them"),
            );
            continue;
        }
        seen.push((name.clone(), entry.key.span()));
        args.apply(&name, &entry, diag);
    }
    args
}

/// What other queues call it.
fn meant(name: &str) -> Option<&'static str> {
    Some(match name {
        "retries" | "max_retries" | "attempts" | "tries" | "max_tries" => "max_attempts",
        "retry" | "retry_delay" | "exponential" => "backoff",
        "time_limit" | "deadline" => "timeout",
        "expires" | "expiry" | "expires_in" => "ttl",
        "task_name" | "id" => "name",
        "aliases" => "alias",
        "result_ttl" => "result_retention",
        "struct_name" | "args" => "payload",
        "retry_for" | "autoretry_for" => "retry_on",
        _ => return None,
    })
}

/// Splits at the commas, and each part at `=` or its parentheses. A comma inside `<...>` of an
/// unparenthesised type cannot stand here, so that the split is safe.
fn entries(tokens: TokenStream, diag: &Diag) -> Vec<Entry> {
    let mut parts: Vec<Vec<proc_macro2::TokenTree>> = vec![Vec::new()];
    for tree in tokens {
        match &tree {
            proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ',' => {
                parts.push(Vec::new())
            }
            _ => {
                if let Some(part) = parts.last_mut() {
                    part.push(tree);
                }
            }
        }
    }
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    let entry = |input: ParseStream<'_>| -> syn::Result<Entry> {
        let key = input.call(Ident::parse_any).map_err(|error| {
            syn::Error::new(error.span(), "expected a key, such as `max_attempts = 5`")
        })?;
        let value = if input.is_empty() {
            Value::None
        } else if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            Value::Equals(input.parse()?)
        } else if input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in input);
            let list = Value::List(content.parse()?);
            if !input.is_empty() {
                return Err(input.error("expected a comma before the next key"));
            }
            list
        } else if input.peek(Token![:]) {
            return Err(input.error(format!("expected `=`: write `{key} = ..`")));
        } else {
            return Err(input.error(format!(
                "expected `=` or `(` after `{key}`, or a comma before the next key"
            )));
        };
        Ok(Entry { key, value })
    };
    parts.filter_map(|part| diag.keep(entry.parse2(part.into_iter().collect()))).collect()
}

impl Args {
    fn apply(&mut self, name: &str, entry: &Entry, diag: &Diag) {
        match name {
            "name" => self.name = wire_name(entry, diag),
            "alias" => {
                let place = entry.span();
                self.aliases.extend(wire_name(entry, diag).map(|alias| (alias, place)));
            }
            "queue" => {
                self.queue = text(entry, diag, "queue = \"mail\"", |text| {
                    is_queue_name(text).then(|| text.to_owned()).ok_or_else(|| {
                        format!(
                            "`{}` is not a queue's name: it must be 1 to 64 of a-z, 0-9, _ and -, \
                             beginning with a letter or a digit",
                            text.escape_default()
                        )
                    })
                });
            }
            "priority" => {
                self.priority = whole(entry, diag, 0, 9).and_then(|n| u8::try_from(n).ok())
            }
            "max_attempts" => {
                self.max_attempts = whole(entry, diag, 1, 255).and_then(|n| u32::try_from(n).ok());
            }
            "timeout_ms" => self.timeout_ms = whole(entry, diag, 1, 3_600_000),
            "timeout" => self.timeout_ms = duration(entry, diag, 1, 3_600_000, "1ms to 1h"),
            "backoff" => self.backoff = backoff(entry, diag),
            "retry_on" => self.retry_on = list(entry, diag, "retry_on(std::io::Error, MyError)"),
            "ttl" => self.ttl_ms = duration(entry, diag, 1, TWENTY_YEARS, "1ms to twenty years"),
            "retention" => {
                self.retention_ms = duration(entry, diag, 0, TEN_YEARS, "at most ten years")
            }
            "result_retention" => {
                self.result_retention_ms = duration(entry, diag, 0, TEN_YEARS, "at most ten years");
            }
            "result_max_bytes" => self.result_max_bytes = whole(entry, diag, 0, 64 << 20),
            "payload" => self.payload = equals::<Ident>(entry, diag, "payload = SendWelcome"),
            "derive" => self.derives = list(entry, diag, "derive(Clone, PartialEq)"),
            _ => {
                if let Some(path) = equals::<Path>(entry, diag, "crate = ::my_facade::dtq") {
                    self.krate = Krate(path);
                }
            }
        }
    }
}

const TEN_YEARS: u64 = 10 * 365 * 86_400_000;
const TWENTY_YEARS: u64 = 2 * TEN_YEARS;

/// The tokens after `key =`, or an error that shows how to write it.
fn value<'a>(entry: &'a Entry, diag: &Diag, example: &str) -> Option<&'a TokenStream> {
    match &entry.value {
        Value::Equals(tokens) if !tokens.is_empty() => Some(tokens),
        _ => {
            diag.on(
                &entry.key,
                format!("`{}` wants a value: write `{example}`", entry.key.unraw()),
            );
            None
        }
    }
}

fn equals<T: syn::parse::Parse>(entry: &Entry, diag: &Diag, example: &str) -> Option<T> {
    let tokens = value(entry, diag, example)?;
    let parsed = syn::parse2(tokens.clone());
    if parsed.is_err() {
        diag.on(
            tokens,
            format!("`{}` wants another kind of value: write `{example}`", entry.key.unraw()),
        );
    }
    parsed.ok()
}

fn literal(entry: &Entry, diag: &Diag, example: &str) -> Option<(Lit, Span)> {
    let tokens = value(entry, diag, example)?;
    let read = |input: ParseStream<'_>| -> syn::Result<(Lit, TokenStream)> {
        let minus: Option<Token![-]> = input.parse()?;
        let mut lit: Lit = input.parse()?;
        if minus.is_some() {
            lit =
                Lit::Verbatim(proc_macro2::Literal::string(&format!("-{}", lit.to_token_stream())));
        }
        Ok((lit, input.parse()?))
    };
    let key = entry.key.unraw();
    match read.parse2(tokens.clone()) {
        Ok((lit, rest)) if rest.is_empty() => return Some((lit, tokens.span())),
        Ok((_, rest)) => diag.on(rest, format!("expected a comma after the value of `{key}`")),
        Err(_) => diag.on(
            tokens,
            format!("`{key}` wants a literal, which the macro can check: write `{example}`"),
        ),
    }
    None
}

fn text<T>(
    entry: &Entry,
    diag: &Diag,
    example: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let (lit, span) = literal(entry, diag, example)?;
    let Lit::Str(text) = &lit else {
        diag.at(span, format!("`{}` wants a string: write `{example}`", entry.key.unraw()));
        return None;
    };
    read(&text.value()).map_err(|message| diag.at(span, message)).ok()
}

fn wire_name(entry: &Entry, diag: &Diag) -> Option<String> {
    let example = format!("{} = \"mail.welcome\"", entry.key);
    text(entry, diag, &example, |text| {
        is_wire_name(text).then(|| text.to_owned()).ok_or_else(|| {
            format!(
                "`{}` is not a wire name: it must be 1 to 128 letters, digits and any of _ . : -",
                text.escape_default()
            )
        })
    })
}

fn whole(entry: &Entry, diag: &Diag, least: u64, most: u64) -> Option<u64> {
    let key = entry.key.unraw();
    let (lit, span) = literal(entry, diag, &format!("{key} = {}", most.min(5).max(least)))?;
    let number = match &lit {
        Lit::Int(int) if int.suffix().is_empty() || int.suffix().starts_with('u') => {
            int.base10_parse::<u64>().ok()
        }
        _ => None,
    };
    let fits = number.filter(|n| (least..=most).contains(n));
    if fits.is_none() {
        let mut shown = lit.to_token_stream().to_string();
        if let Lit::Verbatim(_) = lit {
            shown = shown.replace('"', "");
        }
        diag.at(
            span,
            format!("`{key}` must be a whole number from {least} to {most}, not {}", shown),
        );
    }
    fits
}

fn duration(entry: &Entry, diag: &Diag, least: u64, most: u64, range: &str) -> Option<u64> {
    let key = entry.key.unraw();
    let example = format!("{key} = \"3s\"");
    let (lit, span) = literal(entry, diag, &example)?;
    let Lit::Str(text) = &lit else {
        diag.at(span, format!("`{key}` wants {}: write `{example}`", span::FORM));
        return None;
    };
    let Some(ms) = span::parse(&text.value()) else {
        diag.at(span, span::complaint(&text.value()));
        return None;
    };
    if !(least..=most).contains(&ms) {
        diag.at(span, format!("`{key}` must be {range}, not {}", text.value()));
        return None;
    }
    Some(ms)
}

fn list<T: syn::parse::Parse>(entry: &Entry, diag: &Diag, example: &str) -> Vec<T> {
    let Value::List(tokens) = &entry.value else {
        diag.on(&entry.key, format!("`{}` wants a list: write `{example}`", entry.key.unraw()));
        return Vec::new();
    };
    let parser = Punctuated::<T, Token![,]>::parse_terminated;
    match parser.parse2(tokens.clone()) {
        Ok(items) if items.is_empty() => {
            diag.on(
                &entry.key,
                format!("`{}` is empty: write `{example}`, or leave it out", entry.key.unraw()),
            );
            Vec::new()
        }
        Ok(items) => items.into_iter().collect(),
        Err(error) => {
            diag.at(error.span(), format!("{error}: write `{example}`"));
            Vec::new()
        }
    }
}

fn backoff(entry: &Entry, diag: &Diag) -> Backoff {
    const EXAMPLE: &str = "backoff(base = \"1s\", max = \"1m\", jitter = 0.2)";
    const PARTS: &[&str] = &["base", "max", "jitter"];
    let Value::List(tokens) = &entry.value else {
        diag.on(&entry.key, format!("`backoff` wants a list: write `{EXAMPLE}`"));
        return Backoff::default();
    };
    let mut backoff = Backoff::default();
    let mut seen: Vec<String> = Vec::new();
    let parts = entries(tokens.clone(), diag);
    if parts.is_empty() && diag.is_empty() {
        diag.on(&entry.key, format!("`backoff` is empty: write `{EXAMPLE}`, or leave it out"));
    }
    for part in &parts {
        let name = part.key.to_string();
        if seen.contains(&name) {
            diag.on(&part.key, format!("`{name}` is given twice: remove one of them"));
            continue;
        }
        match name.as_str() {
            "base" => backoff.base_ms = duration(part, diag, 0, TEN_YEARS, "at most ten years"),
            "max" => backoff.max_ms = duration(part, diag, 0, TEN_YEARS, "at most ten years"),
            "jitter" => backoff.jitter = jitter(part, diag),
            _ => {
                let hint = nearest(&name, PARTS).map_or_else(
                    || "the parts are base, max, jitter".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                diag.on(&part.key, format!("`{name}` is not a part of `backoff`: {hint}"));
            }
        }
        seen.push(name);
    }
    if let (Some(base), Some(max)) = (backoff.base_ms, backoff.max_ms)
        && max < base
    {
        diag.on(
            &entry.key,
            "`max` of `backoff` is shorter than its `base`: it must be at least as long",
        );
    }
    backoff
}

fn jitter(entry: &Entry, diag: &Diag) -> Option<f64> {
    let (lit, span) = literal(entry, diag, "jitter = 0.2")?;
    let number = match &lit {
        Lit::Float(float) => float.base10_parse::<f64>().ok(),
        Lit::Int(int) => int.base10_parse::<u32>().ok().map(f64::from),
        _ => None,
    };
    let fits = number.filter(|n| (0.0..=1.0).contains(n));
    if fits.is_none() {
        diag.at(span, "`jitter` must be a number from 0 to 1, such as 0.2");
    }
    fits
}
