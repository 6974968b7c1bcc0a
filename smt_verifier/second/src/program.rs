//! What the programs of this crate and of the maker have in common: arguments, files, answers and exit codes.

use std::process::ExitCode;

use crate::audit::USAGE;
use crate::context::Premises;
use crate::model::Done;

const REFUSED: u8 = 1;
const BAD_INPUT: u8 = 2;

/// A program by its name, and how it is used.
pub struct Program {
    pub name: &'static str,
    pub usage: &'static str,
}

/// What a program was asked.
#[derive(Default)]
pub struct Arguments {
    pub files: Vec<String>,
    pub cpu: Option<String>,
    pub function: Option<String>,
    pub flags: Vec<String>,
}

impl Arguments {
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// `--saved-later` and `--near-branches`.
    pub fn premises(&self) -> Premises {
        Premises { saved_later: self.has("--saved-later"), near_branches: self.has("--near-branches") }
    }
}

impl Program {
    /// The arguments of this process, of which `flags` have no value.
    ///
    /// # Errors
    /// How the process ends: help was asked for, or an option is not known.
    pub fn arguments(&self, flags: &[&str]) -> Result<Arguments, ExitCode> {
        let mut all = Arguments::default();
        for argument in std::env::args().skip(1) {
            if let Some(name) = argument.strip_prefix("--mcpu=") {
                all.cpu = Some(name.to_string());
            } else if let Some(name) = argument.strip_prefix("--function=") {
                all.function = Some(name.to_string());
            } else if flags.contains(&argument.as_str()) {
                all.flags.push(argument);
            } else if argument == "--help" {
                println!("{}\nexit codes: 0 accepted, 1 refused, 2 bad input or usage", self.usage);
                return Err(ExitCode::SUCCESS);
            } else if argument.starts_with('-') {
                return Err(self.fail(&format!("unknown option `{argument}`; {}", self.usage)));
            } else {
                all.files.push(argument);
            }
        }
        Ok(all)
    }

    /// What files hold.
    ///
    /// # Errors
    /// How the process ends: one of them cannot be read.
    pub fn read<const N: usize>(&self, paths: [&String; N]) -> Result<[String; N], ExitCode> {
        let mut texts = [const { String::new() }; N];
        for (text, path) in texts.iter_mut().zip(paths) {
            *text = std::fs::read_to_string(path).map_err(|error| self.fail(&format!("{path}: {error}")))?;
        }
        Ok(texts)
    }

    /// Print an answer.
    pub fn say(&self, answer: Done<String>) -> ExitCode {
        match answer {
            Ok(count) => {
                println!("accepted: {count}");
                ExitCode::SUCCESS
            }
            Err(error) if error.rule == USAGE => self.fail(&error.message),
            Err(error) => {
                println!("refused: {error}");
                ExitCode::from(REFUSED)
            }
        }
    }

    pub fn fail(&self, message: &str) -> ExitCode {
        eprintln!("{}: {message}", self.name);
        ExitCode::from(BAD_INPUT)
    }
}
