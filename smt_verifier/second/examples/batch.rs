//! Many audits in one process, for benchmarks/checker_campaign.py: a request is five decimal lengths (before, after,
//! certificate, processor, function) and a line feed, then so many bytes; `=` for a length repeats the last request's.
//! The answer is one line: what `verilocc-check` prints.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, Read, Write};
use std::panic::catch_unwind;

use verilocc_check::audit::audit;

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut texts = vec![String::new(); 5];
    let mut head = String::new();
    std::panic::set_hook(Box::new(|_| {}));
    loop {
        head.clear();
        if input.read_line(&mut head)? == 0 {
            return Ok(());
        }
        for (text, length) in texts.iter_mut().zip(head.split_whitespace()) {
            if length != "=" {
                let mut bytes = vec![0; length.parse().map_err(io::Error::other)?];
                input.read_exact(&mut bytes)?;
                *text = String::from_utf8(bytes).map_err(io::Error::other)?;
            }
        }
        let answer = catch_unwind(|| audit(&texts[0], &texts[1], &texts[2], &texts[3], Some(&texts[4])));
        match answer {
            Ok(Ok(compared)) => writeln!(output, "accepted: {compared} operands compared")?,
            Ok(Err(error)) => writeln!(output, "refused: {}", error.to_string().replace('\n', " "))?,
            Err(_) => writeln!(output, "crashed")?,
        }
        output.flush()?;
    }
}
