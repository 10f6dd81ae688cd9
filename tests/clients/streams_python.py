"""Random requests through the stream parsers of the openai and the anthropic package.

Every request is sent plain and streamed with the same seed. The package must accept the stream, and
what it accumulates must be the plain answer. Case N of a seed is always the same request.

Environment variables: STREAMS, the number of requests (60); STREAMS_SEED (1); STREAMS_FROM, the first
case (0). SERVER_BINARY is the server: this file starts its own, which splits reasoning.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai

COUNT = int(os.environ.get("STREAMS", "60"))
SEED = os.environ.get("STREAMS_SEED", "1")
FIRST = int(os.environ.get("STREAMS_FROM", "0"))
AT_ONCE = 8
QUESTIONS = [
    "Tom has 9 coins. Then he buys 6 more coins. How many coins does Tom have now?",
    "Reverse the list coins, eggs, books, pens.",
    "Ana has 14 eggs. She loses 4 eggs. How many?",
    "Hi",
]
STOPS = [".", " ", "coins", "####", "\n", "a", "<tool_call>", '"']
# What the demo model does not write by itself: reasoning before an answer, and text around JSON.
GRAMMARS = [
    'start: "<think>" /[a-z ]{1,40}/ "</think>" /[a-z ]{0,40}/',
    'start: "<think>" /[a-z\\n]{0,20}/ "</think>\\n\\n{\\"a\\": " /[0-9]{1,3}/ "}"',
    'start: /[a-zé→🙂<]{1,30}/',
]


def schema(choose, depth=0):
    """A random JSON schema of arguments, bounded in every direction."""
    kinds = ["integer", "boolean", "enum", "string", "array"] + ["object"] * (depth < 2)
    kind = "object" if depth == 0 else choose.choice(kinds)
    if kind == "integer":
        low = choose.randint(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + choose.randint(0, 99)}
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "enum":
        words = ['a"b', "é", "x y", "", "</tool_call>", "\\n", "red"]
        return {"enum": choose.sample(words, choose.randint(1, 3))}
    if kind == "string":
        return {"type": "string", "maxLength": choose.randint(0, 8)}
    if kind == "array":
        return {"type": "array", "items": schema(choose, depth + 1), "maxItems": 2}
    names = choose.sample(["a", "b", "name", "unit", "x-y", "ü"], choose.randint(0, 3))
    required = [name for name in names if choose.random() < 0.7]
    properties = {name: schema(choose, depth + 1) for name in names}
    return {"type": "object", "properties": properties, "required": required,
            "additionalProperties": False}


def case(number):
    """The random request of this number, without the form of an API."""
    choose = random.Random(f"{SEED}-{number}")
    tools = []
    if choose.random() < 0.6:
        names = choose.sample(["add", "get_weather", "now", "find-it"], choose.randint(1, 3))
        tools = [(name, schema(choose)) for name in names]
    grammar = None if tools or choose.random() < 0.6 else choose.choice(GRAMMARS)
    return {
        "api": choose.choice(["chat", "responses", "messages"]),
        "question": choose.choice(QUESTIONS),
        "system": choose.choice([None, "Be brief."]),
        "budget": choose.choice([1, 5, 17, 60, 150]),
        "temperature": choose.choice([0.0, 0.7, 1.5]),
        "seed": choose.randint(0, 1 << 31),
        "tools": tools,
        "choice": choose.choice(["auto", "required", "named", "none"]) if tools else None,
        "parallel": choose.choice([None, True, False]),
        "stop": choose.sample(STOPS, choose.randint(1, 2)) if choose.random() < 0.3 else [],
        "grammar": grammar,
    }


def extra(asked):
    """The fields that the packages do not know."""
    fields = {"seed": asked["seed"], "stop": asked["stop"], "grammar": asked["grammar"]}
    return {name: value for name, value in fields.items() if value not in (None, [])}


def without_ids(value):
    """Ids are unique: their form is checked, and they are left out."""
    if isinstance(value, dict):
        for name in ["id", "call_id"]:
            if value.get(name) is not None:
                assert re.fullmatch(r"[a-z]+[-_][0-9a-zA-Z_-]+", value[name]), value
        left = {"id", "call_id", "parsed", "parsed_arguments"}
        return {name: without_ids(one) for name, one in value.items()
                if name not in left and one is not None}
    return [without_ids(one) for one in value] if isinstance(value, list) else value


def chat(client, asked):
    messages = [{"role": "user", "content": asked["question"]}]
    if asked["system"]:
        messages.insert(0, {"role": "system", "content": asked["system"]})
    body = {"model": "demo", "messages": messages, "max_tokens": asked["budget"],
            "temperature": asked["temperature"], "extra_body": extra(asked)}
    if asked["tools"]:
        body["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": parameters}}
            for name, parameters in asked["tools"]
        ]
        named = {"type": "function", "function": {"name": asked["tools"][0][0]}}
        body["tool_choice"] = named if asked["choice"] == "named" else asked["choice"]
        if asked["parallel"] is not None:
            body["parallel_tool_calls"] = asked["parallel"]
    plain = client.chat.completions.create(**body)
    with client.chat.completions.stream(stream_options={"include_usage": True}, **body) as stream:
        pieces = ""
        try:
            for event in stream:
                pieces += event.delta if event.type == "content.delta" else ""
            last = stream.get_final_completion()
        except openai.LengthFinishReasonError as error:
            # The package refuses to parse an answer that the budget cut.
            assert plain.choices[0].finish_reason == "length"
            last = error.completion
    # An empty text of a stream is an absent one of a plain answer with calls.
    sides = []
    for answer in [plain, last]:
        message = without_ids(answer.choices[0].message.to_dict())
        message["content"] = message.get("content") or ""
        for call in message.get("tool_calls", []):
            call.pop("index", None)
        usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
        sides.append((message, answer.choices[0].finish_reason, usage))
    calls = sides[0][0].get("tool_calls", [])
    if not (calls and not sides[0][0]["content"]):
        assert pieces == sides[0][0]["content"], (pieces, sides[0])
    else:
        assert pieces.strip() == "" and sides[1][0]["content"].strip() == "", pieces
        sides[1][0]["content"] = ""
    return sides, [call["function"]["arguments"] for call in calls], sides[0][1] == "length"


def responses(client, asked):
    body = {"model": "demo", "input": asked["question"], "max_output_tokens": asked["budget"],
            "temperature": asked["temperature"], "extra_body": extra(asked)}
    if asked["system"]:
        body["instructions"] = asked["system"]
    if asked["tools"]:
        body["tools"] = [
            {"type": "function", "name": name, "parameters": parameters, "strict": False}
            for name, parameters in asked["tools"]
        ]
        named = {"type": "function", "name": asked["tools"][0][0]}
        body["tool_choice"] = named if asked["choice"] == "named" else asked["choice"]
        if asked["parallel"] is not None:
            body["parallel_tool_calls"] = asked["parallel"]
    plain = client.responses.create(**body)
    with client.responses.stream(**body) as stream:
        events = list(stream)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        last = events[-1].response
        snapshot = stream._state._ResponseStreamState__current_snapshot
        if last.status == "completed":
            assert stream.get_final_response().to_dict() == last.to_dict()
    sides = [(without_ids([item.to_dict() for item in answer.output]), answer.status,
              answer.usage.output_tokens) for answer in [plain, last]]
    # The package joins the deltas itself, but not those of reasoning.
    thought = {}
    for event in events:
        if event.type == "response.reasoning_text.delta":
            parts = thought.setdefault(event.output_index, {})
            parts[event.content_index] = parts.get(event.content_index, "") + event.delta
    joined = [list(thought.get(index, {}).values()) if item.type == "reasoning"
              else getattr(item, "arguments", None) or [part.text for part in item.content or []]
              for index, item in enumerate(snapshot.output)]
    whole = [getattr(item, "arguments", None) or [part.text for part in item.content or []]
             for item in last.output]
    assert joined == whole, (joined, whole)
    calls = [item["arguments"] for item in sides[0][0] if item["type"] == "function_call"]
    return sides, calls, plain.status == "incomplete"


def messages(client, asked):
    fields = extra(asked) | {"temperature": asked["temperature"]}
    fields.pop("stop", None)
    body = {"model": "demo", "messages": [{"role": "user", "content": asked["question"]}],
            "max_tokens": asked["budget"], "extra_body": fields}
    if asked["system"]:
        body["system"] = asked["system"]
    if asked["stop"]:
        body["stop_sequences"] = asked["stop"]
    if asked["tools"]:
        body["tools"] = [{"name": name, "input_schema": parameters}
                         for name, parameters in asked["tools"]]
        kind = {"required": "any", "named": "tool"}.get(asked["choice"], asked["choice"])
        body["tool_choice"] = {"type": kind}
        if kind == "tool":
            body["tool_choice"]["name"] = asked["tools"][0][0]
        if asked["parallel"] is not None and kind != "none":
            body["tool_choice"]["disable_parallel_tool_use"] = not asked["parallel"]
    plain = client.messages.create(**body)
    with client.messages.stream(**body) as stream:
        pieces = "".join(event.text for event in stream if event.type == "text")
        last = stream.get_final_message()
    sides = [(without_ids([block.to_dict() for block in answer.content]), answer.stop_reason,
              answer.stop_sequence, answer.usage.input_tokens, answer.usage.output_tokens)
             for answer in [plain, last]]
    assert pieces == "".join(block.text for block in plain.content if block.type == "text")
    is_cut = plain.stop_reason == "max_tokens"
    if plain.stop_reason != "tool_use" and plain.content and plain.content[-1].type == "tool_use":
        # A plain answer leaves a cut input empty; a stream has its beginning.
        for side in sides:
            side[0][-1]["input"] = {}
    calls = [json.dumps(block.input) for block in plain.content if block.type == "tool_use"]
    return sides, calls, is_cut


APIS = {"chat": chat, "responses": responses, "messages": messages}


def run(number, clients):
    """Sends case `number`; its API, its number of calls, and what failed if anything did."""
    asked = case(number)
    try:
        sides, calls, is_cut = APIS[asked["api"]](clients[asked["api"]], asked)
        assert sides[0] == sides[1], f"\nplain    {sides[0]}\nstreamed {sides[1]}"
        for arguments in calls[:-1] if is_cut else calls:
            assert isinstance(json.loads(arguments), dict), arguments
        if asked["choice"] in ("required", "named") and not is_cut and not asked["stop"]:
            assert calls, "no call"
    except Exception as error:
        return asked["api"], 0, f"STREAMS_SEED={SEED} STREAMS_FROM={number}: {asked}\n{error!r}"
    return asked["api"], len(calls), None


def main():
    # The server ends with this file, also where this file is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = subprocess.Popen(
        [os.environ["SERVER_BINARY"], "serve", "--listen", "127.0.0.1:0",
         "--set", "model.reasoning_parser=think"],
        stderr=subprocess.PIPE, text=True,
    )
    try:
        url = None
        for line in server.stderr:
            if line.startswith("ready on "):
                url = line.split()[-1]
                break
        assert url, "the server ended"
        # Its log must not fill the pipe.
        drain = ThreadPoolExecutor(1)
        drain.submit(lambda: [None for _ in server.stderr])
        settings = {"api_key": "unused", "max_retries": 0, "timeout": 60}
        openai_client = openai.OpenAI(
            base_url=f"{url}/v1", _strict_response_validation=True, **settings
        )
        clients = {"chat": openai_client, "responses": openai_client,
                   "messages": anthropic.Anthropic(base_url=url, **settings)}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            numbers = range(FIRST, FIRST + COUNT)
            found = list(pool.map(lambda number: run(number, clients), numbers))
    finally:
        server.terminate()
        server.wait()
    for api in APIS:
        of = [calls for name, calls, _ in found if name == api]
        print(f"{api}: {len(of)} requests, {sum(of)} calls")
    failures = [failure for *_, failure in found if failure]
    if failures:
        print(f"{len(failures)} failed, the first of them:", *failures[:5], sep="\n\n")
        return 1
    assert COUNT < 100 or sum(calls for _, calls, _ in found) > COUNT // 10, "next to no calls"
    return 0


if __name__ == "__main__":
    sys.exit(main())
