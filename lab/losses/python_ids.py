#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A text for the loss curves of docs/fp8.md: the Python sources of the folders that are named.

    lab/losses/python_ids.py --out python.ids /usr/lib/python3 .venv/lib

Trains a BPE of 16,384 tokens on a sixth of the files and writes the ids of all, 2 bytes each, up to
75 million characters (20 million ids). Each file stands once, in an order that its content says, so
equal folders give equal ids. (The text of docs/fp8.md's curves was made likewise, of other folders
and in another order.)
Then a run is

    coda train --ids python.ids --vocab 16384 --untied --layers 8 --hidden 640 --heads 10
        --kv-heads 5 --mlp 1792 --sequence 512 --batch 32 --steps 1000 --lr 0.001 --dtype fp8
"""

import argparse
import hashlib
import pathlib

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CHARACTERS = 75_000_000
VOCABULARY = 16384
BYTES_OF_A_FILE = range(500, 200_000)


def texts_of(folders):
    found = {}
    for folder in folders:
        for path in pathlib.Path(folder).rglob("*.py"):
            if path.is_file() and path.stat().st_size in BYTES_OF_A_FILE:
                content = path.read_bytes()
                found[hashlib.md5(content).hexdigest()] = content.decode(errors="replace")
    texts, characters = [], 0
    for _, text in sorted(found.items()):
        if characters > CHARACTERS:
            break
        texts.append(text)
        characters += len(text)
    return texts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--out", required=True, metavar="FILE")
    arguments = parser.parse_args()
    texts = texts_of(arguments.folders)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts[::6], trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    ids = [id_ for text in texts for id_ in tokenizer.encode(text).ids]
    np.array(ids, dtype="<u2").tofile(arguments.out)
    print(f"{len(ids)} ids of {len(texts)} files")


if __name__ == "__main__":
    main()
