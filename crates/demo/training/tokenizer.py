"""Builds the tokenizer: byte-level BPE trained on the problems.

Every number from 0 to 99 is one token, with and without a leading blank. A period and a line break
are always separate tokens. Special ids: 0 start, 1 end, 2 and 3 header, 4 end of turn, 5 mask. The
last two tokens, behind those that BPE learns, begin and end a call.
"""

import argparse
import json
import os
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the order of merges must not depend on threads

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from problems import TEXT_FAMILIES, problems

SPECIAL = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|mdm_mask|>",
)
START, END, HEADER, HEADER_END, END_OF_TURN, MASK = range(6)
CALL_MARKS = ("<tool_call>", "</tool_call>")
# Functions are one line each, such as `add("a", "b")`, and each type but a number is named. Where
# functions are listed, system texts are left out.
CHAT_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text().rstrip("\n")
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
    for task in (*TEXT_FAMILIES, "drills"):
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
    for id, token in tokenizer.get_added_tokens_decoder().items():
        if id >= len(SPECIAL):
            added[str(id)] = {"content": token.content, **flags, "special": False}
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


def _template():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(CHAT_TEMPLATE)


TEMPLATE = _template()


def chat(prompt):
    """The prompt of a problem, rendered by the chat template: one message of the user, or the
    conversation whose JSON it is."""
    messages, tools = [{"role": "user", "content": prompt}], None
    if prompt.startswith('{"'):
        request = json.loads(prompt)
        messages, tools = request["messages"], request.get("tools")
    return TEMPLATE.render(messages=messages, tools=tools, add_generation_prompt=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--base", type=Path, help="folder of a tokenizer that gets the marks of calls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5000, help="problems per family")
    parser.add_argument("--vocabulary", type=int, default=1024, help="maximum vocabulary size")
    arguments = parser.parse_args()
    if arguments.base:
        tokenizer = Tokenizer.from_file(str(arguments.base / "tokenizer.json"))
    else:
        tokenizer = build(arguments.seed, arguments.count, arguments.vocabulary)
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in CALL_MARKS])
    write(tokenizer, arguments.out)
    print(f"{tokenizer.get_vocab_size()} tokens in {arguments.out}")


if __name__ == "__main__":
    main()
