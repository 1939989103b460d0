use super::*;

fn file(text: &str) -> File {
    File { path: "deploy/x.yaml".to_owned(), text: text.to_owned() }
}

#[test]
fn a_difference_names_the_file_and_the_first_line() {
    for (case, there, expected) in [
        ("equal", Some("a\nb\n"), None),
        ("missing", None, Some("deploy/x.yaml: missing")),
        ("edited", Some("a\nc\n"), Some("deploy/x.yaml:2\n- c\n+ b")),
        ("cut short", Some("a\n"), Some("deploy/x.yaml:2\n- (end of file)\n+ b")),
        ("too long", Some("a\nb\nc\n"), Some("deploy/x.yaml:3\n- c\n+ (end of file)")),
        ("no last line end", Some("a\nb"), Some("deploy/x.yaml: line ends differ")),
    ] {
        assert_eq!(difference(&file("a\nb\n"), there).as_deref(), expected, "{case}");
    }
}

#[test]
fn check_writes_nothing_and_write_satisfies_check() {
    let root = std::env::temp_dir().join(format!("landfall-generate-{}", std::process::id()));
    let generators: &[Generator] = &[|| Ok(vec![file("a\n")])];
    let error = generate(&root, generators, Mode::Check).unwrap_err().to_string();
    assert!(error.contains("cargo xtask generate") && error.contains("missing"), "{error}");
    assert!(!root.exists());
    generate(&root, generators, Mode::Write).unwrap();
    generate(&root, generators, Mode::Check).unwrap();
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn the_repository_holds_the_files_that_the_code_generates() {
    run(true).unwrap();
}
