//! Who is calling. Every call carries a [`Principal`] from the door to the directory.
//!
//! A tenant's salt is derived by the server from a secret that never leaves it, and is part of every namespace id: two tenants with
//! the same model and the same tokens have different keys, and a client can not choose the salt.

use std::fmt;

use crate::{Error, Result};

/// The name of a tenant: 1 to 64 of `a-z 0-9 - _`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TenantId(String);

impl TenantId {
    /// Takes a tenant's name.
    ///
    /// # Errors
    /// `Invalid` if it is empty, longer than 64 bytes or has other characters.
    pub fn new(name: &str) -> Result<Self> {
        let ok = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if ok {
            Ok(Self(name.to_owned()))
        } else {
            Err(Error::invalid("a tenant name is 1 to 64 of a-z, 0-9, '-' and '_'"))
        }
    }

    /// The tenant of a server without authentication.
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// On whose behalf a call is made. Made at the door, from whatever authenticated the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// The tenant whose pages the call may see.
    pub tenant: TenantId,
}

impl Principal {
    /// The principal of every caller of a server without authentication.
    pub fn local() -> Self {
        Self { tenant: TenantId::local() }
    }
}

/// The server's secret, 32 random bytes kept in the data folder. Never printed.
#[derive(Clone)]
pub struct ServerSecret([u8; 32]);

impl ServerSecret {
    /// Takes the secret's bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The salt of `tenant`: BLAKE3 keyed with the secret, over `"cairn tenant salt v1"` and the tenant's name.
    pub fn tenant_salt(&self, tenant: &TenantId) -> TenantSalt {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"cairn tenant salt v1");
        hasher.update(tenant.as_str().as_bytes());
        TenantSalt(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSecret(..)")
    }
}

/// A tenant's salt. Never printed, never sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TenantSalt([u8; 32]);

impl TenantSalt {
    /// Takes a salt's bytes; for test vectors.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for TenantSalt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantSalt(..)")
    }
}
