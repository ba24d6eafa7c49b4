//! The body of a response: its encoding, its kind, and what the model reads of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use reqwest::Url;
use serde::Deserialize;

use super::html;
use provider::message::Image;

/// The format in which the model reads an HTML page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PageFormat {
    /// Plain text.
    Text,
    /// Markdown.
    Markdown,
    /// The page unchanged.
    Html,
}

/// What the model reads.
#[derive(Debug, Default)]
pub(crate) struct ShownBody {
    /// The text.
    pub text: String,
    /// The page's title; empty if it has none.
    pub title: String,
    /// The image, if the body is one.
    pub images: Vec<Image>,
}

/// The largest image in bytes: services accept 5 MB of base64.
const MAX_IMAGE_BYTES: usize = 3_750_000;
/// The length of the beginning that is examined for its encoding and for binary content.
const BEGINNING: usize = 4096;
/// Types that are neither text nor an image that models accept.
const UNREADABLE: &[&str] =
    &["video/", "audio/", "font/", "application/zip", "application/pdf", "application/gzip"];

impl PageFormat {
    /// The header `Accept`, best first.
    pub(crate) fn accepts(self) -> &'static str {
        match self {
            PageFormat::Markdown => {
                "text/markdown;q=1.0, text/x-markdown;q=0.9, text/plain;q=0.8, text/html;q=0.7, \
                 */*;q=0.1"
            }
            PageFormat::Text => "text/plain;q=1.0, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
            PageFormat::Html => {
                "text/html;q=1.0, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1"
            }
        }
    }
}

/// Refuses a type that cannot be shown; the error is the end of a sentence.
pub(crate) fn check_readable(content_type: &str) -> Result<(), String> {
    let kind = kind(content_type);
    match UNREADABLE.iter().any(|unreadable| kind.starts_with(unreadable)) {
        true => Err(unreadable(&kind)),
        false => Ok(()),
    }
}

/// What the model reads of a body; the error is the end of a sentence.
pub(crate) fn render(
    bytes: Vec<u8>,
    content_type: &str,
    url: &Url,
    form: PageFormat,
) -> Result<ShownBody, String> {
    let kind = kind(content_type);
    if let Some(media_type) = picture(&bytes) {
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err(format!("is a picture of {} bytes, too large to be shown", bytes.len()));
        }
        let text = format!("a picture, {media_type}, {} bytes", bytes.len());
        let image = Image { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) };
        return Ok(ShownBody { text, images: vec![image], ..ShownBody::default() });
    }
    let is_html = kind == "text/html" || kind == "application/xhtml+xml";
    let text = decode(&bytes, content_type).ok_or_else(|| unreadable(&kind))?;
    let is_html = is_html || kind.is_empty() && looks_like_html(&text);
    let plain = |text: String| ShownBody { text, ..ShownBody::default() };
    let converted = |form| {
        let html::Page { text, title } = html::convert(&text, url, form);
        ShownBody { text, title, images: Vec::new() }
    };
    Ok(match form {
        PageFormat::Markdown if is_html => converted(html::Form::Markdown),
        PageFormat::Text if is_html => converted(html::Form::Text),
        PageFormat::Html => plain(text),
        PageFormat::Markdown | PageFormat::Text if is_json(&kind) => plain(indented(text)),
        PageFormat::Markdown | PageFormat::Text => plain(text),
    })
}

/// The media type without its parameters.
fn kind(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_lowercase()
}

fn unreadable(kind: &str) -> String {
    let kind = if kind.is_empty() { "bytes of no known type" } else { kind };
    format!("is {kind}, neither text nor a picture (png, jpeg, gif, webp); a command can store it")
}

/// The type of an image by its first bytes; the server's type is not used.
fn picture(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The body as text, in the encoding of its byte order mark, its header or the page itself, else
/// UTF-8, else windows-1252. `None` for binary content.
fn decode(bytes: &[u8], content_type: &str) -> Option<String> {
    let marked = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let declared = marked.or_else(|| named(content_type)).or_else(|| {
        let beginning = &bytes[..bytes.len().min(BEGINNING)];
        // The name was read as ASCII, so the encoding must be compatible with it.
        named(&String::from_utf8_lossy(beginning)).filter(|encoding| encoding.is_ascii_compatible())
    });
    let is_utf8 = std::str::from_utf8(bytes).is_ok();
    let encoding = declared.unwrap_or(if is_utf8 { UTF_8 } else { WINDOWS_1252 });
    let (text, _, _) = encoding.decode(bytes);
    let end = text.char_indices().nth(BEGINNING).map_or(text.len(), |(index, _)| index);
    (!text[..end].contains('\0')).then(|| text.into_owned())
}

/// The encoding after `charset=` or `encoding=`, in a header, a meta tag or an XML declaration.
fn named(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let after = ["charset=", "<?xml version=\"1.0\" encoding="]
        .iter()
        .find_map(|key| lower.split_once(key).map(|(_, after)| after))?;
    let name = after.trim_start_matches(['"', '\'', ' ']);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:".contains(c));
    Encoding::for_label(&name.as_bytes()[..end.unwrap_or(name.len())])
}

fn looks_like_html(text: &str) -> bool {
    let beginning = base::text::head(text.trim_start(), 64).to_ascii_lowercase();
    beginning.starts_with("<!doctype html") || beginning.starts_with("<html")
}

fn is_json(kind: &str) -> bool {
    kind == "application/json" || kind.ends_with("+json")
}

/// JSON with one member per line; invalid JSON unchanged.
fn indented(text: String) -> String {
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(value) => format!("{value:#}"),
        Err(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8], content_type: &str) -> Result<String, String> {
        let url = Url::parse("http://a.example/").unwrap();
        render(bytes.to_vec(), content_type, &url, PageFormat::Text).map(|shown| shown.text)
    }

    #[test]
    fn the_encoding_is_that_of_mark_header_page_or_the_webs_default() {
        for (bytes, content_type) in [
            (&b"\xef\xbb\xbfgr\xc3\xbcn"[..], "text/plain; charset=iso-8859-1"),
            (b"gr\xfcn", "text/plain; charset=\"ISO-8859-1\""),
            (b"<meta charset='latin1'>gr\xfcn", "text/html"),
            (b"<meta http-equiv=x content='text/html; charset=latin1'>gr\xfcn", "text/html"),
            (b"gr\xc3\xbcn", "text/plain"),
            (b"gr\xfcn", "text/plain"),
            (b"\xff\xfeg\0r\0\xfc\0n\0", "text/plain"),
        ] {
            assert_eq!(text(bytes, content_type).unwrap(), "grün", "{bytes:?} {content_type}");
        }
    }

    #[test]
    fn text_is_shown_whatever_it_is_called_and_bytes_are_not() {
        assert_eq!(text(b"fn main() {}", "application/x-rust").unwrap(), "fn main() {}");
        assert_eq!(
            text(b"{\"a\":[1]}", "application/ld+json").unwrap(),
            "{\n  \"a\": [\n    1\n  ]\n}"
        );
        assert_eq!(text(b"{no json", "application/json").unwrap(), "{no json");
        assert_eq!(text(b" <!DOCTYPE html><p>a<p>b", "").unwrap(), "a\n\nb");
        assert_eq!(text(b"<p>a", "text/plain").unwrap(), "<p>a");
        let why = text(b"\x7fELF\0\0", "application/x-executable").unwrap_err();
        assert!(why.contains("application/x-executable"), "{why}");
        assert!(check_readable("application/pdf").unwrap_err().contains("application/pdf"));
        assert!(check_readable("text/html; charset=utf-8").is_ok() && check_readable("").is_ok());
    }

    #[test]
    fn a_picture_is_known_by_its_bytes() {
        let url = Url::parse("http://a.example/").unwrap();
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n.."[..], "image/png"),
            (b"\xff\xd8\xff..", "image/jpeg"),
            (b"GIF89a..", "image/gif"),
            (b"RIFF....WEBPVP8 ", "image/webp"),
        ] {
            let shown = render(bytes.to_vec(), "text/plain", &url, PageFormat::Markdown).unwrap();
            assert_eq!(shown.images[0].media_type, kind);
            assert_eq!(STANDARD.decode(&shown.images[0].data).unwrap(), bytes);
        }
        let mut large = b"\x89PNG\r\n\x1a\n".to_vec();
        large.resize(MAX_IMAGE_BYTES + 1, 0);
        assert!(
            render(large, "image/png", &url, PageFormat::Text).unwrap_err().contains("too large")
        );
    }
}
