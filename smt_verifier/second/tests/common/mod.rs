//! Certificates for pairs of one block: which instructions pair, and nothing else.
#![allow(dead_code)]

use verilocc_check::model::{Function, Instruction};
use verilocc_check::text;

/// A copy that pairs: into EXEC or SCC, out of SCC, or from a vector to a scalar register.
fn pairs(function: &Function, instruction: &Instruction) -> bool {
    let moves = ["no-code", "wwm-copy", "lane-save", "lane-restore"].iter().any(|word| instruction.has(word));
    if moves || !instruction.value("spill").is_empty() {
        return false;
    }
    if !instruction.has("copy") {
        return true;
    }
    let vector = |n: usize| {
        instruction.operands.get(n).is_some_and(|o| match o.vreg {
            Some(number) => function.registers[&number].class.is_vector,
            None => o.register.is_some_and(|r| matches!(r.file, 'v' | 'a')),
        })
    };
    let odd = |n: usize| {
        instruction
            .operands
            .get(n)
            .is_some_and(|o| o.register.is_some_and(|r| r.name == "scc" || r.name.starts_with("src_")))
    };
    let exec = instruction.operands.first().is_some_and(|o| o.register.is_some_and(|r| r.name.starts_with("exec")));
    (vector(1) && !vector(0)) || odd(0) || odd(1) || exec
}

fn canonical(instruction: &Instruction) -> &str {
    match instruction.value("canon") {
        "" => &instruction.name,
        name => name,
    }
}

/// The steps that pair as many instructions as possible.
pub fn steps(p: &Function, q: &Function, block: usize) -> String {
    let list = |f: &Function| -> Vec<Instruction> { f.blocks[block].instructions.iter().cloned().collect() };
    let (a, b) = (list(p), list(q));
    let same = |i: usize, j: usize| canonical(&a[i]) == canonical(&b[j]) && pairs(p, &a[i]) && pairs(q, &b[j]);
    let mut best = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            best[i][j] = if same(i, j) { best[i + 1][j + 1] + 1 } else { best[i + 1][j].max(best[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::from("steps"));
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && same(i, j) {
            text += " 1=";
            i += 1;
            j += 1;
        } else if i < a.len() && (j == b.len() || best[i + 1][j] >= best[i][j + 1]) {
            text += " 1-";
            i += 1;
        } else {
            text += " 1+";
            j += 1;
        }
    }
    text
}

/// A certificate for two texts with one function of one block each; `None` for others.
pub fn one_block(before: &str, after: &str) -> Option<String> {
    let (p, q) = (text::read(before).ok()?, text::read(after).ok()?);
    let ([p], [q]) = (p.functions.as_slice(), q.functions.as_slice()) else { return None };
    if p.blocks.len() != 1 || q.blocks.len() != 1 {
        return None;
    }
    Some(format!("verilocc-certificate 2\nfunction {}\nblock 0\n{}\nend\n", p.name, steps(p, q, 0)))
}
