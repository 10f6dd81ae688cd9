"""The cost of a router and the gain of a second replica: ratios of one run, as a result file.

Each replica computes with one thread, pinned to a processor of its own. Clients and router have
no processor to themselves: where there are two, they share them with the replicas.
"""

import concurrent.futures
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time

from client import CHAT, NUMBERS, Client, Refused, answers, chat
from stand import BINARY, KEY, ROUTERS, Replica, Stand, free_ports

ROUNDS = int(os.environ.get("ROUNDS", "5"))
# Requests of a throughput measurement, and the number of clients.
REQUESTS, CLIENTS = int(os.environ.get("REQUESTS", "64")), 8
# Requests of a latency measurement, each to every side in turn.
TURNS = int(os.environ.get("TURNS", "30"))
# The binary, if it was named.
GIVEN = f" {os.environ['GIVEN']}" if os.environ.get("GIVEN") else ""
SHAPES = {
    "plain": {},
    "streamed": {"stream": True},
    "one_token": {"max_tokens": 1},
}
NAMES = {"smg": "Shepherd Model Gateway", "litellm": "LiteLLM proxy"}
PACKAGES = {"smg": "smg", "litellm": "litellm"}


def version(router):
    lock = (ROUTERS / router / "requirements.lock").read_text()
    return re.search(rf"^{PACKAGES[router]}==(\S+)$", lock, re.MULTILINE)[1]


def machine():
    command = [BINARY, "inspect", "device"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    processor, f32 = shown.stdout.splitlines()[:2]
    return f"{processor}, {f32}"


def throughput(targets, expected):
    """Requests per second of clients that use the targets in turn."""
    numbers = list(itertools.islice(itertools.cycle(NUMBERS), REQUESTS))
    turns = iter(range(REQUESTS))

    def work(_):
        clients = [Client(*target) for target in targets]
        for turn in turns:
            client, number = clients[turn % len(clients)], numbers[turn]
            text = client.post(CHAT, chat(number, stream=turn // len(clients) % 2 == 0)).text()
            if text != expected[number]:
                raise Refused(f"{number}: {text}")
        for client in clients:
            client.close()

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, range(CLIENTS)))
    return REQUESTS / (time.perf_counter() - start)


def latencies(targets, fields):
    """The median time of a request on each side in milliseconds; the sides take turns."""
    clients = {name: Client(*target) for name, target in targets.items()}
    taken = {name: [] for name in targets}
    for turn in range(TURNS):
        for name in rotated(list(targets), turn):
            body = chat(NUMBERS[turn % len(NUMBERS)], **fields)
            start = time.perf_counter()
            clients[name].post(CHAT, body).text()
            taken[name].append(1000 * (time.perf_counter() - start))
    for client in clients.values():
        client.close()
    return {name: statistics.median(times) for name, times in taken.items()}


def rotated(items, by):
    by %= len(items)
    return items[by:] + items[:by]


def one_round(number, one, two, expected):
    """Requests per second by side and number of replicas, and milliseconds by shape and side."""
    arms = [(side, 1) for side in one] + [(side, 2) for side in two]
    rates = {}
    for side, replicas in rotated(arms, number):
        targets = (one if replicas == 1 else two)[side]
        rates[side, replicas] = throughput(targets, expected)
    single = {side: targets[0] for side, targets in one.items()}
    times = {shape: latencies(single, fields) for shape, fields in SHAPES.items()}
    return rates, times


def row(side, rounds):
    """One side over all rounds; lists have one value per round."""
    name = "none" if side == "none" else f"{NAMES[side]} {version(side)}"
    facts = {
        "name": name,
        "requests_per_second": [rates[side, 2] for rates, _ in rounds],
        "two_over_one": [rates[side, 2] / rates[side, 1] for rates, _ in rounds],
    }
    if side != "none":
        facts["of_direct"] = [rates[side, 2] / rates["none", 2] for rates, _ in rounds]
        for shape in SHAPES:
            sides = [times[shape] for _, times in rounds]
            facts[f"{shape}_added_ms"] = [times[side] - times["none"] for times in sides]
            facts[f"{shape}_ratio"] = [times[side] / times["none"] for times in sides]
    short = lambda value: [round(one, 3) for one in value] if isinstance(value, list) else value
    return {key: short(value) for key, value in facts.items()}


def main(path):
    processors = sorted(os.sched_getaffinity(0))
    port = free_ports(2)
    replicas = [Replica(port + at, cpu=processors[at % len(processors)]) for at in range(2)]
    urls = [replica.url for replica in replicas]
    one, two = {"none": [(urls[0], KEY)]}, {"none": [(url, KEY) for url in urls]}
    stands = []
    try:
        for name in NAMES:
            # The gateway refuses power_of_two over one replica, where the policy does not matter.
            for side, workers, policy in (
                (one, urls[:1], "round_robin"),
                (two, urls, "power_of_two"),
            ):
                stands.append(Stand(name, workers=workers, POLICY=policy))
                side[name] = [stands[-1].target()]
        expected = answers(urls[1], KEY)
        rounds = []
        for number in range(ROUNDS):
            rounds.append(one_round(number, one, two, expected))
            print(f"round {number + 1} of {ROUNDS}", flush=True)
    finally:
        for process in [*stands, *replicas]:
            process.stop()
    report = {
        "command": f"REQUESTS={REQUESTS} TURNS={TURNS} MEASURE={path} tests/routers/run{GIVEN}",
        "machine": machine(),
        "requests": REQUESTS,
        "clients": CLIENTS,
        "turns": TURNS,
        "rounds": ROUNDS,
        "routers": [row(side, rounds) for side in one],
    }
    for side in report["routers"]:
        for key, values in side.items():
            if key != "name":
                low, middle, high = min(values), statistics.median(values), max(values)
                print(f"{side['name']}: {key} {middle:.2f} ({low:.2f} to {high:.2f})")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
