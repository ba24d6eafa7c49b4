//! Reads when a limit ends from a message: a number of seconds since the epoch, a duration, or a
//! time of day with or without a date and a time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The longest time that a limit can last; a later time is an error of the message.
const MAX_WAIT: SignedDuration = SignedDuration::from_hours(32 * 24);

/// The words before a duration.
const BEFORE_DURATION: [&str; 8] = [
    "retry after",
    "retry-after:",
    "try again in",
    "retry in",
    "reset after",
    "resets in",
    "reset in",
    "retrying in",
];
/// The words before a time of day or a date.
const BEFORE_TIME: [&str; 5] = ["resets at", "reset at", "try again at", "resets on", "resets"];
/// The text before a number of seconds since the epoch.
const BEFORE_EPOCH: [&str; 3] = ["\"resets_at\":", "\"resetsat\":", "limit reached|"];
/// The text before a number of seconds from now.
const BEFORE_SECONDS: [&str; 1] = ["\"resets_in_seconds\":"];

/// Returns when the limit of a message ends; `None` if it does not say so, or if that time has
/// passed.
pub(super) fn find(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    // The case of ASCII letters only, so that positions stay.
    let lower = text.to_ascii_lowercase();
    let rests = |words: &'static [&'static str]| {
        words.iter().filter_map(|word| {
            let start = lower.find(word)? + word.len();
            Some((text.get(start..)?.trim_start(), lower.get(start..)?.trim_start()))
        })
    };
    let epoch = || rests(&BEFORE_EPOCH).find_map(|(_, rest)| epoch(rest));
    let seconds = || {
        let seconds = rests(&BEFORE_SECONDS).find_map(|(_, rest)| number(rest).map(|it| it.0));
        after(now, seconds?)
    };
    let duration = || rests(&BEFORE_DURATION).find_map(|(_, rest)| after(now, duration(rest)?));
    let time = || rests(&BEFORE_TIME).find_map(|(rest, lower)| time(rest, lower, now, zone));
    let found = epoch().or_else(seconds).or_else(duration).or_else(time)?;
    (found > now && found.duration_since(now) <= MAX_WAIT).then_some(found)
}

fn after(now: Timestamp, seconds: f64) -> Option<Timestamp> {
    now.checked_add(SignedDuration::try_from_secs_f64(seconds).ok()?).ok()
}

fn epoch(text: &str) -> Option<Timestamp> {
    let digits: &str = &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())];
    Timestamp::from_second(digits.parse().ok()?).ok()
}

/// Reads a number at the start of a text; returns it and the rest.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let digits = text[..end].trim_end_matches('.');
    let value: f64 = digits.parse().ok()?;
    Some((value, &text[digits.len()..]))
}

/// Reads `2 days 17 hours 14 minutes`, `1m2.5s`, `30 s`; a number alone is a number of seconds.
fn duration(text: &str) -> Option<f64> {
    let (mut total, mut rest, mut found) = (0.0, text, false);
    while let Some((value, after_number)) = number(rest) {
        let unit = after_number.trim_start();
        let end = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let factor = match &unit[..end] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        total += value * factor;
        found = true;
        rest = unit[end..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    found.then_some(total)
}

/// Reads a time of day, which may follow a date, and precede a time zone in parentheses. Without a
/// date it is the next such time.
fn time(text: &str, lower: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let (date, rest) = match date(lower, now, zone) {
        Some((date, rest)) => (Some(date), rest),
        None => (None, lower),
    };
    let (time, rest) = time_of_day(rest)?;
    let zone = named_zone(&text[text.len() - rest.len()..]).unwrap_or_else(|| zone.clone());
    let at = |date: Date| {
        let zoned = DateTime::from_parts(date, time).to_zoned(zone.clone());
        zoned.ok().map(|zoned| zoned.timestamp())
    };
    match date {
        Some(date) => at(date),
        None => {
            let today = now.to_zoned(zone.clone()).date();
            at(today).filter(|time| *time > now).or_else(|| at(today.tomorrow().ok()?))
        }
    }
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Reads `jan 5 at`, `jan 5th, 2026`, `january 5, 2026,`; returns the date and the rest. Without a
/// year it is the next such day.
fn date<'t>(lower: &'t str, now: Timestamp, zone: &TimeZone) -> Option<(Date, &'t str)> {
    let month = MONTHS.iter().position(|month| lower.starts_with(month))?;
    let month = i8::try_from(month + 1).ok()?;
    let rest =
        lower.trim_start_matches(|c: char| c.is_ascii_alphabetic()).trim_start_matches(['.', ' ']);
    let (day, rest) = number(rest)?;
    let rest = ["st", "nd", "rd", "th"].iter().find_map(|it| rest.strip_prefix(it)).unwrap_or(rest);
    let rest = rest.trim_start_matches([',', ' ']);
    let year = number(rest).filter(|(year, _)| (2000.0..10_000.0).contains(year));
    let (year, rest) = year.map_or((None, rest), |(year, rest)| (Some(year), rest));
    let rest = rest.trim_start_matches([',', ' ']);
    let rest = rest.strip_prefix("at ").unwrap_or(rest).trim_start();
    let today = now.to_zoned(zone.clone()).date();
    #[expect(clippy::cast_possible_truncation, reason = "small numbers, which `Date::new` checks")]
    let date_in = |year: i16| Date::new(year, month, day as i8).ok();
    #[expect(clippy::cast_possible_truncation, reason = "it is below 10,000")]
    let date = match year {
        Some(year) => date_in(year as i16)?,
        None => date_in(today.year())
            .filter(|date| *date >= today)
            .or_else(|| date_in(today.year() + 1))?,
    };
    Some((date, rest))
}

/// Reads `5pm`, `8:30 pm`, `17:42`; returns the time and the rest. A number alone is none.
fn time_of_day(lower: &str) -> Option<(Time, &str)> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let end = digits(lower);
    let hour: i8 = lower[..end].parse().ok()?;
    let (minute, rest) = match lower[end..].strip_prefix(':') {
        Some(rest) => {
            let end = digits(rest);
            (Some(rest[..end].parse().ok()?), &rest[end..])
        }
        None => (None, &lower[end..]),
    };
    let word = rest.trim_start();
    let half = ["am", "pm", "a.m.", "p.m."].iter().find(|half| word.starts_with(**half));
    let (hour, rest) = match half {
        Some(half) if (1..=12).contains(&hour) => {
            let hour = hour % 12 + if half.starts_with('p') { 12 } else { 0 };
            (hour, &word[half.len()..])
        }
        Some(_) => return None,
        None => (hour, rest),
    };
    if minute.is_none() && half.is_none() {
        return None;
    }
    Some((Time::new(hour, minute.unwrap_or(0), 0, 0).ok()?, rest))
}

/// Reads ` (Europe/Berlin)` or ` UTC`.
fn named_zone(text: &str) -> Option<TimeZone> {
    let text = text.trim_start();
    if text.starts_with("UTC") || text.starts_with("GMT") {
        return Some(TimeZone::UTC);
    }
    let name = text.strip_prefix('(')?.split(')').next()?;
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    TimeZone::get(name).ok()
}
