//! The server name in the first message of a TLS connection (RFC 8446, section 4.1.2; RFC 6066,
//! section 3).

/// Maximum size of a first message, in bytes. Those of browsers and of post-quantum key exchanges
/// are below 4 KiB.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FirstMessage {
    /// The start of a TLS message: more bytes are needed.
    Incomplete,
    /// A TLS connection to the server with this name; `None` if it names no server.
    Tls(Option<String>),
    /// Not a TLS connection.
    Other,
}

/// Reads the first bytes of a connection.
pub(crate) fn read(bytes: &[u8]) -> FirstMessage {
    let mut message = Vec::new();
    let mut rest = bytes;
    // A message may be split into several records.
    loop {
        let [kind, major, _, high, low, body @ ..] = rest else {
            let is_start = rest.first().is_none_or(|kind| *kind == 0x16);
            return if is_start { FirstMessage::Incomplete } else { FirstMessage::Other };
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != 0x16 || *major != 3 || length == 0 {
            return FirstMessage::Other;
        }
        let Some(part) = body.get(..length) else {
            return match message.first().or(body.first()) {
                Some(1) | None if bytes.len() < MAX_BYTES => FirstMessage::Incomplete,
                _ => FirstMessage::Other,
            };
        };
        message.extend_from_slice(part);
        rest = &body[length..];
        let [kind, a, b, c, hello @ ..] = message.as_slice() else { continue };
        if *kind != 1 {
            return FirstMessage::Other;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        match hello.get(..length) {
            Some(hello) => return FirstMessage::Tls(server_name(hello)),
            None if length > MAX_BYTES => return FirstMessage::Other,
            None => {}
        }
    }
}

/// The bytes of a message that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn vector(&mut self, length_bytes: usize) -> Option<Reader<'a>> {
        let length = self.number(length_bytes)?;
        self.take(length).map(Reader)
    }
}

/// Returns the only server name of a ClientHello. A message with several is not accepted.
fn server_name(hello: &[u8]) -> Option<String> {
    let mut hello = Reader(hello);
    hello.take(2 + 32)?;
    hello.vector(1)?;
    hello.vector(2)?;
    hello.vector(1)?;
    let mut extensions = hello.vector(2)?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, mut extension) = (extensions.number(2)?, extensions.vector(2)?);
        if kind != 0 {
            continue;
        }
        let mut names = extension.vector(2)?;
        let (name_kind, name) = (names.number(1)?, names.vector(2)?);
        if found.is_some() || name_kind != 0 || !names.0.is_empty() || !extension.0.is_empty() {
            return None;
        }
        found = Some(String::from_utf8(name.0.to_vec()).ok()?.to_ascii_lowercase());
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a ClientHello with these server names.
    pub(crate) fn client_hello(names: &[&str]) -> Vec<u8> {
        let with_length = |bytes: &[u8]| {
            let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            [&length[..], bytes].concat()
        };
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4];
        for name in names {
            let entry = [&[0][..], &with_length(name.as_bytes())].concat();
            extensions.extend([0, 0]);
            extensions.extend(with_length(&with_length(&entry)));
        }
        let mut hello = vec![3, 3];
        hello.extend([7; 32]);
        hello.push(0);
        hello.extend([0, 2, 0x13, 1, 1, 0]);
        hello.extend(with_length(&extensions));
        let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
        let message = [&[1][..], &length[1..], &hello].concat();
        [&[0x16, 3, 1][..], &with_length(&message)].concat()
    }

    #[test]
    fn the_server_name_is_found() {
        let tls = |name: &str| FirstMessage::Tls(Some(name.to_owned()));
        assert_eq!(read(&client_hello(&["Example.com"])), tls("example.com"));
        assert_eq!(read(&client_hello(&[])), FirstMessage::Tls(None));
        assert_eq!(read(&client_hello(&["a.com", "b.com"])), FirstMessage::Tls(None));
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), FirstMessage::Other);
        assert_eq!(read(b""), FirstMessage::Incomplete);
    }

    #[test]
    fn a_split_message_is_incomplete_until_its_end() {
        let whole = client_hello(&["example.com"]);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), FirstMessage::Incomplete, "{end}");
        }
        // The same message in records of 10 bytes.
        let records: Vec<u8> = whole[5..]
            .chunks(10)
            .flat_map(|part| [&[0x16, 3, 1, 0, u8::try_from(part.len()).unwrap()], part].concat())
            .collect();
        assert_eq!(read(&records), FirstMessage::Tls(Some("example.com".to_owned())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, at in 0_usize..90, byte: u8) {
            read(&bytes);
            let mut changed = client_hello(&["example.com"]);
            if let Some(old) = changed.get_mut(at) {
                *old = byte;
            }
            read(&changed);
        }
    }
}
