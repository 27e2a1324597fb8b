//! The retry policy and its arithmetic (SPEC 2), pure.
/// stub; fields final
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Seconds.
    pub base: f64,
    /// Seconds.
    pub max: f64,
    /// 0 to 1.
    pub jitter: f64,
}
