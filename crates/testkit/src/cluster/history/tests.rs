use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn id(name: &str) -> String {
    format!("Service/shop/{name}/1")
}

fn wish() -> Wish {
    Wish { serves: true, families: vec!["IPv4".into()], ..Wish::default() }
}

fn shows(name: &str, addrs: &[&str]) -> Change {
    wanting(name, addrs, wish())
}

fn wanting(name: &str, addrs: &[&str], wish: Wish) -> Change {
    let shows = addrs.iter().map(|addr| ip(addr)).collect();
    Change::Service(
        format!("shop/{name}"),
        Box::new(Sighting { id: id(name), shows, external: Vec::new(), wish }),
    )
}

fn named(name: &str, port: Option<&str>) -> Named {
    Named { id: id(name), namespace: "shop".into(), terms: port.map(sharing) }
}

fn sharing(port: &str) -> Terms {
    Terms { key: Some("k".into()), ports: vec![port.into()], ..Terms::default() }
}

fn held(addr: &str, name: &str) -> Change {
    Change::Claim(ip(addr), vec![named(name, None)])
}

fn history(changes: Vec<Change>) -> History {
    let changes = (1..).zip(changes.into_iter().map(|change| vec![change])).collect();
    let before = Snapshot { claims: vec![], services: vec![] };
    History::new(before, Log { changes, blind: vec![] })
}

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

#[test]
fn a_history_remembers_faults_that_lasted_a_moment() {
    let shared = |one: &str, other: &str| {
        Change::Claim(ip(A), vec![named("web", Some(one)), named("db", Some(other))])
    };
    for (case, changes, problems, moved) in [
        ("in order", vec![held(A, "web"), shows("web", &[A])], 0, 0),
        ("shown before it was taken", vec![shows("web", &[A]), held(A, "web")], 1, 0),
        (
            "released while shown",
            vec![held(A, "web"), shows("web", &[A]), Change::ClaimGone(ip(A))],
            1,
            0,
        ),
        (
            "doubled for a moment",
            vec![held(A, "web"), shows("web", &[A]), shows("db", &[A]), shows("db", &[])],
            1,
            0,
        ),
        ("shared", vec![shared("TCP/80", "TCP/443"), shows("web", &[A]), shows("db", &[A])], 0, 0),
        ("one port for two", vec![shared("TCP/80", "TCP/80")], 1, 0),
        (
            "moved",
            vec![
                held(A, "web"),
                shows("web", &[A]),
                held(B, "web"),
                shows("web", &[]),
                shows("web", &[B]),
            ],
            0,
            1,
        ),
        (
            "deleted first, then released",
            vec![
                held(A, "web"),
                shows("web", &[A]),
                Change::ServiceGone("shop/web".into()),
                Change::ClaimGone(ip(A)),
            ],
            0,
            0,
        ),
    ] {
        let history = history(changes);
        let found = history.problems();
        assert_eq!(found.len(), problems, "{case}: {found:?}");
        assert_eq!(history.moved().len(), moved, "{case}");
    }
}

#[test]
fn a_finding_names_the_service_that_shows_an_address_of_another() {
    let doubled = history(vec![held(A, "web"), shows("web", &[A]), shows("db", &[A])]);
    let blamed: Vec<_> = doubled.findings().into_iter().map(|it| it.shown_by).collect();
    assert_eq!(blamed, [Some("shop/db".to_owned())]);
    let clash = Change::Claim(ip(A), vec![named("web", None), named("db", None)]);
    let blamed: Vec<_> =
        history(vec![clash]).findings().into_iter().map(|it| it.shown_by).collect();
    assert_eq!(blamed, [None]);
}

#[test]
fn an_address_goes_only_if_its_user_wanted_something_else_meanwhile() {
    let asking = |addr: &str| Wish { asked: BTreeSet::from([ip(addr)]), ..wish() };
    let shares = |port: &str| Wish { terms: Some(sharing(port)), ..wish() };
    let dual = Wish { families: vec!["IPv4".into(), "IPv6".into()], ..wish() };
    let plain = Wish { serves: false, ..wish() };
    let classy = Wish { class: Some("c".into()), ..wish() };
    let given = || shows("web", &[A]);
    let another =
        Sighting { external: Vec::new(), id: "new".into(), shows: vec![ip(B)], wish: wish() };
    let another = Change::Service("shop/web".into(), Box::new(another));
    for (case, changes, expected) in [
        ("kept", vec![given(), given()], "[]"),
        ("moved", vec![given(), shows("web", &[B])], "[Another(10.0.0.2)]"),
        ("taken away", vec![given(), shows("web", &[])], "[Nothing]"),
        (
            "taken away, then another",
            vec![given(), shows("web", &[]), shows("web", &[B])],
            "[Another(10.0.0.2)]",
        ),
        (
            "taken away, then deleted",
            vec![given(), shows("web", &[]), Change::ServiceGone("shop/web".into())],
            "[Back]",
        ),
        ("taken away and given back", vec![given(), shows("web", &[]), given()], "[Back]"),
        ("asked for", vec![given(), wanting("web", &[B], asking(B))], "[]"),
        (
            "asked for, served later",
            vec![given(), wanting("web", &[A], asking(B)), shows("web", &[B])],
            "[]",
        ),
        (
            "asked for before anybody looked, served later",
            vec![wanting("web", &[A], asking(B)), shows("web", &[B])],
            "[]",
        ),
        (
            "asked for what it has",
            vec![given(), wanting("web", &[B], asking(A))],
            "[Another(10.0.0.2)]",
        ),
        (
            "no request any more",
            vec![wanting("web", &[A], asking(A)), shows("web", &[B])],
            "[Another(10.0.0.2)]",
        ),
        (
            "another type for a while",
            vec![given(), wanting("web", &[A], plain), shows("web", &[B])],
            "[]",
        ),
        ("another class", vec![given(), wanting("web", &[B], classy)], "[]"),
        (
            "another port, shared",
            vec![wanting("web", &[A], shares("TCP/1")), wanting("web", &[B], shares("TCP/2"))],
            "[]",
        ),
        ("a family more", vec![given(), wanting("web", &[A, "fd00::1"], dual.clone())], "[]"),
        ("a family less", vec![wanting("web", &[A, "fd00::1"], dual.clone()), given()], "[]"),
        (
            "the other family's",
            vec![
                wanting("web", &[A, "fd00::1"], dual.clone()),
                wanting("web", &[A, "fd00::2"], dual),
            ],
            "[Another(fd00::2)]",
        ),
        ("another Service of that name", vec![given(), another], "[]"),
    ] {
        let found: Vec<_> = history(changes).unasked().into_iter().map(|it| it.then).collect();
        assert_eq!(format!("{found:?}"), expected, "{case}");
    }
}

#[test]
fn a_blind_spot_is_judged_at_its_end() {
    let story =
        || vec![held(A, "web"), shows("web", &[A]), Change::ClaimGone(ip(A)), shows("web", &[])];
    assert_eq!(history(story()).problems().len(), 1);
    assert_eq!(history(story()).unasked().len(), 1);
    for (case, until, problems, unasked) in
        [("past it all", 4, 0, 0), ("in the middle", 3, 0, 1), ("before", 2, 1, 1)]
    {
        let mut history = history(story());
        history.log.was_blind(0, until);
        assert_eq!(history.problems().len(), problems, "{case}");
        assert_eq!(history.unasked().len(), unasked, "{case}");
    }
    let mut doubled = history(vec![held(A, "web"), shows("web", &[A]), shows("db", &[A])]);
    doubled.log.was_blind(0, 3);
    assert_eq!(doubled.problems().len(), 1, "still so when the eyes are open again");
}
