//! `docs/reference/cli.md`: verbs and flags as the binary itself defines them.

use clap::{Arg, Command, CommandFactory as _};
use landfall::args::Ignored;

use super::{File, NOTICE, cell};

const HEAD: &str = "# Command line

A flag wins over its variable, and the variable over the default. The exit code is 0 when done, 1
when it could not be done and 2 when the command line is wrong. The log goes to stderr.
";

const FLAGS: &str = "| flag | variable | default | meaning |\n| --- | --- | --- | --- |";

const ORIGINAL: &str = "## Settings of kube-vip-cloud-provider

`landfall operator` takes them as well, so that it can [take that program's place](../guides/from-kube-vip.md). Ours win.

| flag or variable | meaning |
| --- | --- |";

/// Values of our own first versions, which are still accepted and belong to no other program.
const EARLIER: [&str; 1] = ["mend"];

pub(super) fn file() -> File {
    let mut cli = landfall::args::Cli::command();
    // Fills in the flags that verbs inherit.
    cli.build();
    let mut page = vec![format!("<!-- {NOTICE} -->\n{HEAD}\n## All verbs\n\n{FLAGS}")];
    page.extend(cli.get_arguments().filter_map(row));
    let is_shown = |verb: &&Command| verb.get_name() != "help" && !verb.is_hide_set();
    for verb in cli.get_subcommands().filter(is_shown) {
        page.push(format!("\n## landfall {}\n\n{}.\n\n{FLAGS}", verb.get_name(), about(verb)));
        page.extend(verb.get_arguments().filter(|arg| !arg.is_global_set()).filter_map(row));
    }
    page.push(format!("\n{ORIGINAL}"));
    let verbs = cli.get_subcommands().filter(is_shown);
    let own = verbs.flat_map(Command::get_arguments).filter(|arg| !arg.is_global_set());
    page.extend(own.chain(cli.get_arguments()).flat_map(original_rows));
    let ignored: Vec<_> = Ignored::all().map(|flag| code(&format!("--{flag}"))).collect();
    page.push(format!(
        "\nAccepted without effect, and named in one line of the log: {}. Any other flag is an error.",
        ignored.join(", ")
    ));
    page.push(String::new());
    File { path: "docs/reference/cli.md".to_owned(), text: page.join("\n") }
}

fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

/// kube-vip-cloud-provider's name for a flag of ours, or a setting that only it has.
fn original_rows(arg: &Arg) -> Vec<String> {
    let Some(flag) = arg.get_long() else { return Vec::new() };
    let row = |name: &str, meaning: &str| format!("| `{name}` | {}. |", cell(meaning));
    let aliases = arg.get_all_aliases().into_iter().flatten();
    let values = arg.get_possible_values();
    let values = values.iter().flat_map(|value| {
        let mut names = value.get_name_and_aliases();
        let ours = names.next().unwrap_or_default();
        let names = names.filter(|name| !EARLIER.contains(name));
        names.map(move |name| (format!("--{flag}={name}"), format!("As `--{flag}={ours}`")))
    });
    let own = arg.get_help().filter(|_| arg.is_hide_set()).map(|help| {
        let name = arg.get_env().map(|name| name.to_string_lossy().into_owned());
        (name.unwrap_or_else(|| format!("--{flag}")), help.to_string())
    });
    aliases
        .map(|alias| (format!("--{alias}"), format!("As `--{flag}`")))
        .chain(values)
        .chain(own)
        .map(|(name, meaning)| row(&name, &meaning))
        .collect()
}

/// A flag's row; none for flags that clap adds or that belong to other programs.
fn row(arg: &Arg) -> Option<String> {
    let flag = arg.get_long().filter(|flag| !matches!(*flag, "help" | "version"))?;
    if arg.is_hide_set() {
        return None;
    }
    let value = arg.get_value_names().into_iter().flatten().next();
    let separator = if arg.is_require_equals_set() { '=' } else { ' ' };
    let value = value.map(|name| format!("{separator}{name}")).unwrap_or_default();
    let variable = arg.get_env().map(|name| code(&name.to_string_lossy())).unwrap_or_default();
    let default: Vec<_> =
        arg.get_default_values().iter().map(|value| code(&value.to_string_lossy())).collect();
    let help = arg.get_help().map(ToString::to_string);
    let values: Vec<_> =
        arg.get_possible_values().iter().map(|value| code(value.get_name())).collect();
    let values = (!values.is_empty()).then(|| format!("One of {}", values.join(", ")));
    let meaning: Vec<_> = help.into_iter().chain(values).collect();
    Some(format!(
        "| `--{flag}{value}` | {variable} | {} | {}. |",
        default.join(", "),
        cell(&meaning.join(". "))
    ))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}
