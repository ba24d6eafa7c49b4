//! The page of `studio doctor`.

use studio_core::doctor::Findings;

/// Formats the findings, then what the machine supports.
pub(crate) fn page(findings: &Findings) -> String {
    let mut lines = Vec::new();
    lines.extend(findings.repaired.iter().map(|text| format!("repaired: {text}")));
    lines.extend(findings.open.iter().map(|text| format!("to do:  {text}")));
    lines.extend(findings.notes.iter().map(|text| format!("note:   {text}")));
    if findings.repaired.is_empty() && findings.open.is_empty() {
        lines.push("no problems found".to_owned());
    }
    lines.push("This machine:".to_owned());
    lines.extend(findings.machine.iter().map(|it| format!("  {:<14}  {}", it.name, it.detail)));
    lines.join("\n")
}
