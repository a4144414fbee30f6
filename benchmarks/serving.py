"""The server under load: requests a second, latency beside the bare model, processor time.

    python benchmarks/serving.py [--system tagger] [--workers 1,2] [--connections 1,8,64]

Trains on ICD-10-CM, starts `labelry serve`, and lets wrk (apt-get install wrk) send one text of
the test part after the other, each in a request of its own. wrk runs on the same machine, so its
processor time counts too and is shown. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import labelry
from labelry.data.icd import icd10cm

LABELRY = [sys.executable, "-c", "from labelry.cli import main; main()"]
BARE = 1000  # texts asked of the bare model one by one

# A thread of wrk sends its bodies in turn; at the end wrk's first thread writes the summary.
SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local place = 0
request = function()
  place = place %% #bodies + 1
  return wrk.format("POST", "/v1/predict", {["Content-Type"] = "application/json"}, bodies[place])
end
done = function(summary, latency, requests)
  local e = summary.errors
  local form = '{"requests": %%d, "seconds": %%f, "p50": %%f, "p99": %%f, "errors": %%d}\\n'
  io.write(string.format(form,
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def train(system: str, path: Path, data: Path) -> None:
    command = [*LABELRY, "train", str(data), "--out", str(path), "--quiet"]
    subprocess.run(command + ([] if system == "tagger" else ["--system", system]), check=True)


def bare(path: Path, texts: list[str]) -> tuple[float, float]:
    """Median milliseconds of a text alone, and of one of a batch of 64, in one thread."""
    model = labelry.load(path).set_params(n_jobs=1)
    model.predict_topk(texts[:64], 5)
    alone, batch = [], []
    for i, text in enumerate(texts[:BARE]):
        start = time.perf_counter()
        model.predict_topk([text], 5)
        alone.append(time.perf_counter() - start)
        if i % 64 == 0:
            start = time.perf_counter()
            model.predict_topk(texts[i : i + 64], 5)
            batch.append((time.perf_counter() - start) / len(texts[i : i + 64]))
    return 1e3 * float(np.median(alone)), 1e3 * float(np.median(batch))


@contextmanager
def server(path: Path, workers: int) -> Iterator[tuple[str, int]]:
    """Address and process id of a server that is ready."""
    command = [*LABELRY, "serve", str(path), "--port", "0", "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://\S+", line)
        if not found:
            sys.exit("the server did not start")
        yield found.group(), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def processor_seconds(pid: int) -> float:
    """Of a process and its children, so far."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        if int(stat.parent.name) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def load(address: str, script: Path, connections: int, seconds: int) -> dict[str, float]:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), address]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def line(address: str, pid: int, script: Path, workers: int, connections: int, seconds: int) -> str:
    load(address, script, connections, 1)  # caches, clocks
    server_cpu, wrk_cpu = processor_seconds(pid), children_seconds()
    found = load(address, script, connections, seconds)
    server_cpu, wrk_cpu = processor_seconds(pid) - server_cpu, children_seconds() - wrk_cpu
    n = max(found["requests"], 1)
    return (
        f"| {workers} | {connections} | {n / found['seconds']:,.0f} | {found['p50']:.2f} "
        f"| {found['p99']:.2f} | {1e3 * server_cpu / n:.2f} | {1e3 * wrk_cpu / n:.2f} "
        f"| {found['errors']:.0f} |"
    )


def children_seconds() -> float:
    """Processor time of children that have ended: here, runs of wrk."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", default="tagger", help="tagger, or a name for --system")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--connections", default="1,8,64")
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("this benchmark needs the load generator wrk: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        measure(options, Path(folder))


def measure(options: argparse.Namespace, folder: Path) -> None:
    from labelry.data import write

    data = icd10cm()
    write(data.train, folder / "train.jsonl")
    model, script = folder / "icd.labelry", folder / "load.lua"
    train(options.system, model, folder / "train.jsonl")
    texts = data.test.texts or []
    lines = "\n".join(json.dumps({"text": text, "k": 5}) for text in texts)
    (folder / "bodies.jsonl").write_text(lines)
    script.write_text(SCRIPT % (folder / "bodies.jsonl"))
    alone, batch = bare(model, texts)
    busy = os.getloadavg()[0]
    print(f"{options.system} on ICD-10-CM, {len(texts):,} texts, {data.train.n_labels:,} labels.")
    print(f"{os.cpu_count()} processors; load of the machine before the runs: {busy:.1f}.")
    print(f"The bare model: {alone:.2f} ms a text alone, {batch:.3f} ms in a batch of 64.\n")
    print("| workers | connections | requests/s | p50 ms | p99 ms ", end="")
    print("| server CPU ms | wrk CPU ms | errors |\n|---|---|---|---|---|---|---|---|")
    for workers in map(int, options.workers.split(",")):
        with server(model, workers) as (address, pid):
            for connections in map(int, options.connections.split(",")):
                print(line(address, pid, script, workers, connections, options.seconds), flush=True)


if __name__ == "__main__":
    main()
