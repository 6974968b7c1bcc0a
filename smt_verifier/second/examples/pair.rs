//! `cargo run --example pair CPU (BEFORE AFTER)…`: checks everything of pairs but their steps, and says what is refused.
use verilocc_check::{header, limits, model::Refused, module, tables, text, wellformed};

fn check(cpu: &str, before: &str, after: &str) -> Result<(), Refused> {
    let unknown = || Refused::new("input", "no such processor or file", "");
    let target = tables::tables().processor(cpu).ok_or_else(unknown)?;
    let before = text::read(&std::fs::read_to_string(before).map_err(|_| unknown())?)?;
    let after = text::read(&std::fs::read_to_string(after).map_err(|_| unknown())?)?;
    module::compare(&before.module, &after.module, target)?;
    for p in &before.functions {
        let q = after.functions.iter().find(|q| q.name == p.name).ok_or_else(unknown)?;
        wellformed::check(p, target)?;
        wellformed::check(q, target)?;
        let limits = limits::limits(p, &before.module, target)?;
        header::compare(p, q, &limits, target)?;
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, cpu, paths @ ..] = arguments.as_slice() else { return };
    for pair in paths.chunks_exact(2) {
        if let [before, after] = pair {
            match check(cpu, before, after) {
                Ok(()) => println!("{after}: accepted"),
                Err(error) => println!("{after}: {error}"),
            }
        }
    }
}
