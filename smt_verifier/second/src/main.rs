//! `verilocc-check BEFORE AFTER CERTIFICATE --mcpu=CPU [--function=NAME] [--saved-later] [--near-branches] | [--order]`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use verilocc_check::audit::audit_phase;
use verilocc_check::order;
use verilocc_check::program::Program;

const SELF: Program = Program {
    name: "verilocc-check",
    usage: "use: verilocc-check BEFORE AFTER CERTIFICATE --mcpu=CPU [--function=NAME] [--saved-later] [--near-branches] | [--order]",
};

fn main() -> ExitCode {
    run().unwrap_or_else(|end| end)
}

fn run() -> Result<ExitCode, ExitCode> {
    let given = SELF.arguments(&["--saved-later", "--near-branches", "--order"])?;
    let ([before, after, certificate], Some(cpu)) = (given.files.as_slice(), &given.cpu) else {
        return Err(SELF.fail(SELF.usage));
    };
    let [before, after, certificate] = &SELF.read([before, after, certificate])?;
    let function = given.function.as_deref();
    Ok(SELF.say(if given.has("--order") {
        order::check(before, after, certificate, cpu, function)
            .map(|moved| format!("{moved} instructions in another place"))
    } else {
        audit_phase(before, after, certificate, cpu, function, given.premises())
            .map(|compared| format!("{compared} operands compared"))
    }))
}
