//! Enums of outcomes, both ways. The unspecified value is refused: a message that forgot to say is not a message that said the first.

use cairn_core::{Durability, KeptOff, NotStored, PageOutcome, StopReason, Tier};

use crate::Refused;
use crate::v1;
use crate::v1::put_page::Outcome;

macro_rules! both_ways {
    ($core:ident, $field:literal { $( $variant:ident ),+ }) => {
        impl From<$core> for v1::$core {
            fn from(value: $core) -> Self {
                match value { $( $core::$variant => Self::$variant ),+ }
            }
        }

        impl TryFrom<v1::$core> for $core {
            type Error = Refused;

            fn try_from(value: v1::$core) -> Result<Self, Refused> {
                match value {
                    $( v1::$core::$variant => Ok(Self::$variant), )+
                    v1::$core::Unspecified => Err(Refused::UnknownValue { field: $field, value: value.into() }),
                }
            }
        }

        impl v1::$core {
            /// The core word of an enum field's number; refused if it is unspecified or unknown.
            ///
            /// # Errors
            /// [`Refused::UnknownValue`].
            pub fn word(value: i32) -> Result<$core, Refused> {
                let known = v1::$core::try_from(value).map_err(|_| Refused::UnknownValue { field: $field, value })?;
                known.try_into()
            }

            /// The number of a core word in an enum field.
            pub fn number(value: $core) -> i32 {
                v1::$core::from(value).into()
            }
        }
    };
}

both_ways!(Tier, "tier" { Dram, Ssd });
both_ways!(Durability, "durability" { Memory, Ssd });
both_ways!(NotStored, "not_stored" { NoSpace, ParentMissing, ChecksumMismatch, NotSent, Deadline });
both_ways!(StopReason, "stop" { EndOfChain, MaxTokens, NotStored, Damaged, ReadFailed, NoSpace, Deadline });
both_ways!(KeptOff, "kept_off" { NotRequested, NotReused, FirstTurn, LowValue, BudgetSpent });

impl From<PageOutcome> for Outcome {
    fn from(outcome: PageOutcome) -> Self {
        match outcome {
            PageOutcome::Stored(durability) => Self::Stored(v1::Durability::number(durability)),
            PageOutcome::Present(durability) => Self::Present(v1::Durability::number(durability)),
            PageOutcome::NotStored(reason) => Self::NotStored(v1::NotStored::number(reason)),
        }
    }
}

impl TryFrom<Outcome> for PageOutcome {
    type Error = Refused;

    fn try_from(outcome: Outcome) -> Result<Self, Refused> {
        Ok(match outcome {
            Outcome::Stored(durability) => Self::Stored(v1::Durability::word(durability)?),
            Outcome::Present(durability) => Self::Present(v1::Durability::word(durability)?),
            Outcome::NotStored(reason) => Self::NotStored(v1::NotStored::word(reason)?),
        })
    }
}
