"""The openai package for Python: every answer is validated strictly against its types."""

import asyncio
import json
import os
import time
import typing
import unittest
import urllib.request

import openai
import pydantic

URL = os.environ["SERVER_URL"]
SUM = (
    "Tom has 9 coins. Then he buys 6 more coins. Next he loses 3 coins. "
    "How many coins does Tom have now?"
)
MESSAGES = [{"role": "user", "content": SUM}]
CHAT = {"model": "demo", "messages": MESSAGES, "temperature": 0}
SETTINGS = {
    "base_url": f"{URL}/v1",
    "api_key": "unused",
    "max_retries": 0,
    "timeout": 60,
    "_strict_response_validation": True,
}


class Counted(pydantic.BaseModel):
    """The answer to a sum, as an object."""

    unit: typing.Literal["coins", "eggs"]
    count: int = pydantic.Field(ge=0, le=99)


def get(path):
    with urllib.request.urlopen(URL + path, timeout=10) as answer:
        return answer.read().decode()


def cancelled_requests():
    """The number of cancelled chat requests in /metrics."""
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in get("/metrics").splitlines()
        if line.startswith("asynclane_requests_total{") and 'outcome="cancelled"' in line
    )


def stream_parts(chunks):
    """The text, finish reasons and usages of a chat stream with one choice."""
    texts, reasons, usages = [], [], []
    for chunk in chunks:
        if chunk.usage:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            texts.append(choice.delta.content or "")
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
    return "".join(texts), reasons, usages


class Plain(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(**SETTINGS)
        self.addCleanup(self.client.close)

    def test_chat(self):
        answer = self.client.chat.completions.create(**CHAT)
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, "demo")
        choice = answer.choices[0]
        self.assertEqual(choice.message.role, "assistant")
        self.assertTrue(choice.message.content.endswith("#### 12"))
        self.assertIsNone(choice.message.tool_calls)
        self.assertEqual(choice.finish_reason, "stop")
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def test_chat_text_parts_and_system_message(self):
        messages = [
            {"role": "developer", "content": "Add."},
            {"role": "user", "name": "tom", "content": [{"type": "text", "text": SUM}]},
        ]
        answer = self.client.chat.completions.create(
            model="demo", messages=messages, max_completion_tokens=8, temperature=0
        )
        self.assertLessEqual(answer.usage.completion_tokens, 8)

    def test_completion(self):
        answer = self.client.completions.create(
            model="demo", prompt="Tom has 9 coins.", max_tokens=24, temperature=0
        )
        self.assertTrue(answer.id.startswith("cmpl-"))
        self.assertEqual(answer.object, "text_completion")
        self.assertTrue(answer.choices[0].text)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))

    def test_prompt_list_times_n_keeps_its_order(self):
        prompts = ["Tom has 9 coins.", "Ana has 3 books."]
        answer = self.client.completions.create(
            model="demo", prompt=prompts, n=2, max_tokens=12, temperature=0
        )
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        texts = [choice.text for choice in answer.choices]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[2], texts[3])
        self.assertNotEqual(texts[0], texts[2])

    def test_max_tokens_is_exact(self):
        answer = self.client.chat.completions.create(**CHAT, max_tokens=5)
        self.assertEqual(answer.usage.completion_tokens, 5)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_ignore_eos_is_exact(self):
        answer = self.client.chat.completions.create(
            **CHAT, max_tokens=100, stop=None, extra_body={"ignore_eos": True}
        )
        self.assertEqual(answer.usage.completion_tokens, 100)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_stop_is_left_out(self):
        whole = self.client.chat.completions.create(**CHAT).choices[0].message.content
        answer = self.client.chat.completions.create(**CHAT, stop=["####", "never"])
        self.assertEqual(answer.choices[0].message.content, whole.split("####")[0])
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_same_seed_same_text(self):
        hot = {**CHAT, "temperature": 1.5, "n": 2}
        texts = [
            [
                choice.message.content
                for choice in self.client.chat.completions.create(**hot, seed=seed).choices
            ]
            for seed in (7, 7, 8)
        ]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        self.assertNotEqual(texts[0][0], texts[0][1])

    def test_diffusion_through_extra_body(self):
        answer = self.client.chat.completions.create(
            **CHAT, max_tokens=96, extra_body={"diffusion": {"preset": "vanilla"}}
        )
        cost = answer.usage.model_extra["diffusion"]
        self.assertEqual(cost["decoder"].split("+")[:2], ["block_wise", "top_k"])
        self.assertGreaterEqual(cost["forwards"], answer.usage.completion_tokens)
        default = self.client.chat.completions.create(**CHAT).usage.model_extra["diffusion"]
        self.assertEqual(default["decoder"].split("+")[0], "asynclane")
        self.assertLess(default["forwards"], cost["forwards"])

    def test_logprobs_of_a_chat(self):
        answer = self.client.chat.completions.create(
            **CHAT, max_tokens=8, logprobs=True, top_logprobs=2
        )
        choice = answer.choices[0]
        tokens = choice.logprobs.content
        self.assertEqual(len(tokens), answer.usage.completion_tokens)
        self.assertEqual("".join(token.token for token in tokens), choice.message.content)
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(bytes(token.bytes).decode(), token.token)
            self.assertEqual(len(token.top_logprobs), 2)
            # Greedy: the chosen token is the most probable one.
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertGreaterEqual(token.logprob, token.top_logprobs[1].logprob)

    def test_logprobs_of_a_completion(self):
        answer = self.client.completions.create(
            model="demo", prompt=SUM, max_tokens=8, temperature=0, logprobs=2
        )
        choice = answer.choices[0]
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), choice.text)
        self.assertEqual(len(logprobs.tokens), answer.usage.completion_tokens)
        ends = zip(logprobs.text_offset, logprobs.tokens)
        self.assertEqual([choice.text[at : at + len(token)] for at, token in ends], logprobs.tokens)
        pairs = zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs)
        for token, logprob, top in pairs:
            self.assertEqual(top[token], logprob)
            self.assertTrue(2 <= len(top) <= 3)

    def test_json_schema(self):
        for temperature in (0, 1):
            answer = self.client.chat.completions.parse(
                model="demo",
                messages=MESSAGES,
                temperature=temperature,
                seed=1,
                response_format=Counted,
            )
            choice = answer.choices[0]
            self.assertEqual(choice.finish_reason, "stop")
            self.assertEqual(set(json.loads(choice.message.content)), {"unit", "count"})
            self.assertIsInstance(choice.message.parsed, Counted)

    def test_models(self):
        models = self.client.models.list()
        self.assertEqual([model.id for model in models], ["demo"])
        model = self.client.models.retrieve("demo")
        self.assertEqual(model.object, "model")
        self.assertEqual(model.model_extra["max_model_len"], 1024)

    def test_raw_response_has_a_request_id(self):
        raw = self.client.chat.completions.with_raw_response.create(
            **CHAT, max_tokens=1, extra_headers={"x-request-id": "from-the-client"}
        )
        self.assertEqual(raw.headers["x-request-id"], "from-the-client")
        self.assertEqual(raw.parse()._request_id, "from-the-client")


class Streamed(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(**SETTINGS)
        self.addCleanup(self.client.close)

    def test_chat_equals_plain(self):
        plain = self.client.chat.completions.create(**CHAT)
        stream = self.client.chat.completions.create(
            **CHAT, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})
        self.assertEqual(chunks[0].object, "chat.completion.chunk")
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertGreater(len(chunks), 4)
        text, reasons, usages = stream_parts(chunks)
        self.assertEqual(text, plain.choices[0].message.content)
        self.assertEqual(reasons, ["stop"])
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(len(usages), 1)
        self.assertEqual(usages[0].completion_tokens, plain.usage.completion_tokens)
        self.assertEqual(usages[0].prompt_tokens, plain.usage.prompt_tokens)

    def test_no_usage_unless_asked_for(self):
        chunks = list(self.client.chat.completions.create(**CHAT, stream=True))
        self.assertEqual([chunk for chunk in chunks if chunk.usage or not chunk.choices], [])

    def test_continuous_usage_grows(self):
        plain = self.client.chat.completions.create(**CHAT)
        stream = self.client.chat.completions.create(
            **CHAT,
            stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},
        )
        counts = [chunk.usage.completion_tokens for chunk in stream]
        # A busy machine may send the whole text in one chunk.
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], plain.usage.completion_tokens)

    def test_completion_equals_plain_per_choice(self):
        request = {
            "model": "demo",
            "prompt": ["Tom has 9 coins.", "Ana has 3 books."],
            "n": 2,
            "max_tokens": 24,
            "temperature": 0.8,
            "seed": 5,
        }
        plain = self.client.completions.create(**request)
        # The package has no type for a completion chunk: it parses one as a completion, whose
        # finish_reason is never null, so strict validation must be off.
        lenient = openai.OpenAI(**{**SETTINGS, "_strict_response_validation": False})
        self.addCleanup(lenient.close)
        texts, reasons = [""] * 4, [None] * 4
        for chunk in lenient.completions.create(**request, stream=True):
            for choice in chunk.choices:
                self.assertIsInstance(choice.text, str)
                texts[choice.index] += choice.text
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        self.assertEqual(texts, [choice.text for choice in plain.choices])
        self.assertEqual(reasons, [choice.finish_reason for choice in plain.choices])

    def test_stream_helper_accumulates_the_answer(self):
        with self.client.chat.completions.stream(**CHAT) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertTrue(final.choices[0].message.content.endswith("#### 12"))


class Errors(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(**SETTINGS)
        self.addCleanup(self.client.close)

    def refused(self, kind, **fields):
        with self.assertRaises(kind) as caught:
            self.client.chat.completions.create(**{**CHAT, **fields})
        error = caught.exception
        self.assertEqual(error.type, "invalid_request_error")
        self.assertTrue(error.request_id)
        return error

    def test_unknown_model(self):
        error = self.refused(openai.NotFoundError, model="nope")
        self.assertEqual((error.code, error.param), ("model_not_found", "model"))
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nope")

    def test_bad_value(self):
        error = self.refused(openai.BadRequestError, temperature=3)
        self.assertEqual((error.code, error.param), ("invalid_value", "temperature"))
        self.assertIn("temperature", error.message)

    def test_bad_type(self):
        error = self.refused(openai.BadRequestError, max_tokens="8")
        self.assertEqual((error.code, error.param), ("invalid_type", "max_tokens"))

    def test_unknown_diffusion_field(self):
        error = self.refused(openai.BadRequestError, extra_body={"diffusion": {"speed": 9}})
        self.assertEqual((error.code, error.param), ("unknown_parameter", "diffusion.speed"))

    def test_context_length(self):
        error = self.refused(openai.BadRequestError, max_tokens=1024)
        self.assertEqual((error.code, error.param), ("context_length_exceeded", "max_tokens"))

    def test_stream_is_refused_before_it_starts(self):
        self.refused(openai.BadRequestError, stream=True, top_p=2)

    def test_unknown_path(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.embeddings.create(model="demo", input="a")
        self.assertEqual(caught.exception.code, "unknown_url")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.moderations.create(input="a")
        self.assertEqual(caught.exception.code, "unknown_url")


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = openai.AsyncOpenAI(**SETTINGS)
        self.addAsyncCleanup(self.client.close)

    async def text_of(self, seed):
        stream = await self.client.chat.completions.create(
            **{**CHAT, "temperature": 0.7}, seed=seed, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def test_concurrent_streams_equal_single_ones(self):
        together = await asyncio.gather(*(self.text_of(seed) for seed in range(8)))
        alone = [await self.text_of(seed) for seed in range(8)]
        self.assertEqual(together, alone)

    async def test_closed_stream_is_cancelled_in_the_server(self):
        before = cancelled_requests()
        stream = await self.client.chat.completions.create(
            **CHAT, stream=True, max_tokens=900, extra_body={"ignore_eos": True}
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        await self.cancelled_after(before)

    async def test_cancelled_task_is_cancelled_in_the_server(self):
        before = cancelled_requests()
        first = asyncio.Event()

        async def read():
            stream = await self.client.chat.completions.create(
                **CHAT, stream=True, max_tokens=900, extra_body={"ignore_eos": True}
            )
            async for _ in stream:
                first.set()

        task = asyncio.create_task(read())
        await first.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.cancelled_after(before)

    async def cancelled_after(self, before):
        """The server counts one more cancellation and has no request left."""
        limit = time.monotonic() + 20
        while time.monotonic() < limit:
            load = await asyncio.to_thread(get, "/load")
            count = await asyncio.to_thread(cancelled_requests)
            if (load, count) == ('{"server_load":0}', before + 1):
                return
        self.fail(f"after 20 s: {load}, {count - before} cancelled")


if __name__ == "__main__":
    unittest.main()
