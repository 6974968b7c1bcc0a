//! Reads the pairs of `tests/cases`, and mutations of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use verilocc_check::{header, limits, model::Refused, module, tables, text, wellformed};

struct Case {
    name: String,
    verdict: String,
    target: String,
    before: String,
    after: String,
}

fn cases() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut texts: BTreeMap<String, (String, String)> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("tests/cases is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let content = std::fs::read(&path).unwrap_or_default();
        let content = String::from_utf8_lossy(&content).into_owned();
        if let Some(name) = name.strip_suffix(".before.mir") {
            texts.entry(name.into()).or_default().0 = content;
        } else if let Some(name) = name.strip_suffix(".after.mir") {
            texts.entry(name.into()).or_default().1 = content;
        }
    }
    let word = |text: &str, key: &str| {
        let rest = text.lines().next().and_then(|line| line.split_once(key)).map_or("", |(_, rest)| rest);
        rest.split(';').next().unwrap_or("").trim().to_string()
    };
    let of = |(name, (before, after)): (String, (String, String))| Case {
        name,
        verdict: word(&before, "verdict:"),
        target: word(&before, "target:"),
        before,
        after,
    };
    texts.into_iter().map(of).collect()
}

/// Everything but the steps.
fn check(before: &str, after: &str, target: &str) -> Result<(), Refused> {
    let target = tables::tables().processor(target).ok_or_else(|| Refused::new("input", "no such processor", ""))?;
    let (before, after) = (text::read(before)?, text::read(after)?);
    module::compare(&before.module, &after.module, target)?;
    for p in &before.functions {
        let gone = || Refused::new("input", "the function is gone", "");
        let q = after.functions.iter().find(|q| q.name == p.name).ok_or_else(gone)?;
        wellformed::check(p, target)?;
        wellformed::check(q, target)?;
        let limits = limits::limits(p, &before.module, target)?;
        header::compare(p, q, &limits, target)?;
        let module::Attributes { convention, strings, .. } = module::attributes(&before.module, &p.name)?;
        header::frame(p, q, &convention)?;
        header::scratch(p, q, target, &strings)?;
    }
    Ok(())
}

#[test]
fn right_pairs_are_read_and_their_headers_agree() {
    let cases = cases();
    assert!(cases.len() > 400);
    for case in cases.iter().filter(|case| case.verdict == "proved") {
        assert_eq!(check(&case.before, &case.after, &case.target), Ok(()), "{}", case.name);
    }
}

#[test]
fn attacks_on_headers_modules_and_the_reader_are_refused() {
    for case in cases().iter().filter(|case| case.verdict != "proved") {
        // Two of them are refused for their values: successors that are not printed follow from the branches.
        let is_here = ["header_", "module_", "parser_"].iter().any(|class| case.name.starts_with(class));
        if is_here && !case.name.starts_with("parser_successors_missing") {
            assert!(check(&case.before, &case.after, &case.target).is_err(), "{}", case.name);
        }
    }
}

/// A generator of numbers that is the same everywhere (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

fn mutated(text: &str, random: &mut Random) -> String {
    const WORDS: [&str; 20] = [
        "\u{e9}", " ", "\n", "0", "-", "99999999999999999999", "{", "}", "[", "'", "\"", "(", ")", "$vgpr0", "%5",
        "!0", ", ", "\\", "#", "\t",
    ];
    let mut bytes: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => drop(bytes.remove(at)),
            1 => bytes.swap(at, (at + 1).min(text.len() / 2)),
            2 => drop(bytes.splice(at..at, WORDS[random.below(WORDS.len())].chars()).collect::<Vec<_>>()),
            _ => {
                let (first, last) = (at, (at + random.below(60)).min(bytes.len()));
                let part: Vec<char> = bytes[first..last].to_vec();
                let to = random.below(bytes.len());
                drop(bytes.splice(to..to, part).collect::<Vec<_>>());
            }
        }
    }
    bytes.into_iter().collect()
}

#[test]
fn nothing_panics_on_mutated_texts() {
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let (mut random, mut refused, mut accepted) = (Random(36), 0u32, 0u32);
    for case in cases() {
        for round in 0..rounds {
            let (before, after) = if round % 2 == 0 {
                (case.before.clone(), mutated(&case.after, &mut random))
            } else {
                (mutated(&case.before, &mut random), case.after.clone())
            };
            match check(&before, &after, &case.target) {
                Ok(()) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{refused} refused, {accepted} accepted");
    assert!(refused > accepted);
}

/// A change of one character is another text or none, but for blanks and comments.
#[test]
fn every_character_counts() {
    let mut seen = 0;
    for case in cases().iter().filter(|case| case.name == "right_asm_goto" || case.name == "right_address_remat") {
        let model = text::read(&case.after).expect("it is read");
        let mut start = 0;
        for line in case.after.split_inclusive('\n') {
            for at in (0..line.len()).filter(|at| !line.starts_with('#') && !line[*at..].starts_with([' ', '\n'])) {
                for word in ["", "0", "z", "-"] {
                    let at = start + at;
                    let changed = format!("{}{word}{}", &case.after[..at], &case.after[at + 1..]);
                    if changed != case.after {
                        seen += 1;
                        assert_ne!(
                            format!("{:?}", text::read(&changed)),
                            format!("{:?}", Ok::<_, Refused>(&model)),
                            "{line} {at} {word}"
                        );
                    }
                }
            }
            start += line.len();
        }
    }
    assert!(seen > 1000);
}
