//! Options of other servers, each with the option or the fact that takes its place here.

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
    ("--model-path", "use --model"),
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
    ("--trust-remote-code", "no code of a checkpoint is run, and none is needed"),
    ("--download-dir", "set HF_HOME"),
    ("--hf-token", "set HF_TOKEN"),
    ("--threads", "every processor that the process may use is used; taskset chooses them"),
    ("-t", "every processor that the process may use is used; taskset chooses them"),
    ("--log-level", "use --log"),
    ("--disable-log-requests", "use --log"),
    ("--verbose", "use --log debug"),
];

/// The advice for an option that another server has.
pub fn advice(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or(option);
    OPTIONS.iter().find(|(other, _)| *other == name).map(|(_, advice)| *advice)
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
    fn a_value_does_not_hide_the_option() {
        assert_eq!(advice("--ctx-size=4096"), Some("use --max-model-len"));
        assert_eq!(advice("--model"), None);
    }
}
