//! The documents and questions of the demo.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The built-in world: the documents of prompt 429 (from 0) of the evaluation set of `tiny_qwen35`. "Who founded …" is that
/// prompt's question; the set's generator made the others from the same documents. They were chosen by outcome: all are
/// right in full, all but the last right spliced (cpu, seam 8).
const BUILT_IN: &str = include_str!("../../../demo/world.json");

/// Documents, and questions over them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct World {
    /// The system text.
    pub(super) system: String,
    /// The documents.
    pub(super) documents: Vec<String>,
    /// The questions.
    pub(super) questions: Vec<Question>,
}

/// A question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    /// The documents in the order in which this prompt has them, by index.
    pub(super) order: Vec<usize>,
    /// The question.
    pub(super) question: String,
    /// The answer by the documents.
    pub(super) answer: String,
}

impl World {
    /// The built-in one.
    ///
    /// # Errors
    /// Never, as a test sees to.
    pub(super) fn built_in() -> Result<Self> {
        Self::parse(BUILT_IN).context("the built-in documents")
    }

    fn parse(json: &str) -> Result<Self> {
        let world: Self = serde_json::from_str(json)?;
        let n = world.documents.len();
        ensure!((1..=26).contains(&n) && !world.questions.is_empty(), "no documents, no questions, or too many");
        for q in &world.questions {
            let mut sorted = q.order.clone();
            sorted.sort_unstable();
            ensure!(
                sorted.iter().copied().eq(0..n),
                "{:?}: the order {:?} is none of {n} documents",
                q.question,
                q.order
            );
        }
        Ok(world)
    }

    /// The name of a document: A, B, C, …
    pub(super) fn name(index: usize) -> String {
        u8::try_from(index)
            .ok()
            .filter(|i| *i < 26)
            .map_or_else(|| index.to_string(), |i| char::from(b'A' + i).to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_built_in_world_has_several_orders_and_its_answers_stand_in_the_documents() {
        let world = World::built_in().unwrap();
        let orders: BTreeSet<_> = world.questions.iter().map(|q| q.order.clone()).collect();
        assert!(world.documents.len() >= 3 && orders.len() >= 4, "{orders:?}");
        let text = world.documents.concat();
        let stated = world.questions.iter().filter(|q| text.contains(&q.answer)).count();
        assert!(stated * 2 > world.questions.len(), "most answers are read, not counted or compared");
    }

    #[test]
    fn an_order_must_name_each_document_once() {
        let world = |order: &str| {
            format!(
                r#"{{"system":"","documents":["a","b"],"questions":[{{"order":{order},"question":"q","answer":"x"}}]}}"#
            )
        };
        assert!(World::parse(&world("[1,0]")).is_ok());
        for bad in ["[0]", "[0,0]", "[0,2]", "[0,1,1]"] {
            assert!(World::parse(&world(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn documents_are_named_by_letters() {
        assert_eq!([0, 3, 25, 26].map(World::name), ["A", "D", "Z", "26"]);
    }
}
