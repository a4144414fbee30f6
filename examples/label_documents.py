"""Label documents: train, read probabilities and explanations, add a label without documents.

python examples/label_documents.py        (needs the demo extra)
"""

import labelry
from labelry.data.icd import icd10cm
from labelry.evaluation.evaluate import evaluate

icd = icd10cm()
few = icd.train.take(range(0, icd.train.n_rows, 4))  # a quarter is enough for an example
names = {label: icd.titles[label] for label in few.label_names}

tagger = labelry.Tagger(quality="balanced").fit(few, names=names)

for label, probability in tagger.predict(["acute pain in the left knee"], k=3)[0]:
    print(f"{probability:6.1%}  {label}  {icd.titles[label]}")

why = tagger.explain("acute pain in the left knee", "M25", n=3)
print("for M25:", why.supporting, "against:", why.opposing)

# Only the words of a description that the training documents have count.
tagger.add_labels({"home": "pain in the knee of a person who fell at home"})
print(tagger.predict(["a person with pain in the knee fell at home"], k=5)[0])

found = evaluate(tagger, icd.test.take(range(1000)))
print(f"the first label is right for {found['P@1']:.1f} % of the test documents")
