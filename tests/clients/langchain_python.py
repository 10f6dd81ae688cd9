"""ChatOpenAI of langchain-openai."""

import os
import unittest

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

SUM = (
    "Tom has 9 coins. Then he buys 6 more coins. Next he loses 3 coins. "
    "How many coins does Tom have now?"
)


def model(**settings):
    return ChatOpenAI(
        model="demo",
        base_url=os.environ["SERVER_URL"] + "/v1",
        api_key="unused",
        temperature=0,
        max_retries=0,
        timeout=60,
        **settings,
    )


class Chat(unittest.TestCase):
    def test_invoke(self):
        answer = model(max_tokens=200).invoke(SUM)
        self.assertTrue(answer.content.endswith("#### 12"))
        self.assertEqual(answer.response_metadata["finish_reason"], "stop")
        usage = answer.usage_metadata
        self.assertGreater(usage["output_tokens"], 0)
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])

    def test_invoke_with_parts_and_a_system_message(self):
        messages = [
            SystemMessage("Add."),
            HumanMessage([{"type": "text", "text": SUM}]),
        ]
        self.assertTrue(model(max_tokens=40).invoke(messages).content)

    def test_stream(self):
        plain = model().invoke(SUM)
        chunks = list(model(stream_usage=True).stream(SUM))
        self.assertGreater(len(chunks), 4)
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        self.assertEqual(whole.content, plain.content)
        self.assertEqual(whole.response_metadata["finish_reason"], "stop")
        self.assertEqual(
            whole.usage_metadata["output_tokens"], plain.usage_metadata["output_tokens"]
        )

    def test_stop_and_batch(self):
        answers = model().batch([SUM, SUM], stop=["####"])
        self.assertEqual(answers[0].content, answers[1].content)
        self.assertNotIn("####", answers[0].content)

    def test_diffusion_settings(self):
        settings = {"diffusion": {"preset": "vanilla"}}
        answer = model(max_tokens=96, extra_body=settings).invoke(SUM)
        self.assertIn("#### ", answer.content)
        cost = answer.response_metadata["token_usage"]["diffusion"]
        self.assertEqual(cost["decoder"].split("+")[0], "block_wise")

    def test_too_long_for_the_context(self):
        with self.assertRaises(ContextOverflowError):
            model(max_tokens=1024).invoke(SUM)


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_stream(self):
        plain = await model().ainvoke(SUM)
        text = "".join([chunk.content async for chunk in model().astream(SUM)])
        self.assertEqual(text, plain.content)


if __name__ == "__main__":
    unittest.main()
