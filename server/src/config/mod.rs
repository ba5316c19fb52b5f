//! Configuration: what can be set ([`settings`]), where it is read from ([`load`]) and how it is explained ([`doc`]).
//!
//! One table names every key with its default, its range and the reason for its default. A file, then the environment, then flags are
//! read once, at the start, and an unknown key is refused wherever it stands.

pub mod doc;
pub mod load;
pub mod settings;
pub mod value;

pub use load::{ConfigError, Flags, load};
pub use settings::Settings;
