//! Random bytes from the operating system.

use std::io;

/// Returns cryptographically secure random bytes.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Returns random bytes as hexadecimal digits, two for each byte.
pub fn hex<const N: usize>() -> io::Result<String> {
    Ok(crate::text::hex(&bytes::<N>()?))
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
