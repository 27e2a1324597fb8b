//! Payloads are data like any other: in each other, in enums, in generic types.
use std::collections::{BTreeMap, HashMap, HashSet};

#[dtq::task(derive(Clone, Debug, PartialEq))]
async fn child(parent: Option<Box<Parent>>, name: String) {
    let _ = (parent, name);
}

#[dtq::task(derive(Clone, Debug, PartialEq))]
async fn parent(children: Vec<Child>, kind: Kind<u8>) {
    let _ = (children, kind);
}

#[dtq::task(payload = Tree)]
async fn grow(#[serde(default)] next: Option<Box<Tree>>, parent: Parent) {
    let _ = (next, parent);
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
enum Kind<T> {
    Unit,
    Tuple(T, u8),
    Named { value: Vec<T> },
}

#[dtq::task]
async fn foreign(
    id: uuid::Uuid,
    at: std::time::SystemTime,
    addresses: HashMap<String, std::net::IpAddr>,
    path: std::path::PathBuf,
    value: serde_json::Value,
    raw: Box<serde_json::value::RawValue>,
    sets: BTreeMap<u32, HashSet<char>>,
    nested: (u8, (i128, [u64; 4]), Option<Option<bool>>),
    text: std::borrow::Cow<'static, str>,
    unit: (),
) -> (uuid::Uuid, std::time::SystemTime) {
    let _ = (addresses, path, value, raw, sets, nested, text, unit);
    (id, at)
}

fn main() {
    use dtq::Task as _;
    let child = Child { parent: None, name: "a".into() };
    let parent = Parent { children: vec![child.clone()], kind: Kind::Named { value: vec![1] } };
    let child = Child { parent: Some(Box::new(parent)), name: "b".into() };
    let json = child.encode().unwrap();
    assert_eq!(serde_json::from_slice::<Child>(&json).unwrap(), child);
    assert_eq!(serde_json::from_str::<Child>(r#"{"name":"a"}"#).unwrap().parent, None);
}
