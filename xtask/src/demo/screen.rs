//! The table: drawn in place for eyes, line by line for everything else.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};

use super::watch::{Board, Row};
use crate::output::Output;

/// Width of a table that no terminal limits.
const WIDTH: u16 = 100;
/// Lines that stay free below the table: the cursor's own.
const SPARE: usize = 2;

/// Where the demo is shown.
pub(super) struct Screen<'a> {
    output: &'a Output,
    /// Whether the table can be drawn over.
    is_terminal: bool,
    /// The table on the screen now; empty if there is none to draw over.
    drawn: String,
    /// Rows that were told as lines, in the form they were told.
    told: BTreeMap<String, Row>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(output: &'a Output) -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self { output, is_terminal, drawn: String::new(), told: BTreeMap::new() }
    }

    /// Draws the table over the one before, or tells what is new.
    pub(super) fn table(&mut self, board: &Board) {
        let table = table(board, self.is_terminal);
        if table == self.drawn {
            return;
        }
        let lines = table.lines().count();
        let height = crossterm::terminal::size().map_or(usize::MAX, |(_, rows)| rows.into());
        // Lines that have scrolled away cannot be drawn over.
        if !self.is_terminal || lines.saturating_add(SPARE) > height {
            self.drawn.clear();
            self.lines(board);
            return;
        }
        let up = self.drawn.lines().count();
        let clear = if up == 0 { String::new() } else { format!("\u{1b}[{up}A\u{1b}[J") };
        self.output.data(format_args!("{clear}{table}"));
        self.drawn = table;
        self.remember(board);
    }

    /// A line for each row that is new or differs from what was told.
    pub(super) fn lines(&mut self, board: &Board) {
        let settled = board.rows().filter(|row| row.is_settled());
        let news: Vec<_> =
            settled.filter(|row| self.told.get(&row.service) != Some(row)).cloned().collect();
        for row in news.iter().filter(|row| has_pools(row)) {
            for line in told(row) {
                self.output.data(line);
            }
        }
        let gone = self.told.keys().filter(|key| !board.rows().any(|row| row.service == **key));
        for key in gone {
            self.output.data(format_args!("{key} is gone"));
        }
        self.remember(board);
    }

    /// Text that stays, below the table.
    pub(super) fn below(&mut self, text: &str) {
        self.output.data(text);
        self.drawn.clear();
    }

    fn remember(&mut self, board: &Board) {
        let rows = board.rows().filter(|row| row.is_settled() && has_pools(row));
        self.told = rows.map(|row| (row.service.clone(), row.clone())).collect();
    }
}

/// The claim may be seen after the Service that shows it; a moment later the row is complete.
fn has_pools(row: &Row) -> bool {
    row.addresses.iter().all(|(_, pool)| !pool.is_empty())
}

fn table(board: &Board, is_terminal: bool) -> String {
    let has_nodes = board.rows().any(|row| row.node.is_some());
    // One column less where nothing would be in it.
    let cells = |[address, service, pool, node, time]: [String; 5]| {
        let cells =
            [Some(address), Some(service), Some(pool), has_nodes.then_some(node), Some(time)];
        cells.into_iter().flatten()
    };
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(cells(["address", "Service", "pool", "node", "time"].map(str::to_owned)));
    if !is_terminal {
        table.set_width(WIDTH);
    }
    for row in board.rows() {
        let addresses: Vec<_> = row.addresses.iter().map(|(ip, _)| ip.as_str()).collect();
        let pools: Vec<_> = row.addresses.iter().map(|(_, pool)| pool.as_str()).collect();
        let time = row.took.map(milliseconds).unwrap_or_default();
        let (addresses, pools) = match &row.refusal {
            Some((reason, message)) => {
                let kept = addresses.join("\n");
                let head =
                    if kept.is_empty() { reason.clone() } else { format!("{kept}\n{reason}") };
                (head, message.clone())
            }
            None if addresses.is_empty() => ("…".to_owned(), String::new()),
            None => (addresses.join("\n"), pools.join("\n")),
        };
        table.add_row(cells([addresses, row.service.clone(), pools, row.place(), time]));
    }
    table.to_string()
}

/// A row as text that `grep` and `awk` can use; a refusal has a second line for its words.
fn told(row: &Row) -> Vec<String> {
    let time = row.took.map(milliseconds).unwrap_or_default();
    let service = &row.service;
    let mut lines: Vec<_> = row
        .addresses
        .iter()
        .map(|(ip, pool)| format!("{ip:<22} {service:<18} {pool:<20} {time}"))
        .collect();
    if row.node.is_some() {
        lines.push(format!("{:<22} {service:<18} held by {}", "", row.place()));
    }
    if let Some((reason, message)) = &row.refusal {
        if row.addresses.is_empty() {
            lines.push(format!("{:<22} {service:<18} {reason:<20} {time}", "-"));
        } else {
            lines.push(format!("{:<22} {service:<18} {reason}", ""));
        }
        lines.push(format!("{:<22} {message}", ""));
    }
    lines
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(addresses: &[(&str, &str)], refusal: Option<(&str, &str)>) -> Row {
        Row {
            service: "shop/web".to_owned(),
            wish: None,
            addresses: addresses.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            node: None,
            moved: None,
            took: Some(Duration::from_millis(12)),
            refusal: refusal.map(|(a, b)| (a.to_owned(), b.to_owned())),
        }
    }

    #[test]
    fn a_line_says_the_address_or_why_there_is_none() {
        for (case, row, words) in [
            (
                "given",
                row(&[("192.0.2.1", "IPGroup/a")], None),
                vec!["192.0.2.1 shop/web IPGroup/a 12 ms"],
            ),
            (
                "refused",
                row(&[], Some(("TakenBy", "it is taken"))),
                vec!["- shop/web TakenBy 12 ms", "it is taken"],
            ),
            (
                "refused, but keeps what it had",
                row(&[("192.0.2.1", "IPGroup/a")], Some(("TakenBy", "it is taken"))),
                vec!["192.0.2.1 shop/web IPGroup/a 12 ms", "shop/web TakenBy", "it is taken"],
            ),
        ] {
            let squeezed = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let lines: Vec<_> = told(&row).into_iter().map(squeezed).collect();
            assert_eq!(lines, words, "{case}");
        }
    }
}
