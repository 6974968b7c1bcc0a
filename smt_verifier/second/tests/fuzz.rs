//! Changed certificates and texts, from a seed: nothing panics, and no wrong case becomes right.

mod common;

use std::path::Path;

use verilocc_check::audit::audit;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }
}

const PIECES: [&str; 24] = [
    "0", "4294967295", "18446744073709551616", "$vgpr0", "$vcc", "$exec", "%0", "%4294967295", "!0.0.0", "@0.0.0",
    "&$0:63", "#0.0", "in 0\n", "entry\n", "class 0 P on\n", "steps 1=\n", "h %0.0 $0 1\n", " ", "\n", "killed ",
    "undef ", "renamable ", ", ", "-1",
];

/// Leave out, double, move or replace a part of a text.
fn change(text: &str, random: &mut Random) -> String {
    let letters: Vec<char> = text.chars().collect();
    let at = random.below(letters.len());
    let end = (at + 1 + random.below(12)).min(letters.len());
    let (head, part, tail) = (&letters[..at], &letters[at..end], &letters[end..]);
    let join = |parts: &[&[char]]| parts.iter().flat_map(|p| p.iter()).collect::<String>();
    match random.below(5) {
        0 => join(&[head, tail]),
        1 => join(&[head, part, part, tail]),
        2 => join(&[head]) + PIECES[random.below(PIECES.len())] + &join(&[tail]),
        3 => join(&[head]) + PIECES[random.below(PIECES.len())] + &join(&[part, tail]),
        _ => {
            let mut lines: Vec<&str> = text.split('\n').collect();
            let (a, b) = (random.below(lines.len()), random.below(lines.len()));
            lines.swap(a, b);
            lines.join("\n")
        }
    }
}

#[test]
fn nothing_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("the cases")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".before.mir")?.to_string()))
        .collect();
    names.sort();
    let mut random = Random(36);
    let mut refused = 0;
    for name in names {
        let read = |side: &str| std::fs::read_to_string(folder.join(format!("{name}.{side}.mir"))).expect("a text");
        let (before, after) = (read("before"), read("after"));
        let target =
            before.split("target: ").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or("gfx942").to_string();
        let stored = std::fs::read_to_string(own.join(format!("{name}.cert"))).ok();
        let turns = if stored.is_some() { 60 } else { 4 };
        let Some(certificate) = stored.or_else(|| common::one_block(&before, &after)) else { continue };
        for turn in 0..turns {
            let mut texts = [before.clone(), after.clone(), certificate.clone()];
            for _ in 0..=random.below(3) {
                let which = [0, 1, 2, 2][(turn + random.below(2)) % 4];
                texts[which] = change(&texts[which], &mut random);
            }
            refused += usize::from(audit(&texts[0], &texts[1], &texts[2], &target, None).is_err());
        }
    }
    assert!(refused > 1000, "{refused}");
}
