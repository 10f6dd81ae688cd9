#!/usr/bin/env python3
"""Renders the templates of `corpus.jinja` with jinja2, set up as transformers does, over the chats of
`chats.json`, and writes what it made to `expected.txt`: a line for each template, with its name and for
each chat the hash of the text, `!` and the hash of what `raise_exception` said, or `-` for another
error.

Usage: differential.py                writes expected.txt
       differential.py --check        fails if expected.txt holds anything else
       differential.py NAME NUMBER    prints what jinja2 makes of a template and a chat
"""
import json
import re
import sys
from datetime import datetime
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


class Raised(jinja2.TemplateError):
    """A template's own refusal."""


class Generation(Extension):
    """The block of transformers that marks an assistant's text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("shown")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def shown(self, caller):
        return caller()


def raised(message):
    raise Raised(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment(now):
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raised
    made.globals["strftime_now"] = datetime.fromisoformat(now).strftime
    return made


def rendered(source, chat):
    """The text of a chat, and `!` or `-` before what an error said."""
    variables = dict(chat.get("variables", {}))
    now = variables.pop("strftime_now", "2024-07-26T09:05:03")
    given = {"messages": chat["messages"], "tools": chat.get("tools"), "documents": None}
    given["add_generation_prompt"] = chat.get("prompt", True)
    try:
        return "", environment(now).from_string(source).render(SPECIAL | variables | given)
    except Raised as error:
        return "!", " ".join(error.message.split())
    except Exception as error:  # Python's own errors too: a text plus a number, say.
        return "-", f"{type(error).__name__}: {error}"


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def templates(text):
    """Names and sources: a line `=== NAME` begins each."""
    for part in re.split("^=== ", text.rstrip() + "\n", flags=re.MULTILINE)[1:]:
        name, _, source = part.partition("\n")
        yield name, source.removesuffix("\n")


def main():
    chats = json.loads((HERE / "chats.json").read_text())
    corpus = dict(templates((HERE / "corpus.jinja").read_bytes().decode()))
    if len(sys.argv) == 3:
        print(*rendered(corpus[sys.argv[1]], chats[int(sys.argv[2])]), sep="")
        return
    lines = []
    for name, source in corpus.items():
        made = (rendered(source, chat) for chat in chats)
        marks = (mark + (fnv(text) if mark != "-" else "") for mark, text in made)
        lines.append(f"{name} {' '.join(marks)}\n")
    expected = HERE / "expected.txt"
    if "--check" not in sys.argv:
        expected.write_text("".join(lines))
    elif expected.read_text() != "".join(lines):
        sys.exit("expected.txt does not hold what jinja2 makes of corpus.jinja and chats.json")


if __name__ == "__main__":
    main()
