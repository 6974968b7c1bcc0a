//! The part of YAML in which LLVM prints the header of a machine function (spec 2.1; llvm/CodeGen/MIRYamlMapping.h).

use crate::cursor::Cursor;
use crate::model::Refused;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Scalar(String),
    List(Vec<Value>),
    Map(Pairs),
}

pub(crate) type Pairs = Vec<(String, Value)>;

/// LLVM's headers are four levels deep.
const DEPTH: usize = 6;

impl Value {
    /// One line of text for a value that is only compared.
    pub(crate) fn flat(&self) -> String {
        match self {
            Value::Scalar(text) => text.clone(),
            Value::List(items) => items.iter().map(Value::flat).collect::<Vec<_>>().join(", "),
            Value::Map(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}: {}", value.flat())).collect();
                format!("{{{}}}", pairs.join(", "))
            }
        }
    }
}

/// Lines of a header with their numbers, comments left out.
pub(crate) struct Lines<'a> {
    lines: &'a [(usize, &'a str)],
    at: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(lines: &'a [(usize, &'a str)]) -> Self {
        Lines { lines, at: 0 }
    }

    fn peek(&self) -> Option<(usize, &'a str)> {
        self.lines.get(self.at).copied()
    }

    /// All pairs at this indentation, until a line has less of it.
    pub(crate) fn map(&mut self, indent: usize) -> Result<Pairs, Refused> {
        let mut pairs = Pairs::new();
        while let Some((number, line)) = self.peek() {
            let depth = line.len() - line.trim_start_matches(' ').len();
            if depth < indent {
                break;
            }
            let mut cursor = Cursor::new(line, number);
            cursor.take_while(|c| c == ' ');
            if depth > indent || indent > 2 * DEPTH {
                return Err(cursor.fail("a line that is indented too far"));
            }
            let key = key(&mut cursor)?;
            self.at += 1;
            if indent == 0 && cursor.looks_at(" {") {
                return Err(cursor.fail("a section in brackets"));
            }
            let value = if cursor.is_at_end() { self.below(indent + 2, &cursor)? } else { self.beside(&mut cursor)? };
            insert(&mut pairs, key, value, &cursor)?;
        }
        Ok(pairs)
    }

    /// What the lines below a key without a value say: a list or more pairs.
    fn below(&mut self, indent: usize, key: &Cursor) -> Result<Value, Refused> {
        let dash = format!("{}- ", " ".repeat(indent));
        if !self.peek().is_some_and(|(_, line)| line.starts_with(&dash)) {
            let pairs = self.map(indent)?;
            return if pairs.is_empty() { Err(key.fail("a key without a value")) } else { Ok(Value::Map(pairs)) };
        }
        let mut items = Vec::new();
        while let Some((number, line)) = self.peek() {
            let Some(item) = line.strip_prefix(&dash) else { break };
            self.at += 1;
            items.push(self.beside(&mut Cursor::new(item, number))?);
        }
        Ok(Value::List(items))
    }

    /// The value behind a key or a dash. One in brackets may go on in the lines below.
    fn beside(&mut self, cursor: &mut Cursor) -> Result<Value, Refused> {
        cursor.take_while(|c| c == ' ');
        if !cursor.looks_at("{") && !cursor.looks_at("[") {
            let value = scalar(cursor, false)?;
            cursor.end_of_value()?;
            return Ok(value);
        }
        // LLVM breaks long lines and indents the rest deeper than anything else.
        let mut text = cursor.rest().to_string();
        while let Some((_, line)) = self.peek().filter(|(_, line)| line.starts_with("     ")) {
            self.at += 1;
            text.push_str(line.trim_start_matches(' '));
        }
        let mut flow_cursor = Cursor::new(&text, cursor.line());
        let value = flow(&mut flow_cursor, DEPTH)?;
        flow_cursor.end_of_value()?;
        Ok(value)
    }
}

impl Cursor<'_> {
    fn end_of_value(&mut self) -> Result<(), Refused> {
        self.take_while(|c| c == ' ');
        if self.is_at_end() {
            return Ok(());
        }
        Err(self.fail("characters behind a value"))
    }
}

fn key(cursor: &mut Cursor) -> Result<String, Refused> {
    let key = cursor.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-').to_string();
    if key.is_empty() || !cursor.eat(":") || !(cursor.is_at_end() || cursor.looks_at(" ")) {
        return Err(cursor.fail("expected a key and a colon"));
    }
    Ok(key)
}

fn insert(pairs: &mut Pairs, key: String, value: Value, cursor: &Cursor) -> Result<(), Refused> {
    if pairs.iter().any(|(other, _)| *other == key) {
        return Err(cursor.fail(&format!("the key {key} stands twice")));
    }
    pairs.push((key, value));
    Ok(())
}

fn flow(cursor: &mut Cursor, depth: usize) -> Result<Value, Refused> {
    let close = if cursor.eat("{") {
        "}"
    } else if cursor.eat("[") {
        "]"
    } else {
        return scalar(cursor, true);
    };
    let Some(depth) = depth.checked_sub(1) else { return Err(cursor.fail("brackets are nested too deeply")) };
    let (mut pairs, mut items) = (Pairs::new(), Vec::new());
    cursor.take_while(|c| c == ' ');
    let mut is_first = true;
    while !cursor.eat(close) {
        if !is_first {
            cursor.expect(",")?;
        }
        is_first = false;
        cursor.take_while(|c| c == ' ');
        if close == "}" {
            let key = key(cursor)?;
            cursor.take_while(|c| c == ' ');
            let value = flow(cursor, depth)?;
            insert(&mut pairs, key, value, cursor)?;
        } else {
            items.push(flow(cursor, depth)?);
        }
        cursor.take_while(|c| c == ' ');
    }
    Ok(if close == "}" { Value::Map(pairs) } else { Value::List(items) })
}

fn scalar(cursor: &mut Cursor, in_brackets: bool) -> Result<Value, Refused> {
    if cursor.eat("'") {
        let mut text = String::new();
        loop {
            text.push_str(cursor.take_while(|c| c != '\''));
            cursor.expect("'")?;
            if !cursor.eat("'") {
                return Ok(Value::Scalar(text));
            }
            text.push('\'');
        }
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.$+<>()/".contains(c) || (!in_brackets && c == ' ');
    let text = cursor.take_while(is_plain).trim_end_matches(' ');
    let is_word = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_.$(<".contains(c));
    let is_negative = text.strip_prefix('-').is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()));
    if is_word || is_negative {
        return Ok(Value::Scalar(text.to_string()));
    }
    Err(cursor.fail("expected a value"))
}
