//! IR modules of both texts (spec 13.5), and what one says of a function (13.4; llvm/lib/IR/AsmWriter.cpp prints it).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::grammar::is;
use crate::model::{ensure, need, Done, Refused};
use crate::tables::{tables, Processor};

fn wrong(message: String) -> Refused {
    Refused::new("module", message, "")
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
pub fn compare(before: &str, after: &str, target: &Processor) -> Done {
    let is_equal = before == after;
    let before = normal(&plain(before)?, target)?;
    if is_equal {
        return Ok(());
    }
    let after = normal(&plain(after)?, target)?;
    let differs = before.iter().zip(&after).find(|(old, new)| old != new);
    ensure!(before.len() == after.len(), "module", "", "the modules have different numbers of lines");
    differs.map_or(Ok(()), |(old, new)| Err(wrong(format!("`{old}` becomes `{new}`"))))
}

/// The line with a quote for every byte that stands in quotes, so that places are the same and marks outside are
/// found. A text in quotes has no quote inside: LLVM writes `\\22`.
fn masked(line: &str) -> Cow<'_, str> {
    if line.is_ascii() && !line.contains('"') {
        return line.into();
    }
    let mut is_quoted = false;
    let mask = |byte: u8| {
        let was_quoted = is_quoted;
        is_quoted ^= byte == b'"';
        char::from(if was_quoted || !byte.is_ascii() { b'"' } else { byte })
    };
    line.bytes().map(mask).collect::<String>().into()
}

/// The module without comments that stand between `/*` and `*/` in one line: LLVM 24 writes them before arguments of
/// intrinsics. Others would hide lines.
fn plain(module: &str) -> Done<Cow<'_, str>> {
    if !module.contains("/*") {
        return Ok(module.into());
    }
    let mut plain = String::new();
    for line in module.lines() {
        let (mask, mut at) = (masked(line), 0);
        let end = mask.find(';').unwrap_or(line.len());
        while let Some(start) = mask.get(at..end).and_then(|rest| rest.find("/*")).map(|found| at + found) {
            let inside = mask.get(start + 2..end).unwrap_or("");
            let length = inside.find("*/").filter(|length| inside.find(['*', '/', '"']) == Some(*length));
            let length = need!(length, "module", "", "a comment that LLVM does not print in `{line}`");
            plain += line.get(at..start).unwrap_or("");
            at = start + 2 + length + 2;
            at += usize::from(mask.get(at..).is_some_and(|rest| rest.starts_with(' ')));
        }
        plain += line.get(at..).unwrap_or("");
        plain.push('\n');
    }
    Ok(plain.into())
}

/// The lines of a module without comments and without the blanks at their ends.
fn lines(module: &str) -> impl Iterator<Item = &str> {
    let code = |line| masked(line).find(';').and_then(|at| line.get(..at)).unwrap_or(line).trim_end();
    module.lines().map(code).filter(|line| !line.is_empty())
}

/// The lines that count, attribute groups put in place of their numbers.
fn normal(module: &str, target: &Processor) -> Done<Vec<String>> {
    let groups = groups(module)?;
    let mut normal = Vec::new();
    for line in lines(module).filter(|line| group(line).is_none()) {
        let (mask, mut text, mut attributes, mut at) = (masked(line), String::new(), BTreeSet::new(), 0);
        for (found, _) in mask.match_indices(" #") {
            let number = mask.get(found + 2..).unwrap_or("").split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
            if !number.is_empty() {
                attributes.extend(named(&groups, number)?.iter().cloned());
                text += line.get(at..found).unwrap_or("");
                at = found + 2 + number.len();
            }
        }
        text += line.get(at..).unwrap_or("");
        let is_function = line.starts_with("define ") || line.starts_with("declare ");
        let key = "\"target-cpu\"=";
        if is_function && !attributes.iter().any(|attribute| attribute.starts_with(key)) && !text.contains(key) {
            attributes.insert(format!("{key}\"{}\"", target.name));
        }
        normal.push(text + &attributes.iter().map(|attribute| format!(" #{attribute}")).collect::<String>());
    }
    Ok(normal)
}

type Groups<'a> = BTreeMap<&'a str, BTreeSet<String>>;

fn named<'a>(groups: &'a Groups, number: &str) -> Done<&'a BTreeSet<String>> {
    Ok(need!(groups.get(number), "module", "", "there are no attributes #{number}"))
}

/// Number and text of `attributes #N = { … }`.
fn group(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.strip_prefix("attributes #")?.split_once(" = { ")?;
    Some((number, rest.strip_suffix('}')?))
}

/// llc puts the features of its command line behind those that a function has: `target-features` may stand there twice.
fn without_repetition(attribute: String) -> String {
    let features =
        attribute.strip_prefix("\"target-features\"=\"").and_then(|rest| rest.strip_suffix('"')).unwrap_or("");
    let (first, second) = features.split_at_checked(features.len() / 2).unwrap_or((features, ""));
    let is_twice = !features.is_empty() && second.strip_prefix(',') == Some(first);
    if is_twice {
        format!("\"target-features\"=\"{first}\"")
    } else {
        attribute
    }
}

fn groups(module: &str) -> Done<Groups<'_>> {
    // A text in quotes that goes on in the next line would hide a comment, or make one.
    let open = lines(module).find(|line| line.matches('"').count() % 2 != 0);
    ensure!(open.is_none(), "module", "", "quotes are not closed in `{}`", open.unwrap_or(""));
    let mut groups = BTreeMap::new();
    for (number, text) in lines(module).filter_map(group) {
        let attributes = split(text)?.into_iter().map(without_repetition).collect();
        let is_new = groups.insert(number, attributes).is_none();
        ensure!(is_new, "module", "", "the attributes #{number} stand twice");
    }
    Ok(groups)
}

/// Splits at blanks that stand in no quotes and no brackets.
fn split(text: &str) -> Done<Vec<String>> {
    let (mut depth, mut quoted) = (0_i64, false);
    let splits = |c: char| {
        quoted ^= c == '"';
        depth += if quoted { 0 } else { i64::from("([{<".contains(c)) - i64::from(")]}>".contains(c)) };
        c == ' ' && !quoted && depth == 0
    };
    let words = text.split(splits).filter(|word| !word.is_empty()).map(String::from).collect();
    ensure!(!quoted && depth == 0, "module", "", "quotes or brackets are not closed in `{text}`");
    Ok(words)
}

fn convention(head: &str) -> Done<(String, bool)> {
    let words = split(head)?;
    let is_local = words.first().is_some_and(|word| word == "private" || word == "internal");
    let first = need!(words.iter().find(|word| !is("linkage", word)), "module", "", "a function has no type");
    // Any other word than those with which a result begins would be a convention that is not known.
    let is_convention = tables().convention(first).is_some();
    let is_known = is_convention || is("result", first);
    ensure!(is_known, "module", "", "the calling convention {first} is not known");
    Ok((if is_convention { first.clone() } else { "ccc".into() }, is_local))
}

/// The `define` line of a function: what stands before its name, and between its parameters and its body.
fn definition<'a>(module: &'a str, name: &str) -> Done<(&'a str, &'a str)> {
    let mut found = None;
    for line in lines(module) {
        let Some((head, rest)) = line.strip_prefix("define ").and_then(|line| line.split_once('@')) else { continue };
        let quoted = format!("\"{name}\"(");
        let Some(rest) = rest.strip_prefix(&quoted).or(rest.strip_prefix(&format!("{name}("))) else { continue };
        let (mask, mut depth) = (masked(rest), 1_i64);
        let close = mask.bytes().position(|byte| {
            depth += i64::from(byte == b'(') - i64::from(byte == b')');
            depth == 0
        });
        let tail = close.and_then(|close| rest.get(close + 1..close + mask.get(close..)?.find('{')?));
        let tail = need!(tail, "module", "", "the definition of {name} has no body");
        ensure!(found.replace((head, tail)).is_none(), "module", "", "{name} is defined twice");
    }
    Ok(need!(found, "module", "", "the module does not define {name}"))
}

/// Whether a line names the system that is followed: others have other budgets of registers, and other prologues.
fn is_followed(line: &str) -> bool {
    let triple = line.strip_prefix("target triple = \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or("");
    let words: Vec<&str> = triple.split('-').collect();
    let is_ours = words.first().is_some_and(|word| word.starts_with("amdgcn") || word.starts_with("amdgpu"));
    line.starts_with("target datalayout = ") || is_ours && words.get(2) == Some(&"amdhsa") && words.len() < 5
}

/// What the module says of a function.
///
/// # Errors
/// `module`: it does not define the function, or in another form than LLVM prints.
pub fn attributes(module: &str, name: &str) -> Done<Attributes> {
    let module = &plain(module)?;
    let is_other = |line: &&str| masked(line).split_whitespace().any(|word| word == "target") && !is_followed(line);
    let other = lines(module).find(is_other);
    ensure!(other.is_none(), "module", "", "a target that is not followed: {other:?}");
    let (head, tail) = definition(module, name)?;
    let (convention, is_local) = convention(head)?;
    let mut result = Attributes { convention, is_local, ..Attributes::default() };
    let groups = groups(module)?;
    let (mut own, mut all): (_, Vec<String>) = (split(tail)?.into_iter(), Vec::new());
    while let Some(word) = own.next() {
        match word.as_str() {
            "section" | "partition" | "gc" | "align" => drop(own.next()),
            "prefix" | "prologue" | "personality" => return Err(wrong(format!("{name} has a {word}"))),
            // Not attributes.
            "unnamed_addr" | "local_unnamed_addr" => {}
            _ if word.starts_with('!') || word.starts_with("comdat") || word.starts_with("addrspace(") => {}
            _ => match word.strip_prefix('#') {
                Some(number) => all.extend(named(&groups, number)?.iter().cloned()),
                None => all.push(word),
            },
        }
    }
    for word in all {
        let Some(text) = word.strip_prefix('"') else {
            result.words.insert(word);
            continue;
        };
        let pair = text.strip_suffix('"').map(|text| text.split_once("\"=\"").unwrap_or((text, "")));
        let pair = pair.filter(|(key, value)| !key.contains('"') && !value.contains(['"', '\\']));
        let (key, value) = need!(pair, "module", "", "the attribute {word} of {name} is not in LLVM's form");
        let is_one = result.strings.insert(key.into(), value.into()).is_none_or(|old| old == value);
        ensure!(is_one, "module", "", "the attribute {key} of {name} has two values");
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
    fn comments_before_arguments_do_not_count_and_others_are_refused() {
        let of = |text: &str| MODULE.replace("@h() #1", &format!("@h({text}i32 1, i8 2) #1 ; /* x"));
        assert!(compared(&of(""), &of("/* (inf) */ ")) && attributes(&of("/* a */ /* b */ "), "f g").is_ok());
        assert!(compared(MODULE, &MODULE.replace("a;b", "/*;b")) == compared(MODULE, &MODULE.replace("a;b", "a;c")));
        for text in ["/* a ", "/* \" */ ", "/* ; */ ", "/* a\n */ ", "/* /* */ ", "*/ /* "] {
            assert!(!compared(&of(text), &of(text)) && attributes(&of(text), "f g").is_err(), "{text}");
        }
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
