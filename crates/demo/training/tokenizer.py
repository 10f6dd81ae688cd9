"""Builds the tokenizer: byte-level BPE trained on the problems.

Every number from 0 to 99 is one token, with and without a leading blank. A period and a line break
are always separate tokens. Special ids: 0 start, 1 end, 2 and 3 header, 4 end of turn, 5 mask.
"""

import argparse
import json
import os
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the order of merges must not depend on threads

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from problems import FAMILIES, problems

SPECIAL = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|mdm_mask|>",
)
START, END, HEADER, HEADER_END, END_OF_TURN, MASK = range(6)
CHAT_TEMPLATE = (
    "{{ '<|startoftext|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# A word, a number of at most two digits or a symbol, each with an optional leading blank; several
# blanks (indentation); a single line break. A period is a symbol, and BPE never joins two pieces.
PIECES = r"\n| ?\d{1,2}| ?[A-Za-z_]+| ?#+| {2,}| ?[^\sA-Za-z_\d#]|\s"
SMALL_TALK = "Hello! Hi. I can do sums, write snippets and sort lists. How can I help you?"


def build(seed, count, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(seed, count), trainer)
    check(tokenizer)
    return tokenizer


def corpus(seed, count):
    texts = ["system user assistant " + SMALL_TALK] * 20
    for task in (*FAMILIES, "drills"):
        for problem in problems(task, seed, count):
            texts += [problem["prompt"], problem["answer"]]
    # Repeated, so that no number is split, even if it is rare in the problems.
    numbers = [f"{number} {number}" for number in range(100)]
    return texts + numbers * 20


def check(tokenizer):
    for index, name in enumerate(SPECIAL):
        assert tokenizer.token_to_id(name) == index, name
    for number in range(100):
        for text in (str(number), f" {number}"):
            assert len(tokenizer.encode(text).ids) == 1, text
    assert tokenizer.encode("7.5.\n\n").tokens == ["7", ".", "5", ".", "Ċ", "Ċ"]


def write(tokenizer, folder):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {
        "bos_token": SPECIAL[START],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[END],
        "mask_token": SPECIAL[MASK],
    }
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    added = {str(i): {"content": name, **flags, "special": True} for i, name in enumerate(SPECIAL)}
    config = {
        "add_bos_token": False,
        "add_eos_token": False,
        "added_tokens_decoder": added,
        **names,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    (folder / "special_tokens_map.json").write_text(json.dumps(names, indent=1))


def chat(prompt):
    """One user message, rendered by the chat template."""
    return (
        f"<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n{prompt.strip()}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5000, help="problems per family")
    parser.add_argument("--vocabulary", type=int, default=1024, help="maximum vocabulary size")
    arguments = parser.parse_args()
    tokenizer = build(arguments.seed, arguments.count, arguments.vocabulary)
    write(tokenizer, arguments.out)
    print(f"{tokenizer.get_vocab_size()} tokens in {arguments.out}")


if __name__ == "__main__":
    main()
