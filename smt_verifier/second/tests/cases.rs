//! The pairs of `tests/cases` that have one block, with certificates that say nothing but what pairs.

mod common;

use std::path::{Path, PathBuf};

use verilocc_check::audit::audit;

struct Case {
    name: String,
    verdict: String,
    target: String,
    before: String,
    after: String,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the cases").filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let Some(name) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".before.mir")) else {
            continue;
        };
        let before = std::fs::read_to_string(&path).expect("a text");
        let after = std::fs::read_to_string(folder.join(format!("{name}.after.mir"))).expect("a text");
        let head = before.lines().next().unwrap_or("").trim_start_matches("# ").to_string();
        let field = |key: &str| {
            let fields = head.split("; ").find_map(|f| f.strip_prefix(key)?.strip_prefix(": "));
            fields.unwrap_or("").to_string()
        };
        all.push(Case { name: name.to_string(), verdict: field("verdict"), target: field("target"), before, after });
    }
    assert!(all.len() > 400);
    all
}

#[test]
fn no_wrong_pair_is_accepted() {
    let (mut wrong, mut refused, mut tried) = (Vec::new(), Vec::new(), 0);
    for case in cases() {
        let Some(certificate) = common::one_block(&case.before, &case.after) else { continue };
        tried += 1;
        let answer = audit(&case.before, &case.after, &certificate, &case.target, None);
        match (&answer, case.verdict.as_str()) {
            (Ok(_), "proved") => {}
            (Ok(_), _) => wrong.push(case.name.clone()),
            (Err(error), "proved") => refused.push(format!("{}: {error}", case.name)),
            (Err(_), _) => {}
        }
        if let Err(error) = answer {
            println!("{} {}: {error}", case.verdict, case.name);
        }
    }
    println!("{tried} tried; right but refused:\n{}", refused.join("\n"));
    assert!(wrong.is_empty(), "accepted though wrong: {wrong:?}");
}

/// Certificates that our search has written, for cases with several blocks, masks, cells and repeats.
#[test]
fn right_cases_are_accepted_with_their_certificates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    let mut tried = 0;
    for case in cases() {
        let Ok(certificate) = std::fs::read_to_string(folder.join(format!("{}.cert", case.name))) else { continue };
        tried += 1;
        let answer = audit(&case.before, &case.after, &certificate, &case.target, None);
        assert!(answer.is_ok(), "{}: {answer:?}", case.name);
        // Every line counts: without one, nothing is accepted but what claims less than it could.
        let lines: Vec<&str> = certificate.lines().collect();
        // A block that is a part of another one has no steps.
        let says = |line: &str| !line.starts_with(['h', 'd', 'u', 'm']) && line != "steps";
        for leave in (0..lines.len()).filter(|n| says(lines[*n])) {
            let rest: Vec<&str> =
                lines.iter().enumerate().filter(|(n, _)| *n != leave).map(|(_, line)| *line).collect();
            let less = ["nonempty", "in ", "split", "some"].iter().any(|word| lines[leave].starts_with(word));
            let answer = audit(&case.before, &case.after, &(rest.join("\n") + "\n"), &case.target, None);
            assert!(answer.is_err() || less, "{} without `{}`", case.name, lines[leave]);
        }
    }
    assert!(tried >= 30, "{tried}");
}
