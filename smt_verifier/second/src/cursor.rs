//! A place in one line of text, and what may be read from there (spec 2.1).

use crate::model::Refused;

/// Text that is read from left to right. Nothing is skipped: whoever reads says what stands there.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str, line: usize) -> Self {
        Cursor { text, at: 0, line }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// The text from an earlier place to here.
    pub(crate) fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or("")
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub(crate) fn looks_at(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let found = self.looks_at(text);
        if found {
            self.at += text.len();
        }
        found
    }

    pub(crate) fn expect(&mut self, text: &str) -> Result<(), Refused> {
        if self.eat(text) {
            return Ok(());
        }
        Err(self.fail(&format!("expected `{text}`")))
    }

    pub(crate) fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    /// Letters, digits, `_`, `-`, `.` and `$`, at least one.
    pub(crate) fn name(&mut self) -> Result<&'a str, Refused> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || "_-.$".contains(c));
        if name.is_empty() {
            return Err(self.fail("expected a name"));
        }
        Ok(name)
    }

    /// Letters, digits and `_`, at least one.
    pub(crate) fn word(&mut self) -> Result<&'a str, Refused> {
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if word.is_empty() {
            return Err(self.fail("expected a word"));
        }
        Ok(word)
    }

    /// Decimal digits without a leading zero.
    pub(crate) fn number<T: std::str::FromStr>(&mut self) -> Result<T, Refused> {
        let digits = self.take_while(|c| c.is_ascii_digit());
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(self.fail("a number with a leading zero"));
        }
        digits.parse().map_err(|_| self.fail("expected a number that fits"))
    }

    /// A text in double quotes, quotes included. LLVM writes a quote inside as `\22`, or a backslash before it.
    pub(crate) fn quoted(&mut self) -> Result<&'a str, Refused> {
        let start = self.at;
        self.expect("\"")?;
        loop {
            self.take_while(|c| c != '"' && c != '\\');
            if self.eat("\"") {
                return Ok(self.since(start));
            }
            let escape = self.rest().get(..2).ok_or_else(|| self.fail("a text in quotes has no end"))?;
            self.at += escape.len();
        }
    }

    /// A quoted text, or a name.
    pub(crate) fn quoted_or_name(&mut self) -> Result<&'a str, Refused> {
        if self.looks_at("\"") {
            self.quoted()
        } else {
            self.name()
        }
    }

    /// Blanks and a comment at the end of a line, then nothing.
    pub(crate) fn end(&mut self) -> Result<(), Refused> {
        self.take_while(|c| c == ' ');
        if self.eat(";") {
            self.at = self.text.len();
        }
        if self.is_at_end() {
            return Ok(());
        }
        Err(self.fail("characters that no rule reads"))
    }

    pub(crate) fn fail(&self, message: &str) -> Refused {
        let ahead: String = self.rest().chars().take(24).collect();
        Refused::new("text", format!("{message} at `{ahead}`"), format!("line {}", self.line))
    }
}
