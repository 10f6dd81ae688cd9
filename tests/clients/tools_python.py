"""Calls of functions with the openai and the anthropic package for Python: chats, Responses and
Messages, plain and streamed, each as a loop of two steps in which the demo model decides to call,
reads the result and answers.
"""

import json
import os
import unittest

import anthropic
import openai

URL = os.environ["SERVER_URL"]
QUESTION = "Tom has 9 coins. Then he buys 6 more coins. How many coins does Tom have now?"
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 99},
        "b": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["a", "b"],
}
FUNCTION = {"name": "add", "description": "Adds two numbers.", "parameters": SCHEMA}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
RESPONSE_TOOLS = [{"type": "function", **FUNCTION, "strict": False}]
MESSAGE_TOOLS = [{"name": "add", "description": "Adds two numbers.", "input_schema": SCHEMA}]
SETTINGS = {"api_key": "unused", "max_retries": 0, "timeout": 60}


def added(arguments):
    """The sum of the numbers of the question."""
    assert sorted(arguments) == ["a", "b"], arguments
    assert sorted(arguments.values()) == [6, 9], arguments
    return "15"


class Chats(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(
            base_url=f"{URL}/v1", _strict_response_validation=True, **SETTINGS
        )
        self.messages = [{"role": "user", "content": QUESTION}]

    def ask(self, **more):
        return self.client.chat.completions.create(
            model="demo", messages=self.messages, tools=CHAT_TOOLS, max_tokens=120, **more
        )

    def test_a_loop(self):
        choice = self.ask().choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertIsNone(choice.message.content)
        (call,) = choice.message.tool_calls
        self.assertEqual(call.function.name, "add")
        result = added(json.loads(call.function.arguments))
        self.messages.append(choice.message)
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        last = self.ask().choices[0]
        self.assertEqual(last.finish_reason, "stop")
        self.assertIn("15", last.message.content)

    def test_a_required_call(self):
        choice = self.ask(tool_choice="required", parallel_tool_calls=False).choices[0]
        (call,) = choice.message.tool_calls
        added(json.loads(call.function.arguments))

    def test_a_named_function(self):
        named = {"type": "function", "function": {"name": "add"}}
        (call,) = self.ask(tool_choice=named).choices[0].message.tool_calls
        added(json.loads(call.function.arguments))

    def test_a_stream(self):
        plain = self.ask()
        with self.client.chat.completions.stream(
            model="demo",
            messages=self.messages,
            tools=CHAT_TOOLS,
            max_tokens=120,
        ) as stream:
            kinds = {event.type for event in stream}
            message = stream.get_final_completion().choices[0].message
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertIn("tool_calls.function.arguments.done", kinds)
        expected = plain.choices[0].message.tool_calls[0].function
        self.assertEqual(message.tool_calls[0].function.arguments, expected.arguments)

    def test_faults_name_the_field(self):
        bad = [{"type": "function", "function": {"name": "a b"}}]
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(
                model="demo", messages=self.messages, tools=bad
            )
        self.assertEqual(caught.exception.param, "tools[0].function.name")


class Responses(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(
            base_url=f"{URL}/v1", _strict_response_validation=True, **SETTINGS
        )

    def test_a_text(self):
        answer = self.client.responses.create(model="demo", input=QUESTION)
        self.assertEqual(answer.status, "completed")
        chat = self.client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": QUESTION}]
        )
        self.assertEqual(answer.output_text, chat.choices[0].message.content)
        self.assertEqual(answer.usage.total_tokens, chat.usage.total_tokens)
        with self.client.responses.stream(model="demo", input=QUESTION) as stream:
            text = "".join(
                event.delta for event in stream if event.type == "response.output_text.delta"
            )
            final = stream.get_final_response()
        self.assertEqual(text, answer.output_text)
        self.assertEqual(final.output_text, answer.output_text)

    def test_a_loop(self):
        history = [{"role": "user", "content": QUESTION}]
        common = {"model": "demo", "tools": RESPONSE_TOOLS, "max_output_tokens": 120}
        first = self.client.responses.create(input=history, **common)
        (call,) = first.output
        self.assertEqual(call.type, "function_call")
        output = added(json.loads(call.arguments))
        history += first.output
        history.append(
            {"type": "function_call_output", "call_id": call.call_id, "output": output}
        )
        last = self.client.responses.create(input=history, **common)
        self.assertEqual(last.status, "completed")
        self.assertIn("15", last.output_text)

    def test_a_streamed_call(self):
        with self.client.responses.stream(
            model="demo",
            input=QUESTION,
            tools=RESPONSE_TOOLS,
            max_output_tokens=120,
        ) as stream:
            pieces = [
                event.delta
                for event in stream
                if event.type == "response.function_call_arguments.delta"
            ]
            (call,) = stream.get_final_response().output
        self.assertEqual("".join(pieces), call.arguments)
        added(json.loads(call.arguments))

    def test_nothing_is_stored(self):
        for more in [{"store": True}, {"previous_response_id": "resp_1"}]:
            with self.assertRaises(openai.BadRequestError) as caught:
                self.client.responses.create(model="demo", input="Hi", **more)
            self.assertEqual(caught.exception.param, next(iter(more)))


class Messages(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=URL, **SETTINGS)
        self.messages = [{"role": "user", "content": QUESTION}]

    def ask(self, **more):
        return self.client.messages.create(
            model="demo", messages=self.messages, max_tokens=120, **more
        )

    def test_a_text(self):
        plain = self.ask()
        self.assertEqual(plain.stop_reason, "end_turn")
        with self.client.messages.stream(
            model="demo", messages=self.messages, max_tokens=120
        ) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, plain.content[0].text)
        self.assertEqual(final.usage.output_tokens, plain.usage.output_tokens)
        count = self.client.messages.count_tokens(model="demo", messages=self.messages)
        self.assertEqual(count.input_tokens, plain.usage.input_tokens)

    def test_a_loop(self):
        first = self.ask(tools=MESSAGE_TOOLS)
        self.assertEqual(first.stop_reason, "tool_use")
        (call,) = first.content
        result = {"type": "tool_result", "tool_use_id": call.id, "content": added(call.input)}
        self.messages.append({"role": "assistant", "content": first.content})
        self.messages.append({"role": "user", "content": [result]})
        last = self.ask(tools=MESSAGE_TOOLS)
        self.assertEqual(last.stop_reason, "end_turn")
        self.assertIn("15", last.content[0].text)

    def test_a_required_call(self):
        choice = {"type": "any", "disable_parallel_tool_use": True}
        (call,) = self.ask(tools=MESSAGE_TOOLS, tool_choice=choice).content
        added(call.input)

    def test_a_streamed_call(self):
        with self.client.messages.stream(
            model="demo",
            messages=self.messages,
            max_tokens=120,
            tools=MESSAGE_TOOLS,
        ) as stream:
            (call,) = stream.get_final_message().content
        added(call.input)

    def test_errors(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.messages.create(model="claude", messages=self.messages, max_tokens=1)
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        with self.assertRaises(anthropic.BadRequestError):
            self.client.messages.create(model="demo", messages=[], max_tokens=1)


if __name__ == "__main__":
    unittest.main()
