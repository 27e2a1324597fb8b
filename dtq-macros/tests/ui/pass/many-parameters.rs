//! As many as 32 parameters.

#[dtq::task]
#[allow(clippy::too_many_arguments)]
async fn many(a0: String, a1: u8, a2: Vec<Option<i64>>, a3: std::time::Duration, a4: String, a5: u8, a6: Vec<Option<i64>>, a7: std::time::Duration, a8: String, a9: u8, a10: Vec<Option<i64>>, a11: std::time::Duration, a12: String, a13: u8, a14: Vec<Option<i64>>, a15: std::time::Duration, a16: String, a17: u8, a18: Vec<Option<i64>>, a19: std::time::Duration, a20: String, a21: u8, a22: Vec<Option<i64>>, a23: std::time::Duration, a24: String, a25: u8, a26: Vec<Option<i64>>, a27: std::time::Duration, a28: String, a29: u8, a30: Vec<Option<i64>>, a31: std::time::Duration) -> u64 {
    let _ = (a0, a1, a2, a31);
    0
}

fn main() {
    let _ = Many::enqueue("", 1, vec![], std::time::Duration::ZERO, "", 1, vec![], std::time::Duration::ZERO, "", 1, vec![], std::time::Duration::ZERO, "", 1, vec![], std::time::Duration::ZERO, "", 1, vec![], std::time::Duration::ZERO, "", 1, vec![], std::time::Duration::ZERO, "", 1, vec![], std::time::Duration::ZERO, "", 1, vec![], std::time::Duration::ZERO);
}
