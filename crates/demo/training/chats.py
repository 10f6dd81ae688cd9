"""Chats that a language model writes itself, both sides, by a server that serves it.

    asynclane serve --model SmolLM2-135M-Instruct.Q4_1.gguf --dtype f32 --port 8123
    python chats.py --url http://127.0.0.1:8123 --count 2000 --out chats.jsonl

The questions are drawn at a temperature, the answers are greedy: agreement with an answer is agreement
with the model. Each line of the file has `prompt` and `answer`, texts with the template's marks.
"""

import argparse
import json
import random
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
USER, END, ASSISTANT = "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n"
# First words of questions, so that few kinds are missing; most questions have none.
OPENINGS = (
    "Hello", "Hi", "Thanks", "What is", "What are", "Who was", "Why", "How do I", "How many", "When", "Where",
    "Write", "Write a short", "Write a Python function", "Explain", "Summarize", "Translate", "List", "Name three",
    "Give me", "Tell me", "Compare", "Rewrite", "Correct", "Is it true that", "Can you", "Describe", "Define",
)  # fmt: skip
FOLLOWED_SHARE = 0.3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8123")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000, help="chats")
    parser.add_argument("--length", type=int, default=160, help="most tokens of an answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=24, help="chats in flight")
    return parser.parse_args()


class Writer:
    def __init__(self, options):
        self.options = options
        with urllib.request.urlopen(f"{options.url}/v1/models") as answer:
            self.model = json.load(answer)["data"][0]["id"]

    def complete(self, prompt, **settings):
        """The text that follows a prompt, and true if it ended by itself."""
        body = {"model": self.model, "prompt": prompt, "stop": ["<|im_end|>"], **settings}
        request = urllib.request.Request(
            f"{self.options.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            choice = json.load(answer)["choices"][0]
        return choice["text"], choice["finish_reason"] == "stop"

    def question(self, before, rng):
        """A question of the user; None if it does not end or is no plain text."""
        opening = rng.choice(OPENINGS) if rng.random() < 0.4 else ""
        drawn = {"temperature": 0.9, "top_p": 0.95, "max_tokens": 60, "seed": rng.randrange(1 << 31)}
        text, ended = self.complete(before + USER + opening, **drawn)
        text = opening + text
        return text if ended and text.strip() and text.isascii() else None

    def chat(self, number):
        """One or two pairs of a question and its answer."""
        rng = random.Random(f"{self.options.seed}/{number}")
        before, lines = SYSTEM, []
        for _ in range(1 + (rng.random() < FOLLOWED_SHARE)):
            question = self.question(before, rng)
            if question is None:
                break
            prompt = before + USER + question + END + ASSISTANT
            answer, ended = self.complete(prompt, temperature=0, max_tokens=self.options.length)
            lines.append({"prompt": prompt, "answer": answer + "<|im_end|>" * ended})
            before = prompt + answer + END
        return lines


def main():
    options = arguments()
    writer = Writer(options)
    with options.out.open("w") as file, ThreadPoolExecutor(options.at_once) as pool:
        for number, lines in enumerate(pool.map(writer.chat, range(options.count)), 1):
            for line in lines:
                file.write(json.dumps(line) + "\n")
            if number % 100 == 0:
                file.flush()
                print(f"{number} of {options.count} chats", flush=True)


if __name__ == "__main__":
    main()
