//! `cargo run --example read FILE…`: reads texts of machine IR, finds what may be allocated in them, and says which are
//! refused, and why.
use std::time::Instant;
use verilocc_check::{limits, model::Refused, tables, text, wellformed};

fn read(path: &str, content: &str) -> Result<(), Refused> {
    let file = text::read(content)?;
    let name = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250"].into_iter().find(|c| path.contains(*c));
    let in_module = ["gfx90a", "gfx950", "gfx1100", "gfx1201", "gfx1250"]
        .into_iter()
        .find(|cpu| file.module.contains(&format!("\"target-cpu\"=\"{cpu}\"")));
    let target = tables::tables().processor(in_module.or(name).unwrap_or("gfx942"));
    let target = target.ok_or_else(|| Refused::new("tables", "no such processor", ""))?;
    for function in &file.functions {
        wellformed::check(function, target)?;
        let limits = limits::limits(function, &file.module, target)?;
        let count = |range: std::ops::Range<u32>| limits.allocatable.range(range).count();
        println!(
            "LIMITS {path} {} {} {} {} {} {}",
            function.name,
            count(0..4096),
            count(4096..8192),
            count(8192..12288),
            limits.kept.iter().filter(|u| !(12327..=12330).contains(*u)).count(),
            limits.saved.len()
        );
    }
    Ok(())
}

fn main() {
    let start = Instant::now();
    tables::tables();
    println!("tables: {:?}", start.elapsed());
    let (mut good, mut refused, start) = (0, 0, Instant::now());
    for path in std::env::args().skip(1) {
        let Ok(content) = std::fs::read_to_string(&path) else { continue };
        match read(&path, &content) {
            Ok(()) => good += 1,
            Err(error) => {
                refused += 1;
                println!("{path}: {error}");
            }
        }
    }
    println!("{good} read, {refused} refused, {:?}", start.elapsed());
}
