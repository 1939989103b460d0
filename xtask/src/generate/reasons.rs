//! `docs/reference/reasons.md`: every reason for having no address, or for an address that is not announced, its
//! cause and the fix.

use landfall_api::{HolderKind, announce::NotAnnounced, text};
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

const ANNOUNCED: &str = "
## Addresses that are not announced

A Service that a `KeepalivedGroup` is to announce, by its annotation or by `announce` of its pool, says in its
condition `landfall.dev/Announced` whether a node holds its addresses: `True` with the reason
`Announced`, the node and since when, or `False` with one of the reasons below. This list is closed as well,
and the condition never stands in the way of `landfall.dev/Allocated`.

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
    let announced = NotAnnounced::ALL.map(|reason| {
        format!("| `{reason}` | {} | {} |", cell(reason.cause()), cell(reason.fix()))
    });
    let (rows, announced) = (rows.join("\n"), announced.join("\n"));
    let text = format!("<!-- {NOTICE} -->\n{HEAD}{rows}\n{ANNOUNCED}{announced}\n{TAIL}");
    File { path: "docs/reference/reasons.md".to_owned(), text }
}
