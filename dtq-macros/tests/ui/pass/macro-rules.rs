//! Tasks that come out of a macro.

macro_rules! tasks_for {
    ($($name:ident, $payload:ident, $ty:ty, $wire:literal, $attempts:expr;)*) => {
        $(#[dtq::task(name = $wire, payload = $payload, max_attempts = 3)]
        async fn $name(value: $ty, count: u8) -> Result<$ty, std::io::Error> {
            let _ = count;
            Ok(value)
        })*
    };
}

#[derive(serde::Serialize, serde::Deserialize)]
pub struct Order(u64);

tasks_for! {
    take_order, OrderTask, Order, "order.take", 3;
    take_text, TextTask, String, "text.take", 4;
    take_list, ListTask, Vec<Option<Order>>, "list.take", 5;
}

fn main() {
    let _ = (OrderTask::enqueue(Order(1), 1), TextTask::enqueue("text", 1), ListTask::enqueue(vec![None], 1));
    let names: Vec<_> = dtq::registry().iter().map(|task| task.name).collect();
    assert_eq!(names, ["list.take", "order.take", "text.take"]);
}
