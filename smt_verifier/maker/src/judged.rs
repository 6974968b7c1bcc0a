//! What the second checker says of a certificate: nothing else makes a [`Judged`].

use verilocc_check::audit::judge;
use verilocc_check::check::Texts;
use verilocc_check::context::Context;
use verilocc_check::model::Done;

/// A certificate as text, and how many operands were compared, or why it was refused.
pub struct Judged {
    text: String,
    answer: Done<usize>,
}

impl Judged {
    pub fn of(context: &mut Context<'_>, texts: &Texts, text: String) -> Judged {
        let answer = judge(context, &text, Some(texts));
        Judged { text, answer }
    }

    pub fn is_accepted(&self) -> bool {
        self.answer.is_ok()
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn answer(self) -> Done<usize> {
        self.answer
    }
}
