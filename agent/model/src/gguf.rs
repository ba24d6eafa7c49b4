//! Parses the header of a GGUF file without llama.cpp: the model's properties and the end of its
//! data. Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The header of a model file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GgufHeader {
    /// `general.name`, or the architecture if absent.
    pub name: String,
    /// `general.architecture`.
    pub architecture: String,
    /// Number of elements of all tensors.
    pub parameters: u64,
    /// Context length of the training.
    pub context: u64,
    /// Size of the KV cache of one token in bytes, with keys and values as 16-bit floats.
    pub kv_bytes: u64,
    /// Dimension of a token's last state; 0 if the file does not specify it.
    pub dimension: u64,
    /// The chat template; base models have none.
    pub template: Option<String>,
    /// Minimum length of the file in bytes.
    pub length: u64,
}

/// Why a file is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadFile {
    /// It is not a GGUF file.
    #[error("it does not begin with `GGUF`, so it is not a model file")]
    Magic,
    /// Its version is unknown.
    #[error("it is GGUF version {0}; versions 2 and 3 are known")]
    Version(u32),
    /// It ends within its header, or its header is invalid.
    #[error("its head is damaged: {0}")]
    Damaged(String),
    /// It cannot be read.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for BadFile {
    fn from(error: io::Error) -> BadFile {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => BadFile::Damaged("the file ends within it".into()),
            io::ErrorKind::InvalidData => BadFile::Damaged(error.to_string()),
            _ => BadFile::Io(error),
        }
    }
}

/// A value of the header; arrays are skipped, since they are not needed.
enum Value {
    Number(u64),
    Text(String),
    Other,
}

const STRING_LIMIT: u64 = 16 << 20;
const COUNT_LIMIT: u64 = 1 << 20;

/// Reads the header of a model file.
pub(crate) fn read(path: &Path) -> Result<GgufHeader, BadFile> {
    let mut reader = Reader { inner: BufReader::new(File::open(path)?), offset: 0 };
    let mut magic = [0; 4];
    if reader.fill(&mut magic).is_err() || &magic != b"GGUF" {
        return Err(BadFile::Magic);
    }
    let version = reader.u32()?;
    if !(2..=3).contains(&version) {
        return Err(BadFile::Version(version));
    }
    let tensors = reader.count()?;
    let pairs = reader.count()?;
    let mut values = HashMap::new();
    for _ in 0..pairs {
        let key = reader.text()?;
        let kind = reader.u32()?;
        values.insert(key, reader.value(kind, 0)?);
    }
    let mut parameters = 0u64;
    let mut data = 0u64;
    for _ in 0..tensors {
        let tensor = reader.tensor()?;
        parameters = parameters.saturating_add(tensor.elements);
        data = data.max(tensor.offset.saturating_add(tensor.bytes));
    }
    let alignment = number(&values, "general.alignment").unwrap_or(32).max(1);
    let start = reader.offset.div_ceil(alignment).saturating_mul(alignment);
    Ok(head(&values, parameters, start.saturating_add(data)))
}

fn head(values: &HashMap<String, Value>, parameters: u64, length: u64) -> GgufHeader {
    let architecture = text(values, "general.architecture").unwrap_or_default();
    let of = |key: &str| number(values, &format!("{architecture}.{key}"));
    let heads = of("attention.head_count").unwrap_or(1).max(1);
    let width = of("embedding_length").unwrap_or(0) / heads;
    let key = of("attention.key_length").unwrap_or(width);
    let value = of("attention.value_length").unwrap_or(width);
    let kv_heads = of("attention.head_count_kv").unwrap_or(heads);
    GgufHeader {
        name: text(values, "general.name").unwrap_or_else(|| architecture.clone()),
        parameters,
        context: of("context_length").unwrap_or(2048),
        kv_bytes: of("block_count").unwrap_or(0) * kv_heads * (key + value) * 2,
        dimension: of("embedding_length_out").or(of("embedding_length")).unwrap_or(0),
        template: text(values, "tokenizer.chat_template"),
        length,
        architecture,
    }
}

fn number(values: &HashMap<String, Value>, key: &str) -> Option<u64> {
    match values.get(key)? {
        Value::Number(number) => Some(*number),
        Value::Text(_) | Value::Other => None,
    }
}

fn text(values: &HashMap<String, Value>, key: &str) -> Option<String> {
    match values.get(key)? {
        Value::Text(text) => Some(text.clone()),
        Value::Number(_) | Value::Other => None,
    }
}

struct Tensor {
    elements: u64,
    offset: u64,
    bytes: u64,
}

struct Reader {
    inner: BufReader<File>,
    offset: u64,
}

impl Reader {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.inner.by_ref().take(bytes), &mut io::sink())?;
        self.offset += skipped;
        if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn count(&mut self) -> io::Result<u64> {
        let count = self.u64()?;
        if count > COUNT_LIMIT { Err(invalid("a count is too large")) } else { Ok(count) }
    }

    fn text(&mut self) -> io::Result<String> {
        let length = self.u64()?;
        if length > STRING_LIMIT {
            return Err(invalid("a string is too long"));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a value. The numbers of the types are those of the format.
    fn value(&mut self, kind: u32, depth: u32) -> io::Result<Value> {
        if let Some(width) = width(kind) {
            let mut bytes = [0; 8];
            self.fill(&mut bytes[..width])?;
            let float = matches!(kind, 6 | 12);
            let number = u64::from_le_bytes(bytes);
            return Ok(if float { Value::Other } else { Value::Number(number) });
        }
        match kind {
            8 => Ok(Value::Text(self.text()?)),
            9 if depth < 4 => {
                let inner = self.u32()?;
                let count = self.u64()?;
                self.skip_array(inner, count, depth)?;
                Ok(Value::Other)
            }
            _ => Err(invalid("a value of unknown kind")),
        }
    }

    fn skip_array(&mut self, inner: u32, count: u64, depth: u32) -> io::Result<()> {
        if let Some(width) = width(inner) {
            return self.skip(count.saturating_mul(width as u64));
        }
        for _ in 0..count {
            if inner == 8 {
                let length = self.u64()?;
                self.skip(length)?;
            } else {
                self.value(inner, depth + 1)?;
            }
        }
        Ok(())
    }

    fn tensor(&mut self) -> io::Result<Tensor> {
        self.text()?;
        let dimensions = self.u32()?;
        if dimensions > 8 {
            return Err(invalid("a tensor of too many dimensions"));
        }
        let mut elements = 1u64;
        for _ in 0..dimensions {
            elements = elements.saturating_mul(self.u64()?);
        }
        let kind = self.u32()?;
        let offset = self.u64()?;
        // A type newer than this table counts as empty, so that only the start of the tensor is
        // checked.
        let (block, size) = block(kind).unwrap_or((1, 0));
        Ok(Tensor { elements, offset, bytes: elements.div_ceil(block).saturating_mul(size) })
    }
}

/// Returns the size in bytes of a fixed-size value.
fn width(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Returns the elements and bytes of a block of a tensor type (`ggml_type` in ggml.h).
fn block(kind: u32) -> Option<(u64, u64)> {
    let known = match kind {
        0 | 26 => (1, 4),
        1 | 25 | 30 => (1, 2),
        24 => (1, 1),
        27 | 28 => (1, 8),
        2 | 20 => (32, 18),
        3 => (32, 20),
        6 => (32, 22),
        7 => (32, 24),
        8 => (32, 34),
        9 => (32, 36),
        10 => (256, 84),
        11 | 21 => (256, 110),
        12 => (256, 144),
        13 => (256, 176),
        14 => (256, 210),
        23 => (256, 136),
        _ => return None,
    };
    Some(known)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
