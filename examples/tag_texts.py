"""Tag texts: train, look at probabilities, see why, add a label that has no text yet.

python examples/tag_texts.py        (needs the demo extra)
"""

import labelry
from labelry.data.icd import icd10cm

icd = icd10cm()
few = icd.train.take(range(0, icd.train.n_rows, 4))  # a quarter is enough for a first look
names = {code: icd.titles[code] for code in few.label_names}

tagger = labelry.Tagger(quality="balanced").fit_dataset(few, names=names)

for label, probability in tagger.predict(["acute pain in the left knee"], k=3)[0]:
    print(f"{probability:6.1%}  {label}  {icd.titles[label]}")

why = tagger.explain("acute pain in the left knee", "M25", n=3)
print("for M25:", why.supporting, "against:", why.opposing)

tagger.add_labels({"X99.9": "bitten by a very small dragon"})
print(tagger.predict(["dragon bite on the hand"], k=2)[0])

labels, scores = tagger.predict_topk(icd.test.texts[:1000], k=1)
print(f"right on {100 * tagger.score(icd.test.texts[:1000], icd.test.take(range(1000)).Y):.1f} %")
