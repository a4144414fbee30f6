"""Train on features of your own: any matrix, any system, with tools of scikit-learn.

python examples/own_features.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

import labelry

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

model = labelry.Rembrandt(embedding_dim=10, decoder="logistic").fit(X_train, y_train)
print(f"Rembrandt: {100 * model.score(X_test, y_test):.1f} %")

search = GridSearchCV(labelry.OneVsRest(), {"C": [0.1, 1, 10]}, cv=3).fit(X_train, y_train)
print(f"one-vs-rest, C = {search.best_params_['C']}: {100 * search.score(X_test, y_test):.1f} %")

labels, scores = model.predict_topk(X_test[:1], k=3)
print("best three of the first row:", labels[0], scores[0].round(2))
