//! Copies this program to a host, once for each version.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base::failure::{Failure, OrFail, Result};
use base::process::{OutputLimits, Stream};
use sha2::{Digest, Sha256};

use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError};

/// Timeout of copying a program, in seconds.
const COPY_SECONDS: u64 = 1800;

/// Returns the path of the program at the hosts of a place: the configured one, else that of a copy of
/// this program, which has its digest in its name.
pub(crate) fn program_path(place: &Place) -> Result<String> {
    match &place.config.binary {
        Some(path) => Ok(path.clone()),
        None => Ok(format!("{}/studio", directory(place)?)),
    }
}

fn directory(place: &Place) -> Result<String> {
    // A process that waits for a job asks for this again and again.
    static DIGEST: OnceLock<String> = OnceLock::new();
    let digest = match DIGEST.get() {
        Some(digest) => digest,
        None => {
            let digest = digest(&own_program()?)?;
            DIGEST.get_or_init(|| digest)
        }
    };
    Ok(format!("{}/bin/{}", place.config.spool_path(), &digest[..16]))
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().or_fail(|| "cannot find this program")
}

fn digest(path: &Path) -> Result<String> {
    let fail = || format!("cannot read {}", path.display());
    let (mut file, mut hash) = (File::open(path).or_fail(fail)?, Sha256::new());
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).or_fail(fail)? {
            0 => return Ok(base::text::hex(&hash.finalize())),
            bytes => hash.update(&block[..bytes]),
        }
    }
}

/// Copies this program to a host.
pub(crate) fn install_studio(host: &Host, place: &Place) -> Result<()> {
    if let Some(path) = &place.config.binary {
        return Err(Failure::usage(format!("{path} cannot be run on {}", host.name))
            .because(format!("[studio.places.{}] binary names it", place.name))
            .hint("install studio there, or remove `binary`: then this program is copied"));
    }
    install(host, place, &own_program()?, "studio")
}

/// Copies g3 to a host, beside studio.
pub(crate) fn install_g3(host: &Host, place: &Place) -> Result<()> {
    let g3 = base::process::sibling_program("g3").or_else(|| base::process::find_program("g3"));
    let g3 = g3.ok_or_else(|| {
        Failure::usage("g3 was not found, so it cannot be copied")
            .hint(format!("install g3 on {}, in PATH", host.name))
    })?;
    install(host, place, &g3, "g3")
}

fn install(host: &Host, place: &Place, program: &Path, name: &str) -> Result<()> {
    let spool = place.config.spool_path();
    let (bin, directory) = (format!("{spool}/bin"), directory(place)?);
    let nonce = base::random::hex::<8>().or_fail(|| "no random bytes")?;
    let temporary = format!("{directory}/.{name}-{nonce}");
    let target = format!("{directory}/{name}");
    let fail = |error: HostError| error.into_failure(host);
    let make = ["mkdir", "-p", "-m", "700", spool, &bin, &directory];
    host.run(host.command(make)).map_err(fail)?;
    let file = File::open(program).or_fail(|| format!("cannot read {}", program.display()))?;
    let output_file = format!("of={temporary}");
    let copy = host.command(["dd", &output_file]).stdin(Stream::File(file));
    host.checked(copy.output(OutputLimits::seconds(COPY_SECONDS))).map_err(fail)?;
    host.run(host.command(["chmod", "700", &temporary])).map_err(fail)?;
    host.run(host.command(["mv", "-f", &temporary, &target])).map_err(fail)?;
    Ok(())
}
