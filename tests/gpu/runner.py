# SPDX-License-Identifier: Apache-2.0
"""Stages under time limits, and the rows of the table that they leave."""
import os
import signal
import subprocess
import time
import traceback
from collections import namedtuple

Result = namedtuple("Result", "rc text seconds")
LATE = 124  # as of timeout(1)


class Runner:
    def __init__(self, machine, out, seconds):
        self.machine, self.out = machine, out
        self.begin, self.seconds = time.monotonic(), seconds
        self.end_of_stage = self.begin + seconds
        self.name = ""
        self.rows, self.facts = [], {}
        self.log = open(out / "log.txt", "w", encoding="utf-8")

    # Time.
    def left(self):
        """Seconds that the stage still has."""
        end = min(self.end_of_stage, self.begin + self.seconds)
        return max(0.0, end - time.monotonic())

    def stage(self, name, function, limit):
        self.name, rows = name, len(self.rows)
        self.end_of_stage = time.monotonic() + limit
        begin = time.monotonic()
        if self.left() < 5:
            self.row(name, "left out", note="no time left")
            return
        print(f"{name} ...", flush=True)
        try:
            function(self)
        except Exception as error:  # a stage's fault must not take the others along
            self.log.write(traceback.format_exc())
            self.row(name, "failed", proves=True, note=f"{type(error).__name__}: {error}")
        self.facts.setdefault("stage_s", {})[name] = round(time.monotonic() - begin, 1)
        for row in self.rows[rows:]:
            print(f"  {row['what']}: {row['result']} {row['note']}".rstrip(), flush=True)

    # Rows.
    def row(self, what, result, proves=False, note="", **figures):
        """result: ok, failed, left out. figures: ms, rate (text), share (0..1), memory_bytes."""
        self.rows.append(dict(stage=self.name, what=what, result=result, proves=proves, note=note,
                              **figures))

    def proof(self, what, good, note=""):
        self.row(what, "ok" if good else "failed", proves=True, note=note)

    def failed(self):
        return [row for row in self.rows if row["proves"] and row["result"] == "failed"]

    # Programs.
    def start(self, argv, env=None):
        argv = [str(word) for word in argv]
        self.log.write(f"\n$ {' '.join(argv)}\n")
        self.log.flush()
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env={**self.machine.env, **(env or {})}, start_new_session=True,
                                universal_newlines=True, errors="replace")

    def command(self, argv, limit=600, env=None):
        """Runs to the end, or is ended with all it started when time is up."""
        begin = time.monotonic()
        try:
            process = self.start(argv, env)
        except OSError as error:
            return Result(127, f"{argv[0]}: {error.strerror}", 0.0)
        late = False
        try:
            text, _ = process.communicate(timeout=min(limit, self.left()))
        except subprocess.TimeoutExpired:
            end(process)
            text, _ = process.communicate()
            late = True
        self.log.write(text + f"[{LATE if late else process.returncode}]\n")
        return Result(LATE if late else process.returncode, text, time.monotonic() - begin)


def end(process):
    """Ends what `start` has started, and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def last_line(text):
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    return lines[-1][:160] if lines else ""


def why(result):
    """A failed program in a few words."""
    if result.rc == LATE:
        return f"stopped after {result.seconds:.0f} s"
    return f"ended with {result.rc}: {last_line(result.text)}"
