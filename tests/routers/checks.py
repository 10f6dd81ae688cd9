"""Checks of clients behind a router while replicas are killed and drained."""

import os
import re
import signal
import subprocess
import unittest

from client import CHAT, Client, Load, answers, chat, until
from stand import KEY, ROUTERS, Stand

PRESET = {"preset": "vanilla"}


def ended(worker):
    """Whether a replica's address has no listener any more."""
    try:
        Client(worker).get("/health")
    except OSError:
        return True
    return False


class Router:
    """The checks of every router; subclasses name the router and its differences."""

    name = ""
    # Arguments of a replica, here and in the script.
    flags = ()
    # Statuses without a key and with a wrong one.
    refusals = (401, 401)
    # Whether usage of a streamed answer keeps the replica's own fields.
    streams_usage = True

    @classmethod
    def setUpClass(cls):
        cls.stand = Stand(cls.name)
        cls.first, cls.second = cls.stand.workers
        cls.expected = answers(cls.second, KEY)
        cls.restarted = []

    @classmethod
    def tearDownClass(cls):
        status = cls.stand.stop()
        for replica in cls.restarted:
            replica.stop()
        assert status == 0, f"exit status {status}:\n" + "".join(cls.stand.run.lines)
        assert all(ended(worker) for worker in cls.stand.workers), "replicas are left"

    def setUp(self):
        self.client = self.stand.client()
        self.addCleanup(self.client.close)

    def test_an_answer_is_the_replicas_own(self):
        direct = Client(self.first, KEY)
        self.addCleanup(direct.close)
        for fields in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
            body = chat(9, **fields)
            own, routed = direct.post(CHAT, body), self.client.post(CHAT, body)
            self.assertEqual(routed.text(), own.text())
            self.assertEqual(routed.text(), self.expected[9])
            usage = [self.usage(answer) for answer in (own, routed)]
            for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
                self.assertEqual(usage[0][key], usage[1][key])

    def test_a_completion_is_the_replicas_own(self):
        body = {"model": "demo", "prompt": "Mia has 12 eggs.", "max_tokens": 16, "temperature": 0}
        direct = Client(self.first, KEY)
        self.addCleanup(direct.close)
        own = direct.post("/v1/completions", body).json()
        routed = self.client.post("/v1/completions", body).json()
        self.assertEqual(routed["choices"][0]["text"], own["choices"][0]["text"])
        self.assertEqual(routed["usage"]["diffusion"].keys(), own["usage"]["diffusion"].keys())

    def test_the_diffusion_object_arrives(self):
        plain = self.client.post(CHAT, chat(9, diffusion=PRESET))
        self.assertEqual(
            plain.json()["usage"]["diffusion"]["decoder"], "block_wise+top_k+none"
        )
        default = self.client.post(CHAT, chat(9)).json()["usage"]["diffusion"]["decoder"]
        self.assertEqual(default, "asynclane+entropy_bound+fused")
        options = {"stream": True, "stream_options": {"include_usage": True}}
        usage = self.usage(self.client.post(CHAT, chat(9, diffusion=PRESET, **options)))
        self.assertEqual("diffusion" in usage, self.streams_usage, usage)
        if self.streams_usage:
            self.assertEqual(usage["diffusion"]["decoder"], "block_wise+top_k+none")

    def test_a_request_without_the_key_is_refused(self):
        for key, status in zip(("", "sk-wrong"), self.refusals):
            client = Client(self.stand.url, key)
            self.assertEqual(client.post(CHAT, chat(9)).status, status)
            client.close()

    def test_a_wrong_diffusion_field_is_refused_by_name(self):
        answer = self.client.post(CHAT, chat(9, diffusion={"treshold": 0.5}))
        self.assertEqual(answer.status, 400)
        self.assertIn("diffusion.treshold is not known", answer.json()["error"]["message"])

    def test_a_killed_replica_loses_no_request_of_a_client_that_tries_again(self):
        with Load(self.stand.target(), self.expected, tries=20) as load:
            self.under_way(load)
            self.stand.signal(self.first, signal.SIGKILL)
            load.until(lambda: ended(self.first), "the replica's end")
            load.more(40)
        self.no_fault(load)
        print(f"\n  {self.name}: killed: {load.total()} answers, {len(load.failures)} failed tries")
        self.come_back()

    def test_a_drained_replica_shows_no_client_an_error(self):
        with Load(self.stand.target(), self.expected, tries=1) as load:
            self.under_way(load)
            self.stand.signal(self.first, signal.SIGTERM)
            load.until(lambda: ended(self.first), "the replica's end")
            load.more(40)
        self.assertEqual(load.failures, [])
        self.no_fault(load)
        print(f"\n  {self.name}: drained: {load.total()} answers, no failure")
        self.come_back()

    def under_way(self, load):
        """Both replicas have answered, and the first one is busy."""
        for worker in self.stand.workers:
            load.until(lambda worker=worker: load.of(worker) >= 5, f"five answers of {worker}")
        direct = Client(self.first, KEY)
        load.until(lambda: direct.get("/load").json()["server_load"] > 0, "work of the replica")
        direct.close()

    def no_fault(self, load):
        self.assertEqual(load.lost, [])
        self.assertEqual(load.wrong, [])
        self.assertGreater(load.of(self.first), 0)

    def come_back(self):
        self.restarted.append(self.stand.restart(self.first, self.flags))

    @staticmethod
    def usage(answer):
        if answer.headers["content-type"].startswith("text/event-stream"):
            return [chunk["usage"] for chunk in answer.chunks() if chunk.get("usage")][-1]
        return answer.json()["usage"]


class Manifest(unittest.TestCase):
    """The gateway's flags on Kubernetes; the manifest itself needs a cluster."""

    def setUp(self):
        text = (ROUTERS / "kubernetes" / "gateway.yaml").read_text()
        self.flags = re.findall(r"^ +- (--[a-z][^\n]*)$", text, re.MULTILINE)

    def test_the_flags_are_those_of_the_script(self):
        lines = (ROUTERS / "smg" / "gateway.flags").read_text().splitlines()
        local = [line.replace(" ", "=") for line in lines if not line.startswith("#")]
        self.assertEqual([flag for flag in local if flag not in self.flags], [])

    def test_the_gateway_knows_every_flag(self):
        program = (
            "import argparse, sys; from smg.router_args import RouterArgs;"
            "parser = argparse.ArgumentParser(); RouterArgs.add_cli_args(parser);"
            "found = RouterArgs.from_cli_args(parser.parse_args(sys.argv[1:]));"
            "print(found.policy, found.service_discovery_port, found.selector)"
        )
        python = os.path.join(os.environ["VENV_SMG"], "bin", "python")
        shown = subprocess.run(
            [python, "-c", program, *self.flags], capture_output=True, text=True, check=False
        )
        expected = "power_of_two 8000 {'app.kubernetes.io/name': 'asynclane'}\n"
        self.assertEqual((shown.returncode, shown.stdout), (0, expected), shown.stderr)


class Gateway(Router, unittest.TestCase):
    """The Shepherd Model Gateway."""

    name, flags = "smg", ("--drain-delay", "3")

    def test_an_error_is_the_replicas_own(self):
        body = chat(9, diffusion={"treshold": 0.5})
        direct = Client(self.first, KEY)
        self.addCleanup(direct.close)
        own, routed = direct.post(CHAT, body), self.client.post(CHAT, body)
        self.assertEqual(routed.body, own.body)

    def test_what_the_gateway_does_not_route(self):
        ids = {"model": "demo", "prompt": [6, 7, 8], "max_tokens": 1}
        for path, body, status in (
            ("/v1/diffusion/trace", chat(9), 404),
            ("/tokenize", {"model": "demo", "prompt": "Hi"}, 404),
            ("/detokenize", {"model": "demo", "tokens": [6]}, 404),
            ("/v1/completions", ids, 400),
        ):
            self.assertEqual(self.client.post(path, body).status, status, path)

    def test_requests_go_where_the_load_is_low(self):
        """Load that bypasses the gateway, so that it learns of it from /v1/loads only."""
        busy = {worker: answers(worker, KEY) for worker in self.stand.workers}
        self.assertEqual(*busy.values())
        with Load((self.first, KEY), self.expected, threads=8) as load:
            until(lambda: self.first_is_busier(), "the gateway has read the load")
            seen = self.probes(12)
        self.assertEqual(load.failures, [])
        self.assertGreaterEqual(seen.count(self.second), 10, seen)

    def probes(self, count):
        """Replicas that answered while the gateway took the first one for the busier.

        The gateway reads the loads once a second; a reading between two requests of the load can
        be low. Such probes say nothing, so both readings around a probe must agree.
        """
        seen = []

        def probe():
            before = self.first_is_busier()
            worker = self.client.post(CHAT, chat(3, max_tokens=1)).worker
            if before and self.first_is_busier():
                seen.append(worker)
            return len(seen) == count

        until(probe, f"{count} probes under load")
        return seen

    def first_is_busier(self):
        """By the requests of the replicas, as last read by the gateway."""
        workers = self.client.get("/workers").json()["workers"]
        loads = {one["url"]: one.get("engine_load") for one in workers}
        if not all(loads[worker] for worker in self.stand.workers):
            return False
        first, second = (
            loads[worker]["loads"][0]["num_total_reqs"] for worker in self.stand.workers
        )
        return first >= second + 4


class Prefixes(unittest.TestCase):
    """The gateway's prefix-aware policy over four replicas of a causal model."""

    TURNS = 4
    # Prime to the number of replicas, so that taking turns brings every prompt to all of them.
    NAMES = ("Mia", "Ben", "Tom", "Ana", "Eva")

    @classmethod
    def setUpClass(cls):
        flags = ["--model", "demo-wedlm", "--served-model-name", "demo"]
        cls.stand = Stand("smg", flags, POLICY="cache_aware", REPLICAS="4")

    @classmethod
    def tearDownClass(cls):
        assert cls.stand.stop() == 0, "".join(cls.stand.run.lines)
        assert all(ended(worker) for worker in cls.stand.workers), "replicas are left"

    def visits(self, stand, what):
        """By system prompt and turn: the replica, prompt tokens found in its cache, prompt tokens."""
        client = stand.client()
        self.addCleanup(client.close)
        seen = {}
        for turn in range(self.TURNS):
            for name in self.NAMES:
                body = chat(3 + turn, max_tokens=4)
                system = f"{name} sells {what}. " * 30
                body["messages"].insert(0, {"role": "system", "content": system})
                answer = client.post(CHAT, body)
                usage = answer.json()["usage"]
                # Absent if nothing was cached.
                cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
                seen.setdefault(name, []).append((answer.worker, cached, usage["prompt_tokens"]))
        return seen

    @staticmethod
    def hit_rate(seen):
        visits = [visit for one in seen.values() for visit in one]
        return sum(cached for _, cached, _ in visits) / sum(prompt for *_, prompt in visits)

    def test_prompts_that_begin_alike_meet_their_keys_and_values(self):
        aware = self.visits(self.stand, "pens")
        for visits in aware.values():
            self.assertEqual(len({worker for worker, *_ in visits}), 1, aware)
            self.assertTrue(all(cached > 0 for _, cached, _ in visits[1:]), aware)
        # The prompts are spread, not gathered on one replica.
        self.assertGreater(len({visits[0][0] for visits in aware.values()}), 1, aware)
        # The same replicas, which have not seen these prompts, asked in turns.
        turns = Stand("smg", workers=self.stand.workers, POLICY="round_robin")
        self.addCleanup(turns.stop)
        in_turns = self.visits(turns, "cups")
        for visits in in_turns.values():
            self.assertEqual({worker for worker, *_ in visits}, set(self.stand.workers), in_turns)
        rates = self.hit_rate(aware), self.hit_rate(in_turns)
        print(f"\n  four replicas: hit rate {rates[0]:.2f}, in turns {rates[1]:.2f}")
        self.assertGreater(rates[0], 0.5)
        self.assertLess(rates[1], 0.2)

    # Last by its name: it leaves three replicas.
    def test_when_a_replica_is_killed_the_other_prompts_stay(self):
        before = {name: visits[-1][0] for name, visits in self.visits(self.stand, "mugs").items()}
        killed = before[self.NAMES[0]]
        self.stand.signal(killed, signal.SIGKILL)
        until(lambda: ended(killed), "the replica's end")
        after = self.visits(self.stand, "mugs")
        for name, visits in after.items():
            workers = [worker for worker, *_ in visits]
            self.assertNotIn(killed, workers, after)
            # The gateway remembers the others' prompts at the killed replica, and spreads them.
            if before[name] != killed:
                self.assertEqual(set(workers), {before[name]}, after)
                self.assertTrue(all(cached > 0 for _, cached, _ in visits), after)


class LiteLlm(Router, unittest.TestCase):
    """LiteLLM's proxy."""

    name = "litellm"
    # LiteLLM 1.106.2 rebuilds the usage of a stream.
    streams_usage = False
    # LiteLLM looks up keys in a database, which is not installed here.
    refusals = (500, 400)

    def test_an_error_has_its_status_for_a_code(self):
        error = self.client.post(CHAT, chat(9, temperature=3)).json()["error"]
        self.assertEqual((error["param"], error["code"]), (None, "400"))
        self.assertIn("temperature must be in 0..2", error["message"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
