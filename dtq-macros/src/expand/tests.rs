//! Expansions under snapshot, and what stays of a function that is half written.
//!
//! `DTQ_SNAPSHOTS=overwrite cargo test -p dtq-macros snapshot` writes them anew.

use proc_macro2::{LineColumn, TokenStream, TokenTree};

use super::task;

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

/// The expansion, printed as rustfmt would.
fn expand(attribute: &str, function: &str) -> String {
    let tokens = task(attribute.parse().unwrap(), function.parse().unwrap());
    let file = syn::parse2(tokens).expect("an expansion parses");
    prettyplease::unparse(&file)
}

fn snapshot(name: &str, attribute: &str, function: &str) {
    let path = format!("{}/tests/snapshots/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    let is = expand(attribute, function);
    if std::env::var_os("DTQ_SNAPSHOTS").is_some_and(|value| value == "overwrite") {
        std::fs::write(&path, &is).unwrap();
    }
    let was = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        is, was,
        "the expansion has changed; if it should, run with DTQ_SNAPSHOTS=overwrite"
    );
}

#[test]
fn snapshot_of_a_task_with_nothing() {
    snapshot("nothing", "", "async fn tick() {}");
}

#[test]
fn snapshot_of_the_first_example() {
    snapshot(
        "example",
        "max_attempts = 5, timeout_ms = 3000",
        "/// Sends the welcome mail.
        pub async fn send_welcome(to: String, lang: Option<String>) -> Result<String, MailError> { body }",
    );
}

#[test]
fn snapshot_of_a_task_with_everything() {
    snapshot(
        "everything",
        r#"name = "billing.charge", alias = "charge", queue = "billing", priority = 9,
        backoff(base = "500ms", max = "1h", jitter = 0.5), retry_on(io::Error), ttl = "1d",
        retention = "2h", result_retention = "0s", result_max_bytes = 100, payload = Charge,
        derive(Debug, Clone), crate = ::facade::dtq"#,
        "async fn charge(#[ctx] ctx: Context, order: Order, #[state] pool: Arc<Pool>) -> io::Result<Receipt> { body }",
    );
}

#[test]
fn snapshot_of_a_blocking_task() {
    snapshot(
        "blocking",
        "",
        "pub(crate) fn resize(mut width: u32, image: Image) -> Image { body }",
    );
}

#[test]
fn snapshot_of_a_task_with_serde_attributes() {
    snapshot(
        "serde",
        "",
        "async fn notify(/// Whom.\n #[serde(rename = \"who\")] whom: String, #[serde(default)] r#type: u8) { body }",
    );
}

#[test]
fn snapshot_of_a_mistake() {
    snapshot(
        "mistake",
        "priority = 10",
        "async fn send_mail(to: String, all: &[u8]) -> u8 { body }",
    );
}

/// The identifiers of a text, with their places.
fn words(tokens: TokenStream) -> Vec<(String, LineColumn)> {
    tokens
        .into_iter()
        .flat_map(|tree| match tree {
            TokenTree::Group(group) => words(group.stream()),
            TokenTree::Ident(ident) => vec![(ident.to_string(), ident.span().start())],
            _ => Vec::new(),
        })
        .collect()
}

/// Every word of the function is in the expansion, in order and where the user wrote it.
fn is_kept(attribute: &str, function: &str) {
    let function: TokenStream = function.parse().unwrap();
    let written: Vec<_> = words(function.clone());
    let expanded = words(task(attribute.parse().unwrap(), function));
    let mut rest = expanded.iter();
    for word in &written {
        assert!(
            rest.any(|other| other == word),
            "{word:?} is missing under #[dtq::task({attribute})]"
        );
    }
}

#[test]
fn a_half_written_attribute_keeps_the_function_and_its_places() {
    let function =
        "\n\n  pub async fn send_mail(to: String, lang: Option<String>) -> u8 {\n to.len(); 1 }";
    for attribute in [
        "",
        "q",
        "queue",
        "queue =",
        "queue = ma",
        "backoff(",
        "backoff()",
        "retry_on(",
        "timeout = \"3",
    ] {
        // What the editor hands over is balanced; what it cuts off is gone.
        let Ok(_) = attribute.parse::<TokenStream>() else { continue };
        is_kept(attribute, function);
    }
    is_kept("queue = \"a\" priority", function);
    is_kept("= = ,, 5", function);
}

#[test]
fn a_half_written_body_keeps_the_function_and_its_places() {
    for body in ["{ to. }", "{ let x = to.len( }", "{ match to { } ; if }", "{ to.; ) }"] {
        let function = format!("async fn send_mail(to: String) -> u8 {body}");
        if function.parse::<TokenStream>().is_ok() {
            is_kept("queue = \"mail\"", &function);
            is_kept("queue = ", &function);
        }
    }
}

#[test]
fn a_half_written_signature_is_passed_on() {
    for function in
        ["async fn send_mail(to: ) {}", "async fn send_mail(to", "async fn", "fn f(a: u8) ->", ""]
    {
        if function.parse::<TokenStream>().is_ok() {
            is_kept("", function);
        }
    }
}

/// The fuzz target `attribute`, a short run over its corpus.
#[test]
fn c41_a_function_of_anything_never_makes_the_macro_panic() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/attribute");
    mutate::run(&corpus, 5000, |data| {
        let text = String::from_utf8_lossy(data);
        let (attribute, item) = text.split_once("\n--\n").unwrap_or((&text, "async fn f() {}"));
        let tokens = |text: &str| text.parse::<TokenStream>();
        // Text that no compiler would hand to a macro is passed over.
        if let (Ok(attribute), Ok(item)) = (tokens(attribute), tokens(item)) {
            let _ = task(attribute, item.clone());
            let _ = crate::retryable::derive(item);
        }
    });
}
