"""Train on more rows than memory holds: write shards, and pass over them within a bound.

python examples/out_of_core.py [FOLDER]        (needs the demo extra)
"""

import sys
import tempfile
from pathlib import Path

import labelry
from labelry.data import write
from labelry.data.icd import icd10cm
from labelry.data.shard_writer import write_shards

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
icd = icd10cm()
write(icd.train, folder / "train.jsonl.gz")

# Constant memory, and after a crash the same call goes on: labelry convert --sharded.
shards = write_shards(folder / "train.jsonl.gz", folder / "shards", shard_bytes=500_000)
print(f"{shards.n_rows:,} rows, {shards.n_bytes / 1e6:.1f} MB in {len(shards.shards)} shards")

# As labelry train shards/ --system linear-tree --memory 4GiB. Here the bound is too small to
# hold the rows and what is made of them, so that they stay on disk.
model = labelry.LinearLabelTree().fit(shards.rows(memory=2 * shards.n_bytes + (2 << 20)))
print(f"P@1 {labelry.evaluate(model, icd.test)['P@1']:.1f}")
print(model.predict_topk(["pain in the left knee"], k=2)[0].tolist())
