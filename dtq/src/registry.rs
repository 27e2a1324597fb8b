//! The tasks of the program: every `#[dtq::task]` that was linked, found without a list (linkme).

use std::collections::BTreeMap;

use crate::task::Definition;

/// Filled by the linker from every crate of the program.
#[doc(hidden)]
#[linkme::distributed_slice]
pub static TASKS: [&'static Definition];

/// Every task of the program, ordered by name.
///
/// A library crate that the program never names is not linked, and its tasks are not here: write
/// `use my_tasks as _;` in the program, or register them by hand with [`tasks!`](crate::tasks!).
///
/// ```
/// for task in dtq::registry() {
///     println!("{} on queue {} at {}:{}", task.name, task.options.queue, task.file, task.line);
/// }
/// ```
pub fn registry() -> Vec<&'static Definition> {
    let mut all: Vec<&'static Definition> = TASKS.iter().copied().collect();
    let by_hand = BY_HAND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.extend(by_hand.iter().copied());
    drop(by_hand);
    // Registered by hand as well as by the linker is once.
    all.sort_by_key(|task| (task.name, std::ptr::from_ref(*task) as usize));
    all.dedup_by_key(|task| std::ptr::from_ref(*task));
    all
}

static BY_HAND: std::sync::Mutex<Vec<&'static Definition>> = std::sync::Mutex::new(Vec::new());

#[doc(hidden)]
pub fn register(definition: &'static Definition) {
    BY_HAND.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(definition);
}

/// Registers tasks by hand, by the types of their payloads: for a program whose linker drops what it
/// does not see used, or a library that the program does not name otherwise.
///
/// Call it before a worker starts. A task that is registered already is not registered twice.
///
/// ```
/// # mod dtq_docs {
/// #[dtq::task]
/// async fn send_welcome(to: String) {}
///
/// # pub fn f() {
/// dtq::tasks![SendWelcome];
/// # } }
/// ```
#[macro_export]
macro_rules! tasks {
    ($($task:ty),+ $(,)?) => {
        $($crate::__private::register(<$task as $crate::Task>::definition());)+
    };
}

/// Finds task functions by wire name and alias.
#[derive(Debug, Default)]
pub(crate) struct Lookup(BTreeMap<&'static str, &'static Definition>);

impl Lookup {
    /// Of `tasks`; an error for each name that two of them claim, naming both places.
    pub(crate) fn new(tasks: &[&'static Definition]) -> Result<Self, Vec<String>> {
        let mut map: BTreeMap<&'static str, &'static Definition> = BTreeMap::new();
        let mut problems = Vec::new();
        for task in tasks {
            for name in std::iter::once(&task.name).chain(task.aliases) {
                let Some(other) = map.insert(name, task) else { continue };
                problems.push(format!(
                    "two tasks are called `{name}`: {}:{} and {}:{}; give one of them another \
                     #[dtq::task(name = \"...\")]",
                    other.file, other.line, task.file, task.line
                ));
            }
        }
        if problems.is_empty() { Ok(Self(map)) } else { Err(problems) }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'static Definition> {
        self.0.get(name).copied()
    }
}
