//! The commands of a chat: lines that begin with a slash.

use engine::did_you_mean;

/// A line of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A message to the model.
    Message(&'a str),
    /// `/preset`: the decoder of the next answers; without one, the decoders are listed.
    Preset(Option<&'a str>),
    /// `/race`: answers the last message with these decoders, one after the other.
    Race(Vec<&'a str>),
    /// `/stats`: the cost of the last answer and of all.
    Stats,
    /// `/system`: the system prompt; without a text, none.
    System(&'a str),
    /// `/clear`: forgets the conversation.
    Clear,
    /// `/help`
    Help,
    /// `/quit`
    Quit,
}

/// The commands with their help.
pub const HELP: &[(&str, &str)] = &[
    ("/preset [DECODER]", "list decoders, or take one: a preset, or preset,key=value"),
    ("/race [A B]", "answer the last message with two decoders, one after the other"),
    ("/stats", "the cost of the last answer and of all"),
    ("/system [TEXT]", "set the system prompt and begin anew; without a text: none"),
    ("/clear", "forget the conversation"),
    ("/help", "this list"),
    ("/quit", "end (also Ctrl-D)"),
    ("\"\"\"", "begins and ends a message of several lines"),
];

impl<'a> Line<'a> {
    /// Reads a line that is not blank.
    ///
    /// # Errors
    /// A command that does not exist.
    pub fn parse(line: &'a str) -> Result<Self, String> {
        let line = line.trim();
        if !line.starts_with('/') {
            return Ok(Self::Message(line));
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        Ok(match name {
            "/preset" => Self::Preset((!rest.is_empty()).then_some(rest)),
            "/race" => Self::Race(rest.split_whitespace().collect()),
            "/stats" => Self::Stats,
            "/system" => Self::System(rest),
            "/clear" => Self::Clear,
            "/help" | "/?" => Self::Help,
            "/quit" | "/exit" | "/bye" => Self::Quit,
            _ => {
                let names = HELP.iter().filter_map(|(usage, _)| usage.split(' ').next());
                let hint = did_you_mean(name, names);
                return Err(format!("no command {name}{hint}; /help lists them"));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_or_a_command() {
        for (line, expected) in [
            (" Hello /quit ", Line::Message("Hello /quit")),
            ("/preset", Line::Preset(None)),
            ("/preset  fast,block_length=16 ", Line::Preset(Some("fast,block_length=16"))),
            ("/race", Line::Race(vec![])),
            ("/race fast  vanilla", Line::Race(vec!["fast", "vanilla"])),
            ("/system\tBe brief.", Line::System("Be brief.")),
            ("/bye", Line::Quit),
        ] {
            assert_eq!(Line::parse(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn an_unknown_command_names_the_nearest() {
        let error = Line::parse("/prset fast").unwrap_err();
        assert_eq!(error, "no command /prset (did you mean \"/preset\"?); /help lists them");
        assert_eq!(Line::parse("/").unwrap_err(), "no command /; /help lists them");
    }

    #[test]
    fn every_command_of_the_help_exists() {
        for (usage, _) in HELP {
            let name = usage.split(' ').next().unwrap();
            assert!(Line::parse(name).is_ok(), "{name}");
        }
    }
}
