//! The catalogue of local models, and the directory of model files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, OrFail, Result};

/// A model of the catalogue. All may be used and redistributed freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueModel {
    /// The name in the catalogue.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The file's name.
    pub file: &'static str,
    /// The URL of its publisher.
    pub url: &'static str,
    /// The size in bytes.
    pub bytes: u64,
    /// The SHA-256 in hexadecimal: a file with another one is rejected.
    pub sha256: &'static str,
    /// The SPDX identifier of the licence.
    pub licence: &'static str,
}

/// The default model.
pub const DEFAULT: &str = "qwen2.5-coder-1.5b";

/// All models of the catalogue.
pub const ENTRIES: &[CatalogueModel] = &[
    CatalogueModel {
        name: DEFAULT,
        about: "Qwen2.5-Coder 1.5B Instruct, Q4_K_M; needs 3 GB of memory",
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        url: "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence: "Apache-2.0",
    },
    CatalogueModel {
        name: "qwen2.5-coder-0.5b",
        about: "Qwen2.5-Coder 0.5B Instruct, Q4_K_M; needs 1.5 GB of memory, for trying things out",
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        url: "https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence: "Apache-2.0",
    },
];

/// An installed model file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstalledModel {
    /// The name: the catalogue's, else the file's without `.gguf`.
    pub name: String,
    /// The path.
    pub path: PathBuf,
    /// The size in bytes.
    pub bytes: u64,
}

/// Returns the catalogue entry with this name.
pub fn entry(name: &str) -> Option<&'static CatalogueModel> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// Returns the directory of model files: `$G3_MODELS`, else `~/.g3/models`.
pub fn directory() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(models) = variable("G3_MODELS") {
        return Ok(PathBuf::from(models));
    }
    let home = variable("HOME").ok_or_else(|| {
        Failure::usage("no directory for model files").because("neither G3_MODELS nor HOME is set")
    })?;
    Ok(Path::new(&home).join(".g3/models"))
}

/// Returns the installed model files, by name.
pub fn installed() -> Result<Vec<InstalledModel>> {
    let directory = directory()?;
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).or_fail(|| format!("cannot read {}", directory.display())),
    };
    let mut installed: Vec<InstalledModel> =
        entries.flatten().filter_map(|entry| installed_model(&entry.path())).collect();
    installed.sort();
    Ok(installed)
}

fn installed_model(path: &Path) -> Option<InstalledModel> {
    let file = path.file_name()?.to_str()?;
    let stem = file.strip_suffix(".gguf")?;
    let name = ENTRIES.iter().find(|entry| entry.file == file).map_or(stem, |entry| entry.name);
    // Follows links: `add` creates them.
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(InstalledModel { name: name.to_owned(), path: path.to_owned(), bytes: meta.len() })
}

/// Returns the file of an installed model.
pub fn find(name: &str) -> Result<PathBuf> {
    let installed = installed()?;
    if let Some(model) = installed.iter().find(|installed| installed.name == name) {
        return Ok(model.path.clone());
    }
    let failure = Failure::usage(format!("the local model `{name}` is not on this machine"))
        .because(format!("no such file in {}", directory()?.display()));
    let failure = match (entry(name), nearest(name)) {
        (Some(entry), _) => failure.hint(format!("g3 model pull {}", entry.name)),
        (None, Some(similar)) => failure.hint(format!("did you mean `{similar}`? g3 model list")),
        (None, None) => failure.hint("g3 model list"),
    };
    Err(failure
        .hint("g3 model add FILE --name NAME")
        .hint("or use a hosted model: set ANTHROPIC_API_KEY or OPENAI_API_KEY"))
}

fn nearest(name: &str) -> Option<&'static str> {
    crate::text::similar(name, ENTRIES.iter().map(|entry| entry.name)).first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_and_has_a_checksum() {
        for entry in ENTRIES {
            assert_eq!(super::entry(entry.name), Some(entry));
            assert!(entry.sha256.len() == 64 && entry.url.ends_with(entry.file));
        }
        assert!(super::entry(DEFAULT).is_some());
    }
}
