//! `docs/reference/verbatim.md`: the lines that users may add to keepalived's configuration.

use landfall_api::verbatim::{Keyword, OF_GROUPS, OF_SERVICES};

use super::{File, NOTICE, cell};

const HEAD: &str = "# Lines for keepalived's configuration

A `KeepalivedGroup` adds lines to `global_defs` with `verbatimConfig`, and a Service to its VRRP instances with the
annotation `keepalived-operator.redhat-cop.io/verbatimconfig`. Only the keywords below are accepted, with the values that
they take; the meaning of each is that of keepalived 2.2.7. Any other line is left out: the group's condition
`Degraded` or an event on the Service names it, and all else is announced as if it were not there. No keyword runs a
program, and none names a file.

## In a group
";

const SERVICE: &str = "
## In a Service

The Service's own instances exist only in groups without `vrrp`, or for a Service with `externalTrafficPolicy: Local`.
";

const TABLE: &str = "
| keyword | takes | meaning |
| --- | --- | --- |
";

pub(super) fn file() -> File {
    let (groups, services) = (table(OF_GROUPS), table(OF_SERVICES));
    let text = format!("<!-- {NOTICE} -->\n{HEAD}{groups}{SERVICE}{services}");
    File { path: "docs/reference/verbatim.md".to_owned(), text }
}

fn table(keywords: &[Keyword]) -> String {
    let row = |keyword: &Keyword| {
        let without_effect = if keyword.inert { " Accepted, and without effect." } else { "" };
        let (takes, meaning) = (keyword.takes.to_string(), keyword.meaning);
        format!("| `{}` | {} | {meaning}{without_effect} |\n", keyword.name, cell(&takes))
    };
    format!("{TABLE}{}", keywords.iter().map(row).collect::<String>())
}
