"""Learn label vectors, list similar labels, and write the vectors to files for other programs.

python examples/label_embeddings.py [FOLDER]        (needs the demo extra)
"""

import sys
import tempfile
from pathlib import Path

import labelry
from labelry.data.icd import icd10cm
from labelry.embeddings.export import export_embedding

icd = icd10cm()
model = labelry.Rembrandt(embedding_dim=100, decoder="least-squares").fit(icd.train)

for label in ("M25", "E11"):
    print(label, icd.titles[label])
    for other, cosine in zip(*model.similar_labels(label, k=3), strict=True):
        print(f"   {cosine:.2f}  {other}  {icd.titles[other]}")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
files = export_embedding(folder / "labels.vec", model.label_vectors(), model.classes_.tolist())
print("written:", ", ".join(file.name for file in files))
