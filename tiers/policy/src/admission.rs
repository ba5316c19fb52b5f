//! What is written to flash.

use std::str::FromStr;

use cairn_core::Durability;

/// When a page that has entered DRAM is written to the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WritePolicy {
    /// Every page, behind the put.
    #[default]
    All,
    /// Only pages whose put asked for [`Durability::Ssd`].
    Requested,
}

impl WritePolicy {
    /// Whether a page whose put asked for `asked` is written.
    pub fn admits(self, asked: Durability) -> bool {
        match self {
            Self::All => true,
            Self::Requested => asked >= Durability::Ssd,
        }
    }

    /// Name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Requested => "requested",
        }
    }
}

impl FromStr for WritePolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "all" => Ok(Self::All),
            "requested" => Ok(Self::Requested),
            _ => Err(format!("no such write policy: {name:?}; there are \"all\" and \"requested\"")),
        }
    }
}
