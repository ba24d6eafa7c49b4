//! GPUs in a sandbox: their devices, by name.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::SandboxRules;

/// The devices of AMD, the directory of those of all vendors, and the one of WSL.
const NAMES: &[&str] = &["kfd", "dri", "dxg"];
/// The beginning of the names of NVIDIA's: `nvidia0`, `nvidiactl`, `nvidia-uvm`, the directory
/// `nvidia-caps`.
const NVIDIA_PREFIX: &str = "nvidia";

impl SandboxRules {
    /// Opens the GPUs of this machine.
    pub fn open_gpus(&mut self) {
        self.gpu = true;
        self.write.extend(devices(Path::new("/dev")));
    }
}

/// Returns the devices of GPUs in a directory of devices.
fn devices(dev: &Path) -> Vec<PathBuf> {
    let is_gpu = |name: &OsStr| {
        let name = name.to_string_lossy();
        NAMES.contains(&&*name) || name.starts_with(NVIDIA_PREFIX)
    };
    let names = fs::read_dir(dev).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut devices: Vec<PathBuf> =
        names.filter(|name| is_gpu(name)).map(|name| dev.join(name)).collect();
    devices.sort();
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_gpus_are_found_by_name() {
        let dev = tempfile::tempdir().expect("a directory");
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "kfd", "dxg", "sda", "kmsg"] {
            fs::write(dev.path().join(name), "").expect("writable");
        }
        for name in ["nvidia-caps", "dri", "disk"] {
            fs::create_dir(dev.path().join(name)).expect("writable");
        }
        let found = devices(dev.path());
        let names: Vec<_> = found.iter().map(|path| path.file_name().expect("a name")).collect();
        let expected =
            ["dri", "dxg", "kfd", "nvidia-caps", "nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"];
        assert_eq!(names, expected);
    }
}
