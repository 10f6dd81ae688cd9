"""litellm through its `hosted_vllm/` provider."""

import os
import unittest

import litellm

SUM = (
    "Tom has 9 coins. Then he buys 6 more coins. Next he loses 3 coins. "
    "How many coins does Tom have now?"
)
REQUEST = {
    "model": "hosted_vllm/demo",
    "messages": [{"role": "user", "content": SUM}],
    "api_base": os.environ["SERVER_URL"] + "/v1",
    "temperature": 0,
    "timeout": 60,
    "num_retries": 0,
}


class Completion(unittest.TestCase):
    def test_plain(self):
        answer = litellm.completion(**REQUEST, max_tokens=200)
        self.assertTrue(answer.choices[0].message.content.endswith("#### 12"))
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def test_stream(self):
        plain = litellm.completion(**REQUEST)
        chunks = list(
            litellm.completion(**REQUEST, stream=True, stream_options={"include_usage": True})
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, plain.choices[0].message.content)
        built = litellm.stream_chunk_builder(chunks)
        self.assertEqual(built.choices[0].message.content, text)
        self.assertEqual(built.choices[0].finish_reason, "stop")
        self.assertEqual(built.usage.completion_tokens, plain.usage.completion_tokens)
        self.assertEqual(built.usage.prompt_tokens, plain.usage.prompt_tokens)

    def test_diffusion_settings(self):
        settings = {"diffusion": {"preset": "vanilla"}}
        answer = litellm.completion(**REQUEST, max_tokens=96, extra_body=settings)
        self.assertIn("#### ", answer.choices[0].message.content)
        self.assertGreaterEqual(
            answer.usage.model_extra["diffusion"]["forwards"], answer.usage.completion_tokens
        )

    def test_errors(self):
        with self.assertRaises(litellm.NotFoundError):
            litellm.completion(**{**REQUEST, "model": "hosted_vllm/nope"})
        with self.assertRaises(litellm.BadRequestError):
            litellm.completion(**{**REQUEST, "temperature": 3})

    def test_too_long_for_the_context(self):
        # The package recognises this by words in the message, to fall back to another model.
        with self.assertRaises(litellm.ContextWindowExceededError):
            litellm.completion(**REQUEST, max_tokens=1024)


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_stream(self):
        plain = await litellm.acompletion(**REQUEST)
        stream = await litellm.acompletion(**REQUEST, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        self.assertEqual(text, plain.choices[0].message.content)


if __name__ == "__main__":
    unittest.main()
