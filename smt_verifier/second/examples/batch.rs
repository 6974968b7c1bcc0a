//! Many audits in one process, for benchmarks/checker_campaign.py and order_campaign.py: a request is five decimal lengths (before, after,
//! certificate, processor, function) and a line feed, then so many bytes; `=` for a length repeats the last request's.
//! The answer is one line: what `verilocc-check` prints.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, Read, Write};
use std::panic::catch_unwind;

use verilocc_check::audit::audit;
use verilocc_check::order;

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
        let [before, after, certificate, cpu, function] = &texts[..] else { return Ok(()) };
        let is_order = certificate.starts_with("verilocc-order ");
        let check = if is_order { order::check } else { audit };
        let answer = catch_unwind(|| check(before, after, certificate, cpu, Some(function)));
        match answer {
            Ok(Ok(compared)) => writeln!(output, "accepted: {compared} operands compared")?,
            Ok(Err(error)) => writeln!(output, "refused: {}", error.to_string().replace('\n', " "))?,
            Err(_) => writeln!(output, "crashed")?,
        }
        output.flush()?;
    }
}
