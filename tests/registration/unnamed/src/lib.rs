//! A library that is registered by hand.

/// Registered by `dtq::tasks![unnamed::ByHand]`.
#[dtq::task]
pub async fn by_hand(to: String) {
    drop(to);
}
