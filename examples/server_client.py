"""Send a document to a server and print its labels, with the standard library only.

labelry serve tagger.labelry &
python examples/server_client.py http://127.0.0.1:8000 "pain in the left knee"
"""

import json
import sys
from urllib.request import Request, urlopen


def ask(server: str, texts: list[str], k: int = 3) -> list[list[dict]]:
    body = json.dumps({"text": texts, "k": k}).encode()
    headers = {"content-type": "application/json"}  # and authorization, if the server has a key
    with urlopen(Request(f"{server}/v1/predict", body, headers), timeout=10) as answer:
        return json.load(answer)["predictions"]


if __name__ == "__main__":
    server, *texts = sys.argv[1:]
    for text, found in zip(texts, ask(server, texts), strict=True):
        print(text)
        for label in found:
            print(f"  {label['score']:.3f}  {label['label']}")
