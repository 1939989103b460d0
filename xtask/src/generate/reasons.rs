//! `docs/reference/reasons.md`: every reason for having no address, its cause and the fix.

use landfall_api::{HolderKind, text};
use landfall_ipam::Reason;

use super::{File, NOTICE, cell};

const HEAD: &str = "# Reasons

A Service that does not have what it wants says so in its condition `landfall.dev/Allocated`: status
`False`, one of the reasons below, and a message with a verdict per pool and the nearest fix. The
same word is the reason of the event on the Service and the label `reason` of the metric
`landfall_services_pending`. The list is closed: there are no other reasons.

A Service that has what it wants says `True` with the reason `Allocated`, or `OutsidePool` if an edit
left its address outside every pool; it keeps the address in either case.

| reason | cause | fix |
| --- | --- | --- |
";

const TAIL: &str = "\n[Troubleshooting](../troubleshooting.md) has an example for each.\n";

pub(super) fn file() -> File {
    let rows = Reason::ALL.map(|reason| {
        let cause = text::cause(HolderKind::Service, reason);
        let fix = text::fix(HolderKind::Service, reason);
        format!("| `{reason}` | {} | {} |", cell(&cause), cell(&fix))
    });
    let text = format!("<!-- {NOTICE} -->\n{HEAD}{}\n{TAIL}", rows.join("\n"));
    File { path: "docs/reference/reasons.md".to_owned(), text }
}
