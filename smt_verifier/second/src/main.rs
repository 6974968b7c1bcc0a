//! `verilocc-check BEFORE AFTER CERTIFICATE --mcpu=CPU [--function=NAME] [--saved-later | --order]`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use verilocc_check::audit::{audit_phase, USAGE};
use verilocc_check::order;

const USE: &str = "use: verilocc-check BEFORE AFTER CERTIFICATE --mcpu=CPU [--function=NAME] [--saved-later | --order]";
const REFUSED: u8 = 1;
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let (mut files, mut cpu, mut function, mut saved_later, mut is_order) = (Vec::new(), None, None, false, false);
    for argument in std::env::args().skip(1) {
        if let Some(name) = argument.strip_prefix("--mcpu=") {
            cpu = Some(name.to_string());
        } else if let Some(name) = argument.strip_prefix("--function=") {
            function = Some(name.to_string());
        } else if argument == "--saved-later" {
            saved_later = true;
        } else if argument == "--order" {
            is_order = true;
        } else if argument == "--help" {
            println!("{USE}\nexit codes: 0 accepted, 1 refused, 2 bad input or usage");
            return ExitCode::SUCCESS;
        } else if argument.starts_with('-') {
            return fail(&format!("unknown option `{argument}`; {USE}"));
        } else {
            files.push(argument);
        }
    }
    let ([before, after, certificate], Some(cpu)) = (files.as_slice(), cpu) else { return fail(USE) };
    let mut texts = Vec::new();
    for path in [before, after, certificate] {
        match std::fs::read_to_string(path) {
            Ok(text) => texts.push(text),
            Err(error) => return fail(&format!("{path}: {error}")),
        }
    }
    let [before, after, certificate] = texts.as_slice() else { return fail(USE) };
    let answer = if is_order {
        order::check(before, after, certificate, &cpu, function.as_deref())
            .map(|moved| format!("{moved} instructions in another place"))
    } else {
        audit_phase(before, after, certificate, &cpu, function.as_deref(), saved_later)
            .map(|compared| format!("{compared} operands compared"))
    };
    match answer {
        Ok(count) => {
            println!("accepted: {count}");
            ExitCode::SUCCESS
        }
        Err(error) if error.rule == USAGE => fail(&error.message),
        Err(error) => {
            println!("refused: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("verilocc-check: {message}");
    ExitCode::from(BAD_INPUT)
}
