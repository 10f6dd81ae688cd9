"""Agent frameworks with a function, each in its default mode, as a loop that the framework runs by
itself: the demo model decides to call, reads the result and answers. smolagents and instructor
require a call in every step, in conversations that the demo model was not trained on: their loops
run on a simulated model with a script, too.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

URL = os.environ["SERVER_URL"]
QUESTION = "Tom has 9 coins. Then he buys 6 more coins. How many coins does Tom have now?"
os.environ["OPENAI_API_KEY"] = "unused"
os.environ["OPENAI_BASE_URL"] = f"{URL}/v1"


@contextlib.contextmanager
def scripted(*replies):
    """The address of a server whose model calls these functions, one after each turn of the user."""
    script = []
    for turn, (name, arguments) in enumerate(replies):
        call = json.dumps({"name": name, "arguments": arguments})
        # The functions are a turn, and every step adds the model's and the user's.
        script += [str(2 * turn + 2), f"<tool_call>\n{call}\n</tool_call>"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([os.environ["SCRIPTED_BINARY"], *script], **pipes) as server:
        yield server.stdout.readline().strip()
        server.stdin.close()


class Agents(unittest.TestCase):
    def test_openai_agents(self):
        """The default mode, which speaks Responses: a function and a handoff."""
        import agents

        agents.set_tracing_disabled(True)
        sums = []

        @agents.function_tool
        def add(a: int, b: int) -> int:
            """Adds."""
            sums.append(a + b)
            return a + b

        settings = agents.ModelSettings(max_tokens=100)
        adder = agents.Agent(
            name="adder", model="demo", tools=[add], model_settings=settings
        )
        answer = agents.Runner.run_sync(adder, QUESTION, max_turns=4)
        self.assertEqual(sums, [15])
        self.assertIn("15", answer.final_output)
        other = agents.Agent(name="other", model="demo", model_settings=settings)
        first = agents.Agent(
            name="first", model="demo", handoffs=[other], model_settings=settings
        )
        answer = agents.Runner.run_sync(first, QUESTION, max_turns=4)
        self.assertEqual(answer.last_agent.name, "other")
        self.assertIn("15", answer.final_output)

    def test_instructor(self):
        """The mode TOOLS: a named function whose arguments are the answer."""
        import instructor
        import openai
        import pydantic

        class Counted(pydantic.BaseModel):
            count: int = pydantic.Field(ge=0, le=99)
            unit: str = pydantic.Field(max_length=8)

        client = instructor.from_openai(openai.OpenAI(), mode=instructor.Mode.TOOLS)
        counted = client.chat.completions.create(
            model="demo",
            response_model=Counted,
            max_retries=0,
            max_tokens=120,
            messages=[{"role": "user", "content": QUESTION}],
        )
        self.assertIsInstance(counted, Counted)

    def test_pydantic_ai(self):
        """A function that the model may call, and structured output by a required one."""
        import pydantic
        import pydantic_ai

        class Counted(pydantic.BaseModel):
            count: int = pydantic.Field(ge=0, le=99)

        settings = {"max_tokens": 100}
        agent = pydantic_ai.Agent(
            "openai-chat:demo", output_type=Counted, model_settings=settings
        )
        self.assertIsInstance(agent.run_sync(QUESTION).output, Counted)
        agent = pydantic_ai.Agent("openai-chat:demo", model_settings=settings)
        sums = []

        @agent.tool_plain
        def add(a: int, b: int) -> int:
            """Adds."""
            sums.append(a + b)
            return a + b

        answer = agent.run_sync(QUESTION)
        self.assertEqual(sums, [15])
        self.assertIn("15", answer.output)

    def test_langgraph(self):
        """Its prebuilt agent: the model calls, a node runs the call, the model answers."""
        from langchain_core.messages import HumanMessage, ToolMessage
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI
        from langgraph.prebuilt import create_react_agent

        @tool
        def add(a: int, b: int) -> int:
            """Adds."""
            return a + b

        agent = create_react_agent(ChatOpenAI(model="demo", max_tokens=100), [add])
        state = agent.invoke({"messages": [HumanMessage(QUESTION)]})
        question, call, result, answer = state["messages"]
        self.assertEqual(len(call.tool_calls), 1)
        self.assertIsInstance(result, ToolMessage)
        self.assertEqual(result.content, "15")
        self.assertIn("15", answer.content)

    def test_instructor_asks_again(self):
        """A value that the framework refuses, and a second call that follows its message."""
        import instructor
        import openai
        import pydantic

        class Counted(pydantic.BaseModel):
            count: int

            @pydantic.field_validator("count")
            @classmethod
            def below_fifty(cls, count):
                if count >= 50:
                    raise ValueError("expected a number below 50")
                return count

        with scripted(("Counted", {"count": 96}), ("Counted", {"count": 15})) as url:
            client = openai.OpenAI(base_url=f"{url}/v1")
            client = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
            counted = client.chat.completions.create(
                model="demo",
                response_model=Counted,
                max_retries=2,
                messages=[{"role": "user", "content": QUESTION}],
            )
            self.assertEqual(counted.count, 15)

    def test_smolagents(self):
        """Its agent with the system text that it has by default: a function, then `final_answer`."""
        import smolagents

        @smolagents.tool
        def add(a: int, b: int) -> int:
            """Adds.

            Args:
                a: a
                b: b
            """
            return a + b

        def run(url, steps):
            model = smolagents.OpenAIModel(
                "demo", api_base=f"{url}/v1", api_key="unused", max_tokens=100
            )
            agent = smolagents.ToolCallingAgent(
                tools=[add], model=model, max_steps=steps, verbosity_level=0
            )
            answer = agent.run("What is 9 + 6?")
            taken = [
                step for step in agent.memory.steps if isinstance(step, smolagents.ActionStep)
            ]
            self.assertEqual(taken[0].observations, "15")
            return answer

        run(URL, 1)
        with scripted(("add", {"a": 9, "b": 6}), ("final_answer", {"answer": "15"})) as url:
            self.assertEqual(run(url, 3), "15")

    def test_llm(self):
        """The command `llm` with a function, which the model may call."""
        with tempfile.TemporaryDirectory() as folder:
            extra = (
                "- model_id: demo\n  model_name: demo\n  supports_tools: true\n"
                f"  api_base: {URL}/v1\n"
            )
            Path(folder, "extra-openai-models.yaml").write_text(extra)
            function = 'def add(a: int, b: int) -> int:\n    "Adds."\n    return a + b\n'
            command = ["-m", "llm", "-m", "demo", "--functions", function, "-n"]
            done = subprocess.run(
                [sys.executable, *command, "-o", "max_tokens", "60", QUESTION],
                env={**os.environ, "LLM_USER_PATH": folder},
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("15", done.stdout)


if __name__ == "__main__":
    unittest.main()
