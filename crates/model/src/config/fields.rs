//! Typed access to the fields of a JSON object; every error names the path of the field.

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::limits::Limit;

/// A JSON object and where it sits.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Path prefix of the fields: empty at the top, else `text_config.` and the like.
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    /// The object at the top of `file`.
    pub(super) fn root(value: &'a Value, file: &'static str) -> Result<Self, ConfigError> {
        let prefix = if file == "config.json" { "" } else { "generation_config." };
        match value {
            Value::Object(map) => Ok(Self { map, prefix }),
            other => Err(ConfigError::WrongType { field: file.into(), expected: "an object", found: describe(other) }),
        }
    }

    /// The full path of a field.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A field that is neither absent nor null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    fn required(&self, name: &str) -> Result<&'a Value, ConfigError> {
        self.get(name).ok_or_else(|| ConfigError::Missing { field: self.path(name) })
    }

    fn wrong(&self, name: &str, expected: &'static str, found: &Value) -> ConfigError {
        ConfigError::WrongType { field: self.path(name), expected, found: describe(found) }
    }

    /// An object inside this one; `prefix` is the path of its fields.
    pub(super) fn opt_object(&self, name: &str, prefix: &'a str) -> Result<Option<Self>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Self { map, prefix })),
            Some(other) => Err(self.wrong(name, "an object", other)),
        }
    }

    /// A whole number inside `limit`.
    pub(super) fn size(&self, name: &str, limit: Limit) -> Result<usize, ConfigError> {
        self.check_size(name, self.required(name)?, limit)
    }

    /// A whole number inside `limit`, if the field is there.
    pub(super) fn opt_size(&self, name: &str, limit: Limit) -> Result<Option<usize>, ConfigError> {
        self.get(name).map(|v| self.check_size(name, v, limit)).transpose()
    }

    fn check_size(&self, name: &str, value: &Value, limit: Limit) -> Result<usize, ConfigError> {
        let Value::Number(n) = value else {
            return Err(self.wrong(name, "a whole number", value));
        };
        if n.is_f64() {
            return Err(self.wrong(name, "a whole number", value));
        }
        // A negative number has no u64 form and is out of range like one that is too large.
        match n.as_u64().and_then(|v| usize::try_from(v).ok()) {
            Some(v) if (limit.min..=limit.max).contains(&v) => Ok(v),
            _ => Err(ConfigError::OutOfRange {
                field: self.path(name),
                value: n.to_string(),
                allowed: format!("{} to {}", limit.min, limit.max),
                why: limit.why,
            }),
        }
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<f64, ConfigError> {
        self.opt_number(name)?.ok_or_else(|| ConfigError::Missing { field: self.path(name) })
    }

    /// A number, if the field is there.
    pub(super) fn opt_number(&self, name: &str) -> Result<Option<f64>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(v) => v.as_f64().map(Some).ok_or_else(|| self.wrong(name, "a number", v)),
        }
    }

    /// A truth value, if the field is there.
    pub(super) fn opt_bool(&self, name: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(other) => Err(self.wrong(name, "true or false", other)),
        }
    }

    /// A string, if the field is there.
    pub(super) fn opt_str(&self, name: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(self.wrong(name, "a string", other)),
        }
    }

    /// A list of strings, if the field is there.
    pub(super) fn opt_strings(&self, name: &str) -> Result<Option<Vec<&'a str>>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let Value::Array(items) = value else {
            return Err(self.wrong(name, "a list of strings", value));
        };
        let item = |v: &'a Value| v.as_str().ok_or_else(|| self.wrong(name, "a list of strings", v));
        items.iter().map(item).collect::<Result<_, _>>().map(Some)
    }

    /// A list of whole numbers, if the field is there.
    pub(super) fn opt_sizes(&self, name: &str) -> Result<Option<Vec<u64>>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let Value::Array(items) = value else {
            return Err(self.wrong(name, "a list of whole numbers", value));
        };
        let item = |v: &Value| v.as_u64().ok_or_else(|| self.wrong(name, "a list of whole numbers", v));
        items.iter().map(item).collect::<Result<_, _>>().map(Some)
    }

    /// Token ids below `vocab`: one number, or a list. Absent gives an empty list.
    pub(super) fn token_ids(&self, name: &str, vocab: usize) -> Result<Vec<u32>, ConfigError> {
        let limit = Limit { min: 0, max: vocab.saturating_sub(1), why: "it must be a row of the embedding" };
        let one = |v: &Value| {
            let id = self.check_size(name, v, limit)?;
            u32::try_from(id).map_err(|_| self.wrong(name, "a 32-bit token id", v))
        };
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(one).collect(),
            Some(v) => Ok(vec![one(v)?]),
        }
    }
}

/// The kind of a value and, where it is short, the value.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => format!("the truth value {b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => format!("the string {:?}", s.chars().take(64).collect::<String>()),
        Value::Array(a) => format!("a list of {}", a.len()),
        Value::Object(_) => "an object".into(),
    }
}
