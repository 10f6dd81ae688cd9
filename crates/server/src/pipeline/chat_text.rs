//! The text of a chat in the model's template.

use std::borrow::Cow;

use serde_json::json;
use text::{
    ChatTemplate, Conversation, Message, TextError, Tokenizer, ToolFormat, plain_conversation,
};

/// The end of a chat's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the opening of the assistant's turn.
    Answer,
    /// With the last message, which stays open.
    Continued,
    /// With the last message, as the template closes it.
    Closed,
}

/// A chat in the model's template.
pub fn chat_text(
    tokenizer: &Tokenizer,
    chat: &Conversation,
    calls: ToolFormat,
    ending: Ending,
) -> Result<String, TextError> {
    let chat = fitting(tokenizer, chat, calls)?;
    let template = tokenizer.chat_template()?;
    match ending {
        Ending::Answer => rendered(template, &chat, true),
        Ending::Continued => open_chat_text(template, &chat),
        Ending::Closed => rendered(template, &chat, false),
    }
}

/// `chat` in `template`. Where the template cannot show arguments that are a text, they are an object
/// whose only member `arguments` is that text.
fn rendered(template: &ChatTemplate, chat: &Conversation, open: bool) -> Result<String, TextError> {
    template.render_conversation(chat, open).or_else(|error| {
        let (mut chat, mut has_texts) = (chat.clone(), false);
        let calls = chat.messages.iter_mut().flat_map(|message| &mut message.calls);
        for call in calls.filter(|call| call.arguments.is_string()) {
            call.arguments = json!({"arguments": call.arguments.take()});
            has_texts = true;
        }
        match has_texts {
            true => template.render_conversation(&chat, open),
            false => Err(error),
        }
    })
}

/// A chat as the model's template can show it.
fn fitting<'a>(
    tokenizer: &Tokenizer,
    chat: &'a Conversation,
    calls: ToolFormat,
) -> Result<Cow<'a, Conversation>, TextError> {
    let has_calls = |message: &Message| message.role == "tool" || !message.calls.is_empty();
    let needs_tools = !chat.tools.is_empty() || chat.messages.iter().any(has_calls);
    let template = tokenizer.chat_template()?;
    let chat = match needs_tools && !template.has_tools(!chat.tools.is_empty()) {
        true => Cow::Owned(plain_conversation(chat, calls)),
        false => Cow::Borrowed(chat),
    };
    Ok(tokenizer.marked(chat))
}

/// A chat whose final message stays open: without the template's text after that message.
fn open_chat_text(template: &ChatTemplate, chat: &Conversation) -> Result<String, TextError> {
    // A private-use character that no template contains.
    const MARK: &str = "\u{F8FF}mark\u{F8FF}";
    let mut marked = chat.clone();
    if let Some(last) = marked.messages.last_mut() {
        MARK.clone_into(&mut last.content);
    }
    let marked = rendered(template, &marked, false)?;
    let text = rendered(template, chat, false)?;
    let open = marked.rsplit_once(MARK).and_then(|(_, closing)| text.strip_suffix(closing));
    open.map(str::to_owned)
        .ok_or_else(|| TextError::Refused("its final message cannot be continued".to_owned()))
}
