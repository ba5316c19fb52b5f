//! The names of pages, from the command line or a file.

use cairn_client::{Chain, Namespace};

use crate::cli::Names;
use crate::identity::read_input;
use crate::outcome::Failure;

/// Most tokens taken: 64 MiB of them. Longer than any context, short enough that a slip such as `0..4000000000` is refused at once.
const TOKENS_MAX: usize = 1 << 24;

/// What the command line names.
pub(crate) enum Named {
    Tokens(Vec<u32>),
    Hashes(Vec<Vec<u8>>),
}

impl Named {
    pub(crate) fn read(names: &Names) -> Result<Self, Failure> {
        match (&names.tokens, &names.hashes) {
            (Some(tokens), _) => Ok(Self::Tokens(read_tokens(tokens)?)),
            (None, Some(file)) => Ok(Self::Hashes(hashes(&read_input(file)?)?)),
            (None, None) => Err(Failure::usage("name the pages with --tokens or --hashes")),
        }
    }

    /// The chain, of at least one page.
    pub(crate) fn chain(&self, namespace: &Namespace) -> Result<Chain, Failure> {
        let chain = match self {
            Self::Tokens(tokens) => namespace.chain_of_tokens(tokens, &[])?,
            Self::Hashes(hashes) => namespace.chain_of_engine_hashes(hashes.iter().map(Vec::as_slice))?,
        };
        if chain.pages() == 0 {
            let page_tokens = namespace.identity().page_tokens;
            return Err(Failure::usage(format!("no full page; a page of this identity has {page_tokens} tokens")));
        }
        Ok(chain)
    }
}

fn read_tokens(spec: &str) -> Result<Vec<u32>, Failure> {
    match spec.strip_prefix('@') {
        Some(file) => tokens(&read_input(file)?),
        None => tokens(spec),
    }
}

/// Numbers and ranges, apart by commas or white space; a JSON list is one.
fn tokens(text: &str) -> Result<Vec<u32>, Failure> {
    let inner = text.trim();
    let inner = inner.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(inner);
    let mut tokens = Vec::new();
    for word in inner.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()) {
        let range = range(word).ok_or_else(|| {
            Failure::usage(format!("not a token: {word:?}"))
                .hint("write 1,2,3 or 0..4096 (end not included), or @FILE to read them from a file")
        })?;
        if range.len() > TOKENS_MAX - tokens.len() {
            return Err(Failure::usage(format!("more than {TOKENS_MAX} tokens")));
        }
        tokens.extend(range);
    }
    Ok(tokens)
}

fn range(word: &str) -> Option<std::ops::Range<u32>> {
    match word.split_once("..") {
        Some((from, to)) => {
            let range = from.parse().ok()?..to.parse().ok()?;
            (range.start <= range.end).then_some(range)
        }
        None => {
            let token: u32 = word.parse().ok()?;
            Some(token..token.checked_add(1)?)
        }
    }
}

fn hashes(text: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let lines = text.split_whitespace().enumerate();
    lines
        .map(|(at, word)| unhex(word).ok_or_else(|| Failure::usage(format!("hash {at} is not hex: {word:?}"))))
        .collect()
}

/// The bytes that are written as hex; `None` if they are not.
pub(crate) fn unhex(word: &str) -> Option<Vec<u8>> {
    let nibbles: Vec<u8> =
        word.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect::<Option<_>>()?;
    let (pairs, rest) = nibbles.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_numbers_ranges_and_lists() {
        for (text, expected) in [
            ("1,2,3", vec![1, 2, 3]),
            ("0..4", vec![0, 1, 2, 3]),
            ("9, 0..2 7", vec![9, 0, 1, 7]),
            ("[1, 2,\n 3]", vec![1, 2, 3]),
            ("4294967294", vec![u32::MAX - 1]),
            ("", vec![]),
        ] {
            assert_eq!(tokens(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_token_is_named() {
        for wrong in ["x", "1,-2", "5..2", "1..", "..3", "99999999999", "0..4000000000"] {
            assert!(tokens(wrong).is_err(), "{wrong:?}");
        }
        assert!(tokens("1,zwei").unwrap_err().text.contains("zwei"));
    }

    #[test]
    fn hashes_are_hex() {
        assert_eq!(hashes("00ff\nA0b1\n").unwrap(), [vec![0, 255], vec![160, 177]]);
        assert!(hashes("0").is_err());
        assert!(hashes("zz").is_err());
    }
}
