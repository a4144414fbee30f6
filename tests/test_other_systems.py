"""The core works without what only POSIX systems have, as Windows does; it was not run there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What Windows lacks, or does otherwise, taken away before labelry is imported.
WITHOUT = """
import asyncio, ctypes, multiprocessing, os, shutil, signal, subprocess, sys, tempfile, threading
shutil._use_fd_functions = False  # else it opens folders
for name in ("fcntl", "resource", "termios", "uvloop"):
    sys.modules[name] = None
for name in ("sysconf", "sched_getaffinity", "register_at_fork", "geteuid", "posix_fadvise"):
    delattr(os, name)
for name in ("pthread_sigmask", "SIGHUP", "pthread_kill"):
    delattr(signal, name)

open_file, rename, load = os.open, os.rename, ctypes.CDLL
def open_no_folder(path, *how, **more):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return open_file(path, *how, **more)
def rename_to_nothing(source, target, **more):
    if os.path.exists(target):
        raise FileExistsError(17, "File exists", target)
    return rename(source, target, **more)
def load_no_process(name, *how, **more):
    if name is None:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")
    return load(name, *how, **more)
os.open, os.rename, ctypes.CDLL = open_no_folder, rename_to_nothing, load_no_process
"""
FLOW = """
import io, json
import labelry
from labelry.cli import main
from labelry.data import streams
streams._RENAMES_OPEN_FILES = False
texts, labels = ["cat purrs", "dog barks"] * 20, [["cat"], ["dog"]] * 20
for attempt in range(2):
    os.makedirs("empty", exist_ok=True)
    tagger = labelry.Tagger(n_jobs=2).fit(texts, labels)
    for name in ("model", "empty"):
        tagger.save(name, force=True)
        assert labelry.load(name).predict(["the cat purrs"])[0][0][0] == "cat"
left = set(os.listdir("."))
assert left == {"model", "empty"}, left
with open("rows.jsonl", "w") as file:
    for text, label in zip(texts, labels):
        file.write(json.dumps({"text": text, "labels": label}) + "\\n")
def labelry_command(*words):
    sys.argv = ["labelry", *words]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
labelry_command("convert", "rows.jsonl", "features.csv")
labelry_command("train", "rows.jsonl", "--out", "trained", "--system", "rembrandt", "-q")
labelry_command("predict", "trained", "rows.jsonl", "-o", "predicted.jsonl", "-q")
labelry_command("evaluate", "trained", "rows.jsonl", "--json", "-q")
assert len(open("predicted.jsonl").readlines()) == 40
"""
SERVER = """
import json, urllib.request
from labelry.server.run import serve
from labelry.server.settings import ServerSettings
from pathlib import Path
def ask(address):
    body = json.dumps({"text": "the cat purrs"}).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/predict", body, kind)
    print(urllib.request.urlopen(request, timeout=60).read().decode())
    signal.raise_signal(signal.SIGTERM)
def ready(address, *_):
    threading.Thread(target=ask, args=(address,), daemon=True).start()
serve(ServerSettings(Path("model")), "127.0.0.1", 0, 1, ready)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="takes away what Windows does not have")
def test_training_saving_predicting_and_serving_without_posix(tmp_path: Path) -> None:
    for code, expected in ((FLOW, '"P@1": 100.0'), (SERVER, '"cat"')):
        command = [sys.executable, "-c", WITHOUT + code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
