//! Recognizes text in an image with the program `tesseract`.

use std::collections::BTreeMap;
use std::io::Cursor;

use base::desktop_protocol::{Area, OcrWord};
use base::failure::{Failure, OrFail, Result};
use base::process::{Command, OutputLimits, find_program};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{DynamicImage, ImageFormat, ImageReader, imageops::FilterType};

const PROGRAM: &str = "tesseract";
/// Timeout in seconds.
const TIMEOUT_SECONDS: u64 = 60;
/// Maximum number of pixels of a side, since a small file can claim to be a huge image.
const MAX_SIDE: u32 = 16_000;
/// Text on a screen is small for tesseract: an image whose longer side is below this is scaled up
/// by this factor.
const SCALES: &[(u32, u32)] = &[(1000, 3), (2600, 2)];

/// Returns the words in reading order.
pub(crate) fn words(picture: &str) -> Result<Vec<OcrWord>> {
    if find_program(PROGRAM).is_none() {
        return Err(Failure::failed("no program here reads words in a picture")
            .because("`tesseract` is not installed")
            .hint("install it: apt-get install tesseract-ocr tesseract-ocr-eng, or brew install tesseract"));
    }
    let what = || "the picture cannot be read";
    let bytes = STANDARD.decode(picture.trim()).or_fail(what)?;
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().or_fail(what)?;
    let mut limits = image::Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(MAX_SIDE), Some(MAX_SIDE));
    reader.limits(limits);
    let picture = reader.decode().or_fail(what)?;
    let scale = times(picture.width().max(picture.height()));
    let (width, height) = (picture.width() * scale, picture.height() * scale);
    // Converted to grey, since colored text on a colored background is harder to recognize.
    let scaled = DynamicImage::from(picture.to_luma8());
    let scaled =
        if scale > 1 { scaled.resize_exact(width, height, FilterType::CatmullRom) } else { scaled };
    let mut png = Cursor::new(Vec::new());
    scaled.write_to(&mut png, ImageFormat::Png).or_fail(what)?;
    Ok(parse_tsv(&table(png.into_inner(), scale)?, scale))
}

fn times(side: u32) -> u32 {
    SCALES.iter().find(|(max, _)| side < *max).map_or(1, |(_, times)| *times)
}

/// Returns the program's output for an image: a tab-separated table.
fn table(png: Vec<u8>, scale: u32) -> Result<String> {
    let what = || "`tesseract` read nothing";
    // Sparse text: a screen has no columns and paragraphs.
    let command = Command::new(PROGRAM, std::env::temp_dir())
        .args(["stdin", "stdout", "--psm", "11", "--dpi"])
        .arg((96 * scale).to_string())
        .arg("tsv")
        .kill_on_parent_death()
        .input(png);
    let output = command.output(OutputLimits::seconds(TIMEOUT_SECONDS)).or_fail(what)?;
    if output.timed_out {
        return Err(
            Failure::failed(what()).because(format!("it took more than {TIMEOUT_SECONDS} s"))
        );
    }
    if !output.ok() {
        let failure = Failure::failed(what()).because(output.error_text());
        return Err(failure.hint("it needs its language data, e.g. tesseract-ocr-eng"));
    }
    Ok(output.text())
}

/// Returns the words of the table, line by line from the top, with positions in the original image.
fn parse_tsv(table: &str, scale: u32) -> Vec<OcrWord> {
    let mut lines: BTreeMap<[u32; 3], Vec<OcrWord>> = BTreeMap::new();
    for row in table.lines() {
        if let Some((line, word)) = word(row, scale.max(1)) {
            lines.entry(line).or_default().push(word);
        }
    }
    let mut lines: Vec<Vec<OcrWord>> = lines.into_values().collect();
    for line in &mut lines {
        line.sort_by_key(|word| word.area.x);
    }
    lines.sort_by_key(|line| line.first().map(|word| (word.area.y, word.area.x)));
    lines.into_iter().flatten().collect()
}

/// Parses a row: level, page, block, paragraph, line, word, left, top, width, height, confidence,
/// text.
fn word(row: &str, scale: u32) -> Option<([u32; 3], OcrWord)> {
    const WORD: u32 = 5;
    let cells: Vec<&str> = row.splitn(12, '\t').collect();
    let number = |index: usize| cells.get(index)?.parse::<u32>().ok();
    let text = cells.get(11)?.trim();
    if number(0)? != WORD || text.is_empty() {
        return None;
    }
    let confidence: f32 = cells.get(10)?.parse().ok()?;
    let position = |index: usize| number(index).map(|value| value / scale);
    let area = Area {
        x: i32::try_from(position(6)?).ok()?,
        y: i32::try_from(position(7)?).ok()?,
        width: position(8)?.max(1),
        height: position(9)?.max(1),
    };
    let confidence = confidence.round().clamp(0.0, 100.0) as u8;
    Some((
        [number(2)?, number(3)?, number(4)?],
        OcrWord { text: text.to_owned(), area, sure: confidence },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext
1\t1\t0\t0\t0\t0\t0\t0\t900\t300\t-1\t
5\t1\t1\t1\t1\t1\t30\t200\t60\t30\t91.4\tlower
5\t1\t2\t1\t1\t2\t330\t20\t90\t31\t12.6\tright
5\t1\t2\t1\t1\t1\t30\t21\t90\t30\t96.9\tup\tper
5\t1\t2\t1\t1\t3\t630\t21\t1\t30\t40\t \n5\t1\tbroken";

    #[test]
    fn words_are_in_reading_order_with_positions_in_the_image() {
        let found = parse_tsv(TABLE, 3);
        let texts: Vec<&str> = found.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, ["up\tper", "right", "lower"]);
        assert_eq!(found[1].area, Area { x: 110, y: 6, width: 30, height: 10 });
        assert_eq!([found[0].sure, found[1].sure], [97, 13]);
    }

    #[test]
    fn a_small_image_is_scaled_up() {
        assert_eq!([times(400), times(1280), times(3840)], [3, 2, 1]);
    }
}
