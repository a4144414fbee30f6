"""Getting data in and out: every format, texts and features, labels and their names."""

from labelry.data.dataset import Dataset
from labelry.data.files import read, read_blocks, write
from labelry.data.formats import FORMATS, recognise
from labelry.data.text import TextFeatures

__all__ = ["FORMATS", "Dataset", "TextFeatures", "read", "read_blocks", "recognise", "write"]
