//! `docs/reference`: a page per kind from the texts of its schema, and one with all keys on objects.

use landfall_api::{Holder, keys};
use serde_json::Value;

use super::{Error, File, NOTICE, cell};

pub(super) fn files() -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    for crd in landfall_api::crds().into_iter().chain(landfall_api::legacy_crds()) {
        let path =
            format!("docs/reference/{}.md", crd.spec.names.singular.as_deref().unwrap_or_default());
        match serde_json::to_value(&crd) {
            Ok(crd) => files.push(File { path, text: kind(&crd) }),
            Err(source) => return Err(Error::Json { path, source }),
        }
    }
    files.push(File { path: "docs/reference/words.md".to_owned(), text: all_terms() });
    Ok(files)
}

/// A row of the field table.
struct Row {
    field: String,
    type_: String,
    default: String,
    meaning: String,
}

/// The page of one kind.
fn kind(crd: &Value) -> String {
    let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
    let mut page = vec![
        format!("<!-- {NOTICE} -->"),
        format!("# {}", text(&names["kind"])),
        String::new(),
        facts(crd),
        String::new(),
    ];
    for version in list(&spec["versions"]) {
        let root = &version["schema"]["openAPIV3Schema"];
        page.insert(3, format!("{}\n", text(&root["description"])));
        for part in ["spec", "status"] {
            let schema = &root["properties"][part];
            page.push(format!("## {part}\n"));
            if let Some(about) = schema["description"].as_str() {
                page.push(format!("{about}\n"));
            }
            let mut rows = Vec::new();
            fields(schema, "", &mut rows);
            page.push(table(&rows));
        }
        let rules: Vec<_> =
            [root, &root["properties"]["spec"]].into_iter().flat_map(refusals).collect();
        if !rules.is_empty() {
            page.push("## Refused by the API server\n".to_owned());
            page.push("Besides what the tables say about each field:\n".to_owned());
            page.extend(rules.iter().map(|rule| format!("- {}.", capital(rule))));
            page.push(String::new());
        }
        page.push("## Columns of `kubectl get`\n".to_owned());
        for column in list(&version["additionalPrinterColumns"]) {
            let wide = if column["priority"] == 1 { " (with `-o wide`)" } else { "" };
            page.push(format!(
                "- {}: `{}`{wide}",
                text(&column["name"]),
                text(&column["jsonPath"])
            ));
        }
    }
    let mut page = page.join("\n");
    page.push('\n');
    page
}

/// How the kind is addressed.
fn facts(crd: &Value) -> String {
    let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
    let mut facts = Vec::new();
    for version in list(&spec["versions"]) {
        let fields: Vec<_> = list(&version["selectableFields"])
            .map(|field| format!("`{}`", text(&field["jsonPath"]).trim_start_matches('.')))
            .collect();
        facts.push(format!("- API: `{}/{}`", text(&spec["group"]), text(&version["name"])));
        facts.push(format!("- Scope: {}", text(&spec["scope"])));
        if !fields.is_empty() {
            facts.push(format!("- Field selectors: {}", fields.join(", ")));
        }
    }
    let mut called = vec![format!("`{}`", text(&names["plural"]))];
    called.extend(list(&names["shortNames"]).map(|name| format!("`{}`", text(name))));
    facts.insert(1, format!("- For `kubectl get`: {}", called.join(", ")));
    facts.join("\n")
}

/// Rows of all fields below `schema`, parents before children.
fn fields(schema: &Value, prefix: &str, rows: &mut Vec<Row>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let required = list(&schema["required"]).any(|field| field == name.as_str());
        rows.push(row(&path, field, required));
        match shape(field) {
            Shape::Object => fields(field, &format!("{path}."), rows),
            Shape::List if matches!(shape(&field["items"]), Shape::Object) => {
                fields(&field["items"], &format!("{path}[]."), rows);
            }
            Shape::List | Shape::Map | Shape::Selector | Shape::Condition | Shape::Plain => {}
        }
    }
}

/// How a schema is printed.
enum Shape {
    /// Its fields get rows of their own.
    Object,
    List,
    Map,
    /// Kubernetes' label selector, which its own documentation explains.
    Selector,
    /// Kubernetes' condition, likewise.
    Condition,
    Plain,
}

fn shape(schema: &Value) -> Shape {
    let has = |field: &str| schema["properties"].get(field).is_some();
    match schema["type"].as_str() {
        Some("object") if has("matchLabels") && has("matchExpressions") => Shape::Selector,
        Some("object") if has("lastTransitionTime") && has("reason") => Shape::Condition,
        Some("object") if schema["properties"].is_object() => Shape::Object,
        Some("object") => Shape::Map,
        Some("array") => Shape::List,
        _ => Shape::Plain,
    }
}

fn type_name(schema: &Value) -> String {
    match shape(schema) {
        Shape::Object => "object".to_owned(),
        Shape::List => format!("list of {}", type_name(&schema["items"])),
        Shape::Map => format!("map to {}", type_name(&schema["additionalProperties"])),
        Shape::Selector => "label selector".to_owned(),
        Shape::Condition => "condition".to_owned(),
        Shape::Plain => match schema["format"].as_str() {
            Some("date-time") => "time".to_owned(),
            _ => text(&schema["type"]).to_owned(),
        },
    }
}

/// The value that the code uses when a field is left out is in its text, not in the schema: a default in the
/// schema would be written into every object of the original operators.
const DEFAULTS_TO: &str = "Defaults to ";

fn row(path: &str, schema: &Value, required: bool) -> Row {
    let about = text(&schema["description"]).replace("\n\n", " ");
    let (meaning, default) = match about.rsplit_once(DEFAULTS_TO) {
        Some((meaning, default)) => (meaning.trim_end(), default.trim_end_matches('.')),
        None => (about.as_str(), if required { "required" } else { "" }),
    };
    let mut sentences = vec![meaning.to_owned()];
    sentences.extend(limits(schema));
    if matches!(shape(schema), Shape::List) {
        sentences.extend(limits(&schema["items"]).map(|limit| format!("Each entry: {limit}")));
    }
    Row {
        field: path.to_owned(),
        type_: type_name(schema),
        default: default.to_owned(),
        meaning: sentences.join(" "),
    }
}

/// The limits that the schema itself enforces, as sentences.
fn limits(schema: &Value) -> impl Iterator<Item = String> {
    let number = |key: &str| schema[key].as_f64();
    let words: Vec<_> =
        list(&schema["enum"]).filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
    let plain = [
        (!words.is_empty()).then(|| format!("One of {}.", words.join(", "))),
        number("minimum").map(|least| format!("At least {least}.")),
        number("maximum").map(|most| format!("At most {most}.")),
        number("minLength").map(|_| "Not empty.".to_owned()),
        number("maxLength").map(|most| format!("At most {most} characters.")),
        number("maxItems").map(|most| format!("At most {most} entries.")),
        number("maxProperties").map(|most| format!("At most {most} entries.")),
    ];
    // The rules of an object concern all of it and are in their own section.
    let rules = if schema["type"] == "object" { Vec::new() } else { refusals(schema).collect() };
    let rules = rules.into_iter().map(|rule| format!("{}.", capital(&rule)));
    rules.chain(plain.into_iter().flatten())
}

/// The messages of the schema's rules, without the offending value.
fn refusals(schema: &Value) -> impl Iterator<Item = String> {
    list(&schema["x-kubernetes-validations"]).map(|rule| {
        rule["message"].as_str().map_or_else(
            || {
                let literal = text(&rule["messageExpression"]).trim_start_matches('\'');
                literal.split(", not \"").next().unwrap_or_default().to_owned()
            },
            str::to_owned,
        )
    })
}

fn all_terms() -> String {
    let mut page = vec![
        format!("<!-- {NOTICE} -->"),
        "# Keys on objects\n".to_owned(),
        "Labels, annotations, finalizers and conditions that Landfall reads or writes.\n"
            .to_owned(),
        "| where | key | meaning |".to_owned(),
        "| --- | --- | --- |".to_owned(),
    ];
    page.extend(
        keys::TERMS
            .iter()
            .map(|term| format!("| {} | `{}` | {} |", term.place, term.key, cell(term.meaning))),
    );
    page.push("\n## How much is read\n".to_owned());
    page.push(
        "Lists that users write on a Service are read up to these limits, so that a Service costs little \
         memory whatever is on it. Beyond a limit the condition says `Unparseable`; of `spec.externalIPs` \
         and finalizers the rest is ignored.\n"
            .to_owned(),
    );
    page.extend(["| list | at most |".to_owned(), "| --- | --- |".to_owned()]);
    page.extend(bounds().map(|(list, most)| format!("| {list} | {most} |")));
    let mut page = page.join("\n");
    page.push('\n');
    page
}

/// The lists that users write on Services, and how much of each is read.
fn bounds() -> impl Iterator<Item = (&'static str, String)> {
    let entries = format!("{} of {} bytes each", keys::MOST_ENTRIES, keys::LONGEST_ENTRY);
    let namespaces = format!("{} namespaces", Holder::MOST_NAMESPACES);
    [
        ("addresses or pools that are asked for, in any words", entries),
        ("`kube-vip.io/loadbalancerIPs`", "one address per family".to_owned()),
        ("`landfall.dev/sharing-with` and its like", namespaces),
        ("a sharing key", format!("{} bytes", Holder::LONGEST_KEY)),
        ("ports of a Service that shares", Holder::MOST_PORTS.to_string()),
        ("labels", keys::MOST_LABELS.to_string()),
        ("`spec.externalIPs`", keys::MOST_EXTERNAL_IPS.to_string()),
        ("finalizers, for those that replaced operators left", keys::MOST_FINALIZERS.to_string()),
    ]
    .into_iter()
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        "| field | type | default | meaning |".to_owned(),
        "| --- | --- | --- | --- |".to_owned(),
    ];
    lines.extend(rows.iter().map(|Row { field, type_, default, meaning }| {
        format!("| `{field}` | {type_} | {default} | {} |", cell(meaning))
    }));
    lines.push(String::new());
    lines.join("\n")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
