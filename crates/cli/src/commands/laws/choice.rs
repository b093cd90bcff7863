//! Which families: the option `--family`, and the list of what there is.

use std::fmt;
use std::str::FromStr;

use seam_algebra::families::{all, by_name};
use seam_algebra::{DecayKind, UpdateKind};
use serde::Serialize;

use crate::report::{Column, Table, heading};

/// What `--family` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// To print what there is.
    List,
    /// These families, at least one, each once, in the order in which they are listed.
    These(Vec<&'static str>),
}

/// No such family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParseChoiceError(String);

impl fmt::Display for ParseChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = all().iter().map(|family| family.name()).collect();
        write!(f, "unknown family {:?}: expected all, list, or some of {}", self.0, known.join(", "))
    }
}

impl std::error::Error for ParseChoiceError {}

impl FromStr for Choice {
    type Err = ParseChoiceError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let names: Vec<&str> = s.split(',').map(str::trim).collect();
        if names == ["list"] {
            return Ok(Self::List);
        }
        if let Some(unknown) = names.iter().find(|name| **name != "all" && by_name(name).is_none()) {
            return Err(ParseChoiceError((*unknown).to_owned()));
        }
        let asked = |name: &&str| names.contains(&"all") || names.contains(name);
        Ok(Self::These(all().iter().map(|family| family.name()).filter(asked).collect()))
    }
}

/// A family, in words.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    name: &'static str,
    decay: DecayKind,
    update: UpdateKind,
    conv_kernel: Option<usize>,
    rotated_keys: bool,
}

/// All families.
pub(super) fn list() -> Vec<Listed> {
    let listed = |family: &&'static dyn seam_algebra::Family| Listed {
        name: family.name(),
        decay: family.decay(),
        update: family.update(),
        conv_kernel: family.conv_kernel(),
        rotated_keys: family.rotated_keys(),
    };
    all().iter().map(listed).collect()
}

/// The list as text.
pub(super) fn text(list: &[Listed]) -> String {
    let mut table = Table::new(&[
        Column::Left("family"),
        Column::Left("decay"),
        Column::Left("update"),
        Column::Right("conv kernel"),
        Column::Left("keys"),
    ]);
    for family in list {
        table.row([
            family.name.to_owned(),
            format!("{:?}", family.decay).to_lowercase(),
            format!("{:?}", family.update).to_lowercase(),
            family.conv_kernel.map_or_else(|| "-".to_owned(), |kernel| kernel.to_string()),
            if family.rotated_keys { "rotated by position" } else { "-" }.to_owned(),
        ]);
    }
    format!("{}\n{}", heading("Families"), table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_chosen_by_name() {
        let parse = |s: &str| s.parse::<Choice>();
        assert_eq!(parse("list"), Ok(Choice::List));
        let every: Vec<&str> = all().iter().map(|family| family.name()).collect();
        assert_eq!(parse("all"), Ok(Choice::These(every.clone())));
        assert_eq!(parse("kda,all"), Ok(Choice::These(every)));
        assert_eq!(parse("kda, retnet,kda"), Ok(Choice::These(vec!["retnet", "kda"])));
        for (text, bad) in [("", ""), ("retnet,", ""), ("attention", "attention"), ("kda,list", "list"), ("KDA", "KDA")]
        {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("unknown family {bad:?}")), "{error}");
            assert!(error.contains("linear_attention, retnet") && error.contains("mlstm"), "{error}");
        }
    }

    #[test]
    fn the_list_has_every_family() {
        let list = list();
        let text = text(&list);
        assert!(all().iter().all(|f| text.lines().any(|l| l.split_whitespace().next() == Some(f.name()))), "{text}");
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!(json.as_array().map(Vec::len), Some(all().len()));
        assert_eq!((&json[0]["name"], &json[0]["decay"]), (&"linear_attention".into(), &"none".into()));
    }
}
