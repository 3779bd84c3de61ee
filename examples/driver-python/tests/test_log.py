# SPDX-License-Identifier: Apache-2.0
"""Log lines, as the agent reads them."""

import io
import json
import logging
import sys
import threading
import unittest
import warnings

from compute_driver import log


class Logging(unittest.TestCase):
    def test_lines_are_what_the_agent_reads(self) -> None:
        out = io.StringIO()
        logger = log.set_up(out, "info")
        self.addCleanup(logging.basicConfig, force=True)
        logger.debug("not shown")
        logger.with_fields(call="X").warn("100% odd", at="a\nb", thing=object)
        logging.getLogger("library").error("of %s", "others")
        warnings.warn("old", stacklevel=1)
        lines = [json.loads(text) for text in out.getvalue().splitlines()]
        self.assertEqual([("warn", "100% odd"), ("error", "of others")], [(x["@level"], x["@message"]) for x in lines[:2]])
        self.assertEqual(("X", "a\nb"), (lines[0]["call"], lines[0]["at"]))
        self.assertRegex(lines[0]["@timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
        self.assertEqual("warn", lines[2]["@level"])

    def logged(self, level: str = "trace"):
        out = io.StringIO()
        self.addCleanup(logging.basicConfig, force=True)
        return log.set_up(out, level), lambda: [json.loads(text, parse_constant=self.fail) for text in out.getvalue().splitlines()]

    def test_nothing_that_is_logged_breaks_a_line(self) -> None:
        class Mute:
            def __str__(self) -> str:
                raise ValueError("no text")

        logger, lines = self.logged()
        logger.trace("odd", nan=float("nan"), mute=Mute(), huge=10**400, bytes=b"\xff", lone="\udc80", nested={"a": [float("inf")]}, n=1)
        logging.getLogger("library").error("%d of %s", "no number")
        logger.error("long", stack="\n".join(f"frame {i}" for i in range(100_000)), **{f"f{i}": "\u1234" * 20_000 for i in range(200)})
        odd, unfit, long = lines()
        self.assertEqual(("trace", "nan", 1), (odd["@level"], odd["nan"], odd["n"]))
        self.assertEqual("%d of %s", unfit["@message"])
        self.assertLess(len(json.dumps(long)), 64 << 10)

    def test_the_end_of_a_stack_is_kept(self) -> None:
        logger, lines = self.logged()
        logger.error("defect", stack="\n".join(f"frame {i}" for i in range(100_000)))
        self.assertTrue(lines()[0]["stack"].endswith("frame 99999"))

    def test_an_uncaught_exception_is_a_line(self) -> None:
        hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
        self.addCleanup(lambda: (setattr(sys, "excepthook", hooks[0]), setattr(sys, "unraisablehook", hooks[1]),
                                 setattr(threading, "excepthook", hooks[2])))
        logger, lines = self.logged()
        log.catch_the_rest(logger)
        thread = threading.Thread(target=lambda: {}["lost"], name="poller")
        thread.start()
        thread.join()
        (line,) = lines()
        self.assertEqual(("error", "thread poller", "KeyError"), (line["@level"], line["where"], line["error_type"]))
        self.assertIn("Traceback", line["stack"])


if __name__ == "__main__":
    unittest.main()
