"""Learn along a taxonomy of your own, print the tree, and export a learnt tree.

python examples/taxonomy.py
"""

import labelry
from labelry.trees import text_outline, to_newick

EDGES = [("animal", "pet"), ("animal", "farm"), ("pet", "cat"), ("pet", "dog")]
EDGES += [("farm", "cow"), ("farm", "hen")]
WORDS = {"cat": "purrs whiskers", "dog": "barks bone", "cow": "moos milk", "hen": "clucks egg"}
texts = [
    f"it {word} today {i}" for i in range(10) for text in WORDS.values() for word in text.split()
]
labels = [label for _ in range(10) for label, text in WORDS.items() for _ in text.split()]

model = labelry.LabelTree(tree=EDGES).fit(texts, labels)
names = model.classes_.tolist()
print(text_outline(model.tree_, names, model.label_counts_, max_depth=2))
print(to_newick(model.tree_, names))
print(model.predict(["it barks", "it clucks"]))

learnt = labelry.LabelTree(tree="rembrandt", branching=2).fit(texts, labels)
print(to_newick(learnt.tree_, names))
