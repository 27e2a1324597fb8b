//! Prints the names of the tasks that are found.

// Named for its tasks alone.
use tasks as _;

mod private {
    mod deeper {
        #[queue::task(crate = ::queue)]
        async fn in_private_module(to: String) {
            drop(to);
        }
    }
}

#[queue::task(crate = ::queue)]
async fn here(number: u64) -> u64 {
    number
}

#[queue::task(crate = queue)]
fn renamed() {}

fn main() {
    queue::tasks![unnamed::ByHand];
    // Once more does no harm.
    queue::tasks![unnamed::ByHand, Here];
    for task in queue::registry() {
        println!("{}", task.name);
    }
}
