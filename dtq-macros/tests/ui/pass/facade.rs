//! C44: dtq under another name, and through a facade.

mod facade {
    pub mod queue {
        pub use ::dtq::*;
    }

    /// A macro of the facade that makes tasks.
    #[macro_export]
    macro_rules! facade_task {
        ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $body:block) => {
            #[$crate::facade::queue::task(crate = $crate::facade::queue)]
            $(#[$meta])*
            async fn $name($($arg: $ty),*) $body
        };
    }
}

use facade::queue as renamed;

#[renamed::task(crate = renamed)]
async fn one(a: String) {
    let _ = a;
}

#[facade::queue::task(crate = crate::facade::queue)]
async fn two(#[serde(default)] a: String, b: Vec<std::net::IpAddr>) -> Result<(), renamed::TaskError> {
    let _ = (a, b);
    Ok(())
}

facade_task! {
    /// Three.
    fn three(a: std::time::Duration, b: u8) {
        let _ = (a, b);
    }
}

fn main() {
    let _ = (One::enqueue("a"), Two::enqueue("a", vec![]), Three::enqueue(std::time::Duration::ZERO, 1));
    assert_eq!(renamed::registry().len(), 3);
}
