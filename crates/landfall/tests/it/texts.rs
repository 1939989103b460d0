//! The documents show what is really printed: tables of `kubectl`, conditions, refusals of policies.

use std::fs;

use landfall_api::{GroupName, HolderKind, announce::Obstacle, text};
use landfall_ipam::{Clash, Family, PoolName, Reason, Refusal, Verdict};
use landfall_testkit::wait;

use crate::guide::{self, Guide};
use crate::stage::{Arena, LONG, arena, ip, root};

/// Columns whose values differ in each cluster.
const VOLATILE: [&str; 3] = ["AGE", "CLUSTER-IP", "PORT(S)"];

/// One of each kind that is listed somewhere, so that there is something to list.
const LISTED: &str = r"
apiVersion: paas.org/v1
kind: IPGroup
metadata: {name: texts}
spec: {segment: 10.61.0.0/24}
---
apiVersion: paas.org/v1
kind: IP
metadata: {name: 10.61.1.1}
spec: {use: Reserved, reservedFor: {namespace: texts}}
---
apiVersion: v1
kind: Namespace
metadata: {name: texts}
---
apiVersion: paas.org/v1
kind: VirtualIP
metadata: {name: texts, namespace: texts}
spec: {service: web}
---
apiVersion: v1
kind: Service
metadata: {name: texts, namespace: texts}
spec: {type: LoadBalancer, ports: [{port: 80}]}
";

/// A command in a block of text, and what follows it.
struct Shown {
    place: String,
    command: String,
    printed: Vec<String>,
}

/// Every command with its output in a document.
fn shown(place: &str, guide: &Guide) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for block in guide.blocks("text") {
        let mut open = false;
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                let (place, command) = (place.to_owned(), command.to_owned());
                all.push(Shown { place, command, printed: Vec::new() });
                open = true;
            } else if let Some(last) = all.last_mut().filter(|_| open) {
                last.printed.push(line.to_owned());
            }
        }
    }
    all
}

fn documents() -> Vec<(String, Guide)> {
    let mut paths = vec![root().join("README.md")];
    for folder in ["docs", "docs/guides"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        paths.extend(entries.map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let read = |path: std::path::PathBuf| {
        let place = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        (place, Guide::of(fs::read_to_string(path).unwrap()))
    };
    paths.into_iter().map(read).collect()
}

/// The columns of a table with their offsets: names of columns are three blanks apart.
fn columns(header: &str) -> Vec<(usize, &str)> {
    let mut columns = Vec::new();
    let mut at = 0;
    for part in header.split("   ") {
        let blanks = part.len() - part.trim_start().len();
        if !part.trim().is_empty() {
            columns.push((at + blanks, part.trim()));
        }
        at += part.len() + 3;
    }
    columns
}

/// The cells of a table, without the volatile columns.
fn cells(lines: &[String]) -> Vec<Vec<String>> {
    let Some(header) = lines.first() else { return Vec::new() };
    let columns = columns(header);
    let row = |line: &String| {
        let ends = columns.iter().skip(1).map(|(at, _)| *at).chain([usize::MAX]);
        let cells = columns.iter().zip(ends).map(|((from, name), to)| {
            let value: String = line.chars().skip(*from).take(to.saturating_sub(*from)).collect();
            let value = value.trim();
            if VOLATILE.contains(name) && value != *name { String::new() } else { value.to_owned() }
        });
        cells.collect()
    };
    lines.iter().map(row).collect()
}

#[tokio::test]
async fn tables_have_the_columns_that_kubectl_prints() {
    let plane = landfall_testkit::shared().await.unwrap();
    plane.install_crds(&root().join("deploy/crds")).await.unwrap();
    plane.apply_yaml(LISTED).await.unwrap();
    let mut compared = 0;
    for (place, guide) in documents() {
        for Shown { place, command, printed } in shown(&place, &guide) {
            let words: Vec<_> = command.split_whitespace().collect();
            let Some(kind) = words.iter().position(|word| *word == "get").map(|at| words[at + 1])
            else {
                continue;
            };
            let all = kind != "ips" && kind != "ipg" && !kind.starts_with("ipgroup");
            let scope: &[&str] = if all { &["-A"] } else { &[] };
            let real = plane.kubectl(&[&["get", kind][..], scope].concat()).await.unwrap();
            let mut real: Vec<_> =
                columns(real.lines().next().unwrap()).iter().map(|(_, name)| *name).collect();
            if all && !words.contains(&"-A") {
                assert_eq!(real.remove(0), "NAMESPACE");
            }
            let header = printed.first().unwrap_or_else(|| panic!("{place}: {command}"));
            let there = columns(header);
            let names: Vec<_> = there.iter().map(|(_, name)| *name).collect();
            assert_eq!(names, real, "{place}: {command}");
            for row in &printed[1..] {
                let letters: Vec<_> = row.chars().collect();
                let starts = there.iter().skip(1).filter(|(at, _)| *at < letters.len());
                let aligned = starts.into_iter().all(|(at, _)| letters[at - 1] == ' ');
                assert!(aligned, "{place}: {row:?} is not below {header:?}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}");
}

/// Runs a command until it prints what the guide shows.
async fn prints(arena: &Arena, command: &str, expected: &[String]) {
    wait::until(format!("`{command}` to print {expected:?}"), LONG, async || {
        let printed: Vec<_> =
            guide::walk(arena, command).await.lines().map(str::to_owned).collect();
        let same = if command.contains(" get ") && !command.contains("jsonpath") {
            cells(&printed) == cells(expected)
        } else {
            printed == expected
        };
        if same { Ok(()) } else { Err(format!("{printed:?}")) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn following_the_getting_started_guide_shows_the_output_it_quotes() {
    let arena = arena().await;
    let operator = arena.operator().await;
    operator.wait_ready(LONG).await.unwrap();
    let guide = Guide::read("getting-started.md");
    let mut shows = 0;
    for heading in ["The first pool", "The first Service", "Ask for an address"] {
        let section = guide.section(heading);
        for block in section.blocks("yaml") {
            arena.apply(block).await;
        }
        for Shown { command, printed, .. } in shown(heading, &section) {
            prints(&arena, &command, &printed).await;
            shows += 1;
        }
    }
    assert_eq!(shows, 3);

    // "A second Service that asks for" the same.
    let mail = guide.section("Ask for an address").blocks("yaml").next().unwrap().to_owned();
    arena.apply(&mail.replace("name: mail", "name: mail-copy")).await;
    let section = guide.section("Read why not");
    let [command] = section.commands()[..] else { panic!("{:?}", section.commands()) };
    let said = section.blocks("text").next().unwrap();
    let said: Vec<_> = said.lines().map(str::to_owned).collect();
    prints(&arena, command, &said).await;
    drop(operator);
}

/// The first text that the troubleshooting page quotes under each reason.
fn quoted(page: &Guide, reason: &str) -> String {
    let section = page.section(reason);
    let lines = section.text().lines().skip_while(|line| !line.starts_with("> "));
    let lines = lines.map_while(|line| line.strip_prefix("> "));
    lines.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_troubleshooting_page_quotes_conditions_as_they_are_written() {
    let page = Guide::of(fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap());
    let (v4, v6) = (Family::V4, Family::V6);
    let pool = |name: &str| PoolName::new(&format!("IPGroup/{name}"));
    let none = |family, verdicts: &[(&str, Verdict)]| {
        let verdicts = verdicts.iter().map(|(name, verdict)| (pool(name), *verdict));
        Refusal::NoneGives(family, verdicts.collect())
    };
    let asked = ip("192.0.2.25");
    let refusals = [
        none(v4, &[("public", Verdict::Full(v4))]),
        none(v4, &[("payments", Verdict::OtherNamespaces), ("spare", Verdict::OnRequestOnly)]),
        Refusal::Excluded(ip("192.0.2.5"), pool("public")),
        Refusal::TakenBy(asked, "Service shop/mail".into()),
        Refusal::Reserved(asked, "a reservation for shop/mail until 2030-01-01T00:00:00Z".into()),
        Refusal::SharingRefused(asked, "Service shop/web".into(), Clash::Port("TCP/443".into())),
        Refusal::OutsideEveryPool(ip("10.9.9.9")),
        none(v6, &[("public", Verdict::NoFamily(v6))]),
        none(v4, &[("public", Verdict::Draining)]),
        Refusal::Unparseable {
            field: "spec.loadBalancerIP",
            input: "192.0.2.300".into(),
            expected: "an address",
        },
        none(v4, &[("team-a", Verdict::OverQuota(5))]),
        none(v4, &[("internal", Verdict::OtherClass)]),
        none(v4, &[("dzm", Verdict::Missing)]),
        none(v4, &[("public", Verdict::Invalid)]),
        none(v4, &[]),
        Refusal::LedgerRefused("ips.paas.org is forbidden: ".into()),
        Refusal::HolderRefused("services \"web\" is forbidden: ".into()),
    ];
    for reason in Reason::ALL {
        let refusal = refusals.iter().find(|refusal| refusal.reason() == reason);
        let refusal = refusal.unwrap_or_else(|| panic!("{reason}: an example"));
        let written = text::refusal(HolderKind::Service, refusal);
        let quote = quoted(&page, reason.as_str());
        let quote = quote.trim_end_matches('…');
        assert!(
            !quote.is_empty() && written.starts_with(quote),
            "{reason}: {quote:?}, {written:?}"
        );
    }
}

#[test]
fn the_troubleshooting_page_quotes_the_messages_about_announcing() {
    let page = Guide::of(fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap());
    let edge: GroupName = "net/edge".parse().unwrap();
    let address = ip("192.0.2.25");
    for obstacle in [
        Obstacle::GroupUnknown(edge.clone()),
        Obstacle::NamespaceRefused(edge.clone(), "shop".into()),
        Obstacle::OutsideRanges(edge.clone(), address),
        Obstacle::AddressConflict(address, "Service shop/mail".into()),
        Obstacle::NotApplied(edge.clone(), 7),
        Obstacle::NoHolder(edge, address),
        Obstacle::HolderSilent(address, "n1".into()),
    ] {
        assert_eq!(quoted(&page, obstacle.reason().as_str()), obstacle.to_string());
    }
}
