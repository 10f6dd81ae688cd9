"""aiperf, the load generator: concurrent streams of exact length, and scrapes of /metrics."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent
REQUESTS = 20
TOKENS = 64


class Profile(unittest.TestCase):
    def profile(self, *options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        command = [
            Path(sys.executable).parent / "aiperf",
            "profile",
            *("--model", "demo", "--url", os.environ["SERVER_URL"]),
            *("--tokenizer", os.environ["TOKENIZER_FOLDER"], "--use-server-token-count"),
            *("--input-file", HERE / "sums.jsonl", "--custom-dataset-type", "single_turn"),
            *("--concurrency", "4", "--request-count", str(REQUESTS), "--random-seed", "1"),
            *("--osl", str(TOKENS), "--extra-inputs", "ignore_eos:true"),
            *("--output-artifact-dir", folder.name, "--ui", "none", "--no-gpu-telemetry"),
            *options,
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        result = json.loads((Path(folder.name) / "profile_export_aiperf.json").read_text())
        self.assertEqual(result["error_summary"], [])
        self.assertEqual(result["request_count"]["avg"], REQUESTS)
        lengths = result["output_sequence_length"]
        self.assertEqual((lengths["min"], lengths["max"]), (TOKENS, TOKENS))
        self.assertEqual(result["total_osl"]["avg"], REQUESTS * TOKENS)
        return result, json.loads((Path(folder.name) / "server_metrics_export.json").read_text())

    def test_chat_streams(self):
        result, scraped = self.profile("--endpoint-type", "chat", "--streaming")
        self.assertGreater(result["time_to_first_token"]["min"], 0)
        self.assertLess(result["time_to_first_token"]["avg"], result["request_latency"]["avg"])
        self.assertGreater(result["http_req_chunks_received"]["min"], 2)
        for name in ("asynclane_generation_tokens", "vllm:generation_tokens"):
            with self.subTest(metric=name):
                self.assertIn(name, scraped["metrics"])

    def test_plain_completions(self):
        self.profile("--endpoint-type", "completions", "--use-legacy-max-tokens")


if __name__ == "__main__":
    unittest.main()
