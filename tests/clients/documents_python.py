"""The Python code that the documents show runs, and prints what they say it prints."""

import contextlib
import io
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"


def examples():
    """Document, code, and the text behind it if the next fence is one."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        fences = FENCE.findall(path.read_text(encoding="utf-8"))
        for (language, code), following in zip(fences, [*fences[1:], ("", "")]):
            if language == "python":
                yield path.name, code, following[1] if following[0] == "text" else None


class Documents(unittest.TestCase):
    def test_examples(self):
        found = list(examples())
        self.assertGreaterEqual(len(found), 2)
        for name, code, expected in found:
            with self.subTest(document=name):
                self.assertIn(ADDRESS, code)
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(code.replace(ADDRESS, os.environ["SERVER_URL"]), {})
                text = printed.getvalue().strip()
                self.assertTrue(text.endswith("#### 12"), text)
                if expected is not None:
                    self.assertEqual(text, expected.strip())


if __name__ == "__main__":
    unittest.main()
