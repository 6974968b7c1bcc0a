//! `verilocc-certify BEFORE AFTER OUT --mcpu=CPU [--function=NAME] [--saved-later] [--near-branches]`.
#![forbid(unsafe_code)]

use std::panic::catch_unwind;
use std::process::ExitCode;

use verilocc_certify::{certify, Judged};
use verilocc_check::model::{Done, Refused};
use verilocc_check::program::Program;
use verilocc_check::text;

const SELF: Program = Program {
    name: "verilocc-certify",
    usage: "use: verilocc-certify BEFORE AFTER OUT --mcpu=CPU [--function=NAME] [--saved-later] [--near-branches]",
};

fn main() -> ExitCode {
    run().unwrap_or_else(|end| end)
}

fn run() -> Result<ExitCode, ExitCode> {
    let given = SELF.arguments(&["--saved-later", "--near-branches"])?;
    let ([before, after, out], Some(cpu)) = (given.files.as_slice(), &given.cpu) else {
        return Err(SELF.fail(SELF.usage));
    };
    let [before, after] = &SELF.read([before, after])?;
    std::panic::set_hook(Box::new(|_| {}));
    let made = catch_unwind(|| -> Done<Judged> {
        certify([text::read(before)?, text::read(after)?], cpu, given.function.as_deref(), given.premises())
    });
    let made = made.unwrap_or_else(|_| Err(Refused::new("certificate", "the search ended unforeseen", "")));
    if let Ok(judged) = &made {
        written(out, judged.text()).map_err(|error| SELF.fail(&format!("{out}: {error}")))?;
    }
    Ok(SELF.say(made.and_then(Judged::answer).map(|compared| format!("{compared} operands compared"))))
}

/// The whole file, or nothing.
fn written(path: &str, text: &str) -> std::io::Result<()> {
    let partial = format!("{path}.{}.partial", std::process::id());
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}
