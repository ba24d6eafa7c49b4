//! The page of `studio stats`: totals, tables by agent and by model, and a chart over time.

use std::collections::BTreeMap;

use base::event::Usage;
use base::text::printable;
use jiff::ToSpan;
use jiff::civil::Date;

use crate::report::coach::count;
use crate::report::table;
use studio_core::stats::{SessionTotals, Stats};

/// The length of the longest bar of the chart.
const BAR_WIDTH: usize = 30;
/// The maximum number of days that are shown one by one.
const MAX_DAYS: i32 = 31;
/// The maximum number of weeks.
const MAX_WEEKS: i32 = 26;

/// Formats the page.
pub(crate) fn page(stats: &Stats) -> String {
    let mut parts = vec![summary(&stats.totals)];
    parts.push(groups("AGENT", &stats.agents));
    parts.push(groups("MODEL", &stats.models));
    parts.push(chart(&stats.days));
    parts.join("\n\n")
}

/// Formats the totals in two lines.
fn summary(totals: &SessionTotals) -> String {
    let mut parts = vec![
        count(totals.sessions, "session"),
        format!("{} landed", totals.landed),
        format!("{} discarded", totals.discarded),
        format!("{} open", totals.open),
    ];
    if totals.landed > 0 {
        parts.push(format!("+{} -{} lines landed", totals.insertions, totals.deletions));
    }
    let mut work = vec![format!("{} of work", duration(totals.worked_ms))];
    work.extend(totals.usage.as_ref().and_then(|usage| Some(format!("{} tokens", tokens(usage)?))));
    work.extend(totals.usage.as_ref().and_then(cost));
    format!("{}\n{}", parts.join(", "), work.join(", "))
}

fn groups(title: &str, groups: &[(String, SessionTotals)]) -> String {
    let row = |(name, totals): &(String, SessionTotals)| {
        let usage = totals.usage.as_ref();
        [
            printable(name),
            totals.sessions.to_string(),
            totals.landed.to_string(),
            totals.discarded.to_string(),
            duration(totals.worked_ms),
            usage.and_then(tokens).unwrap_or_else(|| "-".to_owned()),
            usage.and_then(cost).unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let header = [title, "SESSIONS", "LANDED", "DISCARDED", "WORKED", "TOKENS", "COST"];
    table::plain(header, groups.iter().map(row).collect())
}

/// The period of one bar of the chart.
#[derive(Clone, Copy)]
enum Period {
    Day,
    Week,
    Month,
}

impl Period {
    /// Returns the shortest period of which a chart of these days has few enough.
    fn of(first: Date, last: Date) -> Period {
        match (last - first).get_days() {
            ..MAX_DAYS => Period::Day,
            days if days < MAX_WEEKS * 7 => Period::Week,
            _ => Period::Month,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Period::Day => "DAY",
            Period::Week => "WEEK FROM",
            Period::Month => "MONTH",
        }
    }

    /// Returns the first day of the period that contains a day.
    fn start(self, day: Date) -> Date {
        match self {
            Period::Day => day,
            Period::Week => {
                day.saturating_sub(i64::from(day.weekday().to_monday_zero_offset()).days())
            }
            Period::Month => day.first_of_month(),
        }
    }

    fn next(self, start: Date) -> Date {
        match self {
            Period::Day => start.saturating_add(1.day()),
            Period::Week => start.saturating_add(7.days()),
            Period::Month => start.saturating_add(1.month()),
        }
    }

    fn label(self, start: Date) -> String {
        match self {
            Period::Day | Period::Week => start.to_string(),
            Period::Month => start.strftime("%Y-%m").to_string(),
        }
    }
}

/// Formats one bar for each period: the sessions that landed, then the others.
fn chart(days: &[(Date, SessionTotals)]) -> String {
    let (Some((first, _)), Some((last, _))) = (days.first(), days.last()) else {
        return String::new();
    };
    let period = Period::of(*first, *last);
    let mut counts: BTreeMap<Date, (usize, usize)> = BTreeMap::new();
    let mut start = period.start(*first);
    while start <= *last {
        counts.insert(start, (0, 0));
        start = period.next(start);
    }
    for (day, totals) in days {
        let (sessions, landed) = counts.entry(period.start(*day)).or_default();
        *sessions += totals.sessions;
        *landed += totals.landed;
    }
    let max = counts.values().map(|(sessions, _)| *sessions).max().unwrap_or(1).max(1);
    let scaled = |n: usize| if max <= BAR_WIDTH { n } else { (n * BAR_WIDTH).div_ceil(max) };
    let row = |(start, (sessions, landed)): (&Date, &(usize, usize))| {
        let bar = format!(
            "{}{}",
            "█".repeat(scaled(*landed)),
            "░".repeat(scaled(*sessions) - scaled(*landed))
        );
        let number = |n: usize| if n > 0 { n.to_string() } else { String::new() };
        [period.label(*start), number(*sessions), number(*landed), bar]
    };
    table::plain(
        [period.name(), "SESSIONS", "LANDED", "█ LANDED ░ OTHERS"],
        counts.iter().map(row).collect(),
    )
}

/// Returns the tokens of all kinds; `None` if the agents report only their cost.
fn tokens(usage: &Usage) -> Option<String> {
    let tokens = usage.sent().saturating_add(usage.output);
    (tokens > 0 || usage.cost_usd.is_none()).then(|| number(tokens))
}

/// Returns the cost, marked if a part of it is unknown.
fn cost(usage: &Usage) -> Option<String> {
    let at_least = if usage.cost_incomplete { "at least " } else { "" };
    usage.cost_usd.map(|cost| format!("{at_least}${cost:.2}"))
}

/// Formats a number with a suffix from 10,000 on: `12.3k`, `4.5M`.
#[expect(clippy::cast_precision_loss, reason = "one decimal place is shown")]
fn number(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1}G", n as f64 / 1e9),
    }
}

/// Formats a duration in its two largest units.
fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_short() {
        assert_eq!([number(9999), number(12_345), number(4_500_000)], ["9999", "12.3k", "4.5M"]);
        assert_eq!([duration(59_000), duration(61_000)], ["59s", "1m 1s"]);
        assert_eq!([duration(7_260_000), duration(90_000_000)], ["2h 1m", "1d 1h"]);
    }

    #[test]
    fn long_times_are_charted_by_week_and_by_month() {
        let totals =
            |sessions, landed| SessionTotals { sessions, landed, ..SessionTotals::default() };
        let day = |text: &str| text.parse::<Date>().unwrap();
        let days =
            |last: &str| chart(&[(day("2026-01-07"), totals(3, 1)), (day(last), totals(60, 0))]);
        let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();

        let short = lines(days("2026-01-09"));
        assert_eq!(short.len(), 4, "{short:?}");
        assert!(short[1].contains("2026-01-07") && short[1].ends_with("1       █░"), "{short:?}");
        assert!(short[2].trim_end().ends_with("2026-01-08"), "a day without sessions: {short:?}");
        let weeks = lines(days("2026-03-09"));
        assert!(weeks[0].contains("WEEK FROM") && weeks[1].contains("2026-01-05"), "{weeks:?}");
        assert!(weeks.last().unwrap().ends_with(&"░".repeat(BAR_WIDTH)), "{weeks:?}");
        let months = lines(days("2026-12-31"));
        assert_eq!(months.len(), 13, "{months:?}");
        assert!(months[12].contains("2026-12"), "{months:?}");
    }
}
