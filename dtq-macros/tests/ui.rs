//! Each mistake is one error, on the user's own tokens, that says what to write instead; and whatever is
//! reasonable compiles. One case a file in `ui/`.

/// Cases with more than one error, and why.
const MANY: &[&str] = &[
    // Four mistakes, all told at once.
    "key-all-at-once",
    // Nothing that an attribute sees tells an `impl` around it; the compiler's first error says it.
    "function-associated",
    // With `#[serde(..)]` on a parameter, serde's own derives speak: bounds that silence them would refuse
    // payloads that hold each other.
    "parameter-serde-not-serialize",
];

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}

#[test]
fn each_mistake_is_one_error_and_no_warning() {
    let mut cases = 0;
    for file in std::fs::read_dir("tests/ui/fail").unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "stderr") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.split("\nnote:").next().unwrap();
        let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
        let name = path.file_stem().unwrap().to_str().unwrap();
        cases += 1;
        if !MANY.contains(&name) {
            assert_eq!((count("error"), count("warning")), (1, 0), "{name}:\n{text}");
            // On the user's own tokens, not on the attribute as a whole.
            let mut lines = first.lines();
            let place = lines.find(|line| line.contains("#[dtq::task")).and_then(|_| lines.next());
            let whole = place
                .is_some_and(|line| line.trim_start_matches([' ', '|']).starts_with("^^^^^^^^^^^"));
            assert!(!whole || !first.contains(":1\n"), "{name}:\n{text}");
        }
    }
    assert!(cases >= 60, "{cases}");
}
