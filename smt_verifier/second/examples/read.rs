//! `cargo run --example read FILE…`: reads texts of machine IR and says which are refused, and why.
use std::time::Instant;
use verilocc_check::{tables, text};

fn main() {
    let start = Instant::now();
    tables::tables();
    println!("tables: {:?}", start.elapsed());
    let (mut read, mut refused, start) = (0, 0, Instant::now());
    for path in std::env::args().skip(1) {
        let Ok(content) = std::fs::read_to_string(&path) else { continue };
        match text::read(&content) {
            Ok(_) => read += 1,
            Err(error) => {
                refused += 1;
                println!("{path}: {error}");
            }
        }
    }
    println!("{read} read, {refused} refused, {:?}", start.elapsed());
}
