//! A model that is ready: engine, tokenizer, the form of its prompts.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use seam_device::Device;
use seam_engine::{Engine, EngineOptions};
use seam_model::text::{SegmentFormat, Tokenizer};
use serde::Serialize;

use crate::locate::check_model;
use crate::report::{Progress, clean};

/// A device in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeviceInfo {
    /// cpu or wgpu.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
    /// Its driver.
    pub(crate) driver: String,
}

impl DeviceInfo {
    /// Of a device.
    pub(crate) fn of(device: &dyn Device) -> Self {
        let caps = device.caps();
        Self { kind: caps.kind.to_string(), name: caps.name.clone(), driver: caps.driver.clone() }
    }
}

/// A model on a device.
pub(crate) struct Loaded {
    /// The engine.
    pub(crate) engine: Engine,
    /// The tokenizer.
    pub(crate) tokenizer: Tokenizer,
    /// How segments are marked.
    pub(crate) format: SegmentFormat,
}

impl Loaded {
    /// Loads the model in `dir`.
    ///
    /// # Errors
    /// What is wrong with the folder, named.
    pub(crate) fn open(device: &Arc<dyn Device>, dir: &Path, options: EngineOptions) -> Result<Self> {
        check_model(dir)?;
        let context = || format!("cannot load the model {}", dir.display());
        let progress = Progress::spinner("loading the model");
        let tokenizer = Tokenizer::from_dir(dir).with_context(context)?;
        let engine = Engine::load(Arc::clone(device), dir, options).with_context(context)?;
        tokenizer.check_vocab(engine.runner().spec().vocab as usize).with_context(context)?;
        drop(progress);
        let format = SegmentFormat::detect(&tokenizer);
        Ok(Self { engine, tokenizer, format })
    }

    /// Ids that end an answer.
    pub(crate) fn stop(&self) -> Vec<u32> {
        self.engine.runner().config().eos.clone()
    }

    /// The question as it stands in a prompt. Models with the marked format were trained on `Question: … Answer:`.
    pub(crate) fn question(&self, text: &str) -> String {
        match &self.format {
            SegmentFormat::Marked { .. } if !text.trim_start().starts_with("Question:") => {
                format!("Question: {} Answer:", text.trim())
            }
            _ => text.to_owned(),
        }
    }

    /// The text of an answer, fit for a terminal.
    pub(crate) fn text(&self, tokens: &[u32]) -> String {
        let mut stream = self.tokenizer.decode_stream(true);
        let mut text: String = tokens.iter().filter_map(|&t| stream.push(t)).collect();
        text.extend(stream.flush());
        clean(&text)
    }
}
