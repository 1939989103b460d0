//! `docs/reference/findings.md`: every finding of repair, its cause and its repair.

use landfall_api::Finding;

use super::{File, NOTICE, cell};

const HEAD: &str = "# Findings

At its start and every ten minutes the operator compares the ledger with the Services, in both
directions. Inconsistencies are reported before they are repaired. Each is reported by an event, by the
condition `Consistent` of the `IPGroup` concerned, and by the metrics `landfall_repair_findings_total`
and `landfall_repair_open`, all with one of the words below. With `--repair=report` nothing is
repaired, and the objects concerned are left alone. The list is closed: there are no other findings.

| finding | cause | repair |
| --- | --- | --- |
";

pub(super) fn file() -> File {
    let rows = Finding::ALL.map(|finding| {
        format!("| `{finding}` | {} | {} |", cell(finding.cause()), cell(finding.repair()))
    });
    let text = format!("<!-- {NOTICE} -->\n{HEAD}{}\n", rows.join("\n"));
    File { path: "docs/reference/findings.md".to_owned(), text }
}
