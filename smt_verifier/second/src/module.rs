//! IR modules of both texts (spec 13.5), and what one says of a function (13.4; llvm/lib/IR/AsmWriter.cpp prints it).

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Refused;
use crate::tables::Processor;

fn refuse<T>(message: String) -> Result<T, Refused> {
    Err(Refused::new("module", message, ""))
}

/// What a module says of one function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `ccc` where none is written.
    pub convention: String,
    /// Attributes in quotes; the value is empty for a bare one.
    pub strings: BTreeMap<String, String>,
    /// Other attributes, arguments included: `alignstack(16)`.
    pub words: BTreeSet<String>,
    /// No other module sees it.
    pub is_local: bool,
}

/// Compares the IR modules.
///
/// # Errors
/// `module`: they are not equal but for comments, numbers of attribute groups, and the processor that llc adds.
pub fn compare(before: &str, after: &str, target: &Processor) -> Result<(), Refused> {
    let (before, after) = (normal(before, target)?, normal(after, target)?);
    let differs = before.iter().zip(&after).find(|(old, new)| old != new);
    match differs {
        Some((old, new)) => refuse(format!("`{old}` becomes `{new}`")),
        None if before.len() != after.len() => refuse("the modules have different numbers of lines".into()),
        None => Ok(()),
    }
}

/// Splits at the quotes: even parts are outside of them. A text in quotes has no quote inside: LLVM writes `\22`.
fn outside(line: &str) -> impl Iterator<Item = (bool, &str)> {
    line.split('"').enumerate().map(|(k, part)| (k % 2 == 0, part))
}

/// A line without its comment and the blanks at its end.
fn without_comment(line: &str) -> &str {
    let mut at = 0usize;
    for (is_outside, part) in outside(line) {
        if let Some(semicolon) = part.find(';').filter(|_| is_outside) {
            return line.get(..at.saturating_add(semicolon)).unwrap_or(line).trim_end();
        }
        at = at.saturating_add(part.len()).saturating_add(1);
    }
    line.trim_end()
}

/// The lines that count, attribute groups put in place of their numbers.
fn normal(module: &str, target: &Processor) -> Result<Vec<String>, Refused> {
    let groups = groups(module)?;
    let mut lines = Vec::new();
    for line in module.lines().map(without_comment).filter(|line| !line.is_empty() && group(line).is_none()) {
        let is_function = line.starts_with("define ") || line.starts_with("declare ");
        let mut used = Vec::new();
        let mut text = String::new();
        for (is_outside, part) in outside(line) {
            if !is_outside {
                text.push_str(&format!("\"{part}\""));
                continue;
            }
            let (plain, numbers) = without_groups(part);
            text.push_str(&plain);
            used.extend(numbers);
        }
        let mut attributes = BTreeSet::new();
        for number in used {
            let Some(group) = groups.get(number) else { return refuse(format!("there are no attributes #{number}")) };
            attributes.extend(group.iter().cloned());
        }
        let has_target =
            attributes.iter().any(|a| a.starts_with("\"target-cpu\"=")) || text.contains("\"target-cpu\"=");
        if is_function && !has_target {
            attributes.insert(format!("\"target-cpu\"=\"{}\"", target.name));
        }
        for attribute in attributes {
            text.push_str(" #");
            text.push_str(&attribute);
        }
        lines.push(text);
    }
    Ok(lines)
}

/// The text without ` #N`, and the numbers.
fn without_groups(part: &str) -> (String, Vec<&str>) {
    let mut pieces = part.split(" #");
    let mut text = pieces.next().unwrap_or("").to_string();
    let mut numbers = Vec::new();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        let (number, rest) = piece.split_at(end);
        if number.is_empty() {
            text.push_str(" #");
        } else {
            numbers.push(number);
        }
        text.push_str(rest);
    }
    (text, numbers)
}

/// Number and text of `attributes #N = { … }`.
fn group(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.strip_prefix("attributes #")?.split_once(" = { ")?;
    Some((number, rest.strip_suffix('}')?))
}

fn groups(module: &str) -> Result<BTreeMap<&str, BTreeSet<String>>, Refused> {
    let mut groups = BTreeMap::new();
    for (number, text) in module.lines().map(without_comment).filter_map(group) {
        let attributes = split(text)?.into_iter().collect();
        if groups.insert(number, attributes).is_some() {
            return refuse(format!("the attributes #{number} stand twice"));
        }
    }
    Ok(groups)
}

/// Splits at blanks that stand in no quotes and no brackets.
fn split(text: &str) -> Result<Vec<String>, Refused> {
    let (mut words, mut word, mut depth, mut quoted) = (Vec::new(), String::new(), 0i64, false);
    for c in text.chars() {
        quoted ^= c == '"';
        if !quoted {
            depth += i64::from("([{<".contains(c)) - i64::from(")]}>".contains(c));
        }
        if c == ' ' && !quoted && depth == 0 {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(c);
        }
    }
    words.push(word);
    if quoted || depth != 0 {
        return refuse(format!("quotes or brackets are not closed in `{text}`"));
    }
    words.retain(|word| !word.is_empty());
    Ok(words)
}

const LINKAGES: [&str; 20] = [
    "private",
    "internal",
    "available_externally",
    "linkonce",
    "linkonce_odr",
    "weak",
    "weak_odr",
    "external",
    "extern_weak",
    "common",
    "dso_local",
    "dso_preemptable",
    "default",
    "hidden",
    "protected",
    "dllimport",
    "dllexport",
    "appending",
    "thread_local",
    "unnamed_addr",
];

const CONVENTIONS: [(&str, u32); 17] = [
    ("ccc", 0),
    ("fastcc", 8),
    ("coldcc", 9),
    ("spir_func", 75),
    ("spir_kernel", 76),
    ("amdgpu_vs", 87),
    ("amdgpu_gs", 88),
    ("amdgpu_ps", 89),
    ("amdgpu_cs", 90),
    ("amdgpu_kernel", 91),
    ("amdgpu_hs", 93),
    ("amdgpu_ls", 95),
    ("amdgpu_es", 96),
    ("amdgpu_gfx", 100),
    ("amdgpu_cs_chain", 104),
    ("amdgpu_cs_chain_preserve", 105),
    ("amdgpu_gfx_whole_wave", 124),
];

/// With what a return type, or an attribute of it, begins. Any other word would be a convention that is not known.
const RESULTS: [&str; 22] = [
    "void",
    "ptr",
    "half",
    "bfloat",
    "float",
    "double",
    "<",
    "[",
    "{",
    "%",
    "target(",
    "zeroext",
    "signext",
    "inreg",
    "noundef",
    "nonnull",
    "noalias",
    "align",
    "range(",
    "dereferenceable",
    "nofpclass",
    "fp128",
];

fn convention(head: &str) -> Result<(String, bool), Refused> {
    let words = split(head)?;
    let is_local = words.first().is_some_and(|word| word == "private" || word == "internal");
    let mut rest = words.iter().skip_while(|word| LINKAGES.contains(&word.as_str()));
    let Some(first) = rest.next() else { return refuse("a function has no type".into()) };
    if let Some((name, _)) = CONVENTIONS.iter().find(|(name, _)| name == first) {
        return Ok((name.to_string(), is_local));
    }
    if let Some(number) = first.strip_prefix("cc") {
        let number = if number.is_empty() { rest.next().map_or("", String::as_str) } else { number };
        let known = CONVENTIONS.iter().find(|(_, known)| known.to_string() == number);
        return known
            .map(|(name, _)| (name.to_string(), is_local))
            .map_or_else(|| refuse(format!("the calling convention {number} is not known")), Ok);
    }
    let is_integer = first.strip_prefix('i').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if is_integer || RESULTS.iter().any(|word| first.starts_with(word)) {
        return Ok(("ccc".into(), is_local));
    }
    refuse(format!("the calling convention {first} is not known"))
}

/// The `define` line of a function: what stands before its name, and behind its parameters.
fn definition<'a>(module: &'a str, name: &str) -> Result<(&'a str, &'a str), Refused> {
    let mut found = None;
    for line in module.lines().map(without_comment).filter(|line| line.starts_with("define ")) {
        let Some((head, rest)) = line.split_once('@') else { return refuse(format!("`{line}` defines nothing")) };
        let quoted = format!("\"{name}\"(");
        let plain = format!("{name}(");
        let Some(rest) = rest.strip_prefix(&quoted).or(rest.strip_prefix(&plain)) else { continue };
        let (mut depth, mut at) = (1i64, 0usize);
        for (k, (is_outside, part)) in outside(rest).enumerate() {
            at = at.saturating_add(usize::from(k > 0));
            for c in part.chars() {
                at = at.saturating_add(c.len_utf8());
                depth += if is_outside { i64::from(c == '(') - i64::from(c == ')') } else { 0 };
                if depth == 0 {
                    break;
                }
            }
            if depth == 0 {
                break;
            }
        }
        let tail = rest.get(at..).filter(|_| depth == 0).unwrap_or("");
        let mut end = 0usize;
        let found_body = outside(tail).enumerate().find_map(|(k, (is_outside, part))| {
            end = end.saturating_add(usize::from(k > 0));
            let brace = part.find('{').filter(|_| is_outside);
            end = end.saturating_add(brace.unwrap_or(part.len()));
            brace
        });
        let Some(tail) = tail.get(..end).filter(|_| found_body.is_some()) else {
            return refuse(format!("the definition of {name} has no body"));
        };
        if found.replace((head.strip_prefix("define ").unwrap_or(head), tail)).is_some() {
            return refuse(format!("{name} is defined twice"));
        }
    }
    found.map_or_else(|| refuse(format!("the module does not define {name}")), Ok)
}

/// What the module says of a function.
///
/// # Errors
/// `module`: it does not define the function, or in another form than LLVM prints.
pub fn attributes(module: &str, name: &str) -> Result<Attributes, Refused> {
    let (head, tail) = definition(module, name)?;
    let (convention, is_local) = convention(head)?;
    let mut result = Attributes { convention, is_local, ..Attributes::default() };
    let groups = groups(module)?;
    let mut own = split(tail)?.into_iter();
    let mut all: Vec<String> = Vec::new();
    while let Some(word) = own.next() {
        if let Some(number) = word.strip_prefix('#') {
            let Some(group) = groups.get(number) else { return refuse(format!("there are no attributes #{number}")) };
            all.extend(group.iter().cloned());
        } else if word == "section" || word == "partition" || word == "gc" {
            own.next();
        } else if word == "!dbg" || word == "align" || word == "comdat" || word.starts_with('!') {
            // Not attributes. What follows `align` is a number.
            continue;
        } else if ["prefix", "prologue", "personality"].contains(&word.as_str()) {
            return refuse(format!("{name} has a {word}"));
        } else {
            all.push(word);
        }
    }
    for word in all {
        let Some(text) = word.strip_prefix('"') else {
            result.words.insert(word);
            continue;
        };
        let (key, value) = match text.split_once("\"=\"") {
            Some((key, value)) => (key, value.strip_suffix('"')),
            None => (text.strip_suffix('"').unwrap_or("\""), Some("")),
        };
        let Some(value) = value.filter(|value| !key.contains('"') && !value.contains(['"', '\\'])) else {
            return refuse(format!("the attribute {word} of {name} is not in LLVM's form"));
        };
        if result.strings.insert(key.into(), value.into()).is_some_and(|old| old != value) {
            return refuse(format!("the attribute {key} of {name} has two values"));
        }
    }
    Ok(result)
}
