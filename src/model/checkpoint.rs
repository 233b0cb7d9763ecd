//! A checkpoint: the files of one model (or of one adapter), as far as their headers describe them. It holds no weights.
//!
//! ```
//! use ternlight::formats::Parsed;
//! use ternlight::model::{Checkpoint, Options};
//!
//! let file = std::fs::read("tests/golden/gguf/llama_f32.F32.gguf")?;
//! let total = file.len() as u64;
//!
//! // A host begins with a few bytes and reads as many more as the parser asks for.
//! let mut checkpoint = Checkpoint::new();
//! let mut have = 256;
//! while let Parsed::Need(bytes) = checkpoint.parse(0, total, &file[..have])? {
//!     have = bytes as usize;
//! }
//!
//! assert_eq!(checkpoint.config()?.architecture, "llama");
//! let plan = checkpoint.plan(Options::default())?;
//! assert!(plan.memory().weights > 0 && have < file.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use litemap::LiteMap;

use super::adapter;
use super::config::{Config, Terms};
use super::options::Options;
use super::plan::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::formats::gguf::Metadata;
use crate::formats::{Format, Parsed, Tensor, gguf, safetensors, shards};

/// The parsed headers of a model's files. The caller numbers the files, from 0 on.
#[derive(Debug, Default)]
pub struct Checkpoint {
    files: LiteMap<usize, File>,
    config: Option<Vec<u8>>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct File {
    /// Only a GGUF has metadata.
    metadata: Option<Metadata>,
    /// Shared with every plan that is made of this checkpoint, because a table has thousands of entries.
    tensors: Vec<Arc<Tensor>>,
}

impl Checkpoint {
    /// A checkpoint without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the beginning of file number `file`, which has `total` bytes. [`Parsed::Need`] says how many bytes from the start of
    /// the file the next call must bring; after [`Parsed::Done`] the file is part of the checkpoint, in place of any that had its number.
    ///
    /// # Errors
    /// An error of the header, with the tensor, key or offset at fault; [`ErrorKind::BadMagic`] for a file of another format.
    pub fn parse(&mut self, file: usize, total: u64, prefix: &[u8]) -> Result<Parsed<()>> {
        let format = match Format::sniff(prefix, total)? {
            Parsed::Done(format) => format,
            Parsed::Need(bytes) => return Ok(Parsed::Need(bytes)),
        };
        let (metadata, tensors) = match format {
            Format::Gguf => match gguf::parse(prefix, total)? {
                Parsed::Need(bytes) => return Ok(Parsed::Need(bytes)),
                Parsed::Done(parsed) => (Some(parsed.metadata), parsed.tensors),
            },
            Format::Safetensors => match safetensors::parse(prefix, total)? {
                Parsed::Need(bytes) => return Ok(Parsed::Need(bytes)),
                Parsed::Done(parsed) => (None, parsed.tensors),
            },
        };
        let tensors = tensors.into_iter().map(|tensor| Arc::new(Tensor { file, ..tensor })).collect();
        self.files.insert(file, File { metadata, tensors });
        Ok(Parsed::Done(()))
    }

    /// Adds the text of the `config.json` (of an adapter: the `adapter_config.json`) that belongs to safetensors files.
    pub fn set_config(&mut self, json: Vec<u8>) {
        self.config = Some(json);
    }

    /// Compares file number `file` with the names of the tensors that an index file promises. A tensor that the index does not list
    /// becomes a warning of the plan.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] if the file lacks a promised tensor.
    pub fn check_index(&mut self, file: usize, names: &[String]) -> Result<()> {
        let tensors = self.files.get(&file).map_or(&[][..], |file| &file.tensors);
        self.warnings.extend(shards::check_index(tensors, names)?);
        Ok(())
    }

    /// The container of the files.
    pub fn format(&self) -> Format {
        let gguf = self.files.values().any(|file| file.metadata.is_some());
        if gguf { Format::Gguf } else { Format::Safetensors }
    }

    /// The number of the file that has the model's metadata.
    ///
    /// # Errors
    /// An error if the files are not one model: shards that are missing or given twice, mixed formats, a tensor in two files.
    pub fn first_file(&self) -> Result<usize> {
        let shards: Vec<shards::Shard> =
            self.files.values().filter_map(|file| Some((file.metadata.as_ref()?, file.tensors.len()))).collect();
        if !shards.is_empty() && shards.len() < self.files.len() {
            return Err(Error::new(ErrorKind::BadHeader, "GGUF and safetensors are not parts of one model"));
        }
        let first = if shards.is_empty() { 0 } else { shards::first_shard(&shards)? };
        shards::refuse_twice(self.files.values().flat_map(|file| &file.tensors).map(|tensor| &**tensor))?;
        Ok(self.files.keys().nth(first).copied().unwrap_or(0))
    }

    /// The metadata of a GGUF; `None` for safetensors.
    ///
    /// # Errors
    /// As [`Self::first_file`].
    pub fn metadata(&self) -> Result<Option<&Metadata>> {
        Ok(self.files.get(&self.first_file()?).and_then(|file| file.metadata.as_ref()))
    }

    /// The architecture and its sizes, from a GGUF's metadata or from the `config.json`.
    ///
    /// # Errors
    /// As [`Self::first_file`], and an error that names the key whose value is missing, wrong or not supported.
    pub fn config(&self) -> Result<Config> {
        match (self.metadata()?, &self.config) {
            (Some(metadata), _) => {
                let embedding = self.tensors().find(|tensor| tensor.name == "token_embd.weight");
                Config::from_gguf(metadata, embedding.and_then(|tensor| tensor.shape.first().copied()))
            }
            (None, Some(json)) => Config::from_json(json),
            (None, None) => {
                let reason = "safetensors need a config.json beside them";
                Err(Error::new(ErrorKind::MissingKey, reason).file("config.json"))
            }
        }
    }

    /// Plans a load. The plan shares the descriptions of the tensors with this checkpoint and outlives it.
    ///
    /// # Errors
    /// As [`Self::config`] and [`Plan::new`].
    pub fn plan(&self, options: Options) -> Result<Plan> {
        let tensors: Vec<Arc<Tensor>> = self.tensors().cloned().collect();
        let mut plan = Plan::new(self.config()?, &tensors, options)?;
        plan.warnings.extend(self.warnings.iter().cloned());
        Ok(plan)
    }

    /// Begins to load an adapter for a model of this configuration.
    ///
    /// # Errors
    /// An error if the files hold no adapter, or one for another architecture or of other shapes.
    pub fn adapter(&self, base: &Config) -> Result<adapter::Loader> {
        let terms = match (self.metadata()?, &self.config) {
            (Some(metadata), _) => Terms::from_gguf(metadata, base)?,
            (None, text) => Terms::from_peft(text.as_deref().unwrap_or_default())?,
        };
        adapter::Loader::new(base, &terms, self.tensors().cloned().collect())
    }

    fn tensors(&self) -> impl Iterator<Item = &Arc<Tensor>> {
        self.files.values().flat_map(|file| &file.tensors)
    }
}
