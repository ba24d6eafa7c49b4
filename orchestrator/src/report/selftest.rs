//! The result of `studio selftest`.

use studio_core::selftest::{SelftestOptions, SelftestReport};

/// Formats the findings, and how to repeat them.
pub(crate) fn page(report: &SelftestReport, options: &SelftestOptions) -> String {
    let mut lines: Vec<String> =
        report.findings.iter().map(|finding| format!("finding: {}", finding.trim_end())).collect();
    lines.extend(report.kept.iter().map(|path| format!("kept: {}", path.display())));
    lines.push(format!(
        "seed {}, {} rounds, {} operations, {} killed: {}",
        options.seed,
        report.rounds,
        report.operations,
        report.killed,
        match report.findings.len() {
            0 => "no findings".to_owned(),
            1 => "1 finding".to_owned(),
            count => format!("{count} findings"),
        }
    ));
    lines.join("\n")
}
