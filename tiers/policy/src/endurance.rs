//! What a drive endures: from its data sheet to bytes a day, and from bytes written to years left.

use cairn_core::Thousandths;

const DAY_NANOS: u128 = 86_400 * 1_000_000_000;
const DAYS_A_YEAR: u64 = 365;
/// Numbers of bytes stay below this, so that sums of two and signed differences never overflow.
const BYTES_MAX: u128 = (i64::MAX / 4) as u128;

/// How much may be written to a drive: a rate for the long run, and how much of it can be saved up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    day_bytes: u64,
    bucket_bytes: u64,
    years: u64,
}

impl Plan {
    /// `writes` drive writes a day of `capacity_bytes`, for `years`; unspent budget is kept for `bucket_days`.
    pub fn of_drive_writes(writes: Thousandths, capacity_bytes: u64, years: u64, bucket_days: Thousandths) -> Self {
        Self::of_day_bytes(u128::from(writes.0) * u128::from(capacity_bytes) / 1000, years, bucket_days)
    }

    /// `total_bytes` in `years`; unspent budget is kept for `bucket_days`.
    pub fn of_total_bytes(total_bytes: u64, years: u64, bucket_days: Thousandths) -> Self {
        Self::of_day_bytes(u128::from(total_bytes) / u128::from(years.max(1) * DAYS_A_YEAR), years, bucket_days)
    }

    fn of_day_bytes(day_bytes: u128, years: u64, bucket_days: Thousandths) -> Self {
        let day_bytes = at_most(day_bytes);
        let bucket_bytes = at_most(u128::from(day_bytes) * u128::from(bucket_days.0) / 1000);
        Self { day_bytes, bucket_bytes, years: years.max(1) }
    }

    /// Bytes a day in the long run.
    pub fn day_bytes(&self) -> u64 {
        self.day_bytes
    }

    /// Most bytes that are saved up.
    pub fn bucket_bytes(&self) -> u64 {
        self.bucket_bytes
    }

    /// Years that the drive is to last.
    pub fn years(&self) -> u64 {
        self.years
    }

    /// Bytes a second in the long run.
    pub fn bytes_per_second(&self) -> f64 {
        self.day_bytes as f64 / 86_400.0
    }

    /// Bytes that the drive endures in all.
    pub fn rated_bytes(&self) -> u128 {
        u128::from(self.day_bytes) * u128::from(self.years * DAYS_A_YEAR)
    }

    /// Years until the drive has taken what it endures, if `written_bytes` were written so far and `day_bytes` come a day; `None` if
    /// nothing comes.
    pub fn years_left(&self, written_bytes: u64, day_bytes: u64) -> Option<f64> {
        let left = self.rated_bytes().saturating_sub(u128::from(written_bytes));
        (day_bytes > 0).then(|| left as f64 / day_bytes as f64 / DAYS_A_YEAR as f64)
    }

    /// Byte-nanoseconds a day that `nanos` earn: divided by [`Plan::earned`]'s unit they are bytes.
    pub(crate) fn earns(&self, nanos: u64) -> u128 {
        u128::from(self.day_bytes) * u128::from(nanos)
    }

    /// Whole bytes in what was earned, and what is left over.
    pub(crate) fn earned(fraction: u128) -> (u64, u128) {
        (at_most(fraction / DAY_NANOS), fraction % DAY_NANOS)
    }
}

fn at_most(bytes: u128) -> u64 {
    u64::try_from(bytes.min(BYTES_MAX)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE_BYTES: u64 = 3_840_000_000_000;
    /// New KV bytes a second of one GPU that does nothing but prefill.
    const PRODUCED: f64 = 1.41e9;

    fn one_a_day() -> Plan {
        Plan::of_drive_writes(Thousandths(1000), DRIVE_BYTES, 5, Thousandths(7000))
    }

    #[test]
    fn one_drive_write_a_day_of_3_84_tb_is_44_4_mb_a_second() {
        let plan = one_a_day();
        assert_eq!(format!("{:.1}", plan.bytes_per_second() / 1e6), "44.4");
        assert_eq!(plan.rated_bytes(), 7_008_000_000_000_000);
        assert_eq!(plan.bucket_bytes(), 7 * DRIVE_BYTES);
    }

    #[test]
    fn writing_all_new_kv_is_31_7_times_that_so_3_2_per_cent_may_be_written() {
        let plan = one_a_day();
        assert_eq!(format!("{:.1}", PRODUCED / plan.bytes_per_second()), "31.7");
        assert_eq!(format!("{:.1}", 100.0 * plan.bytes_per_second() / PRODUCED), "3.2");
    }

    #[test]
    fn a_drive_that_takes_all_new_kv_is_worn_out_in_under_two_months() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number below 2^53")]
        let day_bytes = (PRODUCED * 86_400.0) as u64;
        let months = one_a_day().years_left(0, day_bytes).unwrap() * 12.0;
        assert!((1.8..2.0).contains(&months), "{months}");
        assert_eq!(one_a_day().years_left(0, 0), None);
        assert_eq!(one_a_day().years_left(u64::MAX, 1), Some(0.0));
    }

    #[test]
    fn the_same_plan_comes_from_terabytes_written_and_years() {
        let plan = Plan::of_total_bytes(7_008_000_000_000_000, 5, Thousandths(7000));
        assert_eq!(plan, one_a_day());
    }

    #[test]
    fn plans_beyond_all_drives_do_not_overflow() {
        let plan = Plan::of_drive_writes(Thousandths(100_000), 1 << 50, 20, Thousandths(60_000));
        assert!(plan.bucket_bytes() >= plan.day_bytes());
        let plan = Plan::of_drive_writes(Thousandths(u64::MAX), u64::MAX, u64::MAX / 365, Thousandths(u64::MAX));
        assert_eq!((plan.day_bytes(), plan.bucket_bytes()), (u64::MAX / 8, u64::MAX / 8));
    }
}
