//! The variables of its caller that a chat template reads.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::ChatTemplate;

impl ChatTemplate {
    /// True if the template of a chat, with tools of its own or without, reads the variable `name`:
    /// the name stands in a tag, neither as a member
    /// (`message.thinking`) nor where it only gets a value (`set thinking = true`).
    pub fn reads(&self, name: &str, tools: bool) -> bool {
        let tokens = tokenize(&self.template(tools).source, false, SyntaxConfig::default());
        let tokens: Vec<_> = tokens.map_while(Result::ok).map(|(token, _)| token).collect();
        let is_read = |(index, token): (usize, &Token<'_>)| {
            let is_member = index > 0 && matches!(tokens[index - 1], Token::Dot);
            let is_set = matches!(tokens.get(index + 1), Some(Token::Assign));
            matches!(token, Token::Ident(found) if *found == name) && !is_member && !is_set
        };
        tokens.iter().enumerate().any(is_read)
    }
}
