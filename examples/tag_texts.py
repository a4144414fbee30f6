"""Tag texts: train, look at probabilities, see why, add a label that has no text yet.

python examples/tag_texts.py        (needs the demo extra)
"""

import labelry
from labelry.data.icd import icd10cm
from labelry.evaluation.evaluate import evaluate

icd = icd10cm()
few = icd.train.take(range(0, icd.train.n_rows, 4))  # a quarter is enough for a first look
names = {code: icd.titles[code] for code in few.label_names}

tagger = labelry.Tagger(quality="balanced").fit(few, names=names)

for label, probability in tagger.predict(["acute pain in the left knee"], k=3)[0]:
    print(f"{probability:6.1%}  {label}  {icd.titles[label]}")

why = tagger.explain("acute pain in the left knee", "M25", n=3)
print("for M25:", why.supporting, "against:", why.opposing)

# Of the words of a new name, those count that the tagger has met.
tagger.add_labels({"home": "pain in the knee of a person who fell at home"})
print(tagger.predict(["a person with pain in the knee fell at home"], k=5)[0])

found = evaluate(tagger, icd.test.take(range(1000)))
print(f"the best label of unseen phrases is right in {found['P@1']:.1f} %")
