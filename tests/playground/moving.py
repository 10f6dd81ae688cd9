#!/usr/bin/env python3
"""Draws an answer as a moving picture: an SVG with a frame for each forward pass.

    moving.py http://127.0.0.1:8000 > docs/canvas.svg
"""

import json
import sys
import urllib.request
from xml.sax.saxutils import escape

PROMPT = (
    "Mia has 15.5 dollars. Then she loses 5 dollars. Next she finds 1 more dollars. After that she "
    "gets 7 more dollars. How many dollars does Mia have now?"
)
SECONDS, REST = 0.45, 5
GLYPH, HEIGHT, WIDTH, MARGIN, TOP = 8.4, 26, 880, 12, 44
COLOURS = {"generate": ("#dfebfa", "#1f63b0"), "refine": ("#fbe9cb", "#a05a00")}
STYLE = """
text { font: 14px ui-monospace, monospace; fill: #1b2026; white-space: pre }
.page { fill: #ffffff } .mask { fill: #e3e6e9 } .small { font-size: 12px; fill: #59636e }
"""


def steps(server):
    body = {"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": PROMPT}]}
    request = urllib.request.Request(
        server + "/v1/diffusion/trace", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    name, found = "", []
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: {") and name == "step":
                found.append(json.loads(line[6:]))
    return found


def lane_at(lanes, offset):
    owners = [lane for lane in lanes.values() if lane["state"] != "forked"]
    for lane in owners:
        if lane["start"] <= offset < lane["start"] + lane["len"]:
            return lane["role"]
    return "generate"


def read(events):
    """The cells by offset, each with its text, its step and the role of its lane; the roles of each
    step's lanes."""
    lanes, cells, ran = {}, {}, []
    for step in events:
        before = lanes or {lane["id"]: lane for lane in step["lanes"]}
        for offset, _, text, _, _ in step["cells"]:
            cells[offset] = (text, step["step"], lane_at(before, offset))
        clocks = {number: lane["clock"] for number, lane in lanes.items()}
        ran.append([l["role"] for l in step["lanes"] if l["clock"] > clocks.get(l["id"], 0)])
        lanes |= {lane["id"]: lane for lane in step["lanes"]}
    end = events[-1]["canvas"]
    return [cells[offset] for offset in sorted(cells) if offset < end], ran


def keyframes(number, count, until_end=True):
    """An element that appears with a step and stays, or leaves with the next one."""
    whole = count + REST
    begin, end = 100 * number / whole, 100 * (number + 1) / whole
    name = f"{'s' if until_end else 'f'}{number}"
    shown = f"{begin:.2f}%, 100% {{ opacity: 1 }}"
    if not until_end:
        shown = f"{begin:.2f}%, {end - 0.01:.2f}% {{ opacity: 1 }} {end:.2f}%, 100% {{ opacity: 0 }}"
    hidden = f"0%, {max(0, begin - 0.01):.2f}% {{ opacity: 0 }}"
    move = f".{name} {{ animation: {name} {whole * SECONDS:.2f}s step-end infinite }}"
    return f"@keyframes {name} {{ {hidden} {shown} }}\n{move}\n"


def draw(events):
    cells, ran = read(events)
    style, shapes, x, y = STYLE, [], MARGIN, TOP
    count = len(events)
    for step in range(1, count + 1):
        style += keyframes(step, count)
        if step < count:
            style += keyframes(step, count, until_end=False)
        roles = " and ".join(f"a {role} lane" for role in sorted(set(ran[step - 1])))
        line = f"forward pass {step} of {count}: {roles}"
        kind = "f" if step < count else "s"
        shapes.append(f'<text class="small {kind}{step}" x="{MARGIN}" y="24">{line}</text>')
    for text, step, role in cells:
        shown = "⏎" if text == "\n" else "" if text.startswith("<|") else text
        if not shown:
            continue
        width = max(1, len(shown)) * GLYPH + 2
        if x + width > WIDTH - MARGIN:
            x, y = MARGIN, y + HEIGHT
        box = f'x="{x:.1f}" y="{y}" width="{width - 1:.1f}" height="{HEIGHT - 5}"'
        tint, ink = COLOURS[role]
        shapes.append(f'<rect class="mask" {box}/>')
        shapes.append(
            f'<g class="s{step}"><rect {box} fill="{tint}"/>'
            f'<rect x="{x:.1f}" y="{y + HEIGHT - 7}" width="{width - 1:.1f}" height="2" fill="{ink}"/>'
            f'<text x="{x + 1:.1f}" y="{y + 15}">{escape(shown)}</text></g>'
        )
        x += width
    height = y + HEIGHT + MARGIN
    still = "@media (prefers-reduced-motion: reduce) { g, text { animation: none } }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">\n'
        f"<title>An answer in {count} forward passes</title>\n<style>{style}{still}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n' + "\n".join(shapes) + "\n</svg>"
    )


def main():
    events = steps(sys.argv[1])
    assert all(step["skipped"] == 0 for step in events), "the machine is too busy: try again"
    print(draw(events))


main()
