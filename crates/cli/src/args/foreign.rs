//! Options of other servers, each with the option or the fact that takes its place here.

use std::ffi::OsString;

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
    ("--revision", "use --model ORG/NAME@REVISION"),
    ("--hf-file", "use --model ORG/NAME:FILE"),
    ("-hff", "use --model ORG/NAME:FILE"),
    ("--enable-lora", "use --lora FOLDER, one adapter"),
    ("--lora-modules", "use --lora FOLDER, one adapter"),
    ("--lora-paths", "use --lora FOLDER, one adapter"),
    ("--limit-mm-per-prompt", "models read text alone"),
    ("--mmproj", "models read text alone"),
    ("--hf-repo", "use --model ORG/NAME"),
    ("-hf", "use --model ORG/NAME"),
    ("--tokenizer", "the tokenizer is read from the model's folder or file"),
    ("--quantization", "use --dtype int8 or int4"),
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

/// The advice for an option that another server has.
pub fn advice(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or(option);
    OPTIONS.iter().find(|(other, _)| *other == name).map(|(_, advice)| *advice)
}

/// The first of `args` that is such an option of several letters behind one dash. clap reads them as several
/// options: `-hf` as `-h` and `-f`.
pub(super) fn joined(args: impl Iterator<Item = OsString>) -> Option<String> {
    let args = args.filter_map(|arg| arg.into_string().ok());
    let mut options = args.take_while(|arg| arg != "--");
    options.find(|arg| arg.len() > 2 && !arg.starts_with("--") && advice(arg).is_some())
}

#[cfg(test)]
mod tests {
    use clap::{Args, CommandFactory};

    use super::*;
    use crate::args::{Cli, ServeArgs};

    #[test]
    fn advice_names_options_that_exist_and_none_that_is_ours() {
        let serve = ServeArgs::augment_args(clap::Command::new("serve"));
        let ours: Vec<String> = serve
            .get_arguments()
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        for (option, advice) in OPTIONS {
            assert!(!ours.iter().any(|our| our == option), "{option} is ours");
            let mut words = advice.split([' ', ';', ':', ',']);
            let named = words.find(|word| word.starts_with("--"));
            assert!(named.is_none_or(|name| ours.iter().any(|our| our == name)), "{advice}");
        }
        Cli::command().debug_assert();
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
        assert_eq!(advice("--ctx-size=4096"), Some("use --max-model-len"));
        assert_eq!(advice("--model"), None);
    }
}
