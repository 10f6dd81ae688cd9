//! Options of other servers, each with the option or the fact that takes its place here.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::{Command, CommandFactory};

use super::Cli;

/// An option of vLLM, SGLang, llama.cpp or Ollama, and what to write instead.
const OPTIONS: &[(&str, &str)] = &[
    ("--max-num-seqs", "use --max-running"),
    ("--max-running-requests", "use --max-running"),
    ("--parallel", "use --max-running"),
    ("-np", "use --max-running"),
    ("--max-num-batched-tokens", "use --row-budget"),
    ("--ubatch-size", "use --row-budget"),
    ("--batch-size", "use --row-budget"),
    ("--chunked-prefill-size", "use --prefill-chunk"),
    ("--enable-chunked-prefill", "prompts are split; --prefill-chunk sets the length"),
    ("--gpu-memory-utilization", "use --device-memory, a share of the device's memory"),
    ("--mem-fraction-static", "use --device-memory, a share of the device's memory"),
    ("--ctx-size", "use --max-model-len"),
    ("-c", "use --max-model-len"),
    ("--context-length", "use --max-model-len"),
    ("--n-gpu-layers", "use --device cuda: all layers are on the device"),
    ("--gpu-layers", "use --device cuda: all layers are on the device"),
    ("-ngl", "use --device cuda: all layers are on the device"),
    ("--tensor-parallel-size", "a process uses one device"),
    ("--tp", "a process uses one device"),
    ("--pipeline-parallel-size", "a process uses one device"),
    ("--data-parallel-size", "a process uses one device; a router spreads requests over several"),
    ("--dp-size", "a process uses one device; a router spreads requests over several"),
    ("--dllm-algorithm", "use --decoder"),
    ("--dllm-algorithm-config", "use --decoder NAME,KEY=VALUE"),
    ("--diffusion-config", "use --decoder, such as canvas,block_length=128"),
    (
        "--generation-config",
        "generation_config.json limits no answer, and requests choose their sampling",
    ),
    ("--override-generation-config", "requests choose their sampling"),
    ("--seed", "requests choose their seed"),
    ("--hf-overrides", "config.json is read as it is"),
    ("--attention-backend", "every device has one implementation of attention"),
    ("--block-size", "use --set engine.page_size=NUMBER"),
    ("--model-path", "use --model"),
    ("--revision", "name the model ORG/NAME@REVISION"),
    ("--hf-file", "name the model ORG/NAME:FILE"),
    ("-hff", "name the model ORG/NAME:FILE"),
    ("--enable-lora", "use --lora FOLDER, one adapter"),
    ("--lora-modules", "use --lora FOLDER, one adapter"),
    ("--lora-paths", "use --lora FOLDER, one adapter"),
    ("--limit-mm-per-prompt", "models read text alone"),
    ("--mmproj", "models read text alone"),
    ("--hf-repo", "name the model ORG/NAME"),
    ("-hf", "name the model ORG/NAME"),
    ("--tokenizer", "the tokenizer is read from the model's folder or file"),
    (
        "--quantization",
        "quantized checkpoints name their format; --dtype int8 or int4 quantizes others",
    ),
    ("--kv-cache-dtype", "use --kv-dtype"),
    ("--cache-type-k", "use --kv-dtype"),
    ("--enable-prefix-caching", "prefixes are shared; --no-prefix-cache turns it off"),
    ("--disable-radix-cache", "use --no-prefix-cache"),
    ("--speculative-config", "use --draft-model"),
    ("--model-draft", "use --draft-model"),
    ("-md", "use --draft-model"),
    ("--alias", "use --served-model-name"),
    ("--tool-call-parser", "use --set model.tool_parser=NAME; auto follows the chat template"),
    ("--reasoning-parser", "use --set model.reasoning_parser=NAME"),
    ("--enable-auto-tool-choice", "tools need no option"),
    ("--jinja", "chat templates need no option"),
    ("--chat-template-file", "use --chat-template"),
    ("--trust-remote-code", "no code of a checkpoint is run, and none is needed"),
    ("--download-dir", "set HF_HOME"),
    ("--hf-token", "set HF_TOKEN"),
    ("--threads", "every processor that the process may use is used; taskset chooses them"),
    ("-t", "every processor that the process may use is used; taskset chooses them"),
    ("--ssl-keyfile", "TLS is for a proxy in front"),
    ("--ssl-certfile", "TLS is for a proxy in front"),
    ("--allowed-origins", "use --set server.cors=true"),
    ("--log-level", "use --log"),
    ("--uvicorn-log-level", "use --log"),
    ("--disable-log-requests", "use --log"),
    ("--verbose", "use --log debug"),
];

/// A command, and an option of it that it does not read: its model is an argument.
const UNREAD: (&str, &str) = ("pull", "--model");

/// The advice for an option that another server has, given to the command that `args` name. It names options
/// of this command alone.
pub fn advice(option: &str, args: impl Iterator<Item = OsString>) -> Option<Cow<'static, str>> {
    let advice = stated(option)?;
    let mut program = Cli::command();
    program.build();
    let command = innermost(&program, args);
    Some(match named(advice).all(|name| has(command, name)) {
        true => Cow::Borrowed(advice),
        false => {
            let name = command.get_bin_name().unwrap_or(command.get_name());
            Cow::Owned(format!("`{name}` has nothing in its place"))
        }
    })
}

/// The advice for an option of another server, as `serve` has its options.
fn stated(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or(option);
    OPTIONS.iter().find(|(other, _)| *other == name).map(|(_, advice)| *advice)
}

/// The command that the arguments of `program` name.
fn innermost(program: &Command, args: impl Iterator<Item = OsString>) -> &Command {
    args.skip(1).take_while(|arg| arg != "--").fold(program, |command, arg| {
        command.get_subcommands().find(|inner| arg == inner.get_name()).unwrap_or(command)
    })
}

/// The options that a text names.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ';', ':', ',']).filter(|word| word.starts_with("--"))
}

/// True if a command reads an option.
fn has(command: &Command, option: &str) -> bool {
    let mut names = command.get_arguments().filter_map(clap::Arg::get_long);
    let is_known = names.any(|name| option.strip_prefix("--") == Some(name));
    is_known && (command.get_name(), option) != UNREAD
}

/// The first of `args` that is such an option of several letters behind one dash. clap reads them as several
/// options: `-hf` as `-h` and `-f`.
pub(super) fn joined(args: impl Iterator<Item = OsString>) -> Option<String> {
    let args = args.filter_map(|arg| arg.into_string().ok());
    let mut options = args.take_while(|arg| arg != "--");
    options.find(|arg| arg.len() > 2 && !arg.starts_with("--") && stated(arg).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a command and of all commands inside.
    fn paths(command: &Command, before: &[String]) -> Vec<Vec<String>> {
        let own = [before, &[command.get_name().to_owned()]].concat();
        let inner = command.get_subcommands().flat_map(|inner| paths(inner, &own));
        inner.chain([own.clone()]).collect()
    }

    fn said(path: &[String], option: &str) -> String {
        let args = path.iter().map(String::as_str).chain([option]).map(OsString::from);
        advice(option, args).unwrap().into_owned()
    }

    #[test]
    fn advice_names_options_of_the_command_and_none_that_is_ours() {
        let mut program = Cli::command();
        program.build();
        let serve = program.find_subcommand("serve").unwrap();
        for (option, advice) in OPTIONS {
            assert!(!has(serve, option), "{option} is ours");
            assert_eq!(said(&["asynclane".to_owned(), "serve".to_owned()], option), *advice);
        }
        let paths = paths(&program, &[]);
        assert!(paths.len() > 12, "{paths:?}");
        for path in paths {
            let command = innermost(&program, path.iter().map(OsString::from));
            assert_eq!(command.get_name(), path.last().unwrap());
            for (option, _) in OPTIONS {
                let said = said(&path, option);
                assert!(named(&said).all(|name| has(command, name)), "{path:?}: {said}");
            }
        }
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_without_the_option_has_nothing_in_its_place() {
        let said = |line: &str, option: &str| {
            advice(option, line.split(' ').map(OsString::from)).unwrap().into_owned()
        };
        let lacks = "`asynclane run` has nothing in its place";
        assert_eq!(said("asynclane run demo --verbose", "--verbose"), lacks);
        assert_eq!(said("asynclane run demo --ctx-size 5", "--ctx-size"), "use --max-model-len");
        let lacks = "`asynclane inspect health` has nothing in its place";
        assert_eq!(said("asynclane inspect -m demo health --alias x", "--alias"), lacks);
        assert_eq!(
            said("asynclane pull a/b --revision v", "--revision"),
            "name the model ORG/NAME@REVISION"
        );
        let lacks = "`asynclane pull` has nothing in its place";
        assert_eq!(said("asynclane pull --model-path a/b", "--model-path"), lacks);
    }

    #[test]
    fn letters_behind_one_dash_are_one_option() {
        let found = |line: &str| joined(line.split(' ').map(OsString::from));
        assert_eq!(found("serve -p 80 -hf a/b").as_deref(), Some("-hf"));
        for line in ["serve -p 80 -c 5", "serve -- -hf", "generate --seed 3", "serve - -x"] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn a_value_does_not_hide_the_option() {
        assert_eq!(stated("--ctx-size=4096"), Some("use --max-model-len"));
        assert_eq!(stated("--model"), None);
    }
}
