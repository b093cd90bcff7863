//! Cases as text: they print as the expression that makes them, and are read from it.

use super::{Case, Kind};
use crate::error::AlgebraError;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, kind, tokens, key_heads, ratio, key_dim, value_dim } = self;
        write!(
            f,
            "Case {{ seed: {seed:#x}, kind: Kind::{kind:?}, tokens: {tokens}, key_heads: {key_heads}, ratio: {ratio}, key_dim: {key_dim}, value_dim: {value_dim} }}"
        )
    }
}

impl FromStr for Case {
    type Err = AlgebraError;

    /// Reads what [`Case`]'s `Display` prints.
    fn from_str(text: &str) -> Result<Self, AlgebraError> {
        let wrong = |why: String| AlgebraError::Parse { line: 1, why };
        let inner = text.trim().strip_prefix("Case {").and_then(|t| t.strip_suffix('}'));
        let inner = inner.ok_or_else(|| wrong(format!("`{text}` is no `Case {{ … }}`")))?;
        let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
        for field in inner.split(',') {
            let (name, value) = field.split_once(": ").ok_or_else(|| wrong(format!("`{field}` is no field")))?;
            fields.insert(name.trim(), value.trim());
        }
        let mut take = |name: &str| fields.remove(name).ok_or_else(|| wrong(format!("no field `{name}`")));
        let number = |text: &str| {
            let parsed = match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => text.parse(),
            };
            parsed.map_err(|e| wrong(format!("`{text}`: {e}")))
        };
        let size = |text: &str| usize::try_from(number(text)?).map_err(|e| wrong(format!("`{text}`: {e}")));
        let kind = take("kind")?;
        let named = |k: &Kind| kind.strip_prefix("Kind::") == Some(&format!("{k:?}"));
        let case = Self {
            seed: number(take("seed")?)?,
            kind: Kind::ALL.into_iter().find(named).ok_or_else(|| wrong(format!("`{kind}` is no kind")))?,
            tokens: size(take("tokens")?)?,
            key_heads: size(take("key_heads")?)?,
            ratio: size(take("ratio")?)?,
            key_dim: size(take("key_dim")?)?,
            value_dim: size(take("value_dim")?)?,
        };
        match fields.keys().next() {
            None => Ok(case),
            Some(name) => Err(wrong(format!("no field of a case is called `{name}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(kind: Kind, seed: u64) -> Case {
        Case { seed, kind, tokens: 40, key_heads: 2, ratio: 3, key_dim: 12, value_dim: 8 }
    }

    #[test]
    fn prints_as_the_expression_that_makes_it() {
        assert_eq!(
            case(Kind::ZeroKeys, 255).to_string(),
            "Case { seed: 0xff, kind: Kind::ZeroKeys, tokens: 40, key_heads: 2, ratio: 3, key_dim: 12, value_dim: 8 }"
        );
    }

    #[test]
    fn what_prints_parses_and_what_does_not_print_is_an_error() {
        for kind in Kind::ALL {
            let it = Case { tokens: 0, ..case(kind, u64::MAX) };
            assert_eq!(it.to_string().parse::<Case>().unwrap(), it);
        }
        let text = case(Kind::Typical, 7).to_string();
        for (from, to) in [
            ("Case", "Cases"),
            (" }", ""),
            ("Typical", "Odd"),
            ("0x7", "0xg"),
            ("40", "-1"),
            (", ratio: 3", ""),
            (", ratio: 3", ", ratio: 3, size: 1"),
            (", ratio: 3", ", ratio 3"),
        ] {
            let broken = text.replace(from, to);
            assert!(matches!(broken.parse::<Case>(), Err(AlgebraError::Parse { .. })), "{broken}");
        }
    }
}
