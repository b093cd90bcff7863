//! Plans: what a request or a cold segment computes, reuses and in which order.

use std::sync::Arc;

use crate::policy::{Mode, Policy, Role, StorageForm};
use crate::resident::Resident;
use crate::sequence::{Carry, Item};

/// A cached segment of a request, as the plan sees it.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// Its entry; `None` if it is computed (no entry for it, or it is shorter than the seam).
    pub entry: Option<Arc<Resident>>,
}

/// The items of a cold segment that is computed alone, from position 0 and the zero state.
///
/// `policy` is the one of the segment's role. The operator begins after the seam; a form without T runs through.
#[must_use]
pub fn cold(tokens: &[u32], policy: &Policy) -> Vec<Item> {
    let rows = |tokens: &[u32]| Item::Rows { tokens: tokens.to_vec(), origin: 0, logits_from: tokens.len() };
    let (seam, interior) = tokens.split_at((policy.seam as usize).min(tokens.len()));
    let mut items = Vec::new();
    match policy.form {
        StorageForm::EndState => items.push(rows(tokens)),
        StorageForm::Operator => {
            if !seam.is_empty() {
                items.push(rows(seam));
            }
            items.push(Item::Begin);
            items.push(rows(interior));
        }
    }
    items
}

/// The items of a request: the parts in order, then the query, whose tokens from `logits_from` on want logits.
///
/// `full` computes everything as one run. Otherwise a part with an entry contributes its seam as rows and its stored
/// part as a reuse; a part without one is computed as rows.
#[must_use]
pub fn request(parts: &[Part<'_>], query: &[u32], mode: Mode, logits_from: usize) -> Vec<Item> {
    let carry = match mode {
        Mode::Full => {
            let mut tokens: Vec<u32> = parts.iter().flat_map(|p| p.tokens).copied().collect();
            let logits_from = tokens.len() + logits_from;
            tokens.extend(query);
            return vec![Item::Rows { tokens, origin: 0, logits_from }];
        }
        Mode::Transition => Carry::Operator,
        Mode::Addition => Carry::All,
        Mode::LastState => Carry::Nothing,
    };
    let mut items = Vec::new();
    let mut origin = 0u32;
    for (i, part) in parts.iter().enumerate() {
        let rows = |tokens: &[u32]| Item::Rows { tokens: tokens.to_vec(), origin, logits_from: tokens.len() };
        match &part.entry {
            Some(entry) => {
                let seam = &part.tokens[..(entry.seam as usize).min(part.tokens.len())];
                if !seam.is_empty() {
                    items.push(rows(seam));
                }
                // Nothing precedes the head, so its end state replaces the zero state in every mode.
                let carry = if Role::of(i) == Role::Head { Carry::Nothing } else { carry };
                items.push(Item::Reuse { entry: Arc::clone(entry), origin, carry });
            }
            None if part.tokens.is_empty() => {}
            None => items.push(rows(part.tokens)),
        }
        origin += part.tokens.len() as u32;
    }
    items.push(Item::Rows { tokens: query.to_vec(), origin, logits_from });
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKey;

    fn entry(tokens: u32, seam: u32) -> Option<Arc<Resident>> {
        Some(Arc::new(Resident {
            key: EntryKey([0; 32]),
            tokens,
            seam,
            transition: seam > 0,
            kv: Vec::new(),
            operator: None,
            bytes: 0,
        }))
    }

    /// Items in short: computed tokens, reused tokens in brackets.
    fn show(items: &[Item]) -> String {
        let one = |item: &Item| match item {
            Item::Rows { tokens, origin, .. } => format!("{}@{origin}", tokens.len()),
            Item::Reuse { entry, origin, carry } => format!("[{}@{origin} {carry:?}]", entry.stored()),
            Item::Begin => "begin".to_owned(),
        };
        items.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_request_computes_seams_and_query_only() {
        let (head, long, short) = ([1; 5], [2; 20], [3; 4]);
        let parts = [
            Part { tokens: &head, entry: entry(5, 0) },
            Part { tokens: &long, entry: entry(20, 8) },
            Part { tokens: &short, entry: None },
            Part { tokens: &long, entry: entry(20, 8) },
        ];
        let plan = |mode| show(&request(&parts, &[9; 3], mode, 2));
        assert_eq!(plan(Mode::Transition), "[5@0 Nothing] 8@5 [12@5 Operator] 4@25 8@29 [12@29 Operator] 3@49");
        assert_eq!(plan(Mode::Addition).matches("All").count(), 2);
        assert_eq!(plan(Mode::LastState).matches("Nothing").count(), 3);
        assert_eq!(plan(Mode::Full), "52@0");
        let Some(Item::Rows { logits_from, .. }) = request(&parts, &[9; 3], Mode::Full, 2).pop() else {
            panic!("full is rows")
        };
        assert_eq!(logits_from, 51, "counted from the start of the rows");
    }

    #[test]
    fn a_cold_segment_begins_its_operator_after_the_seam() {
        let policy = |seam, form| Policy { seam, form, ..Policy::default() };
        assert_eq!(show(&cold(&[1; 20], &policy(8, StorageForm::Operator))), "8@0 begin 12@0");
        assert_eq!(show(&cold(&[1; 20], &policy(0, StorageForm::Operator))), "begin 20@0");
        assert_eq!(show(&cold(&[1; 20], &policy(8, StorageForm::EndState))), "20@0");
    }
}
