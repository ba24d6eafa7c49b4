//! Random bytes from the operating system, for secrets and ids.

use std::io;

/// Random bytes, suitable for secrets.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Random bytes as hexadecimal digits, two per byte.
pub fn hex<const N: usize>() -> io::Result<String> {
    Ok(bytes::<N>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ() {
        let (one, two) = (hex::<16>().unwrap(), hex::<16>().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, two);
    }
}
