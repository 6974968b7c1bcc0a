//! `verilocc-certify BEFORE AFTER OUT --mcpu=CPU [--function=NAME] [--saved-later]`.
#![forbid(unsafe_code)]

use std::panic::catch_unwind;
use std::process::ExitCode;

use verilocc_certify::{certify, Judged};
use verilocc_check::audit::USAGE;
use verilocc_check::model::{Done, Refused};
use verilocc_check::text;

const USE: &str = "use: verilocc-certify BEFORE AFTER OUT --mcpu=CPU [--function=NAME] [--saved-later]";
const REFUSED: u8 = 1;
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let (mut files, mut cpu, mut function, mut saved_later) = (Vec::new(), None, None, false);
    for argument in std::env::args().skip(1) {
        if let Some(name) = argument.strip_prefix("--mcpu=") {
            cpu = Some(name.to_string());
        } else if let Some(name) = argument.strip_prefix("--function=") {
            function = Some(name.to_string());
        } else if argument == "--saved-later" {
            saved_later = true;
        } else if argument == "--help" {
            println!("{USE}\nexit codes: 0 accepted, 1 refused, 2 bad input or usage");
            return ExitCode::SUCCESS;
        } else if argument.starts_with('-') {
            return fail(&format!("unknown option `{argument}`; {USE}"));
        } else {
            files.push(argument);
        }
    }
    let ([before, after, out], Some(cpu)) = (files.as_slice(), cpu) else { return fail(USE) };
    let mut texts = Vec::new();
    for path in [before, after] {
        match std::fs::read_to_string(path) {
            Ok(text) => texts.push(text),
            Err(error) => return fail(&format!("{path}: {error}")),
        }
    }
    std::panic::set_hook(Box::new(|_| {}));
    let made = catch_unwind(|| -> Done<Judged> {
        certify([&text::read(&texts[0])?, &text::read(&texts[1])?], &cpu, function.as_deref(), saved_later)
    });
    let made = made.unwrap_or_else(|_| Err(Refused::new("certificate", "the search ended unforeseen", "")));
    let answer = match made {
        Ok(judged) => match written(out, judged.text()) {
            Ok(()) => judged.answer(),
            Err(error) => return fail(&format!("{out}: {error}")),
        },
        Err(error) => Err(error),
    };
    match answer {
        Ok(compared) => {
            println!("accepted: {compared} operands compared");
            ExitCode::SUCCESS
        }
        Err(error) if error.rule == USAGE => fail(&error.message),
        Err(error) => {
            println!("refused: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

/// The whole file, or nothing.
fn written(path: &str, text: &str) -> std::io::Result<()> {
    let partial = format!("{path}.{}.partial", std::process::id());
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}

fn fail(message: &str) -> ExitCode {
    eprintln!("verilocc-certify: {message}");
    ExitCode::from(BAD_INPUT)
}
