"""Agent frameworks with a function, each as a loop that the framework runs by itself.

The demo model was not trained to call functions. Where a framework can require a call for the first
step, it does, so that the server's grammar makes the call; the demo model chooses the arguments and
everything after that step.
"""

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

        required = agents.ModelSettings(
            tool_choice="required", parallel_tool_calls=False, max_tokens=100
        )
        adder = agents.Agent(name="adder", model="demo", tools=[add], model_settings=required)
        answer = agents.Runner.run_sync(adder, QUESTION, max_turns=6)
        self.assertIsInstance(answer.final_output, str)
        self.assertTrue(sums)
        plain = agents.ModelSettings(max_tokens=60)
        other = agents.Agent(name="other", model="demo", model_settings=plain)
        first = agents.Agent(
            name="first", model="demo", handoffs=[other], model_settings=required
        )
        answer = agents.Runner.run_sync(first, QUESTION, max_turns=6)
        self.assertEqual(answer.last_agent.name, "other")

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
        """Structured output by a function, which the framework requires."""
        import pydantic
        import pydantic_ai

        class Counted(pydantic.BaseModel):
            count: int = pydantic.Field(ge=0, le=99)

        agent = pydantic_ai.Agent(
            "openai-chat:demo", output_type=Counted, model_settings={"max_tokens": 100}
        )
        answer = agent.run_sync(QUESTION)
        self.assertIsInstance(answer.output, Counted)

    def test_langgraph(self):
        """A graph of a model that must call and a node that runs the call, then a free answer."""
        from langchain_core.messages import HumanMessage, ToolMessage
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI
        from langgraph.graph import END, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode

        @tool
        def add(a: int, b: int) -> int:
            """Adds."""
            return a + b

        model = ChatOpenAI(model="demo", max_tokens=100)
        calling = model.bind_tools([add], tool_choice="required", parallel_tool_calls=False)
        graph = StateGraph(MessagesState)
        graph.add_node("call", lambda state: {"messages": [calling.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([add]))
        graph.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.set_entry_point("call")
        graph.add_edge("call", "tools")
        graph.add_edge("tools", "answer")
        graph.add_edge("answer", END)
        state = graph.compile().invoke({"messages": [HumanMessage(QUESTION)]})
        question, call, result, answer = state["messages"]
        self.assertEqual(len(call.tool_calls), 1)
        self.assertIsInstance(result, ToolMessage)
        arguments = call.tool_calls[0]["args"]
        self.assertEqual(result.content, str(arguments["a"] + arguments["b"]))
        self.assertIsInstance(answer.content, str)

    def test_smolagents(self):
        """Its agent requires a call in every step; a short prompt fits the demo's context."""
        import smolagents

        @smolagents.tool
        def add(a: int, b: int) -> int:
            """Adds.

            Args:
                a: a
                b: b
            """
            return a + b

        model = smolagents.OpenAIModel(
            "demo", api_base=f"{URL}/v1", api_key="unused", max_tokens=100
        )
        agent = smolagents.ToolCallingAgent(
            tools=[add], model=model, max_steps=2, verbosity_level=0
        )
        agent.prompt_templates["system_prompt"] = "Call."
        steps = list(agent.run("9 + 6?", stream=True))
        calls = [step for step in steps if isinstance(step, smolagents.ActionStep)]
        self.assertTrue(calls and calls[0].tool_calls, calls)

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


if __name__ == "__main__":
    unittest.main()
