"""Typed decisions: openai, langchain-openai, typesafe-sdk and litellm, each unmodified."""

import asyncio
import os
import unittest

import litellm
import openai
from langchain_openai import decisions as langchain
from typesafe_sdk import Choice, Noul, Score, TypeSafeAPIError, TypeSafeClient

URL = os.environ["SERVER_URL"]
INPUT = "Tom has 9 coins. Then he buys 6 more coins."
QUESTIONS = [
    {"type": "predicate", "instructions": "Tom has 15 coins.", "name": "right"},
    {
        "type": "choice",
        "instructions": "What does Tom have?",
        "choices": [{"value": "coins", "description": "Money."}, {"value": True}, {"value": "true"}],
    },
    {
        "type": "score",
        "instructions": "How many coins does Tom have?",
        "levels": [{"label": "none"}, {"label": "some"}, {"label": "many"}],
    },
]


class OpenAI(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(
            api_key="x", base_url=URL + "/v1", max_retries=0, _strict_response_validation=True
        )

    def decide(self, **more):
        return self.client.decisions.create(
            **{"model": "demo", "input": INPUT, "questions": QUESTIONS, **more}
        )

    def test_answers(self):
        decision = self.decide(prompt_cache_key="k", safety_identifier="s")
        predicate, choice, score = decision.answers
        self.assertEqual((predicate.type, predicate.name), ("predicate", "right"))
        self.assertTrue(0 <= predicate.probability <= 1)
        self.assertEqual([p.value for p in choice.probabilities], ["coins", True, "true"])
        self.assertAlmostEqual(sum(p.probability for p in choice.probabilities), 1)
        self.assertIn(choice.choice, ["coins", True, "true"])
        self.assertEqual([p.label for p in score.probabilities], ["none", "some", "many"])
        self.assertTrue(0 <= score.score <= 2 and 0 <= score.confidence <= 1)
        usage = decision.usage
        self.assertEqual(usage.output_tokens, 0)
        self.assertEqual(usage.total_tokens, usage.input_tokens)
        self.assertEqual(self.decide().answers, decision.answers)

    def test_history_and_own_settings(self):
        history = [
            {"role": "developer", "content": "Be exact."},
            {"role": "user", "content": [
                {"type": "input_text", "text": INPUT},
                {"type": "input_json", "data": {"coins": [9, 6]}},
            ]},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "15"},
        ]
        for read, forwards in [("joint", 2), ("apart", 6)]:
            decision = self.decide(
                input=history, extra_body={"diffusion": {"read": read, "orders": 2}}
            )
            self.assertEqual(decision.usage.diffusion["forwards"], forwards)

    def test_parts(self):
        parts = [{"type": "input_text", "text": "What does Tom have?"}]
        parts.append({"type": "input_json", "data": {"hint": "money"}})
        questions = [{"type": "predicate", "instructions": parts}]
        self.assertEqual(len(self.decide(questions=questions).answers), 1)

    def test_async(self):
        client = openai.AsyncOpenAI(api_key="x", base_url=URL + "/v1", max_retries=0)

        async def run():
            asked = [
                client.decisions.create(model="demo", input=INPUT, questions=QUESTIONS)
                for _ in range(8)
            ]
            return await asyncio.gather(*asked)

        found = asyncio.run(run())
        self.assertTrue(all(one.answers == found[0].answers for one in found))

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.decide(questions=[])
        self.assertEqual(caught.exception.param, "questions")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.decide(input=[{"role": "user", "content": [
                {"type": "input_image", "image_url": "https://example.com/a.png"}]}])
        self.assertEqual(caught.exception.param, "input[0].content[0]")
        with self.assertRaises(openai.NotFoundError):
            self.decide(model="other")

    def test_count(self):
        count = self.client.responses.input_tokens.count(model="demo", input=INPUT)
        answer = self.client.responses.create(model="demo", input=INPUT, max_output_tokens=1)
        self.assertEqual(count.input_tokens, answer.usage.input_tokens)


class LangChain(unittest.TestCase):
    REQUEST = {
        "input": INPUT,
        "questions": {
            "right": langchain.Predicate(instructions="Tom has 15 coins."),
            "thing": langchain.Choice(
                instructions="What does Tom have?", choices={"coins": "Money.", "eggs": "Food."}
            ),
            "amount": langchain.Score(instructions="How many?", levels=["none", "some", "many"]),
        },
    }

    def test_invoke(self):
        decisions = langchain.OpenAIDecisions(model="demo", api_key="x", base_url=URL + "/v1")
        found = decisions.invoke(self.REQUEST)
        self.assertTrue(0 <= found.predicates["right"].probability <= 1)
        self.assertIn(found.choices["thing"].choice, ["coins", "eggs"])
        self.assertTrue(0 <= found.scores["amount"].score <= 2)
        again = asyncio.run(decisions.ainvoke(self.REQUEST))
        self.assertEqual(again.choices["thing"], found.choices["thing"])


class TypeSafe(unittest.TestCase):
    QUESTIONS = {
        "right": Noul(instructions="Does Tom have 15 coins?"),
        "thing": Choice(instructions="What does Tom have?", criteria={"coins": None, "eggs": "Food"}),
        "amount": Score(criteria=["none", "some", {"level": "many"}]),
    }

    def test_system_one(self):
        with TypeSafeClient(api_key="x", base_url=URL, model="demo") as client:
            found = client.system_one(state={"text": INPUT}, questions=self.QUESTIONS)
            self.assertTrue(0 <= found.nouls["right"].noul <= 1)
            self.assertIn(found.choices["thing"].choice, ["coins", "eggs"])
            self.assertAlmostEqual(sum(found.choices["thing"].probabilities.values()), 1)
            self.assertEqual(found.scores["amount"].legend[2], {"level": "many"})
            self.assertEqual(found.usage.output_tokens, 0)
            with self.assertRaises(TypeSafeAPIError) as caught:
                client.system_one(state=INPUT, questions={"q": {"type": "box"}})
            self.assertEqual(caught.exception.status, 400)
            self.assertIn("questions.q.type", str(caught.exception))


class LiteLLM(unittest.TestCase):
    """Its two routes; `openai/` and `typesafe/` send to our paths."""

    def test_decisions(self):
        # It takes a boolean and its text for the same value.
        choice = {**QUESTIONS[1], "choices": QUESTIONS[1]["choices"][:2]}
        found = litellm.decisions(
            model="openai/demo",
            input=INPUT,
            questions=[QUESTIONS[0], choice, QUESTIONS[2]],
            api_base=URL + "/v1",
            api_key="x",
        )
        self.assertEqual([answer.type for answer in found.answers], ["predicate", "choice", "score"])
        self.assertTrue(0 <= found.answers[0].probability <= 1)

    def test_systemone(self):
        found = litellm.systemone(
            model="typesafe/demo",
            state=INPUT,
            questions={
                "right": {"type": "noul", "instructions": "Does Tom have 15 coins?"},
                "amount": {"type": "score", "criteria": ["none", "some", "many"]},
            },
            api_base=URL,
            api_key="x",
        )
        self.assertTrue(0 <= found.answers["right"].noul <= 1)
        self.assertTrue(0 <= found.answers["amount"].score <= 2)


if __name__ == "__main__":
    unittest.main()
