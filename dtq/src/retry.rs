//! The retry policy and its arithmetic, pure (SPEC 2).

use crate::task::Backoff;

/// Backoff with a cap and jitter; spans in seconds.
///
/// ```text
/// capped = min(max, base * 2^(attempt - 1))       attempt: the one that just failed, from 1
/// actual = capped * (1 + uniform(-jitter, +jitter))
/// delay  = max(0, trunc(actual * 1000)) ms
/// ```
///
/// The cap bounds `capped`, not the jittered value: with the defaults a delay is at most 72 s.
///
/// ```
/// use dtq::RetryPolicy;
/// let policy = RetryPolicy::default();
/// assert_eq!(policy.delay_ms(1, 0.5), 1000); // a random number of 0.5 is no jitter
/// assert_eq!(policy.delay_ms(4, 0.5), 8000);
/// assert_eq!(policy.delay_ms(7, 0.0), 48000);
/// assert_eq!(policy.delay_ms(u32::MAX, 1.0), 72000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// The first delay in seconds, before jitter.
    pub base: f64,
    /// The longest delay in seconds, before jitter.
    pub max: f64,
    /// How far a delay is spread, as a part of itself: 0 to 1.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    /// 1 s, 60 s, 0.2.
    fn default() -> Self {
        Self { base: 1.0, max: 60.0, jitter: 0.2 }
    }
}

/// A policy that is not valid (SPEC 2.4).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}: it must be {allowed}")]
pub struct InvalidPolicy {
    /// `base`, `max` or `jitter`.
    pub field: &'static str,
    /// What it was.
    pub value: f64,
    /// What it may be.
    pub allowed: String,
}

impl RetryPolicy {
    /// Checks that base >= 0, max >= base and 0 <= jitter <= 1, all finite.
    ///
    /// # Errors
    ///
    /// Names the first field that is not, its value and what is allowed.
    ///
    /// ```
    /// use dtq::RetryPolicy;
    /// let error = RetryPolicy { jitter: 1.5, ..Default::default() }.validate().unwrap_err();
    /// assert_eq!(error.to_string(), "jitter is 1.5: it must be a number from 0 to 1");
    /// ```
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        let check = |field, value: f64, holds: bool, allowed: String| {
            if value.is_finite() && holds {
                Ok(())
            } else {
                Err(InvalidPolicy { field, value, allowed })
            }
        };
        check("base", self.base, self.base >= 0.0, "a number of seconds from 0".to_owned())?;
        let at_least = format!("a number of seconds from {} (base) on", self.base);
        check("max", self.max, self.max >= self.base, at_least)?;
        let holds = (0.0..=1.0).contains(&self.jitter);
        check("jitter", self.jitter, holds, "a number from 0 to 1".to_owned())
    }

    /// The delay before jitter, in seconds. Attempt 0 counts as 1; the power saturates.
    ///
    /// ```
    /// use dtq::RetryPolicy;
    /// let policy = RetryPolicy { base: 0.5, max: 3.0, jitter: 0.0 };
    /// let delays: Vec<_> = (1..=5).map(|attempt| policy.capped(attempt)).collect();
    /// assert_eq!(delays, [0.5, 1.0, 2.0, 3.0, 3.0]);
    /// ```
    pub fn capped(&self, attempt: u32) -> f64 {
        let doublings = attempt.max(1) - 1;
        // 2^1023 is the largest power that a double holds.
        let power = 2f64.powi(doublings.min(1023) as i32);
        (self.base * power).min(self.max)
    }

    /// The delay in milliseconds after `attempt` failed. `random` is uniform in 0..1; what is
    /// outside is taken for the nearer end, and what is no number for the middle.
    pub fn delay_ms(&self, attempt: u32, random: f64) -> u64 {
        let random = if random.is_nan() { 0.5 } else { random.clamp(0.0, 1.0) };
        let actual = self.capped(attempt) * (1.0 + self.jitter * (2.0 * random - 1.0));
        // A cast truncates, and saturates at both ends; below zero means zero.
        (actual * 1000.0) as u64
    }

    /// This policy with what a task's attribute overrides.
    pub(crate) fn overridden(self, by: &Backoff) -> Self {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        Self {
            base: by.base_ms.map_or(self.base, seconds),
            max: by.max_ms.map_or(self.max, seconds),
            jitter: by.jitter.unwrap_or(self.jitter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ATTEMPTS: [u32; 17] =
        [0, 1, 31, 32, 33, 62, 63, 64, 65, 127, 309, 310, 1023, 1024, 1025, 1074, u32::MAX];

    fn valid() -> impl Strategy<Value = RetryPolicy> {
        let base =
            prop_oneof![Just(0.0), Just(0.001), Just(3600.0), 0.0..1e300, Just(f64::MIN_POSITIVE)];
        (base, 1.0..1e6f64, 0.0..=1.0f64).prop_map(|(base, factor, jitter)| RetryPolicy {
            base,
            max: (base * factor).min(f64::MAX),
            jitter,
        })
    }

    proptest! {
        #[test]
        fn spec_2_2_c1_delays_are_finite_capped_and_monotone(
            policy in valid(), attempt in prop_oneof![proptest::sample::select(&ATTEMPTS[..]), any::<u32>()],
            random in 0.0..1.0f64,
        ) {
            prop_assert!(policy.validate().is_ok());
            let capped = policy.capped(attempt);
            prop_assert!(capped.is_finite() && capped >= 0.0 && capped <= policy.max);
            prop_assert!(policy.capped(attempt.saturating_add(1)) >= capped);
            let delay = policy.delay_ms(attempt, random) as f64;
            let most = capped * 1000.0 * (1.0 + policy.jitter);
            prop_assert!(delay <= most.max(1.0) * (1.0 + 1e-9));
            let least = (capped * 1000.0 * (1.0 - policy.jitter)).min(u64::MAX as f64);
            prop_assert!(delay >= (least - 1.0) * (1.0 - 1e-9));
        }

        #[test]
        fn spec_2_formula_is_exact(attempt in 1u32..20, random in 0.0..1.0f64) {
            let policy = RetryPolicy::default();
            let capped = f64::min(60.0, 1.0 * 2f64.powi(attempt as i32 - 1));
            let uniform = -0.2 + 0.4 * random;
            let wanted = (capped * (1.0 + uniform) * 1000.0).trunc();
            let got = policy.delay_ms(attempt, random) as f64;
            prop_assert!((got - wanted).abs() <= 1.0, "{got} {wanted}");
        }

        #[test]
        fn spec_2_4_c3_absurd_policies_are_refused_and_never_panic(
            base: f64, max: f64, jitter: f64, attempt: u32, random: f64,
        ) {
            let policy = RetryPolicy { base, max, jitter };
            let valid = base.is_finite() && max.is_finite() && base >= 0.0 && max >= base
                && (0.0..=1.0).contains(&jitter);
            prop_assert_eq!(policy.validate().is_ok(), valid);
            policy.delay_ms(attempt, random);
        }
    }

    #[test]
    fn spec_2_1_the_delay_table_holds_for_100000_draws() {
        let ranges =
            [(800, 1200), (1600, 2400), (3200, 4800), (6400, 9600), (12800, 19200), (25600, 38400)];
        let policy = RetryPolicy::default();
        for attempt in 1..=9u32 {
            let (low, high) = ranges.get(attempt as usize - 1).copied().unwrap_or((48000, 72000));
            let mut seen = (u64::MAX, 0);
            for _ in 0..100_000 / 9 + 1 {
                let delay = policy.delay_ms(attempt, fastrand::f64());
                assert!((low..=high).contains(&delay), "{attempt}: {delay}");
                seen = (seen.0.min(delay), seen.1.max(delay));
            }
            // C37: the draws fill the window.
            let width = high - low;
            assert!(seen.0 < low + width / 50 && seen.1 > high - width / 50, "{attempt}: {seen:?}");
        }
    }

    #[test]
    fn spec_2_3_the_cap_bounds_the_delay_before_jitter() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.capped(7), 60.0);
        assert_eq!(policy.delay_ms(7, 1.0), 72_000);
        assert_eq!(policy.delay_ms(0, 0.5), policy.delay_ms(1, 0.5), "0 counts as 1");
    }

    #[test]
    fn c2_a_base_of_zero_stays_zero() {
        let policy = RetryPolicy { base: 0.0, max: 60.0, jitter: 1.0 };
        for attempt in ATTEMPTS.into_iter().chain([2000]) {
            assert_eq!(policy.delay_ms(attempt, 0.9), 0);
        }
    }

    #[test]
    fn c5_milliseconds_are_kept() {
        for ms in [1, 500, 999, 1500] {
            let backoff = Backoff { base_ms: Some(ms), max_ms: Some(60_000), jitter: Some(0.0) };
            assert_eq!(RetryPolicy::default().overridden(&backoff).delay_ms(1, 0.3), ms);
        }
    }
}
