//! Sizes and durations as people write them in configuration: `64MiB`, `1.5GB`, `250ms`, `2h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes. Reads `0`, `4096`, `4KiB`, `1.5GiB`, `10TB`; prints the largest binary unit that is exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, &SIZE_UNITS, 1)
            .map(Self)
            .ok_or_else(|| format!("not a size: {text:?}; write a number and a unit, such as 64MiB or 1.5GB"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = SIZE_UNITS[..4]
            .iter()
            .find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor))
            .copied()
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// A length of time. Reads `250ms`, `1.5s`, `10m`, `2h`; prints the largest unit that is exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub Duration);

const SPAN_UNITS_US: [(&str, u64); 6] =
    [("h", 3_600_000_000), ("ms", 1_000), ("us", 1), ("min", 60_000_000), ("m", 60_000_000), ("s", 1_000_000)];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, &SPAN_UNITS_US, 0)
            .map(|us| Self(Duration::from_micros(us)))
            .ok_or_else(|| format!("not a duration: {text:?}; write a number and a unit, such as 250ms, 10s or 5m"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        let (unit, factor) = [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)]
            .into_iter()
            .find(|(_, factor)| us > 0 && us.is_multiple_of(*factor))
            .unwrap_or(("us", 1));
        write!(f, "{}{unit}", us / factor)
    }
}

/// A number with up to three decimals, kept exactly, in thousandths. Reads `0`, `1`, `0.55`; prints without needless zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Thousandths(pub u64);

impl FromStr for Thousandths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("not a number with up to three decimals: {text:?}");
        let (whole, decimals) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || decimals.len() > 3 || !digits(whole) || !digits(decimals) {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let part: u64 = format!("{decimals:0<3}").parse().map_err(|_| wrong())?;
        whole.checked_mul(1000).and_then(|whole| whole.checked_add(part)).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A number and one of `units`; `bare` is the factor of a number without a unit, 0 if that is not allowed.
fn scaled(text: &str, units: &[(&str, u64)], bare: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let factor = if unit.is_empty() {
        (bare > 0 || number == "0").then_some(bare)?
    } else {
        units.iter().find(|(name, _)| *name == unit)?.1
    };
    let number = number.replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of a byte or microsecond is dropped on purpose")]
    (value.is_finite() && (0.0..9e18).contains(&value)).then_some(value as u64)
}

macro_rules! text_serde {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text_serde!(ByteSize);
text_serde!(Span);
