//! Kinds of values that a key can have, each with one text form in files, variables, flags and the documentation.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cairn_core::{ByteSize, Span, Thousandths};
use cairn_policy::WritePolicy;
use cairn_pool::HugePages;
use cairn_ssd::DeviceKind;

/// A value of the settings table.
pub trait Value: Sized {
    /// What the documentation calls it.
    const KIND: &'static str;

    /// Reads the text form.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn read(text: &str) -> Result<Self, String>;

    /// The text form.
    fn text(&self) -> String;

    /// The text form as a TOML value.
    fn toml(&self) -> String {
        toml::Value::String(self.text()).to_string()
    }
}

macro_rules! parsed {
    ($type:ty, $kind:literal, $wrong:literal) => {
        impl Value for $type {
            const KIND: &'static str = $kind;

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!(concat!("not ", $wrong, ": {:?}"), text))
            }

            fn text(&self) -> String {
                self.to_string()
            }

            fn toml(&self) -> String {
                self.to_string()
            }
        }
    };
}

parsed!(u64, "number", "a whole number");
parsed!(bool, "true or false", "true or false");

impl Value for ByteSize {
    const KIND: &'static str = "size";

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for Span {
    const KIND: &'static str = "duration";

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        if self.0 == Duration::ZERO { "0s".to_owned() } else { self.to_string() }
    }
}

impl Value for Thousandths {
    const KIND: &'static str = "decimal number";

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn toml(&self) -> String {
        self.to_string()
    }
}

impl Value for SocketAddr {
    const KIND: &'static str = "address and port";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("not an IP address and port, such as 127.0.0.1:7420 or [::1]:7420: {text:?}"))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "path";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("a path can not be empty".to_owned()) } else { Ok(PathBuf::from(text)) }
    }

    fn text(&self) -> String {
        self.display().to_string()
    }
}

/// A program by its name or path; none if the text is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program(pub Option<PathBuf>);

impl Value for Program {
    const KIND: &'static str = "program, by name or path, or empty";

    fn read(text: &str) -> Result<Self, String> {
        Ok(Self((!text.is_empty()).then(|| PathBuf::from(text))))
    }

    fn text(&self) -> String {
        self.0.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

impl Value for DeviceKind {
    const KIND: &'static str = "`auto`, `io_uring` or `positioned`";

    fn read(text: &str) -> Result<Self, String> {
        let kind = Self::ALL.into_iter().find(|kind| kind.label() == text);
        kind.ok_or_else(|| format!("not one of {}: {text:?}", Self::KIND))
    }

    fn text(&self) -> String {
        self.label().to_owned()
    }
}

impl Value for HugePages {
    const KIND: &'static str = "`auto` or `off`";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => Err(format!("not one of {}: {text:?}", Self::KIND)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Off => "off".to_owned(),
        }
    }
}

impl Value for WritePolicy {
    const KIND: &'static str = "`auto`, `all`, `requested`, `reused`, `session` or `budget`";

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.name().to_owned()
    }
}

macro_rules! choice {
    ($( $(#[$doc:meta])* $type:ident $kind:literal { $( $(#[$vdoc:meta])* $variant:ident = $text:literal ),+ $(,)? } )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $type { $( $(#[$vdoc])* $variant ),+ }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $( Self::$variant => $text ),+ })
            }
        }

        impl Value for $type {
            const KIND: &'static str = $kind;

            fn read(text: &str) -> Result<Self, String> {
                match text {
                    $( $text => Ok(Self::$variant), )+
                    _ => Err(format!("not one of {}: {text:?}", $kind)),
                }
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )+ };
}

choice! {
    /// How much is logged.
    LogLevel "`error`, `warn`, `info`, `debug` or `trace`" {
        /// What an operator must act on.
        Error = "error",
        /// And what an operator should know.
        Warn = "warn",
        /// And the life of the server.
        Info = "info",
        /// And calls that fail.
        Debug = "debug",
        /// And everything that libraries say.
        Trace = "trace",
    }
    /// How it is logged.
    LogFormat "`text` or `json`" {
        /// Lines for people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}
