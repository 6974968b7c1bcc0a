//! IR modules of both texts (spec 13.5), and what one says of a function (13.4; llvm/lib/IR/AsmWriter.cpp prints it).

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Refused;
use crate::tables::{tables, Processor};

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

/// The line with a quote for every byte that stands in quotes, so that places are the same and marks outside are
/// found. A text in quotes has no quote inside: LLVM writes `\\22`.
fn masked(line: &str) -> String {
    let mut is_quoted = false;
    let mask = |byte: u8| {
        let was_quoted = is_quoted;
        is_quoted ^= byte == b'"';
        if was_quoted || !byte.is_ascii() {
            '"'
        } else {
            char::from(byte)
        }
    };
    line.bytes().map(mask).collect()
}

/// The lines of a module without comments and without the blanks at their ends.
fn lines(module: &str) -> impl Iterator<Item = &str> {
    let code = |line| masked(line).find(';').and_then(|at| line.get(..at)).unwrap_or(line).trim_end();
    module.lines().map(code).filter(|line| !line.is_empty())
}

/// The lines that count, attribute groups put in place of their numbers.
fn normal(module: &str, target: &Processor) -> Result<Vec<String>, Refused> {
    let groups = groups(module)?;
    let mut normal = Vec::new();
    for line in lines(module).filter(|line| group(line).is_none()) {
        let (mask, mut text, mut attributes, mut at) = (masked(line), String::new(), BTreeSet::new(), 0usize);
        for (found, _) in mask.match_indices(" #") {
            let number = mask.get(found.saturating_add(2)..).unwrap_or("");
            let number = number.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
            if number.is_empty() {
                continue;
            }
            let Some(group) = groups.get(number) else { return refuse(format!("there are no attributes #{number}")) };
            attributes.extend(group.iter().cloned());
            text.push_str(line.get(at..found).unwrap_or(""));
            at = found.saturating_add(2).saturating_add(number.len());
        }
        text.push_str(line.get(at..).unwrap_or(""));
        let is_function = line.starts_with("define ") || line.starts_with("declare ");
        let key = "\"target-cpu\"=";
        if is_function && !attributes.iter().any(|attribute| attribute.starts_with(key)) && !text.contains(key) {
            attributes.insert(format!("{key}\"{}\"", target.name));
        }
        attributes.iter().for_each(|attribute| text.push_str(&format!(" #{attribute}")));
        normal.push(text);
    }
    Ok(normal)
}

/// Number and text of `attributes #N = { … }`.
fn group(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.strip_prefix("attributes #")?.split_once(" = { ")?;
    Some((number, rest.strip_suffix('}')?))
}

/// llc puts the features of its command line behind those that a function has: `target-features` may stand there twice.
fn without_repetition(attribute: String) -> String {
    let features = attribute.strip_prefix("\"target-features\"=\"").and_then(|rest| rest.strip_suffix('"'));
    let Some(features) = features else { return attribute };
    let (first, second) = features.split_at_checked(features.len() / 2).unwrap_or((features, ""));
    if second.strip_prefix(',') != Some(first) {
        return attribute;
    }
    format!("\"target-features\"=\"{first}\"")
}

fn groups(module: &str) -> Result<BTreeMap<&str, BTreeSet<String>>, Refused> {
    // A text in quotes that goes on in the next line would hide a comment, or make one.
    if let Some(line) = lines(module).find(|line| line.matches('"').count() % 2 != 0) {
        return refuse(format!("quotes are not closed in `{line}`"));
    }
    let mut groups = BTreeMap::new();
    for (number, text) in lines(module).filter_map(group) {
        let attributes = split(text)?.into_iter().map(without_repetition).collect();
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
    "private", "internal", "available_externally", "linkonce", "linkonce_odr", "weak", "weak_odr", "external",
    "extern_weak", "common", "dso_local", "dso_preemptable", "default", "hidden", "protected", "dllimport",
    "dllexport", "appending", "thread_local", "unnamed_addr",
];

/// With what a return type, or an attribute of it, begins. Any other word would be a convention that is not known.
const RESULTS: [&str; 22] = [
    "void", "ptr", "half", "bfloat", "float", "double", "<", "[", "{", "%", "target(", "zeroext", "signext", "inreg",
    "noundef", "nonnull", "noalias", "align", "range(", "dereferenceable", "nofpclass", "fp128",
];

fn convention(head: &str) -> Result<(String, bool), Refused> {
    let words = split(head)?;
    let is_local = words.first().is_some_and(|word| word == "private" || word == "internal");
    let mut rest = words.iter().skip_while(|word| LINKAGES.contains(&word.as_str()));
    let Some(first) = rest.next() else { return refuse("a function has no type".into()) };
    if tables().convention(first).is_some() {
        return Ok((first.clone(), is_local));
    }
    let is_integer = first.strip_prefix('i').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if is_integer || RESULTS.iter().any(|word| first.starts_with(word)) {
        return Ok(("ccc".into(), is_local));
    }
    refuse(format!("the calling convention {first} is not known"))
}

/// The `define` line of a function: what stands before its name, and between its parameters and its body.
fn definition<'a>(module: &'a str, name: &str) -> Result<(&'a str, &'a str), Refused> {
    let mut found = None;
    for line in lines(module) {
        let Some((head, rest)) = line.strip_prefix("define ").and_then(|line| line.split_once('@')) else { continue };
        let quoted = format!("\"{name}\"(");
        let Some(rest) = rest.strip_prefix(&quoted).or(rest.strip_prefix(&format!("{name}("))) else { continue };
        let (mask, mut depth) = (masked(rest), 1i64);
        let close = mask.bytes().position(|byte| {
            depth += i64::from(byte == b'(') - i64::from(byte == b')');
            depth == 0
        });
        let tail = close.and_then(|close| {
            let brace = mask.get(close..)?.find('{')?;
            rest.get(close.checked_add(1)?..close.checked_add(brace)?)
        });
        let Some(tail) = tail else { return refuse(format!("the definition of {name} has no body")) };
        if found.replace((head, tail)).is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "; comment\n@a = global i8 0 ; \"b\ndefine internal fastcc void @\"f g\"(i32 %x) #0 \"k\"=\"a;b\" {\n  \
        call void @h() #1\n}\ndeclare void @h()\nattributes #0 = { nounwind alignstack=16 \"amdgpu-num-vgpr\"=\"0x40\" }\n\
        attributes #1 = { noinline }\n";

    fn compared(before: &str, after: &str) -> bool {
        compare(before, after, tables().processor("gfx942").unwrap()).is_ok()
    }

    #[test]
    fn comments_and_group_numbers_and_the_added_processor_do_not_count() {
        let renumbered = MODULE.replace("#0", "#7").replace("; comment", "").replace("; \"b", "");
        assert!(compared(MODULE, &renumbered));
        assert!(compared(MODULE, &MODULE.replace("noinline }", "noinline }\nattributes #2 = { nounwind }")));
        let of =
            |features: &str| MODULE.replace("nounwind al", &format!("\"target-features\"=\"{features}\" nounwind al"));
        assert!(compared(&of("+a,-b"), &of("+a,-b,+a,-b")) && !compared(&of("+a,-b"), &of("+a,-b,+a")));
        assert!(compared(MODULE, &MODULE.replace("nounwind al", "\"target-cpu\"=\"gfx942\" nounwind al")));
    }

    #[test]
    fn everything_else_counts() {
        for (from, to) in [
            ("a;b", "a;c"),
            ("noinline", "nomerge"),
            ("0x40", "64"),
            ("i8 0", "i8 1"),
            ("fastcc ", ""),
            ("h() #1", "h()"),
            ("h() #1", "h() #9"),
            ("nounwind al", "\"target-cpu\"=\"gfx950\" nounwind al"),
            ("i8 0", "i8 \"0"),
            ("}\ndeclare", "}\n}\ndeclare"),
            ("= { noinline }", "= { noinline }\nattributes #1 = { noinline }"),
        ] {
            assert!(MODULE.contains(from) && !compared(MODULE, &MODULE.replace(from, to)), "{from} {to}");
        }
    }

    #[test]
    fn attributes_are_those_of_groups_and_of_the_line() {
        let found = attributes(MODULE, "f g").unwrap();
        assert!(found.is_local && found.convention == "fastcc" && found.words.contains("alignstack=16"));
        assert_eq!(found.strings.get("amdgpu-num-vgpr").map(String::as_str), Some("0x40"));
        assert_eq!(found.strings.get("k").map(String::as_str), Some("a;b"));
        for (from, to) in
            [("fastcc", "cc 99"), ("fastcc", "swiftcc"), ("f g", "f h"), ("#0 \"k", "#5 \"k"), ("(i32 %x)", "(i32 %x")]
        {
            assert!(attributes(&MODULE.replace(from, to), "f g").is_err(), "{from} {to}");
        }
    }
}
