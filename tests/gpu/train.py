# SPDX-License-Identifier: Apache-2.0
"""`carole train` on made-up tokens: what it is told, what its log says."""
import array
import json
import random
import re
import shutil
import time
from collections import namedtuple

from runner import end, why

Trained = namedtuple("Trained", "ok losses ms bits peak_bytes parameters note")
MEGA = 1 << 20


def tokens(run, vocabulary, count):
    """A token file in the format of llm.c: 256 numbers of 32 bits, then tokens of 16."""
    path = run.machine.build / f"tokens-{vocabulary}.bin"
    if not path.exists():
        # Mostly one follows from the other, so that losses fall and depend on what is learned.
        draw, some = random.Random(1), array.array("H", [0])
        while len(some) < min(count, 1 << 16):
            follows = (some[-1] * 5 + 7) % vocabulary
            some.append(follows if draw.random() < 0.8 else draw.randrange(vocabulary))
        header = array.array("i", [20240520, 1, count] + [0] * 253)
        with open(path, "wb") as file:
            file.write(header.tobytes())
            for at in range(0, count, len(some)):
                file.write(some[:count - at].tobytes())
    return path


def words(run, model, sets, options=()):
    """The command for a GPT of `model` (layers, heads, channels, context, vocabulary)."""
    layers, heads, channels, context, vocabulary = model
    folder = run.machine.build / "run"
    data = tokens(run, vocabulary, max(64 * context, 2 * MEGA if vocabulary > 256 else MEGA // 4))
    given = {
        "model.layers": layers, "model.heads": heads, "model.channels": channels,
        "model.context": context, "model.vocabulary": vocabulary, "model.dropout": 0,
        "data.train": f"[{data}]", "data.validation": "[]", "train.epochs": 0,
        "train.evaluate_every": 0, "train.checkpoint_every": 1000000, "parallel.pipeline": 1,
        "parallel.data": 1, "optimizer.rate_schedule": "constant", "optimizer.warmup_steps": 0,
        "run.device": run.machine.device, "run.directory": folder, **sets}
    argv = [run.machine.program("carole"), "train",
            run.machine.root / "configs" / "gpt2-124m.yaml", *options]
    for key, value in given.items():
        argv += ["--set", f"{key}={value}"]
    shutil.rmtree(folder, ignore_errors=True)
    return argv, folder / "log.jsonl"


def read_log(path):
    """Lines of the log that are there so far, whole ones only."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line]


def trained(lines, ok, bits="", note=""):
    steps = [line for line in lines if line.get("event") == "step"]
    start = next((line for line in lines if line.get("event") == "start"), {})
    return Trained(ok and bool(steps), [step["loss"] for step in steps],
                   [step["ms"] for step in steps], bits, start.get("peak_bytes", 0),
                   start.get("parameters", 0), note)


def train(run, model, sets, limit=60):
    """To the end, for the parameters' bits."""
    argv, log = words(run, model, sets)
    result = run.command(argv, limit)
    bits = re.search(r"parameter bits ([0-9a-f]{16})", result.text)
    return trained(read_log(log), result.rc == 0, bits.group(1) if bits else "",
                   "" if result.rc == 0 else why(result))


def time_steps(run, model, sets, steps, limit=90):
    """Until so many steps are logged: a checkpoint of a large model takes longer than they do."""
    argv, log = words(run, model, {**sets, "train.steps": 1000000}, ["--quiet"])
    process, deadline = run.start(argv), time.monotonic() + min(limit, run.left())
    while process.poll() is None and time.monotonic() < deadline:
        if sum(line.get("event") == "step" for line in read_log(log)) >= steps:
            break
        time.sleep(0.1)
    lines, rc = read_log(log), process.poll()
    end(process)
    text, _ = process.communicate()
    run.log.write(text)
    told = trained(lines, True)
    if rc is not None:
        note = text.strip().split("\n")[-1][:160]
    else:
        note = "" if len(told.ms) >= steps else f"only {len(told.ms)} steps in time"
    return told._replace(ok=len(told.ms) >= min(steps, 3), note=note)
