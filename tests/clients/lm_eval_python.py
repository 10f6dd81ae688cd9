"""lm-evaluation-harness: five sums over both of its API adapters, in every form of a prompt."""

import os
import unittest
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

HERE = Path(__file__).parent
URL = os.environ["SERVER_URL"]
TOKENIZER = os.environ["TOKENIZER_FOLDER"]
TASKS = TaskManager(include_path=str(HERE / "lm_eval"), include_defaults=False)


class Sums(unittest.TestCase):
    def evaluate(self, adapter, task, chat, **settings):
        path = "chat/completions" if "chat" in adapter else "completions"
        result = lm_eval.simple_evaluate(
            model=adapter,
            model_args={
                "model": "demo",
                "base_url": f"{URL}/v1/{path}",
                "max_length": 1024,
                "max_retries": 1,
                "timeout": 60,
                **settings,
            },
            tasks=[task],
            task_manager=TASKS,
            apply_chat_template=chat,
            log_samples=True,
        )
        self.assertEqual(len(result["samples"][task]), 5)
        # The demo model is small: one of the five sums may be wrong.
        self.assertGreaterEqual(result["results"][task]["exact_match,last-number"], 0.8)

    def test_completions_as_text(self):
        self.evaluate(
            "local-completions",
            "asynclane_sums_completion",
            chat=False,
            tokenizer_backend="none",
            tokenized_requests=False,
            num_concurrent=4,
        )

    def test_completions_as_token_ids_in_batches(self):
        self.evaluate(
            "local-completions",
            "asynclane_sums",
            chat=True,
            tokenizer_backend="huggingface",
            tokenizer=TOKENIZER,
            batch_size=5,
        )

    def test_completions_with_the_tokenizer_of_the_server(self):
        # Without a backend the adapter uses /tokenizer_info and /tokenize; with one it would look
        # for a tokenizer called `demo`. It does not apply chat templates to such tokens.
        self.evaluate(
            "local-completions", "asynclane_sums_completion", chat=False, num_concurrent=4
        )

    def test_chat_completions(self):
        self.evaluate(
            "local-chat-completions",
            "asynclane_sums",
            chat=True,
            tokenized_requests=False,
            num_concurrent=4,
        )


if __name__ == "__main__":
    unittest.main()
